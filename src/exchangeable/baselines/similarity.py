"""Similar members: estimates of a member's cells from those of similar members.

A table of residuals r is unfolded to the members of one axis by the combinations of all others.
Two members are similar by their values, the cosine of their residuals over the n_ij combinations
that both have, shrunk where these are few, and by presence, the combinations at which both have a
cell:

    s_ij = max(0, cosine) n_ij / (n_ij + shrink)        p_ij = n_ij / sqrt(n_i n_j)

A cell is estimated by the weighted mean of the cells of other members at the same combination,
with weights s^2 or p^3, shrunk towards 0 where the total weight is small. In large tables only the
members with the most cells serve as references. A member never contributes to its own cells.
Where cells are too few for factors, this does better than they do, and it uses what they do not:
which cells are present, whatever their values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.base import chunks
from exchangeable.baselines.factorization import sparse
from exchangeable.baselines.reference_weights import (
    CHANNELS,
    ENTRIES_PER_QUERY,
    DenseWeights,
    SparseWeights,
    Weights,
)
from exchangeable.baselines.unfolding import Combinations, Unfolding
from exchangeable.runtime.threads import MIN_PARALLEL_CELLS, run_all

NUMBERS_PER_CHUNK = 1 << 25
"""Members compared at a time, times the references and combinations they are compared with."""

PAIRS_PER_BLOCK = 1 << 20
"""Pairs of members whose weights are read at a time in sparse tables, so that they stay in the
processor's cache."""

MAX_CACHED_PAIRS = 1 << 25
"""Pairs of members up to which weights are cached for later queries."""

MAX_REPEATED_PRODUCTS = 1 << 33
"""Multiplications up to which members of a dense table are compared anew for nearly the same cells.
Weights without a tenth of the cells cost .7 % on KIBA and .05 % on ML-100K."""

MAX_REPEATED_PAIRS = 1 << 22
"""Pairs of cells up to which members of a sparse table are."""

MAX_CACHED_ESTIMATES = 1 << 25
"""Entries of the table up to which the estimates of all of them are cached."""

MAX_NEW_PRODUCTS = 1 << 22
"""Products up to which the estimates of all cells of new members are computed at once, however few
are queried: a few milliseconds."""

MAX_CACHED_FLOAT32 = 1 << 23
"""Entries up to which they are cached in 16 bytes each; larger tables take half of that, since
digits beyond the third mean nothing for a rating."""


@dataclass(frozen=True, eq=False)
class Similarity:
    """The members of one axis, with the residuals (E,) of their cells (E, D)."""

    index: Tensor
    residuals: Tensor
    shape: tuple[int, ...]
    axis: int
    shrink: float = 30.0
    """Number of common cells at which a similarity is shrunk by half."""
    doubt: float = 0.1
    """Total weight at which an estimate is shrunk by half."""
    comparison_budget: float = math.inf
    """Limit of references times table entries; above it only members with the most cells serve."""

    compared: Similarity | None = None
    """The members compared by nearly the same cells, whose weights these cells are averaged with;
    None: by these cells."""

    _queries: list[int] = field(default_factory=list, repr=False, compare=False)
    """Numbers of cells that were queried so far, where not all estimates are cached."""

    @cached_property
    def _unfolded(self) -> Unfolding:
        cells = self.index, self.residuals, self.shape, self.axis
        if self.compared is None:
            return Unfolding.of(*cells, self.comparison_budget)
        return Unfolding.of(*cells, self.comparison_budget, self.compared._unfolded)

    def with_cells(self, index: Tensor, residuals: Tensor) -> Similarity:
        """Return similarities for nearly the same cells (E, D) of the same members.

        Members are not compared again where that takes long.
        """
        compared = None if self._compares_fast else self.compared or self
        return replace(self, index=index, residuals=residuals, compared=compared, _queries=[])

    @property
    def _compares_fast(self) -> bool:
        table = self._unfolded
        if not table.is_dense:
            return table.pairs <= MAX_REPEATED_PAIRS
        return len(table.references) * len(table) * table.members <= MAX_REPEATED_PRODUCTS

    def for_new_members(
        self, axis: int, index: Tensor, residuals: Tensor, *, count: int = 1
    ) -> NewMembersSimilarity:
        """Return the estimates for ``count`` new members of an axis with these cells."""
        return NewMembersSimilarity(self, axis, index, residuals, count)

    def estimate(self, index: Tensor) -> Tensor:
        """Estimate cells (Q, D): mean and certainty by s, then by p: (Q, 4)."""
        result = self.residuals.new_zeros(len(index), CHANNELS)
        if not len(self.residuals) or not len(self._unfolded.references):
            return result
        at, member = self._unfolded.combinations.find(index), index[:, self.axis]
        inside = (member >= 0) & (member < self._unfolded.members)
        queries = ((at != UNKNOWN) & inside).nonzero().squeeze(1)
        if self._caches_all(len(queries)):
            result[queries] = self._all_estimates[at[queries], member[queries]].to(result)
            return result
        queries = queries[member[queries].argsort(stable=True)]
        members, column = member[queries].unique_consecutive(return_inverse=True)
        # Weights for all members are not computed for the sake of a few.
        most = 2 * len(members) > self._unfolded.members
        cached = self._all_weights if most or self._has_weights else None

        def fill(part: slice) -> None:
            first, last = torch.searchsorted(column, column.new_tensor([part.start, part.stop]))
            positions, columns = queries[first:last], column[first:last] - part.start
            chosen = members[part]
            weights: Weights
            if isinstance(cached, DenseWeights):
                weights, columns = cached, chosen[columns]
            else:
                weights = self._weights(chosen) if cached is None else cached.take(chosen)
            result[positions] = weights.average(self._unfolded, at[positions], columns, self.doubt)

        tasks = [partial(fill, part) for part in self._parts(len(members))]
        run_all(tasks, len(queries), index.device)
        return result

    def _caches_all(self, queries: int) -> bool:
        """Whether estimates of all cells are cached, or are to be, as so many more are queried.

        They are as soon as all queries so far have taken as long: it does not matter in how many
        calls they come.
        """
        if "_all_estimates" in vars(self):
            return True
        entries = len(self._unfolded) * self._unfolded.members
        if not self._unfolded.is_dense or entries > MAX_CACHED_ESTIMATES:
            return False
        self._queries.append(queries)
        return ENTRIES_PER_QUERY * sum(self._queries) > entries

    def compare_all(self) -> None:
        """Compare all members now if that takes long and all weights fit, for queries to come."""
        if len(self.residuals) and not self._compares_fast:
            self._all_weights  # noqa: B018

    @cached_property
    def _all_estimates(self) -> Tensor:
        members = torch.arange(self._unfolded.members, device=self.index.device)
        wide = len(self._unfolded) * len(members) <= MAX_CACHED_FLOAT32
        estimates = self.residuals.new_empty(
            (len(self._unfolded), len(members), CHANNELS), dtype=None if wide else torch.float16
        )
        for part in self._parts(len(members)):
            weights = self._weights(members[part])
            assert isinstance(weights, DenseWeights)
            estimates[:, part] = weights.average_everywhere(self._unfolded, self.doubt)
        return estimates

    @cached_property
    def _all_weights(self) -> Weights | None:
        if self.compared is not None:
            return self.compared._all_weights
        table = self._unfolded
        pairs = len(table.references) * table.members
        if not table.is_dense:
            pairs = min(pairs, table.pairs)
        if pairs > MAX_CACHED_PAIRS:
            return None
        members = torch.arange(table.members, device=self.index.device)
        tasks = [partial(self._weights, members[part]) for part in self._parts(table.members)]
        parts = run_all(tasks, len(self.residuals), self.index.device)
        return self._kind.joined(parts)  # type: ignore[arg-type]

    @property
    def _has_weights(self) -> bool:
        """Whether all weights were computed already."""
        return "_all_weights" in vars(self.compared or self)

    def _parts(self, members: int) -> list[slice]:
        """Cut members into parts that are compared at a time, so that memory stays small.

        Those of larger tables are two at least, one for each core.
        """
        references, combinations = len(self._unfolded.references), len(self._unfolded)
        if not self._unfolded.is_dense:
            return list(chunks(members, max(1, PAIRS_PER_BLOCK // references)))
        size = max(1, NUMBERS_PER_CHUNK // (references + combinations))
        if len(self.residuals) >= MIN_PARALLEL_CELLS and not self._compares_fast:
            size = min(size, -(-members // 2))
        return list(chunks(members, max(1, size)))

    @property
    def _kind(self) -> type[DenseWeights] | type[SparseWeights]:
        return DenseWeights if self._unfolded.is_dense else SparseWeights

    def _weights(self, members: Tensor) -> Weights:
        """Compare references with members (B,)."""
        if self.compared is not None:
            return self.compared._weights(members)
        table = self._unfolded
        mutual = len(members) == len(table.references) == table.members
        return self._kind.compare(table, table.cells_of(members), self.shrink, mutual=mutual)


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
        return self.before._unfolded.by_combination

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
        before, table = self.before, self.before._unfolded
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
        members = torch.arange(self.before._unfolded.members, device=self.index.device)
        return pad(self._average_for(members).flatten(0, 1), (0, 0, 0, 1))

    def _average_for(self, members: Tensor) -> Tensor:
        """Average new cells for members (M,), ascending, at new combinations: (C', M, 4)."""
        before, (combinations, _) = self.before, self._own_combinations
        rows, ones, values = self._cells_by_row
        estimates = self.residuals.new_empty(len(combinations), len(members), CHANNELS)
        cached = before._all_weights
        for part in before._parts(len(members)):
            chosen = members[part]
            if cached is None:
                every = torch.arange(len(chosen), device=chosen.device)
                weights = before._weights(chosen).between(rows, every)
            else:
                weights = cached.between(rows, chosen)
            for kind, each in enumerate(weights):
                total = ones @ each
                doubted = total + before.doubt
                estimates[:, part, 2 * kind] = (values @ each).div_(doubted)
                estimates[:, part, 2 * kind + 1] = total.div_(doubted)
        return estimates

    @cached_property
    def _cells_by_row(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of references (R,) with new cells; their presence and values, sparse (C', R)."""
        combinations, combination = self._own_combinations
        row = self.before._unfolded.find_rows(self.index[:, self.before.axis])
        usable = row != UNKNOWN
        rows, column = row[usable].unique(return_inverse=True)
        values = self.residuals[usable]
        kinds = torch.ones_like(values), values
        size = (len(combinations), len(rows))
        ones, residuals = sparse(combination[usable], column, kinds, size)
        return rows, ones, residuals
