"""Samples cover the queried cells in about as many passes as the coupon collector expects."""

import numpy as np
import pytest
import torch

from exchangeable import ExchangeableArray, Support
from exchangeable.errors import InputError
from exchangeable.models.configs import FactorizedConfig, ResidualConfig, build
from exchangeable.testing import random_array
from exchangeable.training.covering import cover, predict_in_samples
from exchangeable.training.samplers import Full, RowsColumns, UniformCells
from exchangeable.training.validation import predict_cells
from exchangeable.values.codecs import OneHot, ValueStats
from exchangeable.values.scale import Scale


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


LEVELS = (1.0, 2.0, 3.0)
CODEC = OneHot(3, LEVELS)


def rated(shape=(20, 15), density=0.4, seed=0):
    """A table, some cells of it that have no value, and statistics of the values."""
    every = random_array(shape, density=1.0).support.index
    generator = torch.Generator().manual_seed(seed)
    every = every[torch.randperm(len(every), generator=generator)]
    number = round(density * len(every))
    values = torch.randint(1, 4, (number, 1), generator=generator).double()
    observed = ExchangeableArray(Support(every[:number], shape), values)
    stats = ValueStats.of(values.squeeze(1).numpy(), Scale("levels", LEVELS))
    return observed, Support(every[number : number + 30], shape), stats


def literal_model():
    config = FactorizedConfig(3, 3, encoder=(8, 4), decoder=(8,), literal=True)
    return build(config).eval()


def test_in_samples_every_query_is_predicted_from_the_samples_with_it():
    """By a slow reference: the outputs of each sample, averaged over those with the query."""
    model, (observed, queries, stats) = literal_model(), rated()
    outputs = predict_in_samples(model, CODEC, observed, queries, stats, cells=80, seed=3)
    every = torch.cat([observed.support.index, queries.index.unique(dim=0)])
    sizes = tuple(round((80 / len(every)) ** 0.5 * size) for size in observed.shape)
    sampler = RowsColumns(Support(every, observed.shape), sizes)
    asked = np.arange(len(observed), len(every))
    found = {tuple(cell): [] for cell in queries.index.tolist()}
    for sample in cover(sampler, asked, np.random.default_rng(3)).samples:
        drawn = torch.from_numpy(sample)
        some = every[drawn[drawn >= len(observed)]]
        if not len(some):
            continue
        seen = observed.take(drawn[drawn < len(observed)])
        rows = predict_cells(model, CODEC, seen, Support(some, observed.shape), stats)
        for cell, row in zip(some.tolist(), rows, strict=True):
            found[tuple(cell)].append(row)
    expected = torch.stack([torch.stack(found[tuple(c)]).mean(0) for c in queries.index.tolist()])
    torch.testing.assert_close(outputs, expected)


def test_samples_of_all_cells_are_reading_them_together():
    observed, queries, stats = rated()
    for model in (literal_model(), build(ResidualConfig.small(3, 3)).eval()):
        together = predict_cells(model, CODEC, observed, queries, stats)
        whole = predict_in_samples(model, CODEC, observed, queries, stats, cells=10_000)
        torch.testing.assert_close(whole, together)
        parts = predict_in_samples(model, CODEC, observed, queries, stats, cells=70)
        assert parts.shape == together.shape
        assert not torch.allclose(parts, together)


def test_observed_and_repeated_cells_can_be_queried_in_samples():
    model, (observed, queries, stats) = literal_model(), rated()
    index = torch.cat([queries.index[:2], observed.support.index[:3], queries.index[:1]])
    asked = Support(index, observed.shape)
    outputs = predict_in_samples(model, CODEC, observed, asked, stats, cells=100)
    assert outputs.isfinite().all()
    torch.testing.assert_close(outputs[0], outputs[-1])
