"""Side features: a frame about the members of an axis becomes numbers, a row per member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.data.frames import frame_of
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError

MOST_CATEGORIES = 100
"""Text with more distinct values than this is taken for names, not for categories."""


@dataclass(frozen=True, eq=False)
class MemberFeatures:
    """Features of the members of one axis, in the order of its vocabulary."""

    names: tuple[str, ...]
    values: NDArray[np.float32]  # (N, F); 0 where nothing is known
    found: tuple[str, ...]
    """What was done with each column, in sentences."""

    @classmethod
    def of(cls, data: Any, vocabulary: Vocabulary, label: str | None = None) -> MemberFeatures:
        """From a frame with a label column (the first, unless named) and any others.

        Numbers are standardised over the members that have them, text and booleans become a
        column per category. A missing entry, and a member without a row, gives zeros: the
        mean of a number, and no category.
        """
        frame, _ = frame_of(data)
        if not frame.columns:
            raise InputError("features need a label column, but the frame has none")
        column = frame.columns[0] if label is None else label
        if column not in frame.columns:
            raise InputError(f"features need the label column {column!r}, but have {frame.columns}")
        codes = vocabulary.encode(frame[column])
        known = codes != UNKNOWN
        rows, codes = frame.filter(pl.Series(known)), codes[known]
        if not len(codes):
            raise InputError(f"features must be of the axis' members, but {column!r} has none")
        if len(np.unique(codes)) != len(codes):
            raise InputError(f"features must have a row per member, but some in {column!r} repeat")
        names, blocks, found = [], [], []
        for other in [c for c in frame.columns if c != column]:
            titles, block, note = _block(rows[other])
            names += titles
            blocks.append(block)
            found.append(note)
        values = np.zeros((len(vocabulary), len(names)), dtype=np.float32)
        if blocks:
            values[codes] = np.concatenate(blocks, axis=1)
        found.append(f"{len(codes):,} of {len(vocabulary):,} members have features")
        return cls(tuple(names), values, tuple(found))


def _block(column: pl.Series) -> tuple[list[str], np.ndarray[Any, Any], str]:
    if column.dtype.is_numeric():
        numbers = column.cast(pl.Float64).fill_nan(None)
        if numbers.is_infinite().any():
            raise InputError(f"features must be finite, but {column.name!r} holds infinity")
        mean, deviation = _number(numbers.mean()), _number(numbers.std())
        scaled = (numbers - mean) / deviation if deviation > 0 else numbers * 0.0
        block = scaled.fill_null(0.0).to_numpy()[:, None]
        return [column.name], block, f"{column.name}: number, standardised"
    if column.dtype not in (pl.String, pl.Boolean, pl.Categorical, pl.Enum, pl.Date, pl.Null):
        raise InputError(
            f"features are numbers or categories, but {column.name!r} holds {column.dtype}"
        )
    text = column.cast(pl.String)
    categories = text.drop_nulls().unique().sort()
    if len(categories) > MOST_CATEGORIES:
        empty = np.zeros((len(column), 0))
        return [], empty, f"{column.name}: left out, {len(categories):,} different texts"
    block = (
        np.stack([(text == c).fill_null(False).to_numpy() for c in categories], axis=1)
        if len(categories)
        else np.zeros((len(column), 0))
    )
    titles = [f"{column.name}={category}" for category in categories]
    return titles, block.astype(np.float32), f"{column.name}: {len(titles)} categories"


def _number(statistic: object) -> float:
    return float(statistic) if isinstance(statistic, int | float) else 0.0
