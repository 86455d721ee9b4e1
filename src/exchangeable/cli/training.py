"""``exchangeable train``, ``finetune`` and ``pretrain``: models to keep."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.cli.options import (
    DEFAULTS,
    AsJson,
    Device,
    FeatureFiles,
    Force,
    Memory,
    Seed,
    TableArgument,
    open_table,
    read_features,
    with_table_options,
)
from exchangeable.cli.output import Output, progress_bar, report_errors
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError

if TYPE_CHECKING:
    from exchangeable.data.table import Table
    from exchangeable.training.trained_model import TrainedModel

Steps = Annotated[int | None, typer.Option(help="Gradient steps.")]
Batch = Annotated[
    str | None,
    typer.Option(
        help="Cells of a step: full, uniform, conditional, rows-columns or neighbourhood."
    ),
]
BatchCells = Annotated[int | None, typer.Option(help="About how many cells a step sees.")]
LearningRate = Annotated[float | None, typer.Option(help="The highest learning rate.")]
Patience = Annotated[
    int | None, typer.Option(help="Looks at the validation cells without gain before it stops.")
]
Validation = Annotated[float, typer.Option(help="Share of the cells that choices are made on.")]
SaveEvery = Annotated[float, typer.Option(help="Seconds between two savings.")]
Split = Annotated[
    str | None, typer.Option(help="Train on what this split of a dataset shows, and no more.")
]
OutFolder = Annotated[Path, typer.Option(help="The folder for the model.")]
Precision = Annotated[str, typer.Option(help="auto, float32 or bfloat16.")]


@report_errors
@with_table_options
def train(
    table: TableArgument,
    out: OutFolder,
    recipe: Annotated[str, typer.Option(help="residual or factorized.")] = "residual",
    steps: Steps = None,
    width: Annotated[int | None, typer.Option(help="Channels of every layer.")] = None,
    depth: Annotated[int | None, typer.Option(help="Layers.")] = None,
    encoding: Annotated[
        str | None, typer.Option(help="one-hot, or scale-free for tables of other scales too.")
    ] = None,
    batch: Batch = None,
    batch_cells: BatchCells = None,
    learning_rate: LearningRate = None,
    hide: Annotated[str | None, typer.Option(help="flat, rows, columns, mixed or nothing.")] = None,
    loss: Annotated[str | None, typer.Option(help="cross-entropy, squared or both.")] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Steps between two looks at the validation cells.")
    ] = None,
    patience: Patience = None,
    validation: Validation = 0.05,
    split: Split = None,
    features: FeatureFiles = None,
    precision: Precision = "auto",
    save_every: SaveEvery = 60.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where --out stands.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    memory: Memory = None,
    force: Force = False,
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Train a model on a table, and keep it. Ctrl-C saves; --resume goes on.

    Under torchrun several processes share the cells, and the first of them saves.
    """
    _check_out(out, force, resume, ", --resume goes on with it")
    from exchangeable.data.features import TableFeatures
    from exchangeable.data.negatives import observed_cells
    from exchangeable.runtime.devices import find_device, parse_size
    from exchangeable.runtime.processes import join_processes
    from exchangeable.runtime.random import check_seed
    from exchangeable.training.execution import Execution
    from exchangeable.training.recipes import find_recipe
    from exchangeable.training.task import ValidationSplit
    from exchangeable.training.train_model import train_recipe

    chosen, limit = find_recipe(recipe), parse_size(memory)
    seed = check_seed(seed)
    given = _given(
        steps=steps,
        batch=batch,
        batch_cells=batch_cells,
        learning_rate=learning_rate,
        hide=hide,
        loss=loss,
        evaluate_every=evaluate_every,
        patience=patience,
        seed=seed,
    )
    training = replace(chosen.training, **given)
    _check_precision(precision)
    with join_processes() as processes:
        output = Output(as_json, processes)
        found = _shown(options, table, split).in_label_order()
        cells, notes = observed_cells(found, seed)
        output.line(*notes)
        members = TableFeatures.of(found, read_features(features))
        with progress_bar(processes) as progress:
            trained = train_recipe(
                recipe,
                cells,
                ValidationSplit(validation, seed),
                Execution(
                    find_device(device),
                    precision=precision,  # type: ignore[arg-type]  # checked above
                    folder=out,
                    save_every=save_every,
                    memory=limit,
                    processes=processes,
                    progress=replace(progress, note=output.line),
                ),
                members=members,
                training=training,
                encoding=encoding,  # type: ignore[arg-type]  # checked there
                width=width,
                depth=depth,
                resume=resume,
            )
        _end(output, trained, out)


@report_errors
@with_table_options
def finetune(
    model: Annotated[str, typer.Argument(help="pretrained, or the folder of a trained model.")],
    table: TableArgument,
    out: OutFolder,
    steps: Steps = None,
    learning_rate: LearningRate = None,
    batch: Batch = None,
    batch_cells: BatchCells = None,
    validation: Validation = 0.05,
    split: Split = None,
    features: FeatureFiles = None,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Train a model further on a table of yours; what does not help is not kept."""
    _check_out(out, force)
    from exchangeable.completion.completer import Completer
    from exchangeable.completion.model_predictor import ModelPredictor
    from exchangeable.runtime.random import check_seed
    from exchangeable.training.recipes import FINETUNING
    from exchangeable.training.trained_model import TrainedModel

    seed = check_seed(seed)
    if model != "pretrained":
        TrainedModel.load(model)  # what is wrong with it is told before the table is read
    output = Output(as_json)
    given = _given(
        steps=steps, learning_rate=learning_rate, batch=batch, batch_cells=batch_cells, seed=seed
    )
    training = replace(FINETUNING, **given)
    completer = Completer(model, seed=seed, device=device, validation=validation)
    completer.fit_table(_shown(options, table, split), features=read_features(features))
    output.line(*completer.notes_)
    with progress_bar() as progress:
        completer.finetune(training=training, progress=progress)
    assert isinstance(completer.predictor_, ModelPredictor)
    completer.predictor_.trained.save(out)
    _end(output, completer.predictor_.trained, out)


@report_errors
def pretrain(
    out: Annotated[Path, typer.Option(help="The folder for the model; one begun there goes on.")],
    order: Annotated[int, typer.Option(help="Axes of the tables.")] = 2,
    steps: Annotated[int | None, typer.Option(help="Gradient steps, one table in each.")] = None,
    cells: Annotated[int | None, typer.Option(help="Cells of a table, at most.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that draw tables; all cores but one.")
    ] = None,
    save_every: SaveEvery = 60.0,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train a model on synthetic tables alone, for tables of any kind. Ctrl-C saves."""
    _check_out(out, force=False, resume=True)
    from exchangeable.pretraining.curriculum import make_curriculum
    from exchangeable.pretraining.pretrain import pretrain as pretrain_model
    from exchangeable.runtime.devices import find_device
    from exchangeable.runtime.random import check_seed
    from exchangeable.training.execution import Execution

    settings = _given(order=order, steps=steps, cells=cells)
    curriculum = make_curriculum(seed=check_seed(seed), **settings)
    if workers is None:
        workers = max(1, (os.cpu_count() or 1) - 1)
    output = Output(as_json)
    with progress_bar() as progress:
        execution = Execution(
            find_device(device),
            folder=out,
            save_every=save_every,
            workers=workers,
            progress=progress,
        )
        trained = pretrain_model(curriculum, execution)
    error = trained.facts["validation RMSE"]
    output.fact(out=str(out), error=error, steps=trained.facts["steps"])
    output.finish(
        f"pretrained: {trained.facts['steps']:,} steps; error on other tables {error:.4f} of that "
        f"of what it starts from; saved in {out}"
    )


def _given(**settings: Any) -> dict[str, Any]:
    """Those that were given; others stay as they are."""
    return {name: setting for name, setting in settings.items() if setting is not None}


def _end(output: Output, trained: TrainedModel, out: Path) -> None:
    facts = {name.replace(" ", "_"): fact for name, fact in trained.facts.items()}
    output.fact(out=str(out), **facts)
    judged = trained.facts.get("validation RMSE")
    rmse = "" if judged is None else f", validation RMSE {judged:.4f}"
    step = f"best at step {trained.facts['best step']:,} of {trained.facts['steps']:,}"
    output.finish(f"trained {trained.name}: {step}{rmse}; saved in {out}")


def _check_out(out: Path, force: bool, resume: bool = False, advice: str = "") -> None:
    from exchangeable.runtime import checkpoint, folders

    folders.check_replaceable(folders.resolve_folder(out))
    if checkpoint.exists(out) and not (force or resume):
        raise InputError(f"{out} is there already; --force replaces it{advice}")
    above = next(folder for folder in folders.resolve_folder(out).parents if folder.exists())
    if not os.access(above, os.W_OK):
        raise InputError(f"{out}: nothing may be written to {above}")


def _check_precision(precision: str) -> None:
    if precision not in ("auto", "float32", "bfloat16"):
        raise InputError(f"precision must be auto, float32 or bfloat16, but is {precision!r}")


def _shown(options: TableOptions, name: str, split: str | None) -> Table:
    """The table, or what a split of it shows for training."""
    import numpy as np

    table, dataset = open_table(name, options)
    if split is None:
        return table
    known = {} if dataset is None else dataset.splits
    if split not in known:
        listed = ", ".join(known) or "none"
        raise InputError(f"split must be one that comes with the data ({listed}), but is {split!r}")
    return table.take(np.concatenate([known[split].train, known[split].validation]))
