"""Similar members of new members: estimates of their cells from what the table has already."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.factorization import sparse
from exchangeable.baselines.reference_weights import (
    CHANNELS,
    ENTRIES_PER_QUERY,
    MAX_FEW,
    SparseWeights,
)
from exchangeable.baselines.similarity import Similarity
from exchangeable.baselines.unfolding import Combinations, Unfolding
from exchangeable.runtime.cache import cached_property

MAX_NEW_PRODUCTS = 1 << 22
"""Products up to which the estimates of all cells of new members are computed at once, however few
are queried: a few milliseconds."""


@dataclass(frozen=True, eq=False)
class NewMembersSimilarity:
    """Estimates for the cells of new members of an axis, each from its own cells alone.

    They are compared with all references. Members of other axes keep their similarities without
    the new cells, so that nothing is computed again.
    """

    before: Similarity
    axis: int
    """Axis of the new members."""
    index: Tensor  # (E, D), their cells
    residuals: Tensor
    count: int = 1

    def estimate(self, index: Tensor) -> Tensor:
        """Estimate cells (Q, D) of new members, as ``Similarity.estimate`` does: (Q, 4)."""
        before = self.before
        if not (len(self.residuals) and len(before.residuals) and len(self._table.references)):
            return self.residuals.new_zeros(len(index), CHANNELS)
        same_axis = self.axis == before.axis
        return self._from_similar_members(index) if same_axis else self._from_other_axis(index)

    @property
    def _table(self) -> Unfolding:
        return self.before.unfolded.by_combination

    def _from_similar_members(self, index: Tensor) -> Tensor:
        """Estimate by members similar to the new ones: (Q, 4); 0 at unknown combinations."""
        table, doubt = self._table, self.before.doubt
        at, member = table.combinations.find(index), index[:, self.axis]
        if self._reads_all(len(index), len(table) * self.count, table.ones._nnz() * self.count):
            return self._all_by_members[at * self.count + member]
        result = self.residuals.new_zeros(len(index), CHANNELS)
        positions = (at != UNKNOWN).nonzero().squeeze(1)
        average = self._weights.average(table, at[positions], member[positions], doubt)
        result[positions] = average
        return result

    @staticmethod
    def _reads_all(queries: int, entries: int, products: int) -> bool:
        """Whether estimates of all entries are computed and kept, for so many queries."""
        return ENTRIES_PER_QUERY * queries > entries or products <= MAX_NEW_PRODUCTS

    @cached_property
    def _all_by_members(self) -> Tensor:
        """Estimates of all combinations, for all new members, then 0 for others: (C B + B, 4)."""
        estimates = self._weights.average_everywhere(self._table, self.before.doubt)
        return pad(estimates.flatten(0, 1), (0, 0, 0, self.count))

    @cached_property
    def _weights(self) -> SparseWeights:
        """Weights of the references for the new members."""
        cells = self._table.new_cells(self.index, self.axis, self.residuals, self.count)
        return SparseWeights.compare(self._table, cells, self.before.shrink)

    def _from_other_axis(self, index: Tensor) -> Tensor:
        """Estimate by references of another axis with which the new members have cells: (Q, 4)."""
        before, table = self.before, self.before.unfolded
        combinations, _ = self._own_combinations
        at, member = combinations.find(index), index[:, before.axis]
        inside = (at != UNKNOWN) & (member >= 0) & (member < table.members)
        entries = len(combinations) * table.members
        if self._reads_all(len(index), entries, len(self.residuals) * table.members):
            return self._all_by_other_axis[
                torch.where(inside, at * table.members + member, entries)
            ]
        result = self.residuals.new_zeros(len(index), CHANNELS)
        positions = inside.nonzero().squeeze(1)
        members, column = member[positions].unique(return_inverse=True)
        result[positions] = self._average_for(members)[at[positions], column]
        return result

    @cached_property
    def _own_combinations(self) -> tuple[Combinations, Tensor]:
        """Combinations of the new cells on all axes but the compared one, and that of each cell."""
        shape = list(self.before.shape)
        others = [axis for axis in range(len(shape)) if axis != self.before.axis]
        shape[self.axis] = self.count
        return Combinations.of(self.index, others, shape)

    @cached_property
    def _all_by_other_axis(self) -> Tensor:
        """Estimates of all members of the other axis at new combinations, then a row of 0."""
        members = torch.arange(self.before.unfolded.members, device=self.index.device)
        return pad(self._average_for(members).flatten(0, 1), (0, 0, 0, 1))

    def _average_for(self, members: Tensor) -> Tensor:
        """Average new cells for members (M,), ascending, at new combinations: (C', M, 4)."""
        before, count = self.before, len(self._own_combinations[0])
        rows, cells = self._cells_by_row
        estimates = self.residuals.new_empty(count, len(members), CHANNELS)
        cached = before.all_weights
        parts = before.parts(len(members)) if cached is None else [slice(0, len(members))]
        for part in parts:
            chosen = members[part]
            if cached is None:
                every = torch.arange(len(chosen), device=chosen.device)
                weights = before.compare(chosen).between(rows, every)
            else:
                weights = cached.between(rows, chosen)
            for kind, each in enumerate(weights):
                total, mean = (cells @ each).split(count)
                doubted = total + before.doubt
                estimates[:, part, 2 * kind] = mean.div_(doubted)
                estimates[:, part, 2 * kind + 1] = total.div_(doubted)
        return estimates

    @cached_property
    def _cells_by_row(self) -> tuple[Tensor, Tensor]:
        """Rows of references (R,) with new cells; their presence, then their values: (2 C', R).

        The latter are sparse where the combinations are many.
        """
        combinations, combination = self._own_combinations
        row = self.before.unfolded.find_rows(self.index[:, self.before.axis])
        usable = row != UNKNOWN
        rows, column = row[usable].unique(return_inverse=True)
        place, values = combination[usable], self.residuals[usable]
        place = torch.cat([place, place + len(combinations)])
        column = column.repeat(2)
        cells = torch.cat([torch.ones_like(values), values])
        size = (2 * len(combinations), len(rows))
        if len(combinations) <= MAX_FEW:
            return rows, cells.new_zeros(size).index_put_((place, column), cells)
        return rows, sparse(place, column, [cells], size)[0]
