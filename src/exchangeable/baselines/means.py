"""The simplest answers: the mean of all cells, or of those of the same member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.baselines.base import State, check_cells, check_queries
from exchangeable.runtime.progress import SILENT, Progress


@dataclass(frozen=True, eq=False)
class FittedMeans:
    """An answer and a variance for every member of the axis; the last is for all others."""

    config: MemberMean
    shape: tuple[int, ...]
    means: Floats  # (N + 1,)
    variances: Floats  # (N + 1,)

    def predict(self, index: Index) -> tuple[Floats, Floats]:
        check_queries(index, self.shape)
        if self.config.axis is None:
            return np.repeat(self.means, len(index)), np.repeat(self.variances, len(index))
        member = index[:, self.config.axis]
        return self.means[member], self.variances[member]

    def updated(self, cells: Cells, changed: Index) -> FittedMeans:
        return self.config.fit(cells)

    def state(self) -> State:
        return {"shape": np.array(self.shape), "means": self.means, "variances": self.variances}

    @classmethod
    def of_state(cls, config: MemberMean, state: Mapping[str, NDArray[Any]]) -> Self:
        return cls(config, tuple(state["shape"].tolist()), state["means"], state["variances"])


@dataclass(frozen=True)
class MemberMean:
    """The mean of the cells of the same member, or of all cells where it has none."""

    axis: int | None = None
    """Whose members: 0 for rows, -1 for the last axis; without one it is the mean of all."""

    kind: ClassVar[type[FittedMeans]] = FittedMeans

    def fit(self, cells: Cells, progress: Progress = SILENT) -> FittedMeans:
        check_cells("a mean", cells)
        index, values, shape = cells.index, cells.values, cells.shape
        progress.at(1.0, "averaging")
        # About one of the values the sums are exact where all are equal.
        about = float(values[0])
        apart = values - about
        overall = float(apart.mean())
        total = _spread(apart - overall, means=1)
        variance = total * (1 + 1 / len(values))
        if self.axis is None:
            return FittedMeans(self, shape, np.array([about + overall]), np.array([variance]))
        column = index[:, self.axis]
        number = np.bincount(column, minlength=shape[self.axis] + 1)
        seen = number > 0
        means = np.bincount(column, apart, len(number)) / np.maximum(number, 1)
        # Members with one cell each say nothing of how much the cells of one member differ.
        alone = seen.sum() == len(values)
        within = total if alone else _spread(apart - means[column], means=int(seen.sum()))
        variances = within * (1 + 1 / np.maximum(number, 1))
        return FittedMeans(
            self,
            shape,
            about + np.where(seen, means, overall),
            np.where(seen, variances, variance),
        )


def _spread(errors: Floats, means: int) -> float:
    """Variance about fitted means, each of which costs a cell; at least one is left."""
    return float(errors @ errors) / max(len(errors) - means, 1)
