"""Recommendations are the best unseen cells, for known members and for new ones."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.support.film_club import LABELS, TRAINED
from tests.support.strangers import STRANGERS

from exchangeable.completion.completer import Completer
from exchangeable.datasets import load
from exchangeable.errors import InputError
from exchangeable.predictors import base as predictor


def test_recommendations_are_the_best_unseen_ones_in_order(fitted):
    completer = fitted("vmf")
    member = LABELS["member"][0]
    found = completer.recommend(member, n=7)
    seen = set(LABELS.filter(pl.col("member") == member)["film"])
    unseen = [film for film in sorted(LABELS["film"].unique()) if film not in seen]
    means = completer.predict([(member, film) for film in unseen])
    expected = [unseen[k] for k in np.argsort(-np.round(means, 9), kind="stable")[:7]]
    assert found["film"].to_list() == expected
    assert found.columns == ["film", "value", "low", "high"]
    assert not set(found["film"]) & seen


def test_ties_are_in_the_order_of_labels():
    cells = [("u", "z"), ("v", "b"), ("w", "a"), ("w", "m")]
    completer = Completer("mean", scale="real").fit(cells, [1.0, 2.0, 3.0, 4.0])
    assert completer.recommend("u", n=3)["column 2"].to_list() == ["a", "b", "m"]


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_the_best_come_first_in_any_unit_of_the_values(unit):
    rng = np.random.default_rng(0)
    cells = np.argwhere(rng.random((20, 15)) < 0.5)
    effects = rng.normal(size=15)[cells[:, 1]] + 0.1 * rng.normal(size=len(cells))
    completer = Completer("bias", scale="real").fit(cells, unit * (3 + effects))
    listed = completer.recommend(0, n=5, include_seen=True)
    means = completer.predict([(0, film) for film in range(15)])
    assert listed["column 2"].to_list() == np.argsort(-means)[:5].tolist()


@pytest.mark.parametrize("convert", [list, tuple, np.array])
def test_cells_without_column_names_get_frames_with_labels_all_the_same(convert):
    cells = [("ann", "Heat"), ("ann", "Alien"), ("bob", "Heat"), ("bob", "Big"), ("cleo", "Big")]
    completer = Completer("vmf").fit(convert(cells), [5, 4, 2, 1, 2])
    best = completer.recommend("cleo", n=2)
    assert isinstance(best, pl.DataFrame)
    assert best.columns == ["column 2", "value", "low", "high"]
    assert set(best["column 2"]) == {"Heat", "Alien"}
    vectors = Completer("bmf").fit(convert(cells), [5, 4, 2, 1, 2]).factors()
    assert isinstance(vectors, pl.DataFrame)
    assert vectors["column 1"].to_list() == ["ann", "bob", "cleo"]


@STRANGERS
def test_a_new_member_is_recommended_to_from_ratings_that_are_not_kept(fitted):
    completer = fitted("vmf")
    before = completer.predict([("newcomer", film) for film in LABELS["film"].unique().sort()])
    films = LABELS["film"].unique().sort()[:4].to_list()
    found = completer.recommend("newcomer", n=5, ratings=dict.fromkeys(films, 5.0))
    assert not set(found["film"]) & set(films)
    popular = completer.recommend("newcomer", n=5)
    assert found["value"][0] > popular["value"][0]  # who rates high is expected to rate high
    after = completer.predict([("newcomer", film) for film in LABELS["film"].unique().sort()])
    np.testing.assert_array_equal(before, after)
    frame = pl.DataFrame({"film": films, "stars": [5.0] * 4})
    assert completer.recommend("newcomer", n=5, ratings=frame).equals(found)


@pytest.mark.parametrize("member", ["newcomer", LABELS["member"][0]])
@pytest.mark.parametrize("rating", [None, np.nan, np.inf, -np.inf])
def test_ratings_that_are_no_finite_numbers_are_refused(fitted, member, rating):
    film = LABELS["film"][0]
    frame = pl.DataFrame({"film": [film], "stars": [rating]}, schema_overrides={"stars": float})
    for ratings in ({film: rating}, frame):
        with pytest.raises(InputError, match=rf"rating of '{film}' must be a finite number, but"):
            fitted("vmf").recommend(member, ratings=ratings)


@pytest.mark.parametrize("model", TRAINED)
@pytest.mark.parametrize("axis", ["member", "film"])
def test_the_quick_way_to_a_newcomer_gives_about_what_an_update_would(fitted, model, axis):
    completer = fitted(model)
    other = "film" if axis == "member" else "member"
    ratings = dict(zip(LABELS[other].unique().sort()[:6], [5, 1, 4, 2, 5, 3], strict=True))
    quick = completer.recommend("newcomer", n=8, axis=axis, ratings=ratings)
    updated = Completer(model)
    updated.fitted_ = completer.fitted_
    cells = [("newcomer", o) if axis == "member" else (o, "newcomer") for o in ratings]
    updated.update(cells, list(ratings.values()))
    # An update adds the new cells to the pools of the other axis too, which changes little.
    asked = [("newcomer", o) if axis == "member" else (o, "newcomer") for o in quick[other]]
    slow = updated.predict(asked)
    assert np.sqrt(np.mean((quick["value"].to_numpy() - slow) ** 2)) < 0.05


def test_recommendations_are_the_same_however_many_cells_are_answered_together(fitted, monkeypatch):
    completer = fitted("pretrained")
    together = completer.recommend(LABELS["member"][0], n=7)
    monkeypatch.setattr(predictor, "CELLS_PER_CHUNK", 5)
    apart = completer.recommend(LABELS["member"][0], n=7)
    assert apart["film"].to_list() == together["film"].to_list()
    for column in together.columns[1:]:
        np.testing.assert_allclose(apart[column], together[column], rtol=1e-5)


def test_recommendations_go_the_other_way_too(fitted):
    found = fitted("vmf").recommend(LABELS["film"][0], n=3, axis="film")
    assert found.columns[0] == "member"
    assert len(found) == 3


def test_who_has_seen_everything_is_recommended_nothing():
    completer = Completer("bias").fit([("a", "x"), ("a", "y"), ("b", "x")], [1, 2, 3])
    assert len(completer.recommend("a")) == 0


def test_ratings_are_read_by_the_names_of_their_columns():
    evenings = load("film-club-evenings").table
    frame = pl.DataFrame(evenings.frame(evenings.index, rating=evenings.values))
    completer = Completer("vmf").fit(frame.drop("rating"), frame["rating"].to_numpy())
    ratings = pl.DataFrame({"film": ["Heat"], "occasion": ["alone"], "stars": [1.0]})
    one = completer.recommend("nobody", ratings=ratings)
    two = completer.recommend("nobody", ratings=ratings.select("stars", "occasion", "film"))
    assert one.equals(two)
    with pytest.raises(InputError, match="Haet"):
        completer.recommend("nobody", ratings=ratings.with_columns(film=pl.lit("Haet")))
    with pytest.raises(InputError, match=r"a number is needed in 'stars', .* 'good'$"):
        completer.recommend("nobody", ratings=ratings.with_columns(stars=pl.lit("good")))


@pytest.mark.parametrize("model", ["bias", "vmf"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_new_member_of_a_factorization_is_solved_from_its_own_cells(model, axis):
    table = load("film-club").table
    completer = Completer(model).fit_table(table)
    before = {name: part.copy() for name, part in completer.predictor_.fitted.state().items()}
    others = completer.table_.vocabularies[1 - axis].labels.to_list()[:20]
    ratings = {label: float(1 + n % 5) for n, label in enumerate(others)}
    quick = completer.recommend("newcomer", n=30, axis=axis, ratings=ratings)
    for name, part in completer.predictor_.fitted.state().items():
        assert np.array_equal(part, before[name])
    column = completer.table_.axes[1 - axis]
    assert not set(quick[column]) & set(others)
    names = {completer.table_.axes[axis]: ["newcomer"] * len(others), column: others}
    whole = Completer(model).fit_table(table)
    whole.update(pl.DataFrame(names).select(table.axes), list(ratings.values()))
    asked = {completer.table_.axes[axis]: ["newcomer"] * len(quick), column: quick[column]}
    anew = whole.predict(pl.DataFrame(asked).select(table.axes))
    # Solving the others again for one member's cells changes little.
    assert np.sqrt(np.mean((quick["rating"].to_numpy() - anew) ** 2)) < 0.1
    assert np.corrcoef(quick["rating"].to_numpy(), anew)[0, 1] > 0.95


def test_the_same_cell_cannot_be_rated_twice_by_a_new_member():
    completer = Completer("vmf").fit_table(load("film-club").table)
    film = completer.table_.vocabularies[1].labels[0]
    twice = pl.DataFrame({"film": [film, film], "rating": [1.0, 5.0]})
    with pytest.raises(InputError, match="every cell may be rated once"):
        completer.recommend("newcomer", ratings=twice)


def exposed_club() -> tuple[list[tuple[str, str]], list[float]]:
    """Two groups of members and films; all members like film z, which few have seen."""
    cells = {(f"u{u}", f"{'ab'[u % 2]}{f}"): 3.0 + f % 2 for u in range(40) for f in range(8)}
    kept = {cell: value for n, (cell, value) in enumerate(cells.items()) if n % 5}
    kept |= {(f"u{u}", "z"): 5.0 for u in (0, 1, 2)}
    return list(kept), list(kept.values())


def test_exposure_lists_what_a_member_is_likely_to_come_to():
    completer = Completer("pretrained").fit(*exposed_club())
    by_value = completer.recommend("u5", 20)
    exposed = completer.recommend("u5", 20, exposure=3.0)
    column = by_value.columns[0]
    assert by_value[column][0] == "z"
    assert set(exposed[column][:1]) < {f"b{f}" for f in range(8)}
    # What is listed is the same, and so are the values.
    assert_frame_equal(by_value.sort(column), exposed.sort(column), rel_tol=1e-6)
    with_ratings = completer.recommend("new", 3, ratings={"b1": 4, "b3": 4}, exposure=3.0)
    assert set(with_ratings[column]) < {f"b{f}" for f in range(8)}


def test_exposure_that_makes_no_sense_is_one_line():
    completer = Completer("pretrained").fit(*exposed_club())
    listed = [completer.recommend("u5", exposure=kind(0.5)) for kind in (float, np.float32)]
    assert listed[0].equals(listed[1])
    for exposure in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="exposure must be a finite number of at least 0"):
            completer.recommend("u5", exposure=exposure)
    positives = Completer().fit(exposed_club()[0])
    with pytest.raises(InputError, match="but this one has 2 and positives"):
        positives.recommend("u5", exposure=0.5)
