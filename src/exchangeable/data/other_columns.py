"""Columns of an input that are neither labels nor values: returned beside the predictions.

They are not part of a table. Those of a file stay in it until they are written, so that a long
table is never in memory as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from exchangeable.arrays.cells import Index
from exchangeable.errors import InputError
from exchangeable.files import parquet
from exchangeable.files.source import Source
from exchangeable.files.text import TextFile
from exchangeable.files.text_parser import parse

ReadRows = Callable[[Index], pl.DataFrame]
"""Returns some rows of the input, ascending."""


@dataclass(frozen=True, eq=False)
class OtherColumns:
    """The order of all columns of an input, and the content of those that a table leaves out."""

    order: tuple[str, ...]
    """All columns of the input."""
    types: Mapping[str, pl.DataType]
    """The columns that the table leaves out, and their types."""
    open_input: Callable[[], ReadRows] | None
    """Opens the input; None if the table leaves out no column."""
    rows: Index | None = None
    """The row of the input for each row of the table, ascending; None if they are the same."""

    @classmethod
    def of_frame(
        cls, frame: pl.DataFrame, used: Sequence[str | None], order: Sequence[str] | None = None
    ) -> OtherColumns:
        """Keep the columns of a frame but the ``used`` ones."""
        others = frame.select(name for name in frame.columns if name not in used)
        order = frame.columns if order is None else order
        open_input = partial(_open_frame, others) if others.columns else None
        return cls(tuple(order), others.schema, open_input)

    @classmethod
    def of_text(cls, file: TextFile, used: Sequence[str | None]) -> OtherColumns:
        """Parse the columns of a text file but the ``used`` ones when they are read."""
        names = [name for name in file.layout.columns if name not in used]
        types = dict.fromkeys(names, pl.String())
        open_input = partial(_open_text, file, names) if names else None
        return cls(file.layout.columns, types, open_input)

    @classmethod
    def of_parquet(
        cls,
        name: str,
        source: Source,
        types: Mapping[str, pl.DataType],
        used: Sequence[str | None],
    ) -> OtherColumns:
        """Read the columns of a Parquet file but the ``used`` ones block by block."""
        others = {column: kind for column, kind in types.items() if column not in used}
        open_input = partial(_open_parquet, name, source, list(others)) if others else None
        return cls(tuple(types), others, open_input)

    def open(self) -> ReadRows:
        """Return a function that reads the columns for some rows of the table."""
        if self.open_input is None:
            return lambda rows: pl.DataFrame(height=len(rows))
        read, positions = self.open_input(), self.rows
        return read if positions is None else lambda rows: read(positions[rows])

    def check_csv(self) -> None:
        """Raise if a CSV file cannot hold one of the columns, such as lists."""
        for name, kind in self.types.items():
            try:
                pl.DataFrame({name: [None]}, schema={name: kind}).write_csv()
            except pl.exceptions.PolarsError:
                raise InputError(
                    f"a CSV file cannot hold the {kind} of column {name!r}; write a Parquet file, "
                    f"or remove the column"
                ) from None


def _open_frame(frame: pl.DataFrame) -> ReadRows:
    return lambda rows: frame[rows]


def _open_text(file: TextFile, names: Sequence[str]) -> ReadRows:
    frame, _ = parse(file, dict.fromkeys(names, pl.String))
    frame, kept = frame.select(names), file.kept_rows

    def read(rows: Index) -> pl.DataFrame:
        positions = rows if kept is None else kept[rows]
        if positions[-1] >= len(frame):
            raise InputError(f"{file.layout.name}: the file was changed while it was read")
        return frame[positions]

    return read


def _open_parquet(name: str, source: Source, names: Sequence[str]) -> ReadRows:
    def read(rows: Index) -> pl.DataFrame:
        start, stop = int(rows[0]), int(rows[-1]) + 1
        columns = [parquet.read_rows(name, source, c, start, stop - start) for c in names]
        if any(len(column) != stop - start for column in columns):
            raise InputError(f"{name}: the file was changed while it was read")
        frame = pl.DataFrame(columns)
        return frame if len(rows) == stop - start else frame[np.asarray(rows) - start]

    return read
