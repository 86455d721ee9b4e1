"""Durable storage of a table's cells, in SQLite or PostgreSQL.

Every change is one transaction, which also increments a version. A version therefore identifies one
set of cells, before a restart and after it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import polars as pl
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from exchangeable.arrays.cells import Floats
from exchangeable.data.table import Table
from exchangeable.errors import Failed, InputError
from exchangeable.runtime.cache import cached_property
from exchangeable.storage.bulk import (
    ROWS_PER_PART,
    Row,
    chunks,
    frame_of,
    insert_rows,
    merge_rows,
    staged,
    table_of,
    upsert,
)
from exchangeable.storage.changes import ChangeLog, read_head
from exchangeable.storage.database import (
    Occupied,
    is_lock_timeout,
    open_database,
    reason_of,
    see_one_state,
    truncate_log,
)
from exchangeable.storage.facts import Cell, Facts, Label, check_key
from exchangeable.storage.schema import (
    HEAD,
    cells_table,
    check_name,
    heads,
    migrate,
    name_of,
    new_secret,
    prepare,
    table_names,
    try_writes,
)


class Store:
    """The cells of one table in a database."""

    def __init__(
        self, engine: Engine, new_file: Path | None = None, name: str | None = None
    ) -> None:
        """Open a table by its name, or the first one of the database.

        ``new_file`` is the file of SQLite if it does not exist yet.
        """
        self.engine = engine
        self.new_file = new_file
        self.name = name
        """Name of the table; None if the database is empty and no name was given."""
        self.last_write_failed = False
        local = engine.dialect.name == "sqlite"
        self._file = Path(str(engine.url.database)).absolute() if local else None
        self._facts: Facts | None = None
        self.table_id = 0
        migrate(engine)
        self._load()

    @classmethod
    def open(cls, url: str, name: str | None = None) -> Store:
        """Open a table of the database at a URL such as sqlite:///ratings.db.

        The file of SQLite may be new. Without a name the table is the first one.
        """
        try:
            engine, new_file = open_database(url)
            with ExitStack() as failed:
                failed.callback(engine.dispose)
                store = cls(engine, new_file, name)
                failed.pop_all()
        except SQLAlchemyError as error:
            raise InputError(f"the database cannot be opened: {reason_of(error)}") from None
        return store

    def close(self) -> None:
        """Close the database; a file that was created for it and never filled is removed."""
        unused = False
        if self.new_file is not None and self.new_file.exists():
            with suppress(SQLAlchemyError):
                unused = not self.sources()  # another process may have filled it
        self.engine.dispose()
        if unused:
            for ending in ("", "-wal", "-shm"):
                Path(f"{self.new_file}{ending}").unlink(missing_ok=True)

    @property
    def location(self) -> str:
        """The file or the URL of the database, without a password."""
        shown = self.engine.url.difference_update_query(["password"])
        return str(shown.database) if self.engine.dialect.name == "sqlite" else str(shown)

    @property
    def is_empty(self) -> bool:
        """Whether the database does not hold the table yet."""
        return self._facts is None

    @property
    def facts(self) -> Facts:
        if self._facts is None:
            raise InputError("the database holds no table yet")
        return self._facts

    @cached_property
    def cells(self) -> sa.Table:
        """The SQL table of the cells."""
        return cells_table(self.table_id, self.facts)

    @cached_property
    def log(self) -> ChangeLog:
        """The log of the table's changes."""
        return ChangeLog(self.table_id, self._secret)

    def sources(self) -> dict[str, str]:
        """All tables of the database by name, the first one first, and what they were read from."""
        with self.engine.connect() as connection:
            found = heads(connection)
        return {head.name: Facts.from_json(head.facts).source for head in found}

    def check(self) -> None:
        """Raise unless the database responds and, if the last write failed, can be written to."""
        if self._file is not None and not self._file.exists():  # open connections would still work
            raise Failed("the database cannot be read: its file is gone")
        if self.last_write_failed:
            with self._transaction() as connection:
                try_writes(connection, self.table_id, self.cells)
            return
        try:
            with self.engine.connect() as connection:
                self._version(connection)
        except SQLAlchemyError as error:
            raise Failed(f"the database cannot be read: {reason_of(error)}") from None

    def free_bytes(self) -> int | None:
        """Free bytes where the database is kept, if that is on this machine."""
        return None if self._file is None else shutil.disk_usage(self._file.parent).free

    def _load(self) -> None:
        """Read what the database stores about the table, if it holds it."""
        with self.engine.connect() as connection:
            found = heads(connection)
        head = next((one for one in found if self.name in (None, one.name)), None)
        if head is not None:
            self.table_id, self.name, self._secret = head.id, head.name, head.secret
            self._facts = Facts.from_json(head.facts)

    # The whole table ---------------------------------------------------------------------

    def fill(self, source: str, table: Table, *, completer: bool = False) -> None:
        """Store a table that the database does not hold yet, in one transaction."""
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
        check_key(sum(int(t.str.len_bytes().to_numpy().max(initial=0)) for t in texts))
        observed = table.values == table.values  # rows without a value are queries
        columns = [text.gather(table.index[observed, axis]) for axis, text in enumerate(texts)]
        columns.append(pl.Series(table.values[observed]))
        if table.times is not None:
            columns.append(pl.Series(table.times[observed]).fill_nan(None))
        rows = zip(*columns, strict=True)
        name, secret = check_name(self.name or name_of(source)), new_secret()
        with self._connection() as connection:
            prepare(connection)
            taken = table_names(connection)
            if name in taken:
                raise InputError(f"the database already holds a table named {name}")
            table_id = connection.execute(sa.select(sa.func.max(HEAD.c.id))).scalar() or 0
            head = {"id": table_id + 1, "name": name, "secret": secret, "version": 1}
            connection.execute(sa.insert(HEAD), [{**head, "facts": json.dumps(asdict(facts))}])
            cells = cells_table(table_id + 1, facts)
            cells.create(connection)
            insert_rows(connection, cells, rows)
        self._load()

    def read_version(self) -> int:
        """Read the version of the cells alone."""
        with self.engine.connect() as connection:
            return self._version(connection)

    def read_table(self) -> tuple[int, Table]:
        """Read all cells, with the version that they belong to."""
        facts = self.facts
        with self.engine.connect() as connection, connection.begin():
            see_one_state(connection)
            version = self._version(connection)
            # In parts: turning a million rows into columns at once stops all threads for 2 s.
            frame = pl.concat(self._frames(connection))
        return version, table_of(facts, frame)

    def export(self) -> Generator[pl.DataFrame, None, None]:
        """Yield the cells of one version in parts, at least one, as frames with labels."""
        with self.engine.connect() as connection, connection.begin():
            yield from self._frames(connection)

    def _frames(self, connection: Connection) -> Iterator[pl.DataFrame]:
        rows = connection.execution_options(yield_per=ROWS_PER_PART).execute(sa.select(self.cells))
        yield frame_of(self.facts, [])
        for part in rows.partitions():
            yield frame_of(self.facts, part)

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
        texts = sorted(rows)
        records = [{**dict(zip(keys, key, strict=True)), **rows[key]} for key in texts]
        statement = upsert(table)
        with self._connection() as connection:
            version = self._next_version(connection)  # which takes the table's lock
            for chunk in chunks(records, ROWS_PER_PART):
                connection.execute(statement(connection), chunk)
            self.log.put(connection, version, texts, records)
            return version

    def load(self, rows: Iterable[Row]) -> tuple[int, int]:
        """Add very many cells or replace their values; return the version and their number.

        Other writers wait only while the rows, once all have come, are merged into the table.
        """
        with self._connection(writes=False) as connection:
            with staged(connection, self.cells) as stage:
                number = insert_rows(connection, stage, rows)
                version = self._next_version(connection)  # which takes the lock
                merge_rows(connection, stage, self.cells)
            self.log.load(connection, version)
        return version, number

    def delete_cell(self, cell: Cell) -> tuple[int, int]:
        """Delete a cell, and return the version and the number of deleted cells (0 or 1)."""
        key = self._key(cell)
        columns = list(self.cells.primary_key.columns)
        where = [column == text for column, text in zip(columns, key, strict=True)]
        return self._delete(where, self.log.delete_cell)

    def delete_member(self, axis: int, member: Label) -> tuple[int, int]:
        """Delete all cells of a member, and return the version and their number."""
        text = self.facts.to_text(axis, member)
        log = partial(self.log.delete_member, axis=axis, text=text)
        return self._delete([self.cells.c[f"m{axis}"] == text], log)

    def _delete(
        self,
        where: Sequence[sa.ColumnElement[bool]],
        log: Callable[[Connection, int], None],
    ) -> tuple[int, int]:
        with self._transaction() as connection:
            deleted = connection.execute(sa.delete(self.cells).where(*where)).rowcount
            if not deleted:
                return self._version(connection), 0
            version = self._next_version(connection)
            log(connection, version)
            return version, deleted

    def trim_log(self) -> None:
        """Remove old entries of the log of changes."""
        with self.engine.connect() as connection:
            due = self.log.has_old(connection)
        if due:
            with self._connection() as connection:
                self.log.trim(connection)

    def truncate_log(self) -> None:
        """Empty SQLite's write-ahead log, unless it is in use: it may hold deleted cells."""
        truncate_log(self.engine)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """A transaction that holds the table's lock, so that versions are durable in sequence."""
        with self._connection() as connection:
            if connection.dialect.name == "postgresql":
                locked = sa.select(HEAD.c.version).where(self._own).with_for_update()
                connection.execute(locked)
            yield connection

    @contextmanager
    def _connection(self, *, writes: bool = True) -> Iterator[Connection]:
        """A transaction that is durable if the block ends without an error, and else undone."""
        try:
            with self.engine.execution_options(writes=writes).begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            if is_lock_timeout(error):
                raise Occupied("another writer holds the table: try again") from None
            self.last_write_failed = True
            raise Failed(f"the database cannot be written to: {reason_of(error)}") from None
        self.last_write_failed = False

    @property
    def _own(self) -> sa.ColumnElement[bool]:
        return HEAD.c.id == self.table_id

    def _next_version(self, connection: Connection) -> int:
        """Increment the version; the transaction holds the row's lock until it is durable."""
        next_one = sa.update(HEAD).where(self._own).values(version=HEAD.c.version + 1)
        return int(connection.execute(next_one.returning(HEAD.c.version)).scalar_one())

    def _version(self, connection: Connection) -> int:
        return read_head(connection, self.table_id)

    def _key(self, cell: Cell) -> tuple[str, ...]:
        facts = self.facts
        facts.check_length(cell)
        return facts.to_key(cell)
