"""Draws from predicted distributions, by their quantiles or by the probabilities of levels."""

from __future__ import annotations

import torch
from torch import Tensor

from exchangeable.values.distributions import Distribution


def draw_values(distribution: Distribution, levels: Tensor, uniform: Tensor) -> Tensor:
    """Turn uniform draws between 0 and 1 into draws from each cell: (n, Q) -> (n, Q).

    With ``levels`` (L,) these are levels, drawn by their probabilities; without any they are the
    quantiles at the uniform draws. A larger uniform draw never gives a smaller value.
    """
    if not len(levels):
        return torch.stack([distribution.quantile(shares) for shares in uniform])
    below = distribution.probabilities().cumsum(dim=1)  # (Q, L)
    # The sum of all probabilities may be less than 1 by rounding.
    at = torch.searchsorted(below, uniform.T.contiguous(), right=True).clamp(max=len(levels) - 1)
    return levels[at].T
