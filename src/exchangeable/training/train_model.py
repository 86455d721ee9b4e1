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
from exchangeable.training.loop import Examples, train
from exchangeable.training.masking import ExampleSource
from exchangeable.training.memory_plan import plan_step
from exchangeable.training.recipes import find_recipe, resize
from exchangeable.training.run import Run
from exchangeable.training.task import Task, ValidationSplit, facts_of, task_of
from exchangeable.training.trained_model import TrainedModel, without_removed
from exchangeable.values.codecs import Codec, Encoding, codec_for

if TYPE_CHECKING:
    from exchangeable.data.features import TableFeatures


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

    Settings that are not given are those of the recipe, with the seed of the split.
    """
    recipe, codec = find_recipe(name), codec_for(cells.scale, encoding)
    sizes = () if members is None else members.sizes
    config = resize(recipe.model(codec, len(cells.shape), sizes), width, depth)
    config = replace(config, joint=cells.joint)
    features = None
    if members is not None:
        features = members.to_tensors(centred=config.prior_reads_features)
    return train_model(
        config,
        codec,
        task_of(cells, features, split),
        training or replace(recipe.training, seed=split.seed),
        name=name,
        facts=facts_of(cells, split, members),
        execution=execution,
        resume=resume,
    )


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
    """Train from random weights or from those of ``start``, or resume the run in a folder."""
    facts = {**facts, "task": task.fingerprint(), "precision": execution.precision}
    model = build(config, training.seed) if start is None else copy.deepcopy(start.model)
    run = Run.start(model.to(execution.device), training)
    trained = TrainedModel(config, codec, run.best, training, name, facts)
    finished = resume_run(trained, run, execution) if resume else None
    if finished is not None:
        return finished
    cells = len(task.observed)
    batch = cells if training.batch == "full" else min(cells, training.batch_cells)
    plan, sentence = plan_step(
        run.model,
        codec,
        task.to(execution.device),
        batch,
        execution.memory,
        execution.precision,
    )
    execution.progress.note(sentence)
    examples = ExampleSource(run, codec, task)
    return finish_run(trained, run, examples, replace(execution, plan=plan))


def resume_run(trained: TrainedModel, run: Run, execution: Execution) -> TrainedModel | None:
    """Restore the run in the execution's folder; return its result if it is finished."""
    before = _find_run(trained, execution)
    _check_ranks_agree(before, execution.processes)
    if isinstance(before, TrainedModel):
        return before
    if before is not None:
        run.restore(*before)
    return None


def finish_run(
    trained: TrainedModel, run: Run, examples: Examples, execution: Execution
) -> TrainedModel:
    """Train to the end, and save in the execution's folder on the way and at the end."""
    folder = execution.folder if execution.processes.first else None

    def save(unfinished: Run) -> None:
        assert folder is not None
        trained.with_results(unfinished).save(folder, run=unfinished)

    try:
        train(run, examples, execution, save=None if folder is None else save)
    except Interrupted as stopped:
        saved = "nothing was saved" if execution.folder is None else f"saved in {execution.folder}"
        raise Interrupted(f"{stopped}; {saved}") from None
    finished = trained.with_results(run)
    if folder is not None:
        finished.save(folder)
    return finished


def _find_run(
    expected: TrainedModel, execution: Execution
) -> TrainedModel | tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return the result of the run in a folder, its state if it is unfinished, or none."""
    folder, note = execution.folder, execution.progress.note
    if folder is None:
        raise InputError("a run is resumed from its folder, but none was given")
    if not checkpoint.exists(folder):
        note(f"there is no run in {folder} yet: this is its start")
        return None
    stored = checkpoint.load(folder)
    described, _ = expected.to_parts()
    # What was saved went through JSON, where tuples are lists.
    settings = _modernise(json.loads(json.dumps(described)))
    stored_settings = _modernise(stored.config)
    for part, setting in settings.items():
        if stored_settings.get(part) != setting:
            raise InputError(
                f"{folder}: a run can be resumed with the settings it was started with, but its "
                f"{part} differs"
            )
    for fact, difference in _COMPARED.items():
        if stored.facts.get(fact) != expected.facts.get(fact):
            raise InputError(f"{folder}: the run was started {difference}")
    if "run" not in stored.config:
        note(f"the run in {folder} is finished already")
        return TrainedModel.load(folder)
    note(f"going on in {folder} after step {stored.config['run']['step']:,}")
    return stored.tensors["training"], stored.config["run"]


def _modernise(settings: dict[str, Any]) -> dict[str, Any]:
    """Return stored settings as they are called now, without those that were removed."""
    name, model = settings.get("name"), without_removed(settings.get("model", {}))
    if settings.get("architecture") == "residual" and name == "self-supervised":
        name = "residual"  # the recipe was called so before
    model = {"joint": False, **model}  # which configurations of before did not have
    return {**settings, "model": model, "name": name}


_COMPARED = {
    "data": "with other cells than these",
    "task": "with other validation cells or features than these",
    "curriculum": "with another curriculum than this",
    "precision": "in another precision",
}
"""Facts that must be equal for a run to be resumed, and what is wrong where they differ."""


def _check_ranks_agree(
    before: TrainedModel | tuple[dict[str, Tensor], dict[str, Any]] | None, processes: Processes
) -> None:
    """Raise unless all processes see the same run, or none: they would wait for each other."""
    if isinstance(before, TrainedModel):
        step = -2.0
    else:
        step = -1.0 if before is None else float(before[1]["step"])
    bounds = torch.tensor([step, -step])
    (largest,) = processes.all_max([bounds.to(processes.home)])
    if float(largest[0]) != -float(largest[1]):
        raise InputError("every process must see the same folder to resume, but they differ")
