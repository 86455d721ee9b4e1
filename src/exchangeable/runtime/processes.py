"""Processes that share the cells of a table, and sum their pools.

Every process computes its share of the cells, and after each layer the pools of all are summed,
so that each has the pools of the whole table. Under ``torchrun`` the commands do so by
themselves; a single process is the special case without any exchange.
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

_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class Processes:
    """The rank of this process, and the number of all."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and output."""
        return self.rank == 0

    @property
    def home(self) -> torch.device:
        """Device from which all kinds of messages can be sent."""
        return torch.device("cpu")

    def share(self, total: int) -> tuple[int, int]:
        """Return start and stop of this process' share of ``total`` items."""
        return total * self.rank // self.size, total * (self.rank + 1) // self.size

    def all_sum(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Sum each tensor over all processes."""
        return self._reduce(parts, dist.ReduceOp.SUM)

    def all_max(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Maximum of each tensor over all processes, element by element."""
        return self._reduce(parts, dist.ReduceOp.MAX)

    def all_gather(self, part: Tensor, total: int) -> Tensor:
        """Concatenate the rows of all processes' shares of ``total`` rows."""
        if self.size == 1:
            return part
        shares = [Processes(rank, self.size).share(total) for rank in range(self.size)]
        rows = [part.new_empty(stop - start, *part.shape[1:]) for start, stop in shares]
        if len({len(share) for share in rows}) == 1:
            _exchange(lambda: dist.all_gather(rows, part.contiguous()))
            return torch.cat(rows)
        # Shares differ by a row at most, so the longer ones set the length of all.
        longest = max(len(share) for share in rows)
        padded = part.new_zeros(longest, *part.shape[1:])
        padded[: len(part)] = part
        received = [torch.empty_like(padded) for _ in rows]
        _exchange(lambda: dist.all_gather(received, padded))
        return torch.cat([all_[: len(share)] for all_, share in zip(received, rows, strict=True)])

    def any(self, here: bool) -> bool:
        """Whether ``here`` is true in any process; all processes get the same result."""
        if self.size == 1:
            return here
        return bool(self.all_max([torch.tensor([float(here)], device=self.home)])[0])

    def _reduce(self, parts: Sequence[Tensor], operation: dist.ReduceOp.RedOpType) -> list[Tensor]:
        if self.size == 1 or not parts:
            return list(parts)
        # One message instead of many.
        flat = torch.cat([part.reshape(-1) for part in parts])
        _exchange(lambda: dist.all_reduce(flat, operation))
        pieces = flat.split([part.numel() for part in parts])
        return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]


ALONE = Processes()


@contextmanager
def join_processes() -> Iterator[Processes]:
    """Join the processes that ``torchrun`` started; without it, yield ``ALONE``."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % gpus)
    # Two backends, since NCCL cannot send CPU tensors.
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo", timeout=_TIMEOUT)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def _exchange(communicate: Callable[[], object]) -> None:
    """Communicate; raise a one-line error if another process is gone."""
    try:
        communicate()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise Failed(f"another process of this job is gone: {reason}") from None
