"""The pattern of cells: places of members by which cells they have, whatever the values.

For every pair of axes the cells are counted in a matrix C (members by members), each entry divided
by the roots of its members' sizes:

    A = C_ij / sqrt((n_i + 1) (n_j + 1)) = sum_k s_k l_k r_k'

The places of the members are A r_k and A' l_k for the leading singular vectors but the first, which
tells no more than the sizes do, with the logarithm of the size beside them. The place of a new
member comes from its own cells alone, as the row of A that it would have times r_k.

Vectors count whose values a pattern drawn at random would not have. With E cells and K at most for
a pair of members, the entries of A vary then by

    v_ij = c (1 - c / K) / ((n_i + 1) (n_j + 1)),    c = n_i n_j / E

and all values but the first are about below the least z for which these have a positive solution:

    g_i = 1 / (z - sum_j v_ij h_j),    h_j = 1 / (z - sum_i v_ij g_i)

Where rows are nearly complete but for a few, those few have the largest places, and what a
regression finds in places of random patterns is noise. Of sparse tables, with a few cells for each
member, the equations give too much, and all vectors count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from exchangeable.baselines.singular_vectors import TOLERANCE, PairTable, leading_vectors
from exchangeable.runtime.cache import cached_property
from exchangeable.sums.cell_parts import CellPart
from exchangeable.sums.member_sums import MemberSums

VECTORS = 32
"""Singular vectors for each axis. On ML-100K 20 to 40 do as well, 10 worse, and 150 overfit."""

MIN_FILLED = 0.02
"""Share of the table that has cells, with less of which all vectors count. On coat with a tenth of
its cells, .008 of the table, random patterns have values up to .65, where .77 is expected, and with
the cells of ML-100K, .06, up to .24 as expected. The first is predicted .1 % worse without vectors,
and a tenth of ML-100K .4 %; 3 and 10 % of Davis .3 and .6 % better."""

SIZES_PER_OCTAVE = 4
"""Steps between a size and twice of it, members within which count as equal in random patterns."""

BISECTIONS, ITERATIONS, STILL = 6, 60, 1e-3
"""Steps that find the largest value of a random pattern to a hundredth, and the relative change
from which on iterations are at rest."""

MEMBERS_PER_VECTOR = 4
"""Members of the smaller axis for each vector: with fewer, vectors tell single members apart."""


class Scaling(NamedTuple):
    """Mean, deviation and range of the places of an axis's members with cells."""

    centre: Tensor  # (K,)
    deviation: Tensor  # (K,)
    low: Tensor  # (K,)
    high: Tensor  # (K,)


@dataclass(frozen=True, eq=False)
class Pattern:
    """The sizes of all members, and the singular vectors of every pair of axes."""

    sizes: tuple[Tensor, ...]  # (N_d,) each
    vectors: dict[tuple[int, int], Tensor]
    """Singular vectors of the members of the first axis, by it and the other of a pair: (N, K)."""
    scalings: tuple[Scaling, ...]

    @classmethod
    def of(cls, sums: Sequence[MemberSums], vectors: int = VECTORS) -> Pattern:
        """Decompose the pattern of the cells in ``sums``, one for each axis, in sequence."""
        order = len(sums)
        sizes = tuple(each.sizes for each in sums)
        count = max(1, vectors // max(order - 1, 1))
        pairs = {}
        for d, e in combinations(range(order), 2):
            pairs[d, e], pairs[e, d] = _decompose(sums, (d, e), count)
        plain = cls(sizes, pairs, ())
        return replace(plain, scalings=tuple(plain._measure(each) for each in sums))

    @cached_property
    def _scaled_vectors(self) -> dict[tuple[int, int], Tensor]:
        """The vectors over the roots of their members' sizes."""
        roots = [(sizes + 1).double().sqrt()[:, None] for sizes in self.sizes]
        return {axes: vectors / roots[axes[0]] for axes, vectors in self.vectors.items()}

    def _measure(self, sums: MemberSums) -> Scaling:
        places = self._places(sums)[sums.sizes > 0]
        ends = places.amin(dim=0), places.amax(dim=0)
        return Scaling(places.mean(dim=0), places.std(dim=0, correction=0), *ends)

    def describe(self, sums: MemberSums) -> Tensor:
        """Return the places of members, in deviations, from their own cells: (N, K).

        Members without cells have the average place, and those that came later none outside of
        the range of others: where all columns have a thousand cells, one with two would be a
        hundred deviations away, and its regression as far off.
        """
        scaling = self.scalings[sums.axis]
        varies = scaling.deviation > _MIN_DEVIATION
        inside = self._places(sums).clamp(scaling.low, scaling.high)
        away = (inside - scaling.centre) / torch.where(varies, scaling.deviation, 1.0)
        return away * varies * (sums.sizes > 0)[:, None]

    def _places(self, sums: MemberSums) -> Tensor:
        axis, sizes = sums.axis, sums.sizes.double()
        columns = [(sizes + 1).log()[:, None]]
        for other in range(len(self.sizes)):
            if other != axis:
                vectors = self._scaled_vectors[other, axis]
                # Members that came later have no vectors, and their cells count for nothing here.
                later = sums.rows_missing(other, vectors)
                if later:
                    vectors = torch.nn.functional.pad(vectors, (0, 0, 0, later))
                total = sums.over(other, vectors)
                columns.append(total / (sizes + 1).sqrt()[:, None])
        return torch.cat(columns, dim=1)


_MIN_DEVIATION = 1e-9


def _decompose(sums: Sequence[MemberSums], pair: tuple[int, int], count: int) -> list[Tensor]:
    """Find the leading singular vectors but the first of the pattern of two axes: (N, K) each."""
    count = min(count, min(len(sums[axis].with_cells) for axis in pair) // MEMBERS_PER_VECTOR)
    if count < 1:
        like = sums[0].sizes
        return [like.new_zeros((sums[axis].members, 0), dtype=torch.float64) for axis in pair]
    scales = [(sums[axis].sizes + 1.0).double().rsqrt() for axis in pair]

    def ones(part: CellPart) -> Tensor:
        return torch.ones(len(part), device=sums[0].device)

    # One more than is kept shows whether the last is tied: then it is left out, since its
    # rotation would depend on how members are numbered.
    left, values, right = leading_vectors(PairTable.of(sums, pair, ones, scales), count + 2)
    kept = torch.arange(1, min(count + 1, len(values)), device=values.device)
    if len(values) > count + 1:
        kept = kept[values[kept] - values[count + 1] > TOLERANCE * values[0]]
    least = max(TOLERANCE * float(values[0]), _largest_random_value(sums, pair))
    kept = kept[values[kept] > least]
    return [left[:, kept], right[:, kept]]


def _largest_random_value(sums: Sequence[MemberSums], pair: tuple[int, int]) -> float:
    """Return about the largest value but the first of a random pattern with the same sizes."""
    (rows, of_rows), (columns, of_columns) = (_count_sizes(sums[axis].sizes) for axis in pair)
    most = math.prod(len(each.with_cells) for each in sums if each.axis not in pair)
    if len(sums[0]) < MIN_FILLED * most * float(of_rows.sum() * of_columns.sum()):
        return 0.0
    expected = rows[:, None] * columns / len(sums[0])
    variances = expected * (1 - expected / most).clamp(min=0)
    variances /= (rows[:, None] + 1) * (columns + 1)
    by_row, by_column = variances * of_columns, (variances * of_rows[:, None]).T
    high = float(by_row.sum(1).max().sqrt() + by_column.sum(1).max().sqrt())
    low = high / 2
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _is_beyond(middle, by_row, by_column) else (middle, high)
    return high


def _count_sizes(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Return sizes of members with cells, the mean of about equal ones, and their numbers."""
    sizes = sizes[sizes > 0].double()
    step = (SIZES_PER_OCTAVE * sizes.log2()).round().long()
    count = step.bincount().double()
    total = torch.zeros_like(count).index_add_(0, step, sizes)
    return total[count > 0] / count[count > 0], count[count > 0]


def _is_beyond(value: float, by_row: Tensor, by_column: Tensor) -> bool:
    """Whether the equations have a solution for a value; iterations from below grow up to it."""
    h = by_row.new_zeros(by_row.shape[1])
    for _ in range(ITERATIONS):
        left = value - by_row @ h
        if not bool((left > 0).all()):
            return False
        left = value - by_column @ (1 / left)
        if not bool((left > 0).all()):
            return False
        before, h = h, 1 / left
        if bool((h - before).max() < STILL * h.max()):
            return True
    return True
