"""Samples that together contain every queried cell, and predictions in such samples.

A literal model of the paper pools over all observed and queried cells together, however many these
are. Read in samples, as the paper does where memory is too small, it takes as much memory as one
sample; a prediction then depends on the cells of the samples that its cell was in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.support import Support
from exchangeable.errors import InputError
from exchangeable.models.memory import MemoryModel
from exchangeable.training.samplers import Positions, RowsColumns, Sampler
from exchangeable.training.validation import predict_cells
from exchangeable.values.codecs import Codec, ValueStats

MAX_PASSES = 10_000


@dataclass(frozen=True, eq=False)
class Covering:
    """Samples that together contain every queried cell."""

    samples: tuple[Positions, ...]
    expected: float
    """Expected number of samples, by the coupon collector's estimate."""

    @property
    def passes(self) -> int:
        return len(self.samples)


def cover(
    sampler: Sampler, queries: Positions, generator: np.random.Generator, *, most: int = MAX_PASSES
) -> Covering:
    """Sample until every queried cell was drawn; return the samples and their expected number.

    If each pass draws a cell with probability p, the last of Q queried cells is drawn after
    about (log Q + 0.577) / -log(1 - p) passes; p is measured on the passes that were made. For
    ``Conditional`` and ``Neighbourhood``, which draw some cells less often, it is a lower bound.
    """
    samples = tuple(covering_samples(sampler, queries, generator, most=most))
    share = float(np.mean([len(sample) for sample in samples])) / len(sampler) if samples else 1.0
    return Covering(samples, _coupons(len(np.unique(queries)), share))


def covering_samples(
    sampler: Sampler, queries: Positions, generator: np.random.Generator, *, most: int = MAX_PASSES
) -> Iterator[Positions]:
    """Yield samples until every queried cell was drawn."""
    cells = np.asarray(queries, dtype=np.int64)
    if len(cells) and not (cells.min() >= 0 and cells.max() < len(sampler)):
        raise InputError(f"queried cells must be between 0 and {len(sampler) - 1}")
    missing = np.zeros(len(sampler), dtype=bool)
    missing[cells] = True
    count, left = int(missing.sum()), int(missing.sum())
    for _ in range(most):
        if not left:
            return
        sample = sampler.draw(generator)
        missing[sample] = False
        left = int(missing.sum())
        yield sample
    if left:
        raise InputError(f"{left} of {count} queried cells were not drawn in {most} passes")


def _coupons(count: int, share: float) -> float:
    if count == 0 or share >= 1:
        return float(min(count, 1))
    return (math.log(count) + 0.5772) / -math.log1p(-share)


@torch.no_grad()
def predict_in_samples(
    model: MemoryModel,
    codec: Codec,
    observed: ExchangeableArray,
    queries: Support,
    stats: ValueStats,
    features: FeatureTensors | None = None,
    *,
    cells: int,
    seed: int = 0,
) -> Tensor:
    """Return a model's outputs for the queries, read in samples of about ``cells`` cells: (Q, O).

    Members are drawn uniformly at random, so that every cell is as likely to be drawn, until every
    query was; its outputs are averaged over the samples with it. With as many ``cells`` as there
    are, all are read together.
    """
    asked, inverse = queries.index.unique(dim=0, return_inverse=True)
    found = observed.support.find(asked)
    every = torch.cat([observed.support.index, asked[found == len(observed)]])
    if cells >= len(every):
        return predict_cells(model, codec, observed, queries, stats, features)
    # Position of each query among all cells, and the query at each position.
    absent = (found == len(observed)).long()
    positions = torch.where(absent == 1, len(observed) + absent.cumsum(0) - 1, found)
    query_at = torch.full((len(every),), -1, device=every.device)
    query_at[positions] = torch.arange(len(asked), device=every.device)
    share = (cells / len(every)) ** (1 / observed.order)
    sizes = tuple(max(1, round(share * size)) for size in observed.shape)
    sampler = RowsColumns(Support(every.cpu(), observed.shape), sizes)
    total: Tensor | None = None
    counts = torch.zeros(len(asked), 1, device=every.device)
    generator = np.random.default_rng(seed)
    for sample in covering_samples(sampler, positions.cpu().numpy(), generator):
        drawn = torch.from_numpy(sample).to(every.device)
        numbers = query_at[drawn]
        numbers = numbers[numbers >= 0]
        if not len(numbers):
            continue
        seen = observed.take(drawn[drawn < len(observed)])
        some = Support(asked[numbers], observed.shape)
        outputs = predict_cells(model, codec, seen, some, stats, features)
        if total is None:
            total = outputs.new_zeros(len(asked), outputs.shape[1])
        total[numbers] += outputs
        counts[numbers] += 1
    assert total is not None
    return (total / counts)[inverse]
