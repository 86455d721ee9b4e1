"""The estimator: labels in, labels out, the same predictions however a table comes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests.support.film_club import ASKED, FRAME, LABELS, MODELS, RATINGS, SHORT, TRAINED
from tests.support.strangers import STRANGERS

import exchangeable
from exchangeable.completion.completer import Completer
from exchangeable.data.table import Table
from exchangeable.datasets import load
from exchangeable.errors import InputError, InputWarning


@pytest.mark.parametrize("model", [*MODELS, *TRAINED])
def test_every_model_answers_with_a_mean_inside_its_interval(fitted, model):
    completer = fitted(model)
    means, intervals = completer.predict(ASKED), completer.predict_interval(ASKED, 0.8)
    assert means.shape == (40,)
    assert intervals.shape == (40, 2)
    assert np.isfinite(intervals).all()
    assert (intervals[:, 0] <= means + 0.3).all()
    assert (means - 0.3 <= intervals[:, 1]).all()
    assert ((means >= 1) & (means <= 5)).all()
    chances = completer.predict_proba(ASKED)
    assert chances.shape == (40, 5)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    wider = completer.predict_interval(ASKED, 0.95)
    assert (wider[:, 1] - wider[:, 0] >= intervals[:, 1] - intervals[:, 0] - 1e-9).all()


@STRANGERS
@pytest.mark.parametrize("model", [*MODELS, *TRAINED])
def test_members_never_seen_get_the_answer_of_their_other_axes(fitted, model):
    completer = fitted(model)
    film = LABELS["film"][0]
    known, both = completer.predict([("nobody", film), ("nobody", "nothing")])
    again = completer.predict([("someone else", film)])[0]
    assert known == again
    assert 1 <= both <= 5


@pytest.mark.parametrize("model", ["bias", "vmf", "bmf", *TRAINED])
def test_the_order_of_rows_changes_nothing(model):
    training = SHORT if model in TRAINED else None
    order = np.random.default_rng(1).permutation(len(FRAME))
    one = Completer(model, training=training).fit(LABELS, RATINGS)
    other = Completer(model, training=training).fit(LABELS[order], RATINGS[order])
    np.testing.assert_array_equal(one.predict(ASKED), other.predict(ASKED))
    np.testing.assert_array_equal(one.predict_interval(ASKED), other.predict_interval(ASKED))


@pytest.mark.parametrize("model", ["vmf", "residual"])
def test_an_answer_does_not_depend_on_what_else_is_asked(fitted, model):
    completer = fitted(model)
    together = completer.predict(ASKED)
    alone = np.concatenate([completer.predict(ASKED[row]) for row in range(len(ASKED))])
    np.testing.assert_allclose(alone, together, rtol=0, atol=1e-6)


def test_relabelled_tables_give_relabelled_answers():
    renamed = {
        axis: dict(
            zip(
                LABELS[axis].unique(maintain_order=True),
                np.random.default_rng(5).permutation(LABELS[axis].n_unique()).tolist(),
                strict=True,
            )
        )
        for axis in LABELS.columns
    }
    other = pl.DataFrame(
        {a: [f"m{renamed[a][label]}" for label in LABELS[a]] for a in LABELS.columns}
    )
    one = Completer().fit(LABELS, RATINGS).predict(ASKED)
    two = Completer().fit(other, RATINGS).predict(other.head(40))
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "numpy", "csv", "lists"])
def test_the_same_table_from_anywhere_gives_the_same_answers(tmp_path, kind, fitted):
    expected = fitted("vmf").predict(ASKED)
    if kind == "csv":
        FRAME.write_csv(tmp_path / "ratings.csv")
        completer = Completer("vmf").fit_table(Table.read(tmp_path / "ratings.csv"))
        found = completer.predict(ASKED)
    else:
        convert = {
            "pandas": lambda frame: frame.to_pandas(),
            "polars": lambda frame: frame,
            "pyarrow": lambda frame: frame.to_arrow(),
            "numpy": lambda frame: frame.to_numpy(),
            "lists": lambda frame: frame.rows(),
        }[kind]
        found = Completer("vmf").fit(convert(LABELS), RATINGS).predict(convert(ASKED))
    np.testing.assert_array_equal(found, expected)


def test_values_may_come_as_a_column_of_the_frame(fitted):
    one = Completer("vmf").fit(FRAME).predict(FRAME.head(40))
    np.testing.assert_array_equal(one, fitted("vmf").predict(ASKED))


def test_tables_of_three_axes(tmp_path):
    evenings = load("film-club-evenings").table
    frame = pl.DataFrame(evenings.frame(evenings.index, rating=evenings.values))
    cells, values = frame.drop("rating"), frame["rating"].to_numpy()
    for model in ("bias", "vmf", "bmf", "item-knn", "residual"):
        training = SHORT if model in TRAINED else None
        completer = Completer(model, training=training).fit(cells, values)
        means = completer.predict(cells.head(20))
        assert np.isfinite(means).all()
        member = cells["member"][0]
        found = completer.recommend(member, n=4, given={"occasion": "alone"})
        assert found["occasion"].to_list() == ["alone"] * 4
        best = completer.recommend(member, n=4)
        assert best.columns[:2] == ["film", "occasion"]
        completer.update([("new", "Heat", "alone")], [5.0])
        completer.save(tmp_path / model)
        assert Completer.load(tmp_path / model).predict(cells.head(2)).shape == (2,)
        with pytest.raises(InputError, match="3 features"):
            completer.predict([("a", "b")])


def test_masked_cells_are_missing_ones():
    cells = np.array([["a", "x"], ["a", "y"], ["b", "x"]])
    values = np.ma.array([1.0, 99.0, 3.0], mask=[False, True, False])
    completer = Completer("mean").fit(cells, values)
    assert completer.predict([("a", "x")]) == pytest.approx([2.0])
    hidden = np.ma.array(cells, mask=[[True, False], [False, False], [False, False]])
    with pytest.raises(InputError, match="label"):
        Completer("mean").fit(hidden, [1.0, 2.0, 3.0])


def test_columns_that_are_called_low_and_high_survive():
    frame = pl.DataFrame({"low": ["a", "a", "b"], "high": ["x", "y", "x"], "rating": [1, 2, None]})
    completed = exchangeable.complete(frame)
    assert completed.columns == ["low", "high", "rating", "low end", "high end"]
    assert completed["low"].to_list() == ["a", "a", "b"]


def test_columns_are_found_by_all_their_names_or_by_none():
    frame = pl.DataFrame({"user": ["a", "a", "b"], "film": ["x", "y", "x"]})
    completer = Completer("bias").fit(frame, [1.0, 5.0, 3.0])
    with pytest.warns(InputWarning, match="taken by position, 'p' for 'user', 'q' for 'film'$"):
        by_place = completer.predict(pl.DataFrame({"p": ["a"], "q": ["y"]}))
    assert by_place == completer.predict(pl.DataFrame({"film": ["y"], "user": ["a"]}))
    with pytest.raises(InputError, match="usr"):
        completer.predict(pl.DataFrame({"film": ["y"], "usr": ["a"]}))
    with pytest.raises(InputError, match="usr"):
        completer.update(pl.DataFrame({"film": ["y"], "usr": ["z"]}), [5.0])


@STRANGERS
@pytest.mark.parametrize("convert", [list, np.array])
@pytest.mark.parametrize(
    "call",
    [
        lambda c, cells: c.predict(cells),
        lambda c, cells: c.predict_interval(cells),
        lambda c, cells: c.predict_proba(cells),
        lambda c, cells: c.update(cells, [3, 4]),
    ],
)
def test_columns_without_names_must_be_as_many_as_there_are_axes(convert, call):
    completer = Completer("bias").fit(convert([("a", "x"), ("a", "y"), ("b", "x")]), [1, 5, 3])
    call(completer, convert([("b", "y"), ("c", "x")]))
    for wrong in ([("b", "y", "2024"), ("c", "x", "2025")], [("b",), ("c",)]):
        with pytest.raises(InputError, match="a column for each"):
            call(completer, convert(wrong))


@pytest.mark.parametrize("cells", [[], (), np.array([]), np.empty((0, 2)), LABELS.head(0)])
def test_no_cells_get_no_predictions(fitted, cells):
    completer = fitted("bias")
    assert completer.predict(cells).shape == (0,)
    assert completer.predict_interval(cells).shape == (0, 2)
    assert completer.predict_proba(cells).shape == (0, 5)


@STRANGERS
def test_what_a_label_is_does_not_depend_on_what_else_is_asked():
    completer = Completer("row-mean").fit([(1, "x"), (1, "y"), (2, "x"), (3, "y")], [5, 4, 1, 1])
    alone = completer.predict([(1.0, "x")])
    assert completer.predict([(1.0, "x"), ("new", "x")])[0] == alone == 4.5


def test_days_are_the_same_in_any_precision():
    days = pd.to_datetime(["2020-01-01", "2020-01-01", "2020-01-02"]).astype("datetime64[ns]")
    frame = pd.DataFrame({"day": days, "film": list("xyx")})
    completer = Completer("row-mean").fit(frame, [1, 2, 5])
    expected = completer.predict(frame[2:3])
    assert completer.predict([(frame.day[2].to_pydatetime(), "x")]) == expected == 5
    coarse = frame.astype({"day": "datetime64[s]"})
    assert completer.predict(coarse[2:3]) == expected


def test_tiny_values_are_values():
    cells = [(f"u{u}", f"i{i}") for u in range(8) for i in range(8)]
    values = np.array([float(u) for u in range(8) for _ in range(8)])
    training = replace(SHORT, steps=30)
    one = Completer("residual", scale="real", training=training).fit(cells, values)
    two = Completer("residual", scale="real", training=training).fit(cells, 1e-12 * values)
    found = two.predict(cells)
    np.testing.assert_allclose(1e-12 * one.predict(cells), found, rtol=1e-3, atol=1e-18)


def test_whole_numbers_as_text_are_numbered_as_whole_numbers():
    cells = [(str(u), str(i)) for u in range(12) for i in range(12) if (u + i) % 2]
    values = [float(1 + (u * i) % 5) for u in range(12) for i in range(12) if (u + i) % 2]
    text = Completer("bmf").fit(cells, values).predict(cells)
    numbers = [(int(u), int(i)) for u, i in cells]
    np.testing.assert_array_equal(Completer("bmf").fit(numbers, values).predict(numbers), text)


def test_texts_for_numbers_are_pointed_out():
    completer = Completer("bias").fit([(1, 10), (1, 11), (2, 10)], [1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match=r"such as '1'; did you mean 1\?; 1 of 1 label of"):
        completer.predict([("1", "10")])
    with pytest.warns(UserWarning, match="'x': they are texts, but those of the table are whole n"):
        completer.predict([(1, "x")])


@STRANGERS
def test_one_axis_is_a_table_too():
    completer = Completer().fit([("a",), ("b",), ("c",)], [1.0, 2.0, 3.0])
    assert completer.predict([("a",), ("z",)]).shape == (2,)


def test_positives_alone_get_negatives_drawn_and_that_is_said():
    generator = np.random.default_rng(0)
    likes = [(f"u{u}", f"i{i}") for u in range(30) for i in range(20) if (u + i) % 2 == 0]
    likes = [cell for cell in likes if generator.random() < 0.8]
    completer = Completer("vmf").fit(pl.DataFrame(likes, schema=["u", "i"], orient="row"))
    assert any("negatives" in note for note in completer.notes_)
    same = completer.predict(pl.DataFrame({"u": ["u0", "u1"], "i": ["i0", "i0"]}))
    assert ((same >= 0) & (same <= 1)).all()
    assert completer.levels_ == (0.0, 1.0)
    full = Completer("vmf").fit([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")], [1, 1, 1, 1])
    assert full.predict([("a", "x")]) == pytest.approx(1.0)


@STRANGERS
def test_equal_values_are_answered_by_themselves():
    cells = [("a", "x"), ("b", "y"), ("c", "x")]
    for model in ("bias", "vmf", "bmf", "item-knn"):
        completer = Completer(model).fit(cells, [4.0, 4.0, 4.0])
        assert completer.predict([("a", "y"), ("z", "q")]) == pytest.approx([4.0, 4.0])
        assert completer.predict_interval([("a", "y")]) == pytest.approx(np.array([[4.0, 4.0]]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.predict([("a",)]), "1 features, but Completer is expecting 2"),
        (lambda c: c.predict([("a", "b", "c")]), "3 features, but Completer is expecting 2"),
        (lambda c: c.predict(pd.DataFrame({0: [None], 1: ["b"]})), "label"),
        (lambda c: c.predict("film"), "frame"),
        (lambda c: c.predict_interval([("a", "b")], coverage=1.0), "coverage"),
        (lambda c: c.predict_interval([("a", "b")], coverage=0), "coverage"),
        (lambda c: c.predict_interval([("a", "b")], coverage="0.8"), "coverage"),
        (lambda c: c.recommend(None), "label"),
        (lambda c: c.recommend(float("nan")), "label"),
        (lambda c: c.recommend(["a"]), "must be known, but 1 of 1 are no .* such as 'a'"),
        (lambda c: c.recommend(("a",)), "must be known, but 1 of 1 are no .* such as 'a'"),
        (lambda c: c.recommend([]), "one member or more is needed, but there is none"),
        (lambda c: c.recommend(["u1"], ratings={"i1": 3}), "one member, but members are listed"),
        (lambda c: c.recommend({"a"}), "member must be one label, .* but is a set"),
        (lambda c: c.recommend({"a": 1}), "member must be one label, .* but is a dict"),
        (lambda c: c.recommend(np.array("a")), "member must be one label, .* but is a ndarray"),
        (lambda c: c.recommend(pl.Series(["a"])), "must be known, but 1 of 1 are no "),
        (lambda c: c.recommend(pd.Series(["a"])), "must be known, but 1 of 1 are no "),
        (lambda c: c.recommend("a", given={"film": ["b"]}), "film must be one label"),
        (lambda c: c.recommend("a", ratings={("b",): 1}), "ratings must be of labels of film"),
        (lambda c: c.recommend("a", ratings={"Heat": "good"}), "a number is needed"),
        (lambda c: Completer(model=["vmf"]).fit(LABELS, RATINGS), "model must be"),
        (lambda c: Completer(training={"steps": 3}).fit(LABELS, RATINGS), "training must be"),
        (lambda c: Completer("factorized").fit(LABELS, RATINGS, features=LABELS), "mapping"),
        (lambda c: c.recommend("a", n=0), "n must be"),
        (lambda c: c.recommend("a", n=2.5), "n must be"),
        (lambda c: c.recommend("a", axis="studio"), "axis must be one of"),
        (lambda c: c.recommend("a", axis=2), "axis must be one of"),
        (lambda c: c.recommend("a", given={"member": "b"}), "given must name"),
        (lambda c: c.recommend("a", given={"film": "unheard of"}), "must be known"),
        (lambda c: c.recommend("a", ratings={"Heat": 99}), "scale"),
        (lambda c: c.recommend("a", ratings=pl.DataFrame({"film": ["Heat"]})), "ratings"),
        (lambda c: c.factors(axis=5), "axis must be one of"),
        (lambda c: c.update([], []), "cells are needed, but none came"),
        (lambda c: Completer().fit([], []), "cells are needed, but none came"),
        (lambda c: Completer().fit(np.array([]), []), "cells are needed, but none came"),
        (lambda c: Completer().fit(()), "cells are needed, but none came"),
        (lambda c: Table.of(LABELS, axes=[]), "label columns are needed, but there are none"),
        (lambda c: Completer("deep").fit(LABELS, RATINGS), "model must be one of"),
        (lambda c: Completer("no/such/folder").fit(LABELS, RATINGS), "checkpoint"),
        (lambda c: Completer(seed=-1).fit(LABELS, RATINGS), "seed"),
        (lambda c: Completer(seed="x").fit(LABELS, RATINGS), "seed"),
        (lambda c: Completer(device="abacus").fit(LABELS, RATINGS), "device"),
        (lambda c: Completer(scale="wide").fit(LABELS, RATINGS), "scale"),
        (lambda c: Completer(duplicates="median").fit(LABELS, RATINGS), "duplicates"),
        (lambda c: Completer().fit(LABELS, RATINGS[:3]), "one per row"),
        (
            lambda c: Completer().fit(LABELS, np.stack([RATINGS, RATINGS], axis=1)),
            r"values must be one per row, .* but have shape \(\d+, 2\)",
        ),
        (lambda c: Completer().fit(LABELS, np.full(len(RATINGS), np.nan)), "none"),
        (
            lambda c: Completer("residual", validation=1.0).fit(LABELS, RATINGS),
            "validation",
        ),
        (lambda c: Completer.load("no/such/folder"), "checkpoint"),
    ],
)
def test_wrong_use_is_told_in_one_line(fitted, call, message):
    completer = fitted("bias")
    with pytest.raises(InputError, match=message) as raised:
        call(completer)
    assert "\n" not in str(raised.value)
