"""Memory that a training step takes, estimated beforehand, and a plan that makes it fit."""

from __future__ import annotations

import torch

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.models.memory import MemoryModel
from exchangeable.models.memory_plan import (
    STORAGE_TEXT,
    choose_storage,
    max_channels,
)
from exchangeable.models.stream import Plan
from exchangeable.runtime.devices import (
    Precision,
    autocast,
    available_memory,
    format_size,
    saved_storages,
    used_memory,
)
from exchangeable.training.task import Task
from exchangeable.values.codecs import Codec, encoder
from exchangeable.values.losses import loss_of

_SAMPLE_CELLS = 4096
_MIN_CHUNK_CELLS = 256  # smaller chunks would take for ever
_SLACK = 1.5  # gradients and intermediates, over what is kept for the backward pass; measured


def step_memory(
    model: MemoryModel, codec: Codec, task: Task, cells: int, precision: Precision = "auto"
) -> int:
    """Estimate the bytes of a step over ``cells`` cells from what autograd keeps of two samples."""
    size = max(min(len(task.observed), _SAMPLE_CELLS), 1)
    with autocast(task.observed.values.device, precision):
        small = _measure_saved(model, codec, task, size // 2)
        large = _measure_saved(model, codec, task, size)
    per_cell = (large - small) / (size - size // 2)
    return int(_SLACK * (large + per_cell * max(cells - size, 0)))


def _measure_saved(model: MemoryModel, codec: Codec, task: Task, cells: int) -> int:
    """Count the bytes of distinct memory that autograd keeps of one forward pass."""
    mask = torch.zeros(len(task.observed), dtype=torch.bool, device=task.observed.values.device)
    mask[:cells] = True
    sample: ExchangeableArray = task.observed.take(mask)
    hide = torch.arange(len(sample), device=mask.device) % 2 == 1
    model.train()
    with saved_storages() as storages:
        # All that autograd keeps must live until it was counted, and so must the loss.
        encode = encoder(codec, task.stats)
        prior_values = sample.values.new_ones(len(sample), model.prior_channels).float()
        outputs = model.predict_hidden(
            sample,
            hide,
            task.features_for(model),
            torch.Generator(),
            encode=encode,
            prior_values=prior_values if model.prior_channels else None,
        )
        predictions = codec.read(outputs.float(), task.stats)
        truth = sample.values[hide].squeeze(1).float()
        loss = loss_of(predictions, truth, task.stats, "both", 1.0)
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
    """Plan how a training step over ``cells`` cells fits into memory; return it in words too.

    Without a plan all cells pass at once. With one they pass through the model in chunks, and
    their activations are kept for the backward pass in memory, in a scratch file, or recomputed.
    """
    device = model.device
    needed = step_memory(model, codec, task, cells, precision)
    free = available_memory(device) if limit is None else max(limit - used_memory(device), 2**20)
    if needed <= free or model.literal:
        return None, f"a step takes about {format_size(needed)} of {format_size(free)}"
    chunk = max(int(cells * free / 2 / needed), _MIN_CHUNK_CELLS)
    # Activations at every layer, and the gradients at one.
    activations = (len(model.layers) + 1) * cells * max_channels(model) * 4
    storage = choose_storage(activations, free // 2)
    plan = Plan(chunk_cells=chunk, activations=storage)
    return plan, (
        f"a step over all cells would take about {format_size(needed)} of {format_size(free)}: "
        f"{chunk:,} cells pass at a time, and wait {STORAGE_TEXT[storage]}"
    )
