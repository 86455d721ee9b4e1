"""Build tables from frames, files, text and numbered cells, as ``TableOptions`` ask for."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl

from exchangeable.arrays.cells import Floats, Index
from exchangeable.data.column_roles import Roles, guess_roles
from exchangeable.data.columns import Columns
from exchangeable.data.doubts import (
    FIRST_ROWS,
    WIDE_CASE,
    doubt_columns,
    doubt_table,
    number_columns,
    suspect_wide,
)
from exchangeable.data.duplicates import Rows, merge_duplicates
from exchangeable.data.frames import frame_of, parse_times, times_of, with_times, with_values
from exchangeable.data.joint import check_joint_axes, share_vocabulary
from exchangeable.data.numerals import Numerals, may_have_thousands_points
from exchangeable.data.options import Duplicates, TableOptions
from exchangeable.data.other_columns import OtherColumns
from exchangeable.data.table import Table, free_name
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.data.wide import (
    WideForm,
    detect_wide,
    may_be_wide,
    starts_wide,
)
from exchangeable.errors import InputError, option, where_offered
from exchangeable.files import bad_lines, text, text_parser
from exchangeable.files.encoding import to_utf8
from exchangeable.files.parquet import is_parquet, read_start, read_whole
from exchangeable.files.source import Source, open_source
from exchangeable.files.text import TextFile
from exchangeable.files.typed import is_excel, read_typed
from exchangeable.runtime.phrases import did_you_mean, format_count
from exchangeable.values.scale import Scale

MIN_PARALLEL_ROWS = 1 << 15
"""Rows from which on labels are numbered in threads; a thread takes .1 ms to start, and 2 on a busy
machine."""

_DEFAULTS = TableOptions()


def table_from_file(path: str | Path, options: TableOptions = _DEFAULTS) -> Table:
    """Read a file: delimited text, Parquet, Excel or JSON, plain, gzip or zip."""
    return table_from_source(str(path), open_source(Path(path)), options)


def table_from_source(name: str, source: Source, options: TableOptions = _DEFAULTS) -> Table:
    """Read a file that is not compressed, or the bytes of one; errors call it ``name``."""
    if is_parquet(source):
        return _table_from_parquet(name, source, options)
    if not is_excel(source):
        source = to_utf8(name, source, options.encoding)
    frame = read_typed(name, source)
    if frame is not None:
        wide = detect_wide(name, frame, options, titled=True)
        if wide is not None:
            return _table_from_wide(name, wide, "polars", options)
        return _table_from_columns(name, frame, "polars", options, titled=True)
    named = [c for c in (*(options.axes or ()), options.value, options.time) if isinstance(c, str)]
    file = text.detect_layout(
        name,
        source,
        separator=options.separator,
        header=options.header,
        titles=[title for title in named if not title.isdecimal()],
    )
    return table_from_text(file, options)


def _table_from_parquet(name: str, source: Source, options: TableOptions) -> Table:
    """Read a Parquet file block by block."""
    columns = Columns.of_parquet(name, source)
    titles = list(columns.types)
    if may_be_wide(titles, options, titled=True):
        start = read_start(name, source, FIRST_ROWS)
        if starts_wide(name, start, options, titled=True):
            wide = detect_wide(name, read_whole(name, source), options, titled=True)
            if wide is not None:
                return _table_from_wide(name, wide, "polars", options)
    numbers = frozenset(title for title, kind in columns.types.items() if kind.is_numeric())
    roles = guess_roles(name, titles, options, titled=True, numbers=numbers)
    if roles.time_is_guessed and roles.time is not None:
        first = next(columns.blocks(roles.time), None)
        if first is None or parse_times(first) is None:
            roles = roles.without_time()
    others = OtherColumns.of_parquet(name, source, columns.types, roles.returned)
    numerals = _numerals(name, roles, options, titled=True)
    columns = columns.as_numbers(roles.value, roles.time, numerals)
    return _build(columns, others, "polars", roles, options, numerals)


def table_from_text(file: TextFile, options: TableOptions = _DEFAULTS) -> Table:
    """Parse text whose layout has been detected, or is known beforehand."""
    layout = file.layout
    if options.skip_bad_lines:
        file = bad_lines.without_bad_lines(file)
    start = text_parser.parse_start(file, FIRST_ROWS)
    if may_be_wide(layout.columns, options, titled=layout.header):
        form: dict[str, Any] = {
            "titled": layout.header,
            "guess_commas": layout.may_have_decimal_commas,
        }
        if starts_wide(layout.name, start, options, **form):
            texts, _ = text_parser.parse_rows(file, dict.fromkeys(layout.columns, pl.String))
            wide = detect_wide(layout.name, texts, options, **form)
            if wide is not None:
                return _table_from_wide(layout.name, wide, "polars", options)
    numbers = frozenset() if start is None else number_columns(start)
    roles = guess_roles(layout.name, layout.columns, options, titled=layout.header, numbers=numbers)
    numerals = replace(
        _numerals(layout.name, roles, options, titled=layout.header),
        from_text=True,
        guess_commas=layout.may_have_decimal_commas,
    )
    types: dict[str, Any] = dict.fromkeys(roles.axes, pl.String)
    if roles.value is not None:
        types[roles.value] = pl.Float64 if numerals.parsed_by_polars else pl.String
    if roles.time is not None:
        types[roles.time] = pl.String
    frame, file = text_parser.parse_rows(file, types)
    if roles.value is not None:
        frame, file = _read_values(frame, file, roles.value, numerals, options.skip_bad_lines)
    frame, roles = _read_times(layout.name, frame, roles, file)
    others = OtherColumns.of_text(file, roles.returned)
    columns = Columns.of_frame(layout.name, frame, file)
    return _build(columns, others, "polars", roles, options, numerals)


def _read_values(
    frame: pl.DataFrame, file: TextFile, value: str, numerals: Numerals, skip: bool
) -> tuple[pl.DataFrame, TextFile]:
    """Convert the column of values to numbers; leave out rows where it is none, if asked."""
    name = file.layout.name
    column = frame[value]
    if numerals.doubts_points and column.dtype.is_float() and may_have_thousands_points(column):
        texts, _ = text_parser.parse(file, {value: pl.String})
        kept = slice(None) if file.kept_rows is None else file.kept_rows
        frame = frame.with_columns(texts[value][kept])
    if not skip:
        where = Columns.of_frame(name, frame, file).where
        return frame.with_columns(numerals.convert(name, frame[value], where)), file
    numbers, wrong = numerals.split(name, frame[value])
    wrong |= numbers.is_infinite().fill_null(False)
    file = replace(file, bad=file.bad + int(wrong.sum()))
    return text_parser.filter_rows(frame.with_columns(numbers), file, ~wrong)


def table_from_frame(
    data: Any, values: Any = None, options: TableOptions = _DEFAULTS, times: Any = None
) -> Table:
    """Convert a frame, an array or a sparse matrix; with ``values`` every column is an axis."""
    frame, native = frame_of(data)
    titled = native not in ("numpy", "scipy") or values is not None
    notes: tuple[str, ...] = ()
    if values is not None and options.wide:
        raise InputError("a wide table holds its own values, but others came beside it")
    if values is not None:
        array = np.asarray(values)
        frame, options, notes = with_values(frame, array, options, titled=native != "numpy")
    if times is not None:
        frame, options = with_times(frame, times, options)
    if native != "scipy":
        wide = detect_wide("data", frame, options, titled=titled)
        if wide is not None:
            return _table_from_wide("data", wide, native, options)
    table = _table_from_columns("data", frame, native, options, titled=titled)
    return replace(table, found=(*table.found[:1], *notes, *table.found[1:]))


def _table_from_wide(name: str, wide: WideForm, native: str, options: TableOptions) -> Table:
    """Build the table of a wide one's cells; those without a value are to be predicted."""
    cells = wide.cells()
    roles = Roles(tuple(cells.columns), wide.axes, wide.value_name, None)
    others = OtherColumns.of_frame(cells, cells.columns)
    numerals = Numerals.of(name, options)
    table = _build(Columns.of_frame(name, cells), others, native, roles, options, numerals)
    found = (str(wide), *wide.notes, *doubt_columns(wide.columns, wide.values), table.summary())
    return replace(table, others=None, wide=wide, found=found)


def _table_from_columns(
    name: str, frame: pl.DataFrame, native: str, options: TableOptions, *, titled: bool
) -> Table:
    """Find the roles of a frame's columns, and convert values and times to numbers."""
    numbers = number_columns(frame)
    roles = guess_roles(name, frame.columns, options, titled=titled, numbers=numbers)
    others = OtherColumns.of_frame(frame, roles.returned)
    numerals = _numerals(name, roles, options, titled=titled)
    columns = {axis: frame[axis] for axis in roles.axes}
    if roles.value is not None:
        columns[roles.value] = numerals.convert(name, frame[roles.value])
    if roles.time is not None:
        columns[roles.time] = frame[roles.time]
    used, roles = _read_times(name, pl.DataFrame(columns), roles)
    return _build(Columns.of_frame(name, used), others, native, roles, options, numerals)


def _numerals(name: str, roles: Roles, options: TableOptions, *, titled: bool) -> Numerals:
    """Choose how values are read; a guessed column of texts may be an axis."""
    numerals = Numerals.of(name, options)
    if not roles.value_is_guessed or roles.value is None:
        return numerals
    axes = (*roles.axes, roles.value)
    advice = f"{option('axes', axes)} takes it for an axis, {option('value')} names another value"
    if not titled:
        numbers = tuple(roles.columns.index(axis) + 1 for axis in axes)
        advice = (
            f"{option('header', True)} takes the first line for titles, "
            f"{option('axes', numbers)} it for an axis"
        )
    return replace(numerals, advice=advice)


def table_from_cells(
    labels: Mapping[str, pl.Series],
    index: Index,
    values: Floats,
    *,
    scale: Scale | None = None,
    value_name: str = "rating",
) -> Table:
    """Label coordinates (R, D); ``labels`` are all members of each axis, with a cell or not."""
    vocabularies = tuple(Vocabulary(members.rename(axis)) for axis, members in labels.items())
    scale = Scale.of(values) if scale is None else scale
    table = Table(tuple(labels), vocabularies, index, values, scale, value_name)
    return replace(table, found=(table.summary(),))


def _read_times(
    name: str, frame: pl.DataFrame, roles: Roles, file: TextFile | None = None
) -> tuple[pl.DataFrame, Roles]:
    """Convert the column of times to numbers; one that was guessed may turn out to be none."""
    if roles.time is None:
        return frame, roles
    times = parse_times(frame[roles.time])
    if roles.time_is_guessed and (times is None or times.null_count() == len(times)):
        return frame.drop(roles.time), roles.without_time()
    if times is None:
        where = Columns.of_frame(name, frame, file).where
        times = times_of(name, frame[roles.time], where)
    return frame.with_columns(times), roles


def _build(
    columns: Columns,
    others: OtherColumns,
    native: str,
    roles: Roles,
    options: TableOptions,
    numerals: Numerals,
) -> Table:
    """Number the labels, merge duplicates and find the scale."""
    duplicates = options.duplicates
    if duplicates not in get_args(Duplicates):
        choices = ", ".join(get_args(Duplicates))
        raise InputError(
            f"duplicates must be one of {choices}, but is {duplicates!r}"
            f"{did_you_mean(str(duplicates), get_args(Duplicates))}"
        )
    if columns.rows == 0:
        raise InputError(f"{columns.name}: rows are needed, but there are none")
    if options.joint:
        check_joint_axes(roles.axes)
    index = np.empty((len(roles.axes), columns.rows), dtype=np.int64).T
    numbering = [partial(columns.labels, axis, index[:, a]) for a, axis in enumerate(roles.axes)]
    if columns.rows < MIN_PARALLEL_ROWS:
        values, times = _read_numbers(columns, roles)
        vocabularies = tuple(number() for number in numbering)
    else:
        with ThreadPoolExecutor(2) as pool:  # both cores: numbering the labels is the slow part
            futures = [pool.submit(number) for number in numbering]
            values, times = _read_numbers(columns, roles)
            vocabularies = tuple(future.result() for future in futures)
    if values is None:
        values = np.ones(columns.rows)
    if options.joint:
        from_text = columns.file is not None
        vocabularies, index = share_vocabulary(vocabularies, index, from_text=from_text)
    suspected = suspect_wide(roles, options, vocabularies, columns.rows)
    wide = where_offered(f"{WIDE_CASE}, choose {option('wide', True)}, otherwise ")
    advice = wide if suspected else ""
    rows, source, values, merge_notes = merge_duplicates(
        columns, others, index, values, vocabularies, duplicates, advice
    )
    index = index[rows]
    table = Table(
        axes=roles.axes,
        vocabularies=vocabularies,
        index=index,
        values=values,
        scale=Scale.of(values, options.scale),
        value_name=free_name(roles.axes, "count") if duplicates == "count" else roles.value,
        times=None if times is None else times[source],
        time_name=roles.time,
        native=native,
        units=options.units,
        joint=options.joint,
        categories={
            axis: columns.types[axis]
            for axis in roles.axes
            if isinstance(columns.types[axis], pl.Categorical | pl.Enum)
        },
        # Where no value is missing nothing is filled in, and a file need not be kept for it.
        others=_select_rows(others, rows) if np.isnan(values).any() else None,
    )
    file = columns.file
    skipped = (f"{format_count(file.bad, 'bad line')} skipped",) if file and file.bad else ()
    notes = (*(file.notes if file else ()), *numerals.notes, *skipped, *merge_notes)
    if suspected:
        notes = (f"{WIDE_CASE}, {option('wide', True)} reads them all", *notes)
    return replace(table, found=(str(roles), *notes, *doubt_table(table, roles), table.summary()))


def _read_numbers(columns: Columns, roles: Roles) -> tuple[Floats | None, Floats | None]:
    """Return the values and the times of all rows, None where there is no column of them."""
    value, time = (
        None if column is None else columns.numbers(column) for column in (roles.value, roles.time)
    )
    return value, time


def _select_rows(others: OtherColumns, rows: Rows) -> OtherColumns:
    """Keep the rows that stay when duplicates are merged."""
    return others if isinstance(rows, slice) else replace(others, rows=rows)
