"""A model with its memory of a table as a predictor.

Each axis of the memory has one member more than the table, without a cell: it stands for every
member that is not in the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.cells import Cells, Floats, Index, Mask
from exchangeable.arrays.support import Support
from exchangeable.models.factors import read_factors
from exchangeable.models.memory import Memory
from exchangeable.models.memory_plan import plan_reading
from exchangeable.models.prior import Prior, fit_prior
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.training.trained_model import MEMBERS, TrainedModel
from exchangeable.training.validation import CELLS_PER_READ
from exchangeable.values.calibration import UNCALIBRATED, Calibration
from exchangeable.values.codecs import ValueStats, encoder
from exchangeable.values.distributions import Distribution


@dataclass(frozen=True, eq=False)
class ModelPredictor:
    """Predicts from the memory that a model has of the table."""

    trained: TrainedModel
    memory: Memory
    stats: ValueStats
    features: FeatureTensors | None
    processes: Processes = ALONE
    memory_limit: int | None = None
    """Bytes that reading may take."""
    calibration: Calibration = UNCALIBRATED

    @classmethod
    def of(
        cls,
        trained: TrainedModel,
        cells: Cells,
        features: FeatureTensors | None = None,
        device: torch.device | None = None,
        *,
        memory: int | None = None,
        processes: Processes = ALONE,
        progress: Progress = SILENT,
    ) -> ModelPredictor:
        """Condition the model on the observed cells, within ``memory`` bytes."""
        trained.check(len(cells.shape))
        cells = replace(cells, scale=trained.codec.scale_for(cells.scale))
        trained.check_features(features)
        device = device or trained.model.device
        trained = replace(trained, model=trained.model.to(device).eval())
        stats = ValueStats.of(cells.values, cells.scale)
        observed = cells.to_array(_with_spare(cells.shape)).to(device)
        plan, sentence = plan_reading(
            trained.model, observed.support.group_index, len(cells), memory
        )
        if plan.activations != "memory" or not plan.keep_pools:
            progress.note(sentence)
        with torch.no_grad():
            conditioned = trained.model.condition(
                observed,
                _features_with_spare(features, cells.shape, device),
                encode=encoder(trained.codec, stats),
                prior=fit_prior(trained.model, observed, stats),
                plan=plan,
                processes=processes,
                progress=progress,
            )
        return cls(trained, conditioned, stats, features, processes, memory)

    @property
    def device(self) -> torch.device:
        return self.trained.model.device

    def predict(self, index: Index) -> Distribution:
        spare = np.array(self.memory.shape) - 1
        coordinates = torch.from_numpy(np.where(index < 0, spare, index))
        first, last = self.processes.share(len(index))
        queries = Support(coordinates[first:last].to(self.device), self.memory.shape)
        with torch.inference_mode():
            outputs = self.trained.model.read(self.memory, queries, CELLS_PER_READ)
        outputs = self.processes.all_gather(outputs, len(index))
        distribution = self.trained.codec.read(outputs.double().cpu(), self.stats)
        return self.calibration.apply(distribution)

    def holdouts(self, cells: Cells) -> Iterator[tuple[Mask, ModelPredictor]]:
        """Yield each held-out mask of the prior's trials, with a predictor that has not read it.

        That takes no further fit: the prior keeps what it was without those cells.
        """
        prior = self.memory.prior
        if not isinstance(prior, Prior):
            return
        observed = cells.to_array(_with_spare(cells.shape)).to(self.device)
        for holdout in prior.holdouts:
            with torch.no_grad():
                memory = self.trained.model.condition(
                    observed.take(~holdout.mask),
                    encode=encoder(self.trained.codec, self.stats),
                    prior=prior.without(holdout, observed),
                )
            yield holdout.mask.cpu().numpy(), replace(self, memory=memory)

    def updated(self, cells: Cells, changed: Index, *, replaced: bool) -> ModelPredictor:
        if self.needs_refit(replaced=replaced):
            return self.refreshed(cells)
        shape = _with_spare(cells.shape)
        observed = cells.take(changed).to_array(shape)
        added = observed.map_values(encoder(self.trained.codec, self.stats))
        prior = self.memory.prior
        if isinstance(prior, Prior):
            every = cells.to_array(shape).to(self.device)
            prior = prior.updated(every, torch.from_numpy(changed).to(self.device))
        with torch.no_grad():
            # The spare member of before has no cell, so the first new one can take its place.
            memory = self.trained.model.extend(self.memory, added.to(self.device), prior=prior)
        return replace(self, memory=memory)

    def needs_refit(self, *, replaced: bool) -> bool:
        # A value cannot be taken out of a pool, nor can features be put before the last ones.
        return replaced or self.features is not None or not self.memory.pools

    def refreshed(self, cells: Cells) -> ModelPredictor:
        predictor = ModelPredictor.of(
            self.trained,
            cells,
            _padded_with_zeros(self.features, cells.shape),
            self.device,
            memory=self.memory_limit,
            processes=self.processes,
        )
        return replace(predictor, calibration=self.calibration)

    def for_new_member(self, axis: int, index: Index, values: Floats) -> ModelPredictor | None:
        if self.features is not None or not self.memory.pools:
            return None
        shape = tuple(1 if a == axis else size for a, size in enumerate(self.memory.shape))
        observed = Cells(index, values, shape, self.stats.scale).to_array()
        with torch.inference_mode():
            channels = observed.map_values(encoder(self.trained.codec, self.stats)).to(self.device)
            prior = self.memory.prior
            if isinstance(prior, Prior):
                prior = prior.for_new_member(axis, observed.to(self.device))
            memory = self.trained.model.for_new_member(self.memory, axis, channels, prior=prior)
        return replace(self, memory=memory)

    def factors(self) -> tuple[Floats, ...]:
        # The last member of each axis is the spare one.
        vectors = read_factors(self.trained.model, self.memory)
        return tuple(_to_numpy(rows[:-1]) for rows in vectors)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        config, weights = self.trained.to_parts()
        by_axis = self.features or (None,) * len(self.memory.shape)
        features = {f"{MEMBERS}{axis}": f for axis, f in enumerate(by_axis) if f is not None}
        config = {
            **config,
            "facts": self.trained.facts,
            "calibration": list(self.calibration.quantiles),
        }
        return config, {**weights, **features}

    @classmethod
    def from_parts(
        cls,
        config: dict[str, Any],
        tensors: dict[str, Tensor],
        cells: Cells,
        device: torch.device,
        memory: int | None = None,
    ) -> ModelPredictor:
        """Build a predictor from what ``to_parts`` returned; the model reads the cells again."""
        by_axis = [tensors.get(f"{MEMBERS}{axis}") for axis in range(len(cells.shape))]
        features = tuple(by_axis) if any(f is not None for f in by_axis) else None
        trained = TrainedModel.from_parts(config, tensors, config.get("facts", {}))
        predictor = cls.of(trained, cells, features, device, memory=memory)
        return replace(predictor, calibration=Calibration(tuple(config.get("calibration", ()))))


def _with_spare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Add the spare member to each axis."""
    return tuple(size + 1 for size in shape)


def _features_with_spare(
    features: FeatureTensors | None, shape: tuple[int, ...], device: torch.device
) -> FeatureTensors | None:
    """Add features of the spare members, on the device of the model."""
    padded = _padded_with_zeros(features, _with_spare(shape))
    if padded is None:
        return None
    return tuple(None if f is None else f.to(device) for f in padded)


def _padded_with_zeros(
    features: FeatureTensors | None, shape: tuple[int, ...]
) -> FeatureTensors | None:
    """Add zeros for members that came later, whose features are not known."""
    if features is None:
        return None
    return tuple(
        None if f is None else torch.cat([f, f.new_zeros(size - len(f), f.shape[1])])
        for f, size in zip(features, shape, strict=True)
    )


def _to_numpy(vectors: Tensor) -> Floats:
    return vectors.detach().double().cpu().numpy()
