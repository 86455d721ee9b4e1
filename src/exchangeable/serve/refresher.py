"""Writes changes to the database and keeps a snapshot in step with it, in a background thread.

A change is acknowledged once it is durable. The thread then makes the next snapshot: new cells are
added to the pools; replaced or deleted cells, which cannot be, lead to a refresh, which reads the
whole table again. A snapshot never changes, so readers never wait.
"""

from __future__ import annotations

import copy
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from operator import methodcaller

import numpy as np
import polars as pl

from exchangeable.arrays.cells import UNKNOWN, Index
from exchangeable.completion.completer import Completer
from exchangeable.completion.update import find_cells
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of
from exchangeable.errors import Failed
from exchangeable.predictors.base import read_predictions
from exchangeable.serve.call import describe_failure
from exchangeable.serve.follower import Follower
from exchangeable.serve.snapshot import Busy, Change, Snapshot, Status
from exchangeable.storage.bulk import Row
from exchangeable.storage.facts import Cell, Label, Time
from exchangeable.storage.store import Store

MakeCompleter = Callable[[Table], Completer]
"""Fits a completer to a table."""

log = logging.getLogger("exchangeable.serve")

MAX_LAG_SECONDS = 60.0
"""Seconds after which a change should be included in predictions, unless a refresh takes longer."""
RETRY_SECONDS = 30.0
"""Seconds until a refresh that failed is repeated."""
WRITER_TIMEOUT = 5.0
"""Seconds that a writer waits for the others before it is refused."""


class Refresher:
    """The current snapshot of a database, the changes to it, and the thread that applies them."""

    def __init__(self, store: Store, make: MakeCompleter) -> None:
        self.store, self.make = store, make
        self._writing = threading.Lock()
        self._pending: list[Change] = []
        self._wake = threading.Condition()
        self._stopping = False
        self._lagging: deque[tuple[int, float]] = deque()
        """Versions that are not yet included, and when they were written."""
        self.read_seconds = 0.0
        """Seconds that the last reading of the whole table took."""
        version, completer = self._read()
        self.snapshot = Snapshot(completer, version, version, time.monotonic())
        self.refreshing = False
        self.failing = False
        """Whether the last attempt to follow the database failed."""
        self._written = self._deleted = self._followed = version
        self._publishing = threading.Lock()
        self.hidden = 0
        """How often a member was hidden: what was computed in the meantime may name it."""
        self.follower = Follower(self)
        self.follower.start()
        self._thread = threading.Thread(target=self._run, name="refresher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; acknowledged changes are in the database."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join(timeout=5)
        self.follower.close()

    @property
    def status(self) -> Status:
        """Whether the snapshot follows the database."""
        return "failing" if self.failing else "refreshing" if self.refreshing else "ok"

    @property
    def behind(self) -> int:
        """Number of durable changes that are not yet in the snapshot."""
        return max(self._written - self.snapshot.version, 0)

    @property
    def is_overdue(self) -> bool:
        """Whether predictions lack a change for longer than a refresh should take."""
        with self._wake:
            lag = time.monotonic() - self._lagging[0][1] if self._lagging else 0.0
        return self.failing or lag > max(MAX_LAG_SECONDS, 4 * self.read_seconds)

    # Changes -----------------------------------------------------------------------------

    def put(self, cells: Sequence[tuple[Cell, float]], times: Sequence[Time] | None = None) -> int:
        """Write cells, and their times, and return the version that contains them."""
        self.store.facts.check_values(np.array([value for _, value in cells], dtype=np.float64))
        at = None if times is None else self.store.facts.read_times(times, len(cells))
        with self._writer():
            version = self.store.put(cells, at)
            own = None if at is None else tuple(at.tolist())
            self._enqueue(Change(version, tuple(cells), own))
        return version

    def delete_cell(self, cell: Cell) -> tuple[int, int]:
        """Delete a cell, and return the version without it and the number of cells (0 or 1)."""
        with self._writer():
            version, deleted = self.store.delete_cell(cell)
            if not deleted:
                self.follower.look()  # another process may have deleted it
                return self._deleted, 0
            self._enqueue(Change(version, needs_refresh=True))
        return version, deleted

    def delete_member(self, axis: int, member: Label) -> tuple[int, int]:
        """Delete all cells of a member, and return the version without them and their number."""
        label = self.store.facts.normalise(axis, member)
        with self._writer():
            version, deleted = self.store.delete_member(axis, member)
            if not deleted:
                self.follower.look()  # another process may have deleted it
                return self._deleted, 0
            self._enqueue(Change(version, deleted_member=(axis, label), needs_refresh=True))
            # From now on no response names the member, though the pools still contain its cells.
            self.hide(version, {(axis, label)})
        return version, deleted

    def load(self, rows: Iterable[Row]) -> tuple[int, int]:
        """Write very many cells, and return the version that contains them and their number."""
        version, number = self.store.load(rows)
        self._enqueue(Change(version, needs_refresh=True))
        return version, number

    def hide(self, version: int, members: Set[tuple[int, Label]]) -> None:
        """Name members no more that were deleted with a version."""

        def without(now: Snapshot) -> Snapshot:
            gone = frozenset() if now.read_version >= version else members
            return replace(now, deleted_members=now.deleted_members | gone)

        self._publish(without)
        self.hidden += 1

    @contextmanager
    def _writer(self) -> Iterator[None]:
        """Admit one writer at a time, so that changes are queued by ascending version."""
        if not self._writing.acquire(timeout=WRITER_TIMEOUT):
            raise Busy("too many changes wait for the database: try again")
        try:
            yield
        finally:
            self._writing.release()

    def follow(self, changes: Sequence[Change], version: int) -> None:
        """Take up changes by others, which with those of this process are all up to a version."""
        with self._wake:
            for change in changes:
                self._enqueue(change)
            self._followed = max(self._followed, version)

    @property
    def followed(self) -> int:
        """Version up to which all changes have come here."""
        return self._followed

    def _enqueue(self, change: Change) -> None:
        with self._wake:
            self._written = max(self._written, change.version)
            if change.needs_refresh:
                self._deleted = max(self._deleted, change.version)
            waiting = {one.version for one in self._pending}
            if change.version not in waiting and change.version > self.snapshot.version:
                self._pending.append(change)
                self._lagging.append((change.version, time.monotonic()))
            while self._followed + 1 in {change.version, *waiting}:
                self._followed += 1
            self._wake.notify_all()

    def _take(self) -> list[Change]:
        """Take the pending changes out up to the first that has not come yet, by version."""
        due = [change for change in self._pending if change.version <= self._followed]
        self._pending = [change for change in self._pending if change.version > self._followed]
        return sorted(due, key=lambda change: change.version)

    # The background thread ---------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                changes: list[Change] = []
                while not changes and not self._stopping:
                    changes = self._take()
                    if not changes:
                        self._wake.wait()
                if self._stopping:
                    return
            try:
                self._apply(changes)
                self.failing = False
            except (Exception, Failed) as error:  # whatever it is, the old snapshot stays in use
                self.failing = True
                log.error("refresh failed", extra={"fields": describe_failure(error)})
                with self._wake:
                    self._pending = [*changes, *self._pending]
                    self._wake.wait_for(lambda: self._stopping, RETRY_SECONDS)

    def _apply(self, changes: Sequence[Change]) -> None:
        """Publish a snapshot that includes changes, by an update if possible, else by a refresh."""
        snapshot = self.snapshot
        changes = [change for change in changes if change.version > snapshot.version]
        if not changes:  # a refresh has included them already
            return
        versions = [change.version for change in changes]
        consecutive = versions == list(range(snapshot.version + 1, versions[-1] + 1))
        if consecutive and not any(change.needs_refresh for change in changes):
            facts = self.store.facts
            cells = {
                tuple(facts.normalise(axis, label) for axis, label in enumerate(cell)): (value, at)
                for change in changes
                for (cell, value), at in zip(
                    change.cells, change.times or repeat(math.nan), strict=False
                )
            }
            try:
                if self._try_update(snapshot, cells, changes[-1].version):
                    return
            except Exception as error:  # cells that cannot be added can still be read
                log.error("update failed", extra={"fields": describe_failure(error)})
        self._refresh()

    def _try_update(
        self, snapshot: Snapshot, cells: Mapping[Cell, tuple[float, float]], version: int
    ) -> bool:
        """Add new cells, with values and times, to the pools; return False if a refresh is needed.

        A time is NaN where a cell has none.
        """
        if snapshot.completer is None:
            return False
        table = snapshot.completer.table_
        columns = {
            name: column_of(name, [cell[axis] for cell in cells])
            for axis, name in enumerate(table.axes)
        }
        if _any_observed(table, table.cells(pl.DataFrame(columns))):
            return False  # the old value cannot be subtracted from the pools
        completer = copy.copy(snapshot.completer)
        values, times = np.array(list(cells.values())).T
        timed = table.times is not None
        completer.update(pl.DataFrame(columns), values, times=times if timed else None)
        self._publish(lambda now: replace(now, completer=completer, version=version))
        return not completer.refresh_due_

    def _refresh(self) -> None:
        """Publish a snapshot of the whole table, read from the database."""
        self.refreshing = True
        started = time.monotonic()
        try:
            version, completer = self._read()
        finally:
            self.refreshing = False
        self._publish(
            lambda now: Snapshot(
                completer,
                version,
                version,
                time.monotonic(),
                now.refreshes + 1,
                self._members_deleted_after(version),
            )
        )
        self.store.truncate_log()
        seconds = round(time.monotonic() - started, 3)
        log.info("refreshed", extra={"fields": {"version": version, "seconds": seconds}})

    def _read(self) -> tuple[int, Completer | None]:
        started = time.monotonic()
        version, table = self.store.read_table()
        if not len(table):
            return version, None
        completer = self.make(table)
        # Predict once for a new member, so that no request waits for what is cached on first use.
        cell = completer.table_.index[:1].copy()
        cell[:, 0] = 0
        newcomer = completer.predictor_.for_new_members(0, cell, completer.table_.values[:1])
        if newcomer is not None:
            read_predictions(newcomer, cell, methodcaller("mean"))
        self.read_seconds = time.monotonic() - started
        return version, completer

    def _members_deleted_after(self, version: int) -> frozenset[tuple[int, Label]]:
        with self._wake:
            members = [c.deleted_member for c in self._pending if c.version > version]
        return frozenset(member for member in members if member is not None)

    def _publish(self, new: Callable[[Snapshot], Snapshot]) -> None:
        with self._publishing:
            self.snapshot = self.follower.hide_deleted(new(self.snapshot))
        with self._wake:
            while self._lagging and self._lagging[0][0] <= self.snapshot.version:
                self._lagging.popleft()


def _any_observed(table: Table, cells: Index) -> bool:
    """Whether one of the cells has a value in the table."""
    known = cells[(cells != UNKNOWN).all(axis=1)]
    found = find_cells(table.index, known, table.shape)
    found = found[found != UNKNOWN]
    return not np.isnan(table.values[found]).all()
