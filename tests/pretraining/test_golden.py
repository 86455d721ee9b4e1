"""Predictions of the bundled weights, pinned: changes by more than rounding show here."""

import os
from dataclasses import replace

import numpy as np
import pytest

from exchangeable import Completer
from exchangeable.datasets import load
from exchangeable.metrics import coverage, rmse

DATA = os.environ.get("EXCHANGEABLE_DATA")


def planted_table(shape, cells, seed):
    """Ratings of 1 to 5 with biases and one factor, the same on every machine."""
    generator = np.random.default_rng(seed)
    index = np.unique(generator.integers(0, shape, (cells, len(shape))), axis=0)
    values = 3 + 0.5 * generator.normal(size=len(index))
    factor = np.ones(len(index))
    for axis, size in enumerate(shape):
        values += 0.5 * generator.normal(size=size)[index[:, axis]]
        factor *= generator.normal(size=size)[index[:, axis]]
    return index, np.clip(np.round(values + 0.5 * factor), 1, 5)


GOLDEN = {
    2: ((30, 20), 300, [(0, 0), (7, 3), (29, 19), (12, 99), (99, 99)]),
    3: ((12, 10, 8), 400, [(0, 0, 0), (7, 3, 5), (11, 9, 7), (5, 99, 2), (99, 99, 99)]),
}


def golden_predictions(order):
    """Rows of mean, low and high: of cells, and of members that the table does not have."""
    shape, cells, queries = GOLDEN[order]
    completer = Completer("pretrained").fit(*planted_table(shape, cells, seed=order))
    queries = np.array(queries)
    mean, ends = completer.predict(queries), completer.predict_interval(queries, 0.8)
    return np.column_stack([mean, ends])


FOUND = {
    2: [
        [2.35365, 1.13331, 3.57620],
        [3.37679, 2.41180, 4.50718],
        [2.19584, 1.05442, 3.28884],
        [2.97397, 1.44782, 4.42461],
        [2.85499, 1.09992, 4.16617],
    ],
    3: [
        [4.80907, 4.65057, 5.00000],
        [3.13167, 2.16464, 3.97555],
        [2.64030, 1.94103, 3.30323],
        [1.49593, 1.00000, 1.94473],
        [3.27694, 1.91755, 4.22108],
    ],
}
"""What the weights of November 2026 predict, to five digits."""


@pytest.mark.filterwarnings("ignore:.*not in the table:exchangeable.errors.InputWarning")
@pytest.mark.parametrize("order", GOLDEN)
def test_predictions_of_the_bundled_weights_are_those_of_before(order):
    np.testing.assert_allclose(golden_predictions(order), FOUND[order], atol=1e-4)


@pytest.mark.skipif(not DATA, reason="needs EXCHANGEABLE_DATA to name the data folder")
def test_error_and_coverage_on_movielens_are_those_that_the_results_print():
    """u1 of ML-100K without dates: .8827 without training, and 80 % intervals that hold 79.4 %."""
    dataset = load("ml-100k")
    table, split = replace(dataset.table, times=None), dataset.splits["u1"]
    train, test = (table.take(part) for part in (split.train, split.test))
    completer = Completer("pretrained").fit_table(train)
    cells = test.frame(test.index)
    assert rmse(test.values, completer.predict(cells)) == pytest.approx(0.8827, abs=3e-4)
    held = coverage(test.values, completer.predict_interval(cells, 0.8))
    assert held == pytest.approx(0.794, abs=0.005)
