"""Trust: the weights of closed-form estimates, found on cells that they were not fitted to.

The mean of a cell is that of the biases plus a weighted sum of estimates z, which are relative to
it. The weights are a ridge solution on held-out cells, drawn to weights that suit most tables:

    w = argmin |t - Z w|^2 + s^2 sum_k (w_k - v_k)^2 / d_k^2

with s^2 the mean square of t and d_k the deviation of weight k among tables. Where noise is not
Gaussian, or of unequal size, factors are found in it; so a share of the sum is taken, which five
folds of the held-out cells tell, and which is 1 on most tables. Cells far off count less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exchangeable.prior.estimates import Estimates

FAR_OFF = 2.5
"""Deviations of t from which on a cell counts as one that is so far off."""

SHARE_DEVIATION = 0.4
"""Deviation of the share among tables, about 1."""

VARIANCE_PRIOR_CELLS = 10
"""Cells that it takes to move half of the way to a new variance."""

FOLDS = 5

MIN_GAIN = 2.0
"""Standard errors by which what times say must reduce the squared error on held-out cells."""


@dataclass(frozen=True, eq=False)
class Trial:
    """Held-out cells: the truth, and what fits without them predict."""

    truth: Tensor  # (H,)
    base: Tensor  # (H,), means of the biases
    estimates: Tensor  # (H, C), relative to these
    variances: Tensor  # (H, 2), by biases and by factors
    fold: Tensor  # (H,)

    @classmethod
    def joined(cls, trials: list[Trial]) -> Trial:
        names = ("truth", "base", "estimates", "variances", "fold")
        return cls(*(torch.cat([getattr(trial, name) for trial in trials]) for name in names))


@dataclass(frozen=True, eq=False)
class Trust:
    """Weights of the estimates, and what they leave."""

    weights: Tensor  # (C,)
    share: float = 0.0
    """Share of the way from the biases' predictions to those with all estimates."""
    widening: float = 1.0
    """Factor of the variance."""
    crossed: Tensor | None = None  # (FOLDS, C)
    """Weights found without each of the folds of held-out cells."""

    def without_fold(self, fold: int) -> Trust:
        """Return the same trust with the weights found without a fold."""
        return self if self.crossed is None else replace(self, weights=self.crossed[fold])

    def mean(self, estimates: Estimates) -> Tensor:
        """Combine estimates with the means of the biases: (Q,)."""
        return estimates.base + self.share * estimates.weighted(self.weights)

    def variance(self, variances: Tensor) -> Tensor:
        """Combine the variances of biases and factors: (Q, 2) -> (Q,)."""
        biases, factors = variances.unbind(dim=1)
        return self.widening * (biases + self.share * (factors - biases))


def find_trust(trial: Trial, usual: Tensor, deviations: Tensor) -> Trust:
    """Find the trust on held-out cells.

    ``usual`` (C,) are the weights that suit most tables, and ``deviations`` (C,) how far those of
    other tables are from them.
    """
    target, crossed = trial.truth - trial.base, torch.zeros_like(trial.truth)
    by_fold = []
    for fold in range(FOLDS):
        mask = trial.fold == fold
        weights = _ridge(trial.estimates[~mask], target[~mask], usual, deviations)
        crossed[mask] = trial.estimates[mask] @ weights
        by_fold.append(weights)
    # Least squares, drawn to 1 by as much as it may be in error, which heavy tails make large.
    size = (crossed @ crossed).clamp(min=1e-12)
    share = float(crossed @ target / size)
    error = float(crossed.square() @ (target - share * crossed).square() / size**2)
    certainty = SHARE_DEVIATION**2 / (SHARE_DEVIATION**2 + error)
    share = min(max(1 + certainty * (share - 1), 0.0), 1.0)
    trust = Trust(_ridge(trial.estimates, target, usual, deviations), share)
    errors = (target - share * crossed).square().sum()
    variance = trust.variance(trial.variances)
    # Never less than 1: rare and large errors may all be among the other cells.
    relative = float(errors / variance.mean().clamp(min=1e-12))
    widening = (relative + VARIANCE_PRIOR_CELLS) / (len(variance) + VARIANCE_PRIOR_CELLS)
    return Trust(trust.weights, share, max(widening, 1.0), torch.stack(by_fold))


def _ridge(estimates: Tensor, target: Tensor, usual: Tensor, deviations: Tensor) -> Tensor:
    noise = (target.square().mean() if len(target) else target.new_ones(())).clamp(min=1e-9)
    counts = (FAR_OFF * noise.sqrt() / target.abs().clamp(min=1e-9)).clamp(max=1)
    doubt = noise / deviations.square()
    weighted = estimates.T * counts
    return torch.linalg.solve(
        weighted @ estimates + doubt.diag(), weighted @ target + doubt * usual
    )


def is_gain(gain: Tensor) -> bool:
    """Whether squared errors (H,) fell by more than chance."""
    error = float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    return float(gain.mean()) > MIN_GAIN * error
