"""``exchangeable evaluate``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable.cli.options import (
    DEFAULTS,
    AsJson,
    Device,
    Force,
    TableArgument,
    open_table,
    with_table_options,
)
from exchangeable.cli.output import (
    Output,
    check_plotting,
    check_writable,
    progress_bar,
    report_errors,
)
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError
from exchangeable.runtime.files import whole_file

if TYPE_CHECKING:
    from exchangeable.evaluation.comparison import Evaluation


@report_errors
@with_table_options
def evaluate(
    table: TableArgument,
    models: Annotated[
        str, typer.Option(help="Names or folders of models, separated by commas.")
    ] = "vmf",
    split: Annotated[
        str,
        typer.Option(
            help="random, new-rows, new-columns, new-both, time, or a split of the dataset."
        ),
    ] = "random",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0",
    test: Annotated[float, typer.Option(help="Share of cells or members to hold out.")] = 0.1,
    steps: Annotated[
        int | None, typer.Option(help="Gradient steps of models that are trained.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file, .json; a .png is written beside it.")
    ] = None,
    device: Device = "auto",
    force: Force = False,
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Compare models, and always bias and bmf, on held-out cells."""
    out = out or Path(f"{Path(table).name}.{split}.json")
    if out.suffix != ".json":
        raise InputError(f"{out}: the name must end in .json, but ends in {out.suffix!r}")
    plot = out.with_suffix(".png")
    check_writable(out, force)
    check_writable(plot, force)
    numbers = list(dict.fromkeys(_parse_seed(seed) for seed in seeds.split(",")))
    data, dataset = open_table(table, options)
    from exchangeable.evaluation.comparison import evaluate as compare
    from exchangeable.evaluation.comparison import picture

    names = [name.strip() for name in models.split(",") if name.strip()]
    with progress_bar() as progress:
        result = compare(
            data if dataset is None else dataset,
            split=split,
            models=names,
            seeds=numbers,
            test=test,
            steps=steps,
            device=device,
            name=Path(table).name,
            progress=progress,
        )
    facts = result.to_json()
    with whole_file(out) as target:
        target.write_text(json.dumps(facts, indent=1))
    output = Output(as_json)
    if not as_json:
        _show(result)
        output.line(*[note for o in result.outcomes for note in o.notes if "very cells" in note])
    try:
        check_plotting()
        picture(result, plot)
        plotted = f"picture in {plot}"
    except InputError as error:
        plotted = f"no picture: {error}"
    output.fact(**facts, out=str(out), picture=plotted)
    output.finish(f"results in {out}, {plotted}")


def _show(result: Evaluation) -> None:
    from rich.console import Console
    from rich.table import Table

    from exchangeable.evaluation.comparison import METRICS

    shown = {m: t for m, t in METRICS.items() if result.spread(result.best(), m) is not None}
    table = Table(title=f"{result.name}, split {result.split}: error on held-out cells")
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
    if metric != "rmse" or spread.deviation is None:
        return mean
    return f"{mean} ± {spread.deviation:.4f}"


def _parse_seed(text: str) -> int:
    if not text.strip().isdecimal():
        raise InputError(f"seeds must be whole numbers of 0 or more, but one is {text!r}")
    return int(text)
