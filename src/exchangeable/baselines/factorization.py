"""Cells as sums over pairs of axes: the structure that bias, VMF and BMF share.

A cell with members n_1 .. n_D holds

    y = mu + sum_d b_d[n_d] + sum_{d < e} <u_de[n_d], u_ed[n_e]> + noise

which is matrix factorization with biases for D = 2, and for rank 0 or D = 1 the biases alone.
The vector of a member is w = [b, one u per other axis], of length F = 1 + rank (D - 1). Given
the other axes the cell is linear in it, y = f . w + rest with f = [1, the partners' u], so each
member solves a ridge regression of its own.

Vectors of an axis are a table (N + 1, F): its last row, which -1 reads, is the member that is
not known.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Where the parts of a member's vector stand."""

    order: int
    rank: int

    @property
    def width(self) -> int:
        return 1 + self.rank * (self.order - 1)

    def others(self, axis: int) -> tuple[int, ...]:
        return tuple(other for other in range(self.order) if other != axis)

    def block(self, axis: int, other: int) -> slice:
        """The columns of ``axis`` that meet those of ``other`` in a product."""
        start = 1 + self.rank * (other - (other > axis))
        return slice(start, start + self.rank)

    def columns(self, axis: int, axes: Sequence[int]) -> list[int]:
        """The bias of ``axis``, and its columns that meet one of ``axes``."""
        blocks = [self.block(axis, other) for other in axes if other != axis]
        return [0, *(column for block in blocks for column in range(block.start, block.stop))]


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the cells of each member of one axis, as products with a sparse matrix."""

    axis: int
    index: Tensor  # (E, D), ordered by member
    order: Tensor  # (E,), the positions they had
    starts: Tensor  # (N + 1,) int32
    columns: Tensor  # (D, E) int32

    @classmethod
    def of(cls, index: Tensor, axis: int, members: int) -> Sums:
        order = index[:, axis].argsort(stable=True)
        sizes = index[:, axis].bincount(minlength=members)
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).int()
        ordered = index[order]
        return cls(axis, ordered, order, starts, ordered.T.int().contiguous())

    @classmethod
    def of_some(cls, index: Tensor, axis: int, members: Tensor) -> tuple[Sums, Tensor]:
        """For some members of an axis, ascending, alone; and the positions of their cells."""
        cells = torch.isin(index[:, axis], members).nonzero().squeeze(1)
        own = index[cells]
        own[:, axis] = torch.searchsorted(members, own[:, axis].contiguous())
        return cls.of(own, axis, len(members)), cells

    @property
    def members(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> Tensor:
        return self.starts.diff()

    def over(self, other: int, table: Tensor, weights: Tensor | None = None) -> Tensor:
        """Add up the rows of ``table`` (N', K) at the cells' members of ``other``: (N, K)."""
        if weights is None:
            weights = table.new_ones(len(self.order))
        shape = (self.members, len(table))
        if len(self.order) > shape[0] * shape[1]:  # more than cuSPARSE takes: places are repeated
            rows = weights[:, None] * table[self.columns[other]]
            return torch.segment_reduce(rows, "sum", offsets=self.starts.long(), axis=0)
        _quiet()
        matrix = torch.sparse_csr_tensor(
            self.starts, self.columns[other], weights, shape, check_invariants=False
        )
        return matrix @ table

    def of_cells(self, weights: Tensor) -> Tensor:
        """Add up a number per cell: (E,) -> (N,)."""
        return self.over(self.axis, weights.new_ones(self.members, 1), weights).squeeze(1)


def sparse(
    rows: Tensor, columns: Tensor, kinds: Sequence[Tensor], shape: tuple[int, int]
) -> list[Tensor]:
    """Matrices with the same places, one for each kind of values (E,)."""
    order = columns.argsort(stable=True)
    order = order[rows[order].argsort(stable=True)]
    starts = torch.cat([rows.new_zeros(1), rows.bincount(minlength=shape[0]).cumsum(0)]).int()
    columns = columns[order].int()
    _quiet()
    return [
        torch.sparse_csr_tensor(starts, columns, values[order], shape, check_invariants=False)
        for values in kinds
    ]


@cache
def _quiet() -> None:
    """Let torch say once, where nobody hears it, that such tensors are young."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zero = torch.zeros(2, dtype=torch.int32)
        torch.sparse_csr_tensor(zero, zero[:0], zero[:0], (1, 1), check_invariants=False)


def rows_of(old: int, new: int) -> list[int]:
    """Rows of a table that grows from ``old`` members to ``new``: more of them read the last."""
    return [*range(old), *[old] * (new - old + 1)]


def gram(
    layout: Layout,
    sums: Sums,
    means: Sequence[Tensor],
    covariances: Sequence[Tensor] | None = None,
) -> Tensor:
    """The sum of E[f f'] over the cells of each member: (N, F, F)."""
    axis = sums.axis
    result = means[axis].new_zeros(sums.members, layout.width, layout.width)
    result[:, 0, 0] = sums.sizes.to(result)
    if not layout.rank:
        return result
    one, other_one = torch.triu_indices(layout.rank, layout.rank, device=result.device)
    for other in layout.others(axis):
        here, there = layout.block(axis, other), layout.block(other, axis)
        u = means[other][:, there]
        second = u[:, one] * u[:, other_one]
        if covariances is not None:
            second += covariances[other][:, there, there][:, one, other_one]
        total = sums.over(other, torch.cat([u, second], dim=1))
        result[:, 0, here] = result[:, here, 0] = total[:, : layout.rank]
        square = total.new_empty(len(total), layout.rank, layout.rank)
        square[:, one, other_one] = square[:, other_one, one] = total[:, layout.rank :]
        result[:, here, here] = square
    for first, second_axis in combinations(layout.others(axis), 2):
        rows, columns = layout.block(axis, first), layout.block(axis, second_axis)
        left = means[first][sums.index[:, first], layout.block(first, axis)]
        right = means[second_axis][:, layout.block(second_axis, axis)]
        for k in range(layout.rank):
            crossed = sums.over(second_axis, right, left[:, k].contiguous())
            result[:, rows.start + k, columns] = result[:, columns, rows.start + k] = crossed
    return result


def moments(
    layout: Layout,
    sums: Sums,
    target: Tensor,
    means: Sequence[Tensor],
    covariances: Sequence[Tensor] | None = None,
) -> Tensor:
    """The sum of E[f t] over the cells of each member: (N, F).

    ``target`` (E,), in the order of ``sums``, is what this axis is to explain on average. Its
    random part is correlated with the features: a partner's b and u are uncertain together.
    """
    axis = sums.axis
    result = target.new_empty(sums.members, layout.width)
    result[:, 0] = sums.of_cells(target)
    if not layout.rank:
        return result
    for other in layout.others(axis):
        here, there = layout.block(axis, other), layout.block(other, axis)
        result[:, here] = sums.over(other, means[other][:, there].contiguous(), target)
        if covariances is None:
            continue
        result[:, here] -= sums.over(other, covariances[other][:, there, 0].contiguous())
        for third in layout.others(axis):
            if third == other:
                continue
            shared = covariances[other][:, there, layout.block(other, third)]
            met = means[third][sums.index[:, third], layout.block(third, other)]
            for k in range(layout.rank):
                result[:, here] -= sums.over(
                    other, shared[:, :, k].contiguous(), met[:, k].contiguous()
                )
    return result


def cell_means(
    layout: Layout, index: Tensor, means: Sequence[Tensor], axes: Sequence[int]
) -> Tensor:
    """The part of every cell that ``axes`` make, alone and in pairs: (E, D) -> (E,)."""
    total = means[0].new_zeros(len(index))
    for axis in axes:
        total += means[axis][index[:, axis], 0]
    for first, second in combinations(axes, 2) if layout.rank else ():
        left = means[first][index[:, first], layout.block(first, second)]
        right = means[second][index[:, second], layout.block(second, first)]
        total += (left * right).sum(dim=1)
    return total


def cell_variances(
    layout: Layout,
    index: Tensor,
    means: Sequence[Tensor],
    covariances: Sequence[Tensor],
    axes: Sequence[int],
) -> Tensor:
    """The variance of ``cell_means`` where vectors of different members are independent.

    It is sum_d f_d' S_d f_d + sum_{d < e} tr(S_d S_e), with the blocks of S that meet; exact,
    since all mixed terms are odd in one of the vectors.
    """
    total = means[0].new_zeros(len(index))
    for axis in axes:
        columns = layout.columns(axis, axes)
        features = [total.new_ones(len(index), 1)]
        features += [
            means[other][index[:, other], layout.block(other, axis)]
            for other in axes
            if other != axis
        ]
        f = torch.cat(features, dim=1)
        spread = covariances[axis]
        if len(columns) < layout.width:
            spread = spread[:, columns][:, :, columns]
        spread = spread[index[:, axis]]
        total += ((spread @ f.unsqueeze(2)).squeeze(2) * f).sum(dim=1)
    for first, second in combinations(axes, 2) if layout.rank else ():
        here, there = layout.block(first, second), layout.block(second, first)
        left = covariances[first][index[:, first], here, here]
        right = covariances[second][index[:, second], there, there]
        total += (left * right).sum(dim=(1, 2))
    return total
