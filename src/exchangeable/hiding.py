"""Which cells a training step sees, and which of these it hides."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.array import ExchangeableArray, Support
from exchangeable.sampling import (
    Conditional,
    Full,
    Neighbourhood,
    RowsColumns,
    Sampler,
    UniformCells,
)
from exchangeable.settings import TrainingConfig

_FANOUT = 25


def hidden(support: Support, config: TrainingConfig, generator: np.random.Generator) -> Tensor:
    """Which cells to hide: a mask with one at least that is hidden."""
    ways = ("flat", "rows", "columns") if config.hide == "mixed" else (config.hide,)
    way = ways[int(generator.integers(len(ways)))]
    if way == "flat":
        share = generator.uniform(config.hide_least, config.hide_most, 1)
        shares: NDArray[np.float64] = np.repeat(share, len(support))
    else:
        axis = 0 if way == "rows" else support.order - 1
        own = generator.uniform(config.hide_least, config.hide_most, support.shape[axis])
        shares = own[support.index[:, axis].cpu().numpy()]
    mask = generator.random(len(support)) < shares
    if not mask.any():
        mask[int(generator.integers(len(support)))] = True
    return torch.from_numpy(mask)


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
    observed: ExchangeableArray, sampler: Sampler, generator: np.random.Generator
) -> ExchangeableArray:
    if isinstance(sampler, Full):
        return observed
    mask = torch.zeros(len(observed), dtype=torch.bool)
    while not mask.any():  # members drawn at random may have no cell where they meet
        mask[torch.from_numpy(sampler.draw(generator))] = True
    return observed.take(mask.to(observed.values.device))
