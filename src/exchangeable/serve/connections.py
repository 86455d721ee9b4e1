"""Connections: deadlines for headers, and room for new ones when many send nothing.

A connection is idle until a whole request has arrived: without any headers, with half of them, with
half of a body, or kept open after a response. An idle one is closed after some seconds, and at once
if a new one needs its place. So whoever opens many and sends nothing shuts out nobody.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from exchangeable.serve.access.origins import client_of
from exchangeable.serve.limits import LOCAL, Limits, Slots

RESERVED_FILES = 320
"""Files beside connections: databases, pipes to uploads, libraries, and connections that have been
accepted but not been counted, at most ``BACKLOG``."""
FILES_OF_TABLE = 64
"""Files of each further table: 16 connections to its database, of three files each in SQLite."""
BACKLOG = 128
"""Connections that the system accepts before the service does."""

SMALL_PART, MAX_SMALL_PARTS = 64, 1000
"""Bytes below which a part of a body is small, and how many such parts a request may have: each
takes the event loop 12 microseconds, so that 1 MiB in parts of one byte would take 12 s."""
MAX_AHEAD = 2**16
"""Bytes of further requests that a connection may send before it has a response."""


def count_files(wanted: int) -> int:
    """Let the process open ``wanted`` files, and return how many it may."""
    if sys.platform == "win32":
        return wanted  # there are no such limits
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else int(soft)


class Connections:
    """All open connections of a service."""

    def __init__(self, limits: Limits, tables: int = 1) -> None:
        reserved = RESERVED_FILES + FILES_OF_TABLE * (tables - 1)
        files = count_files(limits.connections + reserved)
        most = max(min(limits.connections, files - reserved), 8)
        self.limits = limits
        self.slots = Slots(most, limits.share)
        self.open: dict[Connection, None] = {}  # the oldest first
        self.dropped = 0
        """Connections that were closed for new ones."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Connection) -> None:
        """Count a new connection; if there are too many, drop an idle one, or else the new one."""
        client, taken = connection.peer, self.slots.taken
        crowd = None
        if self.slots.holds_all_of(client):
            crowd = client
        elif self.slots.full:
            crowd = max(taken, key=lambda one: taken[one])
        if crowd is not None:
            victim = next((c for c in self.open if c.peer == crowd and c.is_idle), connection)
            self.dropped += 1
            self.remove(victim)
            victim.transport.abort()
            if victim is connection:
                return
        self.slots.take(client)
        self.open[connection] = None
        if self._timer is None:
            self._sweep_later()

    def remove(self, connection: Connection) -> None:
        if connection in self.open:
            del self.open[connection]
            self.slots.free(connection.peer)

    def _sweep(self) -> None:
        """Close the connections that have been idle for too long."""
        now = time.monotonic()
        for connection in list(self.open):
            if connection.is_overdue(now, self.limits):
                connection.transport.abort()
                self.remove(connection)
        self._timer = None
        if self.open:
            self._sweep_later()

    def _sweep_later(self) -> None:
        seconds = min(self.limits.header_seconds / 4, 1.0)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._sweep)


class Connection(H11Protocol):
    """uvicorn's protocol for one connection, counted among all."""

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self.registry = connections
        self.peer = LOCAL
        self.idle_since = time.monotonic()
        self.small_parts = 0
        self._parse = self.conn.next_event
        self.conn.next_event = self._next_event  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = client_of(self.client)
        self.registry.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.registry.remove(self)

    def _next_event(self) -> Any:
        """The next part of a request, which is broken off if it comes in too many small ones."""
        event = self._parse()
        if isinstance(event, h11.Data) and len(event.data) < SMALL_PART:
            self.small_parts += 1
            if self.small_parts > MAX_SMALL_PARTS:
                self.transport.abort()
                return h11.NEED_DATA
        # uvicorn would stop reading if the next request arrives before the response to this one is
        # sent, and not notice that the client leaves.
        if event is h11.PAUSED:
            if len(self.conn.trailing_data[0]) > MAX_AHEAD:
                self.transport.abort()
            return h11.NEED_DATA
        return event

    def on_response_complete(self) -> None:
        self.idle_since, self.small_parts = time.monotonic(), 0
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """Whether no whole request waits for its response."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def is_overdue(self, now: float, limits: Limits) -> bool:
        """Whether the client has had enough time for headers, or to take the last response."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            return False  # the guard limits the time of a body and of a response
        unsent = self.transport.get_write_buffer_size() > 0
        return now - self.idle_since > (limits.seconds if unsent else limits.header_seconds)
