"""Writes changes to the database and keeps a snapshot in step with it, in background threads.

A change is acknowledged once it is durable. Then one thread makes the next snapshot: cells that
were written are folded in, several changes together. Deleted ones lead to a refresh, for which
another thread, of low priority, reads the whole table again; what is written meanwhile is folded
into both. Changes of other processes come from a ``Follower``. A snapshot never changes, so readers
never wait.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from exchangeable.completion.completer import Completer
from exchangeable.data.table import Table
from exchangeable.errors import Failed
from exchangeable.runtime.threads import lower_priority
from exchangeable.serve.call import describe_failure
from exchangeable.serve.completers import fold, warm
from exchangeable.serve.follower import Follower
from exchangeable.serve.pending import PendingChanges
from exchangeable.serve.snapshot import Busy, Change, Snapshot, Status
from exchangeable.serve.state import State
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
CLOSE_SECONDS = 5.0
"""Seconds that closing waits for what is computed in the background."""
PAUSE_SHARE, MAX_PAUSE = 3.0, 0.5
"""Time between two updates over that of the first, and its limit in seconds: while changes come all
the time, a quarter of one core computes them, and they are in predictions within two seconds."""


class Refresher:
    """The current snapshot of a database, the changes to it, and the thread that applies them."""

    def __init__(self, store: Store, make: MakeCompleter, state: State | None = None) -> None:
        self.store, self.make, self.state = store, make, state
        self._writing = threading.Lock()
        self._stopping = False
        self.read_seconds = 0.0
        """Seconds that the last reading of the whole table took."""
        self._unsaved: tuple[int, Completer] | None = None
        """A completer of the whole table that is to be saved, and its version."""
        self.snapshot = self._go_on() or self._begin()
        self.refreshing = False
        self.failing = False
        """Whether the last attempt to follow the database failed."""
        self.pending = PendingChanges(self.snapshot.version)
        self._wake = self.pending.wake
        self._publishing = threading.Lock()
        self.hidden = 0
        """How often a member was hidden: what was computed in the meantime may name it."""
        self._making = threading.Lock()
        """Held while the next completer is made of that of the snapshot."""
        self._wants_refresh = False
        self._stuck = False
        """Whether cells could not be added, so that all further ones wait for the refresh too."""
        self._meanwhile: list[Change] = []
        """Changes that came since the refresh in progress began."""
        self._threads = [
            threading.Thread(target=self._run, name="folder", daemon=True),
            threading.Thread(target=self._run_refreshes, name="refresher", daemon=True),
        ]
        self.follower = Follower(self)
        self.follower.start()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads; acknowledged changes are in the database."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        end = time.monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))
        self.follower.close()
        if self.state is not None:
            self.state.close()

    @property
    def status(self) -> Status:
        """Whether the snapshot follows the database."""
        return "failing" if self.failing else "refreshing" if self.refreshing else "ok"

    @property
    def behind(self) -> int:
        """Number of durable changes that are not yet in the snapshot."""
        return len(self.pending)

    @property
    def is_overdue(self) -> bool:
        """Whether predictions lack a change for longer than a refresh should take."""
        return self.failing or self.pending.lag > max(MAX_LAG_SECONDS, 4 * self.read_seconds)

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
                return self.pending.deleted, 0
            self._enqueue(Change(version, needs_refresh=True))
        return version, deleted

    def delete_member(self, axis: int, member: Label) -> tuple[int, int]:
        """Delete all cells of a member, and return the version without them and their number."""
        label = self.store.facts.normalise(axis, member)
        with self._writer():
            version, deleted = self.store.delete_member(axis, member)
            if not deleted:
                self.follower.look()  # another process may have deleted it
                return self.pending.deleted, 0
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
        for change in changes:
            self._enqueue(change)
        self.pending.follow(version)

    @property
    def followed(self) -> int:
        """Version up to which all changes have come here."""
        return self.pending.followed

    def _enqueue(self, change: Change) -> None:
        is_new = self.pending.add(change)  # what the follower brought may not be removed yet
        if self.state is not None and (is_new or change.needs_refresh):
            self.state.note(change)

    # New cells ---------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                changes: list[Change] = []
                while not changes and not self._stopping:
                    changes = self.pending.take()
                    if not changes:
                        self._wake.wait()
                if self._stopping:
                    return
                self._wants_refresh |= any(change.needs_refresh for change in changes)
                self._wake.notify_all()
            started = time.monotonic()
            self._fold(changes)
            with self._wake:  # let requests compute meanwhile, and more changes come
                pause = min(PAUSE_SHARE * (time.monotonic() - started), MAX_PAUSE)
                self._wake.wait_for(lambda: self._stopping, pause)

    def _fold(self, changes: Sequence[Change]) -> None:
        """Publish a snapshot that includes changes, but for those that need a refresh."""
        with self._making:
            snapshot = self.snapshot
            changes = [change for change in changes if change.version > snapshot.version]
            if self.refreshing:
                self._meanwhile += changes
            completer = self._try_fold(snapshot.completer, changes)
            if not changes or self._stuck:
                return
            version = changes[-1].version
            self._publish(lambda now: replace(now, completer=completer, version=version))
        if completer is not None and completer.refresh_due_:
            self._want_refresh()

    def _try_fold(self, completer: Completer | None, changes: Sequence[Change]) -> Completer | None:
        """Fold cells in; what cannot be added is left to a refresh, and all that comes after it."""
        written = [change for change in changes if not change.needs_refresh]
        if not written:
            return completer
        try:
            if completer is not None and not self._stuck:
                folded = fold(completer, self.store.facts, written)
                warm(folded)
                return folded
        except Exception as error:  # cells that cannot be added can still be read
            log.error("update failed", extra={"fields": describe_failure(error)})
        self._stuck = True
        self._want_refresh()
        return completer

    def _want_refresh(self) -> None:
        with self._wake:
            self._wants_refresh = True
            self._wake.notify_all()

    # The whole table ---------------------------------------------------------------------

    def _run_refreshes(self) -> None:
        lower_priority()
        self._save()
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._wants_refresh or self._stopping)
                if self._stopping:
                    return
                self._wants_refresh = False
            try:
                self._refresh()
                self.failing = False
            except (Exception, Failed) as error:  # whatever it is, the old snapshot stays in use
                self.failing = True
                log.error("refresh failed", extra={"fields": describe_failure(error)})
                with self._wake:
                    self._wake.wait_for(lambda: self._stopping, RETRY_SECONDS)
                    self._wants_refresh = True

    def _refresh(self) -> None:
        """Publish a snapshot of the whole table, read from the database, and of what came since."""
        started = time.monotonic()
        with self._making:
            self._meanwhile, self.refreshing = [], True
        try:
            version, completer = self._read()
            with self._making:
                self._replace(version, completer)
            self._unsaved = None if completer is None else (version, completer)
        finally:
            self.refreshing = False
        self.store.truncate_log()
        seconds = round(time.monotonic() - started, 3)
        log.info("refreshed", extra={"fields": {"version": version, "seconds": seconds}})
        self._save()

    def _replace(self, version: int, completer: Completer | None) -> None:
        """Publish a completer of the whole table, with the cells that came while it was made."""
        later = [change for change in self._meanwhile if change.version > version]
        self.pending.refreshed(version)
        with self._wake:
            self._stuck, self._wants_refresh = False, self.pending.need_refresh
        completer = self._try_fold(completer, later)
        included = max([version, *(change.version for change in later if not self._stuck)])
        self._publish(
            lambda now: Snapshot(
                completer,
                included,
                version,
                time.monotonic(),
                now.refreshes + 1,
                self.pending.deleted_members_after(version),
            )
        )

    def _read(self) -> tuple[int, Completer | None]:
        started = time.monotonic()
        version, table = self.store.read_table()
        if not len(table):
            return version, None
        completer = self.make(table)
        warm(completer, unseen=True)
        self.read_seconds = time.monotonic() - started
        return version, completer

    def _begin(self) -> Snapshot:
        """Make the first snapshot of the whole table."""
        version, completer = self._read()
        self._unsaved = None if completer is None else (version, completer)
        return Snapshot(completer, version, version, time.monotonic())

    def _go_on(self) -> Snapshot | None:
        """Make the first snapshot of a saved completer and the changes since, if they are there."""
        if self.state is None:
            return None
        version = self.store.read_version()
        found = self.state.load(version)
        if found is None:
            return None
        read_version, completer, changes = found
        try:
            if changes:
                completer = fold(completer, self.store.facts, changes)
            warm(completer, unseen=True)
        except Exception as error:  # all cells can still be read
            log.error("update failed", extra={"fields": describe_failure(error)})
            self.state.remove(version)
            return None
        return Snapshot(completer, version, read_version, time.monotonic())

    def _save(self) -> None:
        """Save the completer that has read the whole table, if the state is to be kept."""
        unsaved, self._unsaved = self._unsaved, None
        if self.state is not None and unsaved is not None:
            self.state.save(*unsaved)

    def _publish(self, new: Callable[[Snapshot], Snapshot]) -> None:
        with self._publishing:
            self.snapshot = self.follower.hide_deleted(new(self.snapshot))
        self.pending.included(self.snapshot.version)
