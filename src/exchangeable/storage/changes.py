"""The log of a table's changes, by which other processes on the same database keep up.

A change is logged in the transaction that makes it, under the next version of the table. An entry
is kept for ``KEEP_SECONDS``; a process that finds one missing reads the whole table again.

The log names no deleted member: its deletion is logged with a keyed digest of its label, and takes
the cells out of all earlier entries.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from exchangeable.storage.facts import Cell, Label
from exchangeable.storage.schema import CHANGES, HEAD

Kind = Literal["put", "delete cell", "delete member", "import"]

KEEP_SECONDS = 60.0
"""Seconds for which an entry is kept."""
MAX_CELLS_BYTES = 256 * 1024
"""Maximum size of the cells of an entry. Larger changes are logged without their cells."""
CHANNEL = "exchangeable"
"""PostgreSQL's channel of notifications; they contain ids and versions of tables."""
_EPOCH = {
    "postgresql": "extract(epoch from clock_timestamp())",
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
}
"""The database's clock, in seconds: machines that share a database may disagree about the time."""


@dataclass(frozen=True)
class Entry:
    """A change in the log."""

    version: int
    kind: Kind
    cells: tuple[tuple[Cell, float], ...] | None = None
    """Cells that were written; None if they are not in the log (any more)."""
    times: tuple[float, ...] | None = None
    axis: int = -1
    """Axis of the deleted member."""
    digest: str = ""
    """Digest of the deleted member's label."""


def digests(secret: str, axis: int, labels: Iterable[Label]) -> Iterator[str]:
    """Yield digests of an axis's labels, with a table's secret as the key."""
    start = hashlib.blake2b(f"{axis} ".encode(), key=bytes.fromhex(secret), digest_size=16)
    for label in labels:
        continued = start.copy()  # half the time of a new one: 0.8 s for a million labels
        continued.update(str(label).encode())
        yield continued.hexdigest()


def digest(secret: str, axis: int, label: Label) -> str:
    """The digest of a label."""
    return next(digests(secret, axis, [label]))


class ChangeLog:
    """The changes of one table."""

    def __init__(self, table_id: int, secret: str) -> None:
        self.table_id, self.secret = table_id, secret

    def put(
        self, connection: Connection, version: int, keys: Sequence[Cell], rows: Sequence[Any]
    ) -> None:
        """Log that cells were written, with labels as they are stored."""
        cells = [[key, row["value"]] for key, row in zip(keys, rows, strict=True)]
        timed = bool(rows) and "time" in rows[0]
        times = [row["time"] for row in rows] if timed else None
        payload = json.dumps({"cells": cells, "times": times})
        kept = payload if len(payload) <= MAX_CELLS_BYTES else None
        self._append(connection, version, "put", kept)

    def delete_cell(self, connection: Connection, version: int) -> None:
        """Log that a cell was deleted."""
        self._remove_cells(connection, version)
        self._append(connection, version, "delete cell", None)

    def delete_member(self, connection: Connection, version: int, axis: int, text: str) -> None:
        """Log that a member was deleted, by a digest of its label."""
        self._remove_cells(connection, version)
        payload = json.dumps({"axis": axis, "digest": digest(self.secret, axis, text)})
        self._append(connection, version, "delete member", payload)

    def load(self, connection: Connection, version: int) -> None:
        """Log that very many cells were written."""
        self._append(connection, version, "import", None)

    def read(self, connection: Connection, after: int) -> list[Entry]:
        """Entries after a version, by ascending version."""
        columns = CHANGES.c.version, CHANGES.c.kind, CHANGES.c.payload
        later = sa.select(*columns).where(self._own, CHANGES.c.version > after)
        rows = connection.execute(later.order_by(CHANGES.c.version))
        return [_entry(row.version, row.kind, row.payload) for row in rows]

    def trim(self, connection: Connection) -> None:
        """Remove the entries that are old enough."""
        connection.execute(sa.delete(CHANGES).where(*self._old(connection)))

    def has_old(self, connection: Connection) -> bool:
        """Whether there are entries to trim."""
        old = sa.select(sa.exists().where(*self._old(connection)))
        return bool(connection.execute(old).scalar())

    @property
    def _own(self) -> sa.ColumnElement[bool]:
        return CHANGES.c.table_id == self.table_id

    def _old(self, connection: Connection) -> tuple[sa.ColumnElement[bool], ...]:
        return self._own, CHANGES.c.written < _now(connection) - KEEP_SECONDS

    def _remove_cells(self, connection: Connection, version: int) -> None:
        """Take the cells out of all earlier entries: what is deleted may be among them."""
        earlier = self._own, CHANGES.c.version < version, CHANGES.c.kind == "put"
        connection.execute(sa.update(CHANGES).where(*earlier).values(payload=None))

    def _append(
        self, connection: Connection, version: int, kind: Kind, payload: str | None
    ) -> None:
        values = {"table_id": self.table_id, "version": version, "kind": kind, "payload": payload}
        insert = sa.insert(CHANGES).values(**values, written=_now(connection))
        if connection.dialect.name == "postgresql":  # sent when the transaction is durable
            insert = insert.returning(sa.func.pg_notify(CHANNEL, f"{self.table_id} {version}"))
        connection.execute(insert)


def read_head(connection: Connection, table_id: int) -> int:
    """The version of a table."""
    versions = sa.select(HEAD.c.version).where(HEAD.c.id == table_id)
    return int(connection.execute(versions).scalar_one())


def _now(connection: Connection) -> sa.ColumnElement[float]:
    return sa.literal_column(_EPOCH[connection.dialect.name], sa.Double)


def _entry(version: int, kind: str, payload: str | None) -> Entry:
    stored: dict[str, Any] = {} if payload is None else json.loads(payload)
    known = cast(Kind, kind)
    if "digest" in stored:
        return Entry(version, known, axis=int(stored["axis"]), digest=str(stored["digest"]))
    if "cells" not in stored:
        return Entry(version, known)
    cells = tuple((tuple(labels), float(value)) for labels, value in stored["cells"])
    times = stored["times"]
    at = None if times is None else tuple(math.nan if t is None else float(t) for t in times)
    return Entry(version, known, cells, at)
