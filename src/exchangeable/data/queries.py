"""Queries: cells to predict, read from a file."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from exchangeable.arrays.cells import Floats
from exchangeable.data.column_roles import match_axes
from exchangeable.data.frames import times_of
from exchangeable.data.other_columns import OtherColumns
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.files import text
from exchangeable.files.encoding import to_utf8
from exchangeable.files.source import Source, open_source
from exchangeable.files.text_parser import parse, parse_rows
from exchangeable.files.typed import is_excel, read_typed


def read_queries(
    path: Path, table: Table, encoding: str | None = None
) -> tuple[pl.DataFrame, Floats | None, OtherColumns]:
    """Read the labels of cells, in columns called as the axes or else the first, and the others.

    Times are those of the table's time column (R,), NaN where a row has none; None without it.
    """
    source = open_source(path)
    if not is_excel(source):
        source = to_utf8(str(path), source, encoding)
    frame = read_typed(str(path), source)
    if frame is None:
        frame = _read_text(str(path), source, table)
    try:
        columns = table.label_columns(frame)
    except InputError as error:
        raise InputError(f"{path}: {error.template}") from None
    if not len(frame):
        raise InputError(f"{path}: rows are needed, but there are none")
    labels = frame.select(pl.col(c).alias(a) for c, a in zip(columns, table.axes, strict=True))
    for axis in table.axes:
        if labels[axis].null_count():
            row = int(labels[axis].is_null().arg_true()[0]) + 1
            raise InputError(f"{path}: row {row}: a label is needed in {axis!r}, but it is empty")
    names = dict(zip(columns, table.axes, strict=True))
    order = [names.get(column, column) for column in frame.columns]
    others = OtherColumns.of_frame(frame, (*columns, table.value_name), order)
    return labels, _read_times(str(path), frame, table.time_name), others


def _read_times(name: str, frame: pl.DataFrame, time: str | None) -> Floats | None:
    """Return the times of rows (R,), as numbers; None where there is no such column."""
    if time is None or time not in frame.columns:
        return None
    return times_of(name, frame[time]).to_numpy(writable=True)


def _read_text(name: str, source: Source, table: Table) -> pl.DataFrame:
    """Read all columns as text; the first line is a header if it names an axis, or looks so."""
    headless = text.detect_layout(name, source, header=False)
    first, _ = parse(headless, dict.fromkeys(headless.layout.columns, pl.String))
    titles = [str(title).strip() for title in first.row(0)]
    if set(titles) & set(table.axes) or None not in match_axes(table.axes, titles):
        file = text.detect_layout(name, source, header=True)
    else:
        try:
            file = text.detect_layout(name, source)
        except InputError:  # one line alone, or names that repeat: no header
            file = headless
    frame, _ = parse_rows(file, dict.fromkeys(file.layout.columns, pl.String))
    return frame
