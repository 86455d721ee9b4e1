"""Headers: tell a first line of titles from a row."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise

from exchangeable.files.column_names import KNOWN_NAMES
from exchangeable.files.value_words import MINUS, MISSING_WORDS, TRUTH_WORDS, WITH_UNIT

_AMOUNT = re.compile(r"\W?\d[\d.,:/']*\W?")  # $4, 40% or 1.234,5: a value, though no number
_DATE = re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}")


def looks_like_header(rows: list[list[str]]) -> bool:
    """Whether two titles are well known, or one is above a column of values, and none is one."""
    titles = {title.strip().lower() for title in rows[0]}
    if len(titles & KNOWN_NAMES) >= 2:
        return True
    if _numbers_columns(rows) or _dates_columns(rows):
        return True
    # The column of row numbers that pandas writes has no title.
    if any(not title.strip() for title in rows[0][1:]):
        return False
    if any(_is_numeral(title) or _DATE.match(title) for title in rows[0]):
        return False
    below = [row for row in rows[1:] if len(row) == len(rows[0])]
    columns = range(len(rows[0]))
    return bool(titles & KNOWN_NAMES) or any(
        _is_title(rows[0][column], [row[column].strip().lower() for row in below])
        for column in columns
    )


def is_above_labels(rows: list[list[str]]) -> bool:
    """Whether a first line of texts comes once above labels that all come several times.

    So it is in a file of pairs that is sorted by members with several pairs each. The labels of the
    last line may go on after the sample.
    """
    below = [row for row in rows[1:] if len(row) == len(rows[0])]
    columns = list(zip(*below, strict=True))
    if not may_be_titles(rows[0]) or any(
        title in column for title, column in zip(rows[0], columns, strict=False)
    ):
        return False
    for column in columns:
        counts = Counter(column)
        counts.pop(column[-1])
        if len(counts) >= 3 and min(counts.values()) >= 2:
            return True
    return False


def may_be_titles(fields: list[str]) -> bool:
    """Whether all fields of a line are texts, so that it may be titles or a row."""
    return not any(not f.strip() or _is_numeral(f) or _DATE.match(f) for f in fields)


def _numbers_columns(rows: list[list[str]]) -> bool:
    """Whether whole numbers in sequence, such as years, follow a first text, as in no row."""
    titles = [title.strip() for title in rows[0]]
    numbered = [title for title in titles[1:] if title.isdecimal()]
    if len(numbered) < 3 or len(numbered) < len(titles) - 1 or _is_numeral(titles[0]):
        return False
    steps = {int(after) - int(before) for before, after in pairwise(numbered)}
    known = titles[0].lower() in KNOWN_NAMES and min(steps) > 0
    return (steps == {1} or known) and not any(_numbers_columns([row]) for row in rows[1:])


def _dates_columns(rows: list[list[str]]) -> bool:
    """Whether dates follow a first text, and no row has one in their place."""

    def dates(row: list[str]) -> list[bool]:
        return [_DATE.match(field) is not None for field in row]

    titles = dates(rows[0])
    several = len(titles) > 2 and all(titles[1:]) and not titles[0]
    return several and len(rows) > 1 and not any(any(dates(row)[1:]) for row in rows[1:])


def _is_title(title: str, below: list[str]) -> bool:
    """Whether a field is above numbers, dates, or words for yes and no, of which it is none."""
    fields = [field for field in below if field and field not in MISSING_WORDS]
    lower = title.strip().lower()
    if not fields or lower in TRUTH_WORDS or lower in MISSING_WORDS or _AMOUNT.fullmatch(lower):
        return False
    return (
        all(_is_numeral(field) or WITH_UNIT.fullmatch(field) for field in fields)
        or all(field in TRUTH_WORDS for field in fields)
        or all(_DATE.match(field) for field in fields)
    )


def _is_numeral(field: str) -> bool:
    """Whether a field is a finite number; "nan" and "inf" are as likely to be labels."""
    try:
        return math.isfinite(float(field.replace(",", ".", 1).replace(MINUS, "-", 1)))
    except ValueError:
        return False
