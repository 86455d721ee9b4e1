"""Finetune a fitted model: gradient steps on its own table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from exchangeable.completion.fit import Fitted, describe_training
from exchangeable.completion.select import calibrate_on_validation
from exchangeable.predictors.base import Predictor
from exchangeable.predictors.model import ModelPredictor
from exchangeable.predictors.units import UnitsPredictor, in_units, unwrapped
from exchangeable.runtime.progress import Progress
from exchangeable.training.config import TrainingConfig
from exchangeable.training.execution import Execution
from exchangeable.training.task import ValidationSplit, facts_of, task_of
from exchangeable.training.train_model import train_model
from exchangeable.training.trained_model import ITS_TABLE, SYNTHETIC, TRAINED_ON


def finetune(
    fitted: Fitted, training: TrainingConfig, split: ValidationSplit, progress: Progress
) -> Fitted:
    """Take gradient steps on the fitted table.

    If the model was trained on these very cells, the validation cells of that training are used
    again: the model has seen all others. Where no step helps, predictions stay as they are.
    """
    around = fitted.predictor
    before, cells = unwrapped(around), fitted.cells
    assert isinstance(before, ModelPredictor)
    if isinstance(around, UnitsPredictor):
        cells = in_units(around.units, cells)
    trained, facts = before.trained, facts_of(cells, split)
    if trained.facts.get("data") == facts["data"] and "validation" in trained.facts:
        split = ValidationSplit(*trained.facts["validation"])
    facts = {**trained.facts, **facts, "validation": [split.share, split.seed]}
    if TRAINED_ON in facts:
        facts[TRAINED_ON] = f"synthetic tables, then {ITS_TABLE}"
        if trained.facts[TRAINED_ON] != SYNTHETIC and trained.facts["data"] != facts["data"]:
            facts[TRAINED_ON] = f"synthetic tables, others, then {ITS_TABLE}"
    finetuned = train_model(
        trained.config,
        trained.codec,
        task_of(cells, before.features, split),
        training,
        name=trained.name,
        facts=facts,
        execution=Execution(before.device, memory=before.memory_limit, progress=progress),
        start=trained,
    )
    predictor: Predictor
    if finetuned.facts["best step"]:
        condition = partial(
            ModelPredictor.of, finetuned, features=before.features, memory=before.memory_limit
        )
        calibration = calibrate_on_validation(split, cells, condition)
        predictor = replace(condition(cells), calibration=calibration)
    else:  # the weights of before, and with them what the table's held-out cells say of these
        predictor = replace(before.refreshed(cells), trained=finetuned)
    if isinstance(around, UnitsPredictor):
        predictor = around.of(around.units, around.chosen, fitted.cells, predictor)
    notes = (*fitted.notes, describe_training(finetuned))
    return replace(fitted, predictor=predictor, notes=notes)
