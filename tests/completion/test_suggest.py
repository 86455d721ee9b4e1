"""Suggestions are unobserved cells that say much of the others, or that are likely to be high."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.support.film_club import FRAME, LABELS, RATINGS

from exchangeable.baselines.design import Design
from exchangeable.completion import suggest as module
from exchangeable.completion.completer import Completer
from exchangeable.datasets import load
from exchangeable.errors import InputError

SEEN = set(LABELS.iter_rows())
SIZE = (24, 18)


def affinities(seed=0, share=0.4, kind="real"):
    """A matrix of rank 2 with noise, and which of its cells are observed."""
    generator = np.random.default_rng(seed)
    rows, columns = (generator.normal(size=(size, 2)) for size in SIZE)
    matrix = rows @ columns.T + generator.normal(size=SIZE[0])[:, None]
    matrix += 0.3 * generator.normal(size=SIZE)
    observed = generator.random(SIZE) < share
    return (matrix > 0).astype(float) if kind == "binary" else matrix, observed


def fit_matrix(matrix, observed, model="pretrained", **settings):
    """Fit with all members known, those without cells too."""
    index = np.argwhere(np.ones(matrix.shape, dtype=bool))
    return Completer(model, **settings).fit(index, np.where(observed, matrix, np.nan).ravel())


def cells_of(suggested):
    return [tuple(row[:2]) for row in suggested.iter_rows()]


@pytest.mark.parametrize("goal", ["error", "best"])
@pytest.mark.parametrize("model", ["mean", "vmf", "item-knn", "factorized", "pretrained"])
def test_suggestions_are_distinct_unobserved_cells_with_predictions(fitted, model, goal):
    completer = fitted(model)
    found = completer.suggest(25, goal=goal)
    reason = {"error": "gain", "best": "chance"}[goal]
    assert found.columns == ["member", "film", "value", "low", "high", reason]
    assert len(set(cells_of(found))) == 25
    assert not set(cells_of(found)) & SEEN
    assert (found[reason] >= 0).all()
    np.testing.assert_allclose(
        found["value"], completer.predict(found.select("member", "film")), rtol=1e-5
    )
    interval = completer.predict_interval(found.select("member", "film"))
    np.testing.assert_allclose(found.select("low", "high").to_numpy(), interval, rtol=1e-5)


@pytest.mark.parametrize("goal", ["error", "best"])
def test_the_same_table_gets_the_same_suggestions(goal):
    one, two = (
        Completer("pretrained", seed=seed).fit(LABELS, RATINGS).suggest(10, goal=goal)
        for seed in (0, 1)
    )
    assert one.equals(two)
    backwards = Completer("pretrained").fit(LABELS[::-1], RATINGS[::-1]).suggest(10, goal=goal)
    assert cells_of(backwards) == cells_of(one)


@pytest.mark.parametrize("kind", ["real", "binary"])
@pytest.mark.parametrize("goal", ["error", "best"])
def test_suggestions_do_not_depend_on_the_numbering_of_members(goal, kind):
    matrix, observed = affinities(kind=kind)
    generator = np.random.default_rng(1)
    rows, columns = (generator.permutation(size) for size in SIZE)
    plain = fit_matrix(matrix, observed, "vmf").suggest(12, goal=goal)
    moved = fit_matrix(matrix[rows][:, columns], observed[rows][:, columns], "vmf")
    moved = moved.suggest(12, goal=goal)
    assert [(rows[i], columns[j]) for i, j in cells_of(moved)] == cells_of(plain)
    np.testing.assert_allclose(moved.to_numpy()[:, 2:], plain.to_numpy()[:, 2:], rtol=1e-5)


def test_all_unobserved_cells_are_suggested_where_there_are_no_more():
    matrix, observed = affinities(share=0.9)
    found = fit_matrix(matrix, observed, "vmf").suggest(1000)
    assert set(cells_of(found)) == set(map(tuple, np.argwhere(~observed)))
    full = fit_matrix(matrix, np.ones_like(observed), "vmf").suggest(5)
    assert len(full) == 0
    assert full.columns == found.columns


@pytest.mark.parametrize("model", ["vmf", "pretrained"])
@pytest.mark.parametrize("goal", ["error", "best"])
def test_a_batch_spreads_over_members(model, goal, monkeypatch):
    matrix, observed = affinities(share=0.8)
    observed[[3, 8, 15]] = False
    completer = fit_matrix(matrix, observed, model)
    batch = completer.suggest(9, goal=goal)
    if goal == "error":
        assert {3, 8, 15} <= set(batch["column 1"])
    monkeypatch.setattr(Design, "measure", lambda *_: None)
    alone = completer.suggest(9, goal=goal)  # each as if the others were not measured
    assert cells_of(alone)[0] == cells_of(batch)[0]
    assert set(cells_of(alone)) != set(cells_of(batch))
    assert crowding(batch) <= crowding(alone)


def crowding(suggested):
    """How often the same member is listed: the sum of squared counts."""
    columns = suggested["column 1"], suggested["column 2"]
    return sum(int((column.value_counts()["count"] ** 2).sum()) for column in columns)


@pytest.mark.parametrize("model", ["vmf", "pretrained"])
def test_the_cell_of_an_unknown_row_that_says_most_is_found(model):
    """Row 0 has no cell. Column 5 shows its factor, and all others next to nothing of it."""
    generator = np.random.default_rng(2)
    rows, columns = generator.normal(size=40), np.full(16, 0.4)
    columns[5] = 3.0
    matrix = np.outer(rows, columns) + 0.3 * generator.normal(size=(40, 16))
    observed = np.ones(matrix.shape, dtype=bool)
    observed[0] = False
    observed[1:10, :4] = False
    assert cells_of(fit_matrix(matrix, observed, model).suggest(1)) == [(0, 5)]


def test_gains_are_in_squared_units_of_the_values():
    matrix, observed = affinities()
    one, ten = (fit_matrix(factor * matrix, observed, "vmf").suggest(5) for factor in (1, 10))
    assert cells_of(one) == cells_of(ten)
    np.testing.assert_allclose(100 * one["gain"], ten["gain"], rtol=1e-6)


def test_the_best_cells_are_likely_ones_of_high_members():
    matrix, observed = affinities(share=0.7)
    matrix[4] += 15.0
    found = fit_matrix(matrix, observed).suggest(3, goal="best")
    assert set(found["column 1"]) == {4}
    assert found["chance"].is_between(0, 1).all()


def test_chances_on_levels_are_those_of_the_levels_that_are_high_enough():
    completer = Completer("pretrained").fit(LABELS, RATINGS)
    found = completer.suggest(1, goal="best")
    chance = completer.predict_proba(found.select("member", "film"))[:, -1]
    np.testing.assert_allclose(found["chance"], chance, rtol=1e-5)  # the top 1 % have 5 stars


def test_only_cells_among_the_given_ones_are_suggested():
    completer = Completer("vmf").fit(LABELS, RATINGS)
    everything = completer.suggest(40)
    some = everything.select("film", "member")[10:20]
    both = pl.concat([some, LABELS.select("film", "member").head(5), some.head(2)])
    found = completer.suggest(100, among=both)
    assert set(cells_of(found)) == set(some.select("member", "film").iter_rows())
    assert len(found) == 10
    assert len(completer.suggest(5, among=LABELS.head(0))) == 0
    # Other cells are still what the error is lowered of.
    best = completer.suggest(1)
    assert_frame_equal(completer.suggest(1, among=best.select("member", "film")), best)


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_the_stretch_makes_the_variance_that_of_the_prediction(kind):
    matrix, observed = affinities(kind=kind)
    fitted = fit_matrix(matrix, observed).fitted_
    posterior, unit = module._posterior_of(fitted)
    design = module._design_of(posterior, *(np.arange(size) for size in SIZE))
    stretch = module._find_stretch(fitted, ~observed, design, unit)[~observed]
    noise, known = design.noise[~observed], (design.variance - design.noise)[~observed]
    scaled = (stretch if kind == "binary" else stretch**2) * noise + stretch**2 * known
    completer = fit_matrix(matrix, observed)
    cells = np.argwhere(~observed)
    if kind == "binary":
        mean = completer.predict(cells)
        expected = mean * (1 - mean)
    else:
        expected = (np.diff(completer.predict_interval(cells)).ravel() / 2 / 1.2815516) ** 2
    np.testing.assert_allclose(scaled * unit**2, expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_the_gain_is_the_one_written_out(kind):
    """Cell (i, k) has the deviations of the factors times d_ik, and noise times d_ik or d_ik^2."""
    matrix, observed = affinities(kind=kind)
    completer = fit_matrix(matrix, observed)
    found = completer.suggest(1)
    ((i, j),) = cells_of(found)
    posterior, unit = module._posterior_of(completer.fitted_)
    design = module._design_of(posterior, *(np.arange(size) for size in SIZE))
    d = module._find_stretch(completer.fitted_, ~observed, design, unit)
    ratios = [
        column.numpy()[:size] for column, size in zip(posterior.noise_ratios, SIZE, strict=True)
    ]
    assert min(np.ptp(ratios[0]), np.ptp(ratios[1])) > 0.01
    tables = [t.numpy() for t in (*posterior.means, *posterior.covariances)]
    (u, v), (S, T) = tables[:2], tables[2:]
    e, f = np.r_[1, u[i, 1:]], np.r_[1, v[j, 1:]]
    power = 1 if kind == "binary" else 2
    noise = posterior.noise * ratios[0][i] * ratios[1][j] * d[i, j] ** power
    both = np.trace(S[i, 1:, 1:] @ T[j, 1:, 1:])
    total = noise + d[i, j] ** 2 * (f @ S[i] @ f + e @ T[j] @ e + both)
    fall = 0.0
    for k in np.flatnonzero(~observed[i]):
        second = np.outer(np.r_[1, v[k, 1:]], np.r_[1, v[k, 1:]])
        second[1:, 1:] += T[k, 1:, 1:]
        fall += d[i, k] ** 2 * (S[i] @ f) @ second @ (S[i] @ f)
    for k in np.flatnonzero(~observed[:, j]):
        second = np.outer(np.r_[1, u[k, 1:]], np.r_[1, u[k, 1:]])
        second[1:, 1:] += S[k, 1:, 1:]
        fall += d[k, j] ** 2 * (T[j] @ e) @ second @ (T[j] @ e)
    expected = unit**2 * d[i, j] ** 2 * fall / total
    assert found["gain"][0] == pytest.approx(expected, rel=1e-6)


def test_cells_of_a_large_table_are_compared_by_factors_alone(monkeypatch):
    matrix, observed = affinities()
    observed[3] = False
    completer = fit_matrix(matrix, observed)
    monkeypatch.setattr(module, "MAX_READ", 10)
    monkeypatch.setattr(module, "_find_stretch", None)
    found = completer.suggest(10)
    assert found.row(0)[0] == 3
    assert not observed[tuple(np.array(cells_of(found)).T)].any()
    monkeypatch.undo()
    # That is what a stretch of 1 gives.
    monkeypatch.setattr(module, "_find_stretch", lambda *_: np.ones(SIZE))
    assert_frame_equal(completer.suggest(10), found)


def test_tables_that_are_too_large_are_one_line(monkeypatch):
    completer = fit_matrix(*affinities(), "vmf")
    monkeypatch.setattr(module, "MAX_READ", 100)
    with pytest.raises(InputError, match="'best' compares at most 100 cells, but there are 2"):
        completer.suggest(goal="best")
    monkeypatch.setattr(module, "MAX_COMPARED", 400)
    with pytest.raises(InputError, match="at most 400 cells can be compared, but 24 rows and 18"):
        completer.suggest()
    assert len(completer.suggest(3, among=[(0, c) for c in range(18)])) == 3


@pytest.mark.parametrize("model", ["vmf", "pretrained", "mean"])
@pytest.mark.parametrize("goal", ["error", "best"])
def test_tables_of_equal_values_and_of_few_cells_have_suggestions(model, goal):
    equal = Completer(model, scale="real").fit([("a", "x"), ("b", "y"), ("a", "z")], [2.0] * 3)
    assert len(equal.suggest(2, goal=goal)) == 2
    one = Completer(model).fit([("a", "x"), ("b", "y")], [2.0, None])
    assert set(cells_of(one.suggest(9, goal=goal))) == {("a", "y"), ("b", "x"), ("b", "y")}


def test_suggestions_follow_an_update():
    completer = Completer("vmf").fit(LABELS, RATINGS)
    first = completer.suggest(3)
    completer.update(first.select("member", "film"), [3.0] * 3)
    assert not set(cells_of(completer.suggest(20))) & set(cells_of(first))
    completer.update([("Zelda", "Heat")], [5.0])
    films = LABELS["film"].unique().to_list()
    found = completer.suggest(200, among=[("Zelda", film) for film in films])
    assert set(found["film"]) == set(films) - {"Heat"}


def test_the_frame_is_of_the_kind_that_was_fitted_and_its_names_differ():
    frame = FRAME.rename({"film": "gain", "member": "low"})
    completer = Completer("vmf").fit_table(load("film-club").table.of(frame.to_pandas()))
    found = completer.suggest(2)
    assert isinstance(found, pd.DataFrame)
    assert list(found.columns) == ["low", "gain", "rating", "low end", "high", "expected gain"]


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "3", None])
def test_numbers_that_make_no_sense_are_one_line(fitted, n):
    with pytest.raises(InputError, match="n must be a whole number of 1 or more, but is"):
        fitted("vmf").suggest(n)


@pytest.mark.parametrize("goal", ["errors", None, 1])
def test_an_unknown_goal_is_one_line(fitted, goal):
    with pytest.raises(InputError, match=f"goal must be one of error, best, but is {goal!r}"):
        fitted("vmf").suggest(goal=goal)


def test_unknown_members_are_one_line(fitted):
    member = LABELS["member"][0]
    with pytest.raises(
        InputError, match="known members, but the film of cell 2 is not known: 'Haet'"
    ):
        fitted("vmf").suggest(among=[(member, LABELS["film"][0]), (member, "Haet")])
    with pytest.raises(InputError, match="expecting 2"):
        fitted("vmf").suggest(among=np.array([["a", "b", "c"]]))


@pytest.mark.parametrize("goal", ["error", "best"])
def test_only_matrices_with_values_have_suggestions(goal):
    needed = "suggest needs a table of 2 axes with values, but this one has"
    three = Completer("bias").fit([("a", "x", "k"), ("b", "y", "k")], [1.0, 2.5])
    with pytest.raises(InputError, match=f"{needed} 3 axes"):
        three.suggest(goal=goal)
    one = Completer("mean").fit([("a",), ("b",)], [1.0, 2.5])
    with pytest.raises(InputError, match=f"{needed} 1 axis"):
        one.suggest(goal=goal)
    positives = Completer("popularity").fit([("a", "x"), ("b", "y"), ("b", "x")])
    with pytest.raises(InputError, match=f"{needed} 2 axes and positives"):
        positives.suggest(goal=goal)
