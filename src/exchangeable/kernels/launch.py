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
    """Registers of a thread, so that as many programs fit; None: as many as it takes."""

    def cells(self, *wide: int) -> int:
        """Return the cells of a tile with ``wide`` channels: 16 to 128."""
        return min(max(self.numbers // max(wide), 16), 128)

    def options(self, *wide: int) -> dict[str, int | None]:
        """Return the launch options of a program with ``wide`` channels.

        With more channels than 64 a limit of registers would move many to memory.
        """
        options = {"STAGES": self.stages, "num_stages": self.stages, "num_warps": self.warps}
        limited = self.registers is not None and max(wide) <= 64
        return options | ({"maxnreg": self.registers} if limited else {})

    def programs(self, cells: int, block: int, like: Tensor) -> int:
        """Return the number of programs that share the tiles."""
        limit = self.each * _multiprocessors(like.device) if like.is_cuda else 3
        return min(-(-cells // block), limit)


# Chosen by what ptxas reports for sm_90 at 64 channels: registers and shared memory of ``each``
# programs fit a multiprocessor. Matrix units take 64 cells at once, and float32, split into
# three products, needs twice the space.
CHUNKS = {torch.bfloat16: Tile(8192, 2, 3, 0), torch.float32: Tile(2048, 4, 1, 0)}
POOL_GRADIENT = {torch.bfloat16: Tile(4096, 4, 1, 3, 168), torch.float32: Tile(2048, 4, 1, 2)}
READ = {torch.bfloat16: Tile(4096, 4, 1, 4, 128), torch.float32: Tile(4096, 4, 1, 4)}
READ_GRADIENT = {torch.bfloat16: Tile(4096, 4, 3, 2), torch.float32: Tile(2048, 4, 1, 2)}
SUMMARY = Tile(2048, 4, 1, 2)
REDUCE_STAGES = 3
# Gated units hold two of everything.
GATED_GRADIENT = {torch.bfloat16: Tile(2048, 2, 2, 8), torch.float32: Tile(2048, 4, 1, 2)}


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
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
