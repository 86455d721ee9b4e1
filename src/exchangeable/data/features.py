"""Side features: frames about the members of axes become numbers, a row per member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.data.frames import frame_of
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

MAX_CATEGORIES = 100
"""Text with more distinct values than this is taken for names, not for categories."""


@dataclass(frozen=True, eq=False)
class MemberFeatures:
    """Features of the members of one axis, in the sequence of its vocabulary."""

    names: tuple[str, ...]
    values: NDArray[np.float32]  # (N, F); 0 where a feature is missing
    found: tuple[str, ...]
    """Sentences about what was done with each column."""

    @classmethod
    def of(cls, data: Any, vocabulary: Vocabulary, label: str | None = None) -> MemberFeatures:
        """Convert a frame with a label column (the first, unless named) and any others.

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
        in_table = codes != UNKNOWN
        rows, codes = frame.filter(pl.Series(in_table)), codes[in_table]
        if not len(codes):
            raise InputError(f"features must be of the axis' members, but {column!r} has none")
        if len(np.unique(codes)) != len(codes):
            raise InputError(f"features must have a row per member, but some in {column!r} repeat")
        names, blocks, notes = [], [], []
        for other in [c for c in frame.columns if c != column]:
            titles, block, note = _to_numbers(rows[other])
            names += titles
            blocks.append(block)
            notes.append(note)
        values = np.zeros((len(vocabulary), len(names)), dtype=np.float32)
        if blocks:
            values[codes] = np.concatenate(blocks, axis=1)
        notes.append(f"{len(codes):,} of {len(vocabulary):,} members have features")
        return cls(tuple(names), values, tuple(notes))


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """Features of the members of all axes of a table."""

    values: tuple[NDArray[np.float32] | None, ...] | None  # (N, F) each
    """None for an axis without features, and where no axis has any."""
    names: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, table: Table, frames: Mapping[str, Any] | None) -> TableFeatures:
        """Convert frames about members, by the names of their axes."""
        if frames is not None and not isinstance(frames, Mapping):
            raise InputError(
                f"features must be a mapping from axes to frames, but are a {type(frames).__name__}"
            )
        if not frames:
            return cls(None, ())
        unknown = set(frames) - set(table.axes)
        if unknown:
            raise InputError(
                f"features must be of axes {', '.join(table.axes)}, but are of {sorted(unknown)}"
            )
        features = [
            MemberFeatures.of(frames[axis], vocabulary) if axis in frames else None
            for axis, vocabulary in zip(table.axes, table.vocabularies, strict=True)
        ]
        return cls(
            tuple(None if axis is None else axis.values for axis in features),
            tuple(() if axis is None else axis.names for axis in features),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of features of the members of each axis."""
        return tuple(len(names) for names in self.names)

    def to_tensors(self) -> tuple[Tensor | None, ...] | None:
        """Convert the values to tensors, as models take them."""
        import torch

        if self.values is None:
            return None
        return tuple(None if axis is None else torch.from_numpy(axis) for axis in self.values)


def _to_numbers(column: pl.Series) -> tuple[list[str], np.ndarray[Any, Any], str]:
    """Return the names and values (R, F) of the features of a column, and a note."""
    if column.dtype.is_numeric():
        numbers = column.cast(pl.Float64).fill_nan(None)
        if numbers.is_infinite().any():
            raise InputError(f"features must be finite, but {column.name!r} holds infinity")
        mean, deviation = _to_float(numbers.mean()), _to_float(numbers.std())
        scaled = (numbers - mean) / deviation if deviation > 0 else numbers * 0.0
        block = scaled.fill_null(0.0).to_numpy()[:, None]
        return [column.name], block, f"{column.name}: number, standardised"
    if column.dtype not in (pl.String, pl.Boolean, pl.Categorical, pl.Enum, pl.Date, pl.Null):
        raise InputError(
            f"features are numbers or categories, but {column.name!r} holds {column.dtype}"
        )
    text = column.cast(pl.String)
    categories = text.drop_nulls().unique().sort()
    if len(categories) > MAX_CATEGORIES:
        empty = np.zeros((len(column), 0))
        return [], empty, f"{column.name}: left out, {len(categories):,} different texts"
    block = (
        np.stack([(text == c).fill_null(False).to_numpy() for c in categories], axis=1)
        if len(categories)
        else np.zeros((len(column), 0))
    )
    titles = [f"{column.name}={category}" for category in categories]
    return titles, block.astype(np.float32), f"{column.name}: {len(titles)} categories"


def _to_float(statistic: object) -> float:
    return float(statistic) if isinstance(statistic, int | float) else 0.0
