"""Changes that are durable and not yet in the snapshot, of this process and of others."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

from exchangeable.serve.snapshot import Change
from exchangeable.storage.facts import Label


class PendingChanges:
    """Changes by version, from when they are durable until a snapshot includes them.

    Those of this process come from its writers, those of others from the log, in any sequence; they
    are taken by ascending version. Safe for threads.
    """

    def __init__(self, version: int) -> None:
        self.wake = threading.Condition()
        """Notified when a change comes."""
        self.followed = version
        """Version up to which all changes have come."""
        self.deleted = version
        """Version of the last change that needs a refresh."""
        self._taken = version
        self._waiting: list[Change] = []
        self._left: list[Change] = []
        """Changes that were taken, and that a refresh is to include."""
        self._lagging: deque[tuple[int, float]] = deque()
        """Versions that are not yet included, and when they came."""

    def __len__(self) -> int:
        with self.wake:
            return len(self._lagging)

    @property
    def lag(self) -> float:
        """Seconds since the first change came that is not yet included."""
        with self.wake:
            return time.monotonic() - self._lagging[0][1] if self._lagging else 0.0

    @property
    def need_refresh(self) -> bool:
        """Whether a refresh is to include some that were taken."""
        with self.wake:
            return bool(self._left)

    def add(self, change: Change) -> bool:
        """Add a change; return whether it had not come before."""
        with self.wake:
            if change.needs_refresh:
                self.deleted = max(self.deleted, change.version)
            waiting = {one.version for one in self._waiting}
            is_new = change.version > self._taken and change.version not in waiting
            if is_new:
                self._waiting.append(change)
                self._lagging.append((change.version, time.monotonic()))
            while self.followed + 1 in {change.version, *waiting}:
                self.followed += 1
            self.wake.notify_all()
            return is_new

    def follow(self, version: int) -> None:
        """Note that all changes up to a version have come."""
        with self.wake:
            self.followed = max(self.followed, version)
            self.wake.notify_all()

    def take(self) -> list[Change]:
        """Take the changes out up to the first that has not come yet, by version."""
        with self.wake:
            due = [change for change in self._waiting if change.version <= self.followed]
            self._waiting = [one for one in self._waiting if one.version > self.followed]
            self._taken = max(self._taken, self.followed)
            self._left += [change for change in due if change.needs_refresh]
            return sorted(due, key=lambda change: change.version)

    def refreshed(self, version: int) -> None:
        """Forget those that a refresh has included."""
        with self.wake:
            self._left = [change for change in self._left if change.version > version]

    def included(self, version: int) -> None:
        """Note that predictions include all changes up to a version but those left to a refresh."""
        with self.wake:
            left = {change.version for change in self._left}
            self._lagging = deque(
                (one, since) for one, since in self._lagging if one > version or one in left
            )

    def deleted_members_after(self, version: int) -> frozenset[tuple[int, Label]]:
        """Members (axis, label) that this process deleted after a version."""
        with self.wake:
            changes: Sequence[Change] = [*self._left, *self._waiting]
        members = [change.deleted_member for change in changes if change.version > version]
        return frozenset(member for member in members if member is not None)
