"""Samples cover the queried cells in about as many passes as the coupon collector expects."""

import numpy as np
import pytest

from exchangeable.errors import InputError
from exchangeable.testing import random_array
from exchangeable.training.samplers import Full, UniformCells
from paper.lib.covering import cover


def test_passes_cover_every_queried_cell_in_about_as_many_as_expected():
    support = random_array((60, 50), density=0.5).support
    queries = np.arange(0, len(support), 3)
    passes, expected = [], []
    for seed in range(40):
        covering = cover(UniformCells(support, 300), queries, np.random.default_rng(seed))
        assert set(queries) <= set(np.concatenate(covering.samples))
        assert not set(queries) <= set(np.concatenate([[-1], *covering.samples[:-1]]))
        passes.append(covering.passes)
        expected.append(covering.expected)
    assert np.mean(passes) == pytest.approx(np.mean(expected), rel=0.1)


def test_nothing_queried_needs_no_pass_and_everything_at_once_needs_one():
    support = random_array((6, 5), density=0.5).support
    assert cover(Full(support), np.array([], dtype=int), np.random.default_rng(0)).passes == 0
    covering = cover(Full(support), np.arange(len(support)), np.random.default_rng(0))
    assert (covering.passes, covering.expected) == (1, 1.0)


def test_queries_outside_the_table_and_too_many_passes_are_named():
    support = random_array((3, 4), density=1.0).support
    with pytest.raises(InputError, match="must be between 0 and 11"):
        cover(Full(support), np.array([-1]), np.random.default_rng(0))
    with pytest.raises(InputError, match="of 12 queried cells were not drawn in 2 passes"):
        cover(UniformCells(support, 1), np.arange(12), np.random.default_rng(0), most=2)
