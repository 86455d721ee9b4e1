"""``exchangeable suggest``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable.cli.completion import open_completer
from exchangeable.cli.options import (
    DEFAULTS,
    AsJson,
    Device,
    FeatureFiles,
    Model,
    Seed,
    TableOrCompleter,
    with_table_options,
)
from exchangeable.cli.output import Output, report_errors
from exchangeable.data.options import TableOptions

if TYPE_CHECKING:
    from exchangeable.data.table import Table


@report_errors
@with_table_options
def suggest(
    table: TableOrCompleter,
    n: Annotated[int, typer.Option("-n", help="Number of cells.")] = 10,
    goal: Annotated[
        str,
        typer.Option(
            help="error: lower the error of the whole table; best: find the highest cells."
        ),
    ] = "error",
    among: Annotated[
        Path | None,
        typer.Option(help="File with the cells that may be chosen, one column per axis."),
    ] = None,
    model: Model = "auto",
    features: FeatureFiles = None,
    seed: Seed = 0,
    device: Device = "auto",
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Suggest the unobserved cells to measure next, chosen together.

    Each is printed with its prediction, the 80 % interval and why it was chosen: how far it is
    expected to lower the summed variance of the other cells, or its chance to be among the highest.
    """
    import polars as pl

    from exchangeable.completion.inputs import check_number
    from exchangeable.completion.suggest import check_goal, check_matrix
    from exchangeable.completion.suggest import suggest as choose
    from exchangeable.data.queries import read_queries

    cells: pl.DataFrame | None = None

    def check(data: Table) -> None:
        nonlocal cells
        check_matrix(data)
        if among is not None:
            with output.warnings():
                cells = data.parse_labels(read_queries(among, data)[0])

    output = Output(as_json)
    check_number(n)
    aim = check_goal(goal)
    completer = open_completer(table, options, model, seed, device, output, features, check=check)
    chosen = choose(completer.fitted_, n, aim, cells)
    rows = pl.DataFrame(chosen.columns(completer.table_))
    output.fact(goal=goal, suggested=rows.to_dicts())
    reason = rows.columns[-1]
    for row in rows.iter_rows(named=True):
        labels = ", ".join(str(row[axis]) for axis in completer.table_.axes)
        mean, low, high, score = list(row.values())[-4:]
        output.line(f"{mean:8.3f}  ({low:.2f} to {high:.2f})  {reason} {score:.3g}  {labels}")
    output.finish("" if len(rows) else "there is no unobserved cell to suggest")
