"""Ratings of new members, given beside the table: read from mappings and frames, and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from exchangeable.arrays.cells import UNKNOWN, Floats, Index, cell_keys
from exchangeable.completion.inputs import check_type, is_many, suggest_label
from exchangeable.data.frames import frame_of
from exchangeable.data.numerals import Numerals
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary, column_of
from exchangeable.errors import InputError

VALUE = "value of a rating"
"""A column of values beside the axes, whatever these are called."""


def encode_ratings(
    table: Table, member: Any, axis: int, ratings: Any
) -> tuple[pl.DataFrame, Index, Floats]:
    """Read cells of one member from a mapping or a frame: labels, coordinates and values.

    The member itself gets the coordinate 0.
    """
    others = [name for n, name in enumerate(table.axes) if n != axis]
    labels, values = _split_ratings(others, ratings, table.scale.kind == "positives")
    index = _encode_others(table, axis, labels, values)
    labels[table.axes[axis]] = column_of("member", [member] * len(values))
    return pl.DataFrame({name: labels[name] for name in table.axes}), index, values


def encode_ratings_of_many(
    table: Table, members: pl.Series, axis: int, ratings: Any
) -> tuple[pl.DataFrame, Index, Floats]:
    """Read cells of members from a frame, or a mapping from each to its own ratings.

    A member gets its place among all as its coordinate.
    """
    own = table.axes[axis]
    positives = table.scale.kind == "positives"
    labels, values = _split_ratings_of_many(table.axes, own, ratings, positives)
    vocabulary, _ = Vocabulary.of(members)  # in the sequence in which they are listed
    codes = vocabulary.encode(labels[own])
    if (codes == UNKNOWN).any():
        label = labels[own][int((codes == UNKNOWN).argmax())]
        raise InputError(f"ratings must be of the members that are listed, but {label!r} is not")
    index = _encode_others(table, axis, {n: c for n, c in labels.items() if n != own}, values)
    index[:, axis] = codes
    return pl.DataFrame({name: labels[name] for name in table.axes}), index, values


def check_new_members(table: Table, axis: int, members: pl.Series, codes: Index) -> None:
    """Raise unless members with the codes (B,) are new and distinct."""
    name = table.axes[axis]
    if (codes != UNKNOWN).any():
        label = members[int((codes != UNKNOWN).argmax())]
        raise InputError(
            f"ratings of many are those of new members, but {label!r} is a {name} of the table"
        )
    if members.n_unique() < len(members):
        label = members.filter(members.is_duplicated())[0]
        raise InputError(f"members must be listed once each, but {label!r} comes again")
    for label in members[:1]:
        check_type(table, axis, label)


def _encode_others(
    table: Table, axis: int, labels: Mapping[str, pl.Series], values: Floats
) -> Index:
    """Return the coordinates of ratings, 0 on the members' axis: (E, D)."""
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        rated = ", ".join(repr(column[row]) for column in labels.values())
        raise InputError(f"the rating of {rated} must be a finite number, but is {values[row]}")
    index = np.zeros((len(values), table.order), dtype=np.int64)
    for name, column in labels.items():
        if column.dtype.is_nested():
            raise InputError(
                f"ratings must be of labels of {name}, numbers, texts or dates, but are of "
                f"{column.dtype}"
            )
        vocabulary = table.vocabularies[table.axes.index(name)]
        codes = vocabulary.encode(column)
        index[:, table.axes.index(name)] = codes
        if (codes == UNKNOWN).any():
            label = column[int((codes == UNKNOWN).argmax())]
            hint = suggest_label(vocabulary, label)
            raise InputError(f"ratings must be of known {name}, but {label!r} is not known{hint}")
    return index


def _split_ratings_of_many(
    axes: tuple[str, ...], own: str, ratings: Any, positives: bool
) -> tuple[dict[str, pl.Series], Floats]:
    """Split ratings of many members into labels by axis, theirs too, and values."""
    if not isinstance(ratings, Mapping):
        return _split_frame(list(axes), ratings, positives)
    if any(np.ndim(each) == 0 and not isinstance(each, Mapping) for each in ratings.values()):
        raise InputError(
            "ratings that map labels to numbers are those of one member, but members are "
            "listed; map each of them to its own ratings"
        )
    others = [name for name in axes if name != own]
    parts = [(member, *_split_ratings(others, each, positives)) for member, each in ratings.items()]
    if not parts:
        parts = [(None, {name: pl.Series(name, []) for name in others}, np.empty(0))]
    sizes = [len(values) for _, _, values in parts]
    members = column_of(own, [member for member, _, _ in parts])
    labels = {own: members.gather(np.repeat(np.arange(len(parts)), sizes))}
    for name in others:
        columns = [part[name] for _, part, values in parts if len(values)]
        labels[name] = pl.concat(columns) if columns else pl.Series(name, [])
    return labels, np.concatenate([values for _, _, values in parts])


def _split_ratings(
    axes: list[str], ratings: Any, positives: bool
) -> tuple[dict[str, pl.Series], Floats]:
    """Split ratings into labels by axis, and values; a list of labels is one of positives."""
    if is_many(ratings) and len(axes) == 1 and positives and np.ndim(ratings) == 1:
        labels = {axes[0]: column_of(axes[0], ratings)}
        return labels, np.ones(len(ratings))
    if isinstance(ratings, Mapping):
        if len(axes) != 1:
            raise InputError(
                f"ratings must be a frame with columns {', '.join(axes)} and values, but are "
                f"a mapping"
            )
        labels = {axes[0]: column_of(axes[0], list(ratings))}
        own = list(ratings.values())
        if all(type(value) is float or type(value) is int for value in own):
            return labels, np.array(own, dtype=np.float64)
        values = Numerals().convert("ratings", column_of("rating", own))
        return labels, values.to_numpy(writable=True)
    return _split_frame(axes, ratings)


def _split_frame(
    axes: list[str], ratings: Any, positives: bool = False
) -> tuple[dict[str, pl.Series], Floats]:
    """Split a frame into labels by axis, and values; one of positives may have none."""
    frame, _ = frame_of(ratings)
    if positives and len(frame.columns) == len(axes):
        frame = frame.with_columns(pl.lit(1.0).alias(VALUE))
    if len(frame.columns) != len(axes) + 1:
        raise InputError(
            f"ratings must have columns {', '.join(axes)} and values, but have {frame.columns}"
        )
    names = axes if set(axes) <= set(frame.columns) else frame.columns[: len(axes)]
    labels = {axis: frame[name] for axis, name in zip(axes, names, strict=True)}
    (value,) = set(frame.columns) - set(names)
    return labels, Numerals().convert("ratings", frame[value]).to_numpy(writable=True)


def check_distinct(table: Table, rated: Index, axis: int, count: int = 1) -> None:
    """Raise if one of ``count`` members has two values for the same cell."""
    shape = (*table.shape[:axis], count, *table.shape[axis + 1 :])
    keys, first, counts = np.unique(cell_keys(rated, shape), return_index=True, return_counts=True)
    if len(keys) < len(rated):
        repeated = rated[first[counts.argmax()]]
        labels = [
            str(vocabulary.decode(repeated[number : number + 1])[0])
            for number, vocabulary in enumerate(table.vocabularies)
            if number != axis
        ]
        raise InputError(f"every cell may be rated once, but {', '.join(labels)} comes again")
