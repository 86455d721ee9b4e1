"""Wide tables: a row for each member of one axis, a column for each member of the other.

They are read as cells, one for each pair, and written back in the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from exchangeable.arrays.cells import Floats
from exchangeable.data.numerals import Numerals
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError
from exchangeable.files.column_names import KNOWN_NAMES
from exchangeable.runtime.phrases import format_count

MIN_COLUMNS = 3
"""Columns of values from which on a table is taken for a wide one by itself."""
MIN_ROWS = 3
_ID_NAMES = ("", "id", "index", "nr", "no", "number", "name", "row", "rownames", "unnamed: 0")


@dataclass(frozen=True, eq=False)
class WideForm:
    """A table as it came: its rows, and which of its columns hold values."""

    frame: pl.DataFrame
    label: str | None
    """The column of the rows' labels; None where they are numbered."""
    columns: tuple[str, ...]
    """The columns of values."""
    values: Floats  # (N, K), NaN where one is missing
    notes: tuple[str, ...] = ()

    @property
    def axes(self) -> tuple[str, str]:
        """Names of both axes, that of the rows first."""
        rows = self.label or "row"
        return rows, "column" if rows != "column" else "column of the table"

    def cells(self) -> pl.DataFrame:
        """Return a row for each cell: its labels and its value."""
        count, width = self.values.shape
        rows = pl.Series(np.arange(1, count + 1)) if self.label is None else self.frame[self.label]
        across = pl.Series(self.columns)
        return pl.DataFrame(
            {
                self.axes[0]: rows[np.repeat(np.arange(count), width)],
                self.axes[1]: across[np.tile(np.arange(width), count)],
                "value": pl.Series(self.values.ravel()).fill_nan(None),
            }
        )

    def filled(self, values: Floats) -> pl.DataFrame:
        """Return the table with values (N * K,) in place of the missing ones."""
        whole = values.reshape(self.values.shape)
        return self.frame.with_columns(
            pl.Series(name, whole[:, self.columns.index(name)]) for name in self.lacking
        )

    @property
    def lacking(self) -> tuple[str, ...]:
        """The columns in which a value is missing."""
        missing = np.isnan(self.values)
        return tuple(c for place, c in enumerate(self.columns) if missing[:, place].any())

    def __str__(self) -> str:
        width = format_count(len(self.columns), "column")
        rows = "row, numbered from 1" if self.label is None else self.label
        return f"a wide table: {width} of values for each {rows}"


def may_be_wide(columns: Sequence[str], options: TableOptions, *, titled: bool) -> bool:
    """Whether the columns of a table allow that it is a wide one, before its rows are read."""
    if options.wide is not None:
        return options.wide
    named = options.axes is not None or options.value is not None or options.time is not None
    known = [c for c in columns[1:] if titled and c.strip().lower() in KNOWN_NAMES]
    return not named and not known and len(columns) > MIN_COLUMNS


def find_wide(
    name: str,
    frame: pl.DataFrame,
    options: TableOptions,
    new_numerals: Callable[[], Numerals],
    *,
    titled: bool,
) -> WideForm | None:
    """Return the form of a wide table; None where it is not plain that it is one."""
    numbers: dict[str, pl.Series] = {}
    notes: list[str] = []
    for column in frame.columns:
        numerals = new_numerals()
        if frame[column].dtype.is_temporal() or frame[column].dtype.is_nested():
            continue
        converted, wrong = numerals.split(name, frame[column])
        if not wrong.any() and converted.null_count() < len(frame):
            numbers[column] = converted
            notes += [f"{column}: {note}" for note in numerals.notes]
    label = _find_label(frame, numbers, titled=titled)
    columns = tuple(column for column in frame.columns if column in numbers and column != label)
    others = [c for c in frame.columns if c != label and c not in columns]
    if options.wide is None and (others or not _is_plain(frame, numbers, columns, label)):
        return None
    if not columns:
        raise InputError(f"{name}: a wide table needs columns of numbers, but there are none")
    if label is not None:
        again = frame[label].is_duplicated() | frame[label].is_null()
        if again.any():
            row = int(again.arg_max() or 0)
            raise InputError(
                f"{name}: rows of a wide table need labels that differ, but {label!r} of row "
                f"{row + 1} is {frame[label][row]!r}, as elsewhere"
            )
    if others:
        notes.append(f"columns without numbers are left as they are: {', '.join(others)}")
    values = np.stack([numbers[c].to_numpy().astype(np.float64) for c in columns], axis=1)
    return WideForm(frame, label, columns, values, tuple(notes))


def _find_label(frame: pl.DataFrame, numbers: dict[str, pl.Series], *, titled: bool) -> str | None:
    """Return the column that names the rows: the first one, if it holds texts or numbers them."""
    first = frame.columns[0]
    if first not in numbers:
        return first
    title = first.strip().lower()
    called = titled and (title in KNOWN_NAMES or title in _ID_NAMES or title.endswith("id"))
    whole = bool((numbers[first] % 1 == 0).all())
    counts = whole and numbers[first].n_unique() == len(frame)
    step = numbers[first].diff().drop_nulls()
    return first if counts and (called or bool((step == 1).all())) else None


def _is_plain(
    frame: pl.DataFrame, numbers: dict[str, pl.Series], columns: Sequence[str], label: str | None
) -> bool:
    """Whether nothing else can be meant: many columns of numbers, and rows that differ."""
    if len(columns) < MIN_COLUMNS or len(frame) < MIN_ROWS:
        return False
    if label is not None:
        return not frame[label].is_duplicated().any()
    # Whole numbers in every column may as well be labels.
    broken = [c for c in columns if bool((numbers[c] % 1 != 0).any())]
    return len(columns) > MIN_COLUMNS and 2 * len(broken) >= len(columns)
