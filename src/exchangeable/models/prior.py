"""What closed-form methods say of every cell: where a model may start from, rather than nothing.

Deep layers average well, but solve slowly: what variational factorization finds in a few sweeps
takes them thousands of training steps, and members are compared with each other by no layer at
all. So a model can be told, of each cell that is observed or asked about, the mean and the
deviation that the factorization gives, to which answers are relative, and what members that are
alike say, by each axis. It is a function of the observed cells alone, and relabelling these
relabels it.
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

PLACED_AT_ONCE = 1 << 16

CELLS_PER_FACTOR = 5
"""Cells that members have on average for each factor, at least: with fewer, false ones stay on,
which move with every cell that comes."""


SURE = 10
"""Cells that it takes to move half of the way to a new variance."""

PARTS = 10
"""Of the cells: factors are tried on one that they were not fitted to, or on some."""

TRIED = 2000
"""Cells on which they are tried, if parts suffice."""

MOST_TRIED = 3
"""Parts at most, each of which takes as long as the fit."""

BIASES = Bias(tolerance=1e-4)

SWEPT = 1_000_000
"""Cells times rounds of factorization, within these limits."""
LEAST_SWEEPS = 12
MOST_SWEEPS = 20
LAST_SWEEPS = 4
"""Rounds over all cells of a large table, after those over most of them."""


@dataclass(frozen=True)
class Trust:
    """How far factors are believed, found on cells that they were not fitted to.

    Where noise is not Gaussian, or of unequal size, factorization finds factors in it.
    """

    share: float = 0.0
    """Of the way from the biases' answers to the factors'."""
    widening: float = 1.0
    """Of the variance."""

    def between(
        self, biases: tuple[Tensor, Tensor], factors: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance: (Q,) each."""
        mean, variance = (b + self.share * (f - b) for b, f in zip(biases, factors, strict=True))
        return mean, self.widening * variance


@dataclass(frozen=True, eq=False)
class Left:
    """Cells that were left out when factors were tried, and what was believed without them."""

    out: Tensor  # (E,) bool
    biases: Posterior
    factors: Posterior


@dataclass(frozen=True, eq=False)
class Prior:
    """What is believed of the members' vectors and biases, and the residuals of the latter."""

    reference: ValueStats
    factors: Posterior
    biases: Posterior
    alike: tuple[Similarity, ...] | tuple[NewMemberSimilarity, ...]
    trust: Trust
    lefts: tuple[Left, ...] = ()
    """Of the trials."""

    @classmethod
    def of(
        cls,
        observed: ExchangeableArray,
        reference: ValueStats,
        rank: int,
        compared: float = math.inf,
    ) -> Prior:
        """From observed values (E, 1); ``rank`` factors at most, fewer where cells are few.

        Of entries of the table times members who speak there are ``compared`` at most.
        """
        values, index = _standard(observed, reference), observed.support.index
        if not len(values):
            nothing = Posterior.initial(observed.shape, values)
            alike = _alike(nothing, index, values, observed.shape, compared)
            return cls(reference, nothing, nothing, alike, Trust())
        rank = _rank(index, rank)
        with torch.no_grad():
            biases, factors, trust, lefts = _believed(index, values, observed.shape, rank)
        alike = _alike(biases, index, values, observed.shape, compared)
        return cls(reference, factors, biases, alike, trust, lefts)

    def without(self, left: Left, observed: ExchangeableArray) -> Prior:
        """As it would be had some of the cells been hidden."""
        kept = observed.take(~left.out)
        values, index = _standard(kept, self.reference), kept.support.index
        alike = _alike(left.biases, index, values, observed.shape, self._alike[0].comparison_budget)
        return Prior(self.reference, left.factors, left.biases, alike, self.trust)

    def __call__(self, index: Tensor) -> Tensor:
        """What is known of cells, in units of the observed values' spread: (Q, D) -> (Q, K)."""
        mean, variance = self.predict(index)
        own = torch.stack([self._placed(mean, variance.sqrt()), variance.sqrt()], dim=1).float()
        return torch.cat([own, *(axis.estimate(index) for axis in self.alike)], dim=1)

    def predict(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of cells, noise included: between the biases' and the factors'."""
        return self.trust.between(self.biases.predict(index), self.factors.predict(index))

    def _placed(self, mean: Tensor, deviation: Tensor) -> Tensor:
        """So that answers have this mean, if the model adds nothing, on a scale that ends, too."""
        levels = self.reference.standardise(self.reference.levels(mean))
        if len(levels) < 2:
            return mean
        parts = zip(mean.split(PLACED_AT_ONCE), deviation.split(PLACED_AT_ONCE), strict=True)
        return torch.cat([location_for_mean(*part, levels) for part in parts])

    def newcomer(self, axis: int, observed: ExchangeableArray) -> Prior:
        """With one new member of an axis, number 0 there, known by its own cells."""
        values, own = _standard(observed, self.reference), observed.support.index
        factors = self.factors.for_new_member(axis, own, values)
        biases = self.biases.for_new_member(axis, own, values)
        left = (values - biases.predict(own)[0]).float()
        alike = tuple(one.for_new_member(axis, own, left) for one in self._alike)
        return Prior(self.reference, factors, biases, alike, self.trust)

    @property
    def _alike(self) -> tuple[Similarity, ...]:
        assert all(isinstance(one, Similarity) for one in self.alike), "a newcomer's stays as it is"
        return self.alike  # type: ignore[return-value]

    def updated(self, observed: ExchangeableArray, changed: Tensor) -> Prior:
        """After cells came, at the positions ``changed`` of all: their members are solved anew."""
        values, index = _standard(observed, self.reference), observed.support.index
        factors, biases = (
            posterior.updated(index, values, observed.shape, changed)
            for posterior in (self.factors, self.biases)
        )
        compared = self._alike[0].comparison_budget
        alike = _alike(biases, index, values, observed.shape, compared)
        return Prior(self.reference, factors, biases, alike, self.trust)


def _alike(
    biases: Posterior, index: Tensor, values: Tensor, shape: tuple[int, ...], compared: float
) -> tuple[Similarity, ...]:
    left = (values - biases.predict(index)[0]).float()
    return tuple(
        Similarity(index, left, shape, axis, comparison_budget=compared)
        for axis in range(len(shape))
    )


def _believed(
    index: Tensor, values: Tensor, shape: tuple[int, ...], rank: int
) -> tuple[Posterior, Posterior, Trust, tuple[Left, ...]]:
    """Biases and factors, these fitted to most cells first, and how far they are to be believed."""
    biases = BIASES.posterior_of(index, values, shape)
    # Large tables tell in a few rounds what small ones tell in many.
    sweeps = min(max(SWEPT // len(values), LEAST_SWEEPS), MOST_SWEEPS)
    factorization = VariationalFactorization(rank, sweeps)
    part = (PARTS * pseudo_random_shares(values - biases.predict(index)[0])).long()
    lefts: list[Left] = []
    for number in range(min(math.ceil(TRIED / len(values) * PARTS), MOST_TRIED)):
        out = part == number
        if out.any() and not out.all():
            some, theirs = index[~out], values[~out]
            before = BIASES.posterior_of(some, theirs, shape, start=biases.grown(shape))
            found = factorization.posterior_of(some, theirs, shape, biases=before)
            lefts.append(Left(out, before, found))
    start = None  # a small table's factors would depend on which cells were left out
    if lefts and sweeps < MOST_SWEEPS:
        start = lefts[-1].factors.grown(shape)  # a copy, which is changed
        factorization = replace(factorization, sweeps=LAST_SWEEPS)
    factors = factorization.posterior_of(index, values, shape, biases=biases, start=start)
    tried = [
        torch.stack([values[out], *before.predict(index[out]), *found.predict(index[out])])
        for out, before, found in ((one.out, one.biases, one.factors) for one in lefts)
    ]
    trust = _trust(torch.cat(tried, dim=1)) if tried else Trust()
    return biases, factors, trust, tuple(lefts)


def pseudo_random_shares(residuals: Tensor) -> Tensor:
    """Numbers in [0, 1) that look drawn: later digits of what biases leave of each cell, (E,).

    So they do not depend on how members are numbered or cells are ordered.
    """
    spread = residuals.square().mean().sqrt().clamp(min=torch.finfo(residuals.dtype).tiny)
    # A power of two, which stays as it is when a cell comes: digits of others stay, too.
    return (1e4 * residuals.abs() / 2 ** spread.log2().floor()) % 1


def _trust(tried: Tensor) -> Trust:
    """From truth, and means and variances by biases and by factors, of cells left out: (5, E)."""
    truth, mean, variance, moved, narrowed = tried
    step, wanted = moved - mean, truth - mean
    # Least squares, drawn to 0 by as much as it may be in error, which heavy tails make large.
    size = (step @ step).clamp(min=1e-12)
    share = float(step @ wanted / size)
    doubt = float(step.square() @ (wanted - share * step).square() / size**2)
    share = min(max(share - doubt / max(share, 1e-12), 0.0), 1.0)
    mean, variance = Trust(share).between((mean, variance), (moved, narrowed))
    error = (truth - mean).square().sum() / variance.mean()
    # Never less: errors that are rare and large may all be among the other cells.
    return Trust(share, max(float((error + SURE) / (len(variance) + SURE)), 1.0))


def _rank(index: Tensor, most: int) -> int:
    """A member has as many numbers for each other axis, all to be known from its cells."""
    members = sum(len(own.unique()) for own in index.T)
    cells, others = index.numel() / members, max(index.shape[1] - 1, 1)
    return min(most, max(1, round(cells / others / CELLS_PER_FACTOR)))


def fit_prior(
    model: MemoryModel, observed: ExchangeableArray, reference: ValueStats
) -> Prior | None:
    """What a model that starts from a prior knows beforehand, from observed values (E, 1)."""
    if not model.prior_rank:
        return None
    return Prior.of(observed, reference, model.prior_rank, model.prior_compared)


def _standard(observed: ExchangeableArray, reference: ValueStats) -> Tensor:
    return reference.standardise(observed.values.squeeze(1).double())
