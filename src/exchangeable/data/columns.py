"""The columns of a table, each read in blocks of rows; a frame is one block.

Of a Parquet file one block of one column is held at a time, so a long table is never in memory as
text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl

from exchangeable.arrays.cells import Floats, Index
from exchangeable.data.frames import times_of
from exchangeable.data.numerals import Numerals
from exchangeable.data.vocabulary import Vocabulary, missing_labels
from exchangeable.errors import InputError, option, where_offered
from exchangeable.files import bad_lines, parquet
from exchangeable.files.source import Source
from exchangeable.files.text import TextFile

ROWS_PER_BLOCK = 2**22
"""A whole number of row groups as polars and pyarrow write them, so that none is read twice.

On 10 M rows numbering took half the time that it took with blocks of 2^20.
"""


Converter = Callable[[str, pl.Series, Callable[[int], str]], pl.Series]
"""Converts a column of a source to numbers; errors name its rows by a function."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Named columns of equal length, and the file that they come from."""

    name: str
    """The name of the file or frame in errors."""
    types: Mapping[str, pl.DataType]
    rows: int
    blocks: Callable[[str], Iterator[pl.Series]]
    """Yields a column from its first row to its last, in parts."""
    file: TextFile | None = None
    """The text that was parsed."""

    @classmethod
    def of_frame(cls, name: str, frame: pl.DataFrame, file: TextFile | None = None) -> Columns:
        return cls(name, frame.schema, len(frame), lambda column: iter([frame[column]]), file)

    @classmethod
    def of_parquet(cls, name: str, source: Source) -> Columns:
        """Open a file; only its end is read until the blocks of a column are."""
        types, rows = parquet.read_end(name, source)

        def blocks(column: str) -> Iterator[pl.Series]:
            for start in range(0, rows, ROWS_PER_BLOCK):
                block = parquet.read_rows(name, source, column, start, ROWS_PER_BLOCK)
                if len(block) != min(ROWS_PER_BLOCK, rows - start):
                    raise InputError(f"{name}: the file was changed while it was read")
                yield block

        return cls(name, types, rows, blocks)

    def as_numbers(self, value: str | None, time: str | None, numerals: Numerals) -> Columns:
        """Convert columns to floats, null where one is missing; raise if a type forbids it."""
        converters: dict[str | None, Converter] = {value: numerals.convert, time: times_of}
        for column, convert in converters.items():
            if column is not None:
                convert(self.name, pl.Series(column, [], dtype=self.types[column]), self.where)

        def blocks(column: str) -> Iterator[pl.Series]:
            convert, start = converters.get(column), 0
            for block in self.blocks(column):
                where = partial(_name_row, start)
                yield block if convert is None else convert(self.name, block, where)
                start += len(block)

        return replace(self, blocks=blocks)

    def where(self, row: int) -> str:
        """Name a row, counted from 0, as errors do: by its line in a text, or counted from 1."""
        return f"line {bad_lines.line_of(self.file, row)}" if self.file else f"row {row + 1}"

    def labels(self, axis: str, out: Index) -> Vocabulary:
        """Return the labels of an axis, and write the code of each row into ``out``."""
        vocabulary, start = None, 0
        for block in self.blocks(axis):
            missing = missing_labels(block)
            if missing.any():
                where = self.where(start + int(missing.argmax()))
                raise InputError(
                    f"{self.name}: {where}: a label is needed in {axis!r}, but it is empty"
                    + where_offered(
                        f"; {option('axes')} names other columns, and {option('wide', True)} reads "
                        f"one for each member"
                    )
                )
            block_vocabulary, codes = Vocabulary.of(block, out[start : start + len(block)])
            if vocabulary is None:
                vocabulary = block_vocabulary
            else:
                vocabulary, new_codes = vocabulary.extended(block_vocabulary.labels)
                codes[:] = new_codes[codes]
            start += len(block)
        assert vocabulary is not None, "rows are needed"
        return vocabulary.with_whole_numbers() if self.file else vocabulary

    def numbers(self, column: str) -> Floats:
        """Return a number per row, NaN where it is missing, which only an empty field means."""
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


def _name_row(start: int, row: int) -> str:
    """Name a row of a block that starts at another row."""
    return f"row {start + row + 1}"
