"""Durable storage of a table's cells, in SQLite or PostgreSQL.

Every change is one transaction, which also increments a version. A version therefore identifies one
set of cells, before a restart and after it.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from exchangeable.arrays.cells import Floats
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import Failed, InputError
from exchangeable.runtime.cache import cached_property
from exchangeable.storage.database import open_database, reason_of
from exchangeable.storage.facts import MAX_KEY_BYTES, Cell, Facts, Label

_ROWS_PER_STATEMENT = 5000


class Store:
    """The cells of one table in a database."""

    def __init__(self, engine: Engine, new_file: Path | None = None) -> None:
        """Open a database; ``new_file`` is that of SQLite if it does not exist yet."""
        self.engine = engine
        self.new_file = new_file
        self.head = sa.Table(
            "exchangeable_table",
            sa.MetaData(),
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("facts", sa.Text, nullable=False),
            sa.Column("version", sa.BigInteger, nullable=False),
        )
        self.last_write_failed = False
        local = engine.dialect.name == "sqlite"
        self._file = Path(str(engine.url.database)).absolute() if local else None
        self._facts = self._load_facts()

    @classmethod
    def open(cls, url: str) -> Store:
        """Open the database at a URL such as sqlite:///ratings.db; SQLite's file may be new."""
        try:
            return cls(*open_database(url))
        except SQLAlchemyError as error:
            raise InputError(f"the database cannot be opened: {reason_of(error)}") from None

    def close(self) -> None:
        """Close the database; a file that was created for it and never filled is removed."""
        unused = False
        if self.new_file is not None and self.new_file.exists():
            with suppress(SQLAlchemyError):
                unused = self._load_facts() is None  # another process may have filled it
        self.engine.dispose()
        if unused:
            for ending in ("", "-wal", "-shm"):
                Path(f"{self.new_file}{ending}").unlink(missing_ok=True)

    @property
    def location(self) -> str:
        """The file or the URL of the database, without a password."""
        url = self.engine.url
        return str(url.database) if self.engine.dialect.name == "sqlite" else str(url)

    @property
    def is_empty(self) -> bool:
        """Whether the database holds no table yet."""
        return self._facts is None

    @property
    def facts(self) -> Facts:
        if self._facts is None:
            raise InputError("the database holds no table yet")
        return self._facts

    @cached_property
    def cells(self) -> sa.Table:
        """The SQL table: one column for each axis, one for the value and one for times, if any."""
        keys = [sa.Column(f"m{a}", sa.Text, primary_key=True) for a in range(len(self.facts.axes))]
        numbers = [sa.Column("value", sa.Double, nullable=False)]
        if self.facts.time is not None:
            numbers.append(sa.Column("time", sa.Double))
        return sa.Table("exchangeable_cells", sa.MetaData(), *keys, *numbers)

    def check(self) -> None:
        """Raise unless the database responds and, if the last write failed, can be written to."""
        if self._file is not None and not self._file.exists():  # open connections would still work
            raise Failed("the database cannot be read: its file is gone")
        if self.last_write_failed:
            with self._transaction() as connection:
                connection.execute(sa.update(self.head).values(version=self.head.c.version))
            return
        try:
            with self.engine.connect() as connection:
                self._version(connection)
        except SQLAlchemyError as error:
            raise Failed(f"the database cannot be read: {reason_of(error)}") from None

    def free_bytes(self) -> int | None:
        """Free bytes where the database is kept, if that is on this machine."""
        return None if self._file is None else shutil.disk_usage(self._file.parent).free

    def _load_facts(self) -> Facts | None:
        with self.engine.connect() as connection:
            if not sa.inspect(connection).has_table(self.head.name):
                return None
            text = connection.execute(sa.select(self.head.c.facts)).scalar()
        return None if text is None else Facts.from_json(text)

    # The whole table ---------------------------------------------------------------------

    def fill(self, source: str, table: Table, *, completer: bool = False) -> None:
        """Store a table in an empty database, in one transaction."""
        for name, vocabulary in zip(table.axes, table.vocabularies, strict=True):
            if not (vocabulary.labels.dtype.is_integer() or vocabulary.labels.dtype == pl.String):
                raise InputError(
                    f"labels to serve must be texts or whole numbers, but those of {name!r} are "
                    f"{vocabulary.labels.dtype}"
                )
        if not self.is_empty:
            raise InputError(f"the database already holds {self.facts.source}")
        facts = Facts.of(source, table, completer=completer)
        for axis, vocabulary in enumerate(table.vocabularies):
            for label in vocabulary.labels:
                facts.to_text(axis, label)
        texts = [v.labels.cast(pl.String) for v in table.vocabularies]
        _check_key(sum(int(t.str.len_bytes().to_numpy().max(initial=0)) for t in texts))
        self._facts = facts
        observed = table.values == table.values  # rows without a value are queries
        columns = [text.gather(table.index[observed, axis]) for axis, text in enumerate(texts)]
        columns.append(pl.Series(table.values[observed]))
        if table.times is not None:
            columns.append(pl.Series(table.times[observed]).fill_nan(None))
        rows = zip(*columns, strict=True)
        names = [column.name for column in self.cells.columns]
        head = {"id": 1, "facts": json.dumps(asdict(facts)), "version": 1}
        with self._transaction() as connection:
            self.head.create(connection)
            self.cells.create(connection)
            for chunk in _chunks(rows, _ROWS_PER_STATEMENT):
                records = [dict(zip(names, row, strict=True)) for row in chunk]
                connection.execute(sa.insert(self.cells), records)
            connection.execute(sa.insert(self.head), [head])

    def read_version(self) -> int:
        """Read the version of the cells alone."""
        with self.engine.connect() as connection:
            return self._version(connection)

    def read_table(self) -> tuple[int, Table]:
        """Read all cells, with the version that they belong to."""
        facts = self.facts
        with self.engine.connect() as connection, connection.begin():
            if self.engine.dialect.name == "postgresql":  # both queries see one state
                connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            version = self._version(connection)
            rows = connection.execution_options(yield_per=_ROWS_PER_STATEMENT).execute(
                sa.select(self.cells)
            )
            # In parts: fetching and turning a million rows at once stops all threads for 2 s.
            types = [pl.String] * len(facts.axes) + [pl.Float64] * 2
            parts: list[list[pl.Series]] = [[] for _ in self.cells.columns]
            for part in rows.partitions():
                for kept, values, dtype in zip(parts, zip(*part, strict=True), types, strict=False):
                    kept.append(pl.Series(values, dtype=dtype))
        nothing = pl.Series([], dtype=pl.Null)
        columns = [pl.concat(kept) if kept else nothing for kept in parts]
        labels = {}
        index = []
        for axis, name in enumerate(facts.axes):
            column = columns[axis].cast(pl.Int64 if facts.whole[axis] else pl.String)
            vocabulary, codes = Vocabulary.of(column.rename(name))
            labels[name] = vocabulary.labels
            index.append(codes)
        numbers, *times = columns[len(facts.axes) :]
        table = Table.of_cells(
            labels,
            np.stack(index, axis=1),
            numbers.cast(pl.Float64).to_numpy(writable=True),
            scale=facts.scale,
            value_name=facts.value or "value",
        )
        if times:
            table = replace(
                table,
                times=times[0].cast(pl.Float64).fill_null(nan).to_numpy(writable=True),
                time_name=facts.time,
            )
        return version, table

    # Changes -----------------------------------------------------------------------------

    def put(self, cells: Sequence[tuple[Cell, float]], times: Floats | None = None) -> int:
        """Add cells or replace their values, and return the new version.

        ``times`` are those of the cells, where the table has any; a cell without one has none,
        since that of its value before no longer holds.
        """
        table = self.cells
        keys = [column.name for column in table.primary_key.columns]
        # Of several values for a cell the last one stays, as if they had been written in turn.
        timed = self.facts.time is not None
        at = [None] * len(cells) if times is None else pl.Series(times).fill_nan(None).to_list()
        rows = {
            self._key(cell): {"value": value, **({"time": time} if timed else {})}
            for (cell, value), time in zip(cells, at, strict=True)
        }
        # Always in the same sequence, so that two writers do not wait for each other.
        records = [{**dict(zip(keys, key, strict=True)), **rows[key]} for key in sorted(rows)]
        build = postgresql.insert if self.engine.dialect.name == "postgresql" else sqlite.insert
        statement = build(table)
        changed: dict[str, Any] = {"value": statement.excluded.value}
        if timed:
            changed["time"] = statement.excluded.time
        statement = statement.on_conflict_do_update(index_elements=keys, set_=changed)
        with self._transaction() as connection:
            for chunk in _chunks(records, _ROWS_PER_STATEMENT):
                connection.execute(statement, chunk)
            return self._next_version(connection)

    def delete_cell(self, cell: Cell) -> tuple[int, int]:
        """Delete a cell, and return the version and the number of deleted cells (0 or 1)."""
        key = self._key(cell)
        columns = list(self.cells.primary_key.columns)
        return self._delete([column == text for column, text in zip(columns, key, strict=True)])

    def delete_member(self, axis: int, member: Label) -> tuple[int, int]:
        """Delete all cells of a member, and return the version and their number."""
        return self._delete([self.cells.c[f"m{axis}"] == self.facts.to_text(axis, member)])

    def _delete(self, where: Sequence[sa.ColumnElement[bool]]) -> tuple[int, int]:
        with self._transaction() as connection:
            deleted = connection.execute(sa.delete(self.cells).where(*where)).rowcount
            version = self._next_version(connection) if deleted else self._version(connection)
            return version, deleted

    def truncate_log(self) -> None:
        """Empty SQLite's write-ahead log, unless it is in use: it may hold deleted cells."""
        if self.engine.dialect.name != "sqlite":
            return
        with suppress(SQLAlchemyError, sqlite3.Error), self.engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # outside of any transaction

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """A transaction that is durable if the block ends without an error, and else undone."""
        try:
            with self.engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            self.last_write_failed = True
            raise Failed(f"the database cannot be written to: {reason_of(error)}") from None
        self.last_write_failed = False

    def _next_version(self, connection: Connection) -> int:
        """Increment the version; the transaction holds the row's lock until it is durable."""
        head = self.head
        connection.execute(sa.update(head).values(version=head.c.version + 1))
        return self._version(connection)

    def _version(self, connection: Connection) -> int:
        return int(connection.execute(sa.select(self.head.c.version)).scalar_one())

    def _key(self, cell: Cell) -> tuple[str, ...]:
        facts = self.facts
        facts.check_length(cell)
        key = tuple(facts.to_text(axis, label) for axis, label in enumerate(cell))
        _check_key(sum(len(text.encode()) for text in key))
        return key


def _check_key(size: int) -> None:
    if size > MAX_KEY_BYTES:
        raise InputError(
            f"labels of a cell must have at most {MAX_KEY_BYTES:,} bytes together, but these have "
            f"{size:,}"
        )


def _chunks(rows: Iterable[Any], size: int) -> Iterable[list[Any]]:
    chunk: list[Any] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
