"""From a labelled table to something that answers for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from exchangeable.arrays.cells import Cells
from exchangeable.baselines import BASELINES
from exchangeable.completion.predictors import ModelPredictor, Predictor, fit_baseline
from exchangeable.completion.select import backtest, predict_and_rank, tried
from exchangeable.data.features import TableFeatures
from exchangeable.data.negatives import observed_cells
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.pretraining import bundled
from exchangeable.runtime import checkpoint
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.training.config import TrainingConfig
from exchangeable.training.execution import Execution
from exchangeable.training.recipes import RECIPES, check_renamed
from exchangeable.training.task import ValidationSplit, facts_of, task_of
from exchangeable.training.train_model import train_model, train_recipe
from exchangeable.training.trained_model import ITS_TABLE, SYNTHETIC, TRAINED_ON, TrainedModel
from exchangeable.values.calibration import UNCALIBRATED, Calibration

LARGEST = 1e100
"""Squares of larger values, and sums of these, would overflow."""
ANY_ORDER = "vmf"
"""Who answers when nobody was chosen, where no model is pretrained for tables of the order."""


@dataclass(frozen=True, eq=False)
class FitRequest:
    """All that fitting depends on."""

    table: Table
    model: str = "auto"
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    validation: float = 0.05
    training: TrainingConfig | None = None
    features: Mapping[str, Any] | None = None
    memory: int | None = None
    """Bytes that may be taken; none: most of what is free."""
    processes: Processes = ALONE
    """Which processes share the cells."""
    progress: Progress = SILENT


@dataclass(frozen=True, eq=False)
class Fitted:
    """A table, its cells as numbers, who answers for them, and what there is to tell."""

    table: Table
    cells: Cells
    predictor: Predictor
    notes: tuple[str, ...]
    name: str
    """Of the model that answers; never ``auto``."""
    folded: int = 0
    """Cells that came since all of them were read together."""


def fit(given: FitRequest) -> Fitted:
    """Let the model that was chosen read the table."""
    if len(given.table) == 0:
        raise InputError("cells with a value are needed, but the table has none")
    values = given.table.values
    if max(float(np.nanmax(values)), -float(np.nanmin(values))) > LARGEST:
        raise InputError(f"values must be at most {LARGEST:g} in size: divide them by something")
    cells, notes = observed_cells(given.table, given.seed)
    name, calibration, told = _chosen(given, cells)
    notes = (*notes, *told)
    if name in BASELINES:
        if given.features:
            raise InputError(f"features need a model that is trained, but this is {name}")
        predictor = fit_baseline(name, cells, given.seed, given.progress.part(0, 1, name))
        predictor = replace(predictor, calibration=calibration)
        return Fitted(given.table, cells, predictor, notes, name)
    members = TableFeatures.of(given.table, given.features)
    reader = partial(
        ModelPredictor.of,
        features=members.to_tensors(),
        device=given.device,
        memory=given.memory,
        processes=given.processes,
    )
    if name in RECIPES:
        split = ValidationSplit(given.validation, given.seed)
        execution = Execution(
            given.device,
            memory=given.memory,
            processes=given.processes,
            progress=given.progress,
        )
        trained = train_recipe(
            name, cells, split, execution, members=members, training=given.training
        )
        calibration = _by_validation(split, cells, partial(reader, trained))
        notes = (*notes, *_told(trained))
    else:
        check_model(name)
        pretrained = name == bundled.NAME
        trained = (
            bundled.bundled_model(given.table.order) if pretrained else TrainedModel.load(name)
        )
        trained.check_feature_names(members.names)
        cells = replace(cells, scale=trained.codec.scale_for(cells.scale))
    further: list[str] = []
    model = reader(trained, cells, progress=replace(given.progress, note=further.append))
    if given.model == bundled.NAME:
        trial = backtest(model, cells)
        if trial is not None:
            calibration, notes = trial.calibration, (*notes, str(trial))
    model = replace(model, calibration=calibration)
    return Fitted(given.table, cells, model, (*notes, *further), name)


def _chosen(given: FitRequest, cells: Cells) -> tuple[str, Calibration, tuple[str, ...]]:
    """The model that was asked for, or else the one that does best on hidden cells; and why.

    Hidden cells tell, too, how its intervals are to be set right.
    """
    if given.model != "auto":
        return given.model, UNCALIBRATED, ()
    order = given.table.order
    if order not in bundled.bundled_orders():
        axes = "1 axis" if order == 1 else f"{order} axes"
        told = f"model {ANY_ORDER}: none is pretrained for tables of {axes}"
        return ANY_ORDER, UNCALIBRATED, (told,)
    if given.features:
        return bundled.NAME, UNCALIBRATED, ()  # it takes none, which is told where it is read
    trial = tried(cells, given.seed, given.device, given.progress, given.memory)
    if trial is None:
        why = "cells are too few, or too much alike, to hide some and try others"
        return bundled.NAME, UNCALIBRATED, (f"model {bundled.NAME}: {why}",)
    return trial.best, trial.calibration, (str(trial),)


def _by_validation(
    split: ValidationSplit, cells: Cells, reader: Callable[[Cells], Predictor]
) -> Calibration:
    """Of a model that was trained here, from the cells that were kept back."""
    shown, kept = split.of(cells)
    if not len(kept):
        return UNCALIBRATED
    return Calibration.fit(predict_and_rank(reader(shown), kept.index, kept.values)[1])


def check_model(name: str) -> None:
    """Raise unless there is a model of this name, or in this folder."""
    check_renamed(name)
    known = ["auto", bundled.NAME, *BASELINES, *RECIPES]
    if name not in known and "/" not in name and not checkpoint.exists(name):
        raise InputError(
            f"model must be one of {', '.join(known)}, or a saved model's folder, but is {name!r}"
        )


def finetuned(
    fitted: Fitted, training: TrainingConfig, split: ValidationSplit, progress: Progress
) -> Fitted:
    """The same model after gradient steps on this table.

    If it was trained on these very cells, it is judged by those that were kept then: it has
    seen all others.
    """
    before = fitted.predictor
    assert isinstance(before, ModelPredictor)
    trained, facts = before.trained, facts_of(fitted.cells, split)
    if trained.facts.get("data") == facts["data"] and "validation" in trained.facts:
        split = ValidationSplit(*trained.facts["validation"])
    facts = {**trained.facts, **facts, "validation": [split.share, split.seed]}
    if TRAINED_ON in facts:
        facts[TRAINED_ON] = f"synthetic tables, then {ITS_TABLE}"
        if trained.facts[TRAINED_ON] != SYNTHETIC and trained.facts["data"] != facts["data"]:
            facts[TRAINED_ON] = f"synthetic tables, others, then {ITS_TABLE}"
    better = train_model(
        trained.config,
        trained.codec,
        task_of(fitted.cells, before.features, split),
        training,
        name=trained.name,
        facts=facts,
        execution=Execution(
            trained.model.device,
            memory=before.limit,
            progress=progress,
        ),
        start=trained,
    )
    reader = partial(ModelPredictor.of, better, features=before.features, memory=before.limit)
    calibration = _by_validation(split, fitted.cells, reader)
    predictor = replace(reader(fitted.cells), calibration=calibration)
    return replace(fitted, predictor=predictor, notes=(*fitted.notes, *_told(better)))


def _told(trained: TrainedModel) -> tuple[str, ...]:
    found = trained.facts
    rmse = f", validation RMSE {found['validation RMSE']:.4f}" if "validation RMSE" in found else ""
    return (f"trained for {found['steps']:,} steps, best at {found['best step']:,}{rmse}",)
