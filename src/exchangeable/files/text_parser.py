"""Parse delimited text with polars, and explain where and why it fails."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import islice

import numpy as np
import polars as pl

from exchangeable.errors import InputError
from exchangeable.files import bad_lines
from exchangeable.files.text import TextFile

Types = dict[str, type[pl.DataType] | pl.DataType]


def parse(file: TextFile, types: Types) -> tuple[pl.DataFrame, TextFile]:
    """Parse the named columns as the given types; raise with its number if a line does not fit.

    If a column of numbers holds anything else, all columns are texts. Quotes in the midst of a
    field are part of the text. polars does not read them so, and a file that has them is rewritten
    with every field quoted.
    """
    if bad_lines.has_stray_quotes(file) and bad_lines.first_misfit(file) is None:
        file = bad_lines.without_bad_lines(file)  # all are good
    layout = file.layout
    last = layout.columns[-1]
    types = {last: pl.String, **types}
    try:
        frame = _read_csv(file, types)
    except pl.exceptions.NoDataError:
        raise InputError(f"{layout.name}: rows are needed, but there are none") from None
    except pl.exceptions.PolarsError as error:
        if any(kind != pl.String for kind in types.values()):
            return parse(file, dict.fromkeys(types, pl.String))
        raise _explain_failure(file, error) from None
    empty = frame[last].is_null()
    short = bad_lines.first_short(file, empty.arg_true(), len(frame)) if empty.any() else None
    if short is not None:
        raise InputError(
            f"{layout.name}: line {short[0]}: {len(layout.columns)} fields are needed, but there "
            f"are {short[1]}"
        )
    return frame, file


def parse_rows(file: TextFile, types: Types) -> tuple[pl.DataFrame, TextFile]:
    """Parse without blank lines."""
    frame, file = parse(file, types)
    filled = frame.select(~pl.all_horizontal(pl.all().is_null())).to_series()
    return filter_rows(frame, file, filled)


def parse_start(file: TextFile, rows: int) -> pl.DataFrame | None:
    """Parse the first lines as texts; None if one is bad, or a field goes over several lines."""
    source, layout = file.source, file.layout
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as lines:
        start = b"".join(islice(lines, layout.before_rows + rows))
    try:
        types: Types = dict.fromkeys(layout.columns, pl.String)
        return parse_rows(replace(file, source=start, row_lines=None, kept_rows=None), types)[0]
    except InputError:
        return None


def filter_rows(
    frame: pl.DataFrame, file: TextFile, rows: pl.Series
) -> tuple[pl.DataFrame, TextFile]:
    """Select rows by mask; the file keeps the line and the position of each."""
    if rows.all():
        return frame, file
    lines, kept = file.row_lines, file.kept_rows
    if lines is None:
        lines = bad_lines.line_numbers(file)
    if kept is None:
        kept = np.arange(len(frame))
    mask = rows.to_numpy()
    return frame.filter(rows), replace(file, row_lines=lines[mask], kept_rows=kept[mask])


def _read_csv(file: TextFile, types: Types) -> pl.DataFrame:
    layout = file.layout
    positions = sorted(layout.columns.index(name) for name in types)
    source = io.BytesIO(file.source) if isinstance(file.source, bytes) else file.source
    names = [f"column_{position}" for position in range(len(layout.columns))]
    return pl.read_csv(
        source,
        has_header=False,
        skip_lines=layout.before_rows,
        separator=layout.inner,
        quote_char='"' if layout.quoted else None,
        columns=positions,
        missing_columns="insert",
        schema={
            **dict.fromkeys(names, pl.String),
            **{names[layout.columns.index(name)]: kind for name, kind in types.items()},
        },
    ).rename({names[position]: layout.columns[position] for position in positions})


def _explain_failure(file: TextFile, error: Exception) -> InputError:
    """Say which line polars could not parse, and why."""
    layout = file.layout
    misfit = bad_lines.first_misfit(file)
    if misfit is None:
        return InputError(f"{layout.name}: cannot be parsed ({str(error).splitlines()[0]})")
    line, fields = misfit
    if fields == 0:
        return InputError(f"{layout.name}: line {line}: a quote is opened and not closed")
    return InputError(
        f"{layout.name}: line {line}: {len(layout.columns)} fields are needed, but there are "
        f"{fields}"
    )
