"""Predicted distributions, moved so that their means change by a given amount."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from exchangeable.values.distributions import Distribution, LogisticMixture, OnLevels
from exchangeable.values.joined import Joined

STEPS = 6
"""Steps on scales with levels: on two levels the first is exact."""

MAX_TILT = 60.0
"""Largest exponent: no probability is below 1e-12."""

ROUNDING = 1e-6
"""Error of an exponent that is as good as right."""

MARGIN = 1e-4
"""Share of the scale that means keep from its ends."""


def shift_means(predictions: Distribution, change: Tensor) -> Distribution:
    """Change the means by ``change`` (Q,); on a scale with levels at most to its ends.

    Real numbers move as they are. The probabilities p_l of levels v_l become p_l exp(t v_l), up to
    a factor, and the latent distribution, which gives quantiles, moves. Others stay.
    """
    if isinstance(predictions, Joined):
        moved = ((cells, shift_means(part, change[cells])) for cells, part in predictions.parts)
        return Joined(tuple(moved))
    if isinstance(predictions, LogisticMixture):
        return _moved(predictions, change)
    if not isinstance(predictions, OnLevels):
        return predictions
    latent = None if predictions.latent is None else _moved(predictions.latent, change)
    return OnLevels(predictions.levels, _tilted(predictions, change), latent)


def _moved(mixture: LogisticMixture, distance: Tensor) -> LogisticMixture:
    return replace(mixture, locations=mixture.locations + distance[:, None])


def _tilted(predictions: OnLevels, change: Tensor) -> Tensor:
    """Return the log probabilities with the changed means: (Q, L).

    Newton's steps for the logit of the mean's place on the scale, which is nearly straight in t, or
    bisection where they leave the bounds.
    """
    low, high = predictions.bounds()
    if high == low:
        return predictions.log_probabilities
    places = (predictions.levels - low) / (high - low)  # (L,)
    start = predictions.log_probabilities
    mean = start.exp() @ places
    wanted = mean + change / (high - low)
    wanted = torch.minimum(wanted, mean.clamp(min=1 - MARGIN))
    wanted = torch.maximum(wanted, mean.clamp(max=MARGIN))
    target, tilted, tilt = wanted.logit(), start, torch.zeros_like(mean)
    least, most = torch.full_like(mean, -MAX_TILT), torch.full_like(mean, MAX_TILT)
    for _ in range(STEPS):
        chances = tilted.exp()
        mean = chances @ places
        under = mean < wanted
        least, most = torch.where(under, tilt, least), torch.where(under, most, tilt)
        spread = chances @ places.square() - mean.square()
        step = tilt + (target - mean.logit()) * mean * (1 - mean) / spread
        inside = (step >= least - ROUNDING) & (step <= most + ROUNDING)
        tilt = torch.where(inside, step, (least + most) / 2)
        tilted = (start + tilt[:, None] * places).log_softmax(dim=1)
    return torch.where((change != 0)[:, None], tilted, start)
