"""The channels that a prior gives for every cell, beside the values of observed ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PriorFunction = Callable[[Tensor], Tensor]
"""Gives the prior's channels of any cells, observed or not: (Q, D) -> (Q, K)."""
PriorValues = Tensor | Callable[[slice], Tensor]
"""A prior's channels of all cells, (E, K), or a function that computes those of a slice."""
MAX_PRIOR_CELLS = 1 << 20
"""Observed cells up to which a prior computes the channels of all at once."""
ANCHOR_CHANNELS = 2
"""The first channels, a mean and a deviation: outputs are relative to them."""
SHARED_CHANNELS = 5
"""The anchor, and what biases and both factorizations predict, relative to its mean."""
CHANNELS_PER_AXIS = 4
"""Further channels for each axis: estimates from similar members."""


def count_prior_channels(order: int, *, joint: bool) -> int:
    """Return the number of a prior's channels for tables with ``order`` axes.

    In a ``joint`` table they are of the cell and of the mirrored one.
    """
    return (SHARED_CHANNELS + CHANNELS_PER_AXIS * order) * (2 if joint else 1)


def observed_prior_values(
    prior: PriorFunction | None, index: Tensor, channels: int, *, in_parts: bool
) -> PriorValues | None:
    """Compute a prior's channels of the observed cells (E, D).

    Of many cells, and with ``in_parts``, return a function that computes those of a slice.
    """
    if prior is None or not (in_parts or len(index) > MAX_PRIOR_CELLS):
        return None if prior is None else prior(index)
    # Most priors are functions of any cells, and others are made for these.
    part = getattr(prior, "part", lambda cells: prior)

    def compute(cells: slice) -> Tensor:
        values: Tensor = part(cells)(index[cells])
        check_prior_values(values, len(values), channels)
        return values

    return compute


def append_prior(values: Tensor, prior_values: Tensor | None) -> Tensor:
    """Append the prior's channels to the values of cells."""
    return values if prior_values is None else torch.cat([values, prior_values.to(values)], dim=1)


def append_anchor(outputs: Tensor, prior_values: Tensor | None) -> Tensor:
    """Append the prior's mean and deviation, which outputs are relative to."""
    anchor = None if prior_values is None else prior_values[:, :ANCHOR_CHANNELS]
    return append_prior(outputs, anchor)


def check_prior_values(prior_values: Tensor | None, cells: int, channels: int) -> None:
    """Raise unless a prior gave ``channels`` channels for each cell; None where there are none."""
    expected = (cells, channels) if channels else None
    shape = None if prior_values is None else tuple(prior_values.shape)
    if shape != expected:
        raise ValueError(f"the prior's values must have shape {expected}, but have shape {shape}")
