"""Threads where they pay: torch's spin after every operation, ours wait.

Fits and predictions are many short operations. Torch's own threads spin after each of them, so that
on a busy machine a fit of 76,000 cells took 5.9 s with two threads and 2.1 with one. On an idle one
two gain nothing there, and inverting 6,040 matrices of 17 x 17 took fifteen times as long. So torch
has one thread but for single large products, and what is independent runs in threads of ours.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

import torch

MIN_PRODUCTS = 1 << 29
"""Multiplications of one product from which on all threads take part: tens of milliseconds."""

MIN_PARALLEL_CELLS = 50_000
"""Cells from which on independent parts run in threads of ours."""

# Training steps over 7,000 cells took 43 ms with one thread and 40 with two, over 76,000 cells 315
# and 230: backward passes are longer operations.
MIN_TRAINED_CELLS = 20_000

LOW_PRIORITY = 10
"""Niceness of a thread whose work can wait: it gets a tenth of a core that others want."""

T = TypeVar("T")


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch have a number of threads."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != before:
            torch.set_num_threads(before)


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Let torch have one thread, where it computes on the CPU."""
    with torch_threads(1 if device.type == "cpu" else torch.get_num_threads()):
        yield


@contextmanager
def threads_for_training(cells: int, device: torch.device) -> Iterator[None]:
    """Let torch have one thread for small tables, and as many as it has for others."""
    small = device.type == "cpu" and cells < MIN_TRAINED_CELLS
    with torch_threads(1 if small else torch.get_num_threads()):
        yield


@contextmanager
def threads_for_products(count: int) -> Iterator[None]:
    """Let torch have all cores for one product with so many multiplications, if these are many."""
    with torch_threads(
        _cores() if not is_worker() and count >= MIN_PRODUCTS else torch.get_num_threads()
    ):
        yield


_worker = threading.local()


def is_worker() -> bool:
    """Whether this runs in one of several threads of ours, which have the other cores."""
    return getattr(_worker, "busy", False)


def run_all(tasks: Sequence[Callable[[], T]], cells: int, device: torch.device) -> list[T]:
    """Run tasks that do not depend on each other, on several cores where tables are large."""
    alone = cells < MIN_PARALLEL_CELLS or min(_cores(), len(tasks)) < 2 or is_worker()
    if device.type != "cpu" or alone:
        return [task() for task in tasks]
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    narrow = partial(
        torch.autocast,
        "cpu",
        dtype=torch.get_autocast_dtype("cpu"),
        enabled=torch.is_autocast_enabled("cpu"),
        cache_enabled=False,
    )

    def run(task: Callable[[], T]) -> T:
        torch.set_num_threads(1)  # every thread has settings of its own
        _worker.busy = True
        # Gradients last: inference_mode(False) turns them on.
        with torch.inference_mode(inference), torch.set_grad_enabled(grad), narrow():
            return task()

    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(min(_cores(), len(tasks))) as pool:
            return list(pool.map(run, tasks))
    finally:
        torch.set_num_threads(before)


def _cores() -> int:
    """Return the cores for one of the processes of a job on this machine."""
    affine = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if affine else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def lower_priority() -> None:
    """Let other threads of this machine go first; so do those that this thread starts."""
    if sys.platform == "linux":  # where priorities are those of threads
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)
