"""What a run is trained on: observed cells, validation cells, and a record of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.cells import Cells
from exchangeable.data.splits import by_share
from exchangeable.errors import InputError
from exchangeable.runtime import checkpoint
from exchangeable.values.codecs import ValueStats

if TYPE_CHECKING:
    from exchangeable.data.features import TableFeatures


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained on: cells with one channel, their values, and what choices are made on."""

    observed: ExchangeableArray
    validation: ExchangeableArray
    reference: ValueStats
    features: FeatureTensors | None = None

    def to(self, device: torch.device) -> Task:
        moved = tuple(None if f is None else f.to(device) for f in self.features or ())
        return Task(
            self.observed.to(device),
            self.validation.to(device),
            self.reference,
            moved if self.features is not None else None,
        )


@dataclass(frozen=True)
class ValidationSplit:
    """Which cells are kept back to judge a model by: a share of them, drawn by a seed."""

    share: float
    seed: int

    def of(self, cells: Cells) -> tuple[Cells, Cells]:
        """Those to be shown, and those kept back."""
        split = by_share(cells, test=0.0, validation=self.share, seed=self.seed)
        return cells.take(split.train), cells.take(split.validation)


def task_of(cells: Cells, features: FeatureTensors | None, kept_back: ValidationSplit) -> Task:
    """Cells to train on, and a share of them to judge by."""
    shown, kept = kept_back.of(cells)
    if not len(shown):
        raise InputError(f"training needs cells that are not for validation, but has {len(cells)}")
    return Task(
        shown.to_array(), kept.to_array(), ValueStats.of(shown.values, cells.scale), features
    )


def facts_of(
    cells: Cells, split: ValidationSplit | None = None, members: TableFeatures | None = None
) -> dict[str, Any]:
    """What a model was trained on, without the cells themselves."""
    return {
        "data": checkpoint.fingerprint(cells.index, cells.values),
        "cells": len(cells),
        "shape": list(cells.shape),
        "scale": str(cells.scale),
        **({} if split is None else {"validation": [split.share, split.seed]}),
        **({} if members is None else {"features": [list(names) for names in members.names]}),
    }


def fingerprint_of(task: Task) -> str:
    """Of all that is trained on and judged by."""
    parts = [task.observed, task.validation]
    tensors = [t for part in parts for t in (part.support.index, part.values)]
    tensors += [f for f in task.features or () if f is not None]
    return checkpoint.fingerprint(*[tensor.cpu().numpy() for tensor in tensors])
