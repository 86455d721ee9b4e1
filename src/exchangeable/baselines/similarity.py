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
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.base import chunks
from exchangeable.baselines.row_products import row_products
from exchangeable.baselines.unfolding import Combinations, Unfolding

CHANNELS = 4
"""Numbers per estimate: mean and certainty by values, then the same by presence."""

NUMBERS_PER_CHUNK = 1 << 25
"""Members compared at a time, times the references and combinations they are compared with."""

MAX_CACHED_PAIRS = 1 << 25
"""Pairs of members up to which similarities are cached for later queries."""

MAX_CACHED_ESTIMATES = 1 << 25
"""Entries of the table up to which the estimates of all of them are cached."""

MAX_CACHED_FLOAT32 = 1 << 23
"""Entries up to which they are cached in 16 bytes each; larger tables take half of that, since
digits beyond the third mean nothing for a rating."""

PAIRS_PER_CHUNK = 1 << 21
"""Pairs of a query and a reference at a time, where tables are sparse."""

ENTRIES_PER_QUERY = 8
"""Entries of the table per query from which on it is faster to sum for each query by itself."""


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

    @cached_property
    def _unfolded(self) -> Unfolding:
        return Unfolding.of(
            self.index, self.residuals, self.shape, self.axis, self.comparison_budget
        )

    def for_new_member(self, axis: int, index: Tensor, residuals: Tensor) -> NewMemberSimilarity:
        """Return the estimates for one new member of an axis, number 0 there, with these cells."""
        return NewMemberSimilarity(self, axis, index, residuals)

    def estimate(self, index: Tensor) -> Tensor:
        """Estimate cells (Q, D): mean and certainty by s, then by p: (Q, 4)."""
        result = self.residuals.new_zeros(len(index), CHANNELS)
        if not len(self.residuals) or not len(self._unfolded.references):
            return result
        at, member = self._unfolded.combinations.find(index), index[:, self.axis]
        inside = (member >= 0) & (member < self._unfolded.members)
        queries = ((at != UNKNOWN) & inside).nonzero().squeeze(1)
        entries = len(self._unfolded) * self._unfolded.members
        many = ENTRIES_PER_QUERY * len(queries) > entries
        dense = self._unfolded.values.layout == torch.strided
        if (many and dense and entries <= MAX_CACHED_ESTIMATES) or "_all_estimates" in vars(self):
            result[queries] = self._all_estimates[at[queries], member[queries]].to(result)
            return result
        queries = queries[member[queries].argsort(stable=True)]
        members, column = member[queries].unique_consecutive(return_inverse=True)
        most = 2 * len(members) > self._unfolded.members
        # Similarities of all members are not computed for the sake of a few.
        cached = self._all_similarities if most or "_all_similarities" in vars(self) else None
        for part in self._parts(len(members)):
            first, last = torch.searchsorted(column, column.new_tensor([part.start, part.stop]))
            positions, columns = queries[first:last], column[first:last] - part.start
            chosen = members[part]
            weights = self._similarities(chosen) if cached is None else cached[:, :, chosen]
            result[positions] = self._weighted(weights, at[positions], columns)
        return result

    def compare_all(self) -> None:
        """Compare all members now, if all similarities fit, for queries to come."""
        if len(self.residuals):
            self._all_similarities  # noqa: B018

    def _weighted(self, similarity: Tensor, at: Tensor, column: Tensor) -> Tensor:
        """Estimate combinations ``at`` (Q,) of members by column of ``similarity``: (Q, 4)."""
        table, estimates = self._unfolded, []
        if not len(at):
            return similarity.new_zeros(0, CHANNELS)
        if table.values.layout != torch.strided:
            return self._weighted_sparse(similarity, at, column)
        if ENTRIES_PER_QUERY * len(at) > similarity.shape[2] * len(table):
            return self._weighted_everywhere(similarity)[at, column]
        for weights in similarity:
            total = row_products(at, column, table.ones.T, weights.T)
            mean = row_products(at, column, table.values_transposed, weights.T)
            estimates += [mean / (total + self.doubt), total / (total + self.doubt)]
        return torch.stack(estimates, dim=1)

    def _weighted_sparse(self, similarity: Tensor, at: Tensor, column: Tensor) -> Tensor:
        """The same for sparse tables: sum only over references with a cell at the combination."""
        table = self._unfolded.values_transposed
        starts, values = table.crow_indices().long(), table.values()
        references = table.col_indices().long()
        sizes = starts[at + 1] - starts[at]
        ends = sizes.cumsum(0)
        result = similarity.new_zeros(len(at), CHANNELS)
        # Parts of about as many pairs, each of one query at least.
        cuts = ((ends - sizes) // PAIRS_PER_CHUNK).diff().nonzero().squeeze(1) + 1
        limits = [0, *cuts.tolist(), len(at)] if len(at) else []
        for first, last in pairwise(limits):
            lengths, positions = sizes[first:last], torch.arange(last - first, device=at.device)
            query = positions.repeat_interleave(lengths)
            before = (lengths.cumsum(0) - lengths)[query]
            cell = starts[at[first:last]][query] - before
            cell += torch.arange(len(query), device=at.device)
            weights = similarity[:, references[cell], column[first:last][query]].T
            pairs = torch.cat([weights, weights * values[cell, None]], dim=1)
            summed = torch.segment_reduce(pairs, "sum", lengths=lengths, axis=0, initial=0.0)
            total, mean = summed[:, :2], summed[:, 2:]
            shares = torch.stack([mean, total], dim=2) / (total + self.doubt)[:, :, None]
            result[first:last] = shares.flatten(1)
        return result

    def _weighted_everywhere(self, similarity: Tensor) -> Tensor:
        """Estimate all combinations of the members compared: (combinations, members, 4)."""
        table = self._unfolded
        return self._normalise(table.ones.T, table.values_transposed, similarity)

    def _normalise(self, ones: Tensor, values: Tensor, similarity: Tensor) -> Tensor:
        """Average cells of references (C, S) with weights (2, S, M): (C, M, 4)."""
        result = similarity.new_empty(len(ones), similarity.shape[2], CHANNELS)
        for kind, weights in enumerate(similarity):
            total, mean = ones @ weights, values @ weights
            doubted = total + self.doubt
            result[:, :, 2 * kind] = mean.div_(doubted)
            result[:, :, 2 * kind + 1] = total.div_(doubted)
        return result

    @cached_property
    def _all_estimates(self) -> Tensor:
        members = torch.arange(self._unfolded.members, device=self.index.device)
        wide = len(self._unfolded) * len(members) <= MAX_CACHED_FLOAT32
        estimates = self.residuals.new_empty(
            (len(self._unfolded), len(members), CHANNELS), dtype=None if wide else torch.float16
        )
        for part in self._parts(len(members)):
            estimates[:, part] = self._weighted_everywhere(self._similarities(members[part]))
        return estimates

    @cached_property
    def _all_similarities(self) -> Tensor | None:
        table = self._unfolded
        if len(table.references) * table.members > MAX_CACHED_PAIRS:
            return None
        members = torch.arange(table.members, device=self.index.device)
        parts = [self._similarities(members[part]) for part in self._parts(table.members)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)

    def _parts(self, members: int) -> list[slice]:
        """Cut members into parts that are compared at a time, so that memory stays small."""
        total = len(self._unfolded.references) + len(self._unfolded)
        return list(chunks(members, max(1, NUMBERS_PER_CHUNK // total)))

    def _similarities(self, members: Tensor) -> Tensor:
        """Compare references with members, by s and by p: (2, references, members)."""
        table = self._unfolded
        mutual = len(members) == len(table.references) == table.members
        result = self._compare(*table.columns_of(members), table.sizes[members], mutual)
        row, column = table.row_of[members], torch.arange(len(members), device=members.device)
        result[:, row[row != UNKNOWN], column[row != UNKNOWN]] = 0
        return result

    def _compare(
        self,
        values: Tensor,
        present: Tensor,
        sizes: Tensor,
        mutual: bool = False,
        only: Tensor | None = None,
    ) -> Tensor:
        """Compare references with members, by the latter's values and presence (combinations, M).

        ``sizes`` is the number of their cells: (M,). ``mutual`` says that they are the references.
        ``only`` selects the combinations that the rows stand for, if not all.
        """
        table = self._unfolded if only is None else self._unfolded.at(only)
        # In place where it can be: these are passes over members times members.
        by_value, by_presence = result = values.new_empty(2, len(table.references), values.shape[1])
        by_presence.copy_(table.ones @ present)
        lengths = table.ones @ values.square()
        lengths = lengths * lengths.T if mutual else lengths.mul_(table.squares @ present)
        lengths.sqrt_().clamp_(min=1e-12)
        by_value.copy_(table.values @ values).div_(lengths).mul_(by_presence)
        by_value.div_(lengths.copy_(by_presence).add_(self.shrink)).clamp_(min=0).square_()
        each = table.sizes[table.references].to(values).clamp(min=1).rsqrt()
        by_presence.mul_(each[:, None]).mul_(sizes.to(values).clamp(min=1).rsqrt()).pow_(3)
        return result


@dataclass(frozen=True, eq=False)
class NewMemberSimilarity:
    """Estimates for the cells of one new member, number 0 of its axis.

    It is compared with all references. Members of other axes keep their similarities without
    its cells, so that nothing is computed again.
    """

    before: Similarity
    axis: int
    """Axis of the new member."""
    index: Tensor  # (E, D), its cells
    residuals: Tensor

    def estimate(self, index: Tensor) -> Tensor:
        """Estimate cells (Q, D) of the new member, as ``Similarity.estimate`` does: (Q, 4)."""
        before = self.before
        result = self.residuals.new_zeros(len(index), CHANNELS)
        if len(self.residuals) and len(before.residuals) and len(before._unfolded.references):
            same_axis = self.axis == before.axis
            estimate = self._from_similar_members if same_axis else self._from_other_axis
            positions, estimates = estimate(index)
            result[positions] = estimates
        return result

    def _from_similar_members(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Estimate by members similar to the new one: positions of known combinations, (., 4)."""
        at = self.before._unfolded.combinations.find(index)
        positions = (at != UNKNOWN).nonzero().squeeze(1)
        column = torch.zeros_like(positions)
        return positions, self.before._weighted(self._similarities, at[positions], column)

    @cached_property
    def _similarities(self) -> Tensor:
        """Similarity of references and the new member: (2, references, 1)."""
        table = self.before._unfolded
        combination = table.combinations.find(self.index)
        shared = combination != UNKNOWN
        values = self.residuals[shared, None]
        sizes = torch.tensor([len(combination)], device=combination.device)
        present, only = torch.ones_like(values), combination[shared]
        if table.values.layout == torch.strided:
            return self.before._compare(values, present, sizes, only=only)
        everywhere = values.new_zeros(2, len(table), 1)
        everywhere[0, only], everywhere[1, only] = values, present
        return self.before._compare(everywhere[0], everywhere[1], sizes)

    def _from_other_axis(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Estimate by references of another axis with which the new member has cells."""
        before, table = self.before, self.before._unfolded
        others = [axis for axis in range(len(before.shape)) if axis != before.axis]
        combinations, combination = Combinations.of(self.index, others, before.shape)
        row = self._rows(self.index[:, before.axis], table.row_of)
        usable = row != UNKNOWN
        rows, column = row[usable].unique(return_inverse=True)
        cells = combination[usable], column
        values = self.residuals.new_zeros(len(combinations), len(rows))
        ones = torch.zeros_like(values)
        values[cells], ones[cells] = self.residuals[usable], 1.0
        at, member = combinations.find(index), index[:, before.axis]
        inside = (member >= 0) & (member < table.members)
        positions = ((at != UNKNOWN) & inside).nonzero().squeeze(1)
        members, column = member[positions].unique(return_inverse=True)
        estimates = self.residuals.new_empty(len(combinations), len(members), CHANNELS)
        cached = before._all_similarities
        for part in before._parts(len(members)):
            chosen = members[part]
            similarity = (
                before._similarities(chosen)[:, rows]
                if cached is None
                else cached[:, rows][:, :, chosen]
            )
            estimates[:, part] = before._normalise(ones, values, similarity)
        return positions, estimates[at[positions], column]

    @staticmethod
    def _rows(members: Tensor, row_of: Tensor) -> Tensor:
        """Rows of members among the references, UNKNOWN for others."""
        inside = (members >= 0) & (members < len(row_of))
        return torch.where(inside, row_of[members.clamp(0, len(row_of) - 1)], UNKNOWN)
