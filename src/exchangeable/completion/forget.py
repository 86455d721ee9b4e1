"""A table without some of its members or cells, as if they had never come.

Everything that was fitted depends on all cells: pools, priors, calibration, the scale, trained
weights. So nothing is subtracted: the rest of the table is fitted again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from exchangeable.arrays.cells import Index, Mask
from exchangeable.completion.fit import Fitted
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError
from exchangeable.values.scale import Scale


def table_without_members(table: Table, axis: int, codes: Index) -> Table:
    """Return the table without some members of an axis, and without their cells."""
    forgotten = np.isin(np.arange(table.shape[axis]), codes)
    axes = range(table.order) if table.joint else [axis]  # a member of a joint table is on both
    rows = ~np.any([forgotten[table.index[:, one]] for one in axes], axis=0)
    stay = _members_that_stay(table, rows)
    for one in axes:
        stay[one] = stay[one] & ~forgotten
    return _take(table, rows, stay)


def table_without_cells(table: Table, positions: Index) -> Table:
    """Return the table without observed cells, given by their positions."""
    rows = np.ones(len(table.values), dtype=bool)
    rows[np.flatnonzero(table.is_observed)[positions]] = False
    return _take(table, rows, _members_that_stay(table, rows))


def _members_that_stay(table: Table, rows: Mask) -> list[Mask]:
    """Return which members of each axis stay, if these rows do: (N_d,) each.

    A member whose rows are all gone would not have come without them, and tells that they were
    there. One that never had a row was named for itself.
    """
    stay = []
    for axis, size in enumerate(table.shape):
        own = slice(None) if table.joint else slice(axis, axis + 1)  # one set has cells on both
        columns = table.index[:, own].ravel(), table.index[rows, own].ravel()
        before, after = (np.bincount(column, minlength=size) > 0 for column in columns)
        stay.append(after | ~before)
    return stay


def _take(table: Table, rows: Mask, stay: list[Mask]) -> Table:
    """Keep some rows, and the members that stay; the scale is that of the values that are left."""
    vocabularies, columns = [], []
    for vocabulary, column, kept in zip(table.vocabularies, table.index.T, stay, strict=True):
        vocabularies.append(Vocabulary(vocabulary.decode(np.flatnonzero(kept))))
        columns.append((np.cumsum(kept) - 1)[column[rows]])
    values, scale = table.values[rows], table.scale
    if scale.kind == "levels" and not np.isnan(values).all():
        scale = Scale.of(values, scale.kind)
    left = replace(
        table,
        vocabularies=tuple(vocabularies),
        index=np.stack(columns, axis=1).astype(np.int64),
        values=values,
        scale=scale,
        times=None if table.times is None else table.times[rows],
        found=(),
        others=None,
        wide=None,
    )
    return replace(left, found=(left.summary(),))


def frames_of_features(fitted: Fitted, left: Table, axis: int | None) -> dict[str, Any] | None:
    """Return the features that members had, without those forgotten on an axis."""
    frames = {}
    for number, features in enumerate(fitted.features.axes):
        if features is None:
            continue
        name = fitted.table.axes[number]
        if not features.rows.columns:
            raise InputError(
                f"features of {name!r} were saved without their rows by an older version: fit the "
                f"rest of the table again"
            )
        rows = features.rows_of(left.vocabularies[number]) if number == axis else features.rows
        if len(rows):
            frames[name] = rows
    return frames or None
