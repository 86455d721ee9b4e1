"""Neighbours: what similar members hold at the same place, on top of the biases.

The table is unfolded to the members of one axis and the combinations of all others, and
holds the residuals r of the bias model. Two members are as similar as the cosine of their
residuals over the combinations that both have, shrunk where these are few:

    s_ij = sum r_ic r_jc / sqrt(sum r_ic^2 sum r_jc^2) * n_ij / (n_ij + shrink)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from exchangeable.baselines.base import (
    UNKNOWN,
    Floats,
    Index,
    Mask,
    Report,
    State,
    check_cells,
    check_queries,
    chunks,
    index_of_seen,
    seen,
)
from exchangeable.baselines.unfolding import Unfolding
from exchangeable.baselines.variational import Bias, FittedFactors

Singles = NDArray[np.float32]

MEMBERS_AT_ONCE = 128
"""Members whose similarities to all others are held at a time."""

PAIRS_AT_ONCE = 1 << 22
"""Pairs of a query and a neighbour that are ordered at a time."""

JUDGED = 20_000
"""Observed cells on which the error is measured."""


class Likeness(NamedTuple):
    """Sums over the cells that some members have in common with every other: (N, members)."""

    products: Singles
    own: Singles  # squares of the member
    theirs: Singles  # squares of the other
    common: Singles  # ones

    @classmethod
    def of(cls, unfolded: Unfolding, members: Index) -> Likeness:
        chosen = unfolded.table[members].toarray().T.copy()  # (combinations, members)
        there = unfolded.ones[members].toarray().T.copy()
        return cls(
            unfolded.table @ chosen,
            unfolded.ones @ chosen**2,
            unfolded.squares @ there,
            unfolded.ones @ there,
        )


@dataclass(frozen=True, eq=False)
class FittedNeighbours:
    """The biases and the residuals they leave, as a table of members by combinations."""

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
        mean[known] += self._added(index[known])
        variance[known] = self.variance
        return mean, variance

    @cached_property
    def _seen(self) -> tuple[Mask, ...]:
        return seen(self.index, self.shape)

    @cached_property
    def _unfolded(self) -> Unfolding:
        axis = self.config.axis % len(self.shape)
        return Unfolding(self.index, self.residuals, self.shape, axis)

    def _added(self, index: Index, leave_out: Floats | None = None) -> Floats:
        """What neighbours add to each cell; ``leave_out`` holds the residuals of its own."""
        result, member = np.zeros(len(index)), index[:, self._unfolded.axis]
        at = self._unfolded.combinations.find(index)
        held = np.diff(self._unfolded.by_combination.indptr)[at] * (at != UNKNOWN)
        order, members = np.argsort(member, kind="stable"), np.unique(member)
        for part in chunks(len(members), MEMBERS_AT_ONCE):
            some = members[part]
            likeness = Likeness.of(self._unfolded, some)
            start, stop = np.searchsorted(member[order], [some[0], some[-1] + 1])
            pairs = np.cumsum(held[order[start:stop]])
            cuts = np.searchsorted(pairs, np.arange(PAIRS_AT_ONCE, pairs[-1], PAIRS_AT_ONCE))
            for queries in np.split(order[start:stop], cuts):
                own = None if leave_out is None else leave_out[queries]
                row = np.searchsorted(some, member[queries])
                result[queries] = self._weighed(
                    likeness, row, member[queries], at[queries], held[queries], own
                )
        return result

    def _weighed(
        self,
        likeness: Likeness,
        row: Index,
        member: Index,
        at: Index,
        held: Index,
        leave_out: Floats | None,
    ) -> Floats:
        """The mean of the neighbours' residuals at the same combination, by similarity."""
        query = np.repeat(np.arange(len(row)), held)
        cells = self._unfolded.by_combination
        first = np.repeat(cells.indptr[at] - np.cumsum(held) + held, held)
        cell = first + np.arange(len(query))
        other, residual = cells.indices[cell], cells.data[cell]
        products, own, theirs, common = (part[other, row[query]] for part in likeness)
        if leave_out is not None:
            mine = leave_out[query].astype(np.float32)
            products, common = products - mine * residual, common - 1
            own, theirs = own - mine**2, theirs - residual**2
        size = np.sqrt(np.maximum(own, 0) * np.maximum(theirs, 0))
        similarity = products / np.maximum(size, 1e-12) * common / (common + self.config.shrink)
        near = np.flatnonzero((similarity > 1e-6) & (other != member[query]))
        # One sort by query and then by similarity, which is at most 1; ties keep their order.
        near = near[np.argsort(query[near] - similarity[near].astype(float) / 2, kind="stable")]
        number = np.bincount(query[near], minlength=len(row))
        rank = np.arange(len(near)) - np.repeat(np.cumsum(number) - number, number)
        near = near[rank < self.config.neighbours]
        weight = similarity[near].astype(float)
        total = np.bincount(query[near], weight * residual[near], len(row))
        return total / (np.bincount(query[near], weight, len(row)) + self.config.doubt)

    def updated(
        self, index: Index, values: Floats, shape: tuple[int, ...], changed: Index
    ) -> FittedNeighbours:
        return self.config.fit(index, values, shape)

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
    """The residuals of similar members of one axis, at the same combination of the others."""

    axis: int = -1
    """Whose members are neighbours: -1 for items, the last axis, and 0 for users."""
    neighbours: int = 40
    """The most similar members to ask, of those that have a cell there and resemble at all."""
    shrink: float = 100.0
    """Common cells that are needed to believe half of a similarity."""
    doubt: float = 0.3
    """Similarity, of all neighbours together, that is needed to believe half of what they say."""
    seed: int = 0
    """Of the cells on which the error is measured."""

    kind: ClassVar[type[FittedNeighbours]] = FittedNeighbours

    def fit(
        self,
        index: Index,
        values: Floats,
        shape: tuple[int, ...],
        report: Report | None = None,
    ) -> FittedNeighbours:
        check_cells("the neighbour model", index, values, shape)
        bias = Bias().fit(index, values, shape, report)
        residuals = values - bias.predict(index)[0]
        fitted = FittedNeighbours(self, bias, index, residuals, 0.0)
        generator = np.random.default_rng(self.seed)
        judged = generator.permutation(len(values))[:JUDGED]
        added = fitted._added(index[judged], leave_out=residuals[judged])
        alone = residuals[judged] / _kept(bias, index[judged])
        variance = float(np.mean((alone - added) ** 2))
        return FittedNeighbours(self, bias, index, residuals, variance)


def _kept(bias: FittedFactors, index: Index) -> Floats:
    """The share of each cell's residual that is left when the biases have seen the cell.

    A bias moves towards its cell by S / noise, for one axis exactly. Next to no noise would
    leave nothing to divide by.
    """
    own, result = bias.posterior, np.ones(len(index))
    for axis in range(len(bias.shape)):
        moved = own.covariances[axis].numpy()[index[:, axis], 0, 0] / own.noise
        result *= np.maximum(1 - moved, 0.05)
    return result
