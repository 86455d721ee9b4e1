"""Inputs of a Completer: cells and values as users of scikit-learn pass them, and axes."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Sequence
from itertools import permutations
from numbers import Integral
from typing import Any

import numpy as np
import polars as pl

from exchangeable.arrays.cells import UNKNOWN, Floats, Index, Mask
from exchangeable.data.column_roles import match_axes
from exchangeable.data.frames import frame_of, times_column, times_of
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import (
    Vocabulary,
    column_of,
    column_of_label,
    compare_types,
    missing_labels,
    name_type,
)
from exchangeable.errors import InputError, InputWarning
from exchangeable.runtime.phrases import did_you_mean, format_count

MAX_COMPARED_LABELS = 10_000
"""Labels of an axis up to which one that is written nearly the same is looked for."""


def check_input(X: Any, y: Any) -> tuple[Any, Any]:
    """Return cells and values as arrays or frames; refuse others in scikit-learn's words."""
    if y is not None and hasattr(X, "tocoo"):
        raise InputError("sparse input is a table of its own: pass it without y")
    other = hasattr(X, "__array__") and not hasattr(X, "columns")
    cells = np.asarray(X) if other and not isinstance(X, np.ma.MaskedArray) else X
    for name, data in (("X", cells), ("y", y)):
        if isinstance(data, np.ndarray) and data.dtype.kind == "c":
            raise InputError(f"Complex data not supported, but {name} holds {data.dtype}")
    if isinstance(cells, np.ndarray) and cells.ndim == 1 and len(cells):
        raise InputError(
            "cells are needed as a table with a column for each axis, but came as a list. "
            "Reshape your data with [cells] if it is one cell."
        )
    if isinstance(cells, np.ndarray) and cells.ndim == 2:
        if not cells.shape[1]:
            raise InputError(
                f"Found array with 0 feature(s) (shape={cells.shape}) while a minimum of 1 is "
                f"required."
            )
        if cells.dtype.kind == "f" and not np.isfinite(cells).all():
            raise InputError("labels must be given and finite, but some in X are NaN or infinity")
    if y is None:
        return cells, None
    masked = isinstance(y, np.ma.MaskedArray)
    values = np.ma.filled(y.astype(np.float64), np.nan) if masked else np.asarray(y)
    if values.ndim != 2 or values.shape[1] != 1:
        return cells, values
    from sklearn.utils import column_or_1d  # it warns in a class of its own

    return cells, column_or_1d(values, warn=True)


def encode_queries(table: Table, X: Any, *, known: bool = False) -> Index:
    """Coordinates of the queried cells (Q, D), with ``UNKNOWN`` for members not in the table.

    With ``known`` such members are refused.
    """
    shape = (len(X),) if isinstance(X, list | tuple) else getattr(X, "shape", None)
    if shape == (0,):
        return np.empty((0, table.order), dtype=np.int64)  # as for a frame without rows
    X, _ = check_input(X, None)
    frame, kind = frame_of(X)
    # Automatic names of columns say nothing, even where they are those of the table.
    if kind == "numpy" or None in match_axes(table.axes, frame.columns):
        check_columns(table, frame)
    columns = table.label_columns(frame)
    for column in columns:
        missing = missing_labels(frame[column])
        if missing.any():
            raise InputError(
                f"every cell must have a label in {column!r}, but that of row "
                f"{int(missing.argmax()) + 1} is missing (NaN or null)"
            )
    labels = [frame[column] for column in columns]
    cells = table.encode(labels)
    if (cells == UNKNOWN).any():
        check_order(table, labels)
        if known:
            cell, axis = (int(place) for place in np.argwhere(cells == UNKNOWN)[0])
            raise InputError(
                f"cells must be of known members, but the {table.axes[axis]} of cell {cell + 1} "
                f"is not known: {labels[axis][cell]!r}"
            )
        warn_of_unknown_labels(table, labels, cells)
    return cells


def encode_cell(table: Table, cell: Any, axis: int) -> Index:
    """Coordinates of one cell (D,), given by its labels; its member on an axis must be known."""
    if isinstance(cell, str | bytes) or np.ndim(cell) != 1 or len(cell) != table.order:
        raise InputError(
            f"a cell must have a label for each of {', '.join(table.axes)}, but is {cell!r}"
        )
    encode_members(table, axis, [cell[axis]])
    index: Index = encode_queries(table, [tuple(cell)])[0]
    return index


def encode_members(table: Table, axis: int, member: Any) -> Index:
    """Codes of a member or a list of them (N,), all of which must be known."""
    name = table.axes[axis]
    labels = column_of_members(name, member)
    codes = table.vocabularies[axis].encode(labels)
    if (codes == UNKNOWN).any():
        label = labels[int((codes == UNKNOWN).argmax())]
        check_type(table, axis, label)
        hint = suggest_label(table.vocabularies[axis], label)
        raise InputError(f"{name} must be known, but {label!r} is not{hint}")
    return codes


def column_of_members(name: str, member: Any) -> pl.Series:
    """Make a column of a member or a list of them; raise if there is none, or a list inside."""
    labels = column_of(name, member) if is_many(member) else column_of_label(name, member)
    if not len(labels):
        raise InputError("one member or more is needed, but there is none")
    if labels.dtype.is_nested():
        first = tuple(labels[0]) if labels.dtype == pl.List else labels[0]
        raise InputError(f"members must be given by their labels, but one is {first!r}")
    return labels


def is_many(member: Any) -> bool:
    """Whether these are several members rather than one."""
    if isinstance(member, list | tuple | pl.Series):
        return True
    dimensions = np.ndim(member) if hasattr(member, "dtype") and hasattr(member, "__len__") else 0
    if dimensions > 1:
        raise InputError(f"members must be a list, but have {dimensions} dimensions")
    return dimensions == 1


def encode_times(table: Table, X: Any, times: Any = None) -> Floats | None:
    """Times of the queried cells (Q,): as given, or those of the table's time column in a frame."""
    if times is not None:
        column = times_column(times, len(X))
    else:
        if table.time_name is None or not hasattr(X, "columns"):
            return None
        frame, _ = frame_of(X)
        if table.time_name not in frame.columns:
            return None
        column = frame[table.time_name]
    return times_of("times", column).to_numpy(writable=True)


def check_columns(table: Table, frame: pl.DataFrame) -> None:
    """Raise unless a frame has a column for each axis."""
    if len(frame.columns) != table.order:
        raise InputError(
            f"X has {len(frame.columns)} features, but Completer is expecting {table.order} "
            f"features as input: a column for each axis ({', '.join(table.axes)})"
        )


def find_axis(table: Table, axis: int | str) -> int:
    """Number of an axis that is given by its name or number."""
    names = table.axes
    if axis in names:
        return names.index(str(axis))
    if isinstance(axis, int) and not isinstance(axis, bool) and 0 <= axis < len(names):
        return axis
    raise InputError(
        f"axis must be one of {', '.join(names)}, or 0 to {len(names) - 1}, but is {axis!r}"
        f"{did_you_mean(str(axis), names)}"
    )


def check_number(n: Any) -> None:
    """Raise unless ``n`` is a number of members or cells to list."""
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
        raise InputError(f"n must be a whole number of 1 or more, but is {n!r}")


def check_shares(shares: Any) -> Floats:
    """Return shares of the probability (K,); raise unless each is between 0 and 1."""
    try:
        numbers = np.asarray(shares, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(())
    if numbers.ndim != 1 or not len(numbers) or not ((numbers > 0) & (numbers < 1)).all():
        raise InputError(f"shares must be numbers between 0 and 1, but are {shares!r}")
    return numbers


# Labels that the table does not have -------------------------------------------------------


def check_type(table: Table, axis: int, label: Any) -> None:
    """Raise if the table has an unknown label in another type, such as 305 for '305'."""
    vocabulary = table.vocabularies[axis]
    twin = _find_twin(vocabulary, label)
    if twin is not None:
        _, ours = name_type(vocabulary.labels.dtype)
        its, _ = name_type(column_of("label", [label]).dtype)
        raise InputError(
            f"labels of {table.axes[axis]!r} are {ours}, but {label!r} is {its}; did you mean "
            f"{twin!r}?"
        )
    if isinstance(label, bool) and vocabulary.labels.dtype not in (pl.Boolean, pl.Object):
        _, ours = name_type(vocabulary.labels.dtype)
        raise InputError(f"labels of {table.axes[axis]!r} are {ours}, but {label!r} is a boolean")


def suggest_label(vocabulary: Vocabulary, label: Any) -> str:
    """Return a question whether a known label was meant, to be put after a sentence, or nothing."""
    near = _find_twin(vocabulary, label)
    texts = isinstance(label, str) and vocabulary.labels.dtype == pl.String
    if near is None and texts and len(vocabulary) <= MAX_COMPARED_LABELS:
        near = next(iter(difflib.get_close_matches(label, vocabulary.labels.to_list(), 1)), None)
    return "" if near is None else f"; did you mean {near!r}?"


def check_stranger(table: Table, axis: int, member: Any, *, is_described: bool) -> None:
    """Raise if an unknown member has a label of the wrong type; warn unless it is described."""
    column = column_of_label("member", member)
    vocabulary, label = table.vocabularies[axis], column[0]
    if vocabulary.encode(column)[0] != UNKNOWN:
        return
    check_type(table, axis, label)
    if not is_described:
        hint = suggest_label(vocabulary, label)
        warnings.warn(
            f"{label!r} is not in the table: these are recommendations for somebody unknown{hint}",
            InputWarning,
            stacklevel=3,
        )


def warn_of_unknown_labels(table: Table, labels: Sequence[pl.Series], cells: Index) -> None:
    """Warn of labels in the columns of cells (Q, D) that the table does not have."""
    sentences = []
    columns = zip(table.axes, table.vocabularies, labels, cells.T, strict=True)
    for axis, vocabulary, column, codes in columns:
        if (codes != UNKNOWN).all():
            continue
        unknown = Vocabulary.of(column.filter(pl.Series(codes == UNKNOWN)))[0].labels
        count, total = len(unknown), len(Vocabulary.of(column)[0])
        hint = suggest_label(vocabulary, unknown[0]) or compare_types(vocabulary, unknown)
        sentences.append(
            f"{count:,} of {format_count(total, 'label')} of {axis!r} "
            f"{'is' if count == 1 else 'are'} not in the table, such as {unknown[0]!r}{hint}"
        )
    warnings.warn("; ".join(sentences), InputWarning, stacklevel=5)


def check_order(table: Table, labels: Sequence[pl.Series]) -> None:
    """Raise if columns of cells hold the labels of the axes in another order.

    That is so if no label of some columns is known, and all are on one another's axes. Numbers may
    be labels of any axis, so one of these columns must be of texts.
    """

    def is_known(axis: int, column: pl.Series) -> Mask:
        vocabulary = table.vocabularies[axis]
        return vocabulary.encode(vocabulary.parse(column)) != UNKNOWN

    unknown = [axis for axis, column in enumerate(labels) if not is_known(axis, column).any()]
    if not any(labels[axis].dtype == pl.String for axis in unknown):
        return
    for others in permutations(unknown):
        if all(is_known(o, labels[axis]).all() for axis, o in zip(unknown, others, strict=True)):
            order = dict(zip(unknown, others, strict=True))
            found = ", ".join(table.axes[order.get(axis, axis)] for axis in range(table.order))
            raise InputError(
                f"columns must have the labels of {', '.join(table.axes)}, but have those of "
                f"{found}: reorder them"
            )


def _find_twin(vocabulary: Vocabulary, label: Any) -> Any:
    """Return the known label that is written the same as one of another type, or None."""
    if _has_type(label, vocabulary.labels.dtype):
        return None
    written = [label, f"{label:g}"] if isinstance(label, float) else [label]
    for text in map(str, written):
        candidate = vocabulary.parse_label(text)
        if vocabulary.encode(column_of("label", [candidate]))[0] != UNKNOWN:
            return candidate
    return None


def _has_type(label: Any, kind: pl.DataType) -> bool:
    """Whether a label is of the type of a vocabulary, so that no known one is written the same."""
    if type(label) is int:
        return kind.is_integer()
    return type(label) is str and kind == pl.String


def check_sample_cells(cells: Any) -> int | None:
    """Return the number of cells of a sample, checked; None where all are read together."""
    if cells is None:
        return None
    if isinstance(cells, bool) or not isinstance(cells, Integral) or cells < 1:
        raise InputError(f"sample_cells must be a whole number of 1 or more, but is {cells!r}")
    return int(cells)
