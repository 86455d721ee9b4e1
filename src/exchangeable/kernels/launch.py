"""Whether the kernels can be used, and the sizes in which they are launched."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

MAX_CHANNELS = 256
"""A block holds all channels of its cells."""
MAX_HEADS = 32
"""A block holds all heads of its cells."""


class Tile(NamedTuple):
    """Launch parameters of a kernel that loops over tiles of cells."""

    numbers: int
    """Numbers in a tile: cells times channels."""
    warps: int
    stages: int
    """Tiles that are loaded from memory at the same time."""
    each: int
    """Programs per multiprocessor."""
    registers: int | None = None
    """Largest number of registers of a thread, so that as many programs fit; None: any number."""

    def cells(self, *wide: int) -> int:
        """Return the cells of a tile with ``wide`` channels: 16 to 128."""
        return min(max(self.numbers // max(wide), 16), 128)

    def options(self) -> dict[str, int]:
        """Return the launch options."""
        options = {"STAGES": self.stages, "num_stages": self.stages, "num_warps": self.warps}
        return options if self.registers is None else options | {"maxnreg": self.registers}

    def unlimited(self) -> Tile:
        """Return the tile for larger programs, of which fewer fit a multiprocessor."""
        return self if self.registers is None else self._replace(registers=None, each=self.each - 1)

    def fitting(self, loaded: int, resident: int, like: Tensor) -> Tile:
        """Return the tile with as many stages as fit the shared memory of the device.

        ``loaded`` are the bytes of a tile, of which all stages but one hold one, and ``resident``
        those that a program holds beside them.
        """
        if not like.is_cuda:
            return self
        free = _shared_memory(like.device) - resident
        return self._replace(stages=max(1, min(self.stages, 1 + free // max(loaded, 1))))

    def programs(self, cells: int, block: int, like: Tensor) -> int:
        """Return the number of programs that share the tiles."""
        limit = self.each * _multiprocessors(like.device) if like.is_cuda else 3
        return min(-(-cells // block), limit)


# Measured on an H200 at 64 channels, so that registers and shared memory of ``each`` programs fit a
# multiprocessor: with one more they take turns. Matrix units take 64 cells at once, and float32,
# split into three products, needs twice the space.
CHUNKS = {torch.bfloat16: Tile(8192, 2, 3, 0), torch.float32: Tile(2048, 4, 1, 0)}
POOL_GRADIENT = {torch.bfloat16: Tile(4096, 4, 1, 3, 168), torch.float32: Tile(2048, 4, 1, 2)}
READ = {torch.bfloat16: Tile(4096, 4, 1, 4, 128), torch.float32: Tile(4096, 4, 1, 4)}
READ_GRADIENT = {torch.bfloat16: Tile(4096, 4, 3, 2), torch.float32: Tile(2048, 4, 1, 2)}
SUMMARY = Tile(2048, 4, 1, 2)
REDUCE_STAGES = 3
# Gated units hold two of everything.
GATED_GRADIENT = {torch.bfloat16: Tile(2048, 4, 2, 2), torch.float32: Tile(2048, 4, 1, 2)}


def available(values: Tensor) -> bool:
    """Whether kernels run on the device of ``values``: a GPU, or Triton's interpreter."""
    return find_triton() and (values.is_cuda or interpreted())


def supported(values: Tensor, *, outputs: int = 1, heads: int = 1) -> bool:
    """Whether kernels take ``values`` (E, K) of this type, with these numbers of outputs and heads.

    Float64 is left to PyTorch: matrix units that have it are rare.
    """
    dtypes = (torch.bfloat16, torch.float32)
    fits = values.ndim == 2 and 0 < values.shape[1] <= MAX_CHANNELS and 0 < outputs <= MAX_CHANNELS
    return available(values) and fits and values.dtype in dtypes and heads <= MAX_HEADS


@cache
def find_triton() -> bool:
    return find_spec("triton") is not None


def interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def launch(
    program: Any, copies: int | tuple[int, int], arguments: tuple[Any, ...], **options: Any
) -> None:
    """Start ``copies`` of a program on the device of its first argument."""
    grid = copies if isinstance(copies, tuple) else (copies,)
    first = arguments[0][0] if isinstance(arguments[0], tuple) else arguments[0]
    if min(grid):
        with torch.cuda.device_of(first):
            program[grid](*arguments, **options)


def padded(size: int, minimum: int = 16) -> int:
    """Return the side of a block that holds ``size``: a power of two, 16 or more for matrix units.

    >>> padded(3), padded(64), padded(65)
    (16, 64, 128)
    """
    return max(minimum, 1 << (size - 1).bit_length())


def warps(numbers: int) -> int:
    """Return the warps for a block: 32 numbers to a thread, 8 warps at most."""
    return min(max(numbers // 1024, 1), 8)


def precision(dtype: torch.dtype) -> str:
    """Return how matrix units multiply: float32 in three parts, for all its digits but the last.

    "ieee" leaves the matrix units, and had every kernel spill thousands of registers.
    """
    return "tf32x3" if dtype == torch.float32 else "tf32"


@cache
def _shared_memory(device: torch.device) -> int:
    """Return the bytes of shared memory that a program may have: 1 KB less than there is."""
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_multiprocessor", 100 * 1024)) - 1024


@cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
