"""``exchangeable train``, ``finetune`` and ``pretrain``: train models and save them."""

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
    with_table_options,
)
from exchangeable.cli.output import Output, progress_bar, report_errors
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError
from exchangeable.runtime.phrases import format_count

if TYPE_CHECKING:
    from exchangeable.data.table import Table
    from exchangeable.training.trained_model import TrainedModel

Steps = Annotated[int | None, typer.Option(help="Number of gradient steps.")]
Batch = Annotated[
    str | None,
    typer.Option(
        help="Cells that a step sees: full, uniform, conditional, rows-columns or neighbourhood."
    ),
]
BatchCells = Annotated[int | None, typer.Option(help="Approximate number of cells of a step.")]
LearningRate = Annotated[float | None, typer.Option(help="Highest learning rate.")]
Patience = Annotated[
    int | None, typer.Option(help="Validations without improvement after which training stops.")
]
Validation = Annotated[float, typer.Option(help="Share of the cells held out for validation.")]
SaveEvery = Annotated[float, typer.Option(help="Seconds between two saves.")]
Split = Annotated[
    str | None, typer.Option(help="Train only on the training cells of this split of a dataset.")
]
OutFolder = Annotated[Path, typer.Option(help="Folder for the model.")]
Precision = Annotated[str, typer.Option(help="auto, float32 or bfloat16.")]


@report_errors
@with_table_options
def train(
    table: TableArgument,
    out: OutFolder,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "--recipe",
            help="residual, or one of the paper's: self-supervised or factorized, also as -text or "
            "-released.",
        ),
    ] = "residual",
    steps: Steps = None,
    width: Annotated[int | None, typer.Option(help="Number of channels of every layer.")] = None,
    depth: Annotated[int | None, typer.Option(help="Number of layers.")] = None,
    value_encoding: Annotated[
        str | None,
        typer.Option(
            help="Encoding of values: one-hot, or scale-free for tables of other scales too."
        ),
    ] = None,
    batch: Batch = None,
    batch_cells: BatchCells = None,
    learning_rate: LearningRate = None,
    hide: Annotated[str | None, typer.Option(help="flat, rows, columns, mixed or nothing.")] = None,
    loss: Annotated[str | None, typer.Option(help="cross-entropy, squared or both.")] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Steps between two validations.")
    ] = None,
    patience: Patience = None,
    validation: Validation = 0.05,
    split: Split = None,
    features: FeatureFiles = None,
    precision: Precision = "auto",
    save_every: SaveEvery = 60.0,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    memory: Memory = None,
    force: Force = False,
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Train a model on a table and save it. Ctrl-C saves the run; --resume continues it.

    Under torchrun several processes share the cells, and the first of them saves.
    """
    _check_out(out, force, resume, ", --resume continues it")
    from exchangeable.cli.features import read_features
    from exchangeable.data.features import TableFeatures
    from exchangeable.data.negatives import observed_cells
    from exchangeable.runtime.devices import find_device, parse_size
    from exchangeable.runtime.processes import join_processes
    from exchangeable.runtime.random import check_seed
    from exchangeable.training.execution import Execution
    from exchangeable.training.recipes import find_recipe
    from exchangeable.training.task import ValidationSplit
    from exchangeable.training.train_model import train_recipe

    limit, seed = parse_size(memory), check_seed(seed)
    changed = _drop_unset(
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
    training = replace(find_recipe(model).training, **changed)
    _check_precision(precision)
    with join_processes() as processes:
        output = Output(as_json, processes)
        read = _read_table(options, table, split).in_label_order()
        cells, notes = observed_cells(read, seed)
        members = TableFeatures.of(read, read_features(features, read, options.encoding))
        notes = (*notes, *members.found)
        output.line(*notes)
        output.fact(notes=list(notes))
        with progress_bar(processes) as progress:
            trained = train_recipe(
                model,
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
                encoding=value_encoding,  # type: ignore[arg-type]  # checked there
                width=width,
                depth=depth,
                resume=resume,
            )
        _report_trained(output, trained, out)


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
    """Train a model further on your table; steps that do not improve validation are discarded."""
    _check_out(out, force)
    from exchangeable.cli.features import read_features
    from exchangeable.completion.completer import Completer
    from exchangeable.predictors.model import ModelPredictor
    from exchangeable.predictors.units import unwrapped
    from exchangeable.runtime import checkpoint
    from exchangeable.runtime.random import check_seed
    from exchangeable.training.recipes import FINETUNING
    from exchangeable.training.trained_model import TrainedModel

    seed = check_seed(seed)
    if model != "pretrained":
        if not checkpoint.exists(model):
            raise InputError(
                f"the model to finetune must be pretrained, or the folder of a trained model, but "
                f"is {model!r}"
            )
        TrainedModel.load(model)  # raise what is wrong with it before the table is read
    output = Output(as_json)
    changed = _drop_unset(
        steps=steps, learning_rate=learning_rate, batch=batch, batch_cells=batch_cells, seed=seed
    )
    training = replace(FINETUNING, **changed)
    completer = Completer(model, seed=seed, device=device, validation=validation)
    read = _read_table(options, table, split)
    completer.fit_table(read, features=read_features(features, read, options.encoding))
    output.line(*completer.notes_)
    output.fact(notes=list(completer.notes_))
    with progress_bar() as progress:
        completer.finetune(training=training, progress=progress)
    predictor = unwrapped(completer.predictor_)
    assert isinstance(predictor, ModelPredictor)
    predictor.trained.save(out)
    _report_trained(output, predictor.trained, out)


@report_errors
def pretrain(
    out: Annotated[Path, typer.Option(help="Folder for the model; a run there is resumed.")],
    order: Annotated[int, typer.Option(help="Number of axes of the tables.")] = 2,
    steps: Annotated[int | None, typer.Option(help="Gradient steps, one table in each.")] = None,
    cells: Annotated[int | None, typer.Option(help="Maximum number of cells of a table.")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Processes that draw tables; default: all cores but one."),
    ] = None,
    save_every: SaveEvery = 60.0,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train a model on synthetic tables alone, for tables of any kind. Ctrl-C saves the run."""
    _check_out(out, force=False, resume=True)
    from exchangeable.pretraining.curriculum import make_curriculum
    from exchangeable.pretraining.pretrain import pretrain as pretrain_model
    from exchangeable.runtime.devices import find_device
    from exchangeable.runtime.random import check_seed
    from exchangeable.training.execution import Execution

    settings = _drop_unset(order=order, steps=steps, cells=cells)
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
    taken = format_count(trained.facts["steps"], "step")
    output.finish(
        f"pretrained: {taken}; error on other tables {error:.4f} of that of the closed-form start; "
        f"saved in {out}"
    )


def _drop_unset(**settings: Any) -> dict[str, Any]:
    """Return the settings without those that are None."""
    return {name: setting for name, setting in settings.items() if setting is not None}


def _report_trained(output: Output, trained: TrainedModel, out: Path) -> None:
    facts = {name.replace(" ", "_"): fact for name, fact in trained.facts.items()}
    output.fact(out=str(out), **facts)
    error = trained.facts.get("validation RMSE")
    rmse = "" if error is None else f", validation RMSE {error:.4f}"
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


def _read_table(options: TableOptions, name: str, split: str | None) -> Table:
    """Read a table, or the training and validation cells of one of its splits."""
    import numpy as np

    if options.units is not None:
        raise InputError("--units are chosen where a table is completed, but a model is trained")
    table, dataset = open_table(name, options)
    if split is None:
        return table
    splits = {} if dataset is None else dataset.splits
    if split not in splits:
        listed = ", ".join(splits) or "none"
        raise InputError(f"split must be one that comes with the data ({listed}), but is {split!r}")
    return table.take(np.concatenate([splits[split].train, splits[split].validation]))
