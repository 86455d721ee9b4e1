"""Several processes that share the cells of a table: pools are summed over all of them.

Every process goes through its own share of the cells, and after each layer the pools of all are
added up, so that each has the pools of the whole table. Under ``torchrun`` the commands do so by
themselves; a single process is the special case in which nothing has to be exchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor
from torch import distributed as dist

from exchangeable.errors import Failed

_PATIENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class Processes:
    """Which of how many processes this is."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and talks."""
        return self.rank == 0

    @property
    def home(self) -> torch.device:
        """Where messages of any kind can be sent from."""
        return torch.device("cpu")

    def share(self, number: int) -> tuple[int, int]:
        """Where this process' share of ``number`` things starts and stops."""
        return number * self.rank // self.size, number * (self.rank + 1) // self.size

    def summed(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The sum over all processes of each tensor."""
        return self._reduced(parts, dist.ReduceOp.SUM)

    def largest(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The largest over all processes of each tensor, element by element."""
        return self._reduced(parts, dist.ReduceOp.MAX)

    def gathered(self, own: Tensor, number: int) -> Tensor:
        """The rows of all processes' shares of ``number`` rows, one after the other."""
        if self.size == 1:
            return own
        shares = [Processes(rank, self.size).share(number) for rank in range(self.size)]
        rows = [own.new_empty(stop - start, *own.shape[1:]) for start, stop in shares]
        if len({len(part) for part in rows}) == 1:
            _told(lambda: dist.all_gather(rows, own.contiguous()))
            return torch.cat(rows)
        # Shares differ by a row at most, so the longer ones set the length of all.
        longest = max(len(part) for part in rows)
        padded = own.new_zeros(longest, *own.shape[1:])
        padded[: len(own)] = own
        spacious = [torch.empty_like(padded) for _ in rows]
        _told(lambda: dist.all_gather(spacious, padded))
        return torch.cat([all_[: len(part)] for all_, part in zip(spacious, rows, strict=True)])

    def any(self, here: bool) -> bool:
        """Whether something is so in one of the processes, which all of them hear."""
        if self.size == 1:
            return here
        return bool(self.largest([torch.tensor([float(here)], device=self.home)])[0])

    def _reduced(self, parts: Sequence[Tensor], how: dist.ReduceOp.RedOpType) -> list[Tensor]:
        if self.size == 1 or not parts:
            return list(parts)
        # One message instead of many.
        flat = torch.cat([part.reshape(-1) for part in parts])
        _told(lambda: dist.all_reduce(flat, how))
        pieces = flat.split([part.numel() for part in parts])
        return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]


ALONE = Processes()


@contextmanager
def join_processes() -> Iterator[Processes]:
    """Which of the processes that ``torchrun`` started this one is; without it, it is alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % gpus)
    # Each kind of tensor by its own means: what is on a CPU cannot be sent by NCCL.
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo", timeout=_PATIENCE)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def _told(exchange: Callable[[], object]) -> None:
    """Exchange, or say in one line that another process is gone."""
    try:
        exchange()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise Failed(f"another process of this job is gone: {reason}") from None
