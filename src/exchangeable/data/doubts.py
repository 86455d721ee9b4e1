"""Doubts: sentences about a table that may have been meant otherwise, and how to ask for that."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from exchangeable.arrays.cells import Floats
from exchangeable.data.column_roles import Roles, is_automatic
from exchangeable.data.numerals import Numerals
from exchangeable.data.options import TableOptions
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError, option, where_offered
from exchangeable.files.column_names import MEMBER_NAMES, POSSIBLE_VALUE_NAMES
from exchangeable.runtime.phrases import format_count

MIN_SINGLE_CELLS = 5
"""Rows of a table from which on members that all have one cell are worth a warning."""
FIRST_ROWS = 200
"""Rows at the start of an input that tell what its columns hold."""
DOUBTFUL_VALUE_NAMES = POSSIBLE_VALUE_NAMES | {"y", "target"}
"""Titles of values that may be those of labels, where labels follow them."""
WIDE_CASE = "if each column of numbers is a member of its own (a wide table)"
"""The case in which a table that was read as long is a wide one."""
_MIN_ROWS = 3
_MAX_LEVELS = 21  # of ratings: 0 to 10 by halves
_HIGH_MARKS, _LOW_MARKS = (99.0, 999.0, 9999.0), (-1.0, -9.0, -99.0, -999.0, -9999.0)
_ROW_NUMBERS = re.compile(r"|id|index|row|rownames|unnamed: ?\d+", re.IGNORECASE)
SECONDS = (5e8, 4.1e9)
"""Seconds since 1970 at the ends of 1985 and 2099: values between them look like times."""
DAYS = (19000101, 21001231)
"""The same for days written as numbers."""


def number_columns(start: pl.DataFrame) -> frozenset[str]:
    """Return the columns that hold numbers in the first rows of an input, but not times."""
    return frozenset(column.name for column in start if _holds_numbers(column.head(FIRST_ROWS)))


def suspect_wide(
    roles: Roles, options: TableOptions, vocabularies: Sequence[Vocabulary], rows: int
) -> bool:
    """Whether a table that was read as long may be a wide one."""
    chosen = options.axes, options.value, options.wide
    if any(choice is not None for choice in chosen) or roles.value is None:
        return False
    known = [axis.strip().lower() in MEMBER_NAMES for axis in roles.axes]
    if all(known):
        return False
    first, second = roles.axes[:2]
    ignored = [c for c in roles.ignored if c in roles.numbers and not _ROW_NUMBERS.fullmatch(c)]
    if len(ignored) > 1 or any(_are_measurements(v.labels, rows) for v in vocabularies):
        return True
    if second not in roles.numbers or known[1] or is_automatic(second):
        return False
    beside = first not in roles.numbers and bool(ignored) and roles.value_is_guessed
    return beside or len(vocabularies[0]) == rows >= _MIN_ROWS


def doubt_table(table: Table, roles: Roles) -> tuple[str, ...]:
    """Warn of what a long table may not be meant to be."""
    notes = []
    value, columns = roles.value, roles.columns
    doubtful = value is not None and value.strip().lower() in DOUBTFUL_VALUE_NAMES
    if doubtful and columns.index(value) < max(columns.index(axis) for axis in roles.axes):
        notes.append(
            f"{value!r} is taken for the value by its title; {option('value')} names another"
        )
    if value is not None and look_like_times(table.values):
        notes.append(
            f"all values look like times, such as {np.fmin.reduce(table.values):.0f}"
            + where_offered(
                f"; {option('time', value)} takes them for times, and {option('value')} names the "
                f"values"
            )
        )
    notes += [*_doubt_marks(table.values), *_doubt_blanks(table), *_doubt_axes(table)]
    return tuple(notes)


def doubt_columns(columns: Sequence[str], values: Floats) -> tuple[str, ...]:
    """Warn of columns of a wide table, values (N, K), whose numbers may stand for missing ones."""
    pairs = zip(columns, values.T, strict=True)
    return tuple(f"{name}: {note}" for name, column in pairs for note in _doubt_marks(column))


def look_like_times(values: Floats) -> bool:
    """Whether all values are seconds since 1970, thousandths of them, or days such as 20240103.

    Those that are missing (NaN) are ignored.
    """
    low, high = _ends(values)
    if any(low >= SECONDS[0] * unit and high <= SECONDS[1] * unit for unit in (1, 1000)):
        return True
    if not (low >= DAYS[0] and high <= DAYS[1]):
        return False
    held = values[~np.isnan(values)]
    months, days = held // 100 % 100, held % 100
    valid = (months >= 1) & (months <= 12) & (days >= 1) & (days <= 31) & (days % 1 == 0)
    return bool(valid.all())


def _ends(values: Floats) -> tuple[float, float]:
    """Return the lowest and the highest value, without a copy of them; NaN where all are."""
    if not len(values):
        return np.nan, np.nan
    return float(np.fmin.reduce(values)), float(np.fmax.reduce(values))


def _holds_numbers(column: pl.Series) -> bool:
    if column.dtype.is_numeric():
        values = column.cast(pl.Float64).to_numpy()
        return not np.isnan(values).all() and not look_like_times(values)
    try:
        numbers, wrong = Numerals(guess_commas=True).split("data", column)
    except InputError:  # dates or lists
        return False
    held = numbers.drop_nulls().to_numpy()
    return bool(len(held)) and not wrong.any() and not look_like_times(held)


def _are_measurements(labels: pl.Series, rows: int) -> bool:
    """Whether labels are numbers with fractions, of which a fourth of the rows differ."""
    if labels.dtype == pl.String:
        labels = labels.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)
    if not labels.dtype.is_float() or labels.null_count() or 4 * len(labels) < rows:
        return False
    return bool((labels % 1 != 0).sum() * 2 >= len(labels))


def _doubt_marks(values: Floats) -> list[str]:
    """Warn of a number such as 99 or -1 that is far from all others, as one for missing values."""
    notes = []
    for mark, marks in zip(_ends(values), (_LOW_MARKS, _HIGH_MARKS), strict=True):
        rest = values[(values != mark) & ~np.isnan(values)] if mark in marks else values[:0]
        if len(rest) and _is_far(mark, rest):
            count = format_count(int(np.count_nonzero(values == mark)), "value")
            missing = option("missing", int(mark) if mark % 1 == 0 else mark)
            notes.append(
                f"{count} of {mark:g} among values from {rest.min():g} to {rest.max():g}"
                + where_offered(f": if that is a missing value, {missing} reads it so")
            )
    return notes


def _is_far(mark: float, rest: Floats) -> bool:
    """Whether a number is not of the scale that all others are on."""
    low, high = float(rest.min()), float(rest.max())
    beyond = abs(mark) >= 5 * max(abs(low), abs(high))
    if mark > 0:
        return beyond and low >= 0 and high > low and len(np.unique(rest)) <= _MAX_LEVELS
    if mark > -99:  # -1 among votes of -1, 0 and 1 is one of them
        return low >= 0 and high >= 3 and len(np.unique(rest)) <= _MAX_LEVELS
    return beyond or low >= 0


def _doubt_blanks(table: Table) -> list[str]:
    """Warn of labels that differ from others only in the blanks around them."""
    notes = []
    for axis, vocabulary in zip(table.axes, table.vocabularies, strict=True):
        labels = vocabulary.labels
        if labels.dtype != pl.String:
            continue
        padded = labels.filter(labels.str.contains(r"^\s|\s$"))
        twins = padded.filter(
            padded.str.strip_chars().is_in(labels.implode())
            | padded.str.strip_chars().is_duplicated()
        )
        if len(twins):
            are = "differs" if len(twins) == 1 else "differ"
            notes.append(
                f"{format_count(len(twins), 'label')} of {axis!r} {are} from others only in blanks "
                f"around the text, such as {twins[0]!r}; remove these if the same is meant"
            )
    return notes


def _doubt_axes(table: Table) -> list[str]:
    """Warn of an axis that numbers the rows: nothing can be learnt about its members."""
    if table.order < 2 or len(table.values) < MIN_SINGLE_CELLS:
        return []
    return [
        f"every member of {axis!r} has one cell, as if it numbered the rows; "
        f"{option('axes')} names others"
        for axis, size in zip(table.axes, table.shape, strict=True)
        if size == len(table.values)
    ]
