"""Tables as files: rows of a file that a table takes in, and files of all its cells."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from exchangeable.data.options import Duplicates, TableOptions
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.storage.bulk import Row
from exchangeable.storage.facts import Facts

ROWS_PER_MESSAGE = 80
"""Rows that are sent at once, in at most 1 MiB: labels of 2,000 bytes have up to 12,000 in JSON."""
_BYTES_PER_PART = 2**18


def import_options(facts: Facts, duplicates: Duplicates = "error") -> TableOptions:
    """Options for reading a file whose columns have the names of a table's own."""
    kind = facts.kind if facts.kind == "positives" else None
    return TableOptions(
        facts.axes, facts.value, facts.time or "", duplicates=duplicates, scale=kind
    )


def table_rows(facts: Facts, table: Table) -> Iterator[Row]:
    """Yield the cells of a table that was read from a file, as another table stores them."""
    if table.axes != facts.axes:
        raise InputError(f"axes must be {', '.join(facts.axes)}, but are {', '.join(table.axes)}")
    observed = ~np.isnan(table.values)
    facts.check_values(table.values[observed])
    index, values = table.index[observed], table.values[observed]
    times = None if table.times is None else table.times[observed]
    texts = [v.labels.cast(pl.String).to_list() for v in table.vocabularies]
    for n, codes in enumerate(index.tolist()):
        key = facts.to_key(tuple(texts[axis][code] for axis, code in enumerate(codes)))
        yield _row(facts, key, float(values[n]), None if times is None else float(times[n]))


def encode_rows(rows: Iterable[Row]) -> Iterator[bytes]:
    """Yield rows in messages of JSON."""
    remaining = iter(rows)
    while some := list(islice(remaining, ROWS_PER_MESSAGE)):
        yield json.dumps(some, ensure_ascii=False).encode()


def decode_rows(facts: Facts, message: bytes) -> Iterator[Row]:
    """Yield the rows of a message, checked against a table."""
    width = len(facts.axes)
    rows: list[list[Any]] = json.loads(message)
    facts.check_values(np.array([row[width] for row in rows], dtype=np.float64))
    for labels in rows:
        cell, value, *time = labels[:width], labels[width], *labels[width + 1 :]
        facts.check_length(tuple(cell))
        yield _row(facts, facts.to_key(tuple(cell)), float(value), *time)


def csv_parts(frames: Iterable[pl.DataFrame]) -> Iterator[bytes]:
    """Yield frames as one CSV file, part by part."""
    for number, frame in enumerate(frames):
        yield frame.write_csv(include_header=number == 0).encode()


def parquet_parts(frames: Iterable[pl.DataFrame]) -> Iterator[bytes]:
    """Yield frames as one Parquet file, which is written to a temporary one first."""
    with tempfile.TemporaryDirectory(prefix="exchangeable-") as folder:
        path = Path(folder) / "table.parquet"
        pl.concat(frames).write_parquet(path)
        with path.open("rb") as file:
            while part := file.read(_BYTES_PER_PART):
                yield part


def _row(facts: Facts, key: tuple[str, ...], value: float, time: float | None = None) -> Row:
    if facts.time is None:
        return (*key, value)
    known = time is not None and math.isfinite(time)
    return (*key, value, time if known else None)
