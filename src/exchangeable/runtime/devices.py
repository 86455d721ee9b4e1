"""TODO: say what this module is."""

from __future__ import annotations

import numbers
import os
import re
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Literal

import torch

from exchangeable.errors import InputError


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken on a device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    try:
        with open("/proc/meminfo", encoding="ascii") as facts:
            known = dict(line.split(":") for line in facts)
        return int(known["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux: all that there is
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def used_memory(device: torch.device) -> int:
    """Bytes that this process has taken on a device."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    try:
        with open("/proc/self/statm", encoding="ascii") as facts:
            return int(facts.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):  # not Linux: nobody says
        return 0


_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(given: str | float | None) -> int | None:
    """Bytes from a number, or from text such as 4GB, 500 MB or 2e9."""
    if given is None:
        return None
    number = 0.0
    if isinstance(given, str):
        match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)i?b?\s*", given.lower())
        with suppress(ValueError):
            number = float(match[1]) * _UNITS[match[2]] if match else 0.0
    elif isinstance(given, numbers.Real) and not isinstance(given, bool):
        number = float(given)
    if not 2**20 <= number < 2**60:
        raise InputError(f"memory must be a size such as 4GB or 500MB, but is {given!r}")
    return int(number)


def format_size(number: int) -> str:
    return f"{number / 2**30:.1f} GB" if number >= 2**28 else f"{max(number >> 20, 1)} MB"


def find_device(name: str) -> torch.device:
    """A device by its name; ``auto`` is a GPU where there is one."""
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
    """bfloat16 for products where the device is made for it, sums stay wide."""
    able = device.type == "cuda" and torch.cuda.is_bf16_supported()
    if precision == "bfloat16" or (precision == "auto" and able):
        # What is cast is cast again: a graph cannot refer to a copy that is gone.
        return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)
    return nullcontext()


Precision = Literal["auto", "float32", "bfloat16"]
