"""Random numbers by hashing, equal on every device, and the check of seeds."""

from __future__ import annotations

import math
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
    x = torch.arange(count, device=device)
    x.mul_(-0x61C8864680B583EB).add_(key)
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        x ^= (x >> shift) & (2 ** (64 - shift) - 1)
        x *= factor
    x ^= (x >> 31) & (2**33 - 1)
    return x


def pseudo_random_shares(residuals: Tensor, spread: float | None = None) -> Tensor:
    """Return pseudo-random numbers in [0, 1): late digits of the biases' residuals, (E,).

    So they do not depend on how members are numbered or cells are ordered. ``spread`` is the root
    of their mean square, where these are not all residuals.
    """
    root = float(residuals.square().mean().sqrt()) if spread is None else spread
    root = max(root, torch.finfo(residuals.dtype).tiny)
    # A power of two, which stays as it is when a cell comes: digits of others stay, too.
    return (1e4 * residuals.abs() / 2.0 ** math.floor(math.log2(root))) % 1


def check_seed(seed: Any) -> int:
    """Return the seed as an int; raise unless it is a whole number from 0 to 2^63 - 1."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**63:
        raise InputError(f"seed must be a whole number from 0 to 2^63 - 1, but is {seed!r}")
    return int(seed)
