"""The tables of a service: each with its engine, its limits, and its places for requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from exchangeable.completion.completer import Completer
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.serve.engine import Engine
from exchangeable.serve.limits import Limits, Slots
from exchangeable.serve.monitoring.readiness import Readiness
from exchangeable.serve.refresher import MakeCompleter

PREFIX = "/v1/tables/"
"""Path of the calls of a table; those of the first one are at /v1 too."""


class ServedTable:
    """A table, the engine that predicts from it, and places for requests to it alone."""

    def __init__(
        self, engine: Engine, limits: Limits | None = None, *, read_only: bool = False
    ) -> None:
        self.engine, self.read_only = engine, read_only
        self.name = engine.store.name or "table"
        self.limits = limits or Limits()
        self.slots = {
            kind: Slots(getattr(self.limits, kind), self.limits.share)
            for kind in ("calls", "writes")
        }
        self.waiting_bytes = 0
        """Bytes of bodies that have arrived and wait for the rest, or for an answer."""
        self.readiness = Readiness(engine)

    def close(self) -> None:
        """Stop the table's threads, and close its connections to the database."""
        self.readiness.close()
        self.engine.close()


class Tables:
    """All tables of a service, the first one first."""

    def __init__(self, tables: Sequence[ServedTable], uploads: Limits | None = None) -> None:
        """``uploads`` has the limits of files, which take memory and time of the machine."""
        self.uploads = uploads or tables[0].limits
        self.upload_slots = Slots(self.uploads.uploads, self.uploads.share)
        self._by_name = {table.name: table for table in tables}
        if len(self._by_name) < len(tables):
            names = sorted(table.name for table in tables)
            twice = next(one for one, other in pairwise(names) if one == other)
            raise InputError(f"every table must have a name of its own, but two are named {twice}")
        for table in tables:  # all of them share the memory for bodies
            table.limits = replace(table.limits, waiting=table.limits.waiting // len(tables))

    def __iter__(self) -> Iterator[ServedTable]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def first(self) -> ServedTable:
        return next(iter(self))

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    @property
    def threads(self) -> int:
        """Requests that may be in progress at the same time."""
        places = sum(table.limits.calls + table.limits.writes for table in self)
        return places + self.uploads.uploads

    def get(self, name: str) -> ServedTable | None:
        return self._by_name.get(name)

    def close(self) -> None:
        for table in self:
            table.close()


def one_at_a_time(makes: Sequence[MakeCompleter]) -> list[MakeCompleter]:
    """The same functions, of which only one at a time reads its table: each takes much memory."""
    if len(makes) < 2:
        return list(makes)
    turn = threading.Lock()

    def alone(make: MakeCompleter) -> MakeCompleter:
        def made(table: Table) -> Completer:
            with turn:
                return make(table)

        return made

    return [alone(make) for make in makes]


def split_path(path: str) -> tuple[str | None, str]:
    """The name of the table that a path of /v1 is about, None for the first, and the call's name.

    >>> split_path("/v1/tables/films/predict"), split_path("/v1/predict"), split_path("/v1/tables")
    (('films', 'predict'), (None, 'predict'), (None, 'tables'))
    """
    if path.startswith(PREFIX):
        name, _, call = path.removeprefix(PREFIX).partition("/")
        return name, call
    return None, path.removeprefix("/v1/")
