"""How much memory a training step takes, measured on a few of its cells before it is taken."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from exchangeable.array import ExchangeableArray
from exchangeable.blocks import ExchangeableBlock
from exchangeable.errors import InputError
from exchangeable.memory import MemoryModel
from exchangeable.training import Task, encoded
from exchangeable.values import Codec, loss_of

_SAMPLE = 4096
_SLACK = 1.5  # gradients and intermediates, over what is kept for the backward pass; measured


def step_memory(model: MemoryModel, codec: Codec, task: Task, cells: int) -> int:
    """Bytes that a step over ``cells`` cells takes, from what autograd keeps of two samples."""
    size = max(min(len(task.observed), _SAMPLE), 1)
    small, large = _kept(model, codec, task, size // 2), _kept(model, codec, task, size)
    per_cell = (large - small) / (size - size // 2)
    return int(_SLACK * (large + per_cell * max(cells - size, 0)))


def _kept(model: MemoryModel, codec: Codec, task: Task, cells: int) -> int:
    """Bytes of distinct memory that autograd keeps for the backward pass of one forward."""
    mask = torch.zeros(len(task.observed), dtype=torch.bool, device=task.observed.values.device)
    mask[:cells] = True
    some: ExchangeableArray = task.observed.take(mask)
    shown = torch.arange(len(some), device=mask.device) % 2 == 0
    seen = encoded(some.take(shown), codec, task.reference)
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        # What is kept must live until all of it was counted, and so must the loss.
        outputs = model(seen, some.support.take(~shown), task.features, torch.Generator())
        answers = codec.read(outputs.float(), task.reference)
        truth = some.values[~shown].squeeze(1).float()
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


def recompute(model: MemoryModel, on: bool) -> None:
    """Whether blocks compute their insides again in the backward pass rather than keep them."""
    for module in model.modules():
        if isinstance(module, ExchangeableBlock):
            module.recompute = on


def fit_into_memory(model: MemoryModel, codec: Codec, task: Task, cells: int) -> str:
    """Recompute what would not fit, and say what a step takes."""
    device = next(model.parameters()).device
    needed, free = step_memory(model, codec, task, cells), free_memory(device)
    if needed <= 0.8 * free:
        return f"a step takes about {_gigabytes(needed)} of {_gigabytes(free)} free"
    recompute(model, True)
    less = step_memory(model, codec, task, cells)
    return (
        f"a step would take about {_gigabytes(needed)} of {_gigabytes(free)} free: activations are "
        f"computed again instead of kept, which takes about {_gigabytes(less)}"
    )


def _gigabytes(number: int) -> str:
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
