"""How much memory something takes, estimated before it is done, and how it is made to fit."""

from __future__ import annotations

import numbers
import os
import re
import shutil
import tempfile
from contextlib import suppress

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.groups import Directory
from exchangeable.errors import InputError
from exchangeable.models.memory import MemoryModel
from exchangeable.models.stream import Keep, Plan
from exchangeable.nn.pools import AttentionPool, CountPool, LeastSquaresPool, MaxPool, Pool
from exchangeable.training.config import Precision
from exchangeable.training.loop import Task, encoding, narrow
from exchangeable.values.codecs import Codec, loss_of

_SAMPLE = 4096
_LEAST = 256  # cells that pass at a time: fewer would take for ever
_SHARE = 0.8  # of what is free; the rest is for what was not counted
_SORTED = 50  # bytes of a cell whose groups are remembered in order
_SLACK = 1.5  # gradients and intermediates, over what is kept for the backward pass; measured


def step_memory(
    model: MemoryModel, codec: Codec, task: Task, cells: int, precision: Precision = "auto"
) -> int:
    """Bytes that a step over ``cells`` cells takes, from what autograd keeps of two samples."""
    size = max(min(len(task.observed), _SAMPLE), 1)
    with narrow(task.observed.values.device, precision):
        small, large = _kept(model, codec, task, size // 2), _kept(model, codec, task, size)
    per_cell = (large - small) / (size - size // 2)
    return int(_SLACK * (large + per_cell * max(cells - size, 0)))


def _kept(model: MemoryModel, codec: Codec, task: Task, cells: int) -> int:
    """Bytes of distinct memory that autograd keeps for the backward pass of one forward."""
    mask = torch.zeros(len(task.observed), dtype=torch.bool, device=task.observed.values.device)
    mask[:cells] = True
    some: ExchangeableArray = task.observed.take(mask)
    hide = torch.arange(len(some), device=mask.device) % 2 == 1
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor.detach()  # with its history, it would keep itself alive for ever

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        # What is kept must live until all of it was counted, and so must the loss.
        encode = encoding(codec, task.reference)
        known = some.values.new_ones(len(some), model.known_channels).float()
        outputs = model.rebuild(
            some,
            hide,
            task.features,
            torch.Generator(),
            encode=encode,
            known=known if model.known_channels else None,
        )
        answers = codec.read(outputs.float(), task.reference)
        truth = some.values[hide].squeeze(1).float()
        loss = loss_of(answers, truth, task.reference, "both", 1.0)
    del loss
    return sum(storages.values())


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


def taken_memory(device: torch.device) -> int:
    """Bytes that this process has taken on a device."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    try:
        with open("/proc/self/statm", encoding="ascii") as facts:
            return int(facts.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):  # not Linux: nobody says
        return 0


def plan_of_step(
    model: MemoryModel,
    codec: Codec,
    task: Task,
    cells: int,
    limit: int | None = None,
    precision: Precision = "auto",
) -> tuple[Plan | None, str]:
    """How a training step over ``cells`` cells fits into memory, and a sentence about it.

    None: all at once. Otherwise cells pass through the model in parts, and what they were at each
    layer waits for the backward pass in memory, in a scratch file, or is computed again.
    """
    device = next(model.parameters()).device
    needed = step_memory(model, codec, task, cells, precision)
    room = _room(device) if limit is None else max(limit - taken_memory(device), 2**20)
    if needed <= room or model.literal:
        return None, f"a step takes about {size_in_words(needed)} of {size_in_words(room)}"
    together = max(int(cells * room / 2 / needed), _LEAST)
    # The cells at every layer, and the gradients at one.
    waiting = (len(model.layers) + 1) * cells * _widest(model) * 4
    keep = _keep(waiting, room // 2)
    plan = Plan(together=together, keep=keep)
    return plan, (
        f"a step over all cells would take about {size_in_words(needed)} of {size_in_words(room)}: "
        f"{together:,} cells pass at a time, and wait {_WHERE[keep]}"
    )


def plan_of_conditioning(
    model: MemoryModel, directory: Directory, cells: int, limit: int | None = None
) -> tuple[Plan, str]:
    """How a table is read, and a sentence about it.

    First come the pools, which new cells are added to, then room for cells between two layers.
    """
    device = next(model.parameters()).device
    room = _room(device) if limit is None else limit - taken_memory(device)
    states, offered, largest = memory_size(model, directory)
    working = 2 * largest + min(cells, 2**25) * _SORTED
    pools = states + offered + working <= room
    base = offered + working + (states if pools else 0)
    waiting = cells * _widest(model) * 4
    keep = _keep(waiting, room - base)
    frozen = "" if pools else "; pools are not kept, so that new cells mean reading all again"
    sentence = (
        f"pools take {size_in_words(base)}, {cells:,} cells {size_in_words(waiting)} of "
        f"{size_in_words(max(room, 0))}: between two layers they wait {_WHERE[keep]}{frozen}"
    )
    return Plan(keep=keep, pools=pools), sentence


_WHERE = {
    "memory": "in memory",
    "scratch": "in a scratch file",
    "recompute": "nowhere but are computed again, which takes longer",
}


def _keep(waiting: int, room: int) -> Keep:
    """Where cells wait: a file that memory not counted as taken can cache, or nowhere.

    Between two layers a cell does little: a file that is read and written at the speed of a disk
    takes longer than to compute it again.
    """
    if waiting <= room:
        return "memory"
    disk = shutil.disk_usage(tempfile.gettempdir()).free
    cached = free_memory(torch.device("cpu"))
    return "scratch" if waiting <= _SHARE * min(disk, cached) else "recompute"


def memory_size(model: MemoryModel, directory: Directory) -> tuple[int, int, int]:
    """Bytes of all layers' pools, of what they offer, and of the largest layer's of both."""
    states, offered, largest = 0, 0, 0
    for layer in model.layers:
        here = [0, 0]
        for axes, pools in layer.poolings.items():
            number = 4 * directory.number(axes)
            here[0] += number * sum(_state_size(pool, layer.in_channels) for pool in pools)
            here[1] += number * layer.out_channels
        states, offered, largest = states + here[0], offered + here[1], max(largest, sum(here))
    return states, offered, largest


def _state_size(pool: Pool, channels: int) -> int:
    """Numbers in one group's state."""
    match pool:
        case LeastSquaresPool():
            return pool.heads * pool.rank * (2 * pool.rank + 2)
        case AttentionPool():
            return channels + 2 * pool.scores.shape[1] + 1
        case MaxPool():
            return 3 * channels + 1
        case CountPool():
            return 1
    return channels + 1


def _widest(model: MemoryModel) -> int:
    return max(layer.out_channels for layer in model.layers)


def _room(device: torch.device) -> int:
    """What one of the processes on this machine may take."""
    here = 1 if device.type == "cuda" else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return int(_SHARE * free_memory(device)) // here


_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def size_of(given: str | float | None) -> int | None:
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


def size_in_words(number: int) -> str:
    return f"{number / 2**30:.1f} GB" if number >= 2**28 else f"{max(number >> 20, 1)} MB"


def device_of(name: str) -> torch.device:
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
