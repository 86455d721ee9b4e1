"""``exchangeable pretrain``: the model for any table, made again from a seed."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable.cli.common import AsJson, Device, Seed, Teller, one_line, watching

if TYPE_CHECKING:
    from exchangeable.training import Progress


@one_line
def pretrain(
    out: Annotated[Path, typer.Option(help="The folder for the model; one begun there goes on.")],
    order: Annotated[int, typer.Option(help="Axes of the tables.")] = 2,
    steps: Annotated[int | None, typer.Option(help="Gradient steps, a table each.")] = None,
    cells: Annotated[int | None, typer.Option(help="Cells of a table, at most.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that draw tables; all cores but one.")
    ] = None,
    save_every: Annotated[float, typer.Option(help="Seconds between two savings.")] = 60.0,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train a model on synthetic tables alone, for tables of any kind. Ctrl-C saves."""
    from exchangeable.budget import device_of
    from exchangeable.fitting import reporting
    from exchangeable.inputs import checked_seed
    from exchangeable.pretraining import Circumstances, curriculum
    from exchangeable.pretraining import pretrain as learn

    changed = {"order": order, "steps": steps, "cells": cells}
    given = {name: value for name, value in changed.items() if value is not None}
    plan = curriculum(seed=checked_seed(seed), **given)
    if workers is None:
        workers = max(1, (os.cpu_count() or 1) - 1)
    teller = Teller(as_json)
    with watching() as watch:
        told = reporting(watch)

        def report(now: Progress) -> None:
            if math.isnan(now.loss):
                watch("drawing the tables it is judged by", now.step / now.steps)
            else:
                told(now)

        how = Circumstances(device_of(device), workers, save_every, report=report)
        trained = learn(plan, out, how)
    error = trained.facts["validation RMSE"]
    teller.know(out=str(out), error=error, steps=trained.facts["steps"])
    teller.end(
        f"pretrained: {trained.facts['steps']:,} tables; error on others {error:.4f} of that of "
        f"what it starts from; saved in {out}"
    )
