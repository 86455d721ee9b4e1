"""Spare members: each axis of a memory has one more than the table, without cells and features."""

from __future__ import annotations

import torch
from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.cells import Cells, Floats
from exchangeable.prior.side_information import SideInformation
from exchangeable.training.trained_model import TrainedModel


def side_information(
    trained: TrainedModel, cells: Cells, features: FeatureTensors | None, device: torch.device
) -> tuple[SideInformation, FeatureTensors | None]:
    """Return what the prior reads beside the values, and the features that layers read."""
    padded = features_with_spare(features, cells.shape, device)
    by_prior = trained.prior_reads_features
    side = SideInformation(to_tensor(cells.times, device), padded if by_prior else None)
    return side, None if by_prior else padded


def to_tensor(times: Floats | None, device: torch.device) -> Tensor | None:
    """Return the times of cells on the device of the model."""
    return None if times is None else torch.from_numpy(times).to(device)


def with_spare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Add the spare member to each axis."""
    return tuple(size + 1 for size in shape)


def features_with_spare(
    features: FeatureTensors | None, shape: tuple[int, ...], device: torch.device
) -> FeatureTensors | None:
    """Add features of the spare members, on the device of the model."""
    padded = padded_with_zeros(features, with_spare(shape))
    if padded is None:
        return None
    return tuple(None if f is None else f.to(device) for f in padded)


def padded_with_zeros(
    features: FeatureTensors | None, shape: tuple[int, ...]
) -> FeatureTensors | None:
    """Add zeros for members that came later, whose features are not known."""
    if features is None:
        return None
    return tuple(
        None if f is None else torch.cat([f, f.new_zeros(size - len(f), f.shape[1])])
        for f, size in zip(features, shape, strict=True)
    )
