"""New members of a table that a model has read: predicted from their own cells alone.

The prior is solved for them at once. The model reads their cells when the first prediction needs
it, together with the cells that are predicted then: one pass over the closed-form models, not two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.predictors.best import RoughPredictions
from exchangeable.predictors.trained import coordinates_with_spare
from exchangeable.prior.prior import Prior
from exchangeable.prior.side_information import SideInformation
from exchangeable.runtime.cache import cached_property
from exchangeable.runtime.threads import one_thread
from exchangeable.values.codecs import encoder
from exchangeable.values.distributions import Distribution

if TYPE_CHECKING:
    from exchangeable.predictors.model import ModelPredictor


@dataclass(frozen=True, eq=False)
class NewMembersPredictor:
    """Predicts cells of new members of an axis; all else is that of the whole table."""

    whole: ModelPredictor
    axis: int
    observed: ExchangeableArray
    """The cells of the new members, and no others."""
    prior: Prior | None

    @classmethod
    def of(
        cls,
        whole: ModelPredictor,
        axis: int,
        index: Index,
        values: Floats,
        features: Tensor | None,
        count: int,
    ) -> NewMembersPredictor:
        """Solve the prior for ``count`` new members from their cells (E, D)."""
        device, prior = whole.device, whole.prior
        shape = tuple(count if a == axis else size for a, size in enumerate(whole.memory.shape))
        observed = Cells(index, values, shape, whole.stats.scale).to_array().to(device)
        with torch.inference_mode(), one_thread(device):
            if prior is not None:
                own = None if features is None else features.to(device)
                by_axis = [own if a == axis else None for a in range(len(shape))]
                side = SideInformation(features=tuple(by_axis))
                prior = prior.for_new_members(axis, observed, side)
        return cls(whole, axis, observed, prior)

    @cached_property
    def read(self) -> ModelPredictor:
        """The predictor that has read the cells of the new members."""
        prior, whole = self.prior, self.whole
        with torch.inference_mode(), one_thread(whole.device):
            return self._condition(None if prior is None else prior(self.observed.support.index))

    def _condition(self, channels: Tensor | None) -> ModelPredictor:
        """Let the model read the cells, for which the prior has these channels (E, K)."""
        whole = self.whole
        encode = encoder(whole.trained.codec, whole.stats)
        memory = whole.trained.model.for_new_members(
            whole.memory,
            self.axis,
            self.observed.map_values(encode),
            prior=None if channels is None else lambda _: channels,
        )
        prior = None if self.prior is None else self.prior.at(None)
        return replace(whole, memory=replace(memory, prior=prior), prior=self.prior, whole=whole)

    def predict(self, index: Index, times: Floats | None = None) -> Distribution:
        return self.read.predict(index, times)

    def rough_predictions(self, index: Index) -> RoughPredictions | None:
        """Predict means of cells (Q, D) by the prior, and any of them by the model, on demand."""
        whole, prior, own = self.whole, self.prior, self.observed.support.index
        if prior is None or whole.processes.size > 1:
            return None
        shape = self.observed.shape
        coordinates = torch.cat([coordinates_with_spare(index, shape).to(whole.device), own])
        with torch.inference_mode(), one_thread(whole.device):
            means, estimates = prior.estimate_means(coordinates)
        own_positions = torch.arange(len(index), len(coordinates), device=whole.device)

        def read(positions: Tensor) -> Distribution:
            at = positions.to(whole.device)
            with torch.inference_mode(), one_thread(whole.device):
                if "read" in vars(self):
                    channels = prior.channels_of(estimates.take(at), coordinates[at])
                else:  # their own cells first, with these
                    both = torch.cat([at, own_positions])
                    every = prior.channels_of(estimates.take(both), coordinates[both])
                    channels = every[: len(at)]
                    vars(self)["read"] = self._condition(every[len(at) :])
                return self.read.predict_from(coordinates[at], channels)

        return RoughPredictions(whole.to_values(means[: len(index)]), read)

    def updated(self, cells: Cells, changed: Index, *, known: int) -> ModelPredictor:
        return self.read.updated(cells, changed, known=known)

    def needs_refit(self, cells: Cells, changed: Index, *, known: int) -> bool:
        return self.read.needs_refit(cells, changed, known=known)

    def refreshed(self, cells: Cells) -> ModelPredictor:
        return self.whole.refreshed(cells)

    def for_new_members(
        self,
        axis: int,
        index: Index,
        values: Floats,
        features: Tensor | None = None,
        *,
        count: int = 1,
    ) -> NewMembersPredictor | None:
        return self.read.for_new_members(axis, index, values, features, count=count)

    def factors(self) -> tuple[Floats, ...]:
        return self.read.factors()

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return self.read.to_parts()
