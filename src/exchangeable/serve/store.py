"""Where interactions live: a database, so that what was acknowledged is there after any stop.

SQLite or PostgreSQL. Every change is one transaction, which also counts up a version; so a version
tells exactly which cells there are, before a restart and after it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import Failed, InputError
from exchangeable.values.scale import Kind, Scale

Label = str | int
Cell = tuple[Label, ...]
"""Labels of its members, one for each axis."""

LONGEST = 500
"""Characters of a label."""
LONGEST_KEY = 2000
"""Bytes of all labels of a cell, which PostgreSQL finds it by."""
_AT_ONCE = 5000  # rows in one statement
_WAIT = 5  # seconds for a writer elsewhere, or for a server that is not there
_STATEMENT = 60  # seconds
_WHOLE = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class Facts:
    """What is known of a table beside its cells; it stays while cells come and go."""

    source: str
    """What it was made from."""
    axes: tuple[str, ...]
    whole: tuple[bool, ...]
    """Of each axis, whether its labels are whole numbers; else they are texts."""
    value: str | None
    kind: Kind
    levels: tuple[float, ...]
    completer: bool = False
    """Whether ``source`` is the folder of a completer, which is needed again."""

    @classmethod
    def of(cls, source: str, table: Table, *, completer: bool = False) -> Facts:
        whole = tuple(v.labels.dtype.is_integer() for v in table.vocabularies)
        scale = table.scale
        return cls(source, table.axes, whole, table.value_name, scale.kind, scale.levels, completer)

    @classmethod
    def of_json(cls, text: str) -> Facts:
        stored: dict[str, Any] = json.loads(text)
        lists = {name: tuple(v) for name, v in stored.items() if isinstance(v, list)}
        return cls(**{**stored, **lists})

    @property
    def scale(self) -> Scale:
        return Scale(self.kind, self.levels)

    def written(self, axis: int, label: Label) -> str:
        """A label as the database has it; raises if the axis can have no such label."""
        name, text = self.axes[axis], str(label)
        if self.whole[axis]:
            if not _WHOLE.fullmatch(text) or str(int(text)) != text:
                raise InputError(f"labels of {name!r} are whole numbers, but this is {text[:60]!r}")
            return text
        if not text or len(text) > LONGEST:
            raise InputError(
                f"a label of {name!r} has 1 to {LONGEST} characters, but this has {len(text)}"
            )
        if "\x00" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise InputError(f"a label of {name!r} holds characters that are none: {text[:60]!r}")
        return text

    def read(self, axis: int, text: str) -> Label:
        return int(text) if self.whole[axis] else text


_LIMITS: dict[str, Any] = {
    "connect_timeout": _WAIT,
    "tcp_user_timeout": 1000 * _WAIT,
    "options": f"-c lock_timeout={1000 * _WAIT} -c statement_timeout={1000 * _STATEMENT}",
}
"""For PostgreSQL, which would wait for ever."""


class Store:
    """A table's cells in a database."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.head = sa.Table(
            "exchangeable_table",
            sa.MetaData(),
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("facts", sa.Text, nullable=False),
            sa.Column("version", sa.BigInteger, nullable=False),
        )
        self._facts = self._known()

    @classmethod
    def open(cls, url: str) -> Store:
        """The database at an address such as sqlite:///ratings.db; it is made if there is none."""
        try:
            address = sa.make_url(url)
            if address.get_backend_name() == "sqlite":
                if address.database in (None, "", ":memory:"):
                    raise InputError(f"a database is kept in a file, but {url} names none")
                engine = sa.create_engine(address, connect_args={"timeout": _WAIT})
                sa.event.listen(engine, "connect", _durably)
                sa.event.listen(engine, "begin", lambda c: c.exec_driver_sql("BEGIN"))
            elif address.get_backend_name() == "postgresql":
                if address.drivername == "postgresql":
                    address = address.set(drivername="postgresql+psycopg")
                limits = {name: value for name, value in _LIMITS.items()
                          if name not in address.query}  # fmt: skip
                engine = sa.create_engine(address, pool_pre_ping=True, connect_args=limits)
            else:
                raise InputError(
                    f"a database is sqlite or postgresql, but this is {address.drivername}"
                )
            return cls(engine)
        except SQLAlchemyError as error:
            raise InputError(f"the database cannot be opened: {_reason(error)}") from None
        except ModuleNotFoundError as error:
            raise InputError(
                f"PostgreSQL needs {error.name}: pip install 'exchangeable[postgres]'"
            ) from None

    def close(self) -> None:
        self.engine.dispose()

    @property
    def place(self) -> str:
        """Where it is, without a password."""
        url = self.engine.url
        return str(url.database) if self.engine.dialect.name == "sqlite" else str(url)

    @property
    def empty(self) -> bool:
        """Whether no table was put in yet."""
        return self._facts is None

    @property
    def facts(self) -> Facts:
        if self._facts is None:
            raise InputError("the database holds no table yet")
        return self._facts

    @cached_property
    def cells(self) -> sa.Table:
        """One column for each axis and one for the value."""
        keys = [sa.Column(f"m{a}", sa.Text, primary_key=True) for a in range(len(self.facts.axes))]
        value = sa.Column("value", sa.Double, nullable=False)
        return sa.Table("exchangeable_cells", sa.MetaData(), *keys, value)

    def _known(self) -> Facts | None:
        with self.engine.connect() as connection:
            if not sa.inspect(connection).has_table(self.head.name):
                return None
            found = connection.execute(sa.select(self.head.c.facts)).scalar()
        return None if found is None else Facts.of_json(found)

    # The whole table ---------------------------------------------------------------------

    def fill(self, source: str, table: Table, *, completer: bool = False) -> None:
        """Put a table in, whole or not at all; there must be none yet."""
        for axis, vocabulary in zip(table.axes, table.vocabularies, strict=True):
            if not (vocabulary.labels.dtype.is_integer() or vocabulary.labels.dtype == pl.String):
                raise InputError(
                    f"labels to be served are texts or whole numbers, but those of {axis!r} are "
                    f"{vocabulary.labels.dtype}"
                )
        if not self.empty:
            raise InputError(f"the database holds {self.facts.source} already")
        facts = Facts.of(source, table, completer=completer)
        for number, vocabulary in enumerate(table.vocabularies):
            for label in vocabulary.labels:
                facts.written(number, label)
        texts = [v.labels.cast(pl.String) for v in table.vocabularies]
        _check_key(sum(int(t.str.len_bytes().to_numpy().max(initial=0)) for t in texts))
        self._facts = facts
        seen = table.values == table.values  # those without a value are questions
        columns = [text.gather(table.index[seen, axis]) for axis, text in enumerate(texts)]
        rows = zip(*columns, table.values[seen].tolist(), strict=True)
        names = [column.name for column in self.cells.columns]
        told = {"id": 1, "facts": json.dumps(asdict(facts)), "version": 1}
        with _change(self.engine) as connection:
            self.head.create(connection)
            self.cells.create(connection)
            for some in _parts(rows, _AT_ONCE):
                listed = [dict(zip(names, row, strict=True)) for row in some]
                connection.execute(sa.insert(self.cells), listed)
            connection.execute(sa.insert(self.head), [told])

    def table(self) -> tuple[int, Table]:
        """All cells, and the version that they are of."""
        facts = self.facts
        with self.engine.connect() as connection, connection.begin():
            if self.engine.dialect.name == "postgresql":  # one moment for both questions
                connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            version = self._version(connection)
            rows = connection.execute(sa.select(self.cells)).all()
        columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(self.cells.columns)
        labels = {}
        index = []
        for number, axis in enumerate(facts.axes):
            column = pl.Series(axis, columns[number], dtype=pl.String)
            if facts.whole[number]:
                column = column.cast(pl.Int64)
            vocabulary, codes = Vocabulary.of(column)
            labels[axis] = vocabulary.labels
            index.append(codes)
        return version, Table.of_cells(
            labels,
            np.stack(index, axis=1),
            np.asarray(columns[-1], dtype=np.float64),
            scale=facts.scale,
            value_name=facts.value or "value",
        )

    # Changes -----------------------------------------------------------------------------

    def put(self, cells: Sequence[tuple[Cell, float]]) -> int:
        """Write cells, new ones or in place of what they were; the version after that."""
        table = self.cells
        keys = [column.name for column in table.primary_key.columns]
        # The last of several values for a cell stays, as if they had come one after the other.
        rows = {self._key(cell): value for cell, value in cells}
        # In one order always, so that two writers do not wait for each other.
        listed = [{**dict(zip(keys, key, strict=True)), "value": rows[key]} for key in sorted(rows)]
        build = postgresql.insert if self.engine.dialect.name == "postgresql" else sqlite.insert
        statement = build(table)
        statement = statement.on_conflict_do_update(
            index_elements=keys, set_={"value": statement.excluded.value}
        )
        with _change(self.engine) as connection:
            for some in _parts(listed, _AT_ONCE):
                connection.execute(statement, some)
            return self._counted(connection)

    def remove(self, cell: Cell) -> tuple[int, int]:
        """Take a cell out: the version after that, and how many cells went (0 or 1)."""
        key = self._key(cell)
        names = list(self.cells.primary_key.columns)
        return self._deleted([c == text for c, text in zip(names, key, strict=True)])

    def forget(self, axis: int, member: Label) -> tuple[int, int]:
        """Take everything about a member out: the version, and how many cells went."""
        return self._deleted([self.cells.c[f"m{axis}"] == self.facts.written(axis, member)])

    def _deleted(self, where: Sequence[sa.ColumnElement[bool]]) -> tuple[int, int]:
        with _change(self.engine) as connection:
            gone = connection.execute(sa.delete(self.cells).where(*where)).rowcount
            return self._counted(connection) if gone else self._version(connection), gone

    def wipe(self) -> None:
        """Let nothing of what was deleted stay in SQLite's log of changes, unless it is in use."""
        if self.engine.dialect.name != "sqlite":
            return
        with suppress(SQLAlchemyError, sqlite3.Error), self.engine.connect() as connection:
            plain = connection.connection.driver_connection
            assert plain is not None
            plain.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # outside of any transaction

    def _counted(self, connection: Connection) -> int:
        """Count the version up; who does so holds the row until the change is durable."""
        head = self.head
        connection.execute(sa.update(head).values(version=head.c.version + 1))
        return self._version(connection)

    def _version(self, connection: Connection) -> int:
        return int(connection.execute(sa.select(self.head.c.version)).scalar_one())

    def _key(self, cell: Cell) -> tuple[str, ...]:
        facts = self.facts
        if len(cell) != len(facts.axes):
            raise InputError(
                f"a cell has {len(facts.axes)} labels ({', '.join(facts.axes)}), but this has "
                f"{len(cell)}"
            )
        key = tuple(facts.written(axis, label) for axis, label in enumerate(cell))
        _check_key(sum(len(text.encode()) for text in key))
        return key


def _check_key(size: int) -> None:
    if size > LONGEST_KEY:
        raise InputError(
            f"labels of a cell have at most {LONGEST_KEY:,} bytes together, but these have {size:,}"
        )


@contextmanager
def _change(engine: Engine) -> Iterator[Connection]:
    """A transaction: durable when it ends without an error, and otherwise nothing."""
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise Failed(f"the database cannot be written to: {_reason(error)}") from None


def _durably(connection: Any, record: Any) -> None:
    """Readers do not wait for a writer, and what was committed survives a loss of power, too."""
    connection.isolation_level = None  # else reading would be no transaction, and see two moments
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _parts(rows: Iterable[Any], size: int) -> Iterable[list[Any]]:
    part: list[Any] = []
    for row in rows:
        part.append(row)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def _reason(error: SQLAlchemyError) -> str:
    """In one line, without the statement, which holds what people rated."""
    original = getattr(error, "orig", None) or error
    return str(original).splitlines()[0]
