"""Parts of the cells of a table, sorted by their members on an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from exchangeable.runtime.cache import cached_property
from exchangeable.runtime.processes import Processes
from exchangeable.sums.products import sparse_rows

PART_CELLS = 1 << 19
"""Cells of a part, but whole members of the first axis: a few thousand of these."""

MAX_FEW_CELLS = 1 << 12
"""Cells of a single member up to which their rows are copied, which is faster than a product with a
sparse matrix."""

MAX_ENTRIES_PER_CELL = 8
"""Entries of a dense matrix per cell up to which products with it are faster than with a sparse
one."""

MAX_KEPT_CELLS = 1 << 17
"""Cells of a part up to which their own members are kept: parts of large tables have more."""


@dataclass(frozen=True, eq=False)
class CellPart:
    """Some of the cells, sorted by their members on one axis."""

    axis: int
    first: int
    """The first of the members; others follow without a gap."""
    starts: Tensor  # (n + 1,) int32, where the cells of each member begin
    others: tuple[Tensor | None, ...]  # (S,) int32 by axis; None for the axis itself
    positions: slice | Tensor  # (S,) int32, of the sorted cells among all

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def members(self) -> int:
        return len(self.starts) - 1

    @property
    def own(self) -> Tensor:
        """The members of the cells on the axis itself: (S,) int32; kept where cells are few."""
        return self._kept_own if len(self) <= MAX_KEPT_CELLS else self._find_own()

    @cached_property
    def _kept_own(self) -> Tensor:
        return self._find_own()

    def _find_own(self) -> Tensor:
        numbers = torch.arange(
            self.first, self.first + self.members, dtype=torch.int32, device=self.starts.device
        )
        return numbers.repeat_interleave(self.starts.diff())

    @cached_property
    def paired(self) -> PairedCells:
        """The same cells sorted by pairs of members, of this axis and of another, of three."""
        return PairedCells.of(self)

    def column(self, axis: int) -> Tensor:
        """Return the coordinates of the cells on an axis: (S,) int32."""
        column = self.others[axis]
        return self.own if column is None else column

    @property
    def index(self) -> Tensor:
        """The coordinates of the cells: (S, D) int32, a view of contiguous columns."""
        return torch.stack([self.column(axis) for axis in range(len(self.others))]).T

    def take(self, values: Tensor) -> Tensor:
        """Return the numbers of these cells (S,) of those of all cells (E,)."""
        return values[self.positions]

    def sum_rows(self, other: int, weights: Tensor, table: Tensor) -> Tensor:
        """Sum rows of ``table`` (N', K) or (N',), of another axis, times weights (S,): (n, ...)."""
        columns = self.others[other]
        assert columns is not None, "an axis sums rows of others"
        if self.members == 1 and len(columns) <= MAX_FEW_CELLS:
            return weights[None] @ table[columns]
        shape = (self.members, len(table))
        if len(columns) > shape[0] * shape[1]:  # repeated entries, more than cuSPARSE takes
            dense = weights.new_zeros(shape)
            dense.index_put_((self.own - self.first, columns), weights, accumulate=True)
            return dense @ table
        return sparse_rows(self.starts, columns, weights, shape) @ table

    def sum_cells(self, values: Tensor) -> Tensor:
        """Sum numbers of the cells (S,) by member: (n,)."""
        every = torch.arange(len(values), dtype=torch.int32, device=values.device)
        shape = (self.members, len(values))
        return sparse_rows(self.starts, every, values, shape) @ torch.ones_like(values)

    def without(self, mask: Tensor) -> CellPart:
        """Return the cells that are not in a mask of all cells (E,)."""
        kept = ~mask[self.positions]
        counts = torch.cat([self.starts.new_zeros(1), kept.cumsum(0, dtype=torch.int32)])
        if isinstance(self.positions, slice):
            positions = torch.arange(
                self.positions.start, self.positions.stop, dtype=torch.int32, device=mask.device
            )
        else:
            positions = self.positions
        return CellPart(
            self.axis,
            self.first,
            counts[self.starts.long()],
            tuple(None if column is None else column[kept] for column in self.others),
            positions[kept],
        )


@dataclass(frozen=True, eq=False)
class PairedCells:
    """Cells of three axes sorted by their members on one, and then by those on a second.

    The second is that with fewer different pairs.
    """

    second: int
    third: int
    starts: Tensor  # (n + 1,), where the pairs of each member begin
    members: Tensor  # (P,), of the second axis, by pair
    pair_starts: Tensor  # (P + 1,), where the cells of each pair begin
    thirds: Tensor  # (S,) int32, members of the third axis by cell
    permutation: Tensor | None  # (S,), of the cells of the part; None as they are

    @classmethod
    def of(cls, part: CellPart) -> PairedCells:
        """Sort the cells of a part."""
        one, two = (axis for axis in range(3) if axis != part.axis)
        found = [cls._sorted(part, *axes) for axes in ((one, two), (two, one))]
        return min(found, key=lambda each: len(each.members))

    @classmethod
    def _sorted(cls, part: CellPart, second: int, third: int) -> PairedCells:
        column = part.column(second).long()
        size = int(column.max()) + 1 if len(column) else 1
        keys = (part.own.long() - part.first) * size + column
        permutation = None
        if not bool((keys[1:] >= keys[:-1]).all()):
            permutation = keys.argsort(stable=True)
            keys = keys[permutation]
        pairs, counts = keys.unique_consecutive(return_counts=True)
        owners = (pairs // size).bincount(minlength=part.members)
        thirds = part.column(third)
        return cls(
            second,
            third,
            torch.cat([owners.new_zeros(1), owners.cumsum(0)]),
            pairs % size,
            torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
            thirds if permutation is None else thirds[permutation],
            permutation,
        )

    def blocks(self, pairs: int) -> list[tuple[slice, slice]]:
        """Cut the members, and their pairs, into blocks of about so many pairs."""
        first, total = 0, len(self.starts) - 1
        found: list[tuple[slice, slice]] = []
        while first < total or not found:
            last = int(torch.searchsorted(self.starts, int(self.starts[first]) + pairs, right=True))
            last = min(max(last - 1, first + 1), total)
            found.append((slice(first, last), slice(*self.starts[[first, last]].tolist())))
            first = last
        return found

    def sum_third(self, pairs: slice, values: Tensor | None, table: Tensor) -> Tensor:
        """Sum rows (N, K) of the third axis, times values (S,), over some pairs' cells: (p, K)."""
        starts = self.pair_starts[pairs.start : pairs.stop + 1]
        cells = slice(*starts[[0, -1]].tolist())
        if values is None:
            factors = table.new_ones(cells.stop - cells.start)
        elif self.permutation is None:
            factors = values[cells].to(table)
        else:
            factors = values[self.permutation[cells]].to(table)
        shape, thirds = (len(starts) - 1, len(table)), self.thirds[cells]
        if shape[0] * shape[1] > MAX_ENTRIES_PER_CELL * len(factors):
            return sparse_rows(starts - starts[0], thirds, factors, shape) @ table
        rows = torch.arange(shape[0], device=table.device)
        rows = rows.repeat_interleave(starts.diff(), output_size=len(factors))
        dense = table.new_zeros(shape).index_put_((rows, thirds.long()), factors)
        return dense @ table

    def sum_second(self, members: slice, rows: Tensor) -> Tensor:
        """Sum rows of pairs (p, K) over those of each of some members: (m, K)."""
        starts = self.starts[members.start : members.stop + 1]
        starts = starts - starts[0]
        every = torch.arange(len(rows), dtype=torch.int32, device=rows.device)
        shape = (len(starts) - 1, len(rows))
        return sparse_rows(starts, every, rows.new_ones(len(rows)), shape) @ rows


CellValues = Callable[[CellPart], Tensor]
"""Gives a number for each cell of a part: (S,)."""


def cut(column: Tensor, members: int, processes: Processes) -> tuple[list[int], Tensor | None]:
    """Cut cells sorted by their members (E,) into parts of whole members.

    Return where the parts of this process begin and end, and the positions of the sorted cells;
    None if they came sorted.
    """
    permutation = None
    if not bool((column[1:] >= column[:-1]).all()):
        permutation = column.int().argsort(stable=True).int()
    ends = column.bincount(minlength=members).cumsum(0)
    first, last = (_next_end(ends, each) for each in processes.share(len(column)))
    limits = [first]
    while limits[-1] < last:
        limits.append(min(max(_next_end(ends, limits[-1] + PART_CELLS), limits[-1] + 1), last))
    return limits if len(limits) > 1 else [first, first], permutation


def _next_end(ends: Tensor, cells: int) -> int:
    """Return the end of the member's cells in which so many cells end."""
    if cells == 0:
        return 0
    return int(ends[min(int(torch.searchsorted(ends, cells)), len(ends) - 1)])


def parts_of(
    index: Tensor, shape: Sequence[int], cells: slice, permutation: Tensor | None
) -> list[CellPart]:
    """Sort some cells by their members on each axis."""
    where = cells if permutation is None else permutation[cells]
    columns = [column.int() for column in index[where].T]
    parts = []
    for axis, size in enumerate(shape):
        first, last = 0, size
        if axis == 0 and len(columns[0]):
            first, last = int(columns[0].min()), int(columns[0].max()) + 1
        parts.append(sorted_part(columns, axis, where, first, last - first))
    return parts


def sorted_part(
    columns: Sequence[Tensor], axis: int, positions: slice | Tensor, first: int, members: int
) -> CellPart:
    """Sort cells by their members on an axis, which are numbered from ``first`` on."""
    key = columns[axis]
    sizes = (key - first if first else key).bincount(minlength=members)
    starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).int()
    if bool((key[1:] >= key[:-1]).all()):
        kept = [None if at == axis else column.contiguous() for at, column in enumerate(columns)]
        return CellPart(axis, first, starts, tuple(kept), positions)
    permutation = key.argsort(stable=True)
    kept = [None if at == axis else column[permutation] for at, column in enumerate(columns)]
    if isinstance(positions, slice):
        positions = (permutation + positions.start).int()
    else:
        positions = positions[permutation]
    return CellPart(axis, first, starts, tuple(kept), positions)
