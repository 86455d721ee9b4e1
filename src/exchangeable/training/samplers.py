"""Samplers: which cells a training step sees.

A sampler is set up once per table, with the cells sorted by each axis, and then draws in time
proportional to the cells it visits. Draws are positions of cells, ascending.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from exchangeable.arrays.support import Support
from exchangeable.errors import InputError
from exchangeable.runtime.cache import cached_property

Positions = NDArray[np.int64]


class Sampler(Protocol):
    """Anything that draws positions of cells."""

    def draw(self, generator: np.random.Generator) -> Positions: ...

    def __len__(self) -> int:
        """Return the number of cells to draw from."""
        ...


@dataclass(frozen=True, eq=False)
class ByMember:
    """The cells of each member of an axis: ``cells[starts[n] : starts[n + 1]]`` for member n."""

    cells: Positions
    starts: Positions

    @classmethod
    def of(cls, column: Positions, members: int) -> ByMember:
        starts = np.zeros(members + 1, dtype=np.int64)
        np.cumsum(np.bincount(column, minlength=members), out=starts[1:])
        return cls(np.argsort(column, kind="stable"), starts)

    @property
    def degrees(self) -> Positions:
        return np.diff(self.starts)

    def of_members(self, members: Positions) -> Positions:
        """Return all cells of the given members, member after member."""
        starts, sizes = self.starts[members], self.degrees[members]
        ends = np.cumsum(sizes)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        return self.cells[np.repeat(starts, sizes) + within]


@dataclass(frozen=True, eq=False)
class _TableSampler:
    """Base of all samplers: the cells, and for each axis the cells of its members."""

    support: Support

    def __post_init__(self) -> None:
        if len(self.support) == 0:
            raise InputError("a sampler needs cells to draw from, but there are none")

    def __len__(self) -> int:
        return len(self.support)

    @cached_property
    def index(self) -> Positions:
        return self.support.index.cpu().numpy()

    @cached_property
    def by_member(self) -> tuple[ByMember, ...]:
        pairs = enumerate(self.support.shape)
        return tuple(ByMember.of(np.ascontiguousarray(self.index[:, a]), n) for a, n in pairs)


@dataclass(frozen=True, eq=False)
class Full(_TableSampler):
    """Draw all cells, each time."""

    def draw(self, generator: np.random.Generator) -> Positions:
        return np.arange(len(self), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class UniformCells(_TableSampler):
    """Draw ``size`` cells, each as likely as any other (section 3.3 of the paper)."""

    size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_size("size", self.size, len(self))

    def draw(self, generator: np.random.Generator) -> Positions:
        return np.sort(generator.choice(len(self), self.size, replace=False, shuffle=False))


@dataclass(frozen=True, eq=False)
class Conditional(_TableSampler):
    """Draw rows by their number of cells, then columns by their number of cells in those rows.

    All cells where the drawn rows and columns meet are returned, as in the paper; further axes
    follow in the same way. The paper calls it unbiased, but cells of busy rows and columns come
    much more often than others: ``RowsColumns`` is the unbiased form.
    """

    sizes: tuple[int, ...]
    """Number of members to draw of each axis."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sizes(self.sizes, self.support.shape)

    def draw(self, generator: np.random.Generator) -> Positions:
        first = self.by_member[0]
        rows = _draw_weighted(first.degrees, self.sizes[0], generator)
        cells = first.of_members(rows)
        for axis in range(1, self.support.order):
            column = self.index[cells, axis]
            counts = np.bincount(column, minlength=self.support.shape[axis])
            chosen = np.zeros(self.support.shape[axis], dtype=bool)
            chosen[_draw_weighted(counts, self.sizes[axis], generator)] = True
            cells = cells[chosen[column]]
        return np.sort(cells)


@dataclass(frozen=True, eq=False)
class RowsColumns(_TableSampler):
    """Draw members of each axis uniformly at random, and all cells where they meet.

    Every cell has the same probability, the product of sizes[d] / N_d.
    """

    sizes: tuple[int, ...]
    """Number of members to draw of each axis."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sizes(self.sizes, self.support.shape)

    def draw(self, generator: np.random.Generator) -> Positions:
        chosen = [
            generator.choice(members, size, replace=False, shuffle=False)
            for members, size in zip(self.support.shape, self.sizes, strict=True)
        ]
        # Start from the axis whose chosen members have the fewest cells to visit.
        visits = [int(b.degrees[c].sum()) for b, c in zip(self.by_member, chosen, strict=True)]
        start = int(np.argmin(visits))
        cells = self.by_member[start].of_members(chosen[start])
        for axis in [a for a in range(self.support.order) if a != start]:
            is_chosen = np.zeros(self.support.shape[axis], dtype=bool)
            is_chosen[chosen[axis]] = True
            cells = cells[is_chosen[self.index[cells, axis]]]
        return np.sort(cells)


@dataclass(frozen=True, eq=False)
class Neighbourhood(_TableSampler):
    """Draw a few random cells, then cells that share a member with them, hop after hop.

    In each hop every member that is reached for the first time adds at most ``fanout`` of its
    cells, chosen at random.
    """

    seeds: int
    hops: int = 1
    fanout: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_size("seeds", self.seeds, len(self))
        whole = isinstance(self.hops, Integral) and isinstance(self.fanout, Integral)
        if not whole or self.hops < 0 or self.fanout < 1:
            raise InputError(
                f"hops must be 0 or more and fanout 1 or more, but are {self.hops} and "
                f"{self.fanout}"
            )

    def draw(self, generator: np.random.Generator) -> Positions:
        drawn = generator.choice(len(self), self.seeds, replace=False, shuffle=False)
        reached = [np.empty(0, dtype=np.int64) for _ in self.by_member]
        for _ in range(self.hops):
            reached_cells = [drawn]
            for axis, by_member in enumerate(self.by_member):
                met = np.unique(self.index[drawn, axis])
                fresh = np.setdiff1d(met, reached[axis], assume_unique=True)
                reached[axis] = np.union1d(reached[axis], fresh)
                reached_cells.append(_sample_cells(by_member, fresh, self.fanout, generator))
            drawn = np.unique(np.concatenate(reached_cells))
        return np.sort(drawn)


def _draw_weighted(weights: Positions, size: int, generator: np.random.Generator) -> Positions:
    """Draw members one after the other, without replacement, in proportion to their weights.

    Exponential clocks whose rates are the weights do the same: the first to ring are drawn.
    """
    positive = np.flatnonzero(weights)
    size = min(size, len(positive))
    if size == len(positive):
        return positive
    clocks = generator.exponential(size=len(positive)) / weights[positive]
    return np.sort(positive[np.argpartition(clocks, size)[:size]])


def _sample_cells(
    by_member: ByMember, members: Positions, most: int, generator: np.random.Generator
) -> Positions:
    """Draw at most ``most`` random cells of each member."""
    cells = by_member.of_members(members)
    sizes = by_member.degrees[members]
    if not len(cells) or sizes.max() <= most:
        return cells
    group = np.repeat(np.arange(len(members)), sizes)
    permutation = np.lexsort((generator.random(len(cells)), group))
    rank = np.arange(len(cells)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return cells[permutation][rank < most]


def _check_size(name: str, size: int, most: int) -> None:
    if not isinstance(size, Integral) or not 1 <= size <= most:
        raise InputError(f"{name} must be between 1 and {most} cells, but is {size}")


def _check_sizes(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    listed = sizes if isinstance(sizes, tuple | list) else ()
    whole = len(listed) == len(shape) and all(isinstance(size, Integral) for size in listed)
    if not whole or not all(1 <= s <= n for s, n in zip(listed, shape, strict=True)):
        raise InputError(f"sizes must be between 1 and {shape} on each axis, but are {sizes}")
