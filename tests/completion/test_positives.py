"""Tables of positives: rankers as completers, for known and new members."""

import numpy as np
import polars as pl
import pytest
from tests.ranking.test_rankers import some_positives
from tests.support.strangers import STRANGERS

from exchangeable import Completer
from exchangeable.errors import InputError
from exchangeable.ranking.registry import RANKERS


def pairs(users=150, items=90, seed=0):
    rows = some_positives(users, items, seed).nonzero().numpy()
    return pl.DataFrame(
        {"user": [f"u{n:03}" for n in rows[:, 0]], "film": [f"f{n:02}" for n in rows[:, 1]]}
    )


@pytest.fixture(scope="module")
def completer():
    return Completer("pretrained").fit(pairs())


def test_the_same_pairs_in_any_sequence_give_the_same_lists_and_no_seed_matters(completer):
    shuffled = pairs().sample(fraction=1.0, shuffle=True, seed=3)
    other = Completer("pretrained", seed=5).fit(shuffled)
    users = ["u000", "u077"]
    one, two = completer.recommend(users, 5), other.recommend(users, 5)
    assert one["film"].to_list() == two["film"].to_list()
    np.testing.assert_allclose(one["value"], two["value"], rtol=1e-3)
    assert not any("drawn" in note for note in completer.notes_)


def test_a_users_group_comes_first(completer):
    films = completer.recommend("u006", 5)["film"].to_list()  # group 0 of 6
    assert sum(int(film[1:]) % 6 == 0 for film in films) >= 4


def test_observed_cells_are_certain_and_others_have_chances(completer):
    frame = pairs()
    known = frame.head(20)
    np.testing.assert_allclose(completer.predict(known), 1.0)
    every = completer.predict(
        pl.DataFrame({"user": ["u000"] * 90, "film": [f"f{n:02}" for n in range(90)]})
    )
    unseen = every < 1
    assert unseen.sum() == 90 - frame.filter(pl.col("user") == "u000").height
    assert (every[unseen] > 0).all()
    # As many are expected as are hidden where a fifth of the items is: a quarter of those seen.
    assert 0.05 < every[unseen].sum() / (~unseen).sum() < 0.5
    assert completer.levels_ == (0.0, 1.0)
    both = completer.predict_proba([("u000", "f01")])
    np.testing.assert_allclose(both.sum(axis=1), 1.0)


@STRANGERS
def test_members_that_are_not_in_the_table_have_the_chances_of_usual_ones(completer):
    chances = completer.predict([("nobody", "f01"), ("u001", "no film"), ("nobody", "no film")])
    assert ((chances > 0) & (chances < 1)).all()


@pytest.mark.parametrize("name", [*RANKERS, "pretrained"])
def test_a_new_user_is_ranked_as_a_known_one_with_the_same_items(name):
    frame = pairs()
    fitted = Completer(name).fit(frame)
    assert fitted.model_name_ == name
    own = frame.filter(pl.col("user") == "u006")["film"]
    known = fitted.recommend("u006", 5)
    new = fitted.recommend("somebody", 5, ratings=own.to_list())
    mapped = fitted.recommend("somebody", 5, ratings=dict.fromkeys(own, 1.0))
    assert mapped.equals(new)
    assert new["film"].to_list() == known["film"].to_list()
    np.testing.assert_allclose(new["value"], known["value"], rtol=1e-4)


def test_lists_of_many_users_are_those_of_each(completer):
    users = [f"u{n:03}" for n in (5, 140, 3)]
    many = completer.recommend(np.array(users), 4)
    assert many["user"].to_list() == [user for user in users for _ in range(4)]
    for user in users:
        alone = completer.recommend(user, 4)
        assert many.filter(pl.col("user") == user)["film"].to_list() == alone["film"].to_list()


def test_lists_are_among_some_items_without_others_and_with_seen_ones(completer):
    frame = pairs()
    own = frame.filter(pl.col("user") == "u006")["film"].to_list()
    unseen = [film for film in frame["film"].unique().sort() if film not in own]
    some = completer.recommend("u006", 90, among=unseen[:7])
    assert sorted(some["film"]) == sorted(unseen[:7])
    without = completer.recommend("u006", 90, exclude=unseen[:7])
    assert not set(without["film"]) & {*unseen[:7], *own}
    everything = completer.recommend("u006", 90, include_seen=True)
    assert set(everything["film"]) == set(frame["film"])
    assert set(everything["film"][: len(own)]) == set(own)
    with pytest.raises(InputError, match="among must be of known film, but 'f99' is not known"):
        completer.recommend("u006", among=["f01", "f99"])
    with pytest.raises(InputError, match="exclude must be labels of film, but is 'f01'"):
        completer.recommend("u006", exclude="f01")


def test_similar_members_are_of_the_same_group(completer):
    films = completer.similar("f06", 5, axis="film")
    assert sum(int(film[1:]) % 6 == 0 for film in films["film"]) >= 4
    assert (films["similarity"].diff().drop_nulls() <= 0).all()
    with pytest.raises(InputError, match="film must be known, but 'f99' is not"):
        completer.similar("f99", axis="film")


def test_users_are_listed_for_a_film(completer):
    users = completer.recommend("f06", 5, axis="film")["user"].to_list()
    assert sum(int(user[1:]) % 6 == 0 for user in users) >= 3


def test_new_pairs_are_folded_in_at_once_and_new_items_at_the_next_refresh():
    fitted = Completer("pretrained").fit(pairs())
    own = ["f00", "f06", "f12", "f18"]
    fitted.update(pl.DataFrame({"user": ["new"] * 5, "film": [*own, "f90"]}))
    np.testing.assert_allclose(fitted.predict([("new", "f06")]), 1.0)
    films = fitted.recommend("new", 5)["film"].to_list()
    assert sum(int(film[1:]) % 6 == 0 for film in films) >= 4
    assert not set(films) & {*own, "f90"}
    np.testing.assert_allclose(
        fitted.predict([("new", "f90"), ("u000", "f90")]) == 1, [True, False]
    )
    assert fitted.recommend("new", 5, among=["f90", "f24"])["film"].to_list() == ["f24"]
    seen = fitted.recommend("new", 90, include_seen=True)
    assert set(seen.filter(pl.col("value") == 1)["film"]) == {*own, "f90"}
    before = fitted.predict([("u000", "f90")])
    after = fitted.refresh().predict([("u000", "f90")])
    assert before != after


def test_a_saved_completer_ranks_as_before(completer, tmp_path):
    completer.save(tmp_path / "saved")
    loaded = Completer.load(tmp_path / "saved")
    assert loaded.recommend("u006", 5).equals(completer.recommend("u006", 5))


@pytest.mark.parametrize("name", ["pretrained", "ease", "ials"])
def test_strengths_count_and_their_unit_does_not(name):
    frame = pairs()
    rng = np.random.default_rng(0)
    plays = np.exp(rng.normal(3, 1.5, len(frame)))
    one = Completer(name, scale="positives").fit(frame, plays)
    two = Completer(name, scale="positives").fit(frame, plays * 60)
    users = ["u000", "u077"]
    np.testing.assert_allclose(
        one.recommend(users)["value"], two.recommend(users)["value"], rtol=1e-3
    )
    plain = Completer(name).fit(frame).recommend(users)["value"]
    assert not np.allclose(one.recommend(users)["value"], plain, rtol=1e-3)


def test_with_strengths_numbering_does_not_matter_and_new_users_are_as_known_ones():
    frame = pairs()
    plays = np.exp(np.random.default_rng(0).normal(3, 1.5, len(frame)))
    fitted = Completer("pretrained", scale="positives").fit(frame, plays)
    turned = frame.with_columns(
        user="z" + pl.col("user").str.reverse(), film="y" + pl.col("film").str.reverse()
    )
    other = Completer("pretrained", scale="positives").fit(turned, plays)
    one, two = fitted.recommend("u077", 5), other.recommend("z770u", 5)
    assert [f"y{film[::-1]}" for film in one["film"]] == two["film"].to_list()
    mine = (frame["user"] == "u077").to_numpy()
    ratings = dict(zip(frame["film"].filter(pl.Series(mine)), plays[mine], strict=True))
    new = fitted.recommend("somebody", 5, ratings=ratings)
    assert new["film"].to_list() == one["film"].to_list()
    np.testing.assert_allclose(new["value"], one["value"], rtol=1e-4)


@STRANGERS
def test_a_new_user_without_items_is_a_stranger(completer):
    stranger = completer.recommend("somebody", 5)
    for nothing in ([], {}):
        assert completer.recommend("somebody", 5, ratings=nothing).equals(stranger)
        assert completer.recommend("u006", 5, ratings=nothing).equals(
            completer.recommend("u006", 5)
        )
    assert stranger["value"].min() > 1e-3


def test_a_new_film_is_ranked_by_its_users(completer):
    users = [f"u{n:03}" for n in range(1, 150, 6)][:12]
    found = completer.recommend("a new film", 10, axis="film", ratings=users)["user"].to_list()
    assert sum(int(user[1:]) % 6 == 1 for user in found) >= 6


@STRANGERS
def test_chances_of_nearly_full_rows_are_not_certain():
    rows = [(f"u{u}", f"i{i}") for u in range(40) for i in range(10) if (u * 7 + i * 3) % 10]
    fitted = Completer("pretrained").fit(rows)
    assert fitted.recommend("u3")["value"].max() < 0.9
    alone = Completer("pretrained").fit([("a", f"i{n}") for n in range(50)])
    assert alone.predict([("a", "never heard of")]) < 0.9


@pytest.mark.parametrize(
    ("table", "values", "message"),
    [
        ([("a", "x"), ("b", "y")], [1.0, -2.0], "above 0"),
        ([("a", "x"), ("b", "y")], [1.0, 0.0], "above 0"),
        ([("a", "x"), ("b", "y")], [1.0, np.inf], "finite|size"),
    ],
)
def test_bad_strengths_are_named_in_one_line(table, values, message):
    with pytest.raises(InputError, match=message) as raised:
        Completer(scale="positives").fit(table, values)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("strength", [0.0, -1.0])
def test_strengths_of_a_new_user_are_checked_too(strength):
    plays = np.arange(1, len(pairs()) + 1)
    fitted = Completer("pretrained", scale="positives").fit(pairs(), plays)
    with pytest.raises(InputError, match="finite and above 0"):
        fitted.recommend("new", ratings={"f01": strength})


@STRANGERS
def test_tables_with_little_to_rank_are_ranked_all_the_same():
    one_item = Completer().fit([("a", "x"), ("b", "x"), ("c", "x")])
    assert len(one_item.recommend("a")) == 0
    assert one_item.recommend("nobody")["value"].item() > 0
    everything = [("a", "x"), ("a", "y"), ("b", "x"), ("c", "y")]
    fitted = Completer().fit(everything)
    assert len(fitted.recommend("a")) == 0
    assert fitted.recommend("b").height == 1
    assert Completer().fit([("a", "x")]).predict([("a", "x"), ("b", "x")])[0] == 1


def test_rankers_need_positives_and_take_no_features():
    with pytest.raises(InputError, match="ease ranks positives of two axes, but this table has 2"):
        Completer("ease").fit([("a", "x"), ("b", "y"), ("b", "x")], [1, 5, 3])
    features = {"film": pl.DataFrame({"film": ["f01"], "year": [1999]})}
    with pytest.raises(InputError, match="features are read where cells have values"):
        Completer().fit(pairs(), features=features)
