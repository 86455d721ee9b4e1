"""Synthetic tables to pretrain a model on: draws from a distribution over exchangeable tables.

By the theorem of Aldous and Hoover an exchangeable table is f(whole, members, cell): a function
of something drawn once, something drawn for each member and something drawn for each cell. So a
draw is such a function: biases of members, interactions of several kinds, drift, noise, a scale,
and a reason why some cells are observed and others are not. Shares of the variance, sizes, ranks,
skews and habits are drawn as well, widely, so that real tables lie within.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.random import Generator

from exchangeable.arrays.cells import Floats, Index, cell_keys
from exchangeable.errors import InputError
from exchangeable.pretraining.interactions import (
    CellFunction,
    SyntheticAxis,
    draw_interaction,
    log_uniform,
)
from exchangeable.pretraining.side_information import draw_features, draw_times
from exchangeable.values.scale import Scale

SIZES = (5, 5_000)
"""Bounds of the number of members of an axis."""
CELLS_PER_MEMBER = (1.5, 300.0)
"""Bounds of the average number of cells of an axis's members."""
MIN_CELLS = 100
"""Smallest number of cells, unless a table has fewer places."""
_MAX_PLACES = 400_000
"""Largest number of places for which each place is considered in turn."""


@dataclass(frozen=True, eq=False)
class SyntheticTable:
    """A drawn table."""

    index: Index  # (E, D)
    values: Floats  # (E,)
    shape: tuple[int, ...]
    scale: Scale
    noise: float
    """Noise's share of the variance, before values were put on the scale."""
    times: Floats | None = None  # (E,)
    features: tuple[Floats | None, ...] = ()  # (N_d, P) by axis


def draw_table(seed: int | Sequence[int], order: int = 2, most: int = 60_000) -> SyntheticTable:
    """Draw a table with ``most`` cells at most; the same one for the same seed."""
    if order < 1 or most < 1:
        raise InputError(f"order and most must be 1 or more, but are {order} and {most}")
    rng = np.random.default_rng(seed)
    shape, cells = _draw_size(rng, order, most)
    axes = [SyntheticAxis.draw(rng, size) for size in shape]
    biases = [_draw_bias(rng, axis) for axis in axes]
    interactions = [draw_interaction(rng, axes) for _ in range(rng.integers(1, 4))]
    signal, noise = _draw_signal(rng, biases, [values for values, _ in interactions])
    further, _ = draw_interaction(rng, axes)
    related = [other for _, other in interactions]
    index = _draw_observed(rng, shape, cells, biases, related, further, signal)
    features = draw_features(rng, axes)
    times, drift = draw_times(rng, index, shape)
    latent = signal(index) + drift + np.sqrt(noise) * _draw_noise(rng, index, shape)
    latent = _stretch_by_member(rng, latent, index, shape)
    values, scale = _put_on_scale(rng, latent, index, shape)
    return SyntheticTable(index, values, shape, scale, noise, times, features)


def max_order(most: int) -> int:
    """Return the most axes with which any table of ``most`` cells has places that are numbered."""
    members = min(max(round(most / CELLS_PER_MEMBER[0]), SIZES[0]), SIZES[1])
    return next(axes for axes in count(1) if members ** (axes + 1) >= 2**63)


def _draw_size(rng: Generator, order: int, most: int) -> tuple[tuple[int, ...], int]:
    """Draw the members of each axis and the number of cells, few or many for each member."""
    least = MIN_CELLS if rng.random() < 0.3 else most / 10
    cells = log_uniform(rng, min(least, most), most)
    shape = tuple(
        round(min(max(cells / log_uniform(rng, *CELLS_PER_MEMBER), SIZES[0]), SIZES[1]))
        for _ in range(order)
    )
    return shape, max(1, round(min(cells, np.prod(np.array(shape, float)))))


# Values ----------------------------------------------------------------------------------


def _draw_bias(rng: Generator, axis: SyntheticAxis) -> Floats:
    """Draw a bias for each member: normal, skewed, or in two groups."""
    bias, size = axis.draw_vectors(rng, 1)[:, 0], axis.size
    kind = rng.random()
    if kind < 0.2:
        bias = np.exp(rng.uniform(0.3, 0.8) * bias) * rng.choice([-1, 1])
    elif kind < 0.3:
        bias = bias / 2 + 2 * (rng.random(size) < rng.uniform(0.1, 0.5))
    return (bias - bias.mean()) / max(bias.std(), 1e-9)


def _draw_signal(
    rng: Generator, biases: Sequence[Floats], interactions: Sequence[CellFunction]
) -> tuple[CellFunction, float]:
    """Draw all but the noise, and the variance of the noise: together they have variance 1."""
    of_biases = rng.gamma(1.0, size=len(biases))
    of_parts = rng.gamma(1.5 / len(interactions), size=len(interactions)) * rng.uniform(0, 3.0)
    of_noise = rng.gamma(1.5) + 0.05
    whole = of_biases.sum() + of_parts.sum() + of_noise
    of_biases, of_parts = np.sqrt(of_biases / whole), np.sqrt(of_parts / whole)

    def signal(index: Index) -> Floats:
        total = np.zeros(len(index))
        for axis, bias in enumerate(biases):
            total += of_biases[axis] * bias[index[:, axis]]
        for share, interaction in zip(of_parts, interactions, strict=True):
            total += share * interaction(index)
        return total

    return signal, float(of_noise / whole)


def _draw_noise(rng: Generator, index: Index, shape: tuple[int, ...]) -> Floats:
    """Draw noise of variance 1; some members or cells have more of it, and tails may be heavy."""
    noise = rng.normal(size=len(index))
    kind = rng.random()
    if kind < 0.3:
        freedom = rng.uniform(2.5, 8)
        noise = rng.standard_t(freedom, size=len(index)) / np.sqrt(freedom / (freedom - 2))
    elif kind < 0.6:
        level = np.exp(rng.uniform(0, 0.9) * rng.normal(size=len(index)))
        noise *= level / np.sqrt(np.mean(level**2))
    for axis, size in enumerate(shape):
        if rng.random() < 0.5:
            level = np.exp(rng.uniform(0, 0.5) * rng.normal(size=size))[index[:, axis]]
            noise *= level / np.sqrt(np.mean(level**2))
    return noise


# Which cells are observed ----------------------------------------------------------------


def _draw_observed(
    rng: Generator,
    shape: tuple[int, ...],
    count: int,
    biases: Sequence[Floats],
    related: Sequence[CellFunction],
    further: CellFunction,
    signal: CellFunction,
) -> Index:
    """Draw cells: more of active members, of members that match, and of high values."""
    activity = []
    for bias, size in zip(biases, shape, strict=True):
        along = rng.uniform(-0.3, 0.7)
        drawn = along * bias + np.sqrt(1 - along**2) * rng.normal(size=size)
        activity.append(rng.uniform(0, 2.7) * drawn)
    same = rng.uniform(0, 4.0) * (rng.random() < 0.9)
    other = rng.uniform(0, 1.5) * (rng.random() < 0.4)
    liked = rng.uniform(0, 2.0) * (rng.random() < 0.6)

    def affinity(index: Index) -> Floats:
        together = sum((function(index) for function in related), np.zeros(len(index)))
        total = same * together / np.sqrt(len(related)) + other * further(index)
        return np.clip(total + liked * signal(index), -6, 6)

    if np.prod(np.array(shape, float)) <= max(_MAX_PLACES, 4 * count):
        index = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)
        score = affinity(index) + rng.gumbel(size=len(index))
        for axis, active in enumerate(activity):
            score += active[index[:, axis]]
        chosen = np.argpartition(-score, count - 1)[:count]
        return np.asarray(index[np.sort(chosen)])
    return _draw_by_rejection(rng, shape, count, activity, affinity)


def _draw_by_rejection(
    rng: Generator,
    shape: tuple[int, ...],
    count: int,
    activity: Sequence[Floats],
    affinity: CellFunction,
) -> Index:
    """Propose cells by the activity of their members, and accept them by their affinity."""
    chances = [np.exp(active - active.max()) for active in activity]
    chances = [chance / chance.sum() for chance in chances]
    places = np.empty(0, np.int64)
    for _ in range(20):
        proposed = [rng.choice(len(chance), size=3 * count, p=chance) for chance in chances]
        index = np.stack(proposed, axis=1)
        fits = affinity(index)
        accepted = rng.random(len(index)) < np.exp(fits - np.quantile(fits, 0.9))
        places = np.union1d(places, cell_keys(index[accepted], shape))
        if len(places) >= count:
            break
    places = np.sort(rng.choice(places, size=min(count, len(places)), replace=False))
    return np.stack(np.unravel_index(places, shape), axis=1)


# Scales ----------------------------------------------------------------------------------


def _stretch_by_member(
    rng: Generator, latent: Floats, index: Index, shape: tuple[int, ...]
) -> Floats:
    """Let some members use more of the scale than others."""
    for axis, size in enumerate(shape):
        if rng.random() < 0.4:
            stretch = np.exp(rng.uniform(0, 0.4) * rng.normal(size=size))
            latent = latent * stretch[index[:, axis]]
    return latent


def _put_on_scale(
    rng: Generator, latent: Floats, index: Index, shape: tuple[int, ...]
) -> tuple[Floats, Scale]:
    """Draw a kind of scale, and turn latent values into values on it."""
    kind = rng.random()
    if kind < 0.55:
        levels = int(rng.choice([3, 4, 5, 5, 5, 5, 5, 6, 7, 8, 10, 10, 10, 11, 20]))
        return _to_levels(rng, latent, index, shape, levels)
    if kind < 0.63:
        return _to_levels(rng, latent, index, shape, 2)
    if kind < 0.72:
        return _to_percent(rng, latent, index, shape)
    return _to_real(rng, latent)


def _to_levels(
    rng: Generator, latent: Floats, index: Index, shape: tuple[int, ...], count: int
) -> tuple[Floats, Scale]:
    """Cut at quantiles whose shares are drawn; some members always give the highest level."""
    shares = rng.dirichlet(np.full(count, log_uniform(rng, 0.7, 5.0)))
    cuts = np.quantile(latent, np.cumsum(shares)[:-1])
    at = np.searchsorted(cuts, latent)
    if rng.random() < 0.3:
        always = rng.random(shape[0]) < rng.uniform(0, 0.06)
        at[always[index[:, 0]]] = count - 1
    if count >= 10 and rng.random() < 0.5:  # some give whole stars only
        coarse = rng.random(shape[0]) < rng.uniform(0, 0.7)
        at = np.where(coarse[index[:, 0]], np.minimum(at | 1, count - 1), at)
    levels = np.arange(1.0, count + 1)
    scale = Scale("binary" if count == 2 else "levels", tuple(levels.tolist()))
    return levels[_make_two_differ(at, count)], scale


def _to_percent(
    rng: Generator, latent: Floats, index: Index, shape: tuple[int, ...]
) -> tuple[Floats, Scale]:
    """Map to 0 to 100, where many members give tens only."""
    share = 1 / (1 + np.exp(-rng.uniform(0.7, 3.0) * (latent - rng.uniform(-1, 1))))
    tens = (rng.random(shape[0]) < rng.uniform(0, 1))[index[:, 0]]
    at = np.where(tens, 10 * np.rint(10 * share), np.rint(100 * share)).astype(np.int64)
    levels = np.arange(101.0)
    return levels[_make_two_differ(at, 101)], Scale("levels", tuple(levels.tolist()))


def _to_real(rng: Generator, latent: Floats) -> tuple[Floats, Scale]:
    """Leave values as they are, bend them, give them a long tail or a floor, or make counts."""
    kind = rng.random()
    if kind < 0.25:
        latent = np.sinh(rng.uniform(0.3, 1.2) * latent)
    elif kind < 0.4:
        latent = np.exp(rng.uniform(0.3, 1.2) * latent)
    elif kind < 0.5:
        latent = np.ceil(np.exp(rng.uniform(0.5, 1.8) * np.clip(latent, -6, 6) + rng.uniform(0, 4)))
    elif kind < 0.75:
        latent = np.maximum(latent, np.quantile(latent, rng.uniform(0.05, 0.7)))
    return latent, Scale("real")


def _make_two_differ(at: Index, count: int) -> Index:
    """Change one level where all are equal: a table of equal values teaches nothing."""
    if at.min() == at.max():
        at = at.copy()
        at[0] = (at[0] + 1) % count
    return at
