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

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from exchangeable.baselines.base import Floats, Index


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

    def columns(self, axis: int, axes: Sequence[int]) -> Index:
        """The bias of ``axis``, and its columns that meet one of ``axes``."""
        blocks = [self.block(axis, other) for other in axes if other != axis]
        return np.concatenate([[0], *[np.arange(b.start, b.stop) for b in blocks]]).astype(int)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the cells of each member of one axis, as products with a sparse matrix."""

    axis: int
    index: Index  # (E, D), ordered by member
    order: Index  # (E,), the positions they had
    starts: NDArray[np.int32]  # (N + 1,)
    columns: NDArray[np.int32]  # (D, E)

    @classmethod
    def of(cls, index: Index, axis: int, members: int) -> Sums:
        order = np.argsort(index[:, axis], kind="stable")
        starts = np.zeros(members + 1, dtype=np.int32)
        np.cumsum(np.bincount(index[:, axis], minlength=members), out=starts[1:])
        ordered = index[order]
        return cls(axis, ordered, order, starts, np.ascontiguousarray(ordered.T, dtype=np.int32))

    @classmethod
    def of_some(cls, index: Index, axis: int, members: Index) -> tuple[Sums, Index]:
        """For some members of an axis, ascending, alone; and the positions of their cells."""
        cells = np.flatnonzero(np.isin(index[:, axis], members))
        own = index[cells]
        own[:, axis] = np.searchsorted(members, own[:, axis])
        return cls.of(own, axis, len(members)), cells

    @property
    def members(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> Floats:
        return np.diff(self.starts).astype(np.float64)

    def over(self, other: int, table: Floats, weights: Floats | None = None) -> Floats:
        """Add up the rows of ``table`` (N', K) at the cells' members of ``other``: (N, K)."""
        data = np.ones(len(self.order)) if weights is None else weights
        shape = (self.members, len(table))
        return csr_array((data, self.columns[other], self.starts), shape=shape) @ table

    def of_cells(self, weights: Floats) -> Floats:
        """Add up a number per cell: (E,) -> (N,)."""
        total = np.bincount(self.index[:, self.axis], weights, self.members)
        return total.astype(np.float64)


def rows_of(old: int, new: int) -> Index:
    """Rows of a table that grows from ``old`` members to ``new``: more of them read the last."""
    return np.append(np.arange(old), np.full(new - old + 1, old))


def gram(
    layout: Layout,
    sums: Sums,
    means: Sequence[Floats],
    covariances: Sequence[Floats] | None = None,
) -> Floats:
    """The sum of E[f f'] over the cells of each member: (N, F, F)."""
    axis = sums.axis
    result = np.zeros((sums.members, layout.width, layout.width))
    result[:, 0, 0] = sums.sizes
    upper = np.triu_indices(layout.rank)
    for other in layout.others(axis):
        here, there = layout.block(axis, other), layout.block(other, axis)
        u = means[other][:, there]
        second = u[:, upper[0]] * u[:, upper[1]]
        if covariances is not None:
            second += covariances[other][:, there, there][:, upper[0], upper[1]]
        total = sums.over(other, np.concatenate([u, second], axis=1))
        result[:, 0, here] = result[:, here, 0] = total[:, : layout.rank]
        square = np.empty((len(total), layout.rank, layout.rank))
        square[:, upper[0], upper[1]] = square[:, upper[1], upper[0]] = total[:, layout.rank :]
        result[:, here, here] = square
    for first, second_axis in combinations(layout.others(axis), 2):
        rows, columns = layout.block(axis, first), layout.block(axis, second_axis)
        left = means[first][sums.index[:, first], layout.block(first, axis)]
        right = means[second_axis][:, layout.block(second_axis, axis)]
        for k in range(layout.rank):
            crossed = sums.over(second_axis, right, left[:, k])
            result[:, rows.start + k, columns] = result[:, columns, rows.start + k] = crossed
    return result


def moments(
    layout: Layout,
    sums: Sums,
    target: Floats,
    means: Sequence[Floats],
    covariances: Sequence[Floats] | None = None,
) -> Floats:
    """The sum of E[f t] over the cells of each member: (N, F).

    ``target`` (E,), in the order of ``sums``, is what this axis is to explain on average. Its
    random part is correlated with the features: a partner's b and u are uncertain together.
    """
    axis = sums.axis
    result = np.empty((sums.members, layout.width))
    result[:, 0] = sums.of_cells(target)
    for other in layout.others(axis):
        here, there = layout.block(axis, other), layout.block(other, axis)
        result[:, here] = sums.over(other, means[other][:, there], target)
        if covariances is None:
            continue
        result[:, here] -= sums.over(other, covariances[other][:, there, 0])
        for third in layout.others(axis):
            if third == other:
                continue
            shared = covariances[other][:, there, layout.block(other, third)]
            met = means[third][sums.index[:, third], layout.block(third, other)]
            for k in range(layout.rank):
                result[:, here] -= sums.over(other, shared[:, :, k], met[:, k])
    return result


def cell_means(
    layout: Layout, index: Index, means: Sequence[Floats], axes: Sequence[int]
) -> Floats:
    """The part of every cell that ``axes`` make, alone and in pairs: (E, D) -> (E,)."""
    total = np.zeros(len(index))
    for axis in axes:
        total += means[axis][index[:, axis], 0]
    for first, second in combinations(axes, 2):
        left = means[first][index[:, first], layout.block(first, second)]
        right = means[second][index[:, second], layout.block(second, first)]
        total += np.einsum("ek,ek->e", left, right)
    return total


def cell_variances(
    layout: Layout,
    index: Index,
    means: Sequence[Floats],
    covariances: Sequence[Floats],
    axes: Sequence[int],
) -> Floats:
    """The variance of ``cell_means`` where vectors of different members are independent.

    It is sum_d f_d' S_d f_d + sum_{d < e} tr(S_d S_e), with the blocks of S that meet; exact,
    since all mixed terms are odd in one of the vectors.
    """
    total = np.zeros(len(index))
    for axis in axes:
        columns = layout.columns(axis, axes)
        features = [np.ones((len(index), 1))]
        features += [
            means[other][index[:, other], layout.block(other, axis)]
            for other in axes
            if other != axis
        ]
        f = np.concatenate(features, axis=1)
        member = index[:, axis, None, None]
        spread = covariances[axis][member, columns[:, None], columns]  # (E, 1 + ..., 1 + ...)
        total += np.einsum("ek,ek->e", (spread @ f[:, :, None])[:, :, 0], f)
    for first, second in combinations(axes, 2):
        here, there = layout.block(first, second), layout.block(second, first)
        left = covariances[first][index[:, first], here, here]
        total += np.einsum("ekl,ekl->e", left, covariances[second][index[:, second], there, there])
    return total
