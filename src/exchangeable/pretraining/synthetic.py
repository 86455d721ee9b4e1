"""Synthetic tables: draws from a prior over all exchangeable tables, to pretrain a model on.

By the theorem of Aldous and Hoover an exchangeable table is f(whole, members, cell): a function
of something drawn once, something drawn for each member and something drawn for each cell. So a
draw is such a function: biases of members, interactions of several kinds, noise, a scale, and a
reason why some cells are observed and others are not. Shares of the variance, sizes, ranks, skews
and habits are drawn as well, widely, so that real tables lie within.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from exchangeable.arrays.cells import Floats, Index
from exchangeable.errors import InputError
from exchangeable.values.scale import Scale

Part = Callable[[Index], Floats]
"""What is a function of a cell's members: (E, D) -> (E,), of mean 0 and variance 1 or so."""

SIZES = (5, 5_000)
"""Members of an axis."""
CELLS_PER_MEMBER = (1.5, 300.0)
"""On average over the members of an axis."""
FEWEST = 100
"""Cells, unless a table has fewer places."""
_ALL = 400_000
"""Places up to which each is considered in turn."""
_PROBED = 2_000


@dataclass(frozen=True, eq=False)
class SyntheticTable:
    """A drawn table."""

    index: Index  # (E, D)
    values: Floats  # (E,)
    shape: tuple[int, ...]
    scale: Scale
    noise: float
    """Share of the variance that is each cell's own, before values were put on the scale."""


def draw_table(seed: int | Sequence[int], order: int = 2, most: int = 60_000) -> SyntheticTable:
    """A table with ``most`` cells at most; the same one for the same seed."""
    if order < 1 or most < 1:
        raise InputError(f"order and most must be 1 or more, but are {order} and {most}")
    rng = np.random.default_rng(seed)
    shape, wanted = _size(rng, order, most)
    axes = [_Axis.drawn(rng, size) for size in shape]
    biases = [_bias(rng, axis) for axis in axes]
    interactions = [_interaction(rng, axes) for _ in range(rng.integers(1, 4))]
    signal, noise = _signal(rng, biases, [part for part, _ in interactions])
    further, _ = _interaction(rng, axes)
    together = [other for _, other in interactions]
    index = _observed(rng, shape, wanted, biases, together, further, signal)
    own = signal(index) + np.sqrt(noise) * _noise(rng, index, shape)
    values, scale = _on_a_scale(rng, _by_habit(rng, own, index, shape), index, shape)
    return SyntheticTable(index, values, shape, scale, noise)


def _size(rng: Generator, order: int, most: int) -> tuple[tuple[int, ...], int]:
    """Members of each axis and cells: few or many cells for each member, whatever their number."""
    least = FEWEST if rng.random() < 0.3 else most / 10
    cells = _between(rng, min(least, most), most)
    shape = tuple(
        round(min(max(cells / _between(rng, *CELLS_PER_MEMBER), SIZES[0]), SIZES[1]))
        for _ in range(order)
    )
    return shape, max(1, round(min(cells, np.prod(np.array(shape, float)))))


# Members ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Axis:
    """Members of an axis, some of whom are near relatives: sequels, or drugs of one series."""

    size: int
    family: Index  # (size,)
    closeness: float
    """Of what is drawn for a member, the share of the variance that is its family's."""

    @classmethod
    def drawn(cls, rng: Generator, size: int) -> _Axis:
        if rng.random() < 0.5:
            return cls(size, np.arange(size), 0.0)
        families = round(_between(rng, 2, max(3, size / 2)))
        shares = rng.dirichlet(np.full(families, _between(rng, 0.3, 5.0)))
        return cls(size, rng.choice(families, size=size, p=shares), rng.uniform(0.2, 0.95))

    def vectors(self, rng: Generator, rank: int) -> Floats:
        """Of each member, drawn: (size, rank)."""
        own = rng.normal(size=(self.size, rank))
        if not self.closeness:
            return own
        common = rng.normal(size=(int(self.family.max()) + 1, rank))[self.family]
        return np.asarray(np.sqrt(self.closeness) * common + np.sqrt(1 - self.closeness) * own)


# Values ----------------------------------------------------------------------------------


def _bias(rng: Generator, axis: _Axis) -> Floats:
    """Of each member: alike, skewed, or in two groups."""
    drawn, size = axis.vectors(rng, 1)[:, 0], axis.size
    kind = rng.random()
    if kind < 0.2:
        drawn = np.exp(rng.uniform(0.3, 0.8) * drawn) * rng.choice([-1, 1])
    elif kind < 0.3:
        drawn = drawn / 2 + 2 * (rng.random(size) < rng.uniform(0.1, 0.5))
    return _standard(drawn)


def _interaction(rng: Generator, members: Sequence[_Axis]) -> tuple[Part, Part]:
    """Of two axes or more, by one of the kinds; and another function of the same members.

    Who likes the same often looks at the same, too, though that is another matter.
    """
    order = len(members)
    number = order if order < 3 or rng.random() < 0.3 else 2
    axes = tuple(sorted(rng.choice(order, size=number, replace=False).tolist()))
    kinds = [_low_rank, _low_rank, _low_rank, _clusters, _nearness, _network]
    made = kinds[int(rng.integers(len(kinds)))](rng, members, axes)
    probe = np.stack([rng.integers(axis.size, size=_PROBED) for axis in members], axis=1)
    return _scaled(made(), probe), _scaled(made(), probe)


def _scaled(part: Part, probe: Index) -> Part:
    found = part(probe)
    centre, spread = found.mean(), found.std()
    return lambda index: (part(index) - centre) / max(spread, 1e-9)


def _low_rank(
    rng: Generator, members: Sequence[_Axis], axes: tuple[int, ...]
) -> Callable[[], Part]:
    """Sums of products of the members' vectors, dense, few entries at a time, or none below 0."""
    rank, decay = round(_between(rng, 1, 30)), rng.uniform(0, 1.5)
    vectors = {axis: members[axis].vectors(rng, rank) for axis in axes}
    kind = rng.random()
    if kind < 0.2:
        share = rng.uniform(0.1, 0.5)
        vectors = {axis: own * (rng.random(own.shape) < share) for axis, own in vectors.items()}
    elif kind < 0.35:
        vectors = {axis: np.abs(own) for axis, own in vectors.items()}

    def made() -> Part:
        weights = rng.permutation(np.arange(1, rank + 1.0)) ** -decay

        def part(index: Index) -> Floats:
            products = weights
            for axis in axes:
                products = products * vectors[axis][index[:, axis]]
            return np.asarray(products.sum(axis=1))

        return part

    return made


def _clusters(
    rng: Generator, members: Sequence[_Axis], axes: tuple[int, ...]
) -> Callable[[], Part]:
    """Members are of sorts, and what sorts have with each other is drawn."""
    sorts = [int(rng.integers(2, 13)) for _ in axes]
    shares = [rng.dirichlet(np.full(number, 1.5)) for number in sorts]
    own = {
        axis: rng.choice(number, size=members[axis].size, p=share)
        for axis, number, share in zip(axes, sorts, shares, strict=True)
    }

    def made() -> Part:
        block = rng.normal(size=sorts)
        return lambda index: block[tuple(own[axis][index[:, axis]] for axis in axes)]

    return made


def _nearness(
    rng: Generator, members: Sequence[_Axis], axes: tuple[int, ...]
) -> Callable[[], Part]:
    """Members that are near each other have much: of some ideal point, from one side or both."""
    rank = int(rng.integers(1, 5))
    places = {axis: members[axis].vectors(rng, rank) for axis in axes}

    def made() -> Part:
        power = rng.uniform(0.5, 1.0)

        def part(index: Index) -> Floats:
            cells = np.stack([places[axis][index[:, axis]] for axis in axes])
            return -(((cells - cells.mean(axis=0)) ** 2).sum(axis=(0, 2)) ** power)

        return part

    return made


def _network(rng: Generator, members: Sequence[_Axis], axes: tuple[int, ...]) -> Callable[[], Part]:
    """A function of the members' vectors that is drawn, of one hidden layer."""
    rank, width = int(rng.integers(1, 5)), 16
    vectors = {axis: members[axis].vectors(rng, rank) for axis in axes}

    def made() -> Part:
        first = rng.normal(size=(rank * len(axes), width)) * rng.uniform(0.7, 2)
        shift, last = rng.normal(size=width), rng.normal(size=width)

        def part(index: Index) -> Floats:
            cells = np.concatenate([vectors[axis][index[:, axis]] for axis in axes], axis=1)
            return np.asarray(np.tanh(cells @ first + shift) @ last)

        return part

    return made


def _signal(
    rng: Generator, biases: Sequence[Floats], interactions: Sequence[Part]
) -> tuple[Part, float]:
    """All but the noise, and its share of the variance: together they have variance 1."""
    of_biases = rng.gamma(1.0, size=len(biases))
    of_parts = rng.gamma(1.5 / len(interactions), size=len(interactions)) * rng.uniform(0, 3.0)
    of_noise = rng.gamma(1.5) + 0.05
    whole = of_biases.sum() + of_parts.sum() + of_noise
    of_biases, of_parts = np.sqrt(of_biases / whole), np.sqrt(of_parts / whole)

    def signal(index: Index) -> Floats:
        found = np.zeros(len(index))
        for axis, bias in enumerate(biases):
            found += of_biases[axis] * bias[index[:, axis]]
        for share, part in zip(of_parts, interactions, strict=True):
            found += share * part(index)
        return found

    return signal, float(of_noise / whole)


def _noise(rng: Generator, index: Index, shape: tuple[int, ...]) -> Floats:
    """Of variance 1, but some members or cells have more of it, and tails may be heavy."""
    drawn = rng.normal(size=len(index))
    kind = rng.random()
    if kind < 0.3:
        freedom = rng.uniform(2.5, 8)
        drawn = rng.standard_t(freedom, size=len(index)) / np.sqrt(freedom / (freedom - 2))
    elif kind < 0.6:
        own = np.exp(rng.uniform(0, 0.9) * rng.normal(size=len(index)))
        drawn *= own / np.sqrt(np.mean(own**2))
    for axis, size in enumerate(shape):
        if rng.random() < 0.5:
            own = np.exp(rng.uniform(0, 0.5) * rng.normal(size=size))[index[:, axis]]
            drawn *= own / np.sqrt(np.mean(own**2))
    return drawn


# Which cells are observed ----------------------------------------------------------------


def _observed(
    rng: Generator,
    shape: tuple[int, ...],
    wanted: int,
    biases: Sequence[Floats],
    interactions: Sequence[Part],
    further: Part,
    signal: Part,
) -> Index:
    """Active members more often, cells that fit together more often, and what is liked too."""
    activity = []
    for bias, size in zip(biases, shape, strict=True):
        along = rng.uniform(-0.3, 0.7)
        drawn = along * bias + np.sqrt(1 - along**2) * rng.normal(size=size)
        activity.append(rng.uniform(0, 2.2) * drawn)
    same = rng.uniform(0, 4.0) * (rng.random() < 0.9)
    other = rng.uniform(0, 1.5) * (rng.random() < 0.4)
    liked = rng.uniform(0, 2.0) * (rng.random() < 0.6)

    def fitting(index: Index) -> Floats:
        together = sum((part(index) for part in interactions), np.zeros(len(index)))
        found = same * together / np.sqrt(len(interactions)) + other * further(index)
        return np.clip(found + liked * signal(index), -6, 6)

    if np.prod(np.array(shape, float)) <= max(_ALL, 4 * wanted):
        index = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)
        chance = fitting(index) + rng.gumbel(size=len(index))
        for axis, own in enumerate(activity):
            chance += own[index[:, axis]]
        chosen = np.argpartition(-chance, wanted - 1)[:wanted]
        return np.asarray(index[np.sort(chosen)])
    return _by_proposals(rng, shape, wanted, activity, fitting)


def _by_proposals(
    rng: Generator,
    shape: tuple[int, ...],
    wanted: int,
    activity: Sequence[Floats],
    fitting: Part,
) -> Index:
    """Members are drawn by how active they are, and cells kept by how well they fit."""
    chances = [np.exp(own - own.max()) for own in activity]
    chances = [own / own.sum() for own in chances]
    found = np.empty(0, np.int64)
    for _ in range(20):
        drawn = [rng.choice(len(own), size=3 * wanted, p=own) for own in chances]
        index = np.stack(drawn, axis=1)
        fits = fitting(index)
        kept = rng.random(len(index)) < np.exp(fits - np.quantile(fits, 0.9))
        found = np.union1d(found, np.ravel_multi_index(tuple(index[kept].T), shape))
        if len(found) >= wanted:
            break
    found = np.sort(rng.choice(found, size=min(wanted, len(found)), replace=False))
    return np.stack(np.unravel_index(found, shape), axis=1)


# Scales ----------------------------------------------------------------------------------


def _by_habit(rng: Generator, own: Floats, index: Index, shape: tuple[int, ...]) -> Floats:
    """Some members use more of the scale than others."""
    for axis, size in enumerate(shape):
        if rng.random() < 0.4:
            own = own * np.exp(rng.uniform(0, 0.4) * rng.normal(size=size))[index[:, axis]]
    return own


def _on_a_scale(
    rng: Generator, own: Floats, index: Index, shape: tuple[int, ...]
) -> tuple[Floats, Scale]:
    kind = rng.random()
    if kind < 0.55:
        number = int(rng.choice([3, 4, 5, 5, 5, 5, 5, 6, 7, 8, 10, 10, 10, 11, 20]))
        return _on_levels(rng, own, index, shape, number)
    if kind < 0.63:
        return _on_levels(rng, own, index, shape, 2)
    if kind < 0.72:
        return _percent(rng, own, index, shape)
    return _real(rng, own)


def _on_levels(
    rng: Generator, own: Floats, index: Index, shape: tuple[int, ...], number: int
) -> tuple[Floats, Scale]:
    """Cut where shares of the cells that are drawn fall; some members always give the highest."""
    shares = rng.dirichlet(np.full(number, _between(rng, 0.7, 5.0)))
    cuts = np.quantile(own, np.cumsum(shares)[:-1])
    at = np.searchsorted(cuts, own)
    if rng.random() < 0.3:
        always = rng.random(shape[0]) < rng.uniform(0, 0.06)
        at[always[index[:, 0]]] = number - 1
    if number >= 10 and rng.random() < 0.5:  # some give whole stars only
        coarse = rng.random(shape[0]) < rng.uniform(0, 0.7)
        at = np.where(coarse[index[:, 0]], np.minimum(at | 1, number - 1), at)
    levels = np.arange(1.0, number + 1)
    scale = Scale("binary" if number == 2 else "levels", tuple(levels.tolist()))
    return levels[_two_at_least(at, number)], scale


def _percent(
    rng: Generator, own: Floats, index: Index, shape: tuple[int, ...]
) -> tuple[Floats, Scale]:
    """From 0 to 100, where many members give tens only."""
    place = 1 / (1 + np.exp(-rng.uniform(0.7, 3.0) * (own - rng.uniform(-1, 1))))
    tens = (rng.random(shape[0]) < rng.uniform(0, 1))[index[:, 0]]
    at = np.where(tens, 10 * np.rint(10 * place), np.rint(100 * place)).astype(np.int64)
    levels = np.arange(101.0)
    return levels[_two_at_least(at, 101)], Scale("levels", tuple(levels.tolist()))


def _real(rng: Generator, own: Floats) -> tuple[Floats, Scale]:
    """As they are, bent, with a long tail on one side, counted, or with a floor."""
    kind = rng.random()
    if kind < 0.25:
        own = np.sinh(rng.uniform(0.3, 1.2) * own)
    elif kind < 0.4:
        own = np.exp(rng.uniform(0.3, 1.2) * own)
    elif kind < 0.5:
        own = np.ceil(np.exp(rng.uniform(0.5, 1.8) * np.clip(own, -6, 6) + rng.uniform(0, 4)))
    elif kind < 0.75:
        own = np.maximum(own, np.quantile(own, rng.uniform(0.05, 0.7)))
    return own, Scale("real")


def _two_at_least(at: Index, number: int) -> Index:
    """Equal values say nothing."""
    if at.min() == at.max():
        at = at.copy()
        at[0] = (at[0] + 1) % number
    return at


def _between(rng: Generator, least: float, most: float) -> float:
    """Even in its logarithm."""
    return float(np.exp(rng.uniform(np.log(least), np.log(most))))


def _standard(drawn: Floats) -> Floats:
    return (drawn - drawn.mean()) / max(drawn.std(), 1e-9)
