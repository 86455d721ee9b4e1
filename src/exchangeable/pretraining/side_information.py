"""Side information of synthetic tables: features of members, and times with drift."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from exchangeable.arrays.cells import Floats, Index
from exchangeable.pretraining.interactions import SyntheticAxis, log_uniform

MAX_CATEGORIES = 12


def draw_features(rng: Generator, axes: Sequence[SyntheticAxis]) -> tuple[Floats | None, ...]:
    """Draw features for a third of the axes: views of the members, categories, and noise."""
    return tuple(_draw_axis_features(rng, axis) if rng.random() < 1 / 3 else None for axis in axes)


def _draw_axis_features(rng: Generator, axis: SyntheticAxis) -> Floats:
    kinds = [_noise, _views, _views, _categories, _families]
    blocks = [
        kinds[int(rng.integers(len(kinds)))](rng, axis) for _ in range(int(rng.integers(1, 4)))
    ]
    features = np.concatenate(blocks, axis=1)
    deviation = features.std(axis=0)
    return np.asarray((features - features.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0))


def _noise(rng: Generator, axis: SyntheticAxis) -> Floats:
    """Features that say nothing."""
    return rng.normal(size=(axis.size, round(log_uniform(rng, 1, 30))))


def _views(rng: Generator, axis: SyntheticAxis) -> Floats:
    """Mixtures of what members were drawn from, with noise."""
    vectors = np.concatenate(axis.vectors, axis=1)
    count = round(log_uniform(rng, 1, 30))
    mixing = rng.normal(size=(vectors.shape[1], count)) / np.sqrt(vectors.shape[1])
    return np.asarray(vectors @ mixing + rng.uniform(0, 2) * rng.normal(size=(axis.size, count)))


def _categories(rng: Generator, axis: SyntheticAxis) -> Floats:
    """A column for each category, which depends on what members were drawn from."""
    count = int(rng.integers(2, MAX_CATEGORIES + 1))
    vectors = np.concatenate(axis.vectors, axis=1)
    scores = vectors @ rng.normal(size=(vectors.shape[1], count)) / np.sqrt(vectors.shape[1])
    chosen = (scores + rng.uniform(0, 2) * rng.gumbel(size=scores.shape)).argmax(axis=1)
    return np.eye(count)[chosen]


def _families(rng: Generator, axis: SyntheticAxis) -> Floats:
    """A column for each of the largest families; the others have none."""
    sizes = np.bincount(axis.family)
    largest = np.argsort(-sizes, kind="stable")[:MAX_CATEGORIES]
    return np.asarray((axis.family[:, None] == largest[None, :]).astype(np.float64))


def draw_times(
    rng: Generator, index: Index, shape: tuple[int, ...]
) -> tuple[Floats | None, Floats]:
    """Draw times for a quarter of the tables, and drift (E,), which half of these have.

    Members of the first axis have cells in few sessions, in each of which their mood may differ.
    Members of other axes change slowly.
    """
    drift = np.zeros(len(index))
    if rng.random() > 0.25:
        return None, drift
    sessions = round(log_uniform(rng, 1, 30))
    starts = rng.uniform(size=(shape[0], sessions))
    session = (sessions * rng.random(len(index)) ** rng.uniform(1, 3)).astype(np.int64)
    times = starts[index[:, 0], session] + 0.002 * rng.random(len(index))
    if rng.random() < 0.5:
        moods = rng.normal(size=(shape[0], sessions))
        drift += rng.uniform(0, 0.5) * moods[index[:, 0], session]
        for axis, size in list(enumerate(shape))[1:]:
            slope, phase = rng.normal(size=size), rng.uniform(0, 2 * np.pi, size=size)
            member = index[:, axis]
            drift += rng.uniform(0, 0.4) * slope[member] * np.sin(3 * times + phase[member])
    return times, drift
