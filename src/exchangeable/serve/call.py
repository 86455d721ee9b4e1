"""A request in progress: what is computed for it ends with it, and its failures are logged."""

from __future__ import annotations

import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from exchangeable.errors import Failed
from exchangeable.runtime.progress import Progress

LEFT = "the client has left"
MAX_FRAMES = 30
"""Most frames of a traceback in the log."""


class Ended(Failed):
    """The request was given up before its response was computed."""


@dataclass(frozen=True)
class Phase:
    """A part of the time that a request took, in nanoseconds since 1970."""

    name: Literal["queue", "compute", "database"]
    began: int
    ended: int

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9


class Call:
    """A request, until it is answered, its time is over, or its client has left.

    Safe for threads: the event loop ends a call, and its work stops in others.
    """

    def __init__(self) -> None:
        self.identity = secrets.token_hex(8)
        """Names the request in the log, and in its response."""
        self.reason = ""
        self._phases: list[Phase] = []
        self._ended = threading.Event()
        self._stops: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def end(self, reason: str = "") -> None:
        """End the call and all work for it; only the first reason counts."""
        with self._lock:
            if self.ended:
                return
            self.reason = reason
            self._ended.set()
            stops, self._stops = self._stops, []
        for stop in stops:
            stop()

    def on_end(self, stop: Callable[[], object]) -> None:
        """Stop some work when the call ends; at once if it has ended."""
        with self._lock:
            if not self.ended:
                self._stops.append(stop)
                return
        stop()

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What the request waited for until now, in sequence."""
        return tuple(self._phases)

    def add_phase(self, name: Literal["queue", "compute", "database"], began: int) -> None:
        """Note that a part of the request has ended that began at a time."""
        self._phases.append(Phase(name, began, time.time_ns()))

    @contextmanager
    def phase(self, name: Literal["queue", "compute", "database"]) -> Iterator[None]:
        """Note how long the block takes, also if it fails."""
        began = time.time_ns()
        try:
            yield
        finally:
            self.add_phase(name, began)

    def check(self) -> None:
        """Raise ``Ended`` if the call has ended."""
        if self.ended:
            raise Ended(self.reason)

    @property
    def progress(self) -> Progress:
        """A progress that shows nothing, and raises ``Ended`` once the call has ended."""
        return Progress(show=lambda share, text: self.check())


def describe_failure(error: BaseException) -> dict[str, Any]:
    """Where an error happened, for the log; its message may contain labels and values."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "where": where}
