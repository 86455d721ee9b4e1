"""A part of a table that can be looked at: the members with the most cells, and what they hold."""

from __future__ import annotations

import numpy as np

from exchangeable.arrays.cells import UNKNOWN, Floats, Index
from exchangeable.data.table import Table


def busiest(table: Table, axis: int, most: int) -> Index:
    """Of an axis, so many members with the most cells, in the order of their numbers."""
    column = table.index[~np.isnan(table.values), axis]
    counts = np.bincount(column, minlength=table.shape[axis])
    return np.sort(np.argsort(-counts, kind="stable")[:most])


def observed_among(table: Table, chosen: tuple[Index, Index]) -> Floats:
    """Mean of the observed values of each pair of members of the first two axes, NaN if none."""
    places = [np.full(table.shape[axis], UNKNOWN) for axis in (0, 1)]
    for place, members in zip(places, chosen, strict=True):
        place[members] = np.arange(len(members))
    seen = ~np.isnan(table.values)
    at = np.stack([place[table.index[seen, axis]] for axis, place in enumerate(places)], axis=1)
    shown = (at != UNKNOWN).all(axis=1)
    total, number = np.zeros((2, len(chosen[0]), len(chosen[1])))
    np.add.at(total, tuple(at[shown].T), table.values[seen][shown])
    np.add.at(number, tuple(at[shown].T), 1)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)
