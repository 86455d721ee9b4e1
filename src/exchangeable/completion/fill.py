"""What is asked of a table, and the frame in which it is answered; vectors of its members."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

from exchangeable.arrays.cells import UNKNOWN, Index
from exchangeable.completion.completer import Completer
from exchangeable.data.frames import native_frame
from exchangeable.data.options import Duplicates
from exchangeable.data.queries import read_queries
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError
from exchangeable.runtime.progress import SILENT, Progress

COVERAGE = 0.8
_ANSWERED_AT_ONCE = 2**16
_WRITTEN_AT_ONCE = 2**20
_NO_DIRECTION = 1e-6  # a factor that the priors switched off is shorter


@dataclass(frozen=True, eq=False)
class Asked:
    """Rows to be written: their labels, the values that are known, and who is to be answered."""

    labels: Callable[[Index], pl.DataFrame]
    """Of some of the rows, a column per axis: those of all would be too much text."""
    values: NDArray[np.floating]  # NaN where an answer is asked for
    names: tuple[str, str, str]
    """Of the columns of values and of the ends of their intervals."""

    @classmethod
    def of(
        cls, table: Table, *, queries: Path | None = None, every: bool = False, limit: int = 2**62
    ) -> Asked:
        """The cells without a value, those of a file, or every cell of the table."""
        names = table.prediction_columns
        if queries is not None:
            labels = read_queries(queries, table)
            return cls(labels.__getitem__, np.full(len(labels), np.nan), names)
        if every:
            return cls._every(table, limit, names)
        if len(table.values) == len(table):
            raise InputError(
                "nothing to fill: every row has a value; ask for every cell (--all, or all=true "
                "of a service), or for cells of your own (--queries FILE)"
            )
        # In as few bytes as they need, so that the table may go.
        axes, vocabularies = table.axes, table.vocabularies
        kinds = [np.min_scalar_type(len(vocabulary)) for vocabulary in vocabularies]
        codes = [c.astype(kind) for c, kind in zip(table.index.T, kinds, strict=True)]
        return cls(
            lambda rows: _labels(axes, vocabularies, [column[rows] for column in codes]),
            _shortened(table.values),
            names,
        )

    @classmethod
    def _every(cls, table: Table, limit: int, names: tuple[str, str, str]) -> Asked:
        number = math.prod(table.shape)
        if number > limit:
            raise InputError(
                f"at most {limit:,} cells are written, but the table has {number:,}; raise "
                f"--limit, or name the cells with --queries FILE"
            )
        axes, vocabularies, shape = table.axes, table.vocabularies, table.shape
        values = np.full(number, np.nan)
        seen = table.is_observed
        values[np.ravel_multi_index(tuple(table.index[seen].T), shape)] = table.values[seen]
        return cls(
            lambda rows: _labels(axes, vocabularies, np.unravel_index(rows, shape)), values, names
        )

    @property
    def number(self) -> int:
        """How many cells are to be answered."""
        return int(np.count_nonzero(np.isnan(self.values)))

    def answered(self, completer: Completer, progress: Progress = SILENT) -> Answered:
        """All that is asked for, with the ends of an interval."""
        rows = np.flatnonzero(np.isnan(self.values))
        known = zip(self.labels(rows).iter_columns(), completer.table_.vocabularies, strict=True)
        cells = pl.DataFrame([vocabulary.parse(column) for column, vocabulary in known])
        answers = np.empty((len(rows), 3))
        for start in range(0, len(rows), _ANSWERED_AT_ONCE):
            part = slice(start, start + _ANSWERED_AT_ONCE)
            answers[part, 0] = completer.predict(cells[part])
            answers[part, 1:] = completer.predict_interval(cells[part], COVERAGE)
            progress.at(start / len(rows), f"predicting: {start:,} of {len(rows):,}")
        return Answered(self, rows, answers)


@dataclass(frozen=True, eq=False)
class Answered:
    """Rows with their values filled in, made as they are written, a block at a time."""

    asked: Asked
    rows: Index  # (Q,), which of the rows were answered, ascending
    answers: NDArray[np.float64]  # (Q, 3)

    def frame(self) -> pl.DataFrame:
        """All rows."""
        return self._rows(0, len(self.asked.values))

    def write_csv(self, path: str | Path, separator: str = ",") -> None:
        with Path(path).open("wb") as file:
            for number, block in enumerate(self.blocks()):
                block.write_csv(file, separator=separator, include_header=number == 0)

    def write_parquet(self, path: str | Path) -> None:
        schema = self._rows(0, 1).schema
        register_io_source(lambda *_: self.blocks(), schema=schema).sink_parquet(path)

    def blocks(self) -> Iterator[pl.DataFrame]:
        for start in range(0, len(self.asked.values), _WRITTEN_AT_ONCE):
            yield self._rows(start, start + _WRITTEN_AT_ONCE)

    def _rows(self, start: int, stop: int) -> pl.DataFrame:
        """Values as they were known or are answered, and where they are answered their interval."""
        values = self.asked.values[start:stop]
        first, last = np.searchsorted(self.rows, (start, stop))
        columns = np.full((3, len(values)), np.nan)
        columns[0] = values
        columns[:, self.rows[first:last] - start] = self.answers[first:last].T
        named = zip(self.asked.names, columns, strict=True)
        labels = self.asked.labels(np.arange(start, start + len(values)))
        return labels.with_columns([pl.Series(n, c).fill_nan(None) for n, c in named])


def complete(
    data: Any,
    *,
    model: str = "auto",
    axes: Sequence[str | int] | None = None,
    value: str | int | None = None,
    duplicates: Duplicates = "error",
    seed: int = 0,
    device: str = "auto",
) -> Any:
    """A frame with the values that were missing filled in, and the ends of an 80 % interval.

    ``axes`` names the label columns where there are more than two.

    >>> cells = {"user": ["a", "a", "b"], "film": ["x", "y", "x"]}
    >>> complete(pl.DataFrame({**cells, "rating": [4, 2, None]})).columns
    ['user', 'film', 'rating', 'low', 'high']
    """
    table = Table.of(data, axes=axes, value=value, duplicates=duplicates)
    asked = Asked.of(table)
    completer = Completer(model, seed=seed, device=device).fit_table(table)
    frame = asked.answered(completer).frame()
    native = native_frame({c.name: c for c in frame.iter_columns()}, table.native)
    if table.native == "pandas" and len(native) == len(data):
        native.index = data.index
    return native


def factor_frame(completer: Completer, neighbours: int = 3) -> pl.DataFrame:
    """A row per member of every axis: who it is, who is nearest to it, its vector."""
    if neighbours < 0:
        raise InputError(f"neighbours must be 0 or more, but are {neighbours}")
    table, blocks = completer.table_, []
    for number, axis in enumerate(table.axes):
        vectors = completer.predictor_.factors()[number]
        labels = table.vocabularies[number].decode(np.arange(table.shape[number]))
        listed = [str(label) for label in labels]
        near = nearest(vectors, neighbours)
        columns: dict[str, Any] = {
            "axis": [axis] * len(listed),
            "member": listed,
            "nearest": ["; ".join(listed[n] for n in row if n != UNKNOWN) for row in near],
        }
        columns |= {f"factor {k}": column for k, column in enumerate(vectors.T, start=1)}
        blocks.append(pl.DataFrame(columns))
    return pl.concat(blocks, how="diagonal")


def nearest(vectors: NDArray[np.float64], number: int) -> NDArray[np.int64]:
    """The members whose vectors point the same way most, best first: (N, number).

    ``UNKNOWN`` fills the places of those that have no direction, or too few others.
    """
    lengths = np.linalg.norm(vectors, axis=1)
    able = lengths > _NO_DIRECTION
    unit = vectors / np.where(able, lengths, 1.0)[:, None]
    number = min(number, len(vectors))
    found = np.full((len(vectors), number), UNKNOWN, dtype=np.int64)
    others = min(number, len(vectors) - 1)
    for start in range(0, len(vectors) if others > 0 else 0, 1024):
        likeness = unit[start : start + 1024] @ unit.T
        likeness[:, ~able] = -np.inf
        likeness[np.arange(len(likeness)), start + np.arange(len(likeness))] = -np.inf
        best = np.argsort(-likeness, axis=1, kind="stable")[:, :others]
        alike = np.take_along_axis(likeness, best, axis=1)
        found[start : start + 1024, :others] = np.where(np.isfinite(alike), best, UNKNOWN)
    found[~able] = UNKNOWN
    return found


def _labels(
    axes: Sequence[str],
    vocabularies: Sequence[Vocabulary],
    codes: Sequence[NDArray[np.integer]],
) -> pl.DataFrame:
    """What the members of each axis with these numbers are called."""
    three = zip(axes, vocabularies, codes, strict=True)
    return pl.DataFrame([v.decode(some.astype(np.int64)).rename(axis) for axis, v, some in three])


def _shortened(values: NDArray[np.float64]) -> NDArray[np.floating]:
    """In half the bytes if that loses nothing, as with ratings."""
    short = np.empty(len(values), dtype=np.float32)
    for start in range(0, len(values), _WRITTEN_AT_ONCE):
        some = values[start : start + _WRITTEN_AT_ONCE]
        with np.errstate(over="ignore"):
            short[start : start + _WRITTEN_AT_ONCE] = some
        if not np.array_equal(short[start : start + _WRITTEN_AT_ONCE], some, equal_nan=True):
            return values
    return short
