"""Labels that are not in the table are pointed out, with the one that may have been meant."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from exchangeable.completion import inputs
from exchangeable.completion.completer import Completer
from exchangeable.errors import InputError, InputWarning

FILMS = ["Heat", "Alien", "Aliens", "Big"]
CELLS = [(user, film) for user in (6, 305, 7) for film in FILMS][:-1]
FRAME = pl.DataFrame(CELLS, schema=["user", "film"], orient="row")


@pytest.fixture(scope="module")
def numbered():
    return Completer("bias").fit(FRAME, range(1, 12))


@pytest.fixture(scope="module")
def titled():
    return Completer("bias").fit([(str(user), film) for user, film in CELLS], range(1, 12))


WRONG_NUMBER = r"labels of 'user' are whole numbers, but '305' is text; did you mean 305\?$"
WRONG_TEXT = r"labels of 'column 1' are texts, but 305 is a whole number; did you mean '305'\?$"


@pytest.mark.parametrize(
    "ask",
    [
        lambda c, label: c.recommend(label),
        lambda c, label: c.recommend([label]),
        lambda c, label: c.recommend((label, label)),
        lambda c, label: c.recommend(label, ratings={"Heat": 3}),
        lambda c, label: c.explain((label, "Heat")),
        lambda c, label: c.forget(label),
        lambda c, label: c.similar(label),
    ],
)
def test_a_label_of_the_wrong_type_is_no_stranger(numbered, titled, ask):
    with pytest.raises(InputError, match=WRONG_NUMBER):
        ask(numbered, "305")
    with pytest.raises(InputError, match=WRONG_TEXT):
        ask(titled, 305)
    with pytest.raises(InputError, match=WRONG_TEXT):
        ask(titled, np.int64(305))


def test_what_is_no_label_is_refused_as_a_member(numbered, titled):
    for completer in (numbered, titled):
        for member, name in ((b"3", "bytes"), ((u for u in (6, 7)), "generator")):
            with pytest.raises(InputError, match=f"must be one label, .*, but is of type {name}$"):
                completer.recommend(member)
        with pytest.raises(InputError, match=r"labels of '.*' are .*, but True is a boolean"):
            completer.recommend(True)
        for ask in (completer.forget, completer.recommend):
            with pytest.raises(InputError) as refused:
                ask([("6", "Heat")])
            assert "\n" not in str(refused.value)
            assert "('6', 'Heat')" in str(refused.value)
    truths = Completer("bias").fit([(u, f) for u in (True, False) for f in FILMS][:-1], range(7))
    assert truths.recommend(False)["column 2"].to_list() == ["Big"]


def test_other_types_have_names_too(titled):
    with pytest.raises(InputError, match=r"texts, but 305.0 is a number; did you mean '305'\?"):
        titled.recommend(305.0)
    days = [datetime.date(2024, 1, day) for day in (1, 2, 3)]
    dated = Completer("bias").fit([(day, x) for day in days for x in "ab"], range(6))
    with pytest.raises(InputError, match="are dates, but '2024-01-02' is text; did you mean date"):
        dated.recommend("2024-01-02")
    with pytest.warns(InputWarning, match="datetime.date"):
        dated.recommend(datetime.date(2025, 1, 1))


def test_a_stranger_gets_a_list_with_a_warning_unless_something_is_known_of_it(numbered):
    message = r"^'zzz' is not in the table: these are recommendations for somebody unknown$"
    with pytest.warns(InputWarning, match=message) as caught:
        found = numbered.recommend("zzz", n=2)
    assert caught[0].filename == __file__
    assert len(found) == 2
    with pytest.warns(InputWarning, match=r"unknown; did you mean 'Alien'\?$"):
        numbered.recommend("Allien", axis="film")
    assert len(numbered.recommend("zzz", n=2, ratings={"Heat": 3})) == 2
    assert len(numbered.recommend("zzz", n=2, ratings={})) == 2


def test_lists_of_members_must_be_known_and_others_are_one_label(numbered):
    for members in ([305, 7], (305, 7)):  # 305 has all films
        assert numbered.recommend(members)["user"].to_list() == [7]
    with pytest.raises(InputError, match=r"1 of 2 are no film of .* 'Haet'; did you mean 'Heat'\?"):
        numbered.recommend(["Heat", "Haet"], axis="film")
    with pytest.raises(InputError, match=r"must be one label, .* but is a dict"):
        numbered.recommend({305: 6})


def test_one_warning_names_the_unknown_labels_of_cells(numbered):
    asked = [(6, "Heat"), (6, "Hat"), (305, "Aliens"), (99, "Hat"), (6, "Up")]
    with pytest.warns(InputWarning) as caught:
        predicted = numbered.predict(asked)
    assert [str(warning.message) for warning in caught] == [
        "1 of 3 labels of 'user' is not in the table, such as 99; "
        "2 of 4 labels of 'film' are not in the table, such as 'Hat'; did you mean 'Heat'?"
    ]
    assert caught[0].filename == __file__
    assert predicted.shape == (5,)
    with pytest.warns(InputWarning, match="2 of 4 labels of 'film'"):
        np.testing.assert_array_equal(
            numbered.predict(pl.DataFrame(asked, orient="row")), predicted
        )
    with pytest.warns(InputWarning, match="1 of 1 label of 'film' is not in the table, such as 'U"):
        numbered.sample([(6, "Up")])


def test_near_labels_are_not_searched_for_among_very_many(numbered, monkeypatch):
    monkeypatch.setattr(inputs, "MAX_COMPARED_LABELS", 3)
    with pytest.warns(InputWarning, match="such as 'Hat'$"):
        numbered.predict([(6, "Hat")])


def test_ratings_of_unknown_labels_ask_what_was_meant(numbered):
    with pytest.raises(InputError, match=r"but 'Haet' is not known; did you mean 'Heat'\?"):
        numbered.recommend(99, ratings={"Haet": 3})


def test_swapped_columns_are_refused(numbered):
    message = "must have the labels of user, film, but have those of film, user: reorder them"
    swapped = [("Heat", 6), ("Big", 305)]
    for cells in (
        swapped,
        pl.DataFrame(swapped, orient="row"),
        pd.DataFrame(swapped),
        pd.DataFrame(swapped, columns=["user", "film"]),  # called so by mistake
    ):
        with pytest.raises(InputError, match=message):
            numbered.predict(cells)
    with (
        pytest.warns(InputWarning, match="'title' for 'user', 'who' for 'film'"),
        pytest.raises(InputError, match=message),
    ):
        numbered.predict(pd.DataFrame(swapped, columns=["title", "who"]))
    named = pl.DataFrame(swapped, schema=["film", "user"], orient="row")
    right = [(6, "Heat"), (305, "Big")]
    np.testing.assert_array_equal(numbered.predict(named), numbered.predict(right))


@pytest.mark.parametrize(
    "titles",
    [
        ("film_id", "user_id"),
        ("Film", "User"),
        ("films", "users"),
        ("filmId", "userId"),
        ("FILM ID", "USERS"),
        ("film", "user_id"),
    ],
)
def test_titles_are_matched_in_capitals_in_the_plural_and_as_ids(titles):
    square = Completer("bias").fit(
        pl.DataFrame({"user": [1, 1, 2, 3, 4], "film": [1, 2, 2, 1, 3]}), [1, 5, 3, 2, 4]
    )
    right = square.predict([(3, 2), (4, 1)])
    asked = pl.DataFrame(dict(zip(titles, ([2, 1], [3, 4]), strict=True)))
    np.testing.assert_array_equal(square.predict(asked), right)
    np.testing.assert_array_equal(square.predict(asked.with_columns(note=pl.lit("a"))), right)
    updated = square.update(asked, [2, 3])
    assert {(3, 2), (4, 1)} <= set(map(tuple, updated.table_.frame(updated.table_.index).rows()))


def test_titles_of_something_else_are_a_warning_and_some_of_the_axes_an_error(numbered):
    asked = pl.DataFrame({"member": [6], "title": ["Heat"]})
    with pytest.warns(InputWarning) as caught:
        predicted = numbered.predict(asked)
    assert [str(warning.message) for warning in caught] == [
        "no column of the cells is called as an axis: they are taken by position, "
        "'member' for 'user', 'title' for 'film'"
    ]
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(predicted, numbered.predict([(6, "Heat")]))
    with pytest.raises(InputError, match=r"each of 2 axes \(user, film\), but have 2: who, Films"):
        numbered.predict(pl.DataFrame({"who": [6], "Films": ["Heat"]}))


def test_titles_that_are_alike_are_taken_as_they_are_written():
    frame = pl.DataFrame({"film": ["a", "b", "b"], "films": ["x", "x", "y"]})
    completer = Completer("bias").fit(frame, [1, 2, 3])
    assert completer.table_.axes == ("film", "films")
    right = completer.predict([("a", "y")])
    swapped = pl.DataFrame({"films": ["y"], "film": ["a"]})
    np.testing.assert_array_equal(completer.predict(swapped), right)
    with pytest.raises(InputError, match="a column for each axis"):
        completer.predict(pl.DataFrame({"films": ["y"], "Film": ["a"], "FILM": ["a"]}))


def test_columns_whose_labels_do_not_tell_an_order_are_taken_as_they_come(numbered):
    with pytest.warns(InputWarning, match="1 of 1 label of 'user'"):
        numbered.predict([("Heat", "Heat")])
    square = Completer("bias").fit([(1, 2), (2, 1), (3, 1), (1, 3)], [1, 2, 3, 4])
    assert square.predict([(2, 3)]).shape == (1,)
    with pytest.warns(InputWarning, match="such as 9"):  # numbers may be labels of any axis
        Completer("bias").fit([(1, 9), (2, 8), (1, 8)], [1, 2, 3]).predict([(9, 1)])
    friends = Completer("bias").fit([("a", "b"), ("b", "c"), ("c", "a")], [1, 2, 3])
    assert friends.predict([("b", "a")]).shape == (1,)
    gifts = Completer("bias").fit([("a", "b"), ("b", "c"), ("b", "d")], [1, 2, 3])
    with pytest.warns(InputWarning, match="such as 'd'"):  # who has received and never given
        gifts.predict([("d", "b")])


def test_two_of_three_columns_may_be_swapped():
    cells = [("a", "x", 1), ("a", "y", 2), ("b", "x", 2)]
    completer = Completer("bias").fit(cells, [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="those of column 1, column 3, column 2: reorder them"):
        completer.predict([("a", 1, "x")])


def test_texts_for_numbers_are_in_no_wrong_order():
    completer = Completer("bias").fit([(1, 1), (1, 2), (2, 1)], [1.0, 2.0, 3.0])
    with pytest.warns(InputWarning, match=r"such as '1'; did you mean 1\?"):
        completer.predict([("1", "2"), ("2", "1")])
