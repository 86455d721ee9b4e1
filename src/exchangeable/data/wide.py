"""Wide tables: a row for each member of one axis, a column for each member of the other.

They are read as cells, one for each pair, and written back in the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from exchangeable.arrays.cells import Floats
from exchangeable.data.column_roles import find_column
from exchangeable.data.numerals import Numerals
from exchangeable.data.options import TableOptions
from exchangeable.data.table import free_name
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError, option
from exchangeable.files.column_names import KNOWN_NAMES
from exchangeable.runtime.phrases import format_count

MIN_COLUMNS = 3
"""Columns of values from which on a table is taken for a wide one by itself."""
MIN_ROWS = 3
_LONG_NAMES = KNOWN_NAMES | {
    *("client", "sku", "shop", "store", "order", "session", "device", "sensor"),
    *("price", "amount", "quantity", "qty", "spent", "total", "hour", "minute", "second"),
}
"""Titles of a long table, which has one value for each of its rows."""
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
    has_commas: bool = False
    """Whether numbers are texts with decimal commas, which are all written with points."""
    notes: tuple[str, ...] = ()

    @property
    def axes(self) -> tuple[str, str]:
        """Names of both axes, that of the rows first."""
        rows = self.label or "row"
        return rows, free_name((rows,), "column", "column of the table")

    @property
    def value_name(self) -> str:
        return free_name(self.axes, "value", "value of the cell")

    def cells(self) -> pl.DataFrame:
        """Return a row for each cell: its labels and its value."""
        count, width = self.values.shape
        rows = pl.Series(np.arange(1, count + 1))
        if self.label is not None:
            rows = Vocabulary(self.frame[self.label]).with_whole_numbers().labels
        across = pl.Series(self.columns)
        return pl.DataFrame(
            {
                self.axes[0]: rows[np.repeat(np.arange(count), width)],
                self.axes[1]: across[np.tile(np.arange(width), count)],
                self.value_name: pl.Series(self.values.ravel()).fill_nan(None),
            }
        )

    def filled(self, values: Floats) -> pl.DataFrame:
        """Return the table with values (N * K,) in place of the missing ones."""
        whole = values.reshape(self.values.shape)
        return self.frame.with_columns(
            pl.Series(name, whole[:, self.columns.index(name)])
            for name in (self.columns if self.has_commas else self.lacking)
        )

    @property
    def lacking(self) -> tuple[str, ...]:
        """The columns in which a value is missing."""
        missing = np.isnan(self.values)
        return tuple(c for place, c in enumerate(self.columns) if missing[:, place].any())

    def __str__(self) -> str:
        width = format_count(len(self.columns), "column")
        rows = "row, numbered from 1" if self.label is None else self.label or "row"
        return f"a wide table: {width} of values for each {rows}"


def may_be_wide(columns: Sequence[str], options: TableOptions, *, titled: bool) -> bool:
    """Whether the columns of a table allow that it is a wide one, before its rows are read."""
    several = options.axes is not None and len(options.axes) > 1
    if options.wide and (several or options.value is not None or options.time):
        raise InputError(
            f"a wide table has one column of labels, which {option('axes')} names, and none of "
            f"values or times"
        )
    named = options.axes is not None or options.value is not None or bool(options.time)
    if options.wide is not None:
        return options.wide
    known = [c for c in columns[1:] if titled and c.strip().lower() in _LONG_NAMES]
    return not named and not known and len(columns) > MIN_COLUMNS


def detect_wide(
    name: str,
    frame: pl.DataFrame,
    options: TableOptions,
    *,
    titled: bool,
    guess_commas: bool | None = None,
) -> WideForm | None:
    """Find out whether a table is wide; ``guess_commas`` says that it comes from text, and how."""
    if not may_be_wide(frame.columns, options, titled=titled):
        return None

    def new_numerals() -> Numerals:
        from_text = guess_commas is not None
        numerals = Numerals.of(name, options)
        return replace(numerals, from_text=from_text, guess_commas=bool(guess_commas))

    return _find_form(name, frame, options, new_numerals, titled=titled)


def starts_wide(
    name: str,
    start: pl.DataFrame | None,
    options: TableOptions,
    *,
    titled: bool,
    guess_commas: bool | None = None,
) -> bool:
    """Whether the first rows of a file allow that it is wide: all of them take longer.

    They are None where they cannot be read alone, so that only all rows tell.
    """
    if options.wide or start is None or len(start) < MIN_ROWS:
        return True
    return detect_wide(name, start, options, titled=titled, guess_commas=guess_commas) is not None


def _find_form(
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
    bad: dict[str, tuple[int, int]] = {}  # the first row that is no number, and how many
    has_commas = False
    for column in frame.columns:
        numerals = new_numerals()
        if frame[column].dtype.is_temporal() or frame[column].dtype.is_nested():
            continue
        converted, wrong = numerals.split(name, frame[column])
        if wrong.any():
            bad[column] = int(wrong.arg_max() or 0), int(wrong.sum())
        else:
            numbers[column] = converted
            has_commas |= numerals.decimal == ","
            notes += [f"{column}: {note}" for note in numerals.notes]
    if options.axes:
        label: str | None = find_column(name, frame.columns, options.axes[0])
    else:
        label = _find_label(frame, numbers, titled=titled)
    columns = tuple(column for column in frame.columns if column in numbers and column != label)
    others = [c for c in frame.columns if c != label and c not in columns]
    # Without labels, long rows would have fractions for labels: texts beside them are no values.
    texts = label is None and all(2 * bad.get(c, (0, 0))[1] > len(frame) for c in others)
    plain = (texts or not others) and _is_plain(frame, numbers, columns, label)
    if options.wide is None and not plain:
        return None
    if not columns:
        raise InputError(f"{name}: a wide table needs columns of numbers, but there are none")
    if label is not None:
        again = frame[label].is_duplicated() | frame[label].is_null()
        if again.any():
            row = int(again.arg_max() or 0)
            raise InputError(
                f"{name}: rows of a wide table need labels that differ, but {label!r} of row "
                f"{row + 1} is {frame[label][row]!r}, which is missing or comes again; "
                f"{option('axes')} names another column of labels"
            )
    for column in others:
        first = bad[column][0] if column in bad else None
        reason = "" if first is None else f": row {first + 1} is {frame[column][first]!r}"
        notes.append(f"{column} is left as it is, since it holds more than numbers{reason}")
    values = np.stack([numbers[c].to_numpy().astype(np.float64) for c in columns], axis=1)
    return WideForm(frame, label, columns, values, has_commas, tuple(notes))


def _find_label(frame: pl.DataFrame, numbers: dict[str, pl.Series], *, titled: bool) -> str | None:
    """Return the column that names the rows: the first one, if it holds texts or numbers them.

    Texts that come again and again are a property of the rows.
    """
    first = frame.columns[0]
    if first not in numbers:
        return first if 4 * frame[first].n_unique() > len(frame) else None
    title = first.strip().lower()
    called = titled and (title in KNOWN_NAMES or title in _ID_NAMES or title.endswith("id"))
    whole = not numbers[first].null_count() and bool((numbers[first] % 1 == 0).all())
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
    # Whole numbers may as well be labels, most of all in the first column.
    broken = [c for c in columns if bool((numbers[c] % 1 != 0).any())]
    enough = len(columns) > MIN_COLUMNS and 2 * len(broken) >= len(columns)
    return enough and columns[0] in broken
