"""Models are compared on cells that none of them has read, and the best is fitted to all cells."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.baselines import planted, rmse

from exchangeable import Completer
from exchangeable.arrays.cells import Cells
from exchangeable.completion import select
from exchangeable.completion.select import Comparison
from exchangeable.predictors.base import MEAN, read_predictions
from exchangeable.predictors.baseline import fit_baseline
from exchangeable.values.calibration import UNCALIBRATED


@pytest.mark.parametrize("shape", [(40, 9), (12, 7, 5)])
def test_the_smallest_pool_is_the_median_over_cells_of_its_lightest_member(shape, monkeypatch):
    monkeypatch.setattr(select, "CELLS_PER_COUNT", 7)
    index, values = planted(shape, density=0.3)
    sizes = [
        min(sum(other[axis] == cell[axis] for other in index) for axis in range(len(shape)))
        for cell in index
    ]
    expected = sorted(sizes)[(len(sizes) - 1) // 2]
    assert select._smallest_pool(Cells(index, values, shape)) == expected


def test_a_factorization_that_is_chosen_for_a_large_table_goes_on_from_the_compared_one(
    monkeypatch,
):
    """Its further sweeps come as close to the truth as all sweeps from the start."""
    index, values = planted((80, 60), density=0.6)
    hidden = np.random.default_rng(0).random(len(index)) < 0.2
    cells = Cells(index[~hidden], values[~hidden], (80, 60))
    model = Completer("pretrained").fit(cells.index, cells.values).predictor_
    fits = {}
    for name, limit in (("small", len(cells)), ("large", 0)):
        monkeypatch.setattr(select, "MAX_SWEPT_CELLS", limit)
        comparison = replace(select.compare_models(model, cells, ("vmf",)), best="vmf")
        assert (comparison.factors is None) == (name == "small")
        fits[name] = comparison.fit_best(cells, seed=0)
        assert fits[name].calibration == comparison.calibration != UNCALIBRATED
    plain = fit_baseline("vmf", cells, seed=0)
    means = {
        name: read_predictions(predictor, index[hidden], MEAN)[0]
        for name, predictor in {**fits, "plain": plain}.items()
    }
    np.testing.assert_array_equal(means["small"], means["plain"])
    assert not np.array_equal(means["large"], means["plain"])
    errors = {name: rmse(values[hidden], column) for name, column in means.items()}
    assert errors["large"] == pytest.approx(errors["plain"], rel=0.02)
    constant = rmse(values[hidden], np.full(hidden.sum(), cells.values.mean()))
    assert errors["large"] < 0.8 * constant


@pytest.mark.parametrize(
    ("cells", "other", "best"),
    [(30, "vmf", "pretrained"), (3000, "vmf", "vmf"), (30, "gaussian", "gaussian")],
)
def test_the_pretrained_model_is_left_for_factors_only_if_they_are_better_by_more_than_chance(
    cells, other, best
):
    """Errors differ by the same share, for which 30 hidden cells are too few."""
    one, two = np.linalg.qr(np.random.default_rng(0).normal(size=(cells, 2)))[0].T
    means = {"pretrained": 1.05 * one, other: 0.8 * one + 0.6 * two, "bias": 3 * one}
    ranks = {name: np.linspace(0, 1, cells) for name in means}
    comparison = Comparison.of(np.zeros(cells), means, ranks)
    assert comparison.rmse[other] < comparison.rmse["pretrained"] < comparison.rmse["bias"]
    assert comparison.best == best
