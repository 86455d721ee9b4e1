"""Limits of the service: of a request, of those of one client, and of all; places for requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

LOCAL = ""
"""All clients of this machine: programs here, and proxies in front of the service."""


@dataclass(frozen=True)
class Limits:
    """Limits of a single request, of one client, and of all requests in progress."""

    body: int = 2**20
    """Bytes of a body without a file."""
    upload: int = 32 * 2**20
    """Bytes of a file."""
    waiting: int = 256 * 2**20
    """Bytes of all bodies that are arriving or wait for an answer."""
    calls: int = 64
    """Reading requests in progress."""
    uploads: int = 2
    """Requests with a file in progress, beside the others."""
    writes: int = 8
    """Writing requests in progress, beside the others."""
    share: float = 0.5
    """Share of the requests in progress, and of the connections, that one client may have. Clients
    of this machine may have all: a proxy's requests come from there."""
    seconds: float = 20.0
    """Seconds for a body to arrive, or for the client to receive a part of the response."""
    call_seconds: float = 30.0
    """Seconds until a reading request is given up."""
    export_seconds: float = 300.0
    """Seconds until an export is given up, in which it is read from the database and received."""
    cells: int = 10_000
    """Cells of a request; more than 10,000 are not possible."""
    effects: int = 10_000
    """Effects of ratings on predictions that a request may ask for."""
    rows: int = 1_000_000
    """Rows of a file, and cells that are predicted for it."""
    upload_memory: int = 2 * 2**30
    """Bytes of memory that a file may take while it is completed."""
    upload_seconds: float = 120.0
    """Seconds that a file may take, until the last byte of its response is computed."""
    upload_output: int = 256 * 2**20
    """Bytes of the response to a file."""
    connections: int = 1000
    """Simultaneous connections; fewer where the process may open fewer files."""
    header_seconds: float = 10.0
    """Seconds for the headers of a request to arrive, and for a connection without any."""


class Slots:
    """Places for requests of one kind, of which a client may have a share."""

    def __init__(self, places: int, share: float) -> None:
        self.places = places
        self.each = max(int(places * share), 1)
        """Places that one client may have."""
        self.taken: Counter[str] = Counter()

    @property
    def used(self) -> int:
        return self.taken.total()

    @property
    def full(self) -> bool:
        return self.used >= self.places

    def holds_all_of(self, client: str) -> bool:
        """Whether a client has as many places as one may have."""
        return client != LOCAL and self.taken[client] >= self.each

    def take(self, client: str) -> None:
        self.taken[client] += 1

    def free(self, client: str) -> None:
        self.taken[client] -= 1
        if not self.taken[client]:
            del self.taken[client]
