"""A connection of its own that follows the changes of a table, beside those that requests share."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from exchangeable.errors import Failed
from exchangeable.storage.changes import CHANNEL, Entry, read_head
from exchangeable.storage.database import open_database, reason_of
from exchangeable.storage.store import Store

POLL_SECONDS = {"sqlite": 0.1, "postgresql": 0.25}
"""Seconds between two looks at the table's version; PostgreSQL also notifies of changes."""

TOGETHER_SECONDS = 0.02
"""Seconds to wait after a notification: further changes are then read together with the first."""


@dataclass(frozen=True)
class News:
    """What has changed since a version."""

    version: int
    """Version of the table now."""
    entries: tuple[Entry, ...]
    """Changes up to it that the log still has, by ascending version."""


class Watch:
    """Looks at a table's version and log; it connects again after a failure."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._engine = open_database(store.engine.url)[0]
        self._connection: Connection | None = None
        self._stamp: tuple[int, int] | None = None
        """What SQLite counted before the last look, and the version that this found."""
        self._woken = threading.Event()
        self._closed = False

    def close(self) -> None:
        """End waiting; the thread that waits then disconnects."""
        self._closed = True
        self._woken.set()

    def disconnect(self) -> None:
        """Close the connection; the next look opens another one."""
        connection, self._connection, self._stamp = self._connection, None, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.invalidate()
                connection.close()
        self._engine.dispose()

    def look(self, after: int) -> News:
        """Return the table's version, and the changes after a version."""
        try:
            connection = self._connected()
            if self._is_postgresql:
                stamp = None
            else:  # 18 microseconds in place of 380
                stamp = int(self._driver.execute("PRAGMA data_version").fetchone()[0])
                if self._stamp is not None and self._stamp == (stamp, after):
                    return News(after, ())
            with connection.begin():
                version = read_head(connection, self.store.table_id)
                entries = self.store.log.read(connection, after) if version > after else []
            # Changes may have come between the two queries.
            newest = max([version, *(entry.version for entry in entries)])
        except (SQLAlchemyError, sqlite3.Error) as error:
            self.disconnect()
            raise Failed(f"the database cannot be followed: {reason_of(error)}") from None
        self._stamp = None if stamp is None else (stamp, newest)
        return News(newest, tuple(entries))

    def wait(self, seconds: float | None = None) -> None:
        """Wait for a notification, or some seconds."""
        seconds = POLL_SECONDS[self._engine.dialect.name] if seconds is None else seconds
        if self._connection is None or not self._is_postgresql:
            self._woken.wait(seconds)
            return
        try:
            for _ in self._driver.notifies(timeout=seconds, stop_after=1):
                self._woken.wait(TOGETHER_SECONDS)
        except Exception:  # the next look connects again, and says what is wrong
            self._woken.wait(seconds)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def _driver(self) -> Any:
        assert self._connection is not None
        return self._connection.connection.driver_connection

    def _connected(self) -> Connection:
        if self._connection is None:
            level = {"isolation_level": "AUTOCOMMIT"} if self._is_postgresql else {}
            self._connection = self._engine.connect().execution_options(**level)
            if self._is_postgresql:
                with self._connection.begin():
                    self._connection.execute(sa.text(f"LISTEN {CHANNEL}"))
        return self._connection

    @property
    def _is_postgresql(self) -> bool:
        return self._engine.dialect.name == "postgresql"
