"""Devices: finding them, their memory, and their precision."""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Literal

import torch
from torch import Tensor

from exchangeable.errors import InputError
from exchangeable.runtime.arenas import glibc_function

Precision = Literal["auto", "float32", "bfloat16"]

USABLE_SHARE = 0.8
"""Share of the free memory that is used; the rest is for what was not counted."""

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free on a device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = dict(line.split(":") for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux: all memory of the machine
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_memory(device: torch.device) -> int:
    """Return the bytes that one of the processes on this machine may take."""
    processes = 1 if device.type == "cuda" else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return int(USABLE_SHARE * free_memory(device)) // processes


def used_memory(device: torch.device) -> int:
    """Return the bytes that this process uses on a device."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):  # not Linux: not known
        return 0


def release_memory(device: torch.device) -> None:
    """Give memory that was freed back to the system, so that it does not count as used."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return
    trim = glibc_function("malloc_trim")
    if trim is not None:
        trim(0)


def parse_size(size: str | float | None) -> int | None:
    """Return bytes from a number, or from text such as 4GB, 500 MB or 2e9."""
    if size is None:
        return None
    count = 0.0
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)i?b?\s*", size.lower())
        with suppress(ValueError):
            count = float(match[1]) * _UNITS[match[2]] if match else 0.0
    elif isinstance(size, numbers.Real) and not isinstance(size, bool):
        count = float(size)
    if not 2**20 <= count < 2**60:
        raise InputError(f"memory must be a size such as 4GB or 500MB, but is {size!r}")
    return int(count)


def format_size(count: int) -> str:
    """Format bytes as in 1.5 GB or 20 MB."""
    return f"{count / 2**30:.1f} GB" if count >= 2**28 else f"{max(count >> 20, 1)} MB"


def find_device(name: str) -> torch.device:
    """Return a device by its name; ``auto`` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise NotImplementedError
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(
            f"device must be auto, cpu or a GPU that is there, but is {name!r}"
        ) from None
    return device


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Return a context that multiplies in bfloat16 if the device is fast at it; sums stay wide."""
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
    if precision == "bfloat16" or (precision == "auto" and fast):
        # No cache of casts: a CUDA graph cannot refer to a copy that was freed.
        return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)
    return nullcontext()


@contextmanager
def saved_storages() -> Iterator[dict[int, int]]:
    """Yield a mapping from address to bytes, filled with the storages that autograd saves."""
    storages: dict[int, int] = {}

    def record(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor.detach()  # with its history, it would keep itself alive for ever

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        yield storages
