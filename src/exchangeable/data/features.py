"""Side features: frames about the members of axes become numbers, a row per member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Index
from exchangeable.data.feature_columns import (
    FeatureColumn,
    append_column,
    fit_column,
    similarity_components,
)
from exchangeable.data.frames import frame_of
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary, compare_types
from exchangeable.errors import InputError
from exchangeable.runtime.phrases import did_you_mean

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class MemberFeatures:
    """Features of the members of one axis, in the sequence of its vocabulary."""

    names: tuple[str, ...]
    values: NDArray[np.float32]  # (N, F); 0 where a feature is missing
    found: tuple[str, ...]
    """Sentences about what was done with each column."""
    columns: tuple[FeatureColumn, ...] = ()
    """How columns became features, for members that come later; none for similarities."""
    described: NDArray[np.bool_] = field(
        default_factory=lambda: np.zeros(0, dtype=np.bool_)
    )  # (N,)
    """Members that have a row."""
    centre: NDArray[np.float32] = field(
        default_factory=lambda: np.zeros(0, dtype=np.float32)
    )  # (F,)
    """Mean of the features of the members that the columns were fitted to."""
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)
    """The rows as they came, labels first: the rest is fitted again if members are forgotten."""

    @classmethod
    def of(cls, data: Any, vocabulary: Vocabulary, label: str | None = None) -> MemberFeatures:
        """Convert a frame with a label column (the first, unless named) and any others.

        Numbers and dates are standardised over the members that have them, text and booleans
        become a column per category, of which a text may hold several ("Action|Comedy"). A missing
        entry, and a member without a row, gives zeros: the mean of a number, and no category. A
        frame whose other columns are named by the labels themselves holds similarities, which
        become their leading components.
        """
        frame, codes, column = _rows_of(data, vocabulary, label)
        others = [c for c in frame.columns if c != column]
        if _is_similarity(frame, column, others):
            names, block, notes = _from_similarities(frame, column)
            fitted: list[FeatureColumn] = []
        else:
            fits = [fit_column(frame[other]) for other in others]
            fitted = [each for each, _ in fits if each is not None]
            names = tuple(title for each in fitted for title in each.titles)
            block = _encode(frame, fitted)
            notes = [note for _, note in fits]
        values = np.zeros((len(vocabulary), len(names)), dtype=np.float32)
        values[codes] = block
        described = np.zeros(len(vocabulary), dtype=np.bool_)
        described[codes] = True
        notes.append(f"{len(codes):,} of {len(vocabulary):,} members have features")
        centre = block.mean(axis=0).astype(np.float32)
        rows = frame.select(column, *others)
        return cls(names, values, tuple(notes), tuple(fitted), described, centre, rows)

    @property
    def centred(self) -> NDArray[np.float32]:
        """Features with mean 0 over the members; also 0 for those without a row: (N, F)."""
        return np.where(self.described[:, None], self.values - self.centre, np.float32(0))

    def reordered(self, before: Vocabulary, after: Vocabulary) -> MemberFeatures:
        """Return the features of the members of another vocabulary; others have none."""
        codes = before.encode(after.labels)
        described = np.where(codes == UNKNOWN, False, self.described[codes])
        values = np.where(described[:, None], self.values[codes], np.float32(0))
        return replace(self, values=values, described=described, rows=self.rows_of(after))

    def rows_of(self, vocabulary: Vocabulary) -> pl.DataFrame:
        """Return the rows of some members as they came; of similarities their columns too."""
        if not self.rows.columns:  # as older versions saved features
            return self.rows
        label, *others = self.rows.columns
        stay = pl.Series(vocabulary.encode(self.rows[label]) != UNKNOWN)
        if _is_similarity(self.rows, label, others):
            gone = set(self.rows[label].filter(~stay).cast(pl.String).to_list())
            others = [column for column in others if column not in gone]
        return self.rows.filter(stay).select(label, *others)

    def with_more(self, data: Any, vocabulary: Vocabulary) -> MemberFeatures:
        """Return the features of a larger vocabulary, with those of further members in ``data``.

        Members without a row there keep what they had, new ones have zeros.
        """
        values = np.zeros((len(vocabulary), len(self.names)), dtype=np.float32)
        values[: len(self.values)] = self.values
        described = np.pad(self.described, (0, len(vocabulary) - len(self.described)))
        rows = self.rows
        if data is not None:
            frame, codes, _ = _rows_of(data, vocabulary)
            self._check_columns(frame)
            values[codes], described[codes] = _encode(frame, self.columns), True
            rows = self._with_rows(frame, codes, vocabulary)
        return replace(self, values=values, described=described, rows=rows)

    def _with_rows(self, added: pl.DataFrame, codes: Index, vocabulary: Vocabulary) -> pl.DataFrame:
        """Add rows of members, and replace those that they had; further columns are dropped."""
        if not self.rows.columns:  # as older versions saved features
            return self.rows
        label, *others = self.rows.columns
        before = vocabulary.encode(self.rows[label])
        stay = ~np.isin(before, codes)
        labels = vocabulary.decode(np.concatenate([before[stay], codes])).rename(label)
        kept, none = self.rows.filter(pl.Series(stay)), pl.Series([None] * len(codes))
        columns = [
            append_column(kept[name], added[name] if name in added.columns else none)
            for name in others
        ]
        return pl.DataFrame([labels, *columns])

    def encode(self, frame: pl.DataFrame) -> NDArray[np.float32]:
        """Return the centred features of members in the rows of a frame: (R, F)."""
        self._check_columns(frame)
        return _encode(frame, self.columns).astype(np.float32) - self.centre

    def _check_columns(self, frame: pl.DataFrame) -> None:
        if self.names and not self.columns:
            raise InputError(
                "similarities of members that come later cannot be given: fit the table again"
            )
        missing = [each.name for each in self.columns if each.name not in frame.columns]
        if missing:
            raise InputError(
                f"features of later members need the columns {', '.join(missing)}, but have "
                f"{', '.join(frame.columns) or 'none'}"
            )


def _rows_of(
    data: Any, vocabulary: Vocabulary, label: str | None = None
) -> tuple[pl.DataFrame, Index, str]:
    """Return the rows of a frame about known members, their codes, and the label column."""
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
        types = compare_types(vocabulary, frame[column])
        raise InputError(f"features must be of the axis' members, but {column!r} has none{types}")
    if len(np.unique(codes)) != len(codes):
        raise InputError(f"features must have a row per member, but some in {column!r} repeat")
    return rows, codes, column


def _encode(frame: pl.DataFrame, columns: Any) -> NDArray[np.float64]:
    blocks = [each.encode(frame[each.name]) for each in columns]
    return np.concatenate(blocks, axis=1) if blocks else np.zeros((len(frame), 0))


def _is_similarity(frame: pl.DataFrame, column: str, others: list[str]) -> bool:
    """Whether the other columns are named by the labels of the rows."""
    labels = set(frame[column].cast(pl.String).to_list())
    return len(others) > 1 and labels <= set(others) and len(labels) == len(frame)


def _from_similarities(
    frame: pl.DataFrame, column: str
) -> tuple[tuple[str, ...], NDArray[np.float64], list[str]]:
    labels = frame[column].cast(pl.String).to_list()
    try:
        matrix = frame.select(labels).cast(pl.Float64).fill_null(0.0).to_numpy()
    except pl.exceptions.PolarsError:
        raise InputError(
            f"similarities must be numbers, but some beside {column!r} are not"
        ) from None
    if not np.isfinite(matrix).all():
        raise InputError("similarities must be finite, but some are NaN or infinity")
    block = similarity_components(matrix)
    names = tuple(f"component {number + 1}" for number in range(block.shape[1]))
    note = f"similarities of {len(labels):,} members: {len(names)} components"
    return names, block, [note]


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """Features of the members of all axes of a table."""

    axes: tuple[MemberFeatures | None, ...] = ()
    """None for an axis without features; empty where no axis has any."""
    found: tuple[str, ...] = ()
    """Sentences about what was read."""

    @classmethod
    def of(cls, table: Table, frames: Mapping[str, Any] | None) -> TableFeatures:
        """Convert frames about members, by the names of their axes."""
        check_frames(table, frames)
        if not frames:
            return cls()
        axes = tuple(
            MemberFeatures.of(frames[axis], vocabulary) if axis in frames else None
            for axis, vocabulary in zip(table.axes, table.vocabularies, strict=True)
        )
        found = tuple(
            f"features of {name}: {'; '.join([*features.found, *_warn_of_few(table, a, features)])}"
            for a, (name, features) in enumerate(zip(table.axes, axes, strict=True))
            if features is not None
        )
        return cls(axes, found)

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """Names of the features of each axis."""
        return tuple(() if axis is None else axis.names for axis in self.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of features of the members of each axis."""
        return tuple(len(names) for names in self.names)

    def to_tensors(self, *, centred: bool) -> tuple[Tensor | None, ...] | None:
        """Convert the values to tensors: centred, as a prior takes them, or as they are."""
        import torch

        if not self.axes:
            return None
        return tuple(
            None if axis is None else torch.from_numpy(axis.centred if centred else axis.values)
            for axis in self.axes
        )

    def reordered(self, before: Sequence[Vocabulary], after: Sequence[Vocabulary]) -> TableFeatures:
        """Return the features of the members of another table; others have none."""
        axes = [
            None if own is None else own.reordered(old, new)
            for own, old, new in zip(self.axes, before, after, strict=True)
        ]
        return replace(self, axes=tuple(axes))

    def with_more(self, table: Table, frames: Mapping[str, Any] | None) -> TableFeatures:
        """Return the features of the members of a larger table, with those of further members."""
        check_frames(table, frames)
        frames = frames or {}
        described = [
            axis for axis, own in zip(table.axes, self.axes, strict=False) if own is not None
        ]
        unknown = sorted(set(frames) - set(described))
        if unknown:
            raise InputError(
                f"features of later members must be of axes that had some when the table was "
                f"fitted ({', '.join(described) or 'none'}), but are of {unknown}"
            )
        axes = [
            None if own is None else own.with_more(frames.get(name), vocabulary)
            for name, vocabulary, own in zip(
                table.axes, table.vocabularies, self.axes, strict=False
            )
        ]
        return TableFeatures(tuple(axes), self.found)


def _warn_of_few(table: Table, axis: int, features: MemberFeatures) -> list[str]:
    """Warn if most members with cells have no features: their labels may be written otherwise."""
    has_cells = table.cells_per_member(axis) > 0
    described = int((has_cells & features.described).sum())
    members = int(has_cells.sum())
    if 2 * described >= members:
        return []
    return [f"only {described:,} of {members:,} members with cells are among them; check labels"]


def check_frames(table: Table, frames: Mapping[str, Any] | None) -> None:
    """Raise unless frames about members are named by axes of the table."""
    if frames is not None and not isinstance(frames, Mapping):
        raise InputError(
            f"features must be a mapping from axes to frames, but are a {type(frames).__name__}"
        )
    unknown = set(frames or ()) - set(table.axes)
    if unknown:
        raise InputError(
            f"features must be of axes {', '.join(table.axes)}, but are of {sorted(unknown)}"
            f"{did_you_mean(str(sorted(unknown)[0]), table.axes)}"
        )


def with_described_members(table: Table, frames: Mapping[str, Any] | None) -> Table:
    """Add members that features describe, and that have no cell, to the table."""
    check_frames(table, frames)
    vocabularies = list(table.vocabularies)
    for name, data in (frames or {}).items():
        axis = table.axes.index(name)
        frame, _ = frame_of(data)
        if frame.columns and (vocabularies[axis].encode(frame[:, 0]) != UNKNOWN).any():
            larger = vocabularies[axis].with_more(frame[:, 0])
            vocabularies = [larger] * 2 if table.joint else vocabularies
            vocabularies[axis] = larger
    return replace(table, vocabularies=tuple(vocabularies))
