"""Numerals: values as people write them, with words for missing ones, yes and no, and commas."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from exchangeable.data.frames import parse_dates
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError, option, where_offered
from exchangeable.files.value_words import (
    MINUS,
    MISSING_WORDS,
    OTHER_TRUTH_WORDS,
    TRUTH_WORDS,
    WITH_UNIT,
)
from exchangeable.runtime.phrases import format_count

_COMMA = r"^[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?$"
_WHOLE = r"^[+-]?[0-9]+(?:[eE][+-]?[0-9]+)?$"
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(([,.' _])[0-9]{3})(\2[0-9]{3})*([.,][0-9]*)?")
_MAX_WORDS = 5  # that a note lists

Where = Callable[[int], str]


def name_row(row: int) -> str:
    return f"row {row + 1}"


@dataclass
class Numerals:
    """Converts the values of a table to numbers, block by block, and counts what was no number."""

    missing: tuple[str, ...] = ()
    """Further texts and numbers that stand for a missing value."""
    decimal: str | None = None
    """The decimal mark; None for a point, or a comma where that is guessed."""
    from_text: bool = False
    """Whether values come from a text file, where NaN is a word that somebody wrote."""
    guess_commas: bool = False
    """Whether a comma is the decimal mark if all values are written so."""
    of_table: bool = False
    """Whether values are those of a table, whose options errors may name."""
    advice: str = ""
    """What to do if most values are texts."""
    missing_seen: Counter[str] = field(default_factory=Counter)
    """Words for missing values, and how often each came."""
    truths_seen: Counter[str] = field(default_factory=Counter)
    """Words for 1 and 0."""
    other_numbers: bool = False
    """Whether numbers other than 0 and 1 came."""

    @classmethod
    def of(cls, name: str, options: TableOptions) -> Numerals:
        if options.decimal not in (None, ".", ","):
            raise InputError(
                f"{name}: the decimal mark must be '.' or ',', but is {options.decimal!r}"
            )
        return cls(options.missing, options.decimal, of_table=True)

    @property
    def parsed_by_polars(self) -> bool:
        """Whether numbers may be parsed from text by polars, which is fast."""
        return self.decimal != ","

    @property
    def doubts_points(self) -> bool:
        """Whether points may separate thousands, since a comma may be the decimal mark."""
        return self.guess_commas and self.decimal is None

    def convert(self, name: str, column: pl.Series, where: Where = name_row) -> pl.Series:
        """Convert a column to floats, null where a value is missing; raise at the first other text.

        Errors call the source of the column ``name``, and a row as ``where`` does.
        """
        numbers, wrong = self.split(name, column)
        if wrong.any():
            row = int(wrong.arg_max() or 0)
            mostly = int(wrong.sum()) * 2 > len(column) - column.null_count()
            words = column.filter(wrong).unique(maintain_order=True) if mostly else column[:0]
            advice = self._advise(str(column[row]), column.name, words.to_list())
            raise InputError(
                f"{name}: {where(row)}: a number is needed in {column.name!r}, but this is "
                f"{_shorten(str(column[row]))!r}{advice}"
            )
        return numbers

    def split(self, name: str, column: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Convert a column to floats, and mark what is neither a number nor missing."""
        if column.dtype == pl.Boolean:
            self.truths_seen.update(_count(column.drop_nulls().cast(pl.String)))
        if column.dtype == pl.Object:
            texts = [None if value is None else str(value) for value in column]
            column = pl.Series(column.name, texts, dtype=pl.String)
        if column.dtype in (pl.Categorical, pl.Enum):
            column = column.cast(pl.String)
        if column.dtype == pl.String:
            return self._split_texts(column)
        if column.dtype == pl.Duration:
            raise InputError(
                f"{name}: numbers are needed in {column.name!r}, but it holds durations; convert "
                f"them to a number of days or seconds"
            )
        if column.dtype.is_temporal():
            raise InputError(
                f"{name}: numbers are needed in {column.name!r}, but it holds {column.dtype}"
                + _advise_times(column.name)
            )
        if not column.dtype.is_numeric() and column.dtype not in (pl.Boolean, pl.Null):
            raise InputError(
                f"{name}: numbers are needed in {column.name!r}, but it holds {column.dtype}"
            )
        if self.from_text and column.dtype.is_float() and column.is_nan().any():
            self.missing_seen["nan"] += int(column.is_nan().sum())
        numbers = column.cast(pl.Float64)
        if column.dtype.is_float() and np.isnan(numbers.to_numpy()).any():
            numbers = numbers.fill_nan(None)
        return self._without_named(numbers), pl.Series(np.zeros(len(column), dtype=bool))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was read otherwise than it was written."""
        notes = []
        if self.decimal == ",":
            notes.append("values with decimal commas")
        if self.truths_seen:
            words = sorted(self.truths_seen, key=lambda word: (-TRUTH_WORDS[word.lower()], word))
            notes.append(f"values written as {_list(words)}, read as 1 and 0")
        if self.missing_seen:
            words = sorted(self.missing_seen, key=lambda word: (-self.missing_seen[word], word))
            count = format_count(self.missing_seen.total(), "value")
            notes.append(f"{count} written as {_list(words)}, read as missing")
        return tuple(notes)

    def _split_texts(self, column: pl.Series) -> tuple[pl.Series, pl.Series]:
        text = column.str.strip_chars().str.replace(f"^{MINUS}", "-")
        text = text.set(text == "", None)
        missing = text.str.to_lowercase().is_in(MISSING_WORDS) | text.is_in(list(self.missing))
        missing = missing.fill_null(False)
        self.missing_seen.update(_count(text.filter(missing)))
        text = text.set(missing, None)
        if self.guess_commas and self.decimal is None and _has_decimal_commas(text):
            self.decimal = ","
        truths = text.str.to_lowercase().replace_strict(
            TRUTH_WORDS, default=None, return_dtype=pl.Float64
        )
        numbers = self._without_named(self._parse(text))
        truth = truths.is_not_null()
        wrong = text.is_not_null() & ~truth & ~numbers.is_finite().fill_null(False)
        wrong &= ~self._is_named(self._parse(text))
        if self.doubts_points:
            wrong |= _find_thousands_points(text)
        self.truths_seen.update(_count(text.filter(truth)))
        other = numbers.is_not_null() & ~numbers.is_in([0.0, 1.0])
        self.other_numbers |= bool((other & ~wrong).any())
        if self.truths_seen and self.other_numbers:
            wrong |= truth if truth.any() else other  # the words may be in blocks before
        return pl.select(pl.coalesce(truths, numbers)).to_series().rename(column.name), wrong

    def _parse(self, text: pl.Series) -> pl.Series:
        if self.decimal == ",":
            text = text.set(text.str.contains(".", literal=True).fill_null(False), "")
            text = text.str.replace(",", ".", literal=True)
        return text.cast(pl.Float64, strict=False)

    @property
    def _named(self) -> list[float]:
        """Numbers that stand for a missing value, such as -999."""
        return [float(text) for text in self.missing if _is_number(text)]

    def _is_named(self, numbers: pl.Series) -> pl.Series:
        """Mark the numbers that stand for a missing value."""
        return numbers.is_in(self._named).fill_null(False)

    def _without_named(self, numbers: pl.Series) -> pl.Series:
        if not self._named:
            return numbers
        named = self._is_named(numbers)
        if not named.any():
            return numbers
        counts = _count(numbers.filter(named))
        self.missing_seen.update({f"{number:g}": count for number, count in counts.items()})
        return numbers.set(named, None)

    def _advise(self, text: str, column: str, words: list[str]) -> str:
        """Say what to do about a value that is no number; ``words`` are all, if most are none."""
        stripped = text.strip()
        if stripped.lower() in TRUTH_WORDS:
            return " among numbers"
        if self.truths_seen and _is_number(stripped):
            return " among words for yes and no"
        if not self.of_table:
            return ""
        if _THOUSANDS.fullmatch(stripped):
            marks = re.findall("[,.]", stripped)
            doubt = self.decimal is None and len(marks) == 1
            number = stripped.replace(",", ".")
            other = f", or choose {option('decimal', marks[0])} if it is {number}" if doubt else ""
            return f"; write it without thousands separators{where_offered(other)}"
        if self.decimal == "," and "." in stripped:
            return "; the decimal mark is a comma"
        if re.match(_COMMA, stripped):
            return where_offered(f"; {option('decimal', ',')} reads decimal commas")
        if parse_dates(pl.Series([stripped])) is not None:
            return _advise_times(column)
        if WITH_UNIT.fullmatch(stripped):
            return "; write the number without its unit or sign"
        truths = {str(word).strip().lower() for word in words} <= OTHER_TRUTH_WORDS
        if truths and len(words) in (1, 2):
            return f"; write 1 and 0 in the place of {_list([repr(word) for word in words])}"
        if words and self.advice:
            return where_offered(f"; {self.advice}")
        if re.search("[0-9]", stripped):
            return "; write a plain number"
        advice = where_offered(f"; {option('missing', stripped)} reads it as missing")
        return advice if len(stripped) <= 20 else ""


def _advise_times(column: str) -> str:
    """What to do about a column of times where numbers are needed."""
    return where_offered(
        f"; {option('time', column)} takes it for times, and {option('value')} names the values"
    )


def _has_decimal_commas(text: pl.Series) -> bool:
    """Whether all values are written as 3,5 or 3, and some comma cannot separate thousands."""
    text = text.drop_nulls()
    comma = text.str.contains(_COMMA)
    if not comma.any() or not (comma | text.str.contains(_WHOLE)).all():
        return False
    return not text.filter(comma).str.contains(r"^[+-]?[1-9][0-9]{0,2},[0-9]{3}$").all()


def may_have_thousands_points(numbers: pl.Series) -> bool:
    """Whether numbers may have been written with points between thousands, as 1.234 and 950 are."""
    sizes = numbers.drop_nulls().abs().to_numpy()
    if not len(sizes) or sizes.max() >= 1000 or not (sizes > 99).any():
        return False
    whole = sizes % 1 == 0
    return not whole.all() and bool((whole | (sizes >= 1)).all())


def _find_thousands_points(text: pl.Series) -> pl.Series:
    """Mark values such as 1.234, if all with a point are written so and others are above 99."""
    pointed = text.str.contains(".", literal=True).fill_null(False)
    thousands = text.str.contains(r"^[+-]?[1-9][0-9]{0,2}\.[0-9]{3}$").fill_null(False)
    others = text.filter(~pointed).cast(pl.Float64, strict=False).abs()
    meant = pointed.any() and (thousands | ~pointed).all() and others.is_between(100, 999).any()
    return thousands if meant else pl.repeat(False, len(text), eager=True)


def _count(column: pl.Series) -> dict[Any, int]:
    # Polars would name the numbers "count", which the column may be called itself.
    return dict(column.alias("value").value_counts().iter_rows())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _list(words: list[str]) -> str:
    shown = words[:_MAX_WORDS]
    if len(words) > len(shown):
        return f"{', '.join(shown)} and others"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."
