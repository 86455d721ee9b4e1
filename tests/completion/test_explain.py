"""The effect of a cell is the prediction less the one without that cell, whatever the model."""

import numpy as np
import polars as pl
import pytest
from tests.completion.test_side_information import CELLS, FILMS, USERS, VALUES
from tests.support.film_club import FRAME, LABELS, RATINGS

from exchangeable.completion import explain
from exchangeable.completion.completer import Completer
from exchangeable.datasets import load
from exchangeable.errors import InputError

MEMBER = LABELS["member"][0]
OWN = FRAME.filter(pl.col("member") == MEMBER)
UNSEEN = sorted(set(LABELS["film"]) - set(OWN["film"]))[0]


def newcomer_mean(completer, film, ratings, **options):
    """What a new member with these ratings is predicted for a film."""
    listed = completer.recommend(
        "newcomer", ratings=ratings, among=[film], include_seen=True, **options
    )
    return listed[completer.table_.prediction_columns()[0]][0]


@pytest.mark.parametrize("model", ["pretrained", "vmf", "bias"])
@pytest.mark.parametrize("film", [UNSEEN, OWN["film"][0]])
def test_an_effect_is_what_a_newcomer_with_the_same_cells_loses_without_one(fitted, model, film):
    completer = fitted(model)
    ratings = {k: v for k, v in zip(OWN["film"], OWN["rating"], strict=True) if k != film}
    found = completer.explain((MEMBER, film))
    assert found.columns == ["film", "value", "effect"]
    assert dict(zip(found["film"], found["value"], strict=True)) == ratings
    whole = newcomer_mean(completer, film, ratings)
    for label, effect in zip(found["film"], found["effect"], strict=True):
        without = {k: v for k, v in ratings.items() if k != label}
        assert effect == pytest.approx(whole - newcomer_mean(completer, film, without), abs=1e-6)
    assert np.abs(found["effect"]).max() > 1e-3
    assert (np.diff(np.abs(found["effect"])) <= 1e-9).all()
    assert completer.explain((MEMBER, film), 2).equals(found.head(2))


@pytest.mark.parametrize("model", ["mean", "item-knn"])
def test_models_that_read_no_member_alone_are_fitted_again_without_the_cell(model):
    few = FRAME.filter(pl.col("film").is_in(FRAME["film"].unique().sort()[:25].to_list()))
    member = few["member"].value_counts(sort=True)["member"][0]
    labels, ratings = few.select("member", "film"), few["rating"].to_numpy()
    completer = Completer(model).fit(labels, ratings)
    film = sorted(set(few["film"]) - set(few.filter(pl.col("member") == member)["film"]))[0]
    whole = completer.predict([(member, film)])[0]
    found = completer.explain((member, film), 3)
    for label, effect in found.select("film", "effect").iter_rows():
        kept = ~((few["member"] == member) & (few["film"] == label)).to_numpy()
        without = Completer(model).fit(labels.filter(kept), ratings[kept])
        assert without.table_.shape == completer.table_.shape
        assert effect == pytest.approx(whole - without.predict([(member, film)])[0], abs=1e-6)


def positives():
    """Two groups of users with items of their own, most of which they have."""
    generator = np.random.default_rng(0)
    cells = [(u, i) for u in range(40) for i in range(30) if u % 2 == i % 2]
    return [cell for cell in cells if generator.random() < 0.7]


def test_positives_are_explained_by_the_items_of_the_user():
    completer = Completer("pretrained").fit(positives())
    own = [item for user, item in positives() if user == 3]
    item = next(i for i in range(1, 30, 2) if i not in own)
    found = completer.explain((3, item))
    assert sorted(found["column 2"]) == sorted(own)

    def chance(items):
        listed = completer.recommend(999, ratings=items, among=[item])
        return listed["value"][0]

    for label, effect in found.select("column 2", "effect").iter_rows():
        without = [i for i in own if i != label]
        assert effect == pytest.approx(chance(own) - chance(without), abs=1e-6)


def test_positives_are_explained_by_the_users_of_the_item():
    cells = positives()
    completer = Completer("ease").fit(cells)
    cell = (3, next(i for i in range(1, 30, 2) if (3, i) not in cells))
    found = completer.explain(cell, 2, axis=1)
    whole = completer.predict([cell])[0]
    for user, effect in found.select("column 1", "effect").iter_rows():
        without = Completer("ease").fit([c for c in cells if c != (user, cell[1])])
        assert effect == pytest.approx(whole - without.predict([cell])[0], abs=1e-6)


def test_negatives_that_were_drawn_are_no_reasons():
    completer = Completer("vmf").fit(positives())
    found = completer.explain((3, 2))
    assert set(found["value"]) == {1.0}
    assert sorted(found["column 2"]) == sorted(item for user, item in positives() if user == 3)


def test_three_axes_are_explained_by_the_cells_of_one_member():
    evenings = load("film-club-evenings").table
    frame = pl.DataFrame(evenings.frame(evenings.index, rating=evenings.values))
    completer = Completer("vmf").fit(frame.drop("rating"), frame["rating"].to_numpy())
    own = frame.filter(pl.col("member") == "Ada Abt")
    film, occasion = "Heat", "alone"
    found = completer.explain(("Ada Abt", film, occasion))
    assert found.columns == ["film", "occasion", "value", "effect"]
    assert len(found) == len(own)

    def mean(ratings):
        options = {"given": {"occasion": occasion}, "among": {"film": [film]}}
        return completer.recommend("new", ratings=ratings, include_seen=True, **options)["value"][0]

    first = found.row(0, named=True)
    same = (pl.col("film") == first["film"]) & (pl.col("occasion") == first["occasion"])
    cells = own.drop("member")
    assert first["effect"] == pytest.approx(mean(cells) - mean(cells.filter(~same)), abs=1e-6)


def test_features_of_the_member_are_read_too():
    features = {"film": FILMS, "user": USERS}
    completer = Completer("pretrained", scale="real").fit(CELLS, VALUES, features=features)
    own = CELLS.with_columns(value=VALUES).filter(pl.col("user") == "u03")
    film = sorted(set(CELLS["film"]) - set(own["film"]))[0]
    found = completer.explain(("u03", film))
    trait = {"trait": USERS.filter(pl.col("user") == "u03")["trait"][0]}
    ratings = dict(zip(own["film"], own["value"], strict=True))
    whole = newcomer_mean(completer, film, ratings, features=trait)
    for label, effect in found.select("film", "effect").iter_rows():
        without = {k: v for k, v in ratings.items() if k != label}
        expected = whole - newcomer_mean(completer, film, without, features=trait)
        assert effect == pytest.approx(expected, abs=1e-6)
    assert whole != pytest.approx(newcomer_mean(completer, film, ratings), abs=1e-4)


def test_a_member_without_cells_has_no_reasons():
    features = {"user": pl.concat([USERS, pl.DataFrame({"user": ["u99"], "trait": [1.0]})])}
    completer = Completer("pretrained", scale="real").fit(CELLS, VALUES, features=features)
    assert len(completer.explain(("u99", "f03"))) == 0


def test_the_effect_has_a_column_of_its_own():
    cells = pl.DataFrame({"user": ["a", "a", "b"], "effect": ["x", "y", "x"]})
    completer = Completer("bias").fit(cells, [1, 2, 3])
    assert completer.explain(("b", "y")).columns == ["effect", "value", "effect of the cell"]


def test_questions_that_cannot_be_explained_are_one_line(fitted, monkeypatch):
    completer = fitted("vmf")
    for cell in ("Heat", (MEMBER,), (MEMBER, UNSEEN, "x"), None):
        with pytest.raises(InputError, match="a cell must have a label for each of member, film"):
            completer.explain(cell)
    with pytest.raises(InputError, match="n must be a whole number of 1 or more, but is 0"):
        completer.explain((MEMBER, UNSEEN), 0)
    with pytest.raises(InputError, match="axis must be one of member, film"):
        completer.explain((MEMBER, UNSEEN), axis="studio")
    monkeypatch.setattr(explain, "MAX_CELLS", 2)
    message = rf"of at most 2 cells are computed, but this member has {len(OWN)}; choose another"
    with pytest.raises(InputError, match=message):
        completer.explain((MEMBER, UNSEEN))
    monkeypatch.setattr(explain, "MAX_CELLS", 100)
    monkeypatch.setattr(explain, "MAX_READ_CELLS", 100)
    total = len(OWN) * len(RATINGS)
    with pytest.raises(InputError, match=rf"at most 100 cells are read, but these are {total:,}"):
        fitted("mean").explain((MEMBER, UNSEEN))
