"""Follows what other processes change in the same database, by its log, in a thread of its own.

A member that another process deleted is hidden as soon as the log has been read, several times a
second, also while a refresh is running. The log names deleted members by digests only, so each
snapshot is searched for labels with these.

The thread may be late, on a busy machine by seconds. So a request looks itself where the last look
is too long ago, and no response is sent that a look of the last ``MAX_UNSEEN`` seconds has not
confirmed: without contact to the log, reading calls are refused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from exchangeable.errors import Failed
from exchangeable.serve.call import describe_failure
from exchangeable.serve.snapshot import Change, Snapshot
from exchangeable.storage.changes import Entry, digests
from exchangeable.storage.watch import News, Watch

if TYPE_CHECKING:
    from exchangeable.serve.refresher import Refresher

T = TypeVar("T")

log = logging.getLogger("exchangeable.serve")

MAX_AGE = 0.4
"""Seconds since the last look at the log from which on a request looks itself: longer than between
two looks of the thread."""
MAX_UNSEEN = 0.8
"""Seconds since the last look began after which no response is sent."""
MAX_SILENCE = 3.0
"""Seconds without contact to the database after which the service is not ready, and for which a
request tries to have some."""
_MAX_ATTEMPTS = 20
TRIM_SECONDS = 15.0
"""Seconds between two removals of old entries from the log."""


class OutOfTouch(Failed):
    """Members that others have deleted could be named."""


class Follower:
    """Brings the changes of other processes to a refresher, and hides whom they deleted."""

    def __init__(self, refresher: Refresher) -> None:
        self.refresher = refresher
        self.store = refresher.store
        self.max_age, self.max_unseen, self.max_silence = MAX_AGE, MAX_UNSEEN, MAX_SILENCE
        self._watch = Watch(self.store)
        self._looking = threading.Lock()
        self._contact = time.monotonic()
        """When the last look began that brought all that had been committed before."""
        self._unknown_until = 0
        """Version up to which members may have been deleted of which the log knows no more."""
        self._deletions: dict[int, tuple[int, str]] = {}
        """Axes and digests of members that others have deleted, by version."""
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="follower", daemon=True),
            threading.Thread(target=self._trim, name="trimmer", daemon=True),
        ]

    def start(self) -> None:
        """Take up what was changed while the table was read, and start the threads."""
        self.look()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads."""
        self._closing.set()
        self._watch.close()
        for thread in self._threads:
            thread.join(timeout=5)

    @property
    def silence(self) -> float:
        """Seconds since the last contact to the log."""
        return time.monotonic() - self._contact

    @property
    def is_out_of_touch(self) -> bool:
        """Whether there has been no contact for long, or the log knows too little."""
        return self._misses_deletions or self.silence > self.max_silence

    @property
    def _misses_deletions(self) -> bool:
        return self.refresher.snapshot.read_version < self._unknown_until

    def current(self, respond: Callable[[], T]) -> tuple[T, int]:
        """Respond, and once more if a member was hidden meanwhile: the response may name it.

        Also return what ``is_current`` takes, just before the response is sent.
        """
        for _ in range(_MAX_ATTEMPTS):
            self._look_if_due()
            hidden = self.refresher.hidden
            if not self.is_current(hidden):
                break
            response = respond()
            self._look_if_due()
            if self.is_current(hidden):
                return response, hidden
        raise OutOfTouch("members may have been deleted that the response would name: try again")

    def is_current(self, hidden: int) -> bool:
        """Whether a response names nobody who was deleted longer than ``max_unseen`` ago.

        ``hidden`` is how often members had been hidden when it was begun.
        """
        fresh = self.silence <= self.max_unseen and not self._misses_deletions
        return fresh and self.refresher.hidden == hidden

    def _look_if_due(self) -> None:
        """Look at the log in the caller's thread, if that was last done too long ago.

        Once more where it took long: hiding one of very many members does.
        """
        oldest, end = self.max_age, time.monotonic() + self.max_silence
        while self.silence > oldest and time.monotonic() < end:
            if not self._looking.acquire(timeout=self.max_silence):
                return
            try:
                if self.silence > oldest:  # otherwise another request has looked meanwhile
                    self._look()
            except (Exception, Failed):  # logged by the thread, which will fail as well
                return
            finally:
                self._looking.release()
            oldest = self.max_unseen

    def look(self) -> None:
        """Bring what has changed to the refresher, in the caller's thread."""
        with self._looking:
            self._look()

    def _look(self) -> None:
        begun, after = time.monotonic(), self.refresher.followed
        news = self._watch.look(after)
        if news.version > after:
            self._take(news, after)
        self._contact = begun

    def hide_deleted(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without the members that others have deleted since it was read."""
        for version in [v for v in list(self._deletions) if v <= snapshot.read_version]:
            del self._deletions[version]
        deleted = set(self._deletions.values())
        if not deleted or snapshot.completer is None:
            return snapshot
        secret, table = self.store.log.secret, snapshot.completer.table_
        members = set(snapshot.deleted_members)
        for axis in {axis for axis, _ in deleted}:
            wanted = {one for other, one in deleted if other == axis}
            labels = table.vocabularies[axis].labels.to_list()
            found = zip(labels, digests(secret, axis, labels), strict=True)
            members |= {(axis, label) for label, one in found if one in wanted}
        return replace(snapshot, deleted_members=frozenset(members))

    # The threads -------------------------------------------------------------------------

    def _run(self) -> None:
        failing = False
        while not self._watch.closed:
            try:
                self.look()
                failing = False
            except (Exception, Failed) as error:
                if not failing:
                    log.error("not followed", extra={"fields": describe_failure(error)})
                failing = True
            self._watch.wait()
        self._watch.disconnect()

    def _take(self, news: News, after: int) -> None:
        if len(news.entries) < news.version - after:  # some were removed before they were read
            self._unknown_until = news.version
            gap = Change(news.version, needs_refresh=True)
            self.refresher.follow([gap], news.version)
            return
        for entry in news.entries:
            if entry.kind == "delete member":
                self._deletions[entry.version] = (entry.axis, entry.digest)
        if any(entry.kind == "delete member" for entry in news.entries):
            self.refresher.hide(news.version, frozenset())
        changes = [_change(entry) for entry in news.entries]
        self.refresher.follow(changes, news.version)

    def _trim(self) -> None:
        """Remove old entries of the log now and then; that may have to wait for writers."""
        while not self._closing.wait(TRIM_SECONDS):
            with suppress(Failed, SQLAlchemyError):
                self.store.trim_log()


def _change(entry: Entry) -> Change:
    """A change of the log as the refresher takes it up."""
    if entry.kind == "put" and entry.cells is not None:
        return Change(entry.version, entry.cells, entry.times)
    return Change(entry.version, needs_refresh=True)
