"""Cells that come more than once: found by one sort of their numbers, and merged as asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import Index
from exchangeable.data.columns import Columns
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError

Rows = NDArray[np.int64] | slice
Duplicates = Literal["error", "mean", "last", "first", "max"]

_EVERY_ROW = slice(None)


def cell_numbers(index: Index, shape: tuple[int, ...]) -> Index:
    """One number per cell, row by row of the array: (R, D) -> (R,)."""
    numbers = index[:, 0].copy()
    for axis, size in list(enumerate(shape))[1:]:
        numbers *= size
        numbers += index[:, axis]
    return numbers


def merged(
    columns: Columns,
    index: Index,
    values: NDArray[np.float64],
    vocabularies: Sequence[Vocabulary],
    duplicates: Duplicates,
) -> tuple[Rows, Rows, NDArray[np.float64], tuple[str, ...]]:
    """Which rows stay, from which rows their values came, and these, each cell coming once."""
    shape = tuple(len(vocabulary) for vocabulary in vocabularies)
    if math.prod(shape) > 2**63 - 1:
        raise InputError(
            f"{columns.name}: at most 2^63 cells can be numbered, but the shape is {shape}"
        )
    repeated, again, known = _repeated(index, values, shape)
    told = (f"{known:,} rows without a value ask for cells that have one",) if known else ()
    if not again:
        return _EVERY_ROW, _EVERY_ROW, values, told
    rows, key = _rows_of(repeated, index, values, shape)
    if duplicates == "error":
        row = int(rows[int((~key.is_first_distinct()).arg_true()[0])])
        labels = [v.decode(index[row : row + 1, a])[0] for a, v in enumerate(vocabularies)]
        raise InputError(
            f"{columns.name}: {columns.where(row)}: every cell may come once, but "
            f"{tuple(labels)} comes again; choose duplicates mean, last, first or max"
        )
    frame = pl.DataFrame({"key": key, "value": values[rows], "row": rows})
    value, place = pl.col("value"), pl.col("row")
    how, whose = {
        "mean": (value.mean(), place.last()),
        "max": (value.max(), place.get(value.arg_max())),
        "first": (value.first(), place.first()),
        "last": (value.last(), place.last()),
    }[duplicates]
    kept = frame.group_by("key", maintain_order=True).agg(how, place.first(), whose.alias("source"))
    stays = np.ones(len(values), dtype=bool)
    stays[rows] = False
    stays[kept["row"].to_numpy()] = True
    left = np.flatnonzero(stays)
    new, source = values[left], left.copy()
    at = np.searchsorted(left, kept["row"].to_numpy())
    new[at] = kept["value"].to_numpy()
    source[at] = kept["source"].to_numpy()  # whose time the cell has
    return left, source, new, (f"{again:,} duplicate cells merged ({duplicates})", *told)


def _repeated(
    index: Index, values: NDArray[np.float64], shape: tuple[int, ...]
) -> tuple[Index, int, int]:
    """Cells that come again, how many rows that makes too many, and how many known are asked for.

    The numbers of all cells are sorted in place: a table by hash would take several times their
    memory.
    """
    numbers, missing = cell_numbers(index, shape), np.isnan(values)
    asked = numbers[missing]
    numbers[missing] = -1  # comes first
    numbers.sort()
    numbers = numbers[len(asked) :]
    again = numbers[1:] == numbers[:-1]
    repeated = np.unique(numbers[1:][again])
    if not len(asked) or not len(numbers):
        return repeated, int(again.sum()), 0
    at = np.searchsorted(numbers, asked).clip(max=len(numbers) - 1)
    return repeated, int(again.sum()), int((numbers[at] == asked).sum())


def _rows_of(
    repeated: Index, index: Index, values: NDArray[np.float64], shape: tuple[int, ...]
) -> tuple[Index, pl.Series]:
    """The rows that give values of these cells (ascending), and the cell of each."""
    numbers = cell_numbers(index, shape)
    known = pl.Series(repeated)
    rows = np.flatnonzero(pl.Series(numbers).is_in(known.implode()).to_numpy() & ~np.isnan(values))
    return rows, pl.Series("key", numbers[rows])
