"""Memory that a training step takes, estimated beforehand, and a plan that makes it fit."""

from __future__ import annotations

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.models.memory import MemoryModel
from exchangeable.models.plan import (
    STORAGE_TEXT,
    available_memory,
    choose_storage,
    max_channels,
)
from exchangeable.models.stream import Plan
from exchangeable.runtime.devices import Precision, autocast, format_size, used_memory
from exchangeable.training.task import Task
from exchangeable.values.codecs import Codec, encoder
from exchangeable.values.losses import loss_of

_SAMPLE = 4096
_LEAST = 256  # cells that pass at a time: fewer would take for ever
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
        prior_values = some.values.new_ones(len(some), model.prior_channels).float()
        outputs = model.predict_hidden(
            some,
            hide,
            task.features,
            torch.Generator(),
            encode=encode,
            prior_values=prior_values if model.prior_channels else None,
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
    device = model.device
    needed = step_memory(model, codec, task, cells, precision)
    room = available_memory(device) if limit is None else max(limit - used_memory(device), 2**20)
    if needed <= room or model.literal:
        return None, f"a step takes about {format_size(needed)} of {format_size(room)}"
    together = max(int(cells * room / 2 / needed), _LEAST)
    # The cells at every layer, and the gradients at one.
    waiting = (len(model.layers) + 1) * cells * max_channels(model) * 4
    storage = choose_storage(waiting, room // 2)
    plan = Plan(chunk_cells=together, activations=storage)
    return plan, (
        f"a step over all cells would take about {format_size(needed)} of {format_size(room)}: "
        f"{together:,} cells pass at a time, and wait {STORAGE_TEXT[storage]}"
    )
