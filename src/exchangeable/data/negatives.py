"""Negatives: unobserved cells, drawn at random to stand beside positives."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from exchangeable.arrays.cells import UNKNOWN, Cells, Index, Mask, cell_keys
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.runtime.phrases import format_count
from exchangeable.values.scale import Scale


def observed_cells(table: Table, seed: int) -> tuple[Cells, tuple[str, ...]]:
    """Return the cells that have a value, and notes; add negatives where all are positives."""
    rows: Mask | slice = slice(len(table))  # no copy where rows without a value come last
    if np.isnan(table.values[rows]).any():
        rows = table.is_observed
    index, values = table.index[rows], table.values[rows]
    if table.scale.kind != "positives":
        times = None if table.times is None else table.times[rows]
        cells = Cells(index, values, table.shape, table.scale, times, table.joint)
        return cells, table.found
    # Nothing was observed of members without a cell, not even what they left out.
    members = [np.flatnonzero(np.bincount(index[:, axis])) for axis in range(table.order)]
    draws = np.random.default_rng(seed)
    if table.joint:
        members = [np.union1d(*members)] * 2
    negatives = draw_negatives_among(members, index, table.shape, len(index), draws)
    if table.leaves_out_diagonal:
        negatives = negatives[negatives[:, 0] != negatives[:, 1]]
    cells = Cells(
        np.concatenate([index, negatives]),
        np.concatenate([np.ones(len(index)), np.zeros(len(negatives))]),
        table.shape,
        Scale("binary", (0.0, 1.0)),
        joint=table.joint,
    )
    note = (
        f"only positives were observed, and {format_count(len(negatives), 'negative')} drawn among "
        f"the other cells: predictions are probabilities as if there were as many"
    )
    return cells, (*table.found, note)


def ranked_cells(table: Table) -> Cells:
    """Return the positives of a table with their strengths, as rankers read them."""
    rows = table.is_observed
    binary = Scale("binary", (0.0, 1.0))
    return Cells(table.index[rows], table.values[rows], table.shape, binary, joint=table.joint)


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


def draw_negatives_beside(index: Index, cells: Cells, generator: np.random.Generator) -> Index:
    """Draw one unobserved cell per new positive, with another member on the last axis."""
    others = index.copy()
    others[:, -1] = generator.integers(0, cells.shape[-1], len(index))
    keys = cell_keys(others, cells.shape)
    taken = cell_keys(cells.index, cells.shape)
    _, first = np.unique(keys, return_index=True)
    fresh = np.sort(first[~np.isin(keys[first], taken)])
    return others[fresh]
