"""When the kernels can be used, and in which sizes they are launched."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

WIDEST = 256
"""Channels at most: a block holds all channels of its cells."""
MOST_HEADS = 32
"""Heads at most: a block holds all heads of its cells."""


class Tile(NamedTuple):
    """How a kernel that loops over tiles of cells is launched."""

    numbers: int
    """Cells times channels of a tile."""
    warps: int
    stages: int
    """Tiles on their way from memory at a time."""
    each: int
    """Programs per multiprocessor."""

    def cells(self, *wide: int) -> int:
        """Cells of a tile with so many channels: 16 to 128."""
        return min(max(self.numbers // max(wide), 16), 128)

    def programs(self, cells: int, block: int, like: Tensor) -> int:
        """How many programs share the tiles."""
        most = self.each * _multiprocessors(like.device) if like.is_cuda else 3
        return min(-(-cells // block), most)


# Chosen by what ptxas reports for sm_90 at 64 channels: the registers and shared memory of so
# many programs fit a multiprocessor. Matrix units take 64 cells at once, and float32, split into
# three products, needs twice the room.
CHUNKS = {torch.bfloat16: Tile(4096, 2, 2, 0), torch.float32: Tile(2048, 4, 1, 0)}
POOL_GRADIENT = {torch.bfloat16: Tile(4096, 4, 2, 2), torch.float32: Tile(2048, 4, 1, 2)}
READ = {torch.bfloat16: Tile(4096, 4, 1, 4), torch.float32: Tile(4096, 4, 1, 4)}
READ_GRADIENT = {torch.bfloat16: Tile(4096, 4, 1, 2), torch.float32: Tile(2048, 4, 1, 2)}
SUMMARY = Tile(2048, 4, 1, 2)
# Of gated units there are two of everything.
GATED_GRADIENT = {torch.bfloat16: Tile(2048, 2, 2, 8), torch.float32: Tile(2048, 4, 1, 2)}


def available(values: Tensor) -> bool:
    """Whether kernels run where ``values`` are: on a GPU, or in Triton's interpreter."""
    return find_triton() and (values.is_cuda or interpreted())


def supported(values: Tensor, *, outputs: int = 1, heads: int = 1) -> bool:
    """Whether kernels take ``values`` (E, K) of this type, with so many outputs and heads.

    Float64 they leave to PyTorch: matrix units that have it are rare.
    """
    kinds = (torch.bfloat16, torch.float32)
    fits = values.ndim == 2 and 0 < values.shape[1] <= WIDEST and 0 < outputs <= WIDEST
    return available(values) and fits and values.dtype in kinds and heads <= MOST_HEADS


@cache
def find_triton() -> bool:
    return find_spec("triton") is not None


def interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def launch(program: Any, number: int, arguments: tuple[Any, ...], **options: Any) -> None:
    """Start ``number`` copies of a program on the device of its first argument."""
    if number:
        with torch.cuda.device_of(arguments[0]):
            program[(number,)](*arguments, **options)


def padded(size: int, least: int = 16) -> int:
    """The side of a block that holds ``size``: a power of two, 16 or more for matrix units.

    >>> padded(3), padded(64), padded(65)
    (16, 64, 128)
    """
    return max(least, 1 << (size - 1).bit_length())


def warps(numbers: int) -> int:
    """Warps for a block of so many numbers: 32 numbers to a thread, 8 warps at most."""
    return min(max(numbers // 1024, 1), 8)


def precision(kind: torch.dtype) -> str:
    """How matrix units multiply: float32 in three parts, for all its digits but the last.

    "ieee" leaves the matrix units, and had every kernel spill thousands of registers.
    """
    return "tf32x3" if kind == torch.float32 else "tf32"


@cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
