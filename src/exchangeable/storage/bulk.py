"""Very many rows: into SQL tables, from one into another, and out as frames and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import polars as pl
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.storage.facts import Facts

Row = tuple[Any, ...]
"""Labels of a cell as they are stored, its value and, where the table has times, its time."""
ROWS_PER_PART = 5000
"""Rows of a statement, and of a part of what is read."""
_STAGE = "exchangeable_staged"
_SECONDS = 600  # for rows to arrive in PostgreSQL, and for it to merge them into a table


def chunks(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of at most ``size`` rows."""
    remaining = iter(rows)
    while chunk := list(islice(remaining, size)):
        yield chunk


def upsert(table: sa.Table) -> Callable[[Connection], Any]:
    """Return the statement that adds cells, or replaces their values and times."""

    def build(connection: Connection) -> Any:
        insert = _insert(connection)(table)
        return _replacing(insert, table)

    return build


def insert_rows(connection: Connection, table: sa.Table, rows: Iterable[Row]) -> int:
    """Insert rows, by COPY into PostgreSQL, and return their number."""
    names = [column.name for column in table.columns]
    number = 0
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"SET LOCAL statement_timeout = '{_SECONDS}s'"))
        driver = connection.connection.driver_connection
        assert driver is not None
        columns = ", ".join(names)  # names of this module's own
        with (
            driver.cursor() as cursor,
            cursor.copy(f"COPY {table.name} ({columns}) FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)
                number += 1
        return number
    for chunk in chunks(rows, ROWS_PER_PART):
        records = [dict(zip(names, row, strict=True)) for row in chunk]
        connection.execute(sa.insert(table), records)
        number += len(chunk)
    return number


@contextmanager
def staged(connection: Connection, cells: sa.Table) -> Iterator[sa.Table]:
    """A temporary table with the columns of another one, which only this transaction sees."""
    columns = [sa.Column(c.name, c.type, primary_key=c.primary_key) for c in cells.columns]
    stage = sa.Table(_STAGE, sa.MetaData(), *columns, prefixes=["TEMPORARY"])
    stage.create(connection)
    yield stage
    stage.drop(connection)  # after an error the whole transaction is undone


def merge_rows(connection: Connection, stage: sa.Table, cells: sa.Table) -> None:
    """Add the rows of one table to another, or replace the values and times of its rows."""
    names = [column.name for column in cells.columns]
    rows = sa.select(*(stage.c[name] for name in names)).where(sa.true())
    insert = _insert(connection)(cells).from_select(names, rows)
    connection.execute(_replacing(insert, cells))


def frame_of(facts: Facts, rows: Sequence[Any]) -> pl.DataFrame:
    """Rows of the database as a frame: labels by axis, values, and times, if any."""
    width = len(facts.axes) + 1 + (facts.time is not None)
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * width
    series = []
    for axis, name in enumerate(facts.axes):
        labels = pl.Series(name, columns[axis], dtype=pl.String)
        series.append(labels.cast(pl.Int64) if facts.whole[axis] else labels)
    series.append(pl.Series(value_name(facts), columns[len(facts.axes)], dtype=pl.Float64))
    if facts.time is not None:
        series.append(pl.Series(facts.time, columns[-1], dtype=pl.Float64))
    return pl.DataFrame(series)


def value_name(facts: Facts) -> str:
    """Name of the values; positives have none, and an axis may be called value."""
    return facts.value or ("value" if "value" not in facts.axes else "value of cell")


def table_of(facts: Facts, frame: pl.DataFrame) -> Table:
    """A frame of the database's rows as a table."""
    labels, index = {}, []
    for name in facts.axes:
        vocabulary, codes = Vocabulary.of(frame[name])
        labels[name] = vocabulary.labels
        index.append(codes)
    table = Table.of_cells(
        labels,
        np.stack(index, axis=1),
        frame.to_series(len(facts.axes)).to_numpy(writable=True),
        scale=facts.scale,
        value_name=value_name(facts),
    )
    if facts.time is None:
        return table
    times = frame.to_series(-1).fill_null(np.nan).to_numpy(writable=True)
    return replace(table, times=times, time_name=facts.time)


def _insert(connection: Connection) -> Callable[[sa.Table], Any]:
    return postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert


def _replacing(insert: Any, table: sa.Table) -> Any:
    """An insert that replaces values and times of the cells that there are."""
    changed = {c.name: insert.excluded[c.name] for c in table.columns if not c.primary_key}
    return insert.on_conflict_do_update(
        index_elements=[column.name for column in table.primary_key.columns], set_=changed
    )
