"""The immutable state that the service predicts from, and the changes that replace it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from exchangeable.completion.completer import Completer
from exchangeable.errors import Failed, InputError
from exchangeable.storage.facts import Cell, Label

Status = Literal["ok", "refreshing", "failing"]
STATUSES: tuple[Status, ...] = ("failing", "refreshing", "ok")
"""The worst first."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A fitted completer and the version of the database that it reflects."""

    completer: Completer | None
    """None while the table has no cell."""
    version: int
    """Version of the database up to which all changes are included."""
    read_version: int
    """Version at the last refresh. Cells deleted before it have left no trace in the completer."""
    read_at: float
    refreshes: int = 0
    deleted_members: frozenset[tuple[int, Label]] = frozenset()
    """Members (axis, label) deleted after ``read_version``."""

    @property
    def age(self) -> float:
        """Seconds since the last refresh."""
        return time.monotonic() - self.read_at

    @property
    def ready(self) -> Completer:
        """The completer; raises ``NoCells`` while the table is empty."""
        if self.completer is None:
            raise NoCells("the table has no cells yet: there is nothing to predict from")
        return self.completer


class NoCells(InputError):
    """All cells were deleted."""


class Busy(Failed):
    """The lock for writing was not free within ``WRITER_TIMEOUT``."""


@dataclass(frozen=True)
class Change:
    """A committed change of the database."""

    version: int
    cells: tuple[tuple[Cell, float], ...] = ()
    times: tuple[float, ...] | None = None
    """Times of the cells, where they came with any."""
    deleted_member: tuple[int, Label] | None = None
    needs_refresh: bool = False
    """Whether the change cannot be added to the pools, so that all cells must be read again."""
