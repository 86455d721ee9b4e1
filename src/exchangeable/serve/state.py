"""A completer in a folder beside the database, from which the next start goes on.

    completer/       a completer that read the whole table at some version
    changes.jsonl    that version and what the fit depended on, then every change since

The database stays what counts: a folder that does not fit it exactly is removed. So is one that
holds something deleted, as soon as that is deleted.

Each of several services of one database has a folder of its own, which it holds by a lock: the
second one has 2 in its name, and so on. A start takes a folder that fits and that nobody holds.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

from exchangeable._version import __version__
from exchangeable.completion.completer import Completer
from exchangeable.errors import Failed, InputError
from exchangeable.runtime.files import whole_file
from exchangeable.runtime.folders import MANIFEST, one_line
from exchangeable.runtime.locks import FileLock
from exchangeable.serve.snapshot import Change
from exchangeable.storage.store import Store

log = logging.getLogger("exchangeable.serve")

COMPLETER, CHANGES = "completer", "changes.jsonl"

Started = tuple[int, Completer, list[Change]]
"""A version, a completer that read the table then, and all changes since."""


class State:
    """The folder of a table. Safe for threads: writers note changes while a completer is saved."""

    def __init__(self, folder: Path, key: str, device: str = "auto") -> None:
        """``folder`` is that of the first service of the table."""
        self.first, self.folder, self.device = folder, folder, device
        self.key = key
        """What a completer depends on beside the cells: another one is not used."""
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._held: FileLock | None = None
        self._noted: list[Change] = []
        """Changes since the saved completer, or since the last deletion."""
        self._least = 0
        """Version from which on a completer has no trace of anything deleted."""
        self._file: IO[str] | None = None
        self._closed = False

    @classmethod
    def of(
        cls, store: Store, options: Mapping[str, Any], folder: Path | None = None
    ) -> State | None:
        """The state of a table whose completers are fitted with some options.

        It is in a folder named as the table, beside SQLite's file unless another place is given;
        None for PostgreSQL without one.
        """
        local = store.engine.dialect.name == "sqlite"
        file = Path(store.location).absolute()
        if folder is None and not local:
            return None
        # A file in the place of another is another database, though its versions may agree.
        origin = [str(file), file.stat().st_ino] if local else [store.location]
        origin.append(store.log.secret)
        facts = asdict(store.facts)
        parts = {"origin": origin, "facts": facts, "options": options, "version": __version__}
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        # A name of its own in a folder of the user's: what it holds is removed.
        place = folder / "exchangeable-state" if folder else file.with_name(f"{file.name}.state")
        return cls(place / str(store.name), key, options.get("device", "auto"))

    def load(self, version: int) -> Started | None:
        """Load what leads to a version of the database; None if there is no such state.

        From then on the folder is this service's.
        """
        free: list[tuple[Path, FileLock]] = []
        present = self._present_folders()
        further = map(self._folder, count(2))
        for folder in chain(present, (one for one in further if one not in present)):
            if free and folder not in present:
                break
            lock = FileLock(folder.with_name(f"{folder.name}.lock"))
            if not lock.acquire():
                continue
            started = self._load(folder, version)
            if started is not None:
                for _, other in free:
                    other.release()
                self._take(folder, lock)
                return started
            free.append((folder, lock))
        for _, lock in free[1:]:
            lock.release()
        self._take(*free[0])
        self._least = version
        shutil.rmtree(self.folder, ignore_errors=True)
        return None

    def _present_folders(self) -> list[Path]:
        """Folders of services of this table."""
        others = self.first.parent.glob(f"{self.first.name}.*")
        numbers = sorted(int(p.suffix[1:]) for p in others if p.suffix[1:].isdecimal())
        return [self._folder(number) for number in (1, *numbers)]

    def _folder(self, number: int) -> Path:
        return self.first.with_name(f"{self.first.name}.{number}") if number > 1 else self.first

    def _take(self, folder: Path, lock: FileLock) -> None:
        self.folder, self._held = folder, lock

    def _load(self, folder: Path, version: int) -> Started | None:
        """Load what a folder holds; remove it if no service could go on from there."""
        if not folder.exists():
            return None
        fits = True
        try:
            head, changes = _read(folder)
            saved = int(head["version"])
            between = [change.version for change in changes]
            fits = between == list(range(saved + 1, version + 1))
            if head["key"] != self.key or head["manifest"] != _fingerprint(folder):
                raise InputError("it is of another table, model or release")
            if not fits:
                raise InputError(f"it leads to version {max([saved, *between])}, not {version}")
            completer = Completer.load(folder / COMPLETER, device=self.device)
        except (InputError, Failed, OSError, ValueError, KeyError, TypeError) as error:
            log.warning("state not used", extra={"fields": {"reason": one_line(error)}})
            if not fits:
                shutil.rmtree(folder, ignore_errors=True)
            return None
        self._noted = changes
        with suppress(OSError):
            self._file = (folder / CHANGES).open("a", encoding="utf-8")
        return saved, completer, changes

    def save(self, version: int, completer: Completer) -> None:
        """Save a completer that read the whole table at a version, in place of the one before."""
        with self._saving:
            self._save(version, completer)
            if self._closed:
                self._release()

    def _save(self, version: int, completer: Completer) -> None:
        if version < self._least or self._closed:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            completer.save(self.folder / COMPLETER)
            with self._lock:
                self._noted = [change for change in self._noted if change.version > version]
                if version >= self._least:  # otherwise something was deleted meanwhile
                    self._write(version)
                    return
        except (Failed, InputError, OSError) as error:
            log.warning("state not saved", extra={"fields": {"reason": one_line(error)}})
        self.remove(0)

    def note(self, change: Change) -> None:
        """Append a change, before it is acknowledged; a deletion removes all that is saved."""
        if change.needs_refresh:
            self.remove(change.version)
            return
        with self._lock:
            self._noted.append(change)
            if self._file is not None:
                try:
                    self._file.write(_line(change))
                    self._file.flush()
                    return
                except OSError as error:  # the change itself is durable
                    log.warning("state not saved", extra={"fields": {"reason": one_line(error)}})
            else:
                return
        self.remove(0)

    def remove(self, version: int) -> None:
        """Remove what is saved, and save nothing from before a version.

        The folders of other services are removed too if they are from before it.
        """
        with self._lock:
            self._least = max(self._least, version)
            if self._file is not None:
                self._file.close()
                self._file = None
            shutil.rmtree(self.folder, ignore_errors=True)
            for folder in self._present_folders():
                if _version_of(folder) < version:
                    shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Close the file of changes; what is being saved is saved, but nothing after it."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.close()
                self._file = None
        if self._saving.acquire(blocking=False):
            self._release()
            self._saving.release()

    def _release(self) -> None:
        """Let another service have the folder."""
        if self._held is not None:
            self._held.release()

    def _write(self, version: int) -> None:
        """Begin the changes anew, after those of a version."""
        if self._file is not None:
            self._file.close()
            self._file = None
        head = {"version": version, "key": self.key, "manifest": _fingerprint(self.folder)}
        with whole_file(self.folder / CHANGES) as path:
            lines = [json.dumps(head) + "\n", *map(_line, self._noted)]
            path.write_text("".join(lines), encoding="utf-8")
        if not self._closed:
            self._file = (self.folder / CHANGES).open("a", encoding="utf-8")


def _read(folder: Path) -> tuple[dict[str, Any], list[Change]]:
    """Read the file of changes: its head, and the changes by ascending version."""
    with (folder / CHANGES).open(encoding="utf-8") as file:
        head: dict[str, Any] = json.loads(file.readline())
        changes = [_change(json.loads(line)) for line in file]
    return head, sorted(changes, key=lambda change: change.version)


def _version_of(folder: Path) -> int:
    """The version whose completer a folder holds; 0 if that cannot be read."""
    try:
        with (folder / CHANGES).open(encoding="utf-8") as file:
            return int(json.loads(file.readline())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _fingerprint(folder: Path) -> str:
    """The sha256 of the completer's manifest, which has that of every file."""
    return hashlib.sha256((folder / COMPLETER / MANIFEST).read_bytes()).hexdigest()


def _line(change: Change) -> str:
    content = {"version": change.version, "cells": change.cells, "times": change.times}
    return json.dumps(content) + "\n"


def _change(content: Mapping[str, Any]) -> Change:
    cells: Sequence[Any] = content["cells"]
    times = content["times"]
    return Change(
        int(content["version"]),
        tuple((tuple(labels), float(value)) for labels, value in cells),
        None if times is None else tuple(map(float, times)),
    )
