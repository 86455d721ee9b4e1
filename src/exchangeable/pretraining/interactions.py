"""Members of synthetic tables, and functions of them: low rank, clusters, distances, networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from exchangeable.arrays.cells import Floats, Index

CellFunction = Callable[[Index], Floats]
"""A function of the members of cells: (E, D) -> (E,), of mean 0 and variance about 1."""

_PROBE_CELLS = 2_000
"""Random cells on which a function's mean and variance are measured."""


@dataclass(frozen=True, eq=False)
class SyntheticAxis:
    """Members of an axis, some of them near relatives: sequels, or drugs of one series."""

    size: int
    family: Index  # (size,)
    closeness: float
    """Share of the variance of a member's draws that is common to its family."""
    vectors: list[Floats] = field(default_factory=list)
    """All that was drawn for the members, of which features are views."""

    @classmethod
    def draw(cls, rng: Generator, size: int) -> SyntheticAxis:
        if rng.random() < 0.5:
            return cls(size, np.arange(size), 0.0)
        families = round(log_uniform(rng, 2, max(3, size / 2)))
        shares = rng.dirichlet(np.full(families, log_uniform(rng, 0.3, 5.0)))
        return cls(size, rng.choice(families, size=size, p=shares), rng.uniform(0.2, 0.95))

    def draw_vectors(self, rng: Generator, rank: int) -> Floats:
        """Draw a standard normal vector for each member, correlated in families: (size, rank)."""
        drawn = rng.normal(size=(self.size, rank))
        if self.closeness:
            common = rng.normal(size=(int(self.family.max()) + 1, rank))[self.family]
            drawn = np.sqrt(self.closeness) * common + np.sqrt(1 - self.closeness) * drawn
        self.vectors.append(drawn)
        return drawn


def draw_interaction(
    rng: Generator, members: Sequence[SyntheticAxis]
) -> tuple[CellFunction, CellFunction]:
    """Draw a function of two axes or more, and another function of the same members.

    The second decides which cells are observed: members who like the same often look at the
    same, too, though for other reasons.
    """
    order = len(members)
    count = order if order < 3 or rng.random() < 0.3 else 2
    axes = tuple(sorted(rng.choice(order, size=count, replace=False).tolist()))
    kinds = [_low_rank, _low_rank, _low_rank, _clusters, _nearness, _network]
    make = kinds[int(rng.integers(len(kinds)))](rng, members, axes)
    probe = np.stack([rng.integers(axis.size, size=_PROBE_CELLS) for axis in members], axis=1)
    return _standardise(make(), probe), _standardise(make(), probe)


def _standardise(function: CellFunction, probe: Index) -> CellFunction:
    values = function(probe)
    centre, spread = values.mean(), values.std()
    return lambda index: (function(index) - centre) / max(spread, 1e-9)


def _low_rank(
    rng: Generator, members: Sequence[SyntheticAxis], axes: tuple[int, ...]
) -> Callable[[], CellFunction]:
    """Sums of products of the members' vectors: dense, sparse or nonnegative."""
    rank, decay = round(log_uniform(rng, 1, 30)), rng.uniform(0, 1.5)
    vectors = {axis: members[axis].draw_vectors(rng, rank) for axis in axes}
    kind = rng.random()
    if kind < 0.2:
        share = rng.uniform(0.1, 0.5)
        vectors = {axis: v * (rng.random(v.shape) < share) for axis, v in vectors.items()}
    elif kind < 0.35:
        vectors = {axis: np.abs(v) for axis, v in vectors.items()}

    def make() -> CellFunction:
        weights = rng.permutation(np.arange(1, rank + 1.0)) ** -decay

        def function(index: Index) -> Floats:
            products = weights
            for axis in axes:
                products = products * vectors[axis][index[:, axis]]
            return np.asarray(products.sum(axis=1))

        return function

    return make


def _clusters(
    rng: Generator, members: Sequence[SyntheticAxis], axes: tuple[int, ...]
) -> Callable[[], CellFunction]:
    """Members belong to clusters, and a value is drawn for each combination of clusters."""
    counts = [int(rng.integers(2, 13)) for _ in axes]
    shares = [rng.dirichlet(np.full(count, 1.5)) for count in counts]
    cluster = {
        axis: rng.choice(count, size=members[axis].size, p=share)
        for axis, count, share in zip(axes, counts, shares, strict=True)
    }

    def make() -> CellFunction:
        block = rng.normal(size=counts)
        return lambda index: block[tuple(cluster[axis][index[:, axis]] for axis in axes)]

    return make


def _nearness(
    rng: Generator, members: Sequence[SyntheticAxis], axes: tuple[int, ...]
) -> Callable[[], CellFunction]:
    """Members are points in space, and values are high where they are near each other."""
    rank = int(rng.integers(1, 5))
    points = {axis: members[axis].draw_vectors(rng, rank) for axis in axes}

    def make() -> CellFunction:
        power = rng.uniform(0.5, 1.0)

        def function(index: Index) -> Floats:
            cells = np.stack([points[axis][index[:, axis]] for axis in axes])
            return -(((cells - cells.mean(axis=0)) ** 2).sum(axis=(0, 2)) ** power)

        return function

    return make


def _network(
    rng: Generator, members: Sequence[SyntheticAxis], axes: tuple[int, ...]
) -> Callable[[], CellFunction]:
    """A random network with one hidden layer, of the members' vectors."""
    rank, width = int(rng.integers(1, 5)), 16
    vectors = {axis: members[axis].draw_vectors(rng, rank) for axis in axes}

    def make() -> CellFunction:
        first = rng.normal(size=(rank * len(axes), width)) * rng.uniform(0.7, 2)
        shift, last = rng.normal(size=width), rng.normal(size=width)

        def function(index: Index) -> Floats:
            cells = np.concatenate([vectors[axis][index[:, axis]] for axis in axes], axis=1)
            return np.asarray(np.tanh(cells @ first + shift) @ last)

        return function

    return make


def log_uniform(rng: Generator, least: float, most: float) -> float:
    """Draw a number whose logarithm is uniform."""
    return float(np.exp(rng.uniform(np.log(least), np.log(most))))
