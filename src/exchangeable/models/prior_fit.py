"""The prior that a model starts from."""

from __future__ import annotations

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.models.memory import MemoryModel
from exchangeable.prior.prior import Prior
from exchangeable.prior.side_information import NO_SIDE_INFORMATION, SideInformation
from exchangeable.values.codecs import ValueStats


def fit_prior(
    model: MemoryModel,
    observed: ExchangeableArray,
    stats: ValueStats,
    side: SideInformation = NO_SIDE_INFORMATION,
) -> Prior | None:
    """Fit the prior that a model starts from to observed values (E, 1); None if it has none."""
    if not model.prior_rank:
        return None
    return Prior.of(observed, stats, model.prior_rank, model.comparison_budget, side)
