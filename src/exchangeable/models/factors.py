"""Vectors of the members of a table, from a model's memory of it."""

from __future__ import annotations

from torch import Tensor

from exchangeable.errors import InputError
from exchangeable.models.memory import Memory, MemoryModel
from exchangeable.nn.blocks import FactorLayer
from exchangeable.nn.pooling import read_mean


def read_factors(model: MemoryModel, memory: Memory) -> tuple[Tensor, ...]:
    """Return one vector for each member, by axis: (N, size) each.

    They are the factors of a factorized model. In other models they are the averages of the
    members' cells before the last layer.
    """
    for layer, readout in zip(model.layers, memory.readouts, strict=True):
        if isinstance(layer, FactorLayer):
            return tuple(rows for rows, _ in readout.on.values())
    if not memory.pools:
        raise InputError("factors need the pools, which memory was too short for: give more")
    states = memory.pools[-1].states
    axes = range(len(memory.shape))
    if not all((axis,) in states for axis in axes):
        raise InputError("factors are of tables with two axes or more, but this one has one")
    return tuple(read_mean(states[(axis,)][0]) for axis in axes)
