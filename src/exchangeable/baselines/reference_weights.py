"""Weights of references: how much the cells of one member tell about those of another.

Members are compared with references by their values and by the combinations at which both have a
cell, with n of these, sums over them, and the numbers n_i of all cells of a member:

    s = max(0, sum r_i r_j / sqrt(sum r_i^2 sum r_j^2)) n / (n + shrink)      p = n / sqrt(n_i n_j)

Weights are s^2 and p^3. Of dense tables they are a dense array, by products of matrices. Of sparse
ones most pairs of members have no combination in common, so only the others are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.base import chunks
from exchangeable.baselines.unfolding import MemberCells, Unfolding
from exchangeable.sums.products import (
    large_product,
    positions_of_rows,
    product_type,
    products_of_sparse,
    row_products,
    sparse_rows,
)

CHANNELS = 4
"""Numbers per estimate: mean and certainty by values, then the same by presence."""

PAIRS_PER_CHUNK = 1 << 21
"""Pairs of a query and a reference at a time, where tables are sparse."""

PAIRS_PER_BLOCK = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Pairs of members whose weights are a dense table at a time, by the device: on a CPU few enough
to stay in its cache."""

MAX_BLOCK_GAPS = 2
"""Members of a block's range for each that is wanted, up to which those between are read, too."""

MAX_FEW = 8
"""Combinations up to which only the references that have cells there are read: a user's films."""

ENTRIES_PER_QUERY = 8
"""Entries of the table per query from which on it is faster to sum for each query by itself."""


@dataclass(frozen=True, eq=False)
class DenseWeights:
    """Weights of all references, by s and by p."""

    table: Tensor  # (2, S, M)

    @classmethod
    def compare(
        cls, table: Unfolding, cells: MemberCells, shrink: float, *, mutual: bool = False
    ) -> DenseWeights:
        """Compare references with members; ``mutual`` says that these are the references."""
        # All members of a large table are compared once, new ones each time.
        count = 0 if cells.members is None else table.products
        values, present, rows = table.columns_of(cells, product_type(count, cells.values))
        # In place where it can be: these are passes over members times members.
        size = (2, len(table.references), len(cells))
        by_value, by_presence = result = cells.values.new_empty(size)
        by_presence.copy_(large_product(rows.ones, present))
        lengths = large_product(rows.ones, values.square()).to(result)
        lengths = (
            lengths * lengths.T if mutual else lengths.mul_(large_product(rows.squares, present))
        )
        lengths.sqrt_().clamp_(min=1e-12)
        by_value.copy_(large_product(rows.values, values)).div_(lengths).mul_(by_presence)
        by_value.div_(lengths.copy_(by_presence).add_(shrink)).clamp_(min=0).square_()
        by_presence.mul_(table.reference_roots[:, None]).mul_(cells.roots).pow_(3)
        own = cells.rows_among(table)
        known = own >= 0
        result[:, own[known], known.nonzero().squeeze(1)] = 0
        return cls(result)

    @classmethod
    def joined(cls, parts: Sequence[DenseWeights]) -> DenseWeights:
        """Join the weights for parts of the members."""
        if len(parts) == 1:
            return parts[0]
        return cls(torch.cat([part.table for part in parts], dim=2))

    def take(self, members: Tensor) -> DenseWeights:
        """Keep the weights for some members, by position."""
        return DenseWeights(self.table[:, :, members])

    def between(self, references: Tensor, members: Tensor) -> Tensor:
        """Return the weights of references for members, both by position: (2, R, B).

        Members ascend and differ.
        """
        first, last = (int(members[0]), int(members[-1])) if len(members) else (0, -1)
        if last - first + 1 == len(members):  # whole rows, or pieces of them
            return self.table[:, :, first : last + 1][:, references]
        return self.table[:, references[:, None], members]

    def average(self, table: Unfolding, at: Tensor, column: Tensor, doubt: float) -> Tensor:
        """Average the references' cells at combinations ``at`` (Q,) for members ``column``: (Q, 4).

        ``doubt`` is the total weight at which an estimate is shrunk by half.
        """
        if not len(at):
            return self.table.new_zeros(0, CHANNELS)
        combinations, place = at.unique(return_inverse=True)
        if len(combinations) <= MAX_FEW:  # only references with a cell at one of them count
            ones, values = table.ones[:, combinations], table.values[:, combinations]
            present = ones.any(dim=1).nonzero().squeeze(1)
            if 2 * len(column) < self.table.shape[2]:
                members, position = column.unique(return_inverse=True)
                weights = self.table[:, present[:, None], members]
            else:
                weights, position = self.table[:, present], column
            return average_of(ones[present], values[present], weights, doubt)[place, position]
        members, position = column.unique(return_inverse=True)
        if ENTRIES_PER_QUERY * len(at) > len(members) * len(table):
            every = self if len(members) == self.table.shape[2] else self.take(members)
            return every.average_everywhere(table, doubt)[at, position]
        estimates = []
        for weights in self.table:
            total = row_products(at, column, table.ones.T, weights.T)
            mean = row_products(at, column, table.values.T, weights.T)
            estimates += [mean / (total + doubt), total / (total + doubt)]
        return torch.stack(estimates, dim=1)

    def average_everywhere(self, table: Unfolding, doubt: float) -> Tensor:
        """Average at all combinations for all members: (C, M, 4)."""
        if self.table.shape[2] <= MAX_FEW and table.is_large:
            return average_of_few(table.by_combination, self.table.permute(1, 2, 0), doubt)
        return average_of(table.ones, table.values, self.table, doubt)


@dataclass(frozen=True, eq=False)
class SparseWeights:
    """Weights of the references that have a combination in common with a member."""

    starts: Tensor  # (M + 1,), where the references of each member begin
    references: Tensor  # (P,) int32
    weights: Tensor  # (P, 2), by s and by p
    reference_count: int

    @classmethod
    def compare(
        cls, table: Unfolding, cells: MemberCells, shrink: float, *, mutual: bool = False
    ) -> SparseWeights:
        """Compare references with members, as ``DenseWeights.compare`` does."""
        shape = (len(cells), len(table))
        ones, values, squares = (
            sparse_rows(cells.starts, cells.combinations, numbers, shape)
            for numbers in (torch.ones_like(cells.values), cells.values, cells.values.square())
        )
        # Entries are the pairs of members that both have a cell somewhere.
        starts, references, n, products, lengths, reference_lengths = products_of_sparse(
            [
                (ones, table.ones),
                (values, table.values),
                (squares, table.ones),
                (ones, table.squares),
            ]
        )
        sizes = starts.diff()
        pairs = n.new_empty(len(n), 2)
        cosine = products.div_(lengths.mul_(reference_lengths).sqrt_().clamp_(min=1e-12))
        torch.square(cosine.mul_(n).div_(n + shrink).clamp_(min=0), out=pairs[:, 0])
        shares = n.mul_(table.reference_roots[references])
        shares.mul_(cells.roots.repeat_interleave(sizes, output_size=len(n)))
        torch.mul(shares.square(), shares, out=pairs[:, 1])
        own = cells.rows_among(table).to(references.dtype)
        itself = own.repeat_interleave(sizes, output_size=len(n)) == references
        pairs[itself.nonzero().squeeze(1)] = 0
        return cls(starts.long(), references.int(), pairs, len(table.references))

    @classmethod
    def joined(cls, parts: Sequence[SparseWeights]) -> SparseWeights:
        """Join the weights for parts of the members."""
        sizes = torch.cat([part.starts.diff() for part in parts])
        return cls(
            torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]),
            torch.cat([part.references for part in parts]),
            torch.cat([part.weights for part in parts]),
            parts[0].reference_count,
        )

    def take(self, members: Tensor) -> SparseWeights:
        """Keep the weights for some members, by position."""
        starts, positions = positions_of_rows(self.starts, members)
        chosen = self.references[positions], self.weights[positions]
        return SparseWeights(starts, *chosen, self.reference_count)

    def between(self, references: Tensor, members: Tensor) -> Tensor:
        """Return the weights of references for members, both by position: (2, R, B).

        References differ. Memory is taken for these alone, not for all pairs.
        """
        taken, count = self.take(members), len(references)
        columns = torch.full((self.reference_count,), UNKNOWN, device=references.device)
        columns[references] = torch.arange(count, device=references.device)
        column, sizes = columns[taken.references.long()], taken.starts.diff()
        member = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
        wanted = (column != UNKNOWN).nonzero().squeeze(1)
        dense = self.weights.new_zeros(len(members) * count, 2)
        dense[member[wanted] * count + column[wanted]] = taken.weights[wanted]
        return dense.view(len(members), count, 2).permute(2, 1, 0)

    @property
    def _dense(self) -> Tensor:
        """The weights of all references: (M S, 2)."""
        sizes = self.starts.diff()
        member = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
        dense = self.weights.new_zeros(len(sizes) * self.reference_count, 2)
        dense[member * self.reference_count + self.references] = self.weights
        return dense

    def average_everywhere(self, table: Unfolding, doubt: float) -> Tensor:
        """Average at all combinations for all members: (C, M, 4)."""
        dense = self._dense.view(len(self.starts) - 1, self.reference_count, 2)
        return average_of_few(table, dense.transpose(0, 1), doubt)

    def average(self, table: Unfolding, at: Tensor, column: Tensor, doubt: float) -> Tensor:
        """Average the references' cells, as ``DenseWeights.average`` does: (Q, 4).

        Only references with a cell at the combination are summed over. Members are read in blocks,
        whose weights stay in the processor's cache.
        """
        if bool((column[1:] < column[:-1]).any()):
            permutation = column.argsort(stable=True)
            result = self.average(table, at[permutation], column[permutation], doubt)
            return torch.empty_like(result).index_copy_(0, permutation, result)
        members, counts = column.unique_consecutive(return_counts=True)
        ends = [0, *counts.cumsum(0).tolist()]
        size = max(1, PAIRS_PER_BLOCK[at.device.type] // self.reference_count)
        dense = self.weights.new_zeros(2 * min(size, len(members)) * self.reference_count, 2)
        # A pair of numbers is moved as one.
        pairs = torch.view_as_complex(dense)
        sums = self.weights.new_empty(len(at), 2, 2)
        for part in chunks(len(members), size):
            chosen = members[part]
            queries = slice(ends[part.start], ends[part.start + len(chosen)])
            row, places, weights = self._block(chosen)
            pairs[places] = torch.view_as_complex(weights)
            rows = row.repeat_interleave(counts[part])
            self._sum(table, at[queries], rows, dense, out=sums[queries])
            pairs[places] = 0
        total = sums[:, 1, :]
        return (sums.transpose(1, 2) / (total + doubt)[:, :, None]).flatten(1)

    def _block(self, members: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows of ascending members in a dense table, places of their weights, and these.

        Where most members of a range are wanted, those between them have rows, too.
        """
        first, last, device = int(members[0]), int(members[-1]), members.device
        if last - first < MAX_BLOCK_GAPS * len(members):
            row, starts = members - first, self.starts[first : last + 2]
            found = slice(int(starts[0]), int(starts[-1]))
            references, weights = self.references[found], self.weights[found]
        else:
            row = torch.arange(len(members), device=device)
            starts, positions = positions_of_rows(self.starts, members)
            references, weights = self.references[positions], self.weights[positions]
        begins = torch.arange(len(starts) - 1, device=device) * self.reference_count
        return row, begins.repeat_interleave(starts.diff()).add_(references), weights

    def _sum(
        self, table: Unfolding, at: Tensor, rows: Tensor, dense: Tensor, *, out: Tensor
    ) -> None:
        """Sum the weights at references with a cell, times values and alone: ``out`` (Q, 2, 2)."""
        starts, values = table.values.crow_indices(), table.values.values()
        references = table.values.col_indices()
        ends = (starts[at + 1] - starts[at]).cumsum(0)
        # Parts of about as many pairs, each of one query at least.
        cuts = (ends // PAIRS_PER_CHUNK).diff().nonzero().squeeze(1) + 1
        for first, last in pairwise([0, *cuts.tolist(), len(at)]):
            begins, cells = positions_of_rows(starts, at[first:last])
            place = rows[first:last].int() * self.reference_count
            place = place.repeat_interleave(begins.diff()).add_(references[cells])
            shape = (last - first, len(dense))
            weights = values[cells]
            for kind in range(2):
                out[first:last, kind] = sparse_rows(begins, place, weights, shape) @ dense
                weights = torch.ones_like(weights)


Weights = DenseWeights | SparseWeights


def average_of(ones: Tensor, values: Tensor, weights: Tensor, doubt: float) -> Tensor:
    """Average cells of references (S, C) with weights (2, S, M): (C, M, 4)."""
    both = torch.cat(list(weights), dim=1).T  # (2 M, S), so that tables are read once
    total, mean = (large_product(both, each) for each in (ones, values))
    doubted = total + doubt
    parts = mean.div_(doubted).chunk(2), total.div_(doubted).chunk(2)
    return torch.stack([part[kind] for kind in (0, 1) for part in parts], dim=2).transpose(0, 1)


def average_of_few(table: Unfolding, weights: Tensor, doubt: float) -> Tensor:
    """Average cells of a table of sparse matrices with weights (S, M, 2): (C, M, 4)."""
    dense, members = weights.flatten(1), weights.shape[1]
    total, mean = ((cells @ dense).view(-1, members, 2) for cells in (table.ones, table.values))
    return (torch.stack([mean, total], dim=3) / (total + doubt)[..., None]).flatten(2)
