"""What is answered from, what comes to change it, and what is answered."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from exchangeable.arrays.cells import Floats
from exchangeable.completion.completer import Completer
from exchangeable.errors import Failed, InputError
from exchangeable.serve.store import Cell, Label

Status = Literal["ok", "refreshing", "failing"]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What is answered from."""

    completer: Completer | None
    """None while the table has no cell."""
    version: int
    """Of the database: all changes up to it are taken in."""
    read_version: int
    """Of the last reading of all cells together: of what was deleted before it nothing is left."""
    read_at: float
    refreshes: int = 0
    gone: frozenset[tuple[int, Label]] = frozenset()
    """Members that were deleted since."""

    @property
    def age(self) -> float:
        """Seconds since all cells were read together."""
        return time.monotonic() - self.read_at

    @property
    def ready(self) -> Completer:
        if self.completer is None:
            raise NoCells("the table has no cells yet: there is nothing to answer from")
        return self.completer


class NoCells(InputError):
    """All cells were deleted."""


class Busy(Failed):
    """Others write, for longer than anybody should wait."""


@dataclass(frozen=True)
class Change:
    """What was written, in the order of versions."""

    version: int
    cells: tuple[tuple[Cell, float], ...] = ()
    member: tuple[int, Label] | None = None
    """Who is to be forgotten."""
    again: bool = False
    """Whether it takes a look at all cells."""


@dataclass(frozen=True, eq=False)
class Answers:
    """For cells: (Q,) each, and (Q, L) where there are levels."""

    mean: Floats
    low: Floats
    high: Floats
    probabilities: Floats | None


@dataclass(frozen=True)
class Moved:
    """How far one of the ratings moved an answer."""

    label: Label
    by: float


@dataclass(frozen=True)
class Recommended:
    """A cell, its answer, and which ratings moved it."""

    labels: dict[str, Label]
    mean: float
    low: float
    high: float
    why: tuple[Moved, ...] = ()
