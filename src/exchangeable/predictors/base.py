"""Predictors: a table's cells in, distributions out, from a fitted baseline or a model's memory.

A member that is not in the table has the coordinate ``UNKNOWN``: its cell is predicted from the
other axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.runtime.threads import one_thread
from exchangeable.values.distributions import Distribution, interval
from exchangeable.values.sampling import draw_values

COVERAGE = 0.8
"""Coverage of the intervals beside predictions that are listed or written."""
CELLS_PER_CHUNK = 2**14
"""Cells whose whole distributions are held at a time: on a scale of 101 levels 50 MB."""

Statistic = Callable[[Distribution], Tensor]
"""A statistic of the distributions of Q cells: (Q, ...)."""
MEAN: Statistic = methodcaller("mean")
PROBABILITIES: Statistic = methodcaller("probabilities")


class Predictor(Protocol):
    """Predicts any cell of one table."""

    def predict(self, index: Index, times: Floats | None = None) -> Distribution:
        """Predict cells (Q, D), with ``UNKNOWN`` for members that are not in the table.

        ``times`` (Q,) are those of the cells; without them cells are at the latest time.
        """
        ...

    def updated(self, cells: Cells, changed: Index, *, known: int) -> Predictor:
        """Fold in the cells at the positions ``changed`` of all cells, without a gradient step.

        The first ``known`` cells are those of before, some with other values; others are new.
        """
        ...

    def needs_refit(self, cells: Cells, changed: Index, *, known: int) -> bool:
        """Whether ``updated`` reads all cells together, rather than fold those that changed in."""
        ...

    def refreshed(self, cells: Cells) -> Predictor:
        """Read all cells together."""
        ...

    def for_new_members(
        self,
        axis: int,
        index: Index,
        values: Floats,
        features: Tensor | None = None,
        *,
        count: int = 1,
    ) -> Predictor | None:
        """Predict for ``count`` new members of an axis, each from its own cells (E, D) alone.

        They are numbered from 0 on. ``features`` (B, F) are their own, where the table has any.
        None where that needs the other cells too.
        """
        ...

    def factors(self) -> tuple[Floats, ...]:
        """Return one vector for each member, by axis: (N_d, k)."""
        ...

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return JSON and tensors, from which ``predictor_from_parts`` builds it again."""
        ...


def interval_ends(coverage: float) -> tuple[Statistic, Statistic]:
    """Statistics for the two ends of the interval with this coverage, found together."""
    found: list[tuple[Distribution, tuple[Tensor, Tensor]]] = []

    def ends(distribution: Distribution) -> tuple[Tensor, Tensor]:
        if not found or found[-1][0] is not distribution:
            found[:] = [(distribution, interval(distribution, coverage))]
        return found[-1][1]

    return lambda distribution: ends(distribution)[0], lambda distribution: ends(distribution)[1]


def quantile(share: float) -> Statistic:
    """Statistic for the value below which a share of the probability lies."""
    return methodcaller("quantile", share)


def predict_chunks(
    predictor: Predictor, index: Index, times: Floats | None = None
) -> Iterator[tuple[slice, Distribution]]:
    """Predict cells (Q, D) chunk by chunk: the rows of each chunk, and their distributions."""
    with one_thread(torch.device("cpu")):
        for start in range(0, max(len(index), 1), CELLS_PER_CHUNK):
            rows = slice(start, start + CELLS_PER_CHUNK)
            yield rows, predictor.predict(index[rows], None if times is None else times[rows])


def read_predictions(
    predictor: Predictor, index: Index, *statistics: Statistic, times: Floats | None = None
) -> list[Floats]:
    """Predict cells (Q, D) in one pass, and return statistics of them: (Q, ...) each."""
    columns: list[list[Floats]] = [[] for _ in statistics]
    for _, distribution in predict_chunks(predictor, index, times):
        for column, statistic in zip(columns, statistics, strict=True):
            column.append(to_numpy(statistic(distribution)))
    return [np.concatenate(column) for column in columns]


def score_predictions(
    predictor: Predictor,
    index: Index,
    values: Floats,
    *statistics: Callable[[Distribution, Tensor], Tensor],
    times: Floats | None = None,
) -> list[Floats]:
    """Predict cells (Q, D) in one pass, and return statistics of them and their true values."""
    columns: list[list[Floats]] = [[] for _ in statistics]
    for rows, distribution in predict_chunks(predictor, index, times):
        truth = torch.from_numpy(values[rows])
        for column, statistic in zip(columns, statistics, strict=True):
            column.append(to_numpy(statistic(distribution, truth)))
    return [np.concatenate(column) for column in columns]


def sample_predictions(
    predictor: Predictor,
    index: Index,
    levels: Sequence[float],
    uniform: Floats,
    times: Floats | None = None,
) -> Floats:
    """Predict cells (Q, D) in one pass, and turn uniform draws (n, Q) into draws from them."""
    every = torch.tensor(levels, dtype=torch.float64)
    draws = np.empty_like(uniform)
    for rows, distribution in predict_chunks(predictor, index, times):
        draws[:, rows] = to_numpy(
            draw_values(distribution, every, torch.from_numpy(uniform[:, rows]))
        )
    return draws


def to_numpy(statistic: Tensor) -> Floats:
    """Return a statistic as numbers of 64 bits."""
    return statistic.double().cpu().numpy()
