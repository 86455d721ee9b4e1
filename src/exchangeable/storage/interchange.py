"""Tables as files: rows of a file that a table takes in, and files of all its cells."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import IO, Any

import numpy as np
import polars as pl

from exchangeable.data.options import TableOptions
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.storage.bulk import Row
from exchangeable.storage.facts import Facts

_PLAIN = TableOptions()
ROWS_PER_MESSAGE = 80
"""Rows that are sent at once, in at most 1 MiB: labels of 2,000 bytes have up to 12,000 in JSON."""


def import_options(facts: Facts, options: TableOptions = _PLAIN) -> TableOptions:
    """Options for reading a file whose columns have the names of a table's own."""
    kind = facts.kind if facts.kind == "positives" else None
    time = facts.time or ""
    return replace(options, axes=facts.axes, value=facts.value, time=time, scale=kind)


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


def write_csv(frames: Iterable[pl.DataFrame], file: IO[bytes]) -> None:
    """Write frames as one CSV file."""
    for number, frame in enumerate(frames):
        file.write(frame.write_csv(include_header=number == 0).encode())


def write_parquet(frames: Iterable[pl.DataFrame], file: IO[bytes]) -> None:
    """Write frames as one Parquet file."""
    pl.concat(frames).write_parquet(file)


WRITERS: dict[str, Callable[[Iterable[pl.DataFrame], IO[bytes]], None]] = {
    "csv": write_csv,
    "parquet": write_parquet,
}
"""Functions that write frames to a file, by format."""


def _row(facts: Facts, key: tuple[str, ...], value: float, time: float | None = None) -> Row:
    if facts.time is None:
        return (*key, value)
    known = time is not None and math.isfinite(time)
    return (*key, value, time if known else None)
