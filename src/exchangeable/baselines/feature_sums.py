"""Sums over the cells of each member, from which the vectors of an axis are solved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from exchangeable.baselines.base import chunks
from exchangeable.baselines.factorization import VectorLayout
from exchangeable.baselines.polyadic.products import (
    ProductSums,
    product_gram,
    product_moments,
    product_sums,
)
from exchangeable.sums.cell_parts import CellPart, CellValues
from exchangeable.sums.member_sums import MemberSums

ROWS_PER_CHUNK = 1 << 14
"""Members whose products are made at a time."""


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
) -> FeatureSums | ProductSums:
    """Sum what the grams of members, and their moments, are made of, times weights of cells."""
    axis, pairs, crossed = sums.axis, {}, {}
    if layout.products:
        assert covariances is not None, "products over all axes have covariances"
        return product_sums(sums, means, covariances)
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


def gram(
    layout: VectorLayout, axis: int, features: FeatureSums | ProductSums, members: slice
) -> Tensor:
    """Return the sums of E[f f'] over the cells of some members, by position: (M, F, F)."""
    if isinstance(features, ProductSums):
        return product_gram(features, members)
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
    features: FeatureSums | ProductSums | None = None,
) -> Tensor:
    """Sum E[f t] over the cells of each member: (N, F).

    ``target`` gives what this axis is to explain on average. Its random part is correlated with
    the features: a partner's b and u are uncertain together. ``features`` are those of the same
    covariances.
    """
    axis, rank = sums.axis, layout.rank
    if isinstance(features, ProductSums):
        return product_moments(sums, target, means, features)
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
