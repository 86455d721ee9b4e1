"""The number of threads that pays off for a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Training steps over 7,000 cells took 43 ms with one thread and 40 with two, over 76,000 cells 315
# and 230. A factorization of 5,000 cells took 1.5 s with one, and 37 with two on a busy machine.
MIN_CELLS = 20_000

# Sweeps of a factorization are many short operations. On a busy machine 20 of them over 90,000
# cells took 1.9 s with one thread and 64 with two. On an idle one two gain nothing there, and 8.1
# for 11.3 s over 850,000 cells.
MIN_SWEPT_CELLS = 500_000


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
