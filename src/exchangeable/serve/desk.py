"""Who answers: a completer in memory, which is kept up with the database in the background.

Every answer is from one standing, which never changes: a new one takes its place once it is ready,
so nobody waits for it. A change is in the database before anybody hears that it was taken.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable import fitting, recommending, updating
from exchangeable.answering import Answerer, read_off
from exchangeable.completer import Completer
from exchangeable.errors import Failed, InputError
from exchangeable.labels import UNKNOWN, Codes, column_of
from exchangeable.serve.store import Cell, Label, Store
from exchangeable.table import Table

Floats = NDArray[np.float64]
Make = Callable[[Table], Completer]
"""Reads a table."""

log = logging.getLogger("exchangeable.serve")

AGAIN_AFTER = 30.0
"""Seconds until what failed is tried again."""
MOST_CANDIDATES = 1_000_000
"""Cells that one call compares, at most."""
_STRANGER = "\x00"  # a label that no member has
_MEAN = methodcaller("mean")


@dataclass(frozen=True, eq=False)
class Standing:
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


class Desk:
    """Answers from memory, writes to the database, and keeps the one up with the other."""

    def __init__(self, store: Store, make: Make) -> None:
        self.store, self.make = store, make
        self._writing = threading.Lock()
        # More at a time than there are cores would get in each other's way, at a third of the pace.
        self._answering = threading.BoundedSemaphore(os.cpu_count() or 1)
        self._waiting: list[Change] = []
        self._told = threading.Condition()
        self._stopping = False
        version, table = store.table()
        completer = make(table) if len(table) else None
        self.standing = Standing(completer, version, version, time.monotonic())
        self.refreshing = False
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._keeper.start()

    def close(self) -> None:
        """Stop keeping up; what was acknowledged is in the database."""
        with self._told:
            self._stopping = True
            self._told.notify_all()
        self._keeper.join(timeout=5)
        self.store.close()

    @property
    def behind(self) -> int:
        """Changes that are in the database and not yet in the answers."""
        with self._told:
            return len(self._waiting)

    # Answers -----------------------------------------------------------------------------

    def predict(self, cells: Sequence[Cell], coverage: float) -> tuple[Answers, Standing]:
        standing = self.standing
        completer = standing.ready
        index = self._numbered(standing, cells)
        tail = (1 - coverage) / 2
        wanted = [_MEAN, *(methodcaller("quantile", share) for share in (tail, 1 - tail))]
        if completer.levels_:
            wanted.append(methodcaller("probabilities"))
        with self._answering:
            found = read_off(completer.answerer_, index, *wanted)
        mean, low, high, *chances = found
        return Answers(mean, low, high, chances[0] if chances else None), standing

    def recommend(
        self,
        axis: int,
        member: Label | None,
        ratings: Sequence[tuple[Label, float]],
        given: Mapping[str, Label],
        n: int,
        *,
        why: bool = False,
    ) -> tuple[list[Recommended], Standing]:
        """For a member that is known, or for somebody of whom only ratings are."""
        standing = self.standing
        completer = standing.ready
        if member is not None:
            (place,) = self._codes(standing, axis, [member])
            if place == UNKNOWN:
                raise InputError(f"{self.store.facts.axes[axis]} {member!r} is not in the table")
            self._check_candidates(completer.table_, axis, given)
            with self._answering:
                frame = completer.recommend(self._typed(axis, member), n, axis=axis, given=given)
            return _listed(frame, completer.table_), standing
        other = 1 - axis if completer.table_.order == 2 else None
        if other is None:
            raise InputError(
                f"ratings are of tables with two axes, but this one has {completer.table_.order}"
            )
        typed = {self._typed(other, label): value for label, value in ratings}
        if len(typed) < len(ratings):
            raise InputError("every rating must be of another member, but one comes again")
        self._check_candidates(completer.table_, axis, given)
        with self._answering:
            frame = completer.recommend(_STRANGER, n, axis=axis, ratings=typed)
            found = _listed(frame, completer.table_)
            if why and found:
                found = self._explained(completer, axis, other, typed, found)
        return found, standing

    @staticmethod
    def _check_candidates(table: Table, axis: int, given: Mapping[str, Label]) -> None:
        """Else one call could keep all others waiting."""
        free = [size for place, size in enumerate(table.shape)
                if place != axis and table.axes[place] not in given]  # fmt: skip
        if math.prod(free) > MOST_CANDIDATES:
            raise InputError(
                f"at most {MOST_CANDIDATES:,} cells are compared in a call, but there are "
                f"{math.prod(free):,}; fix members of other axes with given"
            )

    def _explained(
        self,
        completer: Completer,
        axis: int,
        other: int,
        ratings: Mapping[Label, float],
        found: list[Recommended],
    ) -> list[Recommended]:
        """With what each rating did: the answers without it are taken from those with it."""
        table = completer.table_
        _, own, values = recommending.cells_of(table, _STRANGER, axis, ratings)
        asked = np.zeros((len(found), 2), dtype=np.int64)
        labels = [one.labels[table.axes[other]] for one in found]
        asked[:, other] = table.vocabularies[other].encode(column_of("label", labels))

        def means(kept: NDArray[np.bool_]) -> Floats | None:
            answerer: Answerer | None = completer.answerer_.newcomer(axis, own[kept], values[kept])
            return None if answerer is None else read_off(answerer, asked, _MEAN)[0]

        every = np.ones(len(own), dtype=bool)
        whole = means(every)
        if whole is None:
            return found
        moved = []
        for at in range(len(own)):
            every[at] = False
            without = means(every)
            assert without is not None
            moved.append(whole - without)
            every[at] = True
        rated = list(ratings)
        return [
            replace(one, why=tuple(Moved(rated[at], float(moved[at][n])) for at in range(len(own))))
            for n, one in enumerate(found)
        ]

    def members(self, axis: int, holding: str, limit: int) -> list[tuple[Label, int]]:
        """Labels that hold a text, with how many cells each has, those with most first."""
        standing = self.standing
        if standing.completer is None:
            return []
        table = standing.completer.table_
        labels = table.vocabularies[axis].labels
        texts = labels.cast(pl.String).str.to_lowercase()
        fits = texts.str.contains(holding.lower(), literal=True).to_numpy()
        for where, label in standing.gone:
            if where == axis:
                fits &= (labels != self._typed(axis, label)).to_numpy()
        counts = np.bincount(
            table.index[~np.isnan(table.values), axis], minlength=table.shape[axis]
        )
        order = np.argsort(-counts, kind="stable")
        best = order[fits[order]][:limit]
        return [(labels[int(n)], int(counts[n])) for n in best]

    # Changes -----------------------------------------------------------------------------

    def put(self, cells: Sequence[tuple[Cell, float]]) -> int:
        """Write cells; the version in which they are."""
        facts = self.store.facts
        values = np.array([value for _, value in cells], dtype=np.float64)
        if not np.isfinite(values).all() or np.abs(values).max(initial=0) > fitting.LARGEST:
            raise InputError(f"values must be numbers of at most {fitting.LARGEST:g} in size")
        updating.check_scale(values, facts.scale)
        with self._writing:  # so that changes wait in the order of their versions
            version = self.store.put(cells)
            self._tell(Change(version, tuple(cells)))
        return version

    def remove(self, cell: Cell) -> tuple[int, int]:
        """Delete a cell: the version without it, and whether there was one."""
        with self._writing:
            version, gone = self.store.remove(cell)
            self._tell(Change(version, again=True))
        return version, gone

    def forget(self, axis: int, member: Label) -> tuple[int, int]:
        """Delete everything about a member: the version without it, and how many cells went."""
        label = self._typed(axis, member)
        with self._writing:
            version, gone = self.store.forget(axis, member)
            self._tell(Change(version, member=(axis, label), again=True))
            # From now on nobody is told anything of it by name.
            self.standing = replace(self.standing, gone=self.standing.gone | {(axis, label)})
        return version, gone

    def _tell(self, change: Change) -> None:
        with self._told:
            self._waiting.append(change)
            self._told.notify_all()

    # Keeping up --------------------------------------------------------------------------

    def _keep(self) -> None:
        while True:
            with self._told:
                self._told.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
                changes, self._waiting = self._waiting, []
            try:
                self._take_in(changes)
            except (Exception, Failed) as error:  # whatever it is, answers go on as they were
                log.error("keeping up failed", extra={"told": {"error": type(error).__name__}})
                with self._told:
                    self._waiting = [*changes, *self._waiting]
                    self._told.wait_for(lambda: self._stopping, AGAIN_AFTER)

    def _take_in(self, changes: Sequence[Change]) -> None:
        standing = self.standing
        latest = changes[-1].version
        if latest <= standing.version:  # read already, together with all
            return
        cells = {cell: value for change in changes for cell, value in change.cells}
        follow = changes[0].version == standing.version + 1
        if standing.completer is None or not follow or any(change.again for change in changes):
            self._read_all()
            return
        axes = standing.completer.table_.axes
        columns = {
            axis: column_of(axis, [self._typed(number, cell[number]) for cell in cells])
            for number, axis in enumerate(axes)
        }
        known = standing.completer.table_.cells(pl.DataFrame(columns))
        if self._replaces(standing.completer.table_, known):
            self._read_all()
            return
        completer = copy.copy(standing.completer)
        completer.update(pl.DataFrame(columns), np.array(list(cells.values())))
        self._stand(lambda now: replace(now, completer=completer, version=latest))
        if completer.refresh_due_:
            self._read_all()

    @staticmethod
    def _replaces(table: Table, cells: Codes) -> bool:
        """Whether a cell had a value before, which cannot be taken out of what was read."""
        there = cells[(cells != UNKNOWN).all(axis=1)]
        keys = recommending.keys_of(table.index[~np.isnan(table.values)], table.shape)
        return bool(np.isin(recommending.keys_of(there, table.shape), keys).any())

    def _read_all(self) -> None:
        self.refreshing = True
        started = time.monotonic()
        try:
            version, table = self.store.table()
            completer = self.make(table) if len(table) else None
        finally:
            self.refreshing = False
        self._stand(
            lambda now: Standing(
                completer,
                version,
                version,
                time.monotonic(),
                now.refreshes + 1,
                self._gone_after(version),
            )
        )
        seconds = round(time.monotonic() - started, 3)
        log.info("refreshed", extra={"told": {"version": version, "seconds": seconds}})

    def _gone_after(self, version: int) -> frozenset[tuple[int, Label]]:
        with self._told:
            later = [c.member for c in self._waiting if c.version > version]
        return frozenset(member for member in later if member is not None)

    def _stand(self, new: Callable[[Standing], Standing]) -> None:
        with self._writing:
            self.standing = new(self.standing)

    # Labels ------------------------------------------------------------------------------

    def _typed(self, axis: int, label: Label) -> Label:
        facts = self.store.facts
        return facts.read(axis, facts.written(axis, label))

    def _codes(self, standing: Standing, axis: int, labels: Sequence[Label]) -> Codes:
        table = standing.ready.table_
        typed = [self._typed(axis, label) for label in labels]
        codes = table.vocabularies[axis].encode(column_of(table.axes[axis], typed))
        for where, label in standing.gone:
            if where == axis:
                codes = np.where([one == label for one in typed], UNKNOWN, codes)
        return codes

    def _numbered(self, standing: Standing, cells: Sequence[Cell]) -> Codes:
        """Coordinates of cells; members that nobody knows are ``UNKNOWN``."""
        axes = self.store.facts.axes
        for cell in cells:
            if len(cell) != len(axes):
                raise InputError(
                    f"a cell has {len(axes)} labels ({', '.join(axes)}), but this has {len(cell)}"
                )
        columns = [
            self._codes(standing, axis, [cell[axis] for cell in cells]) for axis in range(len(axes))
        ]
        return np.stack(columns, axis=1)


def _listed(frame: Any, table: Table) -> list[Recommended]:
    """Rows of what ``Completer.recommend`` gives."""
    rows = pl.DataFrame(frame).iter_rows(named=True)
    found = []
    for row in rows:
        mean, low, high = list(row.values())[-3:]
        labels = {axis: row[axis] for axis in table.axes if axis in row}
        found.append(Recommended(labels, mean, low, high))
    return found
