"""Losses of predicted distributions against the true values of cells."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from exchangeable.values.codecs import ValueStats
from exchangeable.values.distributions import Distribution

Loss = Literal["cross-entropy", "squared", "both", "relative"]


def loss_of(
    predictions: Distribution,
    truth: Tensor,
    stats: ValueStats,
    kind: Loss,
    squared_weight: float,
    shares: Tensor | None = None,
) -> Tensor:
    """Return the loss of the distributions, of their means, or the sum of both.

    "relative" adds the logarithm of the mean's squared error, so that a table with little noise
    counts as much as one with much. ``shares`` (Q,) are the weights of the cells, which add up to
    1; None: all weigh the same.
    """
    cross_entropy = -_mean(predictions.log_likelihood(truth), shares)
    if kind == "cross-entropy":
        return cross_entropy
    squared = _mean(((predictions.mean() - truth) / stats.deviation).square(), shares)
    if kind == "relative":
        return cross_entropy + squared_weight * 0.5 * squared.clamp(min=1e-8).log()
    return squared if kind == "squared" else cross_entropy + squared_weight * squared


def _mean(losses: Tensor, shares: Tensor | None) -> Tensor:
    return losses.mean() if shares is None else (losses * shares).sum()
