"""Which cells a training step sees, and which of these it hides."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.support import Support
from exchangeable.runtime.random import hashed_uniform
from exchangeable.training.config import TrainingConfig
from exchangeable.training.samplers import (
    Conditional,
    Full,
    Neighbourhood,
    RowsColumns,
    Sampler,
    UniformCells,
)

_FANOUT = 25


def hidden(support: Support, config: TrainingConfig, generator: np.random.Generator) -> Tensor:
    """Which cells to hide, and to predict: a mask with one at least."""
    if config.hide == "nothing":  # all are predicted, from themselves
        return torch.ones(len(support), dtype=torch.bool, device=support.index.device)
    ways = ("flat", "rows", "columns") if config.hide == "mixed" else (config.hide,)
    way, device = ways[int(generator.integers(len(ways)))], support.index.device
    if way == "flat":
        shares: Tensor | float = float(_shares(config, generator, 1)[0])
    else:
        axis = 0 if way == "rows" else support.order - 1
        own = _shares(config, generator, support.shape[axis])
        shares = torch.from_numpy(own.astype(np.float32)).to(device)[support.index[:, axis]]
    mask = hashed_uniform(len(support), int(generator.integers(2**63)), device) < shares
    if not mask.any():
        mask[int(generator.integers(len(support)))] = True
    return mask


def _shares(
    config: TrainingConfig, generator: np.random.Generator, number: int
) -> NDArray[np.float64]:
    """Shares of cells to hide."""
    least, most = config.hide_least, config.hide_most
    if config.hide_scale == "even":
        return generator.uniform(least, most, number)
    return 1 - np.exp(generator.uniform(np.log(1 - most), np.log(1 - least), number))


def sampler_of(support: Support, config: TrainingConfig) -> Sampler:
    """What draws the cells of a step; members of each axis in proportion to their number."""
    if config.batch == "full" or config.batch_cells >= len(support):
        return Full(support)
    if config.batch == "uniform":
        return UniformCells(support, config.batch_cells)
    if config.batch == "neighbourhood":
        each = 1 + support.order * _FANOUT
        return Neighbourhood(support, max(config.batch_cells // each, 1), fanout=_FANOUT)
    share = (config.batch_cells / len(support)) ** (1 / support.order)
    sizes = tuple(max(1, round(share * size)) for size in support.shape)
    return (
        Conditional(support, sizes)
        if config.batch == "conditional"
        else RowsColumns(support, sizes)
    )


def drawn(
    observed: ExchangeableArray,
    sampler: Sampler,
    generator: np.random.Generator,
    processes: Tensor | None = None,
) -> Tensor | None:
    """A mask of the cells that a step sees, with one of ``among`` at least; None for all."""
    if isinstance(sampler, Full):
        return None
    home = observed.values.device
    while True:  # members drawn at random may have no cell where they meet
        mask = torch.zeros(len(observed), dtype=torch.bool)
        mask[torch.from_numpy(sampler.draw(generator))] = True
        mask = mask.to(home)
        if bool((mask if processes is None else mask & processes).any()):
            return mask
