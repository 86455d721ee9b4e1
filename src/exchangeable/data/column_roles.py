"""Roles of columns: which hold labels, which the value and which the time."""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError, InputWarning
from exchangeable.files.column_names import (
    GUESSED_TIME_NAMES,
    MEMBER_NAMES,
    POSSIBLE_VALUE_NAMES,
    TIME_NAMES,
    VALUE_NAMES,
)
from exchangeable.runtime.phrases import did_you_mean


@dataclass(frozen=True)
class Roles:
    """The columns of a table by role."""

    columns: tuple[str, ...]
    axes: tuple[str, ...]
    value: str | None
    time: str | None
    time_is_guessed: bool = False
    """Whether a column that holds no times is ignored rather than refused."""
    value_is_guessed: bool = False
    """Whether the value is the column after the labels, with a title that says nothing."""
    numbers: frozenset[str] = frozenset()
    """Columns that hold numbers, as far as their first rows tell."""

    @property
    def returned(self) -> tuple[str | None, ...]:
        """The columns that a table returns itself: labels and values."""
        return (*self.axes, self.value)

    @property
    def ignored(self) -> list[str]:
        """The columns that are not read."""
        return [c for c in self.columns if c not in (*self.returned, self.time)]

    def without_time(self) -> Roles:
        return replace(self, time=None)

    def __str__(self) -> str:
        ignored = [column or "''" for column in self.ignored]
        value = f"value {self.value}" if self.value else "no value column: every row is a 1"
        parts = [f"axes {', '.join(self.axes)}", value]
        parts += [f"time {self.time}"] if self.time else []
        return "; ".join([*parts, *([f"ignored: {', '.join(ignored)}"] if ignored else [])])


def guess_roles(
    name: str,
    columns: Sequence[str],
    options: TableOptions,
    *,
    titled: bool,
    numbers: frozenset[str] = frozenset(),
) -> Roles:
    """Take the roles that the options name; guess others by header, or else by position.

    ``numbers`` are the columns that hold numbers, as far as their first rows tell.
    """
    axes = options.axes
    if len(columns) < 2 and axes is None:
        raise InputError(f"{name}: two columns or more are needed, but there is {len(columns)}")
    lower = {c: c.strip().lower() for c in columns}
    # Beside x, y is a coordinate.
    names = VALUE_NAMES - {"y"} if "x" in lower.values() else VALUE_NAMES
    possible = [c for c in columns if titled and lower[c] in POSSIBLE_VALUE_NAMES]
    value = None if options.value is None else find_column(name, columns, options.value)
    time = find_column(name, columns, options.time) if options.time else None
    if axes is not None:
        labels = [find_column(name, columns, axis) for axis in axes]
    else:
        members = [c for c in columns if titled and lower[c] in MEMBER_NAMES]
        free = [
            c
            for c in columns
            if c not in (value, time)
            and not (titled and _is_no_label(lower[c], names | POSSIBLE_VALUE_NAMES))
        ]
        labels = members if len(members) >= 2 else free[:2]
    if not labels and axes is not None:
        raise InputError(f"{name}: label columns are needed, but there are none")
    if len(labels) < 2 and axes is None:
        found = "1" if labels else "none"
        raise InputError(
            f"{name}: two label columns are needed, but {found} was found among "
            f"{', '.join(columns)}{f': {labels[0]}' if labels else ''}; name them with axes"
        )
    used = [c for c in (*labels, value, time) if c is not None]
    if len(set(used)) != len(used):
        raise InputError(
            f"{name}: a column can be used once, but axes are {labels}, value {value}, time {time}"
        )
    value_is_guessed = False
    if options.duplicates == "count":
        value = None  # what is counted has no value
    elif value is None:
        rest = [c for c in columns if c not in labels and c != time]
        scored = [c for c in rest if titled and lower[c] in names]
        after = list(columns)[max(columns.index(c) for c in labels) + 1 :]
        timeless = [c for c in rest if c in after and not (titled and lower[c] in TIME_NAMES)]
        titles = [c for c in possible if c in rest]
        before = [c for c in timeless if c in numbers] if titles else timeless
        guess = scored or before or titles
        value = guess[0] if guess else None
        value_is_guessed = not scored and value not in possible
    guessed = options.time is None and titled
    if guessed:
        rest = [c for c in columns if c not in labels and c != value]
        time = next((c for c in rest if lower[c] in GUESSED_TIME_NAMES), None)
    return Roles(tuple(columns), tuple(labels), value, time, guessed, value_is_guessed, numbers)


def _is_no_label(title: str, value_names: Container[str]) -> bool:
    """Whether a title in lower case says that a column holds values, times or row numbers."""
    is_named = title in value_names or title in TIME_NAMES
    return is_named or not title or title.startswith("unnamed:")


def find_column(name: str, columns: Sequence[str], choice: str | int) -> str:
    """Return the column that has this name, or else this number."""
    if isinstance(choice, str) and choice in columns:
        return choice
    text = str(choice)
    number = int(text) if text.isascii() and text.isdecimal() else 0
    if not 1 <= number <= len(columns):
        raise InputError(
            f"{name}: a column is one of {', '.join(columns)}, or its number, but is {choice!r}"
            f"{did_you_mean(text, columns)}"
        )
    return columns[number - 1]


def match_axes(axes: Sequence[str], columns: Sequence[str]) -> tuple[str | None, ...]:
    """Return the column that is called as each axis, None where there is none.

    A title is the same in capitals, in the plural and with "id" at its end. One that is the same
    as several others in this way is taken as it is written.
    """
    stems = {column: _stem(column) for column in columns if column not in axes}
    wanted = {axis: _stem(axis) for axis in axes if axis not in columns}
    unique = {
        axis: [column for column, its in stems.items() if its == stem]
        for axis, stem in wanted.items()
        if list(wanted.values()).count(stem) == 1
    }
    alike = {axis: matches[0] for axis, matches in unique.items() if len(matches) == 1}
    return tuple(axis if axis in columns else alike.get(axis) for axis in axes)


def find_label_columns(axes: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the column of each axis: by its title, or by position if no title is an axis.

    Warn of titles that are those of something else.
    """
    matched = tuple(column for column in match_axes(axes, columns) if column is not None)
    if len(matched) == len(axes):
        return matched
    if matched or len(columns) < len(axes):
        raise InputError(
            f"cells must have a column for each of {len(axes)} axes ({', '.join(axes)}), but have "
            f"{len(columns)}: {', '.join(columns)}"
        )
    first = tuple(columns[: len(axes)])
    if not all(map(is_automatic, first)) and not all(map(is_automatic, axes)):
        pairs = [f"{column!r} for {axis!r}" for column, axis in zip(first, axes, strict=True)]
        warnings.warn(
            f"no column of the cells is called as an axis: they are taken by position, "
            f"{', '.join(pairs)}",
            InputWarning,
            stacklevel=6,
        )
    return first


def is_automatic(title: str) -> bool:
    """Whether a title only counts the columns, as those of arrays and of files without titles."""
    return re.fullmatch(r"((column|axis|row)[ _])?\d*", title) is not None


def _stem(title: str) -> str:
    """Return what films, Film, film_id and filmId have in common."""
    lower = title.strip().lower()
    word = re.sub(r"[ _-]?ids?$", "", lower)
    return re.sub(r"(?:e?s)*e?$", "", re.sub("y$", "i", word)) or lower
