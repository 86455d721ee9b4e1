"""The columns of a table, each gone through in blocks of rows: a frame is one block.

Of a Parquet file one block of one column is held at a time, so that a table of any length is
never there as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import Index
from exchangeable.data import parquet, text
from exchangeable.data.frames import numbers_of
from exchangeable.data.text import Source, TextFile
from exchangeable.data.vocabulary import Vocabulary, missing_labels
from exchangeable.errors import InputError

ROWS_AT_ONCE = 2**22
"""A whole number of row groups as polars and pyarrow write them, so that none is read twice.

On 10 M rows numbering took half the time that it took with blocks of 2^20.
"""


@dataclass(frozen=True, eq=False)
class Columns:
    """Named columns of equal length, and where they came from."""

    name: str
    """Of the file, or what else the user knows them by."""
    types: Mapping[str, pl.DataType]
    rows: int
    blocks: Callable[[str], Iterator[pl.Series]]
    """A column from its first row to its last, in parts."""
    lines: TextFile | None = None
    """The text that was parsed."""

    @classmethod
    def of_frame(cls, name: str, frame: pl.DataFrame, lines: TextFile | None = None) -> Columns:
        return cls(name, frame.schema, len(frame), lambda column: iter([frame[column]]), lines)

    @classmethod
    def of_parquet(cls, name: str, source: Source) -> Columns:
        """Those of a file, of which only the end is read until a column is asked for."""
        types, rows = parquet.read_end(name, source)

        def blocks(column: str) -> Iterator[pl.Series]:
            for start in range(0, rows, ROWS_AT_ONCE):
                block = parquet.read_rows(name, source, column, start, ROWS_AT_ONCE)
                if len(block) != min(ROWS_AT_ONCE, rows - start):
                    raise InputError(f"{name}: the file was changed while it was read")
                yield block

        return cls(name, types, rows, blocks)

    def as_numbers(self, *columns: str | None) -> Columns:
        """With some columns as floats, null where a value is missing; their types must allow it."""
        for column in columns:
            if column is not None:
                numbers_of(self.name, pl.Series(column, [], dtype=self.types[column]))

        def blocks(column: str) -> Iterator[pl.Series]:
            for block in self.blocks(column):
                yield numbers_of(self.name, block) if column in columns else block

        return replace(self, blocks=blocks)

    def where(self, row: int) -> str:
        """How the user finds a row, counted from 0."""
        return f"line {text.line_of(self.lines, row)}" if self.lines else f"row {row + 1}"

    def labels(self, axis: str, out: Index) -> Vocabulary:
        """The labels of an axis; the number of each row goes into ``out``."""
        vocabulary, start = None, 0
        for block in self.blocks(axis):
            missing = missing_labels(block)
            if missing.any():
                where = self.where(start + int(missing.argmax()))
                raise InputError(
                    f"{self.name}: {where}: a label is needed in {axis!r}, but it is empty"
                )
            own, codes = Vocabulary.of(block, out[start : start + len(block)])
            if vocabulary is None:
                vocabulary = own
            else:
                vocabulary, numbers = vocabulary.extended(own.labels)
                codes[:] = numbers[codes]
            start += len(block)
        assert vocabulary is not None, "rows are needed"
        return vocabulary.with_whole_numbers() if self.lines else vocabulary

    def numbers(self, column: str) -> NDArray[np.float64]:
        """A number per row, NaN where it is missing, which only an empty field means."""
        out, start = np.empty(self.rows), 0
        for block in self.blocks(column):
            numbers = out[start : start + len(block)]
            numbers[:] = block.to_numpy()
            wrong = ~np.isfinite(numbers)
            if wrong.any():
                wrong &= ~block.is_null().to_numpy()
            if wrong.any():
                row = int(wrong.argmax())
                raise InputError(
                    f"{self.name}: {self.where(start + row)}: a finite number is needed in "
                    f"{column!r}, but this is {numbers[row]}; leave the field empty if the value "
                    f"is missing"
                )
            start += len(block)
        return out
