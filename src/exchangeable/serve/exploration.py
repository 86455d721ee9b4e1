"""Parts of a table to look at: cells of some members, the observed and the predicted values.

A part has rows, members of one axis, and columns, members of another. Of a large table it has the
members with the most cells, unless others are chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exchangeable.arrays.cells import UNKNOWN, Floats, Index
from exchangeable.completion.completer import Completer
from exchangeable.data.summary import busiest_members
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of
from exchangeable.errors import InputError
from exchangeable.predictors.base import COVERAGE, MEAN, interval_ends, read_predictions
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.serve.engine import Engine
from exchangeable.serve.snapshot import Snapshot
from exchangeable.storage.facts import Facts, Label

MAX_CELLS = 40_000
"""Maximum number of cells in a part of a table: 0.2 s of reading, and 1 MB of JSON."""
CELLS_PER_READ = 8_000
"""Cells that are predicted before the next look at whether the client is still there."""


def explore(
    engine: Engine,
    axes: Sequence[str] | None,
    chosen: Sequence[Sequence[Label] | None],
    given: Mapping[str, Label],
    progress: Progress = SILENT,
) -> tuple[dict[str, Any], Snapshot]:
    """Read a part of a served table.

    ``axes`` are those of rows and columns, by default the first two that are not ``given``;
    ``chosen`` are their members, None for those with the most cells.
    """
    snapshot, facts = engine.snapshot, engine.store.facts
    completer = snapshot.ready
    shown = _shown_axes(facts, axes, given)
    fixed = {
        axis: int(_codes(snapshot, facts, axis, [given[name]])[0])
        for axis, name in enumerate(facts.axes)
        if name in given
    }
    codes = [
        None if labels is None else _codes(snapshot, facts, axis, labels)
        for axis, labels in zip(shown, chosen, strict=True)
    ]
    present = [_present(snapshot, axis) for axis in shown]
    members = choose_members(completer.table_, shown, codes, present)
    return build_picture(completer, shown, members, fixed, progress), snapshot


def choose_members(
    table: Table,
    axes: tuple[int, int],
    chosen: Sequence[Index | None] = (None, None),
    present: Sequence[Index | None] = (None, None),
) -> tuple[Index, Index]:
    """Take the members of rows and columns, as many as ``MAX_CELLS`` allows.

    Members that are not ``chosen`` are those with the most cells among the ``present`` ones.
    """
    sizes = [
        table.shape[axis] if codes is None else len(codes)
        for axis, codes in zip(axes, chosen, strict=True)
    ]
    rows, columns = sizes
    if rows * columns > MAX_CELLS:
        root = math.isqrt(MAX_CELLS)
        free = [codes is None for codes in chosen]
        if free == [True, True]:
            rows = min(rows, max(root, MAX_CELLS // columns))
            columns = min(columns, MAX_CELLS // rows)
        elif free == [False, True] and rows <= MAX_CELLS:
            columns = MAX_CELLS // rows
        elif free == [True, False] and columns <= MAX_CELLS:
            rows = MAX_CELLS // columns
        else:
            raise InputError(
                f"at most {MAX_CELLS:,} cells are shown, but {rows:,} x {columns:,} were chosen"
            )
    taken = []
    for axis, codes, among, size in zip(axes, chosen, present, (rows, columns), strict=True):
        if codes is None:
            codes = busiest_members(table, axis, size)
            codes = codes if among is None else codes[np.isin(codes, among)]
        taken.append(codes)
    return taken[0], taken[1]


def build_picture(
    completer: Completer,
    axes: tuple[int, int],
    members: tuple[Index, Index],
    fixed: Mapping[int, int] | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Observed and predicted values of all pairs of members, the others being ``fixed``."""
    table, fixed = completer.table_, fixed or {}
    shape = (len(members[0]), len(members[1]))
    index = np.empty((math.prod(shape), table.order), dtype=np.int64)
    grids = np.meshgrid(*members, indexing="ij")
    for axis, grid in zip(axes, grids, strict=True):
        index[:, axis] = grid.ravel()
    for axis, code in fixed.items():
        index[:, axis] = code
    parts = []
    for start in range(0, len(index), CELLS_PER_READ):
        progress.at(start / len(index), "predicting")
        rows = index[start : start + CELLS_PER_READ]
        ends = interval_ends(COVERAGE)
        parts.append(read_predictions(completer.predictor_, rows, MEAN, *ends))
    columns = [np.concatenate(part).reshape(shape) for part in zip(*parts, strict=True)]
    columns = columns or [np.empty(shape)] * 3
    names = ("mean", "low", "high")
    return {
        "rows": _labels(table, axes[0], members[0]),
        "columns": _labels(table, axes[1], members[1]),
        "observed": _to_lists(_observed(table, axes, members, fixed)),
        **{name: _to_lists(column) for name, column in zip(names, columns, strict=True)},
    }


def _observed(
    table: Table, axes: tuple[int, int], members: tuple[Index, Index], fixed: Mapping[int, int]
) -> Floats:
    """Observed values of pairs of members, NaN where there is none."""
    rows = table.is_observed
    for axis, code in fixed.items():
        rows = rows & (table.index[:, axis] == code)
    places = []
    for axis, codes in zip(axes, members, strict=True):
        place = np.full(table.shape[axis], UNKNOWN)
        place[codes] = np.arange(len(codes))
        places.append(place)
        rows = rows & (place[table.index[:, axis]] != UNKNOWN)
    observed = np.full((len(members[0]), len(members[1])), np.nan)
    index = table.index[rows]
    observed[places[0][index[:, axes[0]]], places[1][index[:, axes[1]]]] = table.values[rows]
    return observed


def _labels(table: Table, axis: int, codes: Index) -> list[Label]:
    labels = table.vocabularies[axis].decode(codes)
    return labels.to_list() if labels.dtype.is_integer() else [str(label) for label in labels]


def _to_lists(values: Floats) -> list[list[float | None]]:
    return [[None if math.isnan(v) else round(v, 4) for v in row] for row in values.tolist()]


def _shown_axes(
    facts: Facts, axes: Sequence[str] | None, given: Mapping[str, Label]
) -> tuple[int, int]:
    """Numbers of the axes of rows and columns; all others must be given."""
    unknown = [name for name in (*given, *(axes or ())) if name not in facts.axes]
    if unknown:
        raise InputError(f"axes are {', '.join(facts.axes)}, but one named is {unknown[0][:60]!r}")
    free = [name for name in facts.axes if name not in given]
    shown = free if axes is None else list(axes)
    if sorted(shown) != sorted(free) or len(shown) != 2:
        raise InputError(
            f"two axes are shown and all others given, but {', '.join(shown) or 'none'} of "
            f"{', '.join(free) or 'none'} would be shown"
        )
    return facts.axes.index(shown[0]), facts.axes.index(shown[1])


def _codes(snapshot: Snapshot, facts: Facts, axis: int, labels: Sequence[Label]) -> Index:
    """Codes of members, which must be there, each once."""
    table = snapshot.ready.table_
    normalised = [facts.normalise(axis, label) for label in labels]
    codes = table.vocabularies[axis].encode(column_of(table.axes[axis], normalised))
    for label, code in zip(normalised, codes, strict=True):
        if code == UNKNOWN or (axis, label) in snapshot.deleted_members:
            raise InputError(f"{facts.axes[axis]} {label!r} is not in the table")
    if len(np.unique(codes)) < len(codes):
        raise InputError(f"every {facts.axes[axis]} must be named once, but one comes twice")
    return codes


def _present(snapshot: Snapshot, axis: int) -> Index | None:
    """Codes of the members of an axis that were not deleted; None if none was."""
    deleted = [label for where, label in snapshot.deleted_members if where == axis]
    if not deleted:
        return None
    table = snapshot.ready.table_
    gone = table.vocabularies[axis].encode(column_of(table.axes[axis], deleted))
    return np.setdiff1d(np.arange(table.shape[axis]), gone)
