"""What closed-form methods say of every cell: where a model may start from, rather than nothing.

Deep layers average well, but solve slowly: what variational factorization finds in a few sweeps
takes them thousands of training steps, and members are compared with each other by no layer at
all. So a model can be told, of each cell that is observed or asked about, the mean and the
deviation that the factorization gives, to which answers are relative, and what members that are
alike say, by each axis. It is a function of the observed cells alone, and relabelling these
relabels it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from exchangeable.array import ExchangeableArray
from exchangeable.baselines.likeness import Alike
from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.variational import Bias, VariationalFactorization
from exchangeable.distributions import placed
from exchangeable.memory import MemoryModel
from exchangeable.values import Reference

PLACED_AT_ONCE = 1 << 16

COMPARED = 3e10
"""Cells times members up to which members are compared with each other: two cores take a minute or
two for as many. In larger tables nothing is said by those who are alike."""

CELLS_PER_FACTOR = 5
"""Cells that members have on average for each factor, at least: with fewer, false ones stay on,
which move with every cell that comes."""


@dataclass(frozen=True, eq=False)
class Prior:
    """What is believed of the members' vectors and biases, and the residuals of the latter."""

    reference: Reference
    factors: Posterior
    biases: Posterior
    alike: tuple[Alike, ...]

    @classmethod
    def of(cls, observed: ExchangeableArray, reference: Reference, rank: int) -> Prior:
        """From observed values (E, 1); ``rank`` factors at most, fewer where cells are few."""
        values, index = _standard(observed, reference), observed.support.index
        if not len(values):
            nothing = Posterior.before(observed.shape, values)
            return cls._from(reference, nothing, nothing, index, values, observed.shape)
        with torch.no_grad():
            biases = Bias().believed(index, values, observed.shape)
            factors = VariationalFactorization(_rank(index, rank)).believed(
                index, values, observed.shape, biases=biases
            )
        return cls._from(reference, factors, biases, index, values, observed.shape)

    @classmethod
    def _from(
        cls,
        reference: Reference,
        factors: Posterior,
        biases: Posterior,
        index: Tensor,
        values: Tensor,
        shape: tuple[int, ...],
    ) -> Prior:
        left = (values - biases.answers(index)[0]).float()
        if len(left) * sum(shape) > COMPARED:
            index, left = index[:0], left[:0]
        alike = tuple(Alike(index, left, shape, axis) for axis in range(len(shape)))
        return cls(reference, factors, biases, alike)

    def __call__(self, index: Tensor) -> Tensor:
        """What is known of cells, in units of the observed values' spread: (Q, D) -> (Q, K)."""
        mean, variance = self.factors.answers(index)
        own = torch.stack([self._placed(mean, variance.sqrt()), variance.sqrt()], dim=1).float()
        return torch.cat([own, *(axis.said(index) for axis in self.alike)], dim=1)

    def _placed(self, mean: Tensor, deviation: Tensor) -> Tensor:
        """So that answers have this mean, if the model adds nothing, on a scale that ends, too."""
        levels = self.reference.standardised(self.reference.levels(mean))
        if len(levels) < 2:
            return mean
        parts = zip(mean.split(PLACED_AT_ONCE), deviation.split(PLACED_AT_ONCE), strict=True)
        return torch.cat([placed(*part, levels) for part in parts])

    def newcomer(self, axis: int, observed: ExchangeableArray) -> Prior:
        """With one new member of an axis, number 0 there, known by its own cells."""
        values, own = _standard(observed, self.reference), observed.support.index
        factors = self.factors.newcomer(axis, own, values)
        biases = self.biases.newcomer(axis, own, values)
        left = (values - biases.answers(own)[0]).float()
        alike = tuple(one.joined(axis, own, left) for one in self.alike)
        return Prior(self.reference, factors, biases, alike)

    def updated(self, observed: ExchangeableArray, changed: Tensor) -> Prior:
        """After cells came, at the positions ``changed`` of all: their members are solved anew."""
        values, index = _standard(observed, self.reference), observed.support.index
        factors, biases = (
            posterior.updated(index, values, observed.shape, changed)
            for posterior in (self.factors, self.biases)
        )
        return Prior._from(self.reference, factors, biases, index, values, observed.shape)


def _rank(index: Tensor, most: int) -> int:
    """A member has as many numbers for each other axis, all to be known from its cells."""
    members = sum(len(own.unique()) for own in index.T)
    cells, others = index.numel() / members, max(index.shape[1] - 1, 1)
    return min(most, max(1, round(cells / others / CELLS_PER_FACTOR)))


def prior_of(model: MemoryModel, observed: ExchangeableArray, reference: Reference) -> Prior | None:
    """What a model that starts from a prior knows beforehand, from observed values (E, 1)."""
    return Prior.of(observed, reference, model.prior_rank) if model.prior_rank else None


def _standard(observed: ExchangeableArray, reference: Reference) -> Tensor:
    return reference.standardised(observed.values.squeeze(1).double())
