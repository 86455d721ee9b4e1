"""Options that several commands share, and the inputs that they name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError

if TYPE_CHECKING:
    from exchangeable.data.table import Table
    from exchangeable.datasets.source import Dataset

TableArgument = Annotated[
    str,
    typer.Argument(
        help="Name of a dataset, or a file: CSV, TSV, '::'-separated or Parquet; gzip or zip too."
    ),
]
TableOrCompleter = Annotated[
    str, typer.Argument(help="Name of a dataset, a file, or the folder of a saved completer.")
]
Axes = Annotated[
    str | None, typer.Option(help="Label columns by name or number from 1, as in user,film.")
]
Value = Annotated[str | None, typer.Option(help="Value column, by name or number.")]
Time = Annotated[str | None, typer.Option(help="Time column, by name or number; '' for none.")]
Separator = Annotated[str | None, typer.Option(help="Text between two fields of a line.")]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first line has the column names."),
]
Duplicates = Annotated[
    str,
    typer.Option(help="Value of a cell that occurs more than once: error, mean, last, first, max."),
]
ScaleKind = Annotated[
    str | None, typer.Option(help="Scale of the values: levels, real, binary or positives.")
]
AtLeast = Annotated[
    float | None,
    typer.Option(help="Take cells of this value or more as positives, and leave out the others."),
]
SkipBadLines = Annotated[
    bool, typer.Option("--skip-bad-lines", help="Skip lines that cannot be read.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Model = Annotated[
    str,
    typer.Option(
        help="auto (pretrained, or a simpler one if better on hidden cells), pretrained, mean, "
        "row-mean, column-mean, bias, vmf, bmf, gaussian, knn (or item-knn), user-knn, residual or "
        "factorized (which are trained first), or the folder of a trained model. For positives "
        "also popularity, item-cosine, user-cosine, rp3, graph-filter, ease, ridge, ials."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of all random draws.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
FeatureFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        help="AXIS=FILE with features of the axis's members, labels first, as in film=films.csv; "
        "repeatable.",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(help="Maximum memory to use, as in 4GB; by default most of the free memory."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing output.")]

DEFAULTS = TableOptions()
_FIELDS: dict[str, tuple[Any, Any]] = {
    "axes": (Axes, None),
    "value": (Value, None),
    "time": (Time, None),
    "separator": (Separator, None),
    "header": (Header, None),
    "duplicates": (Duplicates, "error"),
    "scale": (ScaleKind, None),
    "at_least": (AtLeast, None),
    "skip_bad_lines": (SkipBadLines, False),
}


def with_table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option per field of ``TableOptions`` for its parameter ``options``."""

    @wraps(command)
    def wrapped(**arguments: Any) -> None:
        fields = {name: arguments.pop(name) for name in _FIELDS}
        axes = fields["axes"]
        fields["axes"] = None if axes is None else tuple(axes.split(","))
        command(**arguments, options=TableOptions(**fields))

    parameters = inspect.signature(command, eval_str=True).parameters.values()
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _FIELDS.items()
    ]
    others = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters if p.name != "options"]
    wrapped.__signature__ = inspect.Signature([*others, *added])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in (*others, *added)}
    return wrapped


def open_table(name: str, options: TableOptions) -> tuple[Table, Dataset | None]:
    """Load a dataset by its name, or else read a file."""
    from exchangeable.data.build import table_from_file
    from exchangeable.datasets import DATASETS, load

    least, options = options.at_least, replace(options, at_least=None)
    if name not in DATASETS:
        table = table_from_file(name, options)
        return (table if least is None else table.at_least(least)), None
    if options != DEFAULTS:
        raise InputError(
            f"{name} is a dataset with fixed columns: of the table options it takes --at-least only"
        )
    dataset = load(name)
    if least is not None:  # its splits are of all cells
        return dataset.table.at_least(least), None
    return dataset.table, dataset
