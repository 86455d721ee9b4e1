"""What can be recommended to a member, and cells of a member that are not in the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Index
from exchangeable.data.frames import frame_of, numbers_of
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of
from exchangeable.errors import InputError

MOST_CANDIDATES = 20_000_000
"""Cells that are compared at most."""


def candidates(table: Table, place: int, code: int, given: Mapping[str, Any]) -> Index:
    """All cells of a member, or those with the given members of other axes."""
    unknown = set(given) - {axis for number, axis in enumerate(table.axes) if number != place}
    if unknown:
        raise InputError(f"given must name other axes of {table.axes}, but names {sorted(unknown)}")
    choices: list[Any] = []
    for number, axis in enumerate(table.axes):
        if number == place:
            choices.append([code])
        elif axis in given:
            found = table.vocabularies[number].encode(column_of(axis, [given[axis]]))
            if found[0] == UNKNOWN:
                raise InputError(f"{axis} must be known, but {given[axis]!r} is not")
            choices.append(found)
        else:
            choices.append(range(table.shape[number]))
    many = int(np.prod([float(len(choice)) for choice in choices]))
    if many > MOST_CANDIDATES:
        raise InputError(
            f"at most {MOST_CANDIDATES:,} cells can be compared, but there are {many:,}; fix "
            f"members of other axes with given"
        )
    grids = np.meshgrid(*[np.asarray(choice, dtype=np.int64) for choice in choices], indexing="ij")
    return np.stack([grid.ravel() for grid in grids], axis=1)


def cells_of(
    table: Table, member: Any, place: int, ratings: Any
) -> tuple[pl.DataFrame, Index, NDArray[np.float64]]:
    """Cells of a member of axis ``place``, from a mapping or a frame: labels, numbers, values.

    The member itself is number 0.
    """
    rest = [axis for number, axis in enumerate(table.axes) if number != place]
    if isinstance(ratings, Mapping):
        if len(rest) != 1:
            raise InputError(
                f"ratings must be a frame with columns {', '.join(rest)} and values, but are "
                f"a mapping"
            )
        labels = {rest[0]: column_of(rest[0], list(ratings))}
        values = numbers_of("ratings", column_of("rating", ratings.values())).to_numpy(
            writable=True
        )
    else:
        frame, _ = frame_of(ratings)
        if len(frame.columns) != len(rest) + 1:
            raise InputError(
                f"ratings must have columns {', '.join(rest)} and values, but have {frame.columns}"
            )
        names = rest if set(rest) <= set(frame.columns) else frame.columns[: len(rest)]
        labels = {axis: frame[name] for axis, name in zip(rest, names, strict=True)}
        (value,) = set(frame.columns) - set(names)
        values = numbers_of("ratings", frame[value]).to_numpy(writable=True)
    numbers = np.zeros((len(values), table.order), dtype=np.int64)
    for axis, column in labels.items():
        codes = table.vocabularies[table.axes.index(axis)].encode(column)
        numbers[:, table.axes.index(axis)] = codes
        if (codes == UNKNOWN).any():
            stranger = column[int((codes == UNKNOWN).argmax())]
            raise InputError(f"ratings must be of known {axis}, but {stranger!r} is not known")
    labels[table.axes[place]] = column_of("member", [member] * len(values))
    cells = pl.DataFrame({axis: labels[axis] for axis in table.axes})
    return cells, numbers, values


def check_distinct(table: Table, own: Index, place: int) -> None:
    """Raise if a member has two values for the same cell."""
    keys, first, number = np.unique(
        keys_of(own, table.shape), return_index=True, return_counts=True
    )
    if len(keys) < len(own):
        again = own[first[number.argmax()]]
        labels = [
            str(vocabulary.decode(again[axis : axis + 1])[0])
            for axis, vocabulary in enumerate(table.vocabularies)
            if axis != place
        ]
        raise InputError(f"every cell may be rated once, but {', '.join(labels)} comes again")


def keys_of(index: Index, shape: tuple[int, ...]) -> Index:
    """One number per cell: (Q, D) -> (Q,)."""
    return np.ravel_multi_index(tuple(index.T), shape).astype(np.int64)
