"""Cells that come more than once: find them by one sort of the cells' keys, and merge them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import Floats, Index, cell_keys
from exchangeable.data.columns import Columns
from exchangeable.data.frames import parse_times
from exchangeable.data.options import Duplicates
from exchangeable.data.other_columns import OtherColumns
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError, option, where_offered
from exchangeable.runtime.phrases import format_count

Rows = NDArray[np.int64] | slice

_EVERY_ROW = slice(None)
_TEXT = (pl.String, pl.Categorical, pl.Enum)


def merge_duplicates(
    columns: Columns,
    others: OtherColumns,
    index: Index,
    values: Floats,
    vocabularies: Sequence[Vocabulary],
    duplicates: Duplicates,
    advice: str = "",
) -> tuple[Rows, Rows, Floats, tuple[str, ...]]:
    """Merge rows of the same cell, so that each cell has one value.

    Returns the rows that stay, the rows that their times come from, their values, and notes. An
    error has ``advice`` before that about duplicates, unless a column may be an axis.
    """
    shape = tuple(len(vocabulary) for vocabulary in vocabularies)
    if math.prod(shape) > 2**63 - 1:
        raise InputError(
            f"{columns.name}: at most 2^63 cells can be numbered, but the shape is {shape}"
        )
    repeated, extra_rows, queried = _find_repeated(index, values, shape)
    empty = f"{format_count(queried, 'row')} without a value, of cells that have one elsewhere"
    notes = (empty,) if queried else ()
    if not extra_rows:
        return _EVERY_ROW, _EVERY_ROW, values, notes
    rows, key = _rows_of(repeated, index, values, shape)
    if duplicates == "error":
        row = int(rows[int((~key.is_first_distinct()).arg_true()[0])])
        labels = [v.decode(index[row : row + 1, a])[0] for a, v in enumerate(vocabularies)]
        advice = _axis_advice(others, [v.labels.name for v in vocabularies], rows, key) or advice
        choices = (
            f"{option('duplicates')} merges them by mean, last, first, max, sum or count (how "
            f"often each comes)"
        )
        if (values[rows] == 1).all():  # pairs without a value, for one
            choices += where_offered(f"; {option('scale', 'positives')} beside it keeps a ranking")
        raise InputError(
            f"{columns.name}: {columns.where(row)}: every cell may come once, but "
            f"{tuple(labels)} comes again; {advice}{choices}"
        )
    frame = pl.DataFrame({"key": key, "value": values[rows], "row": rows})
    value, row_number = pl.col("value"), pl.col("row")
    merged_value, time_source = {
        "mean": (value.mean(), row_number.last()),
        "max": (value.max(), row_number.get(value.arg_max())),
        "first": (value.first(), row_number.first()),
        "last": (value.last(), row_number.last()),
        "sum": (value.sum(), row_number.last()),
        "count": (value.sum(), row_number.last()),  # each row has the value 1
    }[duplicates]
    merged = frame.group_by("key", maintain_order=True).agg(
        merged_value, row_number.first(), time_source.alias("source")
    )
    stays = np.ones(len(values), dtype=bool)
    stays[rows] = False
    stays[merged["row"].to_numpy()] = True
    remaining = np.flatnonzero(stays)
    new_values, source = values[remaining], remaining.copy()
    positions = np.searchsorted(remaining, merged["row"].to_numpy())
    new_values[positions] = merged["value"].to_numpy()
    source[positions] = merged["source"].to_numpy()
    note = f"{format_count(extra_rows, 'duplicate cell')} merged ({duplicates})"
    return remaining, source, new_values, (note, *notes)


def _axis_advice(others: OtherColumns, axes: Sequence[str], rows: Index, key: pl.Series) -> str:
    """Name a column of texts that tells the rows of repeated cells apart: it may be an axis."""
    texts = [name for name, kind in others.types.items() if kind in _TEXT]
    frame = others.open()(rows).select(texts)
    for name in texts:
        column = frame[name]
        apart = pl.DataFrame([key, column.rename("label")]).is_unique().all()
        if apart and not column.null_count() and parse_times(column) is None:
            return where_offered(
                f"if {name!r} is an axis, choose {option('axes', (*axes, name))}, otherwise "
            )
    return ""


def _find_repeated(index: Index, values: Floats, shape: tuple[int, ...]) -> tuple[Index, int, int]:
    """Return the keys of repeated cells, the rows too many, and the queries of observed cells.

    The keys of all cells are sorted in place: a hash table would take several times their memory.
    """
    keys, missing = cell_keys(index, shape), np.isnan(values)
    queries = keys[missing]
    keys[missing] = -1  # comes first
    keys.sort()
    keys = keys[len(queries) :]
    again = keys[1:] == keys[:-1]
    repeated = np.unique(keys[1:][again])
    if not len(queries) or not len(keys):
        return repeated, int(again.sum()), 0
    positions = np.searchsorted(keys, queries).clip(max=len(keys) - 1)
    return repeated, int(again.sum()), int((keys[positions] == queries).sum())


def _rows_of(
    repeated: Index, index: Index, values: Floats, shape: tuple[int, ...]
) -> tuple[Index, pl.Series]:
    """Return the rows with a value of these cells, ascending, and the key of each."""
    keys = cell_keys(index, shape)
    is_repeated = pl.Series(keys).is_in(pl.Series(repeated).implode()).to_numpy()
    rows = np.flatnonzero(is_repeated & ~np.isnan(values))
    return rows, pl.Series("key", keys[rows])
