"""Frames of any kind in, polars inside, the same kind out, by narwhals; and columns as times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from exchangeable.arrays.cells import Index
from exchangeable.data.options import TableOptions
from exchangeable.data.vocabulary import column_of
from exchangeable.errors import InputError, option
from exchangeable.files.titles import check_titles

MIN_AXES = 2
"""Columns of labels that are left where one that equals the values is not an axis."""


def frame_of(data: Any) -> tuple[pl.DataFrame, str]:
    """Convert any frame or array to a polars frame, and return the name of its kind."""
    if isinstance(data, np.ma.MaskedArray):
        masked, data = np.ma.getmaskarray(data), data.data.astype(object)
        data[masked] = None
    if isinstance(data, np.ndarray | list | tuple):
        array = np.asarray(data, dtype=object if isinstance(data, list | tuple) else None)
        if array.shape == (0,):
            raise InputError("cells are needed, but none came")
        if array.ndim != 2:
            raise InputError(f"an array must have shape (rows, columns), but has {array.shape}")
        names = [f"column {position}" for position in range(1, array.shape[1] + 1)]
        columns = {name: column_of(name, array[:, i]) for i, name in enumerate(names)}
        return pl.DataFrame(columns), "numpy"
    if hasattr(data, "tocoo"):
        coo = data.tocoo()
        names = [f"axis {position}" for position in range(1, len(coo.coords) + 1)]
        columns = {n: pl.Series(n, np.asarray(c)) for n, c in zip(names, coo.coords, strict=True)}
        return pl.DataFrame({**columns, "value": np.asarray(coo.data)}), "scipy"
    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        raise InputError(
            f"a pandas, polars or pyarrow frame, a numpy array or a scipy sparse matrix is "
            f"needed, but this is a {type(data).__name__}"
        ) from None
    except nw.exceptions.DuplicateError:
        raise InputError("column names must differ, but some come twice") from None
    if len({str(c) for c in frame.columns}) != len(frame.columns):
        raise InputError("column names must differ, but some come twice")
    check_titles("the table", map(str, frame.columns))
    # Not frame[c]: a pandas column may be named by a number, which would be taken for a position.
    pairs = zip(frame.columns, frame.iter_columns(), strict=True)
    columns = {str(name): _polars_series(column, str(name)) for name, column in pairs}
    return pl.DataFrame(columns), str(frame.implementation)


def _polars_series(column: Any, name: str) -> pl.Series:
    if column.dtype == nw.Object:
        return column_of(name, column.to_list())
    if column.dtype == nw.Unknown and not column.is_null().all():
        raise InputError(
            f"numbers, texts, dates or booleans are needed in {name!r}; convert it first"
        )
    try:
        return column.to_polars().rename(name)
    except Exception as error:  # each library of frames has its own kinds of errors
        raise InputError(
            f"numbers, texts, dates or booleans are needed in {name!r}, but it holds "
            f"{column.dtype} ({type(error).__name__})"
        ) from None


def times_of(
    name: str, column: pl.Series, where: Callable[[int], str] = lambda row: f"row {row + 1}"
) -> pl.Series:
    """Convert a column to floats, dates to seconds; raise with the first row that is neither.

    Errors call the source of the column ``name``, and a row as ``where`` does.
    """
    times = parse_times(column)
    if times is not None:
        return times
    if column.dtype != pl.String and not column.dtype.is_numeric():
        raise InputError(
            f"{name}: numbers or dates are needed in {column.name!r}, but it holds {column.dtype}"
        )
    row = _first_bad_row(column)
    raise InputError(
        f"{name}: {where(row)}: a finite number, or a date written as the others, is needed in "
        f"{column.name!r}, but this is {column[row]!r}"
    )


def parse_times(column: pl.Series) -> pl.Series | None:
    """Convert a column to floats, dates to seconds; None if it holds neither numbers nor dates."""
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype == pl.String:
        column = _strip(column)
        numbers = _finite(column)
        dates = None if numbers.null_count() == column.null_count() else parse_dates(column)
        column, texts = numbers if dates is None else dates, column
        if column.null_count() > texts.null_count():
            return None
    if column.dtype in (pl.Date, pl.Datetime):
        column = column.cast(pl.Datetime("us")).cast(pl.Int64) / 1e6
    if column.dtype != pl.Null and not column.dtype.is_numeric():
        return None
    numbers = column.cast(pl.Float64).fill_nan(None)
    return None if numbers.is_infinite().any() else numbers


def parse_dates(text: pl.Series) -> pl.Series | None:
    """Convert dates, null where one is not written as the first; None if that is no date."""
    try:
        return text.str.to_datetime(time_unit="us", strict=False)
    except pl.exceptions.PolarsError:
        return None


def times_column(times: Any, rows: int) -> pl.Series:
    """Make a column of times that came apart from cells, one for each of ``rows`` rows."""
    listed = isinstance(times, Sequence | np.ndarray) or hasattr(times, "__array__")
    array = np.asarray(times) if listed and not isinstance(times, str | bytes) else np.zeros(())
    if array.ndim != 1 or array.dtype.kind in "mcV":
        raise InputError(
            f"times must be a list or column of numbers or dates, but are a {type(times).__name__}"
        )
    if len(array) != rows:
        raise InputError(f"times must be one per cell, {rows} in all, but are {len(array)}")
    return column_of("times", array)


def _strip(column: pl.Series) -> pl.Series:
    """Remove blanks around text; nothing but blanks is no text, as is "nan"."""
    text = column.str.strip_chars()
    return text.set((text == "") | (text.str.to_lowercase() == "nan"), None)


def _finite(text: pl.Series) -> pl.Series:
    """Convert text to numbers, null where it is none or infinite."""
    numbers = text.cast(pl.Float64, strict=False)
    return numbers.set(numbers.is_infinite(), None)


def _first_bad_row(column: pl.Series) -> int:
    """Return the first row that is not of the kind of the first one: a number, or such a date."""
    if column.dtype != pl.String:
        return int(column.is_infinite().arg_max() or 0)
    text = _strip(column)
    numbers, first = _finite(text), int(text.is_not_null().arg_max() or 0)
    known = parse_dates(text) if numbers[first] is None else numbers
    return first if known is None else int((known.is_null() & text.is_not_null()).arg_max() or 0)


def native_frame(data: dict[str, pl.Series], native: str) -> Any:
    """Convert columns to a frame of the kind that ``frame_of`` named."""
    if native == "numpy":
        return np.stack([np.asarray(c.to_list(), dtype=object) for c in data.values()], axis=1)
    if native in ("polars", "scipy"):
        return pl.DataFrame(data)
    listed = {name: column.to_list() for name, column in data.items()}
    backend: Any = native
    return nw.from_dict(listed, backend=backend).to_native()


def with_columns(data: Any, columns: Sequence[pl.Series], rows: Index | None = None) -> Any:
    """Return a frame, or some of its rows, with columns of floats replaced by name or added."""
    frame = nw.from_native(data, eager_only=True)
    if rows is not None:
        frame = frame[rows]
    names: dict[str, Any] = {str(name): name for name in frame.columns}  # pandas has numbers too
    backend: Any = frame.implementation
    added = [
        nw.new_series(names.get(c.name, c.name), c.to_list(), nw.Float64, backend=backend)
        for c in columns
    ]
    return frame.with_columns(*added).to_native()


def with_values(
    frame: pl.DataFrame, values: np.ndarray[Any, Any], options: TableOptions, *, titled: bool
) -> tuple[pl.DataFrame, TableOptions, tuple[str, ...]]:
    """Add a column of values that came apart from the labels; a titled one may hold them, too."""
    if values.shape != (len(frame),):
        raise InputError(
            f"values must be one per row, {len(frame)} in all, but have shape {values.shape}"
        )
    column = column_of(str("value" if options.value is None else options.value), values)
    same = _find_equal(frame, column) if titled and options.axes is None else None
    axes = tuple(c for c in frame.columns if c != same) if options.axes is None else options.axes
    if same is not None and options.value is None:
        column = column.rename(same)
    note = (
        f"{same!r} holds the values once more, and is not taken for an axis; "
        f"{option('axes')} names all"
    )
    notes = () if same is None else (note,)
    return frame.with_columns(column), replace(options, axes=axes, value=column.name), notes


def _find_equal(frame: pl.DataFrame, values: pl.Series) -> str | None:
    """Return the column that holds the values once more, if two others may be axes."""
    if not values.dtype.is_numeric() or len(frame.columns) < MIN_AXES + 1:
        return None
    numeric = [column for column in frame if column.dtype.is_numeric()]
    equal = [column.name for column in numeric if column.eq_missing(values).all()]
    return equal[-1] if equal else None


def with_times(
    frame: pl.DataFrame, times: Any, options: TableOptions
) -> tuple[pl.DataFrame, TableOptions]:
    """Add a column of times that came apart from the labels."""
    column, name = times_column(times, len(frame)), "time"
    while name in frame.columns:
        name += " of the cell"
    axes = options.axes if options.axes is not None or options.value is not None else None
    return frame.with_columns(column.rename(name)), replace(options, axes=axes, time=name)
