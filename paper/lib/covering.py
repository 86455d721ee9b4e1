"""How many samples it takes until every queried cell was drawn at least once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from exchangeable.errors import InputError
from exchangeable.training.samplers import Positions, Sampler


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
    sampler: Sampler, queries: Positions, generator: np.random.Generator, *, most: int = 10_000
) -> Covering:
    """Sample until every queried cell was drawn; return the samples and their expected number.

    If each pass draws a cell with probability p, the last of Q queried cells is drawn after
    about (log Q + 0.577) / -log(1 - p) passes; p is measured on the passes that were made. For
    ``Conditional`` and ``Neighbourhood``, which draw some cells less often, it is a lower bound.
    """
    cells = np.asarray(queries, dtype=np.int64)
    if len(cells) and not (cells.min() >= 0 and cells.max() < len(sampler)):
        raise InputError(f"queried cells must be between 0 and {len(sampler) - 1}")
    missing = np.zeros(len(sampler), dtype=bool)
    missing[cells] = True
    count, left = int(missing.sum()), int(missing.sum())
    samples: list[Positions] = []
    while left:
        if len(samples) == most:
            raise InputError(f"{left} of {count} queried cells were not drawn in {most} passes")
        samples.append(sampler.draw(generator))
        missing[samples[-1]] = False
        left = int(missing.sum())
    share = float(np.mean([len(sample) for sample in samples])) / len(sampler) if samples else 1.0
    return Covering(tuple(samples), _coupons(count, share))


def _coupons(count: int, share: float) -> float:
    if count == 0 or share >= 1:
        return float(min(count, 1))
    return (math.log(count) + 0.5772) / -math.log1p(-share)
