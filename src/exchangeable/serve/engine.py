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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from operator import methodcaller
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Floats, Index
from exchangeable.completion import fit, recommend
from exchangeable.completion.completer import Completer
from exchangeable.completion.predictors import Predictor, read_predictions
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of
from exchangeable.errors import Failed, InputError
from exchangeable.serve.snapshot import Answers, Busy, Change, Moved, Recommended, Snapshot, Status
from exchangeable.serve.store import Cell, Label, Store

T = TypeVar("T")
Make = Callable[[Table], Completer]
"""Reads a table."""

log = logging.getLogger("exchangeable.serve")

AGAIN_AFTER = 30.0
"""Seconds until what failed is tried again."""
WAIT = 5.0
"""Seconds that a writer waits for the others."""
MOST_CANDIDATES = 1_000_000
"""Cells that one call compares, at most."""
_STRANGERS: dict[bool, Label] = {False: "\x00", True: -(2**62)}  # labels that no member has
_MEAN = methodcaller("mean")


class Engine:
    """Answers from memory, writes to the database, and keeps the one up with the other."""

    def __init__(self, store: Store, make: Make) -> None:
        self.store, self.make = store, make
        self._writing = threading.Lock()
        # More at a time than there are cores would get in each other's way, at a third of the pace;
        # and every thread that ever answered keeps some memory for the next time.
        self._answering = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="answering")
        self._waiting: list[Change] = []
        self._told = threading.Condition()
        self._stopping = False
        version, completer = self._read()
        self.standing = Snapshot(completer, version, version, time.monotonic())
        self.refreshing = False
        self.failing = False
        """Whether keeping up with the database failed when it was last tried."""
        self._written = self._deleted = version
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._keeper.start()

    def close(self) -> None:
        """Stop keeping up; what was acknowledged is in the database."""
        with self._told:
            self._stopping = True
            self._told.notify_all()
        self._keeper.join(timeout=5)
        self._answering.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    @property
    def status(self) -> Status:
        """How it keeps up with the database."""
        return "failing" if self.failing else "refreshing" if self.refreshing else "ok"

    @property
    def behind(self) -> int:
        """Changes that are in the database and not yet in the answers."""
        return max(self._written - self.standing.version, 0)

    # Answers -----------------------------------------------------------------------------

    def predict(self, cells: Sequence[Cell], coverage: float) -> tuple[Answers, Snapshot]:
        standing = self.standing
        completer = standing.ready
        index = self._numbered(standing, cells)
        tail = (1 - coverage) / 2
        wanted = [_MEAN, *(methodcaller("quantile", share) for share in (tail, 1 - tail))]
        if completer.levels_:
            wanted.append(methodcaller("probabilities"))
        found = self._found(lambda: read_predictions(completer.predictor_, index, *wanted))
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
    ) -> tuple[list[Recommended], Snapshot]:
        """For a member that is known, or for somebody of whom only ratings are."""
        standing = self.standing
        completer = standing.ready
        table = completer.table_
        self._check_candidates(table, axis, given)
        # Whoever was deleted a moment ago is still in the pools, and is left out of the list.
        wanted = n + len(standing.gone)
        if member is not None:
            self._check_known(standing, axis, [member])
            fixed = {name: self._known_label(standing, name, one) for name, one in given.items()}
            known = self._typed(axis, member)
            frame = self._found(lambda: completer.recommend(known, wanted, axis=axis, given=fixed))
            return _listed(frame, table, standing.gone)[:n], standing
        if table.order != 2:
            raise InputError(f"ratings are of tables with two axes, but this one has {table.order}")
        other = 1 - axis
        typed = {self._typed(other, label): value for label, value in ratings}
        if len(typed) < len(ratings):
            raise InputError("every rating must be of another member, but one comes again")
        self._check_known(standing, other, list(typed))
        stranger = self._stranger(axis)

        def best() -> list[Recommended]:
            frame = completer.recommend(stranger, wanted, axis=axis, ratings=typed)
            found = _listed(frame, table, standing.gone)[:n]
            return self._explained(completer, axis, other, typed, found) if why and found else found

        return self._found(best), standing

    def _found(self, answer: Callable[[], T]) -> T:
        """What an answer is, once it is its turn."""
        return self._answering.submit(answer).result()

    def _stranger(self, axis: int) -> Label:
        return _STRANGERS[self.store.facts.whole[axis]]

    def _check_known(self, standing: Snapshot, axis: int, labels: Sequence[Label]) -> None:
        unknown = self._codes(standing, axis, labels) == UNKNOWN
        if unknown.any():
            label = labels[int(unknown.argmax())]
            raise InputError(f"{self.store.facts.axes[axis]} {label!r} is not in the table")

    def _known_label(self, standing: Snapshot, name: str, label: Label) -> Label:
        axes = self.store.facts.axes
        if name not in axes:
            raise InputError(f"given must name axes of {', '.join(axes)}, but names {name[:60]!r}")
        self._check_known(standing, axes.index(name), [label])
        return self._typed(axes.index(name), label)

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
        _, own, values = recommend.cells_of(table, self._stranger(axis), axis, ratings)
        asked = np.zeros((len(found), 2), dtype=np.int64)
        labels = [one.labels[table.axes[other]] for one in found]
        asked[:, other] = table.vocabularies[other].encode(column_of("label", labels))

        def means(kept: NDArray[np.bool_]) -> Floats | None:
            predictor: Predictor | None = completer.predictor_.newcomer(
                axis, own[kept], values[kept]
            )
            return None if predictor is None else read_predictions(predictor, asked, _MEAN)[0]

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
                fits &= (labels != label).to_numpy()
        counts = table.cells_per_member(axis)
        order = np.argsort(-counts, kind="stable")
        best = order[fits[order]][:limit]
        return [(labels[int(n)], int(counts[n])) for n in best]

    # Changes -----------------------------------------------------------------------------

    def put(self, cells: Sequence[tuple[Cell, float]]) -> int:
        """Write cells; the version in which they are."""
        facts = self.store.facts
        values = np.array([value for _, value in cells], dtype=np.float64)
        if not np.isfinite(values).all() or np.abs(values).max(initial=0) > fit.LARGEST:
            raise InputError(f"values must be numbers of at most {fit.LARGEST:g} in size")
        facts.scale.check(values)
        with self._writer():
            version = self.store.put(cells)
            self._tell(Change(version, tuple(cells)))
        return version

    def remove(self, cell: Cell) -> tuple[int, int]:
        """Delete a cell: the version without it, and whether there was one."""
        with self._writer():
            version, gone = self.store.remove(cell)
            if not gone:
                return self._deleted, 0
            self._tell(Change(version, again=True))
        return version, gone

    def forget(self, axis: int, member: Label) -> tuple[int, int]:
        """Delete everything about a member: the version without it, and how many cells went."""
        label = self._typed(axis, member)
        with self._writer():
            version, gone = self.store.forget(axis, member)
            if not gone:
                return self._deleted, 0
            self._tell(Change(version, member=(axis, label), again=True))
            # From now on nobody is told anything of it by name.
            self.standing = replace(self.standing, gone=self.standing.gone | {(axis, label)})
        return version, gone

    @contextmanager
    def _writer(self) -> Iterator[None]:
        """One at a time, so that changes wait in the order of their versions."""
        if not self._writing.acquire(timeout=WAIT):
            raise Busy("too many changes wait for the database: try again")
        try:
            yield
        finally:
            self._writing.release()

    def _tell(self, change: Change) -> None:
        self._written = change.version
        if change.again:
            self._deleted = change.version
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
                self.failing = False
            except (Exception, Failed) as error:  # whatever it is, answers go on as they were
                self.failing = True
                log.error("keeping up failed", extra={"told": {"error": type(error).__name__}})
                with self._told:
                    self._waiting = [*changes, *self._waiting]
                    self._told.wait_for(lambda: self._stopping, AGAIN_AFTER)

    def _take_in(self, changes: Sequence[Change]) -> None:
        standing = self.standing
        changes = [change for change in changes if change.version > standing.version]
        if not changes:  # read already, together with all
            return
        follow = changes[0].version == standing.version + 1
        if follow and not any(change.again for change in changes):
            cells = {self._cell(cell): value for change in changes for cell, value in change.cells}
            try:
                if self._folded(standing, cells, changes[-1].version):
                    return
            except Exception as error:  # what cannot be folded in can be read
                log.error("folding failed", extra={"told": {"error": type(error).__name__}})
        self._read_all()

    def _folded(self, standing: Snapshot, cells: Mapping[Cell, float], version: int) -> bool:
        """Add new cells to what was read, where that can be done and goes on to be right."""
        if standing.completer is None:
            return False
        table = standing.completer.table_
        columns = {
            axis: column_of(axis, [cell[number] for cell in cells])
            for number, axis in enumerate(table.axes)
        }
        if self._replaces(table, table.cells(pl.DataFrame(columns))):
            return False
        completer = copy.copy(standing.completer)
        completer.update(pl.DataFrame(columns), np.array(list(cells.values())))
        self._stand(lambda now: replace(now, completer=completer, version=version))
        return not completer.refresh_due_

    @staticmethod
    def _replaces(table: Table, cells: Index) -> bool:
        """Whether a cell had a value before, which cannot be taken out of what was read."""
        there = cells[(cells != UNKNOWN).all(axis=1)]
        keys = recommend.keys_of(table.index[table.is_observed], table.shape)
        return bool(np.isin(recommend.keys_of(there, table.shape), keys).any())

    def _read_all(self) -> None:
        self.refreshing = True
        started = time.monotonic()
        try:
            version, completer = self._read()
        finally:
            self.refreshing = False
        self._stand(
            lambda now: Snapshot(
                completer,
                version,
                version,
                time.monotonic(),
                now.refreshes + 1,
                self._gone_after(version),
            )
        )
        self.store.wipe()
        seconds = round(time.monotonic() - started, 3)
        log.info("refreshed", extra={"told": {"version": version, "seconds": seconds}})

    def _read(self) -> tuple[int, Completer | None]:
        version, table = self.store.table()
        if not len(table):
            return version, None
        completer = self.make(table)
        # What is found out when it is first needed is found out now: nobody is to wait for it.
        first = completer.table_.index[:1].copy()
        first[:, 0] = 0
        somebody = completer.predictor_.newcomer(0, first, completer.table_.values[:1])
        if somebody is not None:
            read_predictions(somebody, first, _MEAN)
        return version, completer

    def _gone_after(self, version: int) -> frozenset[tuple[int, Label]]:
        with self._told:
            later = [c.member for c in self._waiting if c.version > version]
        return frozenset(member for member in later if member is not None)

    def _stand(self, new: Callable[[Snapshot], Snapshot]) -> None:
        with self._writing:
            self.standing = new(self.standing)

    # Labels ------------------------------------------------------------------------------

    def _cell(self, cell: Cell) -> Cell:
        return tuple(self._typed(axis, label) for axis, label in enumerate(cell))

    def _typed(self, axis: int, label: Label) -> Label:
        facts = self.store.facts
        return facts.read(axis, facts.written(axis, label))

    def _codes(self, standing: Snapshot, axis: int, labels: Sequence[Label]) -> Index:
        table = standing.ready.table_
        typed = [self._typed(axis, label) for label in labels]
        codes = table.vocabularies[axis].encode(column_of(table.axes[axis], typed))
        for where, label in standing.gone:
            if where == axis:
                codes = np.where([one == label for one in typed], UNKNOWN, codes)
        return codes

    def _numbered(self, standing: Snapshot, cells: Sequence[Cell]) -> Index:
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


def _listed(frame: Any, table: Table, gone: frozenset[tuple[int, Label]]) -> list[Recommended]:
    """Rows of what ``Completer.recommend`` gives, without those of members that are gone."""
    found = []
    for row in pl.DataFrame(frame).iter_rows(named=True):
        mean, low, high = list(row.values())[-3:]
        labels = {axis: row[axis] for axis in table.axes if axis in row}
        if not any((table.axes.index(axis), label) in gone for axis, label in labels.items()):
            found.append(Recommended(labels, mean, low, high))
    return found
