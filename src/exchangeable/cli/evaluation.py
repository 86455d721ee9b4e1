"""``exchangeable evaluate``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.cli.options import (
    DEFAULTS,
    AsJson,
    Device,
    FeatureFiles,
    Force,
    SampleCells,
    TableArgument,
    open_table,
    with_table_options,
)
from exchangeable.cli.output import (
    STANDARD_STREAM,
    Output,
    check_plotting,
    check_writable,
    progress_bar,
    report_errors,
)
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError
from exchangeable.runtime.files import whole_file
from exchangeable.runtime.phrases import format_count

if TYPE_CHECKING:
    from exchangeable.data.table import Table
    from exchangeable.datasets.source import Dataset
    from exchangeable.evaluation.comparison import Evaluation
    from exchangeable.evaluation.ranking import RankingEvaluation


@report_errors
@with_table_options
def evaluate(
    table: TableArgument,
    models: Annotated[
        str | None,
        typer.Option(
            help="Names or folders of models, separated by commas; by default auto and vmf, and "
            "pretrained for positives."
        ),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            help="random (of positives: of each user), new-rows, new-columns, new-both, time, or a "
            "split of the dataset."
        ),
    ] = "random",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0",
    test: Annotated[
        float | None,
        typer.Option(
            help="Share of cells or members to hold out; by default 0.1, and 0.2 of positives."
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Of the lists of positives, separated by commas, as in recall@20,ndcg@10; also "
            "precision, hit and mrr. All unseen items are candidates."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Gradient steps of models that are trained.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file, .json; a .png is written beside it.")
    ] = None,
    features: FeatureFiles = None,
    device: Device = "auto",
    sample_cells: SampleCells = None,
    force: Force = False,
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Compare models on held-out cells, and always with bias and bmf.

    Of positives the lists of all unseen items are compared, and always with popularity, ease and
    ials.
    """
    from exchangeable.cli.features import read_features

    title = "stdin" if table == STANDARD_STREAM else Path(table).name
    force = force or out is None  # its own results of before are replaced
    out = out or Path(f"{title}.{split}.json")
    if out.suffix != ".json":
        raise InputError(f"{out}: the name must end in .json, but ends in {out.suffix!r}")
    plot = out.with_suffix(".png")
    check_writable(out, force)
    check_writable(plot, force)
    numbers = list(dict.fromkeys(_parse_seed(seed) for seed in seeds.split(",")))
    data, dataset = open_table(table, options)
    positives = data.scale.kind == "positives" and data.order == 2
    if metrics is not None and not positives:
        raise InputError(
            f"metrics are those of positives of two axes, but this table has {data.order} and "
            f"{data.scale}; --at-least makes positives of values"
        )
    usual = "pretrained" if positives else "auto,vmf"
    names = [name.strip() for name in (models or usual).split(",") if name.strip()]
    settings: dict[str, Any] = {
        "split": split,
        "models": names,
        "seeds": numbers,
        "device": device,
        "name": title,
    }
    source = data if dataset is None else dataset
    if positives:
        if steps is not None:
            raise InputError("--steps are those of models that are trained, but these rank")
        if sample_cells is not None:
            raise InputError("--sample-cells is of models that are trained, but these rank")
        if features:
            raise InputError("--features are read where cells have values, but these are positives")
        shown = _compare_lists(source, metrics, test, settings)
    else:
        settings["features"] = read_features(features, data, options.encoding) or None
        settings["sample_cells"] = sample_cells
        shown = _compare_values(source, steps, test, settings)
    with whole_file(out) as target:
        target.write_text(json.dumps(shown.facts, indent=1))
    output = Output(as_json)
    if not as_json:
        shown.show()
        output.line(*shown.warnings)
    try:
        check_plotting()
        shown.plot(plot)
        plotted = f"picture in {plot}"
    except InputError as error:
        plotted = f"no picture: {error}"
    output.fact(**shown.facts, out=str(out), picture=plotted)
    output.finish(f"results in {out}, {plotted}")


@dataclass(frozen=True, eq=False)
class _Shown:
    """A comparison, and how it is printed and plotted."""

    facts: dict[str, Any]
    show: Callable[[], None]
    plot: Callable[[Path], None]
    warnings: tuple[str, ...] = ()


def _compare_values(
    source: Dataset | Table, steps: int | None, test: float | None, settings: dict[str, Any]
) -> _Shown:
    from exchangeable.evaluation.comparison import evaluate, picture

    with progress_bar() as progress:
        result = evaluate(
            source, test=0.1 if test is None else test, steps=steps, progress=progress, **settings
        )
    notes = tuple(note for o in result.outcomes for note in o.notes if "very cells" in note)
    return _Shown(
        result.to_json(), lambda: _show(result), lambda path: picture(result, path), notes
    )


def _compare_lists(
    source: Dataset | Table, metrics: str | None, test: float | None, settings: dict[str, Any]
) -> _Shown:
    from exchangeable.evaluation.ranking import METRICS, evaluate_ranking, picture
    from exchangeable.evaluation.ranking_metrics import parse_metrics

    chosen = METRICS if metrics is None else parse_metrics(metrics)
    with progress_bar() as progress:
        result = evaluate_ranking(
            source,
            test=0.2 if test is None else test,
            metrics=chosen,
            progress=progress,
            **settings,
        )
    return _Shown(result.to_json(), lambda: _show_lists(result), lambda path: picture(result, path))


def _show_lists(result: RankingEvaluation) -> None:
    from rich.console import Console
    from rich.table import Table

    users = len(next(iter(result.outcomes[0].figures.values())))
    judged = format_count(users, "user")
    title = f"{result.name}, split {result.split}: lists of all unseen items, {judged}"
    table = Table(title=title)
    last = str(result.metrics[-1])
    for heading in ("model", *map(str, result.metrics), f"{last} below the best", "s"):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    for model in result.models:
        paired = result.against_best(model, last)
        below = "best"
        if paired is not None:
            below = f"{abs(paired.difference):.4f}"  # the best one is nowhere behind
            if paired.low is not None and paired.high is not None:
                below += f" ({-paired.high:.4f} to {-paired.low:.4f})".replace("-0.0000", "0.0000")
        figures = [f"{result.spread(model, str(metric)).mean:.4f}" for metric in result.metrics]
        table.add_row(model, *figures, below, f"{result.seconds(model):.1f}")
    Console(width=None if sys.stdout.isatty() else 140).print(table)


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
