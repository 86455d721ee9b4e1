"""``exchangeable evaluate`` and ``doctor``: how well it does, and whether it works here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.cli.common import (
    DEFAULTS,
    AsJson,
    Device,
    Force,
    Output,
    TableArgument,
    check_drawable,
    check_free,
    open_table,
    progress_bar,
    report_errors,
    with_table_options,
)
from exchangeable.data.options import TableOptions
from exchangeable.errors import Failed, InputError
from exchangeable.runtime.files import write_whole

if TYPE_CHECKING:
    from exchangeable.evaluation.comparison import Evaluation


@report_errors
@with_table_options
def evaluate(
    table: TableArgument,
    models: Annotated[str, typer.Option(help="Names or folders, separated by commas.")] = "vmf",
    split: Annotated[
        str,
        typer.Option(
            help="random, new-rows, new-columns, new-both, time, or one of the dataset's own."
        ),
    ] = "random",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0",
    test: Annotated[float, typer.Option(help="Share of cells or members to test on.")] = 0.1,
    steps: Annotated[int | None, typer.Option(help="Of the models that are trained.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the figures: .json, and a .png beside it.")
    ] = None,
    device: Device = "auto",
    force: Force = False,
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Compare models on cells that are hidden from them, the yardsticks among them."""
    place = out or Path(f"{Path(table).name}.{split}.json")
    if place.suffix != ".json":
        raise InputError(f"{place}: a name that ends in .json is needed")
    drawn = place.with_suffix(".png")
    check_free(place, force)
    check_free(drawn, force)
    chosen = list(dict.fromkeys(_whole(seed, "seeds") for seed in seeds.split(",")))
    found, dataset = open_table(table, options)
    from exchangeable.evaluation.comparison import evaluate as compare
    from exchangeable.evaluation.comparison import picture

    names = [name.strip() for name in models.split(",") if name.strip()]
    with progress_bar() as progress:
        result = compare(
            found if dataset is None else dataset,
            split=split,
            models=names,
            seeds=chosen,
            test=test,
            steps=steps,
            device=device,
            name=Path(table).name,
            progress=progress,
        )
    facts = result.to_json()
    write_whole(place, lambda path: path.write_text(json.dumps(facts, indent=1)))
    output = Output(as_json)
    if not as_json:
        _show(result)
        output.say(*[note for o in result.outcomes for note in o.notes if "very cells" in note])
    try:
        check_drawable()
        picture(result, drawn)
        told = f"picture in {drawn}"
    except InputError as error:
        told = f"no picture: {error}"
    output.know(**facts, out=str(place), picture=told)
    output.end(f"figures in {place}, {told}")


def _show(result: Evaluation) -> None:
    from rich.console import Console
    from rich.table import Table

    from exchangeable.evaluation.comparison import METRICS

    shown = {m: t for m, t in METRICS.items() if result.spread(result.best(), m) is not None}
    table = Table(title=f"{result.name}, split {result.split}: on hidden cells")
    for heading in ("model", *shown.values(), "above the best", "s"):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    for model in sorted(result.models, key=lambda m: result.spread(m, "rmse").mean):  # type: ignore[union-attr]
        paired = result.against_best(model)
        above = (
            "best"
            if paired is None
            else f"{paired.difference:.4f} ({paired.low:.4f} to {paired.high:.4f})"
        )
        table.add_row(
            model,
            *[_figure(result, model, metric) for metric in shown],
            above,
            f"{result.seconds(model):.1f}",
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _figure(result: Evaluation, model: str, metric: str) -> str:
    spread = result.spread(model, metric)
    if spread is None:
        return "–"
    mean = f"{spread.mean:.4f}"
    told = metric == "rmse" and spread.deviation is not None
    return f"{mean} ± {spread.deviation:.4f}" if told else mean


@report_errors
def doctor(device: Device = "auto", as_json: AsJson = False) -> None:
    """Versions, devices, and a self-test of two seconds."""
    from exchangeable.cli.diagnostics import facts, self_test

    output = Output(as_json)
    known: dict[str, Any] = facts()
    output.say(*[f"{name}: {what}" for name, what in known.items()])
    checks = self_test(device)
    output.say(*[f"{'ok  ' if ok else 'FAIL'} {name}" for name, ok in checks.items()])
    output.know(**known, checks=checks)
    wrong = [name for name, ok in checks.items() if not ok]
    output.end("" if wrong else "all is well")
    if wrong:
        raise Failed(f"the self-test failed: {', '.join(wrong)}")


def _whole(text: str, name: str) -> int:
    if not text.strip().isdecimal():
        raise InputError(f"{name} must be whole numbers of 0 or more, but one is {text!r}")
    return int(text)
