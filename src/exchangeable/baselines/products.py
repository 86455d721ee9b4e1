"""Products of tables: sums over members' cells, products of pairs of rows and of large matrices.

Large ones are computed in half precision where that is faster: similarities are sums of hundreds of
products, of which digits beyond the third mean nothing.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from exchangeable.runtime.threads import threads_for_products

MIN_HALF_PRODUCTS = 1 << 29
"""Multiplications of a product from which on it is computed in half precision."""

MIN_BLOCKED_CELLS, MIN_BLOCKED_MEMBERS = 1 << 21, 1 << 14
"""Cells, and members of the other axis, from which on cells are sorted by blocks of these."""

MEMBERS_PER_BLOCK, MAX_BLOCKS = 1 << 12, 16
"""Members of a block at least, and blocks at most: sums of all blocks are kept meanwhile."""

MIN_NARROW_PRODUCTS = 1 << 28
"""Multiplications of a sum over cells from which on they have seven digits, in half of the time."""

MAX_FEW_PRODUCTS = 1 << 16
"""Multiplications of pairs of rows up to which rows are copied for each pair."""

MAX_FEW_CELLS = 1 << 12
"""Cells of a single member up to which their rows are copied, which is faster than a product with a
sparse matrix."""


@dataclass(frozen=True, eq=False)
class MemberSums:
    """Sums over the cells of each member of one axis, as products with a sparse matrix.

    Where the other axis of a large table has many members, cells are sorted by blocks of these
    first, so that the rows of a block stay in the processor's cache: four times as fast.
    """

    axis: int
    permutation: Tensor | None  # (E,), positions of the sorted cells; None: they came sorted
    starts: Tensor  # (blocks N + 1,) int32
    columns: Tensor  # (D, E) int32, coordinates of the sorted cells
    weights: Tensor | None = None  # (E,), of the sorted cells; None: every cell counts once
    blocks: int = 1

    @classmethod
    def of(
        cls, index: Tensor, axis: int, members: int, weights: Tensor | None = None
    ) -> MemberSums:
        """Sort cells (E, D), of the given weights (E,), by their members on ``axis``."""
        columns = index.T.int().contiguous()
        key, blocks = columns[axis], 1
        if len(columns) == 2 and len(index) >= MIN_BLOCKED_CELLS and not index.is_cuda:
            last = int(columns[1 - axis].amax())
            block = columns[1 - axis] // max(MEMBERS_PER_BLOCK, last // MAX_BLOCKS + 1)
            blocks = int(block.amax()) + 1 if last >= MIN_BLOCKED_MEMBERS else 1
            key = key + block * members if blocks > 1 else key
        sizes = key.bincount(minlength=blocks * members)
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).int()
        if bool((key[1:] >= key[:-1]).all()):
            return cls(axis, None, starts, columns, weights, blocks)
        permutation = key.argsort(stable=True)
        columns = torch.stack([column[permutation] for column in columns])
        weighted = None if weights is None else weights[permutation]
        return cls(axis, permutation, starts, columns, weighted, blocks)

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

    @property
    def members(self) -> int:
        return (len(self.starts) - 1) // self.blocks

    def __len__(self) -> int:
        """Return the number of cells, E."""
        return self.columns.shape[1]

    @property
    def index(self) -> Tensor:
        """Coordinates of the sorted cells: (E, D) int32."""
        return self.columns.T

    def sorted(self, values: Tensor) -> Tensor:
        """Sort one number per cell (E,), in the sequence of ``of``, as the cells are."""
        return values if self.permutation is None else values[self.permutation]

    def unsorted(self, values: Tensor) -> Tensor:
        """Return numbers of the sorted cells (E,) in the sequence of ``of``."""
        if self.permutation is None:
            return values
        return torch.empty_like(values).index_put_((self.permutation,), values)

    @cached_property
    def sizes(self) -> Tensor:
        """Number of cells of each member: (N,)."""
        return self._add_blocks(self.starts.diff().long())

    @cached_property
    def needed_rows(self) -> tuple[int, ...]:
        """Rows that a table of each axis needs so that all cells find theirs."""
        if not len(self):
            return (0,) * len(self.columns)
        return tuple(last + 1 for last in self.columns.amax(dim=1).tolist())

    @cached_property
    def with_cells(self) -> Tensor:
        """Members that have cells: (M,)."""
        return self.sizes.nonzero().squeeze(1)

    @cached_property
    def without_cells(self) -> Tensor:
        """Members without cells, and the unknown one, which is the last: (M,)."""
        return torch.cat(
            [(self.sizes == 0).nonzero().squeeze(1), self.starts.new_tensor([self.members])]
        )

    def weighted(self, weights: Tensor) -> MemberSums:
        """Return the same sums with a weight for each cell (E,), in the sequence of ``of``."""
        sums = replace(self, weights=self.sorted(weights))
        vars(sums).update(sizes=self.sizes, needed_rows=self.needed_rows)
        return sums

    def with_own_rows(self, other: int) -> MemberSums:
        """Return sums over tables of axis ``other`` that have a row for each sorted cell."""
        columns = self.columns.clone()
        columns[other] = torch.arange(len(self), device=columns.device)
        sums = replace(self, columns=columns)
        vars(sums)["sizes"] = self.sizes
        return sums

    @cached_property
    def total_weights(self) -> Tensor:
        """Total weight of the cells of each member: (N,)."""
        if self.weights is None:
            return self.sizes
        return self.of_cells(torch.ones_like(self.weights))

    def over(self, other: int, table: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum rows of ``table`` (N', K), of axis ``other``, over each member's cells: (N, K).

        ``weights`` (E,), sorted as the cells are, are multiplied with those of the cells.
        """
        if self.needed_rows[other] > len(table):  # the sparse product would read beyond its end
            raise IndexError(
                f"{self.needed_rows[other]} rows are needed, but there are {table.shape}"
            )
        if weights is None:
            weights = table.new_ones(len(self)) if self.weights is None else self.weights
        elif self.weights is not None:
            weights = weights * self.weights
        shape = (self.members, len(table))
        if len(self) > shape[0] * shape[1]:  # repeated entries, more than cuSPARSE takes
            rows = weights[:, None] * table[self.columns[other]]
            summed = torch.segment_reduce(rows, "sum", offsets=self.starts.long(), axis=0)
            return self._add_blocks(summed)
        is_large = len(self) * table.shape[1] >= MIN_NARROW_PRODUCTS
        dtype = torch.float32 if is_large else table.dtype
        return self.multiply(other, weights.to(dtype), table.to(dtype)).to(table.dtype)

    def multiply(self, other: int, weights: Tensor, table: Tensor) -> Tensor:
        """Sum rows of a table (N', K) or (N',) as ``over`` does, with other weights (E,)."""
        if self.members == self.blocks == 1 and len(self) <= MAX_FEW_CELLS:
            return weights[None] @ table[self.columns[other]]
        shape = self.members * self.blocks, len(table)
        matrix = sparse_rows(self.starts, self.columns[other], weights, shape)
        return self._add_blocks(matrix @ table)

    def _add_blocks(self, rows: Tensor) -> Tensor:
        """Add up what members have of each block: (blocks N, ...) -> (N, ...)."""
        return rows if self.blocks == 1 else rows.unflatten(0, (self.blocks, -1)).sum(dim=0)

    def of_cells(self, weights: Tensor) -> Tensor:
        """Sum one number per cell over each member's cells: (E,) -> (N,)."""
        return self.over(self.axis, weights.new_ones(self.members, 1), weights).squeeze(1)


class SolvedMembers(NamedTuple):
    """Some members of an axis, which are solved from all of their cells."""

    members: Tensor  # (M,), ascending
    sums: MemberSums
    cells: Tensor  # positions of their cells among all, ascending

    def of_members(self, some: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions of the cells of some of the members (M,), a mask, member by member.

        And where each of these members begins: (M' + 1,).
        """
        sizes = self.sums.sizes
        kept = some.repeat_interleave(sizes)
        ends = sizes[some].cumsum(0)
        return self.sums.sorted(self.cells)[kept], torch.cat([ends.new_zeros(1), ends])

    @classmethod
    def new(cls, index: Tensor, axis: int) -> SolvedMembers:
        """Return the new members of an axis that have some of the cells (E, D), all theirs."""
        members, column = index[:, axis].unique(return_inverse=True)
        columns = [column if a == axis else index[:, a] for a in range(index.shape[1])]
        sums = MemberSums.of(torch.stack(columns, dim=1), axis, len(members))
        return cls(members, sums, torch.arange(len(index), device=index.device))

    @classmethod
    def by_axis(cls, index: Tensor, changed: Tensor) -> list[SolvedMembers]:
        """Find the members of every axis with cells at the positions ``changed`` of (E, D)."""
        found = []
        for axis in range(index.shape[1]):
            members = index[changed, axis].unique()
            found.append(cls(members, *MemberSums.of_members(index, axis, members)))
        return found


def row_products(rows: Tensor, other_rows: Tensor, table: Tensor, other: Tensor) -> Tensor:
    """Return sum_k table[rows[e], k] other[other_rows[e], k] for all pairs e: (E,).

    Nothing of the size of many pairs times columns is made, and tables are read row by row.
    """
    (table, rows), (other, other_rows) = _used_rows(table, rows), _used_rows(other, other_rows)
    # Repeated entries are more than cuSPARSE takes, and most of a grid is wanted.
    if 2 * len(rows) > len(table) * len(other):
        products = table @ other.T
        return products[0, other_rows] if len(table) == 1 else products[rows, other_rows]
    if len(rows) * table.shape[1] <= MAX_FEW_PRODUCTS:
        return (table[rows] * other[other_rows]).sum(dim=1)
    return _sampled_products(rows, other_rows, table, other)


def _used_rows(table: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a table that are read, and their new numbers, where it has many more."""
    if 2 * len(rows) >= len(table) or not len(rows):
        return table, rows
    if bool((rows == rows[0]).all()):  # the cells of one member
        return table[rows[:1]], torch.zeros_like(rows)
    used, rows = rows.unique(return_inverse=True)
    return table[used], rows


def _sampled_products(rows: Tensor, other_rows: Tensor, table: Tensor, other: Tensor) -> Tensor:
    """Return ``row_products`` by a product of which only some entries are computed."""
    sorted_already = bool((rows[1:] >= rows[:-1]).all())
    if not sorted_already and bool((other_rows[1:] >= other_rows[:-1]).all()):
        return _sampled_products(other_rows, rows, other, table)
    permutation = None if sorted_already else rows.argsort(stable=True)
    starts = torch.cat([rows.new_zeros(1), rows.bincount(minlength=len(table)).cumsum(0)]).int()
    columns = (other_rows if permutation is None else other_rows[permutation]).int()
    table, other = table.contiguous(), other.contiguous()
    pairs = sparse_rows(starts, columns, table.new_zeros(len(rows)), (len(table), len(other)))
    with threads_for_products(len(rows) * table.shape[1] if table.device.type == "cpu" else 0):
        products = torch.sparse.sampled_addmm(pairs, table, other.T, beta=0).values()
    return (
        products
        if permutation is None
        else torch.empty_like(products).index_put_((permutation,), products)
    )


def sparse_rows(starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Make a sparse CSR matrix of rows that begin at ``starts`` (A + 1,)."""
    silence_sparse_warning()
    return torch.sparse_csr_tensor(
        starts.int(), columns.int(), values, shape, check_invariants=False
    )


def positions_of_rows(starts: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Find the entries of some rows (B,), which begin at ``starts`` (A + 1,), row after row.

    Return where each of these rows begins among them, (B + 1,), and their positions.
    """
    sizes = starts.diff()[rows]
    ends = sizes.cumsum(0)
    positions = (starts[rows] - ends + sizes).repeat_interleave(sizes)
    positions += torch.arange(len(positions), device=positions.device)
    return torch.cat([ends.new_zeros(1), ends]), positions


@cache
def silence_sparse_warning() -> None:
    """Trigger torch's warning that sparse CSR tensors are in beta, which comes once, unseen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zero = torch.zeros(2, dtype=torch.int32)
        torch.sparse_csr_tensor(zero, zero[:0], zero[:0], (1, 1), check_invariants=False)


def product_type(count: int, like: Tensor) -> torch.dtype:
    """Return the type in which so many multiplications of numbers like these are computed."""
    is_large = count >= MIN_HALF_PRODUCTS and like.dtype == torch.float32
    return torch.bfloat16 if is_large and _multiplies_halves(like.device.type) else like.dtype


def large_product(one: Tensor, other: Tensor) -> Tensor:
    """Return one @ other (A, B) @ (B, C), with all threads if it is large."""
    with threads_for_products(one.numel() * other.shape[1] if one.device.type == "cpu" else 0):
        return one @ other


@cache
def _multiplies_halves(device: str) -> bool:
    """Whether a device multiplies numbers of 16 bits faster than those of 32."""
    if device == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
