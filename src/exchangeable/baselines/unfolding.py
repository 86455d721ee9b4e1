"""Unfolded tables: members of one axis by the observed combinations of all other axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.factorization import sparse
from exchangeable.runtime.cache import cached_property
from exchangeable.sums.products import positions_of_rows

MAX_ENTRIES_PER_CELL = 64
"""Table entries per cell up to which a dense matrix is used, which is faster then."""

FEW_CELLS = 4
"""Members are compared at the combinations of their cells alone where all are so many times these
cells, or more."""

CELLS_PER_ENTRY = 8
"""Cells that are searched through in the time in which an entry of a column is read."""

MIN_LARGE_ENTRIES, MIN_LARGE_ENTRIES_PER_CELL = 1 << 21, 3
"""Entries of a dense table, and entries per cell, from which on sums for a few members are faster
by sparse matrices: for a member of ML-1M .8 ms in place of 3.0."""


@dataclass(frozen=True, eq=False)
class Combinations:
    """A numbering of the observed combinations of members of several axes.

    They are numbered axis by axis, so that keys stay below the cells times the members of one
    axis, where the product of all axes might not fit an integer.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    levels: tuple[Tensor, ...]  # observed keys of each axis, ascending

    @classmethod
    def of(
        cls, index: Tensor, axes: Sequence[int], shape: Sequence[int]
    ) -> tuple[Combinations, Tensor]:
        """Number the combinations of cells (E, D); also return that of each cell, (E,)."""
        levels, numbers = [], index.new_zeros(len(index))
        for axis in axes:
            key = numbers * shape[axis] + index[:, axis]
            keys, numbers = key.unique(return_inverse=True)
            levels.append(keys)
        return cls(tuple(axes), tuple(shape[axis] for axis in axes), tuple(levels)), numbers

    def __len__(self) -> int:
        return len(self.levels[-1]) if self.levels else 1

    def find(self, index: Tensor) -> Tensor:
        """Return the combination of each cell, -1 if it was not observed: (Q, D) -> (Q,)."""
        if len(self.axes) == 1:
            (axis,), (size,) = self.axes, self.sizes
            # Members that came later have no combination, and -1 reads the last.
            return self._of_member[index[:, axis].clamp(max=size)]
        numbers = index.new_zeros(len(index))
        for axis, size, keys in zip(self.axes, self.sizes, self.levels, strict=True):
            key = numbers * size + index[:, axis]
            at = torch.searchsorted(keys, key).clamp(max=len(keys) - 1)
            # Keys of members that came later, or are unknown, might be those of others.
            member = index[:, axis]
            usable = (numbers != UNKNOWN) & (member >= 0) & (member < size)
            numbers = torch.where(usable & (keys[at] == key), at, UNKNOWN)
        return numbers

    @cached_property
    def _of_member(self) -> Tensor:
        """The combination of each member of the only axis, -1 where it has none: (N + 1,)."""
        (size,), (members,) = self.sizes, self.levels
        numbers = members.new_full((size + 1,), UNKNOWN)
        numbers[members] = torch.arange(len(members), device=members.device)
        return numbers


@dataclass(frozen=True, eq=False)
class MemberCells:
    """The cells of B members, one member after the other, at combinations that are numbered."""

    starts: Tensor  # (B + 1,)
    combinations: Tensor  # (E,)
    values: Tensor  # (E,)
    sizes: Tensor  # (B,), numbers of all cells, at other combinations too
    members: Tensor | None = None  # (B,); None: new ones

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def roots(self) -> Tensor:
        """One over the root of the number of each member's cells: (B,)."""
        return self.sizes.to(self.values).clamp(min=1).rsqrt()

    def rows_among(self, table: Unfolding) -> Tensor:
        """Return the rows of the members among the references, -1 for others: (B,)."""
        if self.members is None:
            return torch.full_like(self.sizes, UNKNOWN)
        inside = self.members < len(table.row_of)  # others came later
        return torch.where(inside, table.row_of[self.members.where(inside, 0)], UNKNOWN)


class ReferenceRows(NamedTuple):
    """Cells of the references as dense matrices (S, C)."""

    values: Tensor
    squares: Tensor
    ones: Tensor


@dataclass(frozen=True, eq=False)
class Unfolding:
    """Cells as a matrix, members by combinations, for products with others.

    Only the rows of the references, S of the members, are stored as a matrix. ``cells_of`` gives
    the cells of any member.
    """

    combinations: Combinations
    starts: Tensor  # (N + 1,), where the cells of each member begin
    cell_combinations: Tensor  # (E,), sorted by member
    cell_values: Tensor  # (E,), sorted by member
    references: Tensor  # (S,), ascending
    row_of: Tensor  # (N,), row of each member among the references; -1 for others
    values: Tensor  # (S, C), or sparse by combinations (C, S)
    squares: Tensor
    ones: Tensor

    @classmethod
    def of(
        cls,
        index: Tensor,
        values: Tensor,
        shape: Sequence[int],
        axis: int,
        comparison_budget: float,
        like: Unfolding | None = None,
    ) -> Self:
        """Unfold values (E,); references are the members with most cells, within the budget.

        Where ``like`` is given they are those of it, stored in the same way.
        """
        others = [other for other in range(len(shape)) if other != axis]
        combinations, combination = Combinations.of(index, others, shape)
        sizes = index[:, axis].bincount(minlength=shape[axis])
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        permutation = index[:, axis].argsort(stable=True)
        references = (
            _choose_references(index[:, axis], values, sizes, len(combinations), comparison_budget)
            if like is None
            else like.references
        )
        row_of = torch.full_like(sizes, UNKNOWN)
        row_of[references] = torch.arange(len(references), device=index.device)
        row, size = row_of[index[:, axis]], (len(references), len(combinations))
        stored = row != UNKNOWN
        row, column, entries = row[stored], combination[stored], values[stored]
        kinds = (entries, entries.square(), torch.ones_like(entries))
        is_dense = size[0] * size[1] <= MAX_ENTRIES_PER_CELL * len(entries)
        if is_dense if like is None else like.is_dense:
            tables = [v.new_zeros(size).index_put_((row, column), v) for v in kinds]
        else:
            tables = sparse(column, row, kinds, size[::-1])
        by_member = combination[permutation], values[permutation]
        return cls(combinations, starts, *by_member, references, row_of, *tables)

    def __len__(self) -> int:
        return len(self.combinations)

    @property
    def is_dense(self) -> bool:
        return self.values.layout == torch.strided

    @property
    def is_large(self) -> bool:
        """Whether sums for a few members are faster by sparse matrices."""
        entries = self.values.numel()
        cells = len(self.cell_values)
        return entries >= max(MIN_LARGE_ENTRIES, MIN_LARGE_ENTRIES_PER_CELL * cells)

    @property
    def members(self) -> int:
        return len(self.starts) - 1

    @property
    def products(self) -> int:
        """Multiplications that comparing all members of a dense table takes."""
        return len(self.references) * len(self) * self.members

    @cached_property
    def by_combination(self) -> Unfolding:
        """The same table with sparse matrices, combinations by references: for a few members."""
        if not self.is_dense:
            return self
        row, column = self.ones.nonzero().T
        kinds = [table[row, column] for table in (self.values, self.squares, self.ones)]
        shape = (len(self), len(self.references))
        values, squares, ones = sparse(column, row, kinds, shape)
        return replace(self, values=values, squares=squares, ones=ones)

    @cached_property
    def reference_roots(self) -> Tensor:
        """One over the root of the number of each reference's cells: (S,)."""
        return self.starts.diff()[self.references].to(self.cell_values).clamp(min=1).rsqrt()

    @cached_property
    def pairs(self) -> int:
        """Pairs of a cell and a reference with one at the same combination, in a sparse table.

        Pairs of members that have something in common are no more than these.
        """
        sizes = self.values.crow_indices().diff().long()
        return int(sizes[self.cell_combinations].sum())

    def cells_of(self, members: Tensor) -> MemberCells:
        """Return the cells of members (B,)."""
        starts, positions = positions_of_rows(self.starts, members)
        found = self.cell_combinations[positions], self.cell_values[positions]
        return MemberCells(starts, *found, starts.diff(), members)

    def new_cells(self, index: Tensor, axis: int, values: Tensor, count: int) -> MemberCells:
        """Return the cells (E, D) of ``count`` new members of an axis, at known combinations."""
        if count > 1:
            permutation = index[:, axis].argsort(stable=True)
            index, values = index[permutation], values[permutation]
        combination, member = self.combinations.find(index), index[:, axis]
        shared = combination != UNKNOWN
        found = member[shared].bincount(minlength=count)
        starts = torch.cat([found.new_zeros(1), found.cumsum(0)])
        sizes = member.bincount(minlength=count)
        return MemberCells(starts, combination[shared], values[shared], sizes)

    def find_rows(self, members: Tensor) -> Tensor:
        """Return the rows of members among the references, UNKNOWN for others: (B,)."""
        inside = (members >= 0) & (members < self.members)
        return torch.where(inside, self.row_of[members.clamp(0, self.members - 1)], UNKNOWN)

    def columns_of(
        self, cells: MemberCells, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, ReferenceRows]:
        """Return values and presence of members' cells (C', B), else 0, and those of references.

        Of a few members only the combinations at which they have cells are kept.
        """
        where, rows = cells.combinations, ReferenceRows(self.values, self.squares, self.ones)
        if len(cells) == 1 or FEW_CELLS * len(where) < len(self):
            used, where = where.unique(return_inverse=True)
            rows = self._columns_at(used)
        member = torch.arange(len(cells), device=where.device).repeat_interleave(
            cells.starts.diff()
        )
        size = (rows.values.shape[1], len(cells))
        values = cells.values.new_zeros(size, dtype=dtype)
        values.index_put_((where, member), cells.values.to(dtype))
        present = torch.zeros_like(values).index_put_((where, member), values.new_ones(()))
        return values, present, ReferenceRows(*(table.to(dtype) for table in rows))

    def _columns_at(self, combinations: Tensor) -> ReferenceRows:
        """Return the cells of the references at some combinations (C',), ascending: (S, C') each.

        Columns of a dense table are far apart in memory, so that of a small table all cells are
        searched through instead.
        """
        size = (len(self.references), len(combinations))
        if CELLS_PER_ENTRY * size[0] * size[1] < len(self.cell_values):
            tables = self.values, self.ones
            values, ones = (table.index_select(1, combinations) for table in tables)
            return ReferenceRows(values, values.square(), ones)
        place = combinations.new_full((len(self),), UNKNOWN)
        place[combinations] = torch.arange(len(combinations), device=combinations.device)
        column = place[self.cell_combinations]
        cells = (column != UNKNOWN).nonzero().squeeze(1)
        row = self.row_of[torch.searchsorted(self.starts, cells, right=True) - 1]
        if len(self.references) < self.members:
            cells, row = cells[row != UNKNOWN], row[row != UNKNOWN]
        where, found = (row, column[cells]), self.cell_values[cells]
        values = found.new_zeros(size).index_put_(where, found)
        ones = torch.zeros_like(values).index_put_(where, found.new_ones(()))
        return ReferenceRows(values, values.square(), ones)


def _choose_references(
    member: Tensor, values: Tensor, sizes: Tensor, combinations: int, comparison_budget: float
) -> Tensor:
    """Choose the members with the most cells, as many as the budget allows; ascending."""
    entries = min(len(sizes) * combinations, MAX_ENTRIES_PER_CELL * len(values))
    count = int(min(len(sizes), comparison_budget // max(entries, 1)))
    if count == len(sizes):
        return torch.arange(count, device=member.device)
    # Ties are broken by values, not by how members are numbered.
    weight = torch.zeros(len(sizes), dtype=torch.float64, device=member.device)
    weight.index_add_(0, member, values.double().square())
    chosen = (sizes + weight / (1 + weight)).topk(count).indices
    return chosen.sort().values
