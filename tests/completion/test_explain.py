"""The effect of a cell is the prediction less the one without that cell, whatever the model."""

import numpy as np
import polars as pl
import pytest
from tests.completion.test_side_information import CELLS, FILMS, USERS, VALUES
from tests.support.film_club import FRAME, LABELS

from exchangeable.completion import explain
from exchangeable.completion.completer import Completer
from exchangeable.datasets import load
from exchangeable.errors import InputError, InputWarning

MEMBER = LABELS["member"][0]
OWN = FRAME.filter(pl.col("member") == MEMBER)
UNSEEN = sorted(set(LABELS["film"]) - set(OWN["film"]))[0]


def newcomer_mean(completer, film, ratings, **options):
    """What a new member with these ratings is predicted for a film."""
    listed = completer.recommend(
        "newcomer", ratings=ratings, among=[film], include_seen=True, **options
    )
    return listed[completer.table_.prediction_columns()[0]][0]


def few_films():
    """Ratings of 25 films, the member with the most of them, and a film without a rating by it."""
    few = FRAME.filter(pl.col("film").is_in(FRAME["film"].unique().sort()[:25].to_list()))
    member = few["member"].value_counts(sort=True).sort("count", "member")["member"][-1]
    film = sorted(set(few["film"]) - set(few.filter(pl.col("member") == member)["film"]))[0]
    return few, member, film


def assert_effects_are_those_of_leaving_out(completer, cell, refit, keep, n=3, **options):
    """Compare with completers that were fitted to the cells of a frame without one of them."""
    if not keep.filter(_same(keep, cell)).is_empty():
        keep = keep.filter(~_same(keep, cell))
        whole = refit(keep).predict([cell])[0]
    else:
        whole = completer.predict([cell])[0]
    found = completer.explain(cell, n, **options)
    labels = [name for name in found.columns if name in keep.columns[: len(cell)]]
    for row in found.iter_rows(named=True):
        other = {**dict(zip(keep.columns, cell, strict=False)), **{k: row[k] for k in labels}}
        without = keep.filter(~_same(keep, [other[name] for name in keep.columns[: len(cell)]]))
        assert len(without) == len(keep) - 1
        expected = whole - refit(without).predict([cell])[0]
        assert row[found.columns[-1]] == pytest.approx(expected, abs=1e-6)
    assert np.abs(found[found.columns[-1]]).max() > 1e-5
    return found


def _same(frame, cell):
    return pl.all_horizontal([pl.col(c) == own for c, own in zip(frame.columns, cell)])  # noqa: B905


@pytest.mark.parametrize("model", ["pretrained", "vmf", "bias", "auto", "mean", "item-knn"])
@pytest.mark.parametrize("observed", [False, True])
def test_an_effect_is_what_the_prediction_loses_without_the_cell(model, observed):
    few, member, film = few_films()
    few = few.select("member", "film", "rating")
    if observed:
        film = few.filter(pl.col("member") == member)["film"][0]
    completer = Completer(model).fit(few)
    chosen = completer.model_name_

    def refit(frame):
        return Completer(chosen).fit(frame)

    found = assert_effects_are_those_of_leaving_out(completer, (member, film), refit, few)
    every = completer.explain((member, film))
    assert found.equals(every.head(3))
    assert (np.diff(np.abs(every["effect"])) <= 1e-9).all()
    assert len(every) == (few["member"] == member).sum() - observed


def test_the_only_cell_of_a_member_has_the_effect_of_the_member_itself():
    few, _, film = few_films()
    few = pl.concat([few.select("member", "film", "rating"),
                     pl.DataFrame({"member": ["new"], "film": [few["film"][0]], "rating": [5]},
                                  schema_overrides={"rating": few["rating"].dtype})])  # fmt: skip
    completer = Completer("pretrained").fit(few)
    found = completer.explain(("new", film))
    assert len(found) == 1
    with pytest.warns(InputWarning):
        without = Completer("pretrained").fit(few.head(-1)).predict([("new", film)])[0]
    expected = completer.predict([("new", film)])[0] - without
    assert found["effect"][0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("model", "in_logarithms"), [("vmf", True), ("pretrained", False)])
def test_logarithms_and_times_are_read_again_too(model, in_logarithms):
    generator = np.random.default_rng(0)
    index = np.argwhere(generator.random((20, 12)) < 0.5)
    value = 2 * generator.normal(size=20)[index[:, 0]] + generator.normal(size=len(index))
    value = np.round(1 + 99 * np.exp(value)) if in_logarithms else value
    frame = pl.DataFrame({"u": index[:, 0], "i": index[:, 1], "plays": value})
    frame = frame.with_columns(time=pl.Series(generator.permutation(len(frame))))
    completer = Completer(model).fit(frame)
    assert any("logarithms" in note for note in completer.notes_) == in_logarithms
    free = next(i for i in range(12) if not len(frame.filter(u=3, i=i)))
    assert_effects_are_those_of_leaving_out(
        completer, (3, free), lambda own: Completer(model).fit(own), frame
    )


@pytest.mark.parametrize("model", ["pretrained", "vmf", "bias"])
@pytest.mark.parametrize("film", [UNSEEN, OWN["film"][0]])
def test_where_the_table_is_too_large_the_member_is_read_as_a_new_one(
    fitted, model, film, monkeypatch
):
    completer = fitted(model)
    monkeypatch.setattr(explain, "MAX_READ_CELLS", 100)
    ratings = {k: v for k, v in zip(OWN["film"], OWN["rating"], strict=True) if k != film}
    with pytest.warns(InputWarning, match="effects are those on a new member with the same cells"):
        found = completer.explain((MEMBER, film))
    assert found.columns == ["film", "value", "effect"]
    assert dict(zip(found["film"], found["value"], strict=True)) == ratings
    whole = newcomer_mean(completer, film, ratings)
    for label, effect in zip(found["film"], found["effect"], strict=True):
        without = {k: v for k, v in ratings.items() if k != label}
        assert effect == pytest.approx(whole - newcomer_mean(completer, film, without), abs=1e-6)


def positives():
    """Two groups of users with items of their own, most of which they have."""
    generator = np.random.default_rng(0)
    cells = [(u, i) for u in range(40) for i in range(30) if u % 2 == i % 2]
    return [cell for cell in cells if generator.random() < 0.7]


@pytest.mark.parametrize(("model", "axis"), [("pretrained", 0), ("ease", 0), ("ease", 1)])
def test_positives_are_explained_by_the_cells_of_the_user_or_the_item(model, axis):
    frame = pl.DataFrame(positives(), schema=["user", "item"], orient="row")
    completer = Completer(model).fit(frame)
    item = next(i for i in range(1, 30, 2) if (3, i) not in positives())
    assert_effects_are_those_of_leaving_out(
        completer, (3, item), lambda own: Completer(model).fit(own), frame, axis=axis
    )
    found = completer.explain((3, item), axis=axis)
    assert len(found) == len(frame.filter(user=3) if axis == 0 else frame.filter(item=item))


def test_negatives_that_were_drawn_are_no_reasons():
    completer = Completer("vmf").fit(positives())
    found = completer.explain((3, 2))
    assert set(found["value"]) == {1.0}
    assert sorted(found["column 2"]) == sorted(item for user, item in positives() if user == 3)


def test_three_axes_are_explained_by_the_cells_of_one_member():
    evenings = load("film-club-evenings").table
    frame = pl.DataFrame(evenings.frame(evenings.index, rating=evenings.values))
    completer = Completer("bias").fit(frame.drop("rating"), frame["rating"].to_numpy())
    cell = ("Ada Abt", "Heat", "alone")
    assert_effects_are_those_of_leaving_out(
        completer,
        cell,
        lambda own: Completer("bias").fit(own.drop("rating"), own["rating"].to_numpy()),
        frame,
    )
    found = completer.explain(cell)
    assert found.columns == ["film", "occasion", "value", "effect"]
    assert len(found) == len(frame.filter(pl.col("member") == "Ada Abt"))


def test_features_of_the_member_are_read_too(monkeypatch):
    features = {"film": FILMS, "user": USERS}
    completer = Completer("pretrained", scale="real").fit(CELLS, VALUES, features=features)
    frame = CELLS.with_columns(value=VALUES)
    own = frame.filter(pl.col("user") == "u03")
    film = sorted(set(CELLS["film"]) - set(own["film"]))[0]
    assert_effects_are_those_of_leaving_out(
        completer,
        ("u03", film),
        lambda rest: Completer("pretrained", scale="real").fit(
            rest.drop("value"), rest["value"].to_numpy(), features=features
        ),
        frame,
    )
    monkeypatch.setattr(explain, "MAX_READ_CELLS", 100)
    with pytest.warns(InputWarning, match="a new user with the same cells"):
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
    total = len(OWN) * explain.MIN_READING
    with pytest.raises(InputError, match=rf"at most 100 cells are read, but these are {total:,}"):
        fitted("mean").explain((MEMBER, UNSEEN))
