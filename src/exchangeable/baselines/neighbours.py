"""Neighbours: residuals of similar members at the same combination, on top of the biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Cells, Floats, Index, Mask
from exchangeable.baselines.base import (
    State,
    check_cells,
    check_queries,
    hide_empty_members,
    members_with_cells,
)
from exchangeable.baselines.similarity import Similarity
from exchangeable.baselines.variational import Bias, FittedFactors
from exchangeable.errors import InputError
from exchangeable.runtime.cache import cached_property
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.threads import one_thread

By = Literal["values", "presence"]

FOLDS = 10
"""The cells are split into folds; the error is measured on each, given all others."""

TARGET_CELLS = 20_000
"""Cells after which no further fold is measured."""


@dataclass(frozen=True, eq=False)
class FittedNeighbours:
    """The biases and their residuals."""

    config: Neighbours
    bias: FittedFactors
    index: Index  # (E, D)
    residuals: Floats  # (E,)
    variance: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bias.shape

    def predict(self, index: Index) -> tuple[Floats, Floats]:
        """Predict the biases plus the estimates of neighbours, or biases alone without cells."""
        check_queries(index, self.shape)
        mean, variance = self.bias.predict(index)
        usable = hide_empty_members(index, self._has_cells) != UNKNOWN
        positions = np.flatnonzero(usable.all(axis=1))
        with one_thread(torch.device("cpu")):
            estimates = self._similarity.estimate(torch.from_numpy(index[positions]))
        column = 2 * get_args(By).index(self.config.by)
        mean[positions] += estimates.double().numpy()[:, column]
        variance[positions] = self.variance
        return mean, variance

    @cached_property
    def _has_cells(self) -> tuple[Mask, ...]:
        return members_with_cells(self.index, self.shape)

    @cached_property
    def _similarity(self) -> Similarity:
        residuals = torch.from_numpy(self.residuals).float()
        axis = self.config.axis % len(self.shape)
        cells = torch.from_numpy(self.index)
        return Similarity(cells, residuals, self.shape, axis, self.config.shrink, self.config.doubt)

    def updated(self, cells: Cells, changed: Index) -> FittedNeighbours:
        return self.config.fit(cells)

    def state(self) -> State:
        state: State = {"index": self.index, "residuals": self.residuals}
        state["variance"] = np.array([self.variance])
        return state | {f"bias.{name}": array for name, array in self.bias.state().items()}

    @classmethod
    def from_state(cls, config: Neighbours, state: Mapping[str, NDArray[Any]]) -> Self:
        parts = {n.removeprefix("bias."): a for n, a in state.items() if n.startswith("bias.")}
        bias = FittedFactors.from_state(Bias(), parts)
        return cls(config, bias, state["index"], state["residuals"], float(state["variance"][0]))


@dataclass(frozen=True)
class Neighbours:
    """Predict residuals from similar members of one axis, at the same combination of the others."""

    axis: int = -1
    """Axis of the neighbours: -1 for items, the last axis, and 0 for users."""
    by: By = "values"
    """Whether members are compared by their values or by which cells they have."""
    shrink: float = 30.0
    """Number of common cells at which a similarity is shrunk by half."""
    doubt: float = 0.1
    """Total weight of neighbours at which their estimate is shrunk by half."""
    seed: int = 0
    """Seed of the folds on which the error is measured."""

    kind: ClassVar[type[FittedNeighbours]] = FittedNeighbours

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise InputError(f"by must be one of {', '.join(get_args(By))}, but is {self.by!r}")

    def fit(self, cells: Cells, progress: Progress = SILENT) -> FittedNeighbours:
        """Fit to observed cells, and measure the variance of errors on held-out cells."""
        check_cells("the neighbour model", cells)
        index, values = cells.index, cells.values
        fitted = self._fit(cells, progress)
        if len(values) < FOLDS:
            return replace(fitted, variance=float(fitted.bias.predict(index)[1].mean()))
        fold = np.random.default_rng(self.seed).permutation(len(values)) % FOLDS
        errors = np.empty(0)
        for held_out in range(FOLDS):
            if len(errors) < TARGET_CELLS:
                out = fold == held_out
                others = self._fit(cells.take(~out))
                errors = np.append(errors, others.predict(index[out])[0] - values[out])
        return replace(fitted, variance=float(np.mean(errors**2)))

    def _fit(self, cells: Cells, progress: Progress = SILENT) -> FittedNeighbours:
        bias = Bias().fit(cells, progress)
        residuals = cells.values - bias.predict(cells.index)[0]
        return FittedNeighbours(self, bias, cells.index, residuals, 0.0)
