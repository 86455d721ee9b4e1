"""Cells as sums over pairs of axes: the model that bias, VMF and BMF share.

A cell with members n_1 .. n_D holds

    y = mu + sum_d b_d[n_d] + sum_{d < e} <u_de[n_d], u_ed[n_e]> + noise

which is matrix factorization with biases for D = 2, and for rank 0 or D = 1 the biases alone.
The vector of a member is w = [b, one u per other axis], of length F = 1 + rank (D - 1). Given
the other axes the cell is linear in it, y = f . w + rest with f = [1, the partners' u], so the
vector of each member is a ridge regression. Of three axes a model may have products over all of
them in place of pairs (``polyadic``).

Vectors of an axis are a table (N + 1, F): its last row, which -1 reads, stands for an unknown
member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import torch
from torch import Tensor

from exchangeable.baselines.base import chunks
from exchangeable.baselines.polyadic.products import (
    product_means,
    product_variances,
    sum_of_products,
)
from exchangeable.sums.member_sums import MemberSums
from exchangeable.sums.products import row_products, silence_sparse_warning

MAX_WHOLE_ENTRIES = 1 << 23
"""Entries of an axis's covariances from which on only those of members that cells have are read."""

CELLS_PER_CHUNK = 1 << 14
"""Cells whose covariances of three axes are read at a time."""


@dataclass(frozen=True)
class VectorLayout:
    """Positions of the parts of a member's vector."""

    order: int
    rank: int
    """Factors of each pair of axes."""
    products: int = 0
    """Factors that are products over all axes; where there are any, there are none of pairs."""

    @property
    def width(self) -> int:
        """Length of a vector, F."""
        return 1 + self.rank * (self.order - 1) + self.products

    def others(self, axis: int) -> tuple[int, ...]:
        """Return all axes but ``axis``."""
        return tuple(other for other in range(self.order) if other != axis)

    def block(self, axis: int, other: int) -> slice:
        """Return the columns of ``axis`` that are multiplied with those of ``other``."""
        start = 1 + self.rank * (other - (other > axis))
        return slice(start, start + self.rank)

    def columns(self, axis: int, axes: Sequence[int]) -> list[int]:
        """Return the columns of the bias of ``axis`` and of its products with ``axes``."""
        blocks = [self.block(axis, other) for other in axes if other != axis]
        return [0, *(column for block in blocks for column in range(block.start, block.stop))]


def sparse(
    rows: Tensor, columns: Tensor, kinds: Sequence[Tensor], shape: tuple[int, int]
) -> list[Tensor]:
    """Sparse matrices with the same entries, one for each kind of values (E,)."""
    permutation = columns.argsort(stable=True)
    permutation = permutation[rows[permutation].argsort(stable=True)]
    starts = torch.cat([rows.new_zeros(1), rows.bincount(minlength=shape[0]).cumsum(0)]).int()
    columns = columns[permutation].int()
    silence_sparse_warning()
    return [
        torch.sparse_csr_tensor(starts, columns, values[permutation], shape, check_invariants=False)
        for values in kinds
    ]


def grown(table: Tensor, members: int) -> Tensor:
    """Return a table that grows to so many members, (N' + 1, ...): new ones copy the last row."""
    added = members + 1 - len(table)
    return torch.cat([table, table[-1:].expand(added, *table.shape[1:])])


def mean_over_cells(
    layout: VectorLayout, sums: Sequence[MemberSums], means: Sequence[Tensor]
) -> float:
    """Average ``cell_means`` of all axes over all cells, without a number for each cell."""
    total = 0.0
    for axis, each in enumerate(sums):
        total += float(each.sizes.to(means[axis]) @ means[axis][: each.members, 0])
    for first, second in combinations(range(layout.order), 2) if layout.rank else ():
        left = means[first][: sums[first].members, layout.block(first, second)]
        right = means[second][:, layout.block(second, first)].contiguous()
        total += float((left * sums[first].over(second, right)).sum())
    if layout.products:
        total += sum_of_products(sums[0], means)
    return total / max(len(sums[0]), 1)


def cell_means(
    layout: VectorLayout, index: Tensor, means: Sequence[Tensor], axes: Sequence[int]
) -> Tensor:
    """Sum the terms of ``axes``, biases and products of pairs, of every cell: (E, D) -> (E,)."""
    total = means[0].new_zeros(len(index))
    for axis in axes:
        total += _take(means[axis][:, 0], index[:, axis])
    for first, second in combinations(axes, 2) if layout.rank else ():
        left = means[first][:, layout.block(first, second)]
        right = means[second][:, layout.block(second, first)]
        total += _pair_products(index, first, second, left, right)
    if layout.products and len(axes) == layout.order:
        total += product_means(index, means)
    return total


def cell_variances(
    layout: VectorLayout,
    index: Tensor,
    means: Sequence[Tensor],
    covariances: Sequence[Tensor],
    axes: Sequence[int],
    kept_rows: Callable[[int, int], Tensor | None] = lambda axis, other: None,
) -> Tensor:
    """Variance of ``cell_means`` where vectors of different members are independent.

    It is sum_d f_d' S_d f_d + sum_{d < e} tr(S_d S_e), with the blocks of S that are
    multiplied; exact, since all mixed terms are odd in one of the vectors. The terms of a pair
    of axes are products of rows that each of its members has; ``kept_rows`` returns those of an
    axis for another if they are known, and None if not.
    """
    total = means[0].new_zeros(len(index))
    for axis in axes:
        total += _take(covariances[axis][:, 0, 0], index[:, axis])
    for first, second in combinations(axes, 2) if layout.rank else ():
        tables, rows = [], []
        for axis, other in ((first, second), (second, first)):
            table, row = kept_rows(axis, other), index[:, axis] % len(means[axis])
            if table is None:
                own = means[axis], covariances[axis]
                if len(index) < len(means[axis]) or covariances[axis].numel() > MAX_WHOLE_ENTRIES:
                    used, row = _used_rows(row, len(means[axis]))
                    own = means[axis][used], covariances[axis][used]
                table = pair_variance_rows(layout, axis, other, *own)
            tables.append(table)
            rows.append(row)
        total += row_products(*rows, *tables)
    if layout.rank and len(axes) > 2:
        for part in chunks(len(index), CELLS_PER_CHUNK):
            total[part] += _triple_terms(layout, index[part], means, covariances, axes)
    if layout.products and len(axes) == layout.order:
        total += product_variances(index, means, covariances)
    return total


def _used_rows(rows: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return which of ``size`` rows are used (U,), and the position of each among these."""
    if len(rows) < size:
        return rows.unique(return_inverse=True)
    flags = torch.zeros(size, dtype=torch.bool, device=rows.device)
    flags[rows] = True
    return flags.nonzero().squeeze(1), (flags.cumsum(0) - 1)[rows]


def pair_variance_rows(
    layout: VectorLayout, axis: int, other: int, means: Tensor, covariances: Tensor
) -> Tensor:
    """Return rows of members whose products with those of another axis are variances: (N, K)."""
    block = layout.block(axis, other)
    u, with_bias = means[:, block], covariances[:, 0, block]
    uu = _symmetric(u[:, :, None] * u[:, None])
    s = _symmetric(covariances[:, block, block])
    if axis > other:
        return torch.cat([uu + s, s, u, 2 * with_bias], dim=1)
    twice = s.new_full((s.shape[1],), 2.0)
    twice[: layout.rank] = 1  # the diagonal
    return torch.cat([s * twice, uu * twice, 2 * with_bias, u], dim=1)


def _triple_terms(
    layout: VectorLayout,
    index: Tensor,
    means: Sequence[Tensor],
    covariances: Sequence[Tensor],
    axes: Sequence[int],
) -> Tensor:
    """Sum 2 u' S u over the vectors of two axes that a third one is multiplied with: (E,)."""
    total = means[0].new_zeros(len(index))
    for axis in axes:
        for first, second in combinations([other for other in axes if other != axis], 2):
            spread = covariances[axis][:, layout.block(axis, first), layout.block(axis, second)]
            u = means[first][index[:, first], layout.block(first, axis)]
            v = means[second][index[:, second], layout.block(second, axis)]
            total += 2 * torch.einsum("ei,eij,ej->e", u, spread[index[:, axis]], v)
    return total


def _take(column: Tensor, members: Tensor) -> Tensor:
    """Read a column of a table for members: (N,) -> (E,); for many it is made contiguous."""
    return column[members] if len(members) < len(column) else column.contiguous()[members]


def _pair_products(index: Tensor, first: int, second: int, left: Tensor, right: Tensor) -> Tensor:
    """Multiply the rows of two axes' members at every cell: (E,); -1 reads the last row."""
    rows, columns = index[:, first] % len(left), index[:, second] % len(right)
    return row_products(rows, columns, left, right)


def _symmetric(square: Tensor) -> Tensor:
    """Return the different entries of symmetric matrices, the diagonal first: (N, R, R)."""
    one, other = _pairs(square.shape[1], square.device)
    return torch.cat([square.diagonal(dim1=1, dim2=2), square[:, one, other]], dim=1)


@cache
def _pairs(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows and columns above the diagonal of a square matrix."""
    with torch.inference_mode(False):
        one, other = torch.triu_indices(size, size, 1, device=device)
    return one, other
