"""What a factorization says of every cell: where a model may start from, rather than from nothing.

Deep layers average well, but solve slowly: what variational factorization finds in a few sweeps
takes them thousands of training steps. So a model can be told, of each cell that is observed or
asked about, the mean and the deviation that the factorization gives, and answers relative to them.
It is a function of the observed cells alone, and relabelling these relabels it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from exchangeable.array import ExchangeableArray
from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.variational import VariationalFactorization
from exchangeable.memory import MemoryModel
from exchangeable.values import Reference


@dataclass(frozen=True, eq=False)
class Prior:
    """What is believed of the vectors of all members."""

    posterior: Posterior
    reference: Reference

    @classmethod
    def of(cls, observed: ExchangeableArray, reference: Reference, rank: int) -> Prior:
        """From observed values (E, 1)."""
        values = _standard(observed, reference)
        if not len(values):
            return cls(Posterior.before(observed.shape, values), reference)
        with torch.no_grad():
            factors = VariationalFactorization(rank)
            posterior = factors.believed(observed.support.index, values, observed.shape)
        return cls(posterior, reference)

    def __call__(self, index: Tensor) -> Tensor:
        """What is known of cells, in units of the observed values' spread: (Q, D) -> (Q, 2)."""
        mean, variance = self.posterior.answers(index)
        return torch.stack([mean, variance.sqrt()], dim=1).float()

    def newcomer(self, axis: int, observed: ExchangeableArray) -> Prior:
        """With one new member of an axis, number 0 there, known by its own cells."""
        values = _standard(observed, self.reference)
        solved = self.posterior.newcomer(axis, observed.support.index, values)
        return Prior(solved, self.reference)

    def updated(self, observed: ExchangeableArray, changed: Tensor) -> Prior:
        """After cells came, at the positions ``changed`` of all: their members are solved anew."""
        values = _standard(observed, self.reference)
        index = observed.support.index
        solved = self.posterior.updated(index, values, observed.shape, changed)
        return Prior(solved, self.reference)


def prior_of(model: MemoryModel, observed: ExchangeableArray, reference: Reference) -> Prior | None:
    """What a model that starts from a prior knows beforehand, from observed values (E, 1)."""
    return Prior.of(observed, reference, model.prior_rank) if model.prior_rank else None


def _standard(observed: ExchangeableArray, reference: Reference) -> Tensor:
    return reference.standardised(observed.values.squeeze(1).double())
