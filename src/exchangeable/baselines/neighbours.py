"""Neighbours: what members that are alike hold at the same place, on top of the biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Cells, Floats, Index, Mask
from exchangeable.baselines.base import (
    State,
    check_cells,
    check_queries,
    index_of_seen,
    seen,
)
from exchangeable.baselines.similarity import Similarity
from exchangeable.baselines.variational import Bias, FittedFactors
from exchangeable.errors import InputError
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.threads import threads_for

By = Literal["values", "presence"]

PARTS = 10
"""Of the cells: the error is measured on one after another, given all others."""

JUDGED = 20_000
"""Cells on which it is measured, if parts suffice."""


@dataclass(frozen=True, eq=False)
class FittedNeighbours:
    """The biases and the residuals they leave."""

    config: Neighbours
    bias: FittedFactors
    index: Index  # (E, D)
    residuals: Floats  # (E,)
    variance: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bias.shape

    def predict(self, index: Index) -> tuple[Floats, Floats]:
        """The biases plus what the neighbours add, or alone where a member has no cells."""
        check_queries(index, self.shape)
        mean, variance = self.bias.predict(index)
        known = np.flatnonzero((index_of_seen(index, self._seen) != UNKNOWN).all(axis=1))
        with threads_for(len(self.index), torch.device("cpu")):
            said = self._alike.said(torch.from_numpy(index[known])).double().numpy()
        mean[known] += said[:, 2 * get_args(By).index(self.config.by)]
        variance[known] = self.variance
        return mean, variance

    @cached_property
    def _seen(self) -> tuple[Mask, ...]:
        return seen(self.index, self.shape)

    @cached_property
    def _alike(self) -> Similarity:
        residuals = torch.from_numpy(self.residuals).float()
        axis = self.config.axis % len(self.shape)
        cells = torch.from_numpy(self.index)
        return Similarity(cells, residuals, self.shape, axis, self.config.shrink, self.config.doubt)

    def updated(self, cells: Cells, changed: Index) -> FittedNeighbours:
        return self.config.fit(cells)

    def state(self) -> State:
        own: State = {"index": self.index, "residuals": self.residuals}
        own["variance"] = np.array([self.variance])
        return own | {f"bias.{name}": array for name, array in self.bias.state().items()}

    @classmethod
    def of_state(cls, config: Neighbours, state: Mapping[str, NDArray[Any]]) -> Self:
        of_bias = {n.removeprefix("bias."): a for n, a in state.items() if n.startswith("bias.")}
        bias = FittedFactors.of_state(Bias(), of_bias)
        return cls(config, bias, state["index"], state["residuals"], float(state["variance"][0]))


@dataclass(frozen=True)
class Neighbours:
    """The residuals of alike members of one axis, at the same combination of the others."""

    axis: int = -1
    """Whose members are neighbours: -1 for items, the last axis, and 0 for users."""
    by: By = "values"
    """Whether members are alike by what they hold or by where they hold something."""
    shrink: float = 30.0
    """Common cells that are needed to believe half of a likeness."""
    doubt: float = 0.1
    """Weight, of all neighbours together, that is needed to believe half of what they say."""
    seed: int = 0
    """Of the cells on which the error is measured."""

    kind: ClassVar[type[FittedNeighbours]] = FittedNeighbours

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise InputError(f"by must be one of {', '.join(get_args(By))}, but is {self.by!r}")

    def fit(self, cells: Cells, progress: Progress = SILENT) -> FittedNeighbours:
        """With the variance of errors on cells that are left out."""
        check_cells("the neighbour model", cells)
        index, values = cells.index, cells.values
        fitted = self._fitted(cells, progress)
        if len(values) < PARTS:
            return replace(fitted, variance=float(fitted.bias.predict(index)[1].mean()))
        part = np.random.default_rng(self.seed).permutation(len(values)) % PARTS
        errors = np.empty(0)
        for number in range(PARTS):
            if len(errors) < JUDGED:
                out = part == number
                others = self._fitted(cells.take(~out))
                errors = np.append(errors, others.predict(index[out])[0] - values[out])
        return replace(fitted, variance=float(np.mean(errors**2)))

    def _fitted(self, cells: Cells, progress: Progress = SILENT) -> FittedNeighbours:
        bias = Bias().fit(cells, progress)
        residuals = cells.values - bias.predict(cells.index)[0]
        return FittedNeighbours(self, bias, cells.index, residuals, 0.0)
