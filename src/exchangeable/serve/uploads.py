"""Uploaded files: checked and read in memory, completed, and summarised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import polars as pl

from exchangeable.completion.completer import Completer
from exchangeable.completion.fill import FilledTable, FillRequest, fill
from exchangeable.data.build import table_from_source
from exchangeable.data.options import TableOptions
from exchangeable.data.summary import describe
from exchangeable.data.table import Table
from exchangeable.errors import InputError, Wording, word
from exchangeable.files import parquet, text, text_parser
from exchangeable.files.encoding import to_utf8
from exchangeable.files.parquet_size import NotParquet, measure
from exchangeable.files.typed import read_typed
from exchangeable.serve.exploration import build_picture, choose_members
from exchangeable.storage.facts import MAX_LABEL_LENGTH

NAME = "the file"
"""How errors refer to an upload; the name that a client sends is ignored."""
MAX_UNPACKED_BYTES = 256 * 2**20
"""Maximum size of a Parquet file's columns in memory."""
ROWS_PER_CHUNK = 2**13
"""Rows of a CSV response that are sent at once."""
FIRST_ROWS = 5
"""Rows that are shown before a file is completed."""
MAX_COLUMNS = 100
"""Maximum number of columns that can be chosen from."""
MAX_TEXT = 80
"""Characters of a field of the first rows."""
_ARCHIVES = (b"\x1f\x8b", b"PK\x03\x04")


class TooLarge(InputError):
    """A file that takes more than the limits of memory, time or output allow."""


@dataclass(frozen=True)
class Upload:
    """The content of a file, and options for reading it."""

    content: bytes
    options: TableOptions = field(default_factory=TableOptions)
    wording: Wording = lambda name, value: None
    """How errors and notes name these options."""

    def read_table(self, max_rows: int) -> Table:
        """Read the table, after checks that bound the memory it takes."""
        if not self.content:
            raise InputError(f"{NAME} is empty")
        if self.content.startswith(_ARCHIVES):
            raise InputError(f"{NAME} is an archive: send its content")
        rows = (
            self._count_parquet_rows()
            if parquet.is_parquet(self.content)
            else self.content.count(b"\n")
        )
        if rows > max_rows:
            raise InputError(f"{NAME} may have at most {max_rows:,} rows, but has {rows:,}")
        table = table_from_source(NAME, self.content, self.options)
        if len(table.values) > max_rows:  # JSON may have them all in one line
            raise InputError(
                f"{NAME} may have at most {max_rows:,} rows, but has {len(table.values):,}"
            )
        for axis, vocabulary in zip(table.axes, table.vocabularies, strict=True):
            lengths = vocabulary.labels.cast(pl.String).str.len_chars()
            longest = int(lengths.to_numpy().max(initial=0))
            if longest > MAX_LABEL_LENGTH:  # it would be repeated in every row of the response
                raise InputError(
                    f"{NAME}: labels of {axis!r} must have at most {MAX_LABEL_LENGTH} characters, "
                    f"but one has {longest:,}"
                )
        return table

    def read_start(self, rows: int) -> pl.DataFrame:
        """Read the first rows, with all columns and as they are."""
        if parquet.is_parquet(self.content):
            self._count_parquet_rows()
            return parquet.read_start(NAME, self.content, rows)
        content = to_utf8(NAME, self.content, self.options.encoding)
        frame = read_typed(NAME, content)
        if frame is not None:
            return frame.head(rows)
        options = self.options
        file = text.detect_layout(NAME, content, separator=options.separator, header=options.header)
        start = text_parser.parse_start(file, rows)
        if start is None:
            return pl.DataFrame(schema=dict.fromkeys(file.layout.columns, pl.String))
        return start.head(rows)

    def _count_parquet_rows(self) -> int:
        """Number of rows of a Parquet file; raises if its uncompressed size is too large."""
        try:
            size = measure(self.content)
        except NotParquet as error:
            raise InputError(f"{NAME} is not a valid Parquet file: {error}") from None
        self._check_unpacked(max(size.bytes, size.unpacked))
        schema, rows = parquet.read_end(NAME, self.content)
        self._check_unpacked(sum(self._text_bytes(name, kind) for name, kind in schema.items()))
        return max(size.values, rows)

    def _check_unpacked(self, size: int) -> None:
        if size > MAX_UNPACKED_BYTES:
            raise InputError(
                f"{NAME} may have at most {MAX_UNPACKED_BYTES >> 20} MB uncompressed, but has "
                f"{size >> 20:,} MB"
            )

    def _text_bytes(self, name: str, kind: pl.DataType) -> int:
        """Bytes of all texts of a Parquet file's column, each repetition counted.

        A dictionary may hold one long text among short ones. Polars keeps repetitions as pointers
        as long as nothing is done with the texts.
        """
        if isinstance(kind, pl.Categorical | pl.Enum):
            size = pl.col(name).cat.len_bytes()
        elif kind == pl.String:
            size = pl.col(name).str.len_bytes()
        else:
            return 0
        return parquet.read_sum(NAME, self.content, size)


def complete(upload: Upload, *, every: bool, max_rows: int, seed: int = 0) -> FilledTable:
    """Predict the cells without a value, or every cell."""
    table = upload.read_table(max_rows)
    request = FillRequest.of(table, every=every, limit=max_rows)
    if request.others is not None:
        request.check_csv()
    return fill(Completer(seed=seed, device="cpu").fit_table(table).fitted_, request)


def csv_chunks(filled: FilledTable) -> Iterator[bytes]:
    """Yield a completed table as CSV, part by part."""
    first = True
    for block in filled.blocks():
        for rows in block.iter_slices(ROWS_PER_CHUNK):
            buffer = BytesIO()
            rows.write_csv(buffer, include_header=first)
            first = False
            yield buffer.getvalue()


def check_output(filled: FilledTable, max_bytes: int) -> None:
    """Raise if a completed table is larger as CSV, before any of it is sent."""
    size = sum(len(chunk) for chunk in csv_chunks(filled))
    if size > max_bytes:
        raise TooLarge(
            f"the response to {NAME} may have at most {max_bytes:,} bytes, but would have {size:,}"
        )


def preview(upload: Upload, max_rows: int, seed: int = 0) -> dict[str, Any]:
    """Summarise a file: its content, the error on hidden cells, and a picture of the table."""
    table = upload.read_table(max_rows)
    completer = Completer(seed=seed, device="cpu").fit_table(table)
    picture = None
    if table.order == 2:
        picture = build_picture(completer, (0, 1), choose_members(table, (0, 1)))
    return {
        **summarise(table, upload.wording),
        "notes": [
            word(note, upload.wording) for note in completer.notes_ if note not in table.found
        ],
        "model": completer.model_name_,
        "picture": picture,
    }


def summarise(table: Table, wording: Wording) -> dict[str, Any]:
    """Say what was read, in sentences and in numbers."""
    summary = describe(table)
    return {
        "found": [word(note, wording) for note in table.found],
        "cells": summary["cells"],
        "without_value": summary["without_value"],
        "axes": [{"name": axis["name"], "members": axis["members"]} for axis in summary["axes"]],
        "value": table.value_name,
        "scale": str(table.scale),
        "levels": list(table.scale.levels),
        "positives": table.scale.kind == "positives",
        "wide": table.wide is not None,
    }


def read_columns(upload: Upload, max_rows: int) -> dict[str, Any]:
    """Read the columns and first rows of a file, and the table that they make, or why they do not.

    Nothing is completed, so that the columns can be chosen first.
    """
    problem: InputError | None = None
    table: dict[str, Any] | None = None
    try:
        table = summarise(upload.read_table(max_rows), upload.wording)
    except InputError as error:
        problem = error
    try:
        start = upload.read_start(FIRST_ROWS)
    except InputError as error:  # there are no columns to choose from
        raise (problem or error) from None
    titles = start.columns[:MAX_COLUMNS]
    rows = [
        [None if cell is None else str(cell)[:MAX_TEXT] for cell in row]
        for row in start.select(titles).iter_rows()
    ]
    return {
        "columns": titles,
        "further_columns": len(start.columns) - len(titles),
        "rows": rows,
        "problem": None if problem is None else word(problem, upload.wording),
        "table": table,
    }
