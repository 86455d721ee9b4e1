"""Stopping in an orderly way: at Ctrl-C and SIGTERM, and when memory runs out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from exchangeable.errors import Failed


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop, did so after a step, and says what is left of it.

    Not an ordinary error: whoever goes on after errors is not to go on after this one.
    """


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Within, Ctrl-C and SIGTERM only note that someone wants to stop; a second one stops at once.

    Signals reach the main thread alone; elsewhere nothing changes.
    """
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {one: signal.signal(one, note) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def clear_about_memory() -> Iterator[None]:
    """Turn running out of memory into one line with the settings that help."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise Failed(_ADVICE) from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):  # how torch says it on a CPU
            raise
        raise Failed(_ADVICE) from error


_ADVICE = (
    "out of memory; let a step see fewer cells (batch 'uniform' with batch_cells, on the command "
    "line --batch uniform --batch-cells 20000), or take a smaller width"
)
