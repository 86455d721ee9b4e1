"""A literal model of the paper as a predictor: cells that are queried together are pooled together.

Such a model has no memory of a table, so the observed cells pass through it with the queries of
each call, and a prediction depends on the other queries. The same predictor reads a table in
samples, with any model: each sample is conditioned on anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.arrays.support import Support
from exchangeable.errors import InputError
from exchangeable.models.paper import FactorizedAutoencoder
from exchangeable.predictors.model import ModelPredictor
from exchangeable.predictors.spare_members import (
    features_with_spare,
    padded_with_zeros,
    with_spare,
)
from exchangeable.predictors.trained import (
    coordinates_with_spare,
    model_from_parts,
    model_to_parts,
    prepare,
)
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.threads import one_thread
from exchangeable.training.covering import predict_in_samples
from exchangeable.training.task import encode_array
from exchangeable.training.trained_model import TrainedModel
from exchangeable.values.calibration import UNCALIBRATED, Calibration
from exchangeable.values.codecs import ValueStats
from exchangeable.values.distributions import Distribution

if TYPE_CHECKING:
    from exchangeable.data.features import TableFeatures


@dataclass(frozen=True, eq=False)
class LiteralPredictor:
    """Predicts by passing observed and queried cells through a model together."""

    trained: TrainedModel
    cells: Cells
    stats: ValueStats
    features: FeatureTensors | None
    device: torch.device
    calibration: Calibration = UNCALIBRATED
    sample_cells: int | None = None
    """Cells of a sample that the table is read in; None: all are read together."""

    @classmethod
    def of(
        cls,
        trained: TrainedModel,
        cells: Cells,
        features: FeatureTensors | None = None,
        device: torch.device | None = None,
        *,
        sample_cells: int | None = None,
    ) -> LiteralPredictor:
        trained.check_order(cells.order, joint=cells.joint)
        trained, cells, device = prepare(trained, cells, features, device)
        stats = ValueStats.of(cells.values, cells.scale)
        return cls(trained, cells, stats, features, device, sample_cells=sample_cells)

    def predict(self, index: Index, times: Floats | None = None) -> Distribution:
        shape = with_spare(self.cells.shape)
        queries = Support(coordinates_with_spare(index, shape).to(self.device), shape)
        observed = self.cells.to_array(shape).to(self.device)
        features = features_with_spare(self.features, self.cells.shape, self.device)
        with torch.inference_mode(), one_thread(self.device):
            outputs = predict_in_samples(
                self.trained.model,
                self.trained.codec,
                observed,
                queries,
                self.stats,
                features,
                cells=self.sample_cells or len(observed) + len(queries),
            )
        decoded = self.trained.codec.read(outputs.double().cpu(), self.stats)
        return self.calibration.apply(decoded)

    def updated(self, cells: Cells, changed: Index, *, known: int) -> LiteralPredictor:
        return self.refreshed(cells)

    def needs_refit(self, cells: Cells, changed: Index, *, known: int) -> bool:
        return True

    def with_features(self, features: TableFeatures) -> LiteralPredictor:
        """Return the same predictor with other features."""
        return replace(self, features=features.to_tensors(centred=False))

    def refreshed(self, cells: Cells) -> LiteralPredictor:
        features = padded_with_zeros(self.features, cells.shape)
        fresh = LiteralPredictor.of(
            self.trained, cells, features, self.device, sample_cells=self.sample_cells
        )
        return replace(fresh, calibration=self.calibration)

    def for_new_members(
        self,
        axis: int,
        index: Index,
        values: Floats,
        features: Tensor | None = None,
        *,
        count: int = 1,
    ) -> None:
        return None  # all cells have to pass through the model again

    def factors(self) -> tuple[Floats, ...]:
        model = self.trained.model
        if not isinstance(model, FactorizedAutoencoder):
            raise InputError(
                f"factors come from vmf, bmf or the factorized model, but this is "
                f"{self.trained.name}"
            )
        observed = self.cells.to_array().to(self.device)
        with torch.inference_mode(), one_thread(self.device):
            encoded = encode_array(observed, self.trained.codec, self.stats)
            vectors = model.factors(encoded, self.features)
        return tuple(rows.double().cpu().numpy() for rows in vectors)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        config, tensors = model_to_parts(self.trained, self.features, self.calibration)
        return {**config, "sample_cells": self.sample_cells}, tensors


TrainedPredictor = ModelPredictor | LiteralPredictor
"""A predictor by a trained model."""


def predictor_of(
    trained: TrainedModel,
    cells: Cells,
    features: FeatureTensors | None = None,
    device: torch.device | None = None,
    *,
    memory: int | None = None,
    processes: Processes = ALONE,
    progress: Progress = SILENT,
    sample_cells: int | None = None,
) -> TrainedPredictor:
    """Let a trained model read a table's cells, or stand ready to: a literal one, or in samples."""
    if not trained.model.literal and sample_cells is None:
        return ModelPredictor.of(
            trained,
            cells,
            features,
            device,
            memory=memory,
            processes=processes,
            progress=progress,
        )
    if processes.size > 1:
        raise InputError(f"{trained.name} reads a table with one process, not {processes.size}")
    return LiteralPredictor.of(trained, cells, features, device, sample_cells=sample_cells)


def predictor_from_parts(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    cells: Cells,
    device: torch.device,
    memory: int | None = None,
) -> TrainedPredictor:
    """Build the predictor of a trained model from what its ``to_parts`` returned."""
    sample_cells = config.get("sample_cells")
    if not config.get("model", {}).get("literal") and sample_cells is None:
        return ModelPredictor.from_parts(config, tensors, cells, device, memory)
    trained, features, calibration = model_from_parts(config, tensors, len(cells.shape))
    fresh = LiteralPredictor.of(trained, cells, features, device, sample_cells=sample_cells)
    return replace(fresh, calibration=calibration)
