"""Trust: the weights of closed-form estimates, found on cells that they were not fitted to.

The mean of a cell is that of the biases plus a weighted sum of estimates z, which are relative to
it. The weights are a ridge solution on held-out cells, drawn to weights that suit most tables:

    w = argmin |t - Z w|^2 + s^2 sum_k (w_k - v_k)^2 / d_k^2

with s^2 the mean square of t and d_k the deviation of weight k among tables. Where noise is not
Gaussian, or of unequal size, factors are found in it; so a share of the sum is taken, which five
folds of the held-out cells tell, and which is 1 on most tables. Cells far off count less.

Members with few cells have weights of their own, w + g u, with u a further ridge solution on
held-out cells of members that showed few. The scarcity g of a member with n cells is 1 for one cell
and 0 from the usual number m on:

    g = (1/n - 1/m) / (1 - 1/m)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exchangeable.prior.estimates import Estimates, usual_changes

FAR_OFF = 2.5
"""Deviations of t from which on a cell counts as one that is so far off."""

SHARE_DEVIATION = 0.4
"""Deviation of the share among tables, about 1."""

VARIANCE_PRIOR_CELLS = 10
"""Cells that it takes to move half of the way to a new variance."""

FOLDS = 5

ENOUGH = 32
"""Cells from which on a member has enough, or the usual number of them where that is smaller."""

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
    counts: Tensor  # (H, D), cells of their members

    @classmethod
    def of(cls, truth: Tensor, estimates: Estimates, fold: Tensor) -> Trial:
        base, columns = estimates.base, estimates.columns
        return cls(truth.to(base), base, columns, estimates.variances, fold, estimates.counts)

    @classmethod
    def joined(cls, trials: Sequence[Trial]) -> Trial:
        names = ("truth", "base", "estimates", "variances", "fold", "counts")
        return cls(*(torch.cat([getattr(trial, name) for trial in trials]) for name in names))


@dataclass(frozen=True, eq=False)
class ScarceTrust:
    """Weights that are added to those of estimates for members with few cells, by axis."""

    enough: Tensor  # (D,), cells from which on nothing is added
    weights: Tensor  # (D, C)
    crossed: Tensor  # (FOLDS, D, C)

    def without_fold(self, fold: int) -> ScarceTrust:
        return replace(self, weights=self.crossed[fold])

    def add_to(self, total: Tensor, estimates: Estimates) -> None:
        """Add what estimates say more of cells, whose sums (Q,) are given."""
        for axis, scarcity in enumerate(find_scarcity(estimates.counts, self.enough).T):
            cells = scarcity.nonzero().squeeze(1)
            if len(cells) and self.weights[axis].any():
                more = estimates.take(cells).weighted(self.weights[axis])
                total.index_add_(0, cells, more * scarcity[cells])


def find_scarcity(counts: Tensor, enough: Tensor) -> Tensor:
    """Return how few cells members have: (Q, D), 1 for one cell, 0 for none or for enough."""
    most = enough.clamp(min=2)
    share = (1 / counts.clamp(min=1) - 1 / most) / (1 - 1 / most)
    return share.clamp(min=0) * ((counts > 0) & (enough > 1))


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
    scarce: ScarceTrust | None = None

    def without_fold(self, fold: int) -> Trust:
        """Return the same trust with the weights found without a fold."""
        if self.crossed is None:
            return self
        scarce = None if self.scarce is None else self.scarce.without_fold(fold)
        return replace(self, weights=self.crossed[fold], scarce=scarce)

    def scarcity(self, counts: Tensor) -> Tensor:
        """Return how few cells members have, by their counts: (Q, D)."""
        if self.scarce is None:
            return torch.zeros_like(counts, dtype=torch.float64)
        return find_scarcity(counts, self.scarce.enough)

    def mean(self, estimates: Estimates) -> Tensor:
        """Combine estimates with the means of the biases: (Q,)."""
        total = estimates.weighted(self.weights)
        if self.scarce is not None:
            self.scarce.add_to(total, estimates)
        return estimates.base + self.share * total

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
    return replace(trust, widening=max(widening, 1.0), crossed=torch.stack(by_fold))


def find_scarce_trust(trust: Trust, trial: Trial, few: Trial) -> ScarceTrust:
    """Find what few cells add to the weights, on held-out cells of all members and of ``few``.

    Nothing where the cells of ``few`` are not predicted better by it, or the others worse by more
    than chance.
    """
    assert trust.crossed is not None
    enough = trial.counts.double().median(dim=0).values.clamp(max=ENOUGH)
    both = Trial.joined([trial, few])
    scarcity = find_scarcity(both.counts, enough)
    terms = trust.share * (scarcity[:, :, None] * both.estimates[:, None]).flatten(1)

    def find(weights: Tensor, kept: Tensor | slice) -> Tensor:
        usual, deviations = (
            each.repeat(len(enough)) for each in usual_changes(weights, len(enough))
        )
        return _ridge(terms[kept], left(weights)[kept], usual, deviations)

    def left(weights: Tensor) -> Tensor:
        return both.truth - both.base - trust.share * (both.estimates @ weights)

    before, after, by_fold = torch.zeros_like(both.truth), torch.zeros_like(both.truth), []
    for fold, weights in enumerate(trust.crossed):
        mask, target, change = both.fold == fold, left(weights), find(weights, both.fold != fold)
        before[mask], after[mask] = target[mask], (target - terms @ change)[mask]
        by_fold.append(change)
    size, usual = (len(enough), -1), len(trial.truth)
    gain = before.square() - after.square()
    gains = bool(gain[usual:].mean() > 0) and not is_gain(-gain[:usual], 1.0)
    change, crossed = find(trust.weights, slice(None)), torch.stack(by_fold)
    return ScarceTrust(enough, gains * change.view(size), gains * crossed.view(FOLDS, *size))


def _ridge(estimates: Tensor, target: Tensor, usual: Tensor, deviations: Tensor) -> Tensor:
    noise = (target.square().mean() if len(target) else target.new_ones(())).clamp(min=1e-9)
    counts = (FAR_OFF * noise.sqrt() / target.abs().clamp(min=1e-9)).clamp(max=1)
    doubt = noise / deviations.square()
    weighted = estimates.T * counts
    return torch.linalg.solve(
        weighted @ estimates + doubt.diag(), weighted @ target + doubt * usual
    )


def is_gain(gain: Tensor, errors: float = MIN_GAIN) -> bool:
    """Whether squared errors (H,) fell by more than chance, by so many standard errors."""
    error = float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    return float(gain.mean()) > errors * error
