"""Predict the mean of all cells, or of those of the same member."""

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
    """Mean and variance of every member of the axis; the last is for unknown members."""

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
    def from_state(cls, config: MemberMean, state: Mapping[str, NDArray[Any]]) -> Self:
        return cls(config, tuple(state["shape"].tolist()), state["means"], state["variances"])


@dataclass(frozen=True)
class MemberMean:
    """Predict the mean of the member's cells, or of all cells if it has none."""

    axis: int | None = None
    """Axis of the members: 0 for rows, -1 for the last; None for the mean of all cells."""

    kind: ClassVar[type[FittedMeans]] = FittedMeans

    def fit(self, cells: Cells, progress: Progress = SILENT) -> FittedMeans:
        check_cells("a mean", cells)
        index, values, shape = cells.index, cells.values, cells.shape
        progress.at(1.0, "averaging")
        # Sums of differences from one of the values are exact where all values are equal.
        origin = float(values[0])
        offsets = values - origin
        overall = float(offsets.mean())
        total = _variance(offsets - overall, means=1)
        variance = total * (1 + 1 / len(values))
        if self.axis is None:
            return FittedMeans(self, shape, np.array([origin + overall]), np.array([variance]))
        column = index[:, self.axis]
        counts = np.bincount(column, minlength=shape[self.axis] + 1)
        has_cells = counts > 0
        means = np.bincount(column, offsets, len(counts)) / np.maximum(counts, 1)
        # Members with one cell each hold no information on the variance within a member.
        alone = has_cells.sum() == len(values)
        within = total if alone else _variance(offsets - means[column], means=int(has_cells.sum()))
        variances = within * (1 + 1 / np.maximum(counts, 1))
        return FittedMeans(
            self,
            shape,
            origin + np.where(has_cells, means, overall),
            np.where(has_cells, variances, variance),
        )


def _variance(errors: Floats, means: int) -> float:
    """Variance about fitted means, each of which takes a degree of freedom; one is left."""
    return float(errors @ errors) / max(len(errors) - means, 1)
