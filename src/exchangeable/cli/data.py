"""``exchangeable data``: ``describe``, ``list`` and ``fetch``; ``interchange`` has the others."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from exchangeable.cli.options import (
    DEFAULTS,
    AsJson,
    TableArgument,
    open_table,
    with_table_options,
)
from exchangeable.cli.output import report_errors, with_options
from exchangeable.data.options import TableOptions

data = typer.Typer(
    help="Describe tables, move them; list and download datasets.", no_args_is_help=True
)


@data.command("describe")
@report_errors
@with_table_options
def describe_table(
    table: TableArgument,
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Describe a table: cells, members, density, scale and values."""
    from exchangeable.data.summary import describe

    data, dataset = open_table(table, options)
    facts: dict[str, Any] = describe(data) | {"name": table}
    facts["found"] = [with_options(sentence) for sentence in facts["found"]]
    if dataset is not None:
        facts |= {
            "title": dataset.source.title,
            "licence": dataset.source.licence,
            "citation": dataset.source.citation,
            "splits": {
                name: {part: len(cells) for part, cells in split.parts().items()}
                for name, split in dataset.splits.items()
            },
        }
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        _show(facts, str(data.scale))


@data.command("list")
def list_datasets(
    as_json: AsJson = False,
) -> None:
    """List the datasets that can be loaded by name."""
    from exchangeable.datasets import DATASETS

    if as_json:
        datasets = [
            {"name": name, "title": e.source.title, "licence": e.source.licence}
            for name, e in DATASETS.items()
        ]
        typer.echo(json.dumps(datasets))
        return
    for name, entry in DATASETS.items():
        typer.echo(f"{name:<20} {entry.source.title}\n{'':<20} {entry.source.licence}")


@data.command("fetch")
@report_errors
def fetch_dataset(
    name: Annotated[str, typer.Argument(help="Name of a dataset.")],
    as_json: AsJson = False,
) -> None:
    """Download a dataset into the cache and verify it."""
    from exchangeable.datasets import fetch

    files = fetch(name)
    if as_json:
        typer.echo(json.dumps(files))
        return
    if not files:
        typer.echo(f"{name} is simulated: there is nothing to download")
    for file in files:
        typer.echo(f"{file['path']}: {file['place']} ({file['checked']})")


def _show(facts: dict[str, Any], scale: str) -> None:
    typer.echo(facts.get("title", facts["name"]))
    for line in facts["found"]:
        typer.echo(f"  {line}")
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
    highest = max((bar["cells"] for bar in facts["histogram"]), default=0)
    for bar in facts["histogram"]:
        label = f"{bar['value']:g}" if "value" in bar else f"{bar['from']:g} to {bar['to']:g}"
        typer.echo(
            f"  {label:>16} {'#' * max(round(30 * bar['cells'] / highest), 1):<30} {bar['cells']:,}"
        )
