"""Orderly stops: at Ctrl-C and SIGTERM, and when memory runs out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from exchangeable.errors import Failed, option


class Interrupted(KeyboardInterrupt):
    """A run stopped after a step on request; the message says what was saved.

    Not an ``Exception``, so that code that continues after errors stops too.
    """


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Record the first Ctrl-C or SIGTERM instead of stopping; a second one stops at once.

    Yields a function that tells whether a stop was requested. Signals reach the main thread
    only; in other threads nothing changes.
    """
    received: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {one: signal.signal(one, record) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Turn out-of-memory errors into one line with the settings that help."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise Failed(_ADVICE) from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):  # torch's message on a CPU
            raise
        raise Failed(_ADVICE) from error


_ADVICE = (
    f"out of memory; let a step see fewer cells ({option('batch', 'uniform')} with "
    f"{option('batch_cells', 20000)}), or take a smaller width"
)
