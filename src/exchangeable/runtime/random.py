"""Random numbers by hashing, equal on every device, and the check of seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exchangeable.errors import InputError


def hashed_uniform(count: int, key: int, device: torch.device) -> Tensor:
    """Pseudo-random numbers in [0, 1), each a hash of its position and the key: (count,).

    They are equal on every device, and computed on the device that needs them: drawn by numpy
    and copied, those for a million cells took half as long as the training step itself.
    """
    return (hashed_bits(count, key, device) & (2**24 - 1)).float() * 2.0**-24


def hashed_bits(count: int, key: int | Tensor, device: torch.device) -> Tensor:
    """Pseudo-random integers of 64 bits, each a hash of its position and the key: (count,).

    The hash is splitmix64, whose shifts bring in zeros, unlike those of signed integers.
    """
    return _mixed(torch.arange(count, device=device), key)


def _mixed(x: Tensor, key: int | Tensor) -> Tensor:
    """Hash whole numbers, in place."""
    x.mul_(-0x61C8864680B583EB).add_(key)
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        x ^= (x >> shift) & (2 ** (64 - shift) - 1)
        x *= factor
    x ^= (x >> 31) & (2**33 - 1)
    return x


def residual_hashes(residuals: Tensor, spread: float | None = None) -> Tensor:
    """Hash the biases' residuals of cells, to 1e-4 of their spread: (E,) -> (E,), whole numbers.

    So they do not depend on how members are numbered or cells are ordered. ``spread`` is the root
    of their mean square, where these are not all residuals.
    """
    root = float(residuals.square().mean().sqrt()) if spread is None else spread
    root = max(root, torch.finfo(residuals.dtype).tiny)
    return _mixed((1e4 * residuals.abs() / 2.0 ** math.floor(math.log2(root))).long(), 0)


class CellShares:
    """Pseudo-random numbers in [0, 1) for cells, by what is in the table alone.

    A residual of the biases does not tell cells apart: where values have levels, members with the
    same counts have the same biases, and all of their cells of one level would be drawn together.
    Nor do its digits: they are sums of those of row, column and level. What is left of the table
    would have other levels in places that a factorization learns, and is mistaken in. So hashes
    of a member's cells are added up, and a cell is drawn by those of its members and its own.
    """

    def __init__(self, shape: Sequence[int], device: torch.device) -> None:
        self._sums = [torch.zeros(size, dtype=torch.int64, device=device) for size in shape]

    def add(self, index: Tensor, hashes: Tensor) -> None:
        """Add the hashes (E,) of cells (E, D) to those of their members."""
        for axis, sums in enumerate(self._sums):
            sums.index_add_(0, index[:, axis], hashes)

    def of(self, index: Tensor, hashes: Tensor) -> Tensor:
        """Return the shares of cells (E, D), all of which were added: (E,)."""
        for axis, sums in enumerate(self._sums):
            hashes = _mixed(hashes ^ sums[index[:, axis]], axis + 1)
        return (hashes & (2**48 - 1)).double() * 2.0**-48


def check_seed(seed: Any) -> int:
    """Return the seed as an int; raise unless it is a whole number from 0 to 2^63 - 1."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**63:
        raise InputError(f"seed must be a whole number from 0 to 2^63 - 1, but is {seed!r}")
    return int(seed)
