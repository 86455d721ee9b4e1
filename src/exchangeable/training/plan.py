"""How much memory something takes, estimated before it is done, and how it is made to fit."""

from __future__ import annotations

import os
import shutil
import tempfile

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.groups import GroupIndex
from exchangeable.models.memory import MemoryModel
from exchangeable.models.stream import Keep, Plan
from exchangeable.nn.pools import AttentionPool, CountPool, LeastSquaresPool, MaxPool, Pool
from exchangeable.runtime.devices import Precision, autocast, format_size, free_memory, used_memory
from exchangeable.training.task import Task
from exchangeable.values.codecs import Codec, encoder
from exchangeable.values.losses import loss_of

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
    with autocast(task.observed.values.device, precision):
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
        encode = encoder(codec, task.stats)
        known = some.values.new_ones(len(some), model.known_channels).float()
        outputs = model.predict_hidden(
            some,
            hide,
            task.features,
            torch.Generator(),
            encode=encode,
            known=known if model.known_channels else None,
        )
        answers = codec.read(outputs.float(), task.stats)
        truth = some.values[hide].squeeze(1).float()
        loss = loss_of(answers, truth, task.stats, "both", 1.0)
    del loss
    return sum(storages.values())


def plan_step(
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
    room = _room(device) if limit is None else max(limit - used_memory(device), 2**20)
    if needed <= room or model.literal:
        return None, f"a step takes about {format_size(needed)} of {format_size(room)}"
    together = max(int(cells * room / 2 / needed), _LEAST)
    # The cells at every layer, and the gradients at one.
    waiting = (len(model.layers) + 1) * cells * _widest(model) * 4
    keep = _keep(waiting, room // 2)
    plan = Plan(together=together, keep=keep)
    return plan, (
        f"a step over all cells would take about {format_size(needed)} of {format_size(room)}: "
        f"{together:,} cells pass at a time, and wait {_WHERE[keep]}"
    )


def plan_reading(
    model: MemoryModel, group_index: GroupIndex, cells: int, limit: int | None = None
) -> tuple[Plan, str]:
    """How a table is read, and a sentence about it.

    First come the pools, which new cells are added to, then room for cells between two layers.
    """
    device = next(model.parameters()).device
    room = _room(device) if limit is None else limit - used_memory(device)
    states, offered, largest = memory_size(model, group_index)
    working = 2 * largest + min(cells, 2**25) * _SORTED
    pools = states + offered + working <= room
    base = offered + working + (states if pools else 0)
    waiting = cells * _widest(model) * 4
    keep = _keep(waiting, room - base)
    frozen = "" if pools else "; pools are not kept, so that new cells mean reading all again"
    sentence = (
        f"pools take {format_size(base)}, {cells:,} cells {format_size(waiting)} of "
        f"{format_size(max(room, 0))}: between two layers they wait {_WHERE[keep]}{frozen}"
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


def memory_size(model: MemoryModel, group_index: GroupIndex) -> tuple[int, int, int]:
    """Bytes of all layers' pools, of what they offer, and of the largest layer's of both."""
    states, offered, largest = 0, 0, 0
    for layer in model.layers:
        here = [0, 0]
        for axes, pools in layer.poolings.items():
            number = 4 * group_index.number(axes)
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
