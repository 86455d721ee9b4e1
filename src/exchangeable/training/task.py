"""The task of a run: cells to train on, cells to validate on, and a record of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.cells import Cells
from exchangeable.data.splits import by_share
from exchangeable.errors import InputError
from exchangeable.models.memory import MemoryModel
from exchangeable.prior.side_information import NO_SIDE_INFORMATION, SideInformation
from exchangeable.values.codecs import Codec, ValueStats, encoder

if TYPE_CHECKING:
    from exchangeable.data.features import TableFeatures


@dataclass(frozen=True, eq=False)
class Task:
    """Cells to train on and cells to validate on, both with their values in one channel."""

    observed: ExchangeableArray
    validation: ExchangeableArray
    stats: ValueStats
    """Statistics of the observed values."""
    side: SideInformation = NO_SIDE_INFORMATION
    """Times of the observed cells, and features of the members."""
    validation_times: Tensor | None = None

    def to(self, device: torch.device) -> Task:
        times = self.validation_times
        return Task(
            self.observed.to(device),
            self.validation.to(device),
            self.stats,
            self.side.to(device),
            None if times is None else times.to(device),
        )

    def features_for(self, model: MemoryModel) -> FeatureTensors | None:
        """Return the features that the layers of a model read."""
        return None if model.prior_reads_features else self.side.features

    def fingerprint(self) -> str:
        """Return a hash of all that is trained and validated on."""
        from exchangeable.runtime import checkpoint  # needs safetensors, which training does not

        arrays = [self.observed, self.validation]
        tensors = [t for array in arrays for t in (array.support.index, array.values)]
        tensors += [f for f in self.side.features or () if f is not None]
        tensors += [t for t in (self.side.times, self.validation_times) if t is not None]
        return checkpoint.fingerprint(*[tensor.cpu().numpy() for tensor in tensors])


@dataclass(frozen=True)
class ValidationSplit:
    """Which cells are held out to validate a model: a share of them, drawn by a seed."""

    share: float
    seed: int

    def of(self, cells: Cells) -> tuple[Cells, Cells]:
        """Split cells into those to train on and those held out."""
        split = by_share(cells, test=0.0, validation=self.share, seed=self.seed)
        return cells.take(split.train), cells.take(split.validation)


def task_of(cells: Cells, features: FeatureTensors | None, split: ValidationSplit) -> Task:
    """Make a task of cells, some of which are held out for validation."""
    observed, validation = split.of(cells)
    if not len(observed):
        raise InputError(f"training needs cells that are not for validation, but has {len(cells)}")
    stats = ValueStats.of(observed.values, cells.scale)
    times, validation_times = (
        None if part.times is None else torch.from_numpy(part.times)
        for part in (observed, validation)
    )
    return Task(
        observed.to_array(),
        validation.to_array(),
        stats,
        SideInformation(times, features),
        validation_times,
    )


def facts_of(
    cells: Cells, split: ValidationSplit | None = None, members: TableFeatures | None = None
) -> dict[str, Any]:
    """Describe what a model was trained on, without the cells themselves."""
    from exchangeable.runtime import checkpoint

    return {
        "data": checkpoint.fingerprint(cells.index, cells.values),
        "cells": len(cells),
        "shape": list(cells.shape),
        "scale": str(cells.scale),
        **({} if split is None else {"validation": [split.share, split.seed]}),
        **({} if members is None else {"features": [list(names) for names in members.names]}),
    }


def encode_array(observed: ExchangeableArray, codec: Codec, stats: ValueStats) -> ExchangeableArray:
    """Encode observed values as the channels that a model takes: (E, 1) -> (E, K)."""
    return ExchangeableArray.unchecked(observed.support, encoder(codec, stats)(observed.values))
