"""Train a model, or a recipe's model, in a folder where the run can be resumed."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from exchangeable.arrays.cells import Cells
from exchangeable.errors import InputError
from exchangeable.models.configs import ModelConfig, build
from exchangeable.runtime import checkpoint
from exchangeable.runtime.interruption import Interrupted
from exchangeable.runtime.processes import Processes
from exchangeable.training.config import TrainingConfig
from exchangeable.training.execution import Execution
from exchangeable.training.loop import How, train
from exchangeable.training.plan import plan_step
from exchangeable.training.recipes import find_recipe, resize
from exchangeable.training.run import Run, reporting
from exchangeable.training.task import Task, ValidationSplit, facts_of, fingerprint_of, task_of
from exchangeable.training.trained_model import TrainedModel, without_removed
from exchangeable.values.codecs import Codec, Encoding, codec_for

if TYPE_CHECKING:
    from exchangeable.data.features import TableFeatures


def train_model(
    config: ModelConfig,
    codec: Codec,
    task: Task,
    training: TrainingConfig,
    *,
    name: str,
    facts: dict[str, Any],
    execution: Execution,
    start: TrainedModel | None = None,
    resume: bool = False,
) -> TrainedModel:
    """Train from random weights, or from those of ``start``, or go on where a folder stands."""
    facts = {**facts, "task": fingerprint_of(task), "precision": execution.precision}
    model = build(config, training.seed) if start is None else copy.deepcopy(start.model)
    run = Run.start(model.to(execution.device), training)
    trained = TrainedModel(config, codec, run.best, training, name, facts)
    if resume:
        before = _find_run(trained, execution)
        _check_ranks_agree(before, execution.processes)
        if isinstance(before, TrainedModel):
            return before
        if before is not None:
            run.restore(*before)
    cells = len(task.observed)
    seen = cells if training.batch == "full" else min(cells, training.batch_cells)
    plan, sentence = plan_step(
        run.model,
        codec,
        task.to(execution.device),
        seen,
        execution.memory,
        execution.precision,
    )
    execution.progress.note(sentence)

    def save(unfinished: Run) -> None:
        assert execution.folder is not None
        trained.told(unfinished).save(execution.folder, run=unfinished)

    try:
        train(
            run,
            codec,
            task,
            training,
            how=How(execution.precision, plan, execution.processes),
            report=reporting(execution.progress),
            save=None if execution.folder is None or not execution.processes.first else save,
            save_every=execution.save_every,
        )
    except Interrupted as stopped:
        kept = "nothing was saved" if execution.folder is None else f"saved in {execution.folder}"
        raise Interrupted(f"{stopped}; {kept}") from None
    finished = trained.told(run)
    if execution.folder is not None and execution.processes.first:
        finished.save(execution.folder)
    return finished


def _find_run(
    wanted: TrainedModel, execution: Execution
) -> TrainedModel | tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Where the run in a folder stands: finished, somewhere, or not there."""
    folder = execution.folder
    if folder is None:
        raise InputError("a run is resumed from its folder, but none was given")
    if not checkpoint.exists(folder):
        execution.progress.note(f"there is no run in {folder} yet: this is its start")
        return None
    stored = checkpoint.load(folder)
    described, _ = wanted.parts()
    before = {**stored.config, "model": without_removed(stored.config.get("model", {}))}
    for part in described:
        # What was saved went through JSON, where tuples are lists.
        if before.get(part) != json.loads(json.dumps(described[part])):
            raise InputError(
                f"{folder}: a run can be resumed with the settings it was started with, but its "
                f"{part} differs"
            )
    for part, told in {"data": "cells", "task": "validation cells or features"}.items():
        if stored.facts.get(part) != wanted.facts.get(part):
            raise InputError(f"{folder}: the run was started with other {told} than these")
    if stored.facts.get("precision") != wanted.facts["precision"]:
        raise InputError(f"{folder}: the run was started in another precision")
    if "run" not in stored.config:
        execution.progress.note(f"the run in {folder} is finished already")
        return TrainedModel.load(folder)
    execution.progress.note(f"going on in {folder} after step {stored.config['run']['step']:,}")
    return stored.tensors["training"], stored.config["run"]


def _check_ranks_agree(
    before: TrainedModel | tuple[dict[str, Tensor], dict[str, Any]] | None, processes: Processes
) -> None:
    """Raise unless all processes found the same run, or none: they would wait for each other."""
    if isinstance(before, TrainedModel):
        step = -2.0
    else:
        step = -1.0 if before is None else float(before[1]["step"])
    here = torch.tensor([step, -step])
    (most,) = processes.largest([here.to(processes.home)])
    if float(most[0]) != -float(most[1]):
        raise InputError("every process must see the same folder to resume, but they differ")


def train_recipe(
    name: str,
    cells: Cells,
    split: ValidationSplit,
    execution: Execution,
    *,
    members: TableFeatures | None = None,
    training: TrainingConfig | None = None,
    encoding: Encoding | None = None,
    width: int | None = None,
    depth: int | None = None,
    resume: bool = False,
) -> TrainedModel:
    """Train a recipe's model on the cells, some of which are held out for validation.

    What is not given is as in the recipe, with the seed of the split.
    """
    recipe, codec = find_recipe(name), codec_for(cells.scale, encoding)
    sizes, features = ((), None) if members is None else (members.sizes, members.to_tensors())
    return train_model(
        resize(recipe.model(codec, len(cells.shape), sizes), width, depth),
        codec,
        task_of(cells, features, split),
        training or replace(recipe.training, seed=split.seed),
        name=name,
        facts=facts_of(cells, split, members),
        execution=execution,
        resume=resume,
    )
