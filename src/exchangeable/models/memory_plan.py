"""Memory that reading a table takes, estimated beforehand, and a plan that makes it fit."""

from __future__ import annotations

import shutil
import tempfile
from typing import NamedTuple

import torch

from exchangeable.arrays.groups import GroupIndex
from exchangeable.models.memory import MemoryModel
from exchangeable.models.scratch import Storage
from exchangeable.models.stream import MAX_SORTED_CELLS, Plan
from exchangeable.runtime.devices import (
    USABLE_SHARE,
    available_memory,
    format_size,
    free_memory,
    release_memory,
    used_memory,
)

SORTED_CELL_BYTES = 50
"""Bytes of a cell whose groups are remembered in order."""
STORAGE_TEXT = {
    "memory": "in memory",
    "scratch": "in a scratch file",
    "recompute": "nowhere but are computed again, which takes longer",
}


class MemorySize(NamedTuple):
    """Bytes of a memory's float32 numbers."""

    states: int
    readouts: int
    largest_layer: int
    """States and readout of the layer that takes most."""


def plan_reading(
    model: MemoryModel, group_index: GroupIndex, cells: int, limit: int | None = None
) -> tuple[Plan, str]:
    """Plan how a table is read within ``limit`` bytes, and describe it in a sentence.

    The pools, which new cells are added to, come first, then activations between two layers.
    """
    release_memory(model.device)
    room = available_memory(model.device) if limit is None else limit - used_memory(model.device)
    size = memory_size(model, group_index)
    working = 2 * size.largest_layer + min(cells, MAX_SORTED_CELLS) * SORTED_CELL_BYTES
    keep_pools = size.states + size.readouts + working <= room
    base = size.readouts + working + (size.states if keep_pools else 0)
    needed = cells * max_channels(model) * 4
    storage = choose_storage(needed, room - base)
    prior = storage
    if storage == "recompute":
        prior = choose_storage(cells * model.prior_channels * 4, room - base)
    frozen = "" if keep_pools else "; pools are not kept, so that new cells mean reading all again"
    sentence = (
        f"pools take {format_size(base)}, {cells:,} cells {format_size(needed)} of "
        f"{format_size(max(room, 0))}: between two layers they wait {STORAGE_TEXT[storage]}{frozen}"
    )
    return Plan(activations=storage, prior=prior, keep_pools=keep_pools), sentence


def choose_storage(needed: int, room: int) -> Storage:
    """Choose where ``needed`` bytes of activations are kept, with ``room`` bytes of memory left.

    A scratch file is worth it only if free memory can cache it: between two layers a cell takes
    little work, so that reading and writing at the speed of a disk takes longer than recomputing.
    """
    if needed <= room:
        return "memory"
    disk = shutil.disk_usage(tempfile.gettempdir()).free
    cache = free_memory(torch.device("cpu"))
    return "scratch" if needed <= USABLE_SHARE * min(disk, cache) else "recompute"


def memory_size(model: MemoryModel, group_index: GroupIndex) -> MemorySize:
    """Estimate the size of the memory of a table with the groups of ``group_index``."""
    states, readouts, largest = 0, 0, 0
    for layer in model.layers:
        layer_states, layer_readout = 0, 0
        for axes, pools in layer.poolings.items():
            channel = 4 * group_index.number(axes)
            layer_states += channel * sum(pool.state_size(layer.in_channels) for pool in pools)
            layer_readout += channel * layer.out_channels
        states, readouts = states + layer_states, readouts + layer_readout
        largest = max(largest, layer_states + layer_readout)
    return MemorySize(states, readouts, largest)


def max_channels(model: MemoryModel) -> int:
    """Return the number of channels of the widest layer."""
    return max(layer.out_channels for layer in model.layers)
