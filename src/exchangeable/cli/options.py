"""Options that several commands share, and the inputs that they name."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.cli.output import STANDARD_STREAM
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError
from exchangeable.runtime.phrases import did_you_mean

if TYPE_CHECKING:
    from exchangeable.data.table import Table
    from exchangeable.datasets.source import Dataset

TableArgument = Annotated[
    str,
    typer.Argument(
        help="Name of a dataset, or a file: delimited text, Parquet, Excel or JSON; gzip or zip "
        "too; - for standard input."
    ),
]
TableOrCompleter = Annotated[
    str,
    typer.Argument(
        help="Name of a dataset, a file (- for standard input), or the folder of a saved completer."
    ),
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
    typer.Option(
        help="Value of a cell that occurs more than once: error, mean, last, first, max, sum, or "
        "count, which is how often it occurs."
    ),
]
ScaleKind = Annotated[
    str | None, typer.Option(help="Scale of the values: levels, real, binary or positives.")
]
Units = Annotated[
    str | None,
    typer.Option(
        help="Units that real numbers are read in: plain, log, or an axis whose members are "
        "different quantities. By default what suits them."
    ),
]
Wide = Annotated[
    bool | None,
    typer.Option("--wide/--long", help="Whether the table has a column for each second member."),
]
Joint = Annotated[
    bool,
    typer.Option("--joint", help="Both axes are one set of members, as in a graph."),
]
AtLeast = Annotated[
    float | None,
    typer.Option(help="Take cells of this value or more as positives, and leave out the others."),
]
SkipBadLines = Annotated[
    bool, typer.Option("--skip-bad-lines", help="Skip lines that cannot be read.")
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        help="Text or number for a missing value, beside NA, null and ?; several with commas; "
        "repeatable."
    ),
]
Decimal = Annotated[str | None, typer.Option(help="Decimal mark of values: . or ,")]
Encoding = Annotated[
    str | None, typer.Option(help="Encoding of text files, as in latin-1; by default UTF-8.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Model = Annotated[
    str,
    typer.Option(
        help="auto (pretrained, or a simpler one if better on hidden cells), pretrained, mean, "
        "row-mean, column-mean, bias, vmf, bmf, gaussian, knn (or item-knn), user-knn; residual, "
        "self-supervised, self-supervised-text, self-supervised-released, factorized, "
        "factorized-text or factorized-released (which are trained first); or the folder of a "
        "trained model. For positives also popularity, item-cosine, user-cosine, rp3, "
        "graph-filter, ease, ridge, ials."
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
SampleCells = Annotated[
    int | None,
    typer.Option(
        help="Read the table in random samples of about so many cells, with a model that was "
        "trained; for tables whose cells do not fit in memory together.",
        min=1,
    ),
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
    "units": (Units, None),
    "at_least": (AtLeast, None),
    "skip_bad_lines": (SkipBadLines, False),
    "missing": (Missing, None),
    "decimal": (Decimal, None),
    "encoding": (Encoding, None),
    "wide": (Wide, None),
    "joint": (Joint, False),
}
_SWITCHES = {
    "header": ("--header", "--no-header"),
    "skip_bad_lines": ("--skip-bad-lines",),
    "wide": ("--wide", "--long"),
    "joint": ("--joint",),
}
"""Options without a value: what is written for True, and for False."""


def with_table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option per field of ``TableOptions`` for its parameter ``options``."""

    @wraps(command)
    def wrapped(**arguments: Any) -> None:
        fields = {name: arguments.pop(name) for name in _FIELDS}
        axes = fields["axes"]
        fields["axes"] = None if axes is None else tuple(axes.split(","))
        words = fields["missing"] or []
        fields["missing"] = tuple(word for text in words for word in text.split(",") if word)
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


def write_table_options(options: TableOptions) -> list[str]:
    """Write the options that differ from the defaults as words of a command line.

    >>> write_table_options(TableOptions(duplicates="count", axes=("user", "song"), header=False))
    ['--axes', 'user,song', '--no-header', '--duplicates', 'count']
    """
    words: list[str] = []
    for name in _FIELDS:
        chosen = getattr(options, name)
        if chosen == getattr(DEFAULTS, name):
            continue
        if isinstance(chosen, bool):
            words.append(_SWITCHES[name][not chosen])
        else:
            text = ",".join(map(str, chosen)) if isinstance(chosen, tuple) else str(chosen)
            words += [f"--{name.replace('_', '-')}", text]
    return words


def check_exists(name: str) -> None:
    """Raise unless a table has the name of a dataset or a file."""
    from exchangeable.datasets import DATASETS
    from exchangeable.files.source import open_source

    if name in DATASETS or os.path.exists(name):  # also False for a name that is too long
        return
    close = did_you_mean(name, DATASETS)
    if close:
        raise InputError(f"{name}: no such file or dataset{close}")
    open_source(Path(name))  # raises, with a file's name that is close


def open_table(name: str, options: TableOptions) -> tuple[Table, Dataset | None]:
    """Load a dataset by its name, or else read a file, or standard input if the name is ``-``."""
    from exchangeable.data.build import table_from_file, table_from_source
    from exchangeable.datasets import DATASETS, load
    from exchangeable.files.source import open_bytes

    least, options = options.at_least, replace(options, at_least=None)
    if name not in DATASETS:
        if name == STANDARD_STREAM:
            source = "standard input"
            content = open_bytes(source, sys.stdin.buffer.read())
            table = table_from_source(source, content, options)
        else:
            check_exists(name)
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
