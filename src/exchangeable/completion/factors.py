"""Vectors of a table's members, and each member's nearest ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from exchangeable.arrays.cells import UNKNOWN, Floats, Index
from exchangeable.completion.fit import Fitted
from exchangeable.completion.inputs import check_number, encode_members
from exchangeable.data.vocabulary import column_of_label
from exchangeable.errors import InputError

_MIN_LENGTH = 1e-6  # a factor that the priors switched off is shorter
_ROWS_PER_CHUNK = 1024


def member_factors(fitted: Fitted, axis: int) -> dict[str, pl.Series]:
    """Return labels and vectors of the members of an axis, as columns."""
    vectors = member_vectors(fitted, axis)
    vocabulary = fitted.table.vocabularies[axis]
    labels = {fitted.table.axes[axis]: vocabulary.decode(np.arange(len(vocabulary)))}
    return labels | {f"factor {k}": pl.Series(v) for k, v in enumerate(vectors.T, start=1)}


def member_vectors(fitted: Fitted, axis: int) -> Floats:
    """Return the vectors of the members of an axis: (N, k).

    A member of a joint table is on both axes, and has the vectors of both in one, at equal lengths.
    """
    by_axis = fitted.predictor.factors()
    if not fitted.table.joint:
        return by_axis[axis]
    lengths = [np.sqrt(np.square(each).sum(axis=1).mean()) for each in by_axis]
    pairs = zip(by_axis, lengths, strict=True)
    return np.concatenate([each / max(size, _MIN_LENGTH) for each, size in pairs], axis=1)


def similar_members(fitted: Fitted, member: Any, n: int, axis: int) -> dict[str, pl.Series]:
    """Return the labels of the members most like one, and their cosines, as columns."""
    check_number(n)
    name, vocabulary = fitted.table.axes[axis], fitted.table.vocabularies[axis]
    column_of_label(name, member)  # raises if it is a list
    code = int(encode_members(fitted.table, axis, member)[0])
    vectors = member_vectors(fitted, axis)
    lengths = np.linalg.norm(vectors, axis=1)
    products = vectors @ vectors[code]
    cosines = products / np.maximum(lengths * lengths[code], _MIN_LENGTH**2)
    if lengths[code] <= _MIN_LENGTH:
        raise InputError(
            f"{member!r} has no vector to compare: its cells say too little, or are new"
        )
    others = np.flatnonzero((lengths > _MIN_LENGTH) & (np.arange(len(vectors)) != code))
    best = others[np.argsort(-cosines[others], kind="stable")[:n]]
    return {name: vocabulary.decode(best), "similarity": pl.Series(cosines[best])}


def factor_frame(fitted: Fitted, neighbours: int = 3) -> pl.DataFrame:
    """Return a row per member of every axis: its label, its nearest members, its vector."""
    if neighbours < 0:
        raise InputError(f"neighbours must be 0 or more, but are {neighbours}")
    table, blocks = fitted.table, []
    for axis, name in enumerate(table.axes[: 1 if table.joint else None]):
        vectors = member_vectors(fitted, axis)
        members = table.vocabularies[axis].decode(np.arange(table.shape[axis]))
        labels = [str(label) for label in members]
        near = nearest(vectors, neighbours)
        columns: dict[str, Any] = {
            "axis": [name] * len(labels),
            "member": labels,
            "nearest": ["; ".join(labels[n] for n in row if n != UNKNOWN) for row in near],
        }
        columns |= {f"factor {k}": column for k, column in enumerate(vectors.T, start=1)}
        blocks.append(pl.DataFrame(columns))
    return pl.concat(blocks, how="diagonal")


def nearest(vectors: Floats, n: int) -> Index:
    """Find the members whose vectors point the same way most, best first: (N, n).

    ``UNKNOWN`` fills the row of a member without a direction, and the end where others are too few.
    """
    lengths = np.linalg.norm(vectors, axis=1)
    has_direction = lengths > _MIN_LENGTH
    unit = vectors / np.where(has_direction, lengths, 1.0)[:, None]
    n = min(n, len(vectors))
    neighbours = np.full((len(vectors), n), UNKNOWN, dtype=np.int64)
    others = min(n, len(vectors) - 1)
    for start in range(0, len(vectors) if others > 0 else 0, _ROWS_PER_CHUNK):
        rows = slice(start, start + _ROWS_PER_CHUNK)
        cosines = unit[rows] @ unit.T
        cosines[:, ~has_direction] = -np.inf
        cosines[np.arange(len(cosines)), start + np.arange(len(cosines))] = -np.inf
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :others]
        finite = np.isfinite(np.take_along_axis(cosines, best, axis=1))
        neighbours[rows, :others] = np.where(finite, best, UNKNOWN)
    neighbours[~has_direction] = UNKNOWN
    return neighbours
