"""Means and biases are those of their models."""

from itertools import product

import numpy as np
import pytest
from tests.support.baselines import NAMES, planted

from exchangeable.arrays.cells import Cells
from exchangeable.baselines import (
    BASELINES,
    Bias,
    MemberMean,
)


def test_a_mean_is_that_of_the_member_or_of_all():
    index, values = np.array([[0, 0], [0, 1], [1, 1]]), np.array([1.0, 3.0, 8.0])
    asked = np.array([[0, 1], [1, 0], [2, 0], [-1, -1]])
    fits = {name: BASELINES[name]().fit(Cells(index, values, (3, 2))) for name in NAMES[:3]}
    assert fits["mean"].predict(asked)[0].tolist() == [4, 4, 4, 4]
    assert fits["row-mean"].predict(asked)[0].tolist() == [2, 8, 4, 4]
    assert fits["column-mean"].predict(asked)[0].tolist() == [5.5, 1, 1, 4]
    # The squares about the two row means add up to 2, and one cell is left to average them.
    assert fits["row-mean"].predict(asked)[1] == pytest.approx([3, 4, 13 * 4 / 3, 13 * 4 / 3])


def test_the_variance_of_a_mean_is_the_error_it_makes():
    generator = np.random.default_rng(0)
    index = np.array(list(product(range(400), range(5))))
    values = 2 * generator.standard_normal(400)[index[:, 0]] + generator.standard_normal(2000)
    held = index[:, 1] == 4
    fitted = MemberMean(axis=0).fit(Cells(index[~held], values[~held], (400, 5)))
    mean, variance = fitted.predict(index[held])
    assert np.mean((mean - values[held]) ** 2 / variance) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("shape", [(9,), (8, 6), (5, 4, 3)])
def test_biases_equal_a_slow_em_written_out(shape):
    index, values = planted(shape, density=0.7)
    mean, variance = Bias(sweeps=7, tolerance=0).fit(Cells(index, values, shape)).predict(index)
    expected = slow_em(index, values, shape, rounds=7)
    np.testing.assert_allclose((mean, variance), expected, rtol=1e-10)


def slow_em(index, values, shape, rounds):
    """Cell by cell: biases in turn given the others, then their variances, then the noise."""
    order, cells = len(shape), [tuple(cell) for cell in index.tolist()]
    centre, spread = np.mean(values), np.std(values)
    y = {cell: (value - centre) / spread for cell, value in zip(cells, values, strict=True)}
    mu, noise, prior = 0.0, 0.5, [0.5 / order] * order
    bias = [[0.0] * size for size in shape]
    sure = [[0.5 / order] * size for size in shape]

    def answer(cell):
        return mu + sum(bias[d][n] for d, n in enumerate(cell))

    for _ in range(rounds):
        for d in range(order):
            squares = []
            for n in range(shape[d]):
                own = [cell for cell in cells if cell[d] == n]
                left = [y[cell] - answer(cell) + bias[d][n] for cell in own]
                sure[d][n] = 1 / (1 / prior[d] + len(own) / noise)
                bias[d][n] = sure[d][n] * sum(left) / noise
                if own:
                    squares.append(bias[d][n] ** 2 + sure[d][n])
            prior[d] = sum(squares) / len(squares)
        mu += sum(y[cell] - answer(cell) for cell in cells) / len(cells)
        unsure = [sum(sure[d][n] for d, n in enumerate(cell)) for cell in cells]
        errors = [(y[cell] - answer(cell)) ** 2 for cell in cells]
        noise = (sum(errors) + sum(unsure)) / len(cells)
    mean = [centre + spread * answer(cell) for cell in cells]
    return mean, [spread**2 * (noise + own) for own in unsure]
