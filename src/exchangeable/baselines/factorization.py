"""Cells as sums over pairs of axes: the model that bias, VMF and BMF share.

A cell with members n_1 .. n_D holds

    y = mu + sum_d b_d[n_d] + sum_{d < e} <u_de[n_d], u_ed[n_e]> + noise

which is matrix factorization with biases for D = 2, and for rank 0 or D = 1 the biases alone.
The vector of a member is w = [b, one u per other axis], of length F = 1 + rank (D - 1). Given
the other axes the cell is linear in it, y = f . w + rest with f = [1, the partners' u], so the
vector of each member is a ridge regression.

Vectors of an axis are a table (N + 1, F): its last row, which -1 reads, stands for an unknown
member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from exchangeable.baselines.base import chunks
from exchangeable.baselines.cell_parts import CellPart, CellValues
from exchangeable.baselines.member_sums import MemberSums
from exchangeable.baselines.products import row_products, silence_sparse_warning

MAX_WHOLE_ENTRIES = 1 << 23
"""Entries of an axis's covariances from which on only those of members that cells have are read."""

ROWS_PER_CHUNK = 1 << 14
"""Members whose rows of features are made at a time."""

CELLS_PER_CHUNK = 1 << 14
"""Cells whose covariances of three axes are read at a time."""


@dataclass(frozen=True)
class VectorLayout:
    """Positions of the parts of a member's vector."""

    order: int
    rank: int

    @property
    def width(self) -> int:
        """Length of a vector, F."""
        return 1 + self.rank * (self.order - 1)

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


class FeatureSums(NamedTuple):
    """Sums over the cells of each member of an axis, from which its vectors are solved."""

    weights: Tensor  # (N,)
    pairs: Mapping[int, Tensor]
    """By other axis: sums of E[u], of the different entries of E[u u'], and of the covariances of
    u with the bias where these are given, (N, K)."""
    crossed: Mapping[tuple[int, int], Tensor]
    """By pairs of other axes: sums of E[u v'], (N, R, R)."""


def feature_sums(
    layout: VectorLayout,
    sums: MemberSums,
    means: Sequence[Tensor],
    covariances: Sequence[Tensor] | None = None,
) -> FeatureSums:
    """Sum what the grams of members, and their moments, are made of, times weights of cells."""
    axis, pairs, crossed = sums.axis, {}, {}
    if not layout.rank:
        return FeatureSums(sums.total_weights, {}, {})
    one, other_one, _ = _symmetric_places(layout.rank, sums.device)
    for other in layout.others(axis):
        there = layout.block(other, axis)
        tables = []
        for part in chunks(len(means[other]), ROWS_PER_CHUNK):
            u = means[other][part, there]
            columns = [u, u[:, one] * u[:, other_one]]
            if covariances is not None:
                spread = covariances[other][part]
                columns[1] += spread[:, one + there.start, other_one + there.start]
                columns.append(spread[:, there, 0])
            tables.append(sums.narrowed(torch.cat(columns, dim=1)))
        table = tables[0] if len(tables) == 1 else torch.cat(tables)
        pairs[other] = sums.over(other, table, dtype=means[other].dtype)
    for first, second in combinations(layout.others(axis), 2):
        right = means[second][:, layout.block(second, axis)].contiguous()
        rows = [
            sums.over(second, right, _column_of(first, means[first][:, column]))
            for column in _columns(layout.block(first, axis))
        ]
        crossed[first, second] = torch.stack(rows, dim=1)
    return FeatureSums(sums.total_weights, pairs, crossed)


def gram(layout: VectorLayout, axis: int, features: FeatureSums, members: slice) -> Tensor:
    """Return the sums of E[f f'] over the cells of some members, by position: (M, F, F)."""
    weights = features.weights[members, None]
    if not features.pairs:
        return weights[:, None].double()
    blocks = {
        other: _pair_gram(layout.rank, weights, total[members])
        for other, total in features.pairs.items()
    }
    if len(blocks) == 1:
        return next(iter(blocks.values()))
    like = next(iter(blocks.values()))
    result = like.new_zeros(len(weights), layout.width, layout.width)
    for other, block in blocks.items():
        columns = torch.tensor(layout.columns(axis, [other]), device=like.device)
        result[:, columns[:, None], columns] = block
    for (first, second_axis), crossed in features.crossed.items():
        rows, there = layout.block(axis, first), layout.block(axis, second_axis)
        result[:, rows, there] = crossed[members]
        result[:, there, rows] = crossed[members].mT
    return result


def _pair_gram(rank: int, weights: Tensor, total: Tensor) -> Tensor:
    """The part of ``gram`` that is of the bias and of the products with one other axis.

    Weights (M, 1) are sums of 1, and ``total`` (M, K) those of u and of its products.
    """
    one, _, places = _symmetric_places(rank, total.device)
    return torch.cat([weights.to(total), total[:, : rank + len(one)]], dim=1)[:, places]


@cache
def _symmetric_places(rank: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and columns of the upper triangle of R x R, and places of a symmetric matrix's entries.

    These, (1 + R, 1 + R), are places in the row of a 1, R numbers and the upper triangle.
    """
    with torch.inference_mode(False):
        one, other_one = torch.triu_indices(rank, rank, device=device)
        places = torch.arange(rank + 1, device=device).repeat(rank + 1, 1)
        places[1:, 0] = places[0, 1:]
        upper = torch.arange(rank + 1, rank + 1 + len(one), device=device)
        places[one + 1, other_one + 1] = places[other_one + 1, one + 1] = upper
    return one, other_one, places


def moments(
    layout: VectorLayout,
    sums: MemberSums,
    target: CellValues,
    means: Sequence[Tensor],
    covariances: Sequence[Tensor] | None = None,
    features: FeatureSums | None = None,
) -> Tensor:
    """Sum E[f t] over the cells of each member: (N, F).

    ``target`` gives what this axis is to explain on average. Its random part is correlated with
    the features: a partner's b and u are uncertain together. ``features`` are those of the same
    covariances.
    """
    axis, rank = sums.axis, layout.rank
    if not rank or layout.order == 1:
        return sums.of_cells(target)[:, None]
    result = means[axis].new_empty(sums.members, layout.width)
    for other in layout.others(axis):
        here, there = layout.block(axis, other), layout.block(other, axis)
        # The bias is multiplied with 1.
        total = sums.over(other, pad(means[other][:, there], (1, 0), value=1.0), target)
        result[:, 0], result[:, here] = total[:, 0], total[:, 1:]
        if covariances is None or features is None:
            continue
        result[:, here] -= features.pairs[other][:, -rank:]
        for third in layout.others(axis):
            if third == other:
                continue
            shared = covariances[other][:, there, layout.block(other, third)]
            for k, column in enumerate(_columns(layout.block(third, other))):
                met = _column_of(third, means[third][:, column])
                result[:, here] -= sums.over(other, shared[:, :, k].contiguous(), met)
    return result


def _columns(block: slice) -> range:
    return range(block.start, block.stop)


def _column_of(axis: int, numbers: Tensor) -> CellValues:
    """Give cells the numbers (N,) of their members on an axis."""
    narrow = numbers.contiguous()

    def values(part: CellPart) -> Tensor:
        return narrow[part.column(axis)]

    return values


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
