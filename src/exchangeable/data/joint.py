"""Joint tables: both axes are one set of members, as in a graph, so they share one vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from exchangeable.arrays.cells import Cells, Index, cell_keys
from exchangeable.data.vocabulary import Vocabulary, name_type
from exchangeable.errors import InputError

if TYPE_CHECKING:
    from exchangeable.data.table import Table


def check_joint_axes(axes: Sequence[str]) -> None:
    """Raise unless both axes of a table can be one set."""
    if len(axes) != 2:
        raise InputError(
            f"a joint table has two axes, which are one set, but this one has {len(axes)} "
            f"({', '.join(axes)})"
        )


def share_vocabulary(
    vocabularies: Sequence[Vocabulary], index: Index, *, from_text: bool
) -> tuple[tuple[Vocabulary, ...], Index]:
    """Number the members of both axes alike: their one vocabulary, and coordinates (R, 2) in it.

    Labels ``from_text`` are whole numbers only where all of both axes are.
    """
    first, second = (vocabulary.labels for vocabulary in vocabularies)
    if from_text and first.dtype != second.dtype:
        first, second = first.cast(pl.String), second.cast(pl.String)
    (_, one), (_, other) = name_type(first.dtype), name_type(second.dtype)
    if one != other:
        raise InputError(
            f"both axes of a joint table have labels of one type, but those of {first.name!r} are "
            f"{one} and those of {second.name!r} {other}"
        )
    shared = Vocabulary(first).with_more(second)
    codes = [shared.encode(labels) for labels in (first, second)]
    columns = [new[column] for new, column in zip(codes, index.T, strict=True)]
    return (shared, shared), np.stack(columns, axis=1)


def with_more_members(
    vocabularies: Sequence[Vocabulary], columns: Sequence[pl.Series], *, joint: bool
) -> tuple[Vocabulary, ...]:
    """Append the new labels of a column for each axis; in a joint table to both."""
    if not joint:
        pairs = zip(vocabularies, columns, strict=True)
        return tuple(vocabulary.with_more(column) for vocabulary, column in pairs)
    shared = vocabularies[0]
    for column in columns:
        shared = shared.with_more(column)
    return (shared,) * len(vocabularies)


def share_features(table: Table, frames: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Give both axes of a joint table the features of their one set, under either name."""
    if not table.joint or not isinstance(frames, Mapping) or len(frames) != 1:
        return frames
    (name, frame), *_ = frames.items()
    return dict.fromkeys(table.axes, frame) if name in table.axes else frames


def mirrored(cells: Cells, others: Cells | None = None) -> Cells:
    """Add the cell (j, i) with the value of (i, j) where it is not observed itself.

    Cells observed are these, or all of ``others``.
    """
    known = cells if others is None else others
    mirror = cells.index[:, ::-1]
    absent = ~np.isin(cell_keys(mirror, cells.shape), cell_keys(known.index, cells.shape))
    times = cells.times
    return replace(
        cells,
        index=np.concatenate([cells.index, mirror[absent]]),
        values=np.concatenate([cells.values, cells.values[absent]]),
        times=None if times is None else np.concatenate([times, times[absent]]),
    )
