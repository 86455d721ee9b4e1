"""The prior: closed-form predictions for every cell that a model may start from.

Deep layers average well, but solve slowly: what variational factorization finds in a few sweeps
takes them thousands of training steps, and no layer compares members with each other. So a model
can take, for each observed or queried cell, the mean and the deviation of the factorization, which
its outputs are relative to, and estimates from similar members, by each axis. The prior is a
function of the observed cells alone, and relabelling these relabels it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.similarity import NewMemberSimilarity, Similarity
from exchangeable.baselines.variational import Bias, VariationalFactorization
from exchangeable.models.memory import MemoryModel
from exchangeable.values.codecs import ValueStats
from exchangeable.values.distributions import location_for_mean

CELLS_PER_CHUNK = 1 << 16
"""Cells whose locations on a bounded scale are computed at a time."""

MIN_CELLS_PER_FACTOR = 5
"""Cells that members have on average for each factor. With fewer, false factors stay on, which
move with every cell that comes."""

VARIANCE_PRIOR_CELLS = 10
"""Cells that it takes to move half of the way to a new variance."""

HOLDOUT_PARTS = 10
"""Parts of the cells: factors are tried on one or more that they were not fitted to."""

TARGET_HELD_OUT = 2000
"""Cells on which factors are tried, if there are enough parts."""

MAX_HOLDOUTS = 3
"""Parts that factors are tried on; each takes as long as the fit."""

BIASES = Bias(tolerance=1e-4)

CELL_SWEEPS = 1_000_000
"""Cells times rounds of factorization, within the limits below."""
MIN_SWEEPS = 12
MAX_SWEEPS = 20
FINAL_SWEEPS = 4
"""Rounds over all cells of a large table, after those over most of them."""


@dataclass(frozen=True)
class Trust:
    """Weight of the factors against the biases, found on cells that they were not fitted to.

    Where noise is not Gaussian, or of unequal size, factorization finds factors in it.
    """

    share: float = 0.0
    """Share of the way from the biases' predictions to the factors'."""
    widening: float = 1.0
    """Factor of the variance."""

    def between(
        self, biases: tuple[Tensor, Tensor], factors: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Blend the means and variances of both: (Q,) each."""
        mean, variance = (b + self.share * (f - b) for b, f in zip(biases, factors, strict=True))
        return mean, self.widening * variance


@dataclass(frozen=True, eq=False)
class Holdout:
    """Cells that were held out when factors were tried, and the fits without them."""

    mask: Tensor  # (E,) bool
    biases: Posterior
    factors: Posterior


@dataclass(frozen=True, eq=False)
class Prior:
    """Posteriors of the members' biases and vectors, and similarities of the members."""

    stats: ValueStats
    factors: Posterior
    biases: Posterior
    similarities: tuple[Similarity, ...] | tuple[NewMemberSimilarity, ...]
    trust: Trust
    holdouts: tuple[Holdout, ...] = ()
    """The trials that ``trust`` was found on."""

    @classmethod
    def of(
        cls,
        observed: ExchangeableArray,
        stats: ValueStats,
        rank: int,
        comparison_budget: float = math.inf,
    ) -> Prior:
        """Fit to observed values (E, 1); ``rank`` factors at most, fewer where cells are few.

        ``comparison_budget`` limits table entries times compared members.
        """
        values, index = _standardise(observed, stats), observed.support.index
        if not len(values):
            empty = Posterior.initial(observed.shape, values)
            similarities = _compare(empty, index, values, observed.shape, comparison_budget)
            return cls(stats, empty, empty, similarities, Trust())
        rank = _limit_rank(index, rank)
        with torch.no_grad():
            biases, factors, trust, holdouts = _fit(index, values, observed.shape, rank)
        similarities = _compare(biases, index, values, observed.shape, comparison_budget)
        return cls(stats, factors, biases, similarities, trust, holdouts)

    def without(self, holdout: Holdout, observed: ExchangeableArray) -> Prior:
        """Return the prior that was fitted without the cells of a holdout."""
        remaining = observed.take(~holdout.mask)
        values, index = _standardise(remaining, self.stats), remaining.support.index
        budget = self._all_similarities[0].comparison_budget
        similarities = _compare(holdout.biases, index, values, observed.shape, budget)
        return Prior(self.stats, holdout.factors, holdout.biases, similarities, self.trust)

    def __call__(self, index: Tensor) -> Tensor:
        """Return the channels of cells, in units of the values' spread: (Q, D) -> (Q, K)."""
        mean, variance = self.predict(index)
        anchor = torch.stack([self._locate(mean, variance.sqrt()), variance.sqrt()], dim=1).float()
        return torch.cat([anchor, *(axis.estimate(index) for axis in self.similarities)], dim=1)

    def predict(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Predict mean and variance of cells, noise included: between biases and factors."""
        return self.trust.between(self.biases.predict(index), self.factors.predict(index))

    def _locate(self, mean: Tensor, deviation: Tensor) -> Tensor:
        """Return the locations that give these means if the model adds nothing."""
        levels = self.stats.standardise(self.stats.levels(mean))
        if len(levels) < 2:
            return mean
        parts = zip(mean.split(CELLS_PER_CHUNK), deviation.split(CELLS_PER_CHUNK), strict=True)
        return torch.cat([location_for_mean(*part, levels) for part in parts])

    def for_new_member(self, axis: int, observed: ExchangeableArray) -> Prior:
        """Return the prior for one new member of an axis, number 0 there, from its own cells."""
        values, index = _standardise(observed, self.stats), observed.support.index
        factors = self.factors.for_new_member(axis, index, values)
        biases = self.biases.for_new_member(axis, index, values)
        residuals = (values - biases.predict(index)[0]).float()
        similarities = tuple(
            each.for_new_member(axis, index, residuals) for each in self._all_similarities
        )
        return Prior(self.stats, factors, biases, similarities, self.trust)

    @property
    def _all_similarities(self) -> tuple[Similarity, ...]:
        assert all(isinstance(each, Similarity) for each in self.similarities), (
            "the prior of a new member cannot be changed"
        )
        return self.similarities  # type: ignore[return-value]

    def updated(self, observed: ExchangeableArray, changed: Tensor) -> Prior:
        """Return the prior after cells at the positions ``changed`` came; refit their members."""
        values, index = _standardise(observed, self.stats), observed.support.index
        factors, biases = (
            posterior.updated(index, values, observed.shape, changed)
            for posterior in (self.factors, self.biases)
        )
        budget = self._all_similarities[0].comparison_budget
        similarities = _compare(biases, index, values, observed.shape, budget)
        return Prior(self.stats, factors, biases, similarities, self.trust)


def fit_prior(model: MemoryModel, observed: ExchangeableArray, stats: ValueStats) -> Prior | None:
    """Fit the prior that a model starts from to observed values (E, 1); None if it has none."""
    if not model.prior_rank:
        return None
    return Prior.of(observed, stats, model.prior_rank, model.comparison_budget)


def pseudo_random_shares(residuals: Tensor) -> Tensor:
    """Return pseudo-random numbers in [0, 1): late digits of the biases' residuals, (E,).

    So they do not depend on how members are numbered or cells are ordered.
    """
    spread = residuals.square().mean().sqrt().clamp(min=torch.finfo(residuals.dtype).tiny)
    # A power of two, which stays as it is when a cell comes: digits of others stay, too.
    return (1e4 * residuals.abs() / 2 ** spread.log2().floor()) % 1


def _compare(
    biases: Posterior, index: Tensor, values: Tensor, shape: tuple[int, ...], budget: float
) -> tuple[Similarity, ...]:
    """Compare the members of each axis by the residuals of the biases."""
    residuals = (values - biases.predict(index)[0]).float()
    return tuple(
        Similarity(index, residuals, shape, axis, comparison_budget=budget)
        for axis in range(len(shape))
    )


def _fit(
    index: Tensor, values: Tensor, shape: tuple[int, ...], rank: int
) -> tuple[Posterior, Posterior, Trust, tuple[Holdout, ...]]:
    """Fit biases and factors, to most cells first, to find the trust in the factors."""
    biases = BIASES.posterior_of(index, values, shape)
    # Large tables need few rounds, small ones many.
    sweeps = min(max(CELL_SWEEPS // len(values), MIN_SWEEPS), MAX_SWEEPS)
    factorization = VariationalFactorization(rank, sweeps)
    part_of_cell = (HOLDOUT_PARTS * pseudo_random_shares(values - biases.predict(index)[0])).long()
    parts = min(math.ceil(TARGET_HELD_OUT / len(values) * HOLDOUT_PARTS), MAX_HOLDOUTS)
    holdouts: list[Holdout] = []
    for part in range(parts):
        mask = part_of_cell == part
        if mask.any() and not mask.all():
            seen, seen_values = index[~mask], values[~mask]
            before = BIASES.posterior_of(seen, seen_values, shape, start=biases.grown(shape))
            fitted = factorization.posterior_of(seen, seen_values, shape, biases=before)
            holdouts.append(Holdout(mask, before, fitted))
    start = None  # a small table's factors would depend on which cells were held out
    if holdouts and sweeps < MAX_SWEEPS:
        start = holdouts[-1].factors.grown(shape)  # a copy, which is changed
        factorization = replace(factorization, sweeps=FINAL_SWEEPS)
    factors = factorization.posterior_of(index, values, shape, biases=biases, start=start)
    trials = [_predict_held_out(holdout, index, values) for holdout in holdouts]
    trust = _find_trust(torch.cat(trials, dim=1)) if trials else Trust()
    return biases, factors, trust, tuple(holdouts)


def _predict_held_out(holdout: Holdout, index: Tensor, values: Tensor) -> Tensor:
    """Return truth, and means and variances by biases and by factors, of held-out cells: (5, E)."""
    truth, cells = values[holdout.mask], index[holdout.mask]
    return torch.stack([truth, *holdout.biases.predict(cells), *holdout.factors.predict(cells)])


def _find_trust(trials: Tensor) -> Trust:
    """Find the trust from the rows of ``_predict_held_out``: (5, E)."""
    truth, mean, variance, factor_mean, factor_variance = trials
    step, target = factor_mean - mean, truth - mean
    # Least squares, drawn to 0 by as much as it may be in error, which heavy tails make large.
    size = (step @ step).clamp(min=1e-12)
    share = float(step @ target / size)
    doubt = float(step.square() @ (target - share * step).square() / size**2)
    share = min(max(share - doubt / max(share, 1e-12), 0.0), 1.0)
    mean, variance = Trust(share).between((mean, variance), (factor_mean, factor_variance))
    error = (truth - mean).square().sum() / variance.mean()
    # Never less than 1: rare and large errors may all be among the other cells.
    widening = float((error + VARIANCE_PRIOR_CELLS) / (len(variance) + VARIANCE_PRIOR_CELLS))
    return Trust(share, max(widening, 1.0))


def _limit_rank(index: Tensor, rank: int) -> int:
    """Limit the rank: a member has a vector for each other axis, all to be found from its cells."""
    members = sum(len(column.unique()) for column in index.T)
    cells, others = index.numel() / members, max(index.shape[1] - 1, 1)
    return min(rank, max(1, round(cells / others / MIN_CELLS_PER_FACTOR)))


def _standardise(observed: ExchangeableArray, stats: ValueStats) -> Tensor:
    return stats.standardise(observed.values.squeeze(1).double())
