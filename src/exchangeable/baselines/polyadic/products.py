"""Products over all axes: the canonical polyadic form of a table of three axes.

A cell with members n_1, n_2, n_3 holds

    y = mu + sum_d b_d[n_d] + sum_r c_1r[n_1] c_2r[n_2] c_3r[n_3] + noise

The vector of a member is w = [b, c]. Given the other two axes e and g the cell is linear in it,
with f = [1, c_e * c_g]. Vectors of different members are independent, so moments of products over
axes are products of the axes' moments, entry by entry:

    E[c c'] = E[c_e c_e'] * E[c_g c_g'],    E[b_e c_e * c_g] = E[b_e c_e] * E[c_g]

Sums over the cells of a member are made in two steps: over the cells that share the members of two
axes, and then over these pairs, so that a dense table costs one sparse product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from exchangeable.baselines.base import chunks
from exchangeable.sums.cell_parts import CellValues, PairedCells
from exchangeable.sums.member_sums import MemberSums
from exchangeable.sums.products import row_products

NUMBERS_PER_CHUNK = 1 << 21
"""Numbers of pairs' rows, or of cells', that are made at a time."""


class ProductSums(NamedTuple):
    """Sums over the cells of each member of an axis, times the weights of cells."""

    weights: Tensor  # (N,)
    features: Tensor  # (N, R), of E[c_e * c_g]
    grams: Tensor  # (N, R, R), of E[c_e c_e'] * E[c_g c_g']
    crossed: Tensor  # (N, R), of cov(b_e, c_e) * E[c_g] + E[c_e] * cov(b_g, c_g)


def product_means(index: Tensor, means: Sequence[Tensor]) -> Tensor:
    """Return the means of the products of cells (Q, 3), by vectors (N_d + 1, F): (Q,)."""
    return _sum_products(index, [table[:, 1:] for table in means])


def product_variances(
    index: Tensor, means: Sequence[Tensor], covariances: Sequence[Tensor]
) -> Tensor:
    """Return the variances of the products of cells, and twice their covariance with biases: (Q,).

    That of the products is E[y^2] - E[y]^2, with the former a sum over pairs of factors.
    """
    one, other = _triangle(means[0].shape[1] - 1, means[0].device)
    twice = torch.where(one == other, 1.0, 2.0).to(means[0])
    tables = []
    for axis, (mean, spread) in enumerate(zip(means, covariances, strict=True)):
        columns = [_second_moments(mean, spread)]
        columns += [spread[:, 0, 1:] if at == axis else mean[:, 1:] for at in range(len(means))]
        tables.append(torch.cat(columns, dim=1))
    tables[0][:, : len(twice)] *= twice
    tables[0][:, len(twice) :] *= 2
    return _sum_products(index, tables) - product_means(index, means).square()


def product_sums(
    sums: MemberSums, means: Sequence[Tensor], covariances: Sequence[Tensor]
) -> ProductSums:
    """Sum what the grams of members, and their moments, are made of."""
    rank = means[sums.axis].shape[1] - 1
    (part,) = sums.parts
    paired = part.paired
    second, third = (
        torch.cat(
            [
                means[other][:, 1:],
                covariances[other][:, 0, 1:],
                _second_moments(means[other], covariances[other]),
            ],
            dim=1,
        )
        for other in (paired.second, paired.third)
    )
    second, third = _weighted(sums, paired.second, second), _weighted(sums, paired.third, third)

    def combine(one: Tensor, other: Tensor) -> Tensor:
        (m, s, q), (n, t, p) = (rows.tensor_split([rank, 2 * rank], dim=1) for rows in (one, other))
        return torch.cat([m * n, s * n + m * t, q * p], dim=1)

    total = _sum_pairs(paired, None, second, third, combine)
    total = _times_own(sums, total)
    features, crossed, entries = total.tensor_split([rank, 2 * rank], dim=1)
    one, other = _triangle(rank, total.device)
    grams = total.new_empty(len(total), rank, rank)
    grams[:, one, other] = entries
    grams[:, other, one] = entries
    return ProductSums(sums.total_weights, features, grams, crossed)


def product_gram(found: ProductSums, members: slice) -> Tensor:
    """Return the sums of E[f f'] over the cells of some members, by position: (M, F, F)."""
    features = found.features[members]
    result = features.new_empty(len(features), features.shape[1] + 1, features.shape[1] + 1)
    result[:, 0, 0] = found.weights[members].to(result)
    result[:, 0, 1:] = result[:, 1:, 0] = features
    result[:, 1:, 1:] = found.grams[members]
    return result


def product_moments(
    sums: MemberSums, target: CellValues, means: Sequence[Tensor], found: ProductSums
) -> Tensor:
    """Sum E[f t] over the cells of each member: (N, F).

    ``target`` gives what this axis is to explain on average, and its random part, the biases of
    the other axes, is correlated with the features.
    """
    (part,) = sums.parts
    paired, values = part.paired, target(part)
    second, third = (
        _weighted(sums, other, torch.cat([_ones(means[other]), means[other][:, 1:]], dim=1))
        for other in (paired.second, paired.third)
    )
    total = _times_own(sums, _sum_pairs(paired, values, second, third, torch.mul))
    total[:, 1:] -= found.crossed
    return total


def sum_of_products(sums: MemberSums, means: Sequence[Tensor]) -> float:
    """Add up the means of the products of all cells."""
    (part,) = sums.parts
    paired = part.paired
    second, third = (means[axis][:, 1:].contiguous() for axis in (paired.second, paired.third))
    total = _sum_pairs(paired, None, second, third, torch.mul)
    return float((means[sums.axis][: len(total), 1:] * total).sum())


def _sum_pairs(
    paired: PairedCells,
    values: Tensor | None,
    second: Tensor,
    third: Tensor,
    combine: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Sum over the cells of each member what is combined of rows of two axes: (n, K')."""
    total: Tensor | None = None
    for members, pairs in paired.blocks(_rows_per_chunk(third.shape[1])):
        inner = paired.sum_third(pairs, values, third)
        rows = combine(second[paired.members[pairs]], inner)
        found = paired.sum_second(members, rows)
        if total is None:
            total = found.new_zeros(len(paired.starts) - 1, found.shape[1])
        total[members] = found
    assert total is not None
    return total


def _weighted(sums: MemberSums, axis: int, table: Tensor) -> Tensor:
    """Multiply rows of members by the weights that their cells have."""
    if sums.weights is None:
        return table
    return table * sums.weights[axis][: len(table), None].to(table)


def _times_own(sums: MemberSums, rows: Tensor) -> Tensor:
    if sums.weights is None:
        return rows
    return rows * sums.weights[sums.axis][: sums.members, None].to(rows)


def _ones(like: Tensor) -> Tensor:
    return like.new_ones(len(like), 1)


def _second_moments(means: Tensor, covariances: Tensor) -> Tensor:
    """Return the upper triangle of E[c c'] of members: (N, K)."""
    one, other = _triangle(means.shape[1] - 1, means.device)
    return (means[:, 1 + one] * means[:, 1 + other]).add_(covariances[:, 1 + one, 1 + other])


def _triangle(rank: int, device: torch.device) -> tuple[Tensor, Tensor]:
    one, other = torch.triu_indices(rank, rank, device=device)
    return one, other


def _sum_products(index: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """Sum the products of rows (N_d + 1, K) of the members of cells (Q, 3), -1 the last: (Q,).

    Rows of two axes are multiplied once for each pair of their members.
    """
    third = max(range(3), key=lambda axis: len(tables[axis]))
    first, second = (axis for axis in range(3) if axis != third)
    rows, columns, last = (index[:, at] % len(tables[at]) for at in (first, second, third))
    pairs, place = (rows.long() * len(tables[second]) + columns).unique(return_inverse=True)
    size = _rows_per_chunk(tables[0].shape[1])
    left = tables[first], pairs // len(tables[second])
    right = tables[second], pairs % len(tables[second])

    def products(part: slice) -> Tensor:
        (one, at), (other, there) = left, right
        return one[at[part]] * other[there[part]]

    if len(pairs) <= size:
        return row_products(place, last, products(slice(None)), tables[third])
    permutation = place.argsort(stable=True)
    place, last, total = place[permutation], last[permutation], tables[0].new_empty(len(index))
    for part in chunks(len(pairs), size):
        begin, end = torch.searchsorted(place, place.new_tensor([part.start, part.stop])).tolist()
        some = place[begin:end] - part.start, last[begin:end]
        total[permutation[begin:end]] = row_products(*some, products(part), tables[third])
    return total


def _rows_per_chunk(width: int) -> int:
    return max(1, NUMBERS_PER_CHUNK // max(width, 1))
