"""The number of threads that pays off for a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Fits and predictions are many short operations, after which torch's threads spin. On a busy
# machine a fit of 76,000 cells took 5.9 s with two threads and 2.1 with one, 20 sweeps over 90,000
# cells 64 s and 1.9. On an idle one two gain nothing there, and 8.1 for 11.3 s over 850,000 cells.
MIN_CELLS = 500_000

# Training steps over 7,000 cells took 43 ms with one thread and 40 with two, over 76,000 cells 315
# and 230: backward passes are longer operations.
MIN_TRAINED_CELLS = 20_000


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep numpy and scipy to one thread: their threads spin, which a busy machine has no time for.

    On such a machine 52 vectors of ARPACK took 7 s with two threads and .2 with one. Enter it after
    the import of what is called, since only libraries that are loaded are limited.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


@contextmanager
def threads_for(cells: int, device: torch.device, min_cells: int = MIN_CELLS) -> Iterator[None]:
    """Use one thread for small tables: two gain nothing there, and lose much on a busy machine."""
    before = torch.get_num_threads()
    if device.type == "cpu" and cells < min_cells:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
