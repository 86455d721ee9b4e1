"""Parquet files: their columns, and some rows of a column at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl

from exchangeable.errors import InputError
from exchangeable.files.source import Source
from exchangeable.files.titles import check_titles


def is_parquet(source: Source) -> bool:
    """Whether a file starts with Parquet's mark, or has its ending."""
    if isinstance(source, bytes):
        return source[:4] == b"PAR1"
    with source.open("rb") as file:
        return file.read(4) == b"PAR1" or source.suffix.lower() == ".parquet"


def read_whole(name: str, source: Source) -> pl.DataFrame:
    with _damage_as_input_error(name):
        return _scan(source).collect()


def read_start(name: str, source: Source, rows: int) -> pl.DataFrame:
    with _damage_as_input_error(name):
        return _scan(source).head(rows).collect()


def read_end(name: str, source: Source) -> tuple[pl.Schema, int]:
    """Read the columns and the number of rows of a file, which are at its end."""
    with _damage_as_input_error(name):
        scan = _scan(source)
        schema, rows = scan.collect_schema(), int(scan.select(pl.len()).collect().item())
    check_titles(name, schema)
    return schema, rows


def read_rows(name: str, source: Source, column: str, start: int, rows: int) -> pl.Series:
    """Read some rows of a column; row groups without any of them are not read."""
    with _damage_as_input_error(name):
        return _scan(source).select(column).slice(start, rows).collect()[column]


def read_sum(name: str, source: Source, numbers: pl.Expr) -> int:
    """Sum whole numbers that are computed from the columns of a file."""
    with _damage_as_input_error(name):
        return int(_scan(source).select(numbers.cast(pl.Int64).sum()).collect().item())


def _scan(source: Source) -> pl.LazyFrame:
    return pl.scan_parquet(source, glob=False)


@contextmanager
def _damage_as_input_error(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{name}: not a whole Parquet file ({reason})") from None
