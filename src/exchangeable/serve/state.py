"""A completer in a folder beside the database, from which the next start goes on.

    completer/       a completer that read the whole table at some version
    changes.jsonl    that version and what the fit depended on, then every change since

The database stays what counts: a folder that does not fit it exactly is removed. So is one that
holds something deleted, as soon as that is deleted.
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
from pathlib import Path
from typing import IO, Any

from exchangeable._version import __version__
from exchangeable.completion.completer import Completer
from exchangeable.errors import Failed, InputError
from exchangeable.runtime.files import whole_file
from exchangeable.runtime.folders import MANIFEST, one_line
from exchangeable.serve.snapshot import Change
from exchangeable.storage.store import Store

log = logging.getLogger("exchangeable.serve")

Started = tuple[int, Completer, list[Change]]
"""A version, a completer that read the table then, and all changes since."""


class State:
    """The folder of a table. Safe for threads: writers note changes while a completer is saved."""

    def __init__(self, folder: Path, key: str, device: str = "auto") -> None:
        self.folder, self.device = folder, device
        self.key = key
        """What a completer depends on beside the cells: another one is not used."""
        self._lock = threading.Lock()
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
        place = folder / "exchangeable.state" if folder else file.with_name(f"{file.name}.state")
        return cls(place / str(store.name), key, options.get("device", "auto"))

    @property
    def _completer(self) -> Path:
        return self.folder / "completer"

    @property
    def _changes(self) -> Path:
        return self.folder / "changes.jsonl"

    def load(self, version: int) -> Started | None:
        """Load what leads to a version of the database; None if there is no such state."""
        if not self.folder.exists():
            return None
        try:
            head, changes = self._read()
            saved = int(head["version"])
            between = [change.version for change in changes]
            if head["key"] != self.key or head["manifest"] != self._fingerprint():
                raise InputError("it is of another table, model or release")
            if between != list(range(saved + 1, version + 1)):
                raise InputError(f"it leads to version {max([saved, *between])}, not {version}")
            completer = Completer.load(self._completer, device=self.device)
        except (InputError, Failed, OSError, ValueError, KeyError, TypeError) as error:
            log.warning("state not used", extra={"fields": {"reason": one_line(error)}})
            self.remove(version)
            return None
        self._noted = changes
        with suppress(OSError):
            self._file = self._changes.open("a", encoding="utf-8")
        return saved, completer, changes

    def save(self, version: int, completer: Completer) -> None:
        """Save a completer that read the whole table at a version, in place of the one before."""
        if version < self._least or self._closed:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            completer.save(self._completer)
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
        """Remove what is saved, and save nothing from before a version."""
        with self._lock:
            self._least = max(self._least, version)
            if self._file is not None:
                self._file.close()
                self._file = None
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Close the file of changes; what is being saved is saved, but nothing after it."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write(self, version: int) -> None:
        """Begin the changes anew, after those of a version."""
        if self._file is not None:
            self._file.close()
            self._file = None
        head = {"version": version, "key": self.key, "manifest": self._fingerprint()}
        with whole_file(self._changes) as path:
            lines = [json.dumps(head) + "\n", *map(_line, self._noted)]
            path.write_text("".join(lines), encoding="utf-8")
        if not self._closed:
            self._file = self._changes.open("a", encoding="utf-8")

    def _read(self) -> tuple[dict[str, Any], list[Change]]:
        """Read the file of changes: its head, and the changes by ascending version."""
        with self._changes.open(encoding="utf-8") as file:
            head: dict[str, Any] = json.loads(file.readline())
            changes = [_change(json.loads(line)) for line in file]
        return head, sorted(changes, key=lambda change: change.version)

    def _fingerprint(self) -> str:
        """The sha256 of the completer's manifest, which has that of every file."""
        return hashlib.sha256((self._completer / MANIFEST).read_bytes()).hexdigest()


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
