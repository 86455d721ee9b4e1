"""Negatives: unobserved cells, drawn at random to stand beside positives."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from exchangeable.arrays.cells import UNKNOWN, Index, cell_keys
from exchangeable.errors import InputError


def draw_negatives(
    index: Index, shape: tuple[int, ...], count: int, generator: np.random.Generator
) -> Index:
    """Draw unobserved cells, uniformly and without replacement: (count, D).

    Fewer are returned where fewer are left.
    """
    total = math.prod(shape)
    if total > 2**62:
        raise InputError(f"cells to draw among must be fewer than 2^62, but the shape is {shape}")
    observed = np.unique(cell_keys(index, shape))
    count = min(count, total - len(observed))
    if count * 2 > total - len(observed):  # most of what is left: list it
        free = np.setdiff1d(np.arange(total), observed, assume_unique=True)
        drawn = generator.choice(free, count, replace=False)
    else:
        drawn = np.empty(0, dtype=np.int64)
        while len(drawn) < count:
            more = generator.integers(0, total, 2 * (count - len(drawn)) + 16)
            drawn = np.concatenate([drawn, more[~np.isin(more, observed)]])
            _, first = np.unique(drawn, return_index=True)
            drawn = drawn[np.sort(first)]
        drawn = drawn[:count]
    return np.stack(np.unravel_index(drawn, shape), axis=1).astype(np.int64)


def draw_negatives_among(
    members: Sequence[Index],
    index: Index,
    shape: tuple[int, ...],
    count: int,
    generator: np.random.Generator,
) -> Index:
    """Draw negatives as ``draw_negatives`` does, from the given members of each axis only."""
    numbers = [np.full(size, UNKNOWN) for size in shape]
    for renumbered, codes in zip(numbers, members, strict=True):
        renumbered[codes] = np.arange(len(codes))
    inside = np.stack([new[index[:, axis]] for axis, new in enumerate(numbers)], axis=1)
    inside = inside[(inside != UNKNOWN).all(axis=1)]
    drawn = draw_negatives(inside, tuple(len(codes) for codes in members), count, generator)
    return np.stack([codes[drawn[:, axis]] for axis, codes in enumerate(members)], axis=1)
