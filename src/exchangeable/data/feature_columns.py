"""Columns about members as numbers: numbers, dates, categories, lists of them, similarities."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.data.frames import parse_dates
from exchangeable.errors import InputError

Block = NDArray[np.float64]
"""Features of a column, for rows or members: (R, F)."""

MAX_CATEGORIES = 100
"""Text with more distinct values than this is taken for names, not for categories."""

SEPARATORS = ("|", ";", ",")
"""Characters that separate several categories in one text, such as "Action|Comedy"."""

MIN_LISTS = 0.1
"""Share of the texts that hold a separator, from which on they are taken for lists."""

MAX_DEVIATIONS = 1e4
"""Deviations that a number may be off the mean: sums of squares of larger ones are not finite."""

COMPONENTS = 64
"""Leading components of a similarity matrix. With 32 Davis' unseen proteins have .348, with 64
.321 and with 128 .301; KIBA's have .345, .333 and .338 (mean squared error)."""


@dataclass(frozen=True)
class NumberColumn:
    """A number or a date, in deviations from the mean; a missing one is at the mean."""

    name: str
    mean: float
    deviation: float
    dates: bool = False

    @property
    def titles(self) -> list[str]:
        return [self.name]

    @property
    def note(self) -> str:
        return f"{self.name}: {'date' if self.dates else 'number'}, standardised"

    @classmethod
    def of(cls, column: pl.Series) -> NumberColumn:
        dates = column.dtype.is_temporal()
        numbers = _numbers(column, dates=dates)
        mean, deviation = _to_float(numbers.mean()), _to_float(numbers.std())
        return cls(column.name, mean, deviation, dates)

    def encode(self, column: pl.Series) -> Block:
        numbers = _numbers(column, dates=self.dates)
        scaled = (numbers - self.mean) / self.deviation if self.deviation > 0 else numbers * 0.0
        far = (scaled.abs() > MAX_DEVIATIONS).fill_null(False)
        if far.any():
            raise InputError(
                f"numbers like those of other members are needed in {self.name!r}, but one is "
                f"{column[int(far.arg_max() or 0)]}"
            )
        return np.asarray(scaled.fill_null(0.0).to_numpy()[:, None], dtype=np.float64)


@dataclass(frozen=True)
class CategoryColumn:
    """A category, or several in one text: a feature for each; a missing one is none of them."""

    name: str
    categories: tuple[str, ...]
    separator: str | None = None

    @property
    def titles(self) -> list[str]:
        return [f"{self.name}={category}" for category in self.categories]

    @property
    def note(self) -> str:
        several = f", several separated by {self.separator!r}" if self.separator else ""
        return f"{self.name}: {len(self.categories)} categories{several}"

    @classmethod
    def of(cls, column: pl.Series) -> CategoryColumn | None:
        """Find the categories of a column; None where they are too many."""
        text = column.cast(pl.String).drop_nulls()
        categories = text.unique().sort()
        separator = _find_separator(text)
        if separator is not None:
            parts = text.str.split(separator).explode().str.strip_chars().unique().sort()
            parts = parts.filter(parts != "")
            if len(parts) < len(categories):
                categories = parts
            else:
                separator = None
        if len(categories) > MAX_CATEGORIES:
            return None
        return cls(column.name, tuple(categories.to_list()), separator)

    def encode(self, column: pl.Series) -> Block:
        if column.dtype.is_nested() or column.dtype == pl.Object:
            raise InputError(f"categories are needed in {self.name!r}, but it holds {column.dtype}")
        text = column.cast(pl.String)
        block = np.zeros((len(text), len(self.categories)))
        place = {category: number for number, category in enumerate(self.categories)}
        for row, entry in enumerate(text):
            if entry is None:
                continue
            parts = [entry] if self.separator is None else entry.split(self.separator)
            for part in parts:
                number = place.get(part if self.separator is None else part.strip())
                if number is not None:
                    block[row, number] = 1.0
        return block


FeatureColumn = NumberColumn | CategoryColumn


def fit_column(column: pl.Series) -> tuple[FeatureColumn | None, str]:
    """Find how a column becomes features, and say so; None where it is left out."""
    if column.dtype.is_numeric() or column.dtype.is_temporal():
        number = NumberColumn.of(column)
        alike = number.deviation == 0
        return (None, f"{column.name}: left out, all are alike") if alike else (number, number.note)
    if column.dtype not in (pl.String, pl.Boolean, pl.Categorical, pl.Enum, pl.Null):
        raise InputError(
            f"features are numbers, dates or categories, but {column.name!r} holds {column.dtype}"
        )
    if not len(column.drop_nulls()):
        return None, f"{column.name}: left out, all are missing"
    category = CategoryColumn.of(column)
    if category is None:
        distinct = column.cast(pl.String).n_unique()
        return None, f"{column.name}: left out, {distinct:,} different texts"
    return category, category.note


def append_column(column: pl.Series, added: pl.Series) -> pl.Series:
    """Append the entries of further members to a column, read as its features are."""
    if added.dtype in (pl.Null, column.dtype):
        return pl.concat([column, added.cast(column.dtype)])
    if column.dtype.is_numeric() or column.dtype.is_temporal():
        parsed = parse_dates(added) if added.dtype == pl.String else None
        if column.dtype.is_numeric():
            parsed = added.cast(pl.Float64)
        parts = column, (added if parsed is None else parsed).rename(column.name)
        return pl.concat([part.to_frame() for part in parts], how="vertical_relaxed").to_series()
    return pl.concat([column.cast(pl.String), added.cast(pl.String)])


def column_to_json(column: FeatureColumn) -> dict[str, Any]:
    return {"kind": "number" if isinstance(column, NumberColumn) else "category", **asdict(column)}


def column_from_json(stored: dict[str, Any]) -> FeatureColumn:
    settings = {name: value for name, value in stored.items() if name != "kind"}
    if stored["kind"] == "number":
        return NumberColumn(**settings)
    return CategoryColumn(**{**settings, "categories": tuple(settings["categories"])})


def similarity_components(similarity: Block) -> Block:
    """Return the leading components of a matrix of similarities: (N, N) -> (N, F).

    The largest has variance 1, the others less, by the roots of their eigenvalues.
    """
    symmetric = (similarity + similarity.T) / 2
    centred = symmetric - symmetric.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(centred)
    leading = np.argsort(-np.abs(values), kind="stable")[:COMPONENTS]
    sizes = np.sqrt(np.abs(values[leading]))
    largest = sizes.max(initial=0.0)
    if largest <= 0:
        return np.zeros((len(similarity), 0))
    return np.asarray(vectors[:, leading] * (sizes / largest) * np.sqrt(len(similarity)))


def _find_separator(text: pl.Series) -> str | None:
    """Find the character that separates several categories, if enough texts have one."""
    for separator in SEPARATORS:
        if len(text) and _to_float(text.str.contains(separator, literal=True).mean()) >= MIN_LISTS:
            return separator
    return None


def _numbers(column: pl.Series, *, dates: bool) -> pl.Series:
    """Convert a column of numbers, or of dates to seconds."""
    kind = pl.Datetime("us") if dates else pl.Float64()
    if dates and column.dtype == pl.String:  # as JSON has them
        parsed = parse_dates(column)
        column = column if parsed is None else parsed
    wrong = dates != column.dtype.is_temporal() and column.dtype != pl.Null
    try:
        if wrong:
            raise TypeError
        if column.dtype in (pl.Duration, pl.Time):
            numbers = column.to_physical().cast(pl.Float64)
        else:
            numbers = column.cast(kind).cast(pl.Int64 if dates else pl.Float64).cast(pl.Float64)
    except (TypeError, pl.exceptions.PolarsError):
        needed = "dates" if dates else "numbers"
        raise InputError(
            f"{needed} are needed in {column.name!r}, but it holds {column.dtype}"
        ) from None
    numbers = numbers.fill_nan(None)
    if numbers.is_infinite().any():
        raise InputError(f"features must be finite, but {column.name!r} holds infinity")
    return numbers


def _to_float(statistic: object) -> float:
    return float(statistic) if isinstance(statistic, int | float) else 0.0
