"""What all predictors by a trained model do alike: prepare the model, store it, address cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.cells import Cells, Index
from exchangeable.predictors.state import PREFIX
from exchangeable.training.trained_model import MEMBERS, TrainedModel
from exchangeable.values.calibration import Calibration


def prepare(
    trained: TrainedModel,
    cells: Cells,
    features: FeatureTensors | None,
    device: torch.device | None,
) -> tuple[TrainedModel, Cells, torch.device]:
    """Return a model ready to predict on a device, and cells on the scale that it reads."""
    trained.check_features(features)
    cells = replace(cells, scale=trained.codec.scale_for(cells.scale))
    device = device or trained.model.device
    return replace(trained, model=trained.model.to(device).eval()), cells, device


def coordinates_with_spare(index: Index, shape: tuple[int, ...]) -> Tensor:
    """Return the cells with the last, spare member for unknown ones: (Q, D)."""
    if not len(index) or index.min() >= 0:
        return torch.from_numpy(index)
    return torch.from_numpy(np.where(index < 0, np.array(shape) - 1, index))


def model_to_parts(
    trained: TrainedModel, features: FeatureTensors | None, calibration: Calibration
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return JSON and tensors of a model, the features that it reads, and its calibration."""
    config, weights = trained.to_parts()
    by_axis = {f"{MEMBERS}{axis}": f for axis, f in enumerate(features or ()) if f is not None}
    config["facts"] = trained.facts
    config["calibration"] = list(calibration.quantiles)
    return config, {**weights, **by_axis}


def model_from_parts(
    config: dict[str, Any], tensors: dict[str, Tensor], order: int
) -> tuple[TrainedModel, FeatureTensors | None, Calibration]:
    """Build what ``model_to_parts`` stored of a model for tables of an order."""
    by_axis = [tensors.get(f"{MEMBERS}{axis}") for axis in range(order)]
    features = tuple(by_axis) if any(f is not None for f in by_axis) else None
    weights = {name: each for name, each in tensors.items() if not name.startswith(PREFIX)}
    trained = TrainedModel.from_parts(config, weights, config.get("facts", {}))
    return trained, features, Calibration(tuple(config.get("calibration", ())))
