"""The command: thin, with everything heavy imported only when it is needed.

Exit 0: done. 1: failed. 2: wrong input, told in one line on standard error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

from exchangeable.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

app = typer.Typer(
    help="Complete tables of interactions between sets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data = typer.Typer(help="Look at tables and datasets.", no_args_is_help=True)
app.add_typer(data, name="data")


@app.callback()
def main() -> None:
    """Complete tables of interactions between sets."""


def one_line(command: Callable[P, R]) -> Callable[P, R]:
    """Turn wrong input into one line and exit code 2."""

    @wraps(command)
    def wrapped(*args: P.args, **options: P.kwargs) -> R:
        try:
            return command(*args, **options)
        except InputError as error:
            typer.echo(f"error: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(2) from None

    return wrapped


@data.command("describe")
@one_line
def describe_table(
    table: Annotated[
        str,
        typer.Argument(help="A dataset's name, or a file: CSV, TSV, '::', Parquet, also gzip/zip."),
    ],
    axes: Annotated[str | None, typer.Option(help="Label columns, by name or number: a,b")] = None,
    value: Annotated[str | None, typer.Option(help="The value column.")] = None,
    separator: Annotated[str | None, typer.Option(help="What separates the fields.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether line 1 has names.")
    ] = None,
    duplicates: Annotated[
        str, typer.Option(help="A cell that comes again: error, mean, last, first or max.")
    ] = "error",
    scale: Annotated[str | None, typer.Option(help="levels, real, binary or positives.")] = None,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Leave out lines that do not fit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say what is in a table: cells, members, density, scale, values."""
    from exchangeable.datasets import DATASETS, load
    from exchangeable.describe import describe
    from exchangeable.table import Table

    facts: dict[str, Any]
    if table in DATASETS:
        options = (axes, value, separator, header, scale)
        if any(o is not None for o in options) or duplicates != "error" or skip_bad_lines:
            raise InputError(f"{table} is a dataset whose columns are known: give no options")
        dataset = load(table)
        found = dataset.table
        facts = describe(found) | {
            "name": table,
            "title": dataset.source.title,
            "licence": dataset.source.licence,
            "citation": dataset.source.citation,
            "splits": {
                name: {part: len(cells) for part, cells in split.parts().items()}
                for name, split in dataset.splits.items()
            },
        }
    else:
        found = Table.read(
            table,
            axes=axes.split(",") if axes else None,
            value=value,
            separator=separator,
            header=header,
            duplicates=duplicates,  # type: ignore[arg-type]  # checked there
            scale=scale,  # type: ignore[arg-type]
            skip_bad_lines=skip_bad_lines,
        )
        facts = describe(found) | {"name": table}
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        _show(facts, str(found.scale))


@data.command("list")
def list_datasets(
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """The datasets that can be loaded by name."""
    from exchangeable.datasets import DATASETS

    if as_json:
        listed = [
            {"name": name, "title": e.source.title, "licence": e.source.licence}
            for name, e in DATASETS.items()
        ]
        typer.echo(json.dumps(listed))
        return
    for name, entry in DATASETS.items():
        typer.echo(f"{name:<20} {entry.source.title}\n{'':<20} {entry.source.licence}")


@data.command("fetch")
@one_line
def fetch_dataset(
    name: Annotated[str, typer.Argument(help="A dataset's name.")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Download a dataset into the cache, and check it."""
    from exchangeable.datasets import fetch

    files = fetch(name)
    if as_json:
        typer.echo(json.dumps(files))
        return
    if not files:
        typer.echo(f"{name} is simulated: it needs no file")
    for file in files:
        typer.echo(f"{file['path']}: {file['place']} ({file['checked']})")


def _show(facts: dict[str, Any], scale: str) -> None:
    typer.echo(facts.get("title", facts["name"]))
    for sentence in facts["found"]:
        typer.echo(f"  {sentence}")
    typer.echo(f"  density {facts['density']:.4%}, {scale}")
    if facts["values"]:
        typer.echo(f"  mean {facts['values']['mean']:.4g}, sd {facts['values']['sd']:.4g}")
    for axis in facts["axes"]:
        spread = ", ".join(f"{q} {n:g}" for q, n in axis["cells_per_member"].items())
        typer.echo(f"  cells per {axis['name']}: {spread}")
    for split, parts in facts.get("splits", {}).items():
        shown = ", ".join(f"{part} {cells:,}" for part, cells in parts.items() if cells)
        typer.echo(f"  split {split}: {shown}")
    if "licence" in facts:
        typer.echo(f"  licence: {facts['licence']}")
    most = max((bar["cells"] for bar in facts["histogram"]), default=0)
    for bar in facts["histogram"]:
        label = f"{bar['value']:g}" if "value" in bar else f"{bar['from']:g} to {bar['to']:g}"
        typer.echo(
            f"  {label:>16} {'#' * max(round(30 * bar['cells'] / most), 1):<30} {bar['cells']:,}"
        )


def run() -> None:
    """The entry point: usage errors leave with 2 as well, and in few lines."""
    app(prog_name="exchangeable")


if __name__ == "__main__":
    run()
