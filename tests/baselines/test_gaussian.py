"""Rows of a table as draws from one normal distribution."""

import numpy as np
import pytest

from exchangeable.arrays.cells import UNKNOWN, Cells
from exchangeable.baselines.gaussian import Gaussian, suits
from exchangeable.errors import InputError


def draws(rows=4000, seed=0):
    """Draw rows of four variables in different units, of which a fifth is hidden."""
    generator = np.random.default_rng(seed)
    mixing = np.array([[1, 0, 0, 0], [0.9, 0.3, 0, 0], [-0.5, 0.5, 0.6, 0], [0, 0, 0, 1.0]])
    centre, unit = np.array([0.0, 100.0, -3.0, 1e4]), np.array([1.0, 20.0, 0.1, 500.0])
    whole = centre + unit * (generator.standard_normal((rows, 4)) @ mixing.T)
    covariance = np.outer(unit, unit) * (mixing @ mixing.T)
    hidden = generator.random(whole.shape) < 0.2
    return whole, hidden, centre, covariance


def cells_of(whole, observed):
    index = np.argwhere(observed)
    return Cells.of(index, whole[observed], whole.shape)


def test_hidden_cells_are_the_conditional_mean_and_variance_of_the_true_distribution():
    whole, hidden, centre, covariance = draws()
    fitted = Gaussian(prior_rows=1e-6).fit(cells_of(whole, ~hidden))
    for row in range(30):
        for variable in np.flatnonzero(hidden[row]):
            given = np.flatnonzero(~hidden[row])
            own = covariance[np.ix_(given, given)]
            weights = np.linalg.solve(own, covariance[given, variable])
            mean, variance = fitted.predict(np.array([[row, variable]]))
            expected = centre[variable] + weights @ (whole[row, given] - centre[given])
            left = covariance[variable, variable] - weights @ covariance[given, variable]
            deviation = np.sqrt(covariance[variable, variable])
            assert abs(mean[0] - expected) < 0.1 * deviation
            assert variance[0] == pytest.approx(left, rel=0.15)


def test_an_observed_cell_is_predicted_from_the_others_of_its_row():
    whole, hidden, _, _ = draws(rows=60)
    observed = ~hidden
    observed[5] = [True, True, True, False]
    fitted = Gaussian(rounds=400, tolerance=1e-12).fit(cells_of(whole, observed))
    # One row tells little about the distribution, so without the cell it is nearly the same.
    without = observed.copy()
    without[5, 1] = False
    again = Gaussian(rounds=400, tolerance=1e-12).fit(cells_of(whole, without))
    query = np.array([[5, 1]])
    assert fitted.predict(query)[0][0] == pytest.approx(again.predict(query)[0][0], abs=3)
    changed = whole.copy()
    changed[5, 1] += 1e-3  # the prediction of a cell does not follow its own value
    moved = Gaussian(rounds=400, tolerance=1e-12).fit(cells_of(changed, observed))
    assert abs(moved.predict(query)[0][0] - fitted.predict(query)[0][0]) < 2e-4


def test_units_of_variables_and_the_sides_of_the_table_do_not_matter():
    whole, hidden, _, _ = draws(rows=100)
    fitted = Gaussian().fit(cells_of(whole, ~hidden))
    scaled = Gaussian().fit(cells_of(7 + whole * [1, 1000, 0.001, -5], ~hidden))
    turned = Gaussian().fit(cells_of(whole.T, ~hidden.T))
    queries = np.argwhere(hidden)
    mean, variance = fitted.predict(queries)
    factor = np.array([1, 1000, 0.001, -5])[queries[:, 1]]
    np.testing.assert_allclose(scaled.predict(queries)[0], 7 + factor * mean, rtol=1e-7)
    np.testing.assert_allclose(scaled.predict(queries)[1], factor**2 * variance, rtol=1e-6)
    np.testing.assert_allclose(turned.predict(queries[:, ::-1])[0], mean, rtol=1e-9)


def test_members_without_cells_are_usual_ones():
    whole, hidden, centre, covariance = draws()
    observed = ~hidden
    observed[7] = False
    fitted = Gaussian().fit(cells_of(whole, observed))
    empty, unknown = np.array([[7, 1]]), np.array([[UNKNOWN, 1]])
    assert fitted.predict(empty)[0] == pytest.approx(fitted.predict(unknown)[0], rel=1e-3)
    assert fitted.predict(unknown)[0][0] == pytest.approx(centre[1], abs=2)
    mean, variance = fitted.predict(np.array([[3, UNKNOWN]]))
    assert mean[0] == pytest.approx(centre.mean(), rel=0.02)
    assert variance[0] > covariance.diagonal().mean()


def test_constant_and_empty_variables_do_no_harm():
    whole, hidden, _, _ = draws(rows=50)
    whole[:, 2] = 4.0
    observed = ~hidden
    observed[:, 3] = False
    fitted = Gaussian().fit(cells_of(whole, observed))
    mean, variance = fitted.predict(np.argwhere(np.ones_like(observed)))
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    np.testing.assert_allclose(mean.reshape(whole.shape)[:, 2], 4.0, atol=1e-6)


def test_it_suits_dense_tables_with_few_variables():
    whole, hidden, _, _ = draws(rows=100)
    assert suits(cells_of(whole, ~hidden))
    assert suits(cells_of(whole.T, ~hidden.T))
    assert not suits(cells_of(whole[:12], ~hidden[:12]))
    rare = np.zeros_like(hidden)
    rare[::10, 0] = True
    assert not suits(cells_of(whole, rare))
    with pytest.raises(InputError, match="at most 128 members, but the shape is"):
        Gaussian().fit(Cells.of([(0, 0)], [1.0], (200, 300)))


def test_new_cells_are_folded_in_by_the_same_distribution():
    whole, hidden, _, _ = draws(rows=300)
    observed = ~hidden
    fitted = Gaussian().fit(cells_of(whole, observed))
    more = np.concatenate([whole, whole[:5]])  # five further rows like the first ones
    cells = cells_of(more, np.concatenate([observed, observed[:5]]))
    changed = np.flatnonzero(cells.index[:, 0] >= 300)
    grown = fitted.updated(cells, changed)
    for row in range(5):
        old, new = (np.stack([np.full(4, r), np.arange(4)], axis=1) for r in (row, 300 + row))
        np.testing.assert_allclose(grown.predict(new), fitted.predict(old), rtol=1e-9)
    rest = np.argwhere(hidden)
    np.testing.assert_array_equal(grown.predict(rest), fitted.predict(rest))


def test_variables_without_cells_or_with_equal_ones_are_fitted_again_when_some_come():
    whole, hidden, _, _ = draws(rows=60)
    observed = ~hidden
    observed[:, 3] = False
    whole[:, 2] = 3.0
    fitted = Gaussian().fit(cells_of(whole, observed))
    assert fitted.predict(np.array([[0, 2]]))[1][0] > 1e-6
    more = np.concatenate([whole, whole[:1] + 1])
    shown = np.concatenate([observed, [[True, True, False, False]]])
    cells = cells_of(more, shown)
    grown = fitted.updated(cells, np.flatnonzero(cells.index[:, 0] == 60))
    unknown = np.array([[60, 3]])
    np.testing.assert_allclose(grown.predict(unknown), fitted.predict(np.array([[0, 3]])))
    shown[60, 3] = True
    cells = cells_of(more, shown)
    again = fitted.updated(cells, np.flatnonzero(cells.index[:, 0] == 60))
    np.testing.assert_allclose(
        again.predict(unknown), Gaussian().fit(cells).predict(unknown), rtol=1e-9
    )
