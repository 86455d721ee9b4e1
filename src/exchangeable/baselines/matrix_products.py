"""Products of large matrices, in half precision where that is faster.

Similarities are sums of hundreds of products, of which digits beyond the third mean nothing.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

MIN_HALF_PRODUCTS = 1 << 29
"""Multiplications of a product from which on it is computed in half precision."""


def large_product(one: Tensor, other: Tensor) -> Tensor:
    """Return one @ other (A, B) @ (B, C), in bfloat16 if it is large and the processor has it."""
    large = one.numel() * other.shape[1] >= MIN_HALF_PRODUCTS
    if not large or one.dtype != torch.float32 or not _multiplies_halves(one.device.type):
        return one @ other
    return (one.bfloat16() @ other.bfloat16()).float()


@cache
def _multiplies_halves(device: str) -> bool:
    """Whether a device multiplies numbers of 16 bits faster than those of 32."""
    if device == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
