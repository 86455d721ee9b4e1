"""The best cells of members: those with the highest means, in two stages where that is faster.

A model with a prior corrects the prior's means a little. So cells are read by the model in the
sequence of these rough means, and reading stops where no cell that is left can be among the best:
where the rough mean of the next one, raised by the largest correction seen among the member's
cells, is below the last of the best. On ML-1M a list of ten then takes 256 of 3,706 cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.arrays.cells import Floats, Index, Mask
from exchangeable.predictors.base import Predictor, Statistic, predict_chunks, to_numpy
from exchangeable.runtime.threads import one_thread
from exchangeable.values.distributions import Distribution

MAX_ROUGH_CELLS = 2**18
"""Cells whose rough means are computed at a time."""
SHORTLIST = 96
"""Cells of a member that the model reads first."""
SHORTLIST_PER_CELL = 8
"""The same for each cell that is listed, where these are many."""
TIE = 1e-6
"""Share of the range of means up to which they are equal: networks compute with seven digits."""
LAST_DIGIT = 1e-9
"""The same as a share of the means themselves, where all are nearly equal."""


class RoughPredictions(NamedTuple):
    """Means of Q cells that are quickly computed, and the predictions of some of them."""

    means: Tensor  # (Q,), float64 on the CPU
    read: Callable[[Tensor], Distribution]
    """Predicts cells by their positions (P,) among all."""


class Best(NamedTuple):
    """The best cells of several members, one member after the other, best first."""

    positions: Index  # (R,), among the cells of all members
    columns: list[Floats]
    """Means, then the statistics that were asked for: (R,) each."""


def members_per_read(candidates: int) -> int:
    """Return the number of members whose candidates are compared at a time."""
    return max(1, MAX_ROUGH_CELLS // max(candidates, 1))


def best_of_members(
    predictor: Predictor,
    index: Index,
    allowed: Mask,
    n: int,
    *statistics: Statistic,
    bonus: Floats | None = None,
) -> Best:
    """Find the ``n`` allowed cells with the highest means of each of B members.

    ``index`` (B C, D) are the cells of all members, one after the other, and ``allowed`` (B, C)
    are those that may be listed. A ``bonus`` (B C,) is added to means where cells are compared.
    """
    with one_thread(torch.device("cpu")):
        return _best_of_members(predictor, index, allowed, n, statistics, bonus)


def _best_of_members(
    predictor: Predictor,
    index: Index,
    allowed: Mask,
    n: int,
    statistics: tuple[Statistic, ...],
    bonus: Floats | None,
) -> Best:
    rough = None
    if len(index) <= MAX_ROUGH_CELLS and hasattr(predictor, "rough_predictions"):
        rough = predictor.rough_predictions(index)
    if rough is not None:
        extra = np.zeros(allowed.shape) if bonus is None else bonus.reshape(allowed.shape)
        return _best_by_rough(rough, allowed, n, statistics, extra)
    parts = []
    for member, mask in enumerate(allowed):
        cells = member * len(mask) + np.flatnonzero(mask)
        added = None if bonus is None else bonus[cells]
        best, columns = best_cells(predictor, index[cells], n, *statistics, bonus=added)
        parts.append((cells[best], *columns))
    positions, *joined = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Best(positions, joined)


def _best_by_rough(
    rough: RoughPredictions,
    allowed: Mask,
    n: int,
    statistics: tuple[Statistic, ...],
    bonus: Floats,
) -> Best:
    """Find the best cells, first among those with the highest rough means, then among more."""
    size = allowed.shape[1]
    expected = rough.means.numpy().reshape(allowed.shape)
    ranks = torch.from_numpy(np.where(allowed, expected + bonus, -np.inf))
    shortlist, pending = max(SHORTLIST, SHORTLIST_PER_CELL * n), np.arange(len(allowed))
    found: list[tuple[NDArray[Any], ...]] = []
    while len(pending):
        count = min(shortlist, size)
        wanted = ranks[torch.from_numpy(pending)]
        # Sorted by position, so that of equal cells the first comes first.
        top, cells = wanted.topk(count, sorted=False)
        cells, permutation = cells.sort(dim=1)
        usable = top.gather(1, permutation).isfinite().numpy()
        positions = pending[:, None] * size + cells.numpy()
        distribution = rough.read(torch.from_numpy(positions[usable]))
        means = np.full(positions.shape, -np.inf)
        means[usable] = to_numpy(distribution.mean())
        rank = means + bonus[pending[:, None], cells.numpy()]
        best = _highest(rank, n)  # (B', n)
        last = np.take_along_axis(rank, best, axis=1)[:, -1]
        gains = np.where(usable, means - expected[pending[:, None], cells.numpy()], 0.0)
        left = wanted.scatter(1, cells, -torch.inf).amax(dim=1).numpy()
        done = (left == -np.inf) | (left + gains.max(axis=1).clip(min=0) < last)
        row, column = np.nonzero(np.take_along_axis(usable, best, axis=1) & done[:, None])
        place = best[row, column]
        number = np.cumsum(usable.ravel()).reshape(usable.shape) - 1
        few = distribution.take(torch.from_numpy(number[row, place]))
        columns = [to_numpy(statistic(few)) for statistic in statistics]
        found.append((positions[row, place], means[row, place], *columns))
        pending, shortlist = pending[~done], 4 * shortlist
    joined = [np.concatenate(column) for column in zip(*found, strict=True)]
    by_member = np.argsort(joined[0] // size, kind="stable")
    positions, *columns = (column[by_member] for column in joined)
    return Best(positions, columns)


def best_cells(
    predictor: Predictor,
    index: Index,
    n: int,
    *statistics: Statistic,
    bonus: Floats | None = None,
) -> tuple[Index, list[Floats]]:
    """Positions of the ``n`` cells (Q, D) with the highest means; these means, and statistics.

    A ``bonus`` (Q,) is added to the means where cells are compared.
    """
    positions: list[Index] = []
    ranks: list[Floats] = []
    columns: list[list[Floats]] = [[] for _ in range(1 + len(statistics))]
    for rows, distribution in predict_chunks(predictor, index):
        means = to_numpy(distribution.mean())
        rank = means if bonus is None else means + bonus[rows]
        best = _highest(rank, n)
        positions.append(rows.start + best)
        ranks.append(rank[best])
        columns[0].append(means[best])
        few = distribution.take(torch.from_numpy(best))  # of all it would take most of the time
        for column, statistic in zip(columns[1:], statistics, strict=True):
            column.append(to_numpy(statistic(few)))
    joined = [np.concatenate(column) for column in columns]
    best = _highest(np.concatenate(ranks), n)
    return np.concatenate(positions)[best], [column[best] for column in joined]


def _highest(means: Floats, n: int) -> Index:
    # Rounded, so that cells that are equal but for the last bits keep the sequence of their labels.
    return np.argsort(-rounded(means), axis=-1, kind="stable")[..., :n]


def rounded(numbers: Floats) -> Floats:
    """Round numbers (..., Q) to steps of a small share of their range: nearly equal ones are ties.

    >>> rounded(np.array([-np.inf, 3.0, 3.00000004, 4.0])).tolist()
    [-inf, 0.0, 0.0, 1000000.0]
    """
    finite = np.isfinite(numbers)
    low = np.where(finite, numbers, np.inf).min(axis=-1, initial=np.inf, keepdims=True)
    high = np.where(finite, numbers, -np.inf).max(axis=-1, initial=-np.inf, keepdims=True)
    largest = np.abs(np.where(finite, numbers, 0.0)).max(axis=-1, initial=0.0, keepdims=True)
    step = np.maximum(TIE * (high - low), LAST_DIGIT * largest)
    return np.round((numbers - low) / np.where(step > 0, step, 1.0))
