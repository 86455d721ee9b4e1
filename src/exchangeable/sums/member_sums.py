"""Sums over the cells of each member of an axis, as products with sparse matrices.

Large tables are cut into parts of consecutive members of the first axis, so that what is computed
for each cell needs memory for one part at a time, and so that the rows that a part reads stay in
the processor's cache: four times as fast. Several processes have a share of the parts each, and add
up their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from exchangeable.runtime.cache import cached_property
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.threads import run_all
from exchangeable.sums.cell_parts import CellPart, CellValues, cut, parts_of, sorted_part

MIN_PARTED_CELLS = 1 << 21
"""Cells from which on they are cut into parts."""

MIN_NARROW_PRODUCTS = 1 << 28
"""Multiplications of a sum over cells from which on they have seven digits, in half of the time."""


MIN_NARROW_ROWS = 1 << 25
"""Numbers of sums of the members of the first axis from which on these have seven digits, too."""


@dataclass(frozen=True, eq=False)
class MemberSums:
    """Sums over the cells of each member of one axis.

    Cells may have weights, which are products of weights of their members.
    """

    axis: int
    members: int
    cells: int
    """Number of all cells, those of other processes too."""
    parts: tuple[CellPart, ...]
    weights: tuple[Tensor, ...] | None = None  # (N_d or more,) by axis; None: every cell counts 1
    processes: Processes = ALONE

    @classmethod
    def of(cls, index: Tensor, axis: int, members: int) -> MemberSums:
        """Sort cells (E, D) by their members on ``axis``, in one part."""
        columns = [column.int() for column in index.T]
        part = sorted_part(columns, axis, slice(0, len(index)), 0, members)
        return cls(axis, members, len(index), (part,))

    @classmethod
    def by_axis(
        cls, index: Tensor, shape: Sequence[int], processes: Processes = ALONE
    ) -> list[MemberSums]:
        """Sort cells (E, D) by their members on each axis, in parts where they are many."""
        cells = len(index)
        if index.is_cuda or cells < MIN_PARTED_CELLS:
            limits, permutation = [*processes.share(cells)], None
            if processes.size == 1:
                return [cls.of(index, axis, size) for axis, size in enumerate(shape)]
        else:
            limits, permutation = cut(index[:, 0], shape[0], processes)
        tasks = [
            partial(parts_of, index, shape, slice(first, last), permutation)
            for first, last in pairwise(limits)
        ]
        by_part = run_all(tasks, cells, index.device)
        return [
            cls(axis, size, cells, tuple(parts[axis] for parts in by_part), None, processes)
            for axis, size in enumerate(shape)
        ]

    @classmethod
    def of_members(cls, index: Tensor, axis: int, members: Tensor) -> tuple[MemberSums, Tensor]:
        """Sums for the given members (ascending) only, and the positions of their cells."""
        column = index[:, axis].contiguous()
        flags = torch.zeros(int(column.max()) + 1, dtype=torch.bool, device=index.device)
        flags[members] = True
        cells = flags.index_select(0, column).nonzero().squeeze(1)
        renumbered = index[cells]
        renumbered[:, axis] = torch.searchsorted(members, renumbered[:, axis].contiguous())
        return cls.of(renumbered, axis, len(members)), cells

    def __len__(self) -> int:
        """Return the number of cells, E."""
        return self.cells

    def without(self, mask: Tensor) -> MemberSums:
        """Return the sums over the cells that are not in a mask (E,), sorted as before."""
        parts = run_all(
            [partial(part.without, mask) for part in self.parts], self.cells, mask.device
        )
        return MemberSums(
            self.axis,
            self.members,
            self.cells - int(mask.sum()),
            tuple(parts),
            self.weights,
            self.processes,
        )

    @cached_property
    def sizes(self) -> Tensor:
        """Number of cells of each member: (N,)."""
        total = self.parts[0].starts.new_zeros(self.members, dtype=torch.int64)
        for part in self.parts:
            total[part.first : part.first + part.members] += part.starts.diff()
        return self.processes.all_sum([total])[0]

    @cached_property
    def with_cells(self) -> Tensor:
        """Members that have cells: (M,)."""
        return self.sizes.nonzero().squeeze(1)

    @cached_property
    def without_cells(self) -> Tensor:
        """Members without cells, and the unknown one, which is the last: (M,)."""
        return torch.cat(
            [(self.sizes == 0).nonzero().squeeze(1), self.sizes.new_tensor([self.members])]
        )

    @cached_property
    def _needed_rows(self) -> tuple[int, ...]:
        """Rows that a table of each axis needs so that all cells of this process find theirs."""
        rows = []
        for axis in range(len(self.parts[0].others)):
            columns = [part.others[axis] for part in self.parts if len(part)]
            ends = [int(column.max()) + 1 for column in columns if column is not None]
            rows.append(max(ends, default=0))
        return tuple(rows)

    def rows_missing(self, other: int, table: Tensor) -> int:
        """Count the rows of members of another axis that a table (N', ...) lacks."""
        return max(0, self._needed_rows[other] - len(table))

    def with_own_rows(self, other: int) -> tuple[MemberSums, Tensor]:
        """Return sums over tables of another axis with a row for each cell of this process.

        Also return the members of that axis whose rows they are: (E,). The cells are in one part.
        """
        (part,) = self.parts
        members = part.column(other)
        numbers = torch.arange(len(members), dtype=torch.int32, device=members.device)
        others, weights = list(part.others), self.weights
        others[other] = numbers
        if weights is not None:
            own = weights[other][members]
            weights = (*weights[:other], own, *weights[other + 1 :])
        parts = (replace(part, others=tuple(others)),)
        sums = replace(self, parts=parts, weights=weights)
        if "sizes" in vars(self):
            vars(sums)["sizes"] = self.sizes
        return sums, members

    def weighted(self, weights: Sequence[Tensor]) -> MemberSums:
        """Return the same sums with cells weighted by products of weights of their members."""
        fitted = replace(self, weights=tuple(weights))
        for name in ("sizes", "with_cells", "without_cells", "_needed_rows"):
            if name in vars(self):
                vars(fitted)[name] = vars(self)[name]
        return fitted

    @cached_property
    def total_weights(self) -> Tensor:
        """Total weight of the cells of each member: (N,)."""
        if self.weights is None:
            return self.sizes
        return self.of_cells(lambda part: self.weights[0].new_ones(len(part)))  # type: ignore[index]

    def total(self, add: Callable[[CellPart], Tensor], dtype: torch.dtype | None = None) -> Tensor:
        """Add up rows (n, ...) that each part gives for its members, over all processes: (N, ...).

        They are added up as numbers of the type ``dtype``; None: of their own.
        """
        rows = add(self.parts[0])
        rows = rows if dtype is None else rows.to(dtype)
        if len(rows) == self.members:
            total = rows
        else:
            total = rows.new_zeros(self.members, *rows.shape[1:])
            total[self.parts[0].first : self.parts[0].first + len(rows)] = rows
        # Parts have members of their own on the first axis; on others two halves, whatever the
        # number of cores, are added up in the same sequence.
        others = None if self.axis == 0 else torch.zeros_like(total) if self.parts[1:] else None

        def add_some(parts: Sequence[CellPart], total: Tensor) -> None:
            for part in parts:
                total[part.first : part.first + part.members] += add(part)

        halves = [
            (self.parts[2::2], total),
            (self.parts[1::2], total if others is None else others),
        ]
        tasks = [partial(add_some, *half) for half in halves]
        if self.parts[1:]:
            run_all(tasks, self.cells, self.device)
        if others is not None:
            total += others
        return self.processes.all_sum([total])[0]

    def narrowed(self, table: Tensor) -> Tensor:
        """Return rows (N', K) with as many digits as sums of so many columns are computed with."""
        is_large = self.cells * table.shape[1] >= MIN_NARROW_PRODUCTS
        return table.float() if is_large else table

    def over(
        self,
        other: int,
        table: Tensor,
        values: CellValues | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Sum rows of ``table`` (N', K), of another axis, over each member's cells: (N, K).

        ``values`` gives factors of the cells beside their weights. ``dtype`` is the type of the
        sums; None: that of the table.
        """
        missing, dtype = self.rows_missing(other, table), dtype or table.dtype
        if missing:  # the sparse product would read beyond its end
            raise IndexError(f"{missing} more rows are needed, but there are {table.shape}")
        if self.weights is not None:
            table = table * self.weights[other][: len(table), None].to(table)
        narrow = self.narrowed(table)

        def add(part: CellPart) -> Tensor:
            factors = narrow.new_ones(len(part)) if values is None else values(part).to(narrow)
            factors = self._times_other_weights(part, other, factors)
            return part.sum_rows(other, factors, narrow)

        # Of very many members seven digits are kept: theirs are not added up any further.
        keeps = self.axis == 0 and self.members * table.shape[1] >= MIN_NARROW_ROWS
        return self._weigh(self.total(add, narrow.dtype if keeps else dtype))

    def of_cells(self, values: CellValues) -> Tensor:
        """Sum one number per cell over each member's cells: (N,)."""

        def add(part: CellPart) -> Tensor:
            return part.sum_cells(self._times_other_weights(part, self.axis, values(part)))[:, None]

        return self._weigh(self.total(add)).squeeze(1)

    def over_cells(self, values: CellValues) -> float:
        """Sum one number per cell over all cells, times their weights."""

        def add(part: CellPart) -> Tensor:
            factors = self._times_other_weights(part, self.axis, values(part))
            if self.weights is not None:
                factors = factors * self.weights[self.axis].to(factors)[part.own]
            return factors.sum(dtype=torch.float64)

        found = run_all([partial(add, part) for part in self.parts], self.cells, self.device)
        return float(self.processes.all_sum([torch.stack(found).sum()])[0])

    @property
    def device(self) -> torch.device:
        return self.parts[0].starts.device

    def _times_other_weights(self, part: CellPart, other: int, factors: Tensor) -> Tensor:
        """Multiply factors of cells by the weights of members of all axes but two."""
        if self.weights is not None:
            for axis, weights in enumerate(self.weights):
                if axis not in (self.axis, other):
                    factors = factors * weights.to(factors)[part.column(axis)]
        return factors

    def _weigh(self, rows: Tensor) -> Tensor:
        """Multiply sums of members (N, K) by their own weights."""
        if self.weights is None:
            return rows
        return rows.mul_(self.weights[self.axis][: self.members, None].to(rows))
