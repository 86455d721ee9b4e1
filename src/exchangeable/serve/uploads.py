"""Uploaded files: checked and read in memory, completed, and summarised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import polars as pl

from exchangeable.arrays.cells import Floats, Index
from exchangeable.completion.completer import Completer
from exchangeable.completion.fill import FilledTable, FillRequest, fill
from exchangeable.data.build import table_from_source
from exchangeable.data.options import TableOptions
from exchangeable.data.summary import busiest_members, describe, mean_table
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.files import parquet
from exchangeable.files.parquet_size import NotParquet, measure
from exchangeable.predictors.base import COVERAGE, MEAN, interval_ends, read_predictions
from exchangeable.storage.facts import MAX_LABEL_LENGTH

NAME = "the file"
"""How errors refer to an upload; the name that a client sends is ignored."""
MAX_UNPACKED_BYTES = 256 * 2**20
"""Maximum size of a Parquet file's columns in memory."""
ROWS_PER_CHUNK = 2**13
"""Rows of a CSV response that are sent at once."""
PICTURE_MEMBERS = 60
"""Maximum number of members per axis in the picture."""
_ARCHIVES = (b"\x1f\x8b", b"PK\x03\x04")


class TooLarge(InputError):
    """A file that takes more than the limits of memory, time or output allow."""


@dataclass(frozen=True)
class Upload:
    """The content of a file, and options for reading it."""

    content: bytes
    options: TableOptions = field(default_factory=TableOptions)

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
    summary = describe(table)
    return {
        "found": list(table.found),
        "notes": [note for note in completer.notes_ if note not in table.found],
        "model": completer.model_name_,
        "cells": summary["cells"],
        "without_value": summary["without_value"],
        "axes": [{"name": axis["name"], "members": axis["members"]} for axis in summary["axes"]],
        "scale": str(table.scale),
        "picture": build_picture(completer) if table.order == 2 else None,
    }


def build_picture(completer: Completer) -> dict[str, Any]:
    """Observed and predicted values of the busiest members, sorted so that structure shows."""
    table = completer.table_
    chosen = busiest_members(table, 0, PICTURE_MEMBERS), busiest_members(table, 1, PICTURE_MEMBERS)
    cells = np.stack(np.meshgrid(*chosen, indexing="ij"), axis=-1)
    statistics = read_predictions(
        completer.predictor_, cells.reshape(-1, 2), MEAN, *interval_ends(COVERAGE)
    )
    mean, low, high = (part.reshape(cells.shape[:2]) for part in statistics)
    rows, columns = _sort_by_structure(mean)
    observed = mean_table(table, chosen)

    def to_lists(values: Floats) -> list[list[float | None]]:
        rounded = np.round(values[np.ix_(rows, columns)], 4)
        return [[None if np.isnan(v) else float(v) for v in row] for row in rounded]

    labels = [
        [str(table.vocabularies[axis].labels[int(n)]) for n in members[permutation]]
        for axis, (members, permutation) in enumerate(zip(chosen, (rows, columns), strict=True))
    ]
    return {
        "rows": labels[0],
        "columns": labels[1],
        "observed": to_lists(observed),
        "mean": to_lists(mean),
        "low": to_lists(low),
        "high": to_lists(high),
    }


def _sort_by_structure(mean: Floats) -> tuple[Index, Index]:
    """Permutations of rows and columns by the first singular vectors, biases removed."""
    residuals = mean - mean.mean(axis=1, keepdims=True) - mean.mean(axis=0) + mean.mean()
    rows, sizes, columns = np.linalg.svd(residuals, full_matrices=False)
    if not len(sizes) or sizes[0] < 1e-9:  # there is nothing but biases
        return np.argsort(mean.mean(axis=1)), np.argsort(mean.mean(axis=0))
    sign = (
        1.0 if rows[:, 0].sum() >= 0 else -1.0
    )  # a fixed sign, else the direction would be arbitrary
    return np.argsort(sign * rows[:, 0]), np.argsort(sign * columns[0])
