"""Connections to the database, SQLite or PostgreSQL, whose every wait ends."""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from exchangeable.errors import Failed, InputError

_WAIT = 5  # seconds to wait for another writer, or for a server that does not respond
_STATEMENT = 60  # seconds until PostgreSQL gives up a statement
_SILENCE = 65.0  # seconds until the connection to a server that does not even do that is cut
_LIMITS: dict[str, Any] = {
    "connect_timeout": _WAIT,
    "tcp_user_timeout": 1000 * _WAIT,
    "keepalives_idle": _WAIT,
    "keepalives_interval": 1,
    "keepalives_count": _WAIT,
    "options": f"-c lock_timeout={1000 * _WAIT} -c statement_timeout={1000 * _STATEMENT} "
    f"-c idle_in_transaction_session_timeout={1000 * _STATEMENT}",
}
"""Time limits for PostgreSQL, which would otherwise wait without end."""
_LOCK_NOT_AVAILABLE = "55P03"
WRITES: dict[str, Any] = {"writes": True}
"""Option of connections whose transactions write."""


class Occupied(Failed):
    """Another writer held the table for longer than a write may wait."""


def open_database(url: str | sa.URL) -> tuple[Engine, Path | None]:
    """Open the database at a URL; also return the file of SQLite if it does not exist yet."""
    new_file = None
    try:
        address = sa.make_url(url)
        if address.get_backend_name() == "sqlite":
            if address.database in (None, "", ":memory:"):
                raise InputError(f"the database must be kept in a file, but {url} names none")
            file = Path(str(address.database)).absolute()
            new_file = None if file.exists() else file
            engine = sa.create_engine(address, connect_args={"timeout": _WAIT})
            sa.event.listen(engine, "connect", _configure_sqlite)
            sa.event.listen(engine, "begin", _begin_sqlite)
        elif address.get_backend_name() == "postgresql":
            if address.drivername == "postgresql":
                address = address.set(drivername="postgresql+psycopg")
            limits = {name: value for name, value in _LIMITS.items()
                      if name not in address.query}  # fmt: skip
            engine = sa.create_engine(
                address, pool_pre_ping=True, pool_timeout=_WAIT, connect_args=limits
            )
            sa.event.listen(engine, "do_connect", _connect_with_time_limit)
        else:
            raise InputError(
                f"the database must be sqlite or postgresql, but is {address.drivername}"
            )
        return engine, new_file
    except ModuleNotFoundError as error:
        raise InputError(
            f"PostgreSQL needs {error.name}: pip install 'exchangeable[postgres]'"
        ) from None


def _connect_with_time_limit(dialect: Any, record: Any, arguments: Any, options: Any) -> Any:
    """Connect to PostgreSQL so that waiting for it ends, also if the server has been stopped.

    Its time limits need a server that runs, and those of TCP one whose machine does not respond.
    """
    import psycopg

    class Connection(psycopg.Connection[Any]):
        def wait(self, *generator: Any, **options: Any) -> Any:
            with socket.socket(fileno=os.dup(self.pgconn.socket)) as line:
                timer = threading.Timer(_SILENCE, _cut, (line,))
                timer.daemon = True
                timer.start()
                try:
                    return super().wait(*generator, **options)
                finally:
                    timer.cancel()

    connected = Connection.connect(*arguments, **options)
    encoding = connected.info.parameter_status("server_encoding")
    if encoding != "UTF8":  # labels may be any text
        connected.close()
        raise InputError(f"the database must have the encoding UTF8, but has {encoding}")
    return connected


def _cut(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def _configure_sqlite(connection: Any, record: Any) -> None:
    """Let readers go on beside a writer, and let commits survive a loss of power."""
    connection.isolation_level = (
        None  # else reads would be in no transaction, and could see two states
    )
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    """Begin a transaction; one that writes takes the lock first, before it reads anything."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def see_one_state(connection: sa.Connection) -> None:
    """Let all queries of a transaction that has begun see one state of the database."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))


def truncate_log(engine: Engine) -> None:
    """Empty SQLite's write-ahead log, unless it is in use."""
    if engine.dialect.name != "sqlite":
        return
    with suppress(SQLAlchemyError, sqlite3.Error), engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # outside of any transaction


def is_lock_timeout(error: SQLAlchemyError) -> bool:
    """Whether a statement waited in vain for another writer."""
    original = getattr(error, "orig", None)
    code = getattr(original, "sqlstate", None)
    return code == _LOCK_NOT_AVAILABLE or "database is locked" in str(original)


def reason_of(error: SQLAlchemyError | sqlite3.Error) -> str:
    """The first line of an error, without the statement, which contains labels and values."""
    original = getattr(error, "orig", None) or error
    return str(original).splitlines()[0]
