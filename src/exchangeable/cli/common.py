"""What all commands share: options, reading, progress, writing, errors in one line."""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

from exchangeable.data.options import TableOptions
from exchangeable.errors import Failed, InputError
from exchangeable.runtime.files import write_whole
from exchangeable.runtime.progress import SILENT, Progress

if TYPE_CHECKING:
    from exchangeable.completion.completer import Completer
    from exchangeable.data.table import Table
    from exchangeable.datasets.source import Dataset
    from exchangeable.runtime.processes import Processes

P = ParamSpec("P")
R = TypeVar("R")

TableArgument = Annotated[
    str,
    typer.Argument(help="A dataset's name, or a file: CSV, TSV, '::', Parquet, also gzip/zip."),
]
Axes = Annotated[str | None, typer.Option(help="Label columns, by name or number: a,b")]
Value = Annotated[str | None, typer.Option(help="The value column.")]
Time = Annotated[str | None, typer.Option(help="The time column.")]
Separator = Annotated[str | None, typer.Option(help="What separates the fields.")]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether line 1 has names.")
]
Duplicates = Annotated[
    str, typer.Option(help="A cell that comes again: error, mean, last, first or max.")
]
ScaleKind = Annotated[str | None, typer.Option(help="levels, real, binary or positives.")]
SkipBadLines = Annotated[
    bool, typer.Option("--skip-bad-lines", help="Leave out lines that do not fit.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]
Model = Annotated[
    str,
    typer.Option(
        help="auto: pretrained, unless bias or vmf does better on hidden cells; one of these; "
        "mean, bmf, knn ..., residual, factorized, or the folder of a trained model."
    ),
]
Seed = Annotated[int, typer.Option(help="Of every draw.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
FeatureFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        help="AXIS=FILE with features of its members, for models that are trained; again.",
    ),
]
Memory = Annotated[
    str | None, typer.Option(help="Memory to take at most, as in 4GB; else most of what is free.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


def with_table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of ``TableOptions`` in place of its parameter ``options``."""
    fields = {
        "axes": (Axes, None),
        "value": (Value, None),
        "time": (Time, None),
        "separator": (Separator, None),
        "header": (Header, None),
        "duplicates": (Duplicates, "error"),
        "scale": (ScaleKind, None),
        "skip_bad_lines": (SkipBadLines, False),
    }

    @wraps(command)
    def wrapped(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in fields}
        axes = chosen["axes"]
        chosen["axes"] = tuple(axes.split(",")) if axes else None
        command(**given, options=TableOptions(**chosen))

    own = inspect.signature(command, eval_str=True).parameters.values()
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in fields.items()
    ]
    kept = [p.replace(kind=p.KEYWORD_ONLY) for p in own if p.name != "options"]
    wrapped.__signature__ = inspect.Signature([*kept, *added])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in (*kept, *added)}
    return wrapped


def report_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn wrong input into one line and exit code 2, and what failed into one and 1."""

    @wraps(command)
    def wrapped(*args: P.args, **options: P.kwargs) -> R:
        try:
            return command(*args, **options)
        except InputError as error:
            if os.environ.get("RANK", "0") == "0":  # one process of many says it
                _tell(error)
            raise typer.Exit(2) from None
        except Failed as error:
            _tell(error)
            raise typer.Exit(1) from None
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            raise  # whoever read along has seen enough
        except OSError as error:
            _tell(error)
            raise typer.Exit(1) from None
        except (KeyboardInterrupt, Exception) as error:
            if os.environ.get("EXCHANGEABLE_TRACE"):
                raise
            told = f"{type(error).__name__} {error}".strip()
            stopped = isinstance(error, KeyboardInterrupt)
            _tell((str(error) or "stopped") if stopped else f"{told}; {_TRACE}")
            raise typer.Exit(1) from None

    return wrapped


_LONGEST_NAME = 200  # what is left of 255 for the name of a temporary file beside it
_TRACE = "this should not happen: EXCHANGEABLE_TRACE=1 shows where it does"


def _tell(error: object) -> None:
    typer.echo(f"error: {' '.join(str(error).split())}", err=True)


DEFAULTS = TableOptions()


def open_table(name: str, options: TableOptions) -> tuple[Table, Dataset | None]:
    """Load a dataset by its name, or else read a file."""
    from exchangeable.data.build import table_from_file
    from exchangeable.datasets import DATASETS, load

    if name in DATASETS:
        if options != DEFAULTS:
            raise InputError(f"{name} is a dataset whose columns are known: give no options")
        dataset = load(name)
        return dataset.table, dataset
    return table_from_file(name, options), None


class Output:
    """Tells what was found and done: in lines as it happens, or all at once as JSON."""

    def __init__(self, as_json: bool, processes: Processes | None = None) -> None:
        self.as_json = as_json
        self.silent = processes is not None and not processes.first
        self.facts: dict[str, Any] = {}

    def say(self, *sentences: str) -> None:
        if not self.as_json and not self.silent:
            for sentence in sentences:
                typer.echo(f"  {sentence}")

    def know(self, **facts: Any) -> None:
        self.facts |= facts

    def end(self, sentence: str = "") -> None:
        if self.silent:
            return
        if self.as_json:
            typer.echo(json.dumps(self.facts, default=str))  # labels may be dates
        elif sentence:
            typer.echo(sentence)


@contextmanager
def progress_bar(processes: Processes | None = None) -> Iterator[Progress]:
    """Progress on standard error once something takes two seconds; a line now and then in logs."""
    if processes is not None and not processes.first:
        yield SILENT
        return
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    started = time.monotonic()
    bar = Bar(
        TextColumn("{task.description}"), BarColumn(), console=Console(stderr=True), transient=True
    )
    task = bar.add_task("", total=1.0)

    def show(share: float, text: str) -> None:
        if time.monotonic() - started > 2 and not bar.live.is_started:
            bar.start()
        bar.update(task, description=text, completed=share)

    try:
        yield Progress(show)
    finally:
        bar.stop()


def _lines() -> Progress:
    last = [time.monotonic() - 8]

    def show(share: float, text: str) -> None:
        if time.monotonic() - last[0] > 10:
            last[0] = time.monotonic()
            typer.echo(f"  {share:4.0%}  {text}", err=True)

    return Progress(show)


def open_completer(
    name: str,
    options: TableOptions,
    model: str,
    seed: int,
    device: str,
    output: Output,
    features: dict[str, Any] | None = None,
    usual: str = "auto",
) -> Completer:
    """A completer that was saved, or one that has read a table, by the usual model if by none."""
    from exchangeable.completion.completer import Completer
    from exchangeable.runtime import checkpoint

    if not Path(name).is_dir() and not checkpoint.exists(name):
        chosen = usual if model == "auto" else model
        return fitted(open_table(name, options)[0], chosen, seed, device, features, output)
    if model != "auto" or options != DEFAULTS or features:
        raise InputError(f"{name} is a saved completer: give no options for reading or model")
    completer = Completer.load(name, device=device)
    table = replace(completer.table_, native="polars")  # whatever it was fitted from
    completer.fitted_ = replace(completer.fitted_, table=table)
    output.say(f"loaded {name}", *completer.notes_)
    output.know(notes=list(completer.notes_), model=completer.model_name_)
    return completer


def fitted(
    table: Table,
    model: str,
    seed: int,
    device: str,
    features: dict[str, Any] | None,
    output: Output,
    memory: str | None = None,
    processes: Processes | None = None,
) -> Completer:
    """A completer that has read a table, after it was told what is in it."""
    from exchangeable.completion.completer import Completer
    from exchangeable.runtime.processes import ALONE

    output.say(*table.found)
    with progress_bar(processes) as progress:
        completer = Completer(model, seed=seed, device=device, memory=memory)
        completer.fit_table(
            table, features=features, progress=progress, processes=processes or ALONE
        )
    output.say(*[note for note in completer.notes_ if note not in table.found])
    output.know(notes=list(completer.notes_), model=completer.model_name_)
    return completer


def feature_files(given: list[str] | None) -> dict[str, Any]:
    """Frames about members, by axis; a file's columns are typed as they look."""
    frames = {}
    for text in given or []:
        import polars as pl

        axis, equals, path = text.partition("=")
        if not equals:
            raise InputError(f"--features takes AXIS=FILE, but came as {text!r}")
        try:
            parquet = path.lower().endswith(".parquet")
            frames[axis] = pl.read_parquet(path) if parquet else pl.read_csv(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise InputError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from None
    return frames


def check_drawable() -> None:
    """Raise before any work if pictures cannot be drawn."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise InputError("pictures need matplotlib: pip install 'exchangeable[plot]'")


def check_free(path: Path, force: bool) -> Path:
    """Raise before any work if a file cannot be put there."""
    if path.is_dir():
        raise InputError(f"{path}: a file is to be written, but this is a directory")
    if path.exists() and not force:
        raise InputError(f"{path} is there already; --force replaces it, --out names another")
    place = path.resolve()
    if not place.parent.is_dir():
        raise InputError(f"{path}: there is no folder {place.parent}")
    if not os.access(place.parent, os.W_OK):
        raise InputError(f"{path}: nothing may be written to {place.parent}")
    if len(os.fsencode(place.name)) > _LONGEST_NAME:
        raise InputError(
            f"a file's name must have at most {_LONGEST_NAME} bytes: {path.name[:40]}..."
        )
    return path


def write_frame(path: Path, frame: Any) -> None:
    """As CSV, as TSV or as Parquet, by the name's ending."""
    endings = {
        ".csv": lambda place: frame.write_csv(place),
        ".tsv": lambda place: frame.write_csv(place, separator="\t"),
        ".parquet": lambda place: frame.write_parquet(place),
    }
    write_whole(path, endings[path.suffix.lower()])


def check_ending(path: Path) -> None:
    if path.suffix.lower() not in (".csv", ".tsv", ".parquet"):
        raise InputError(f"{path}: .csv, .tsv or .parquet is needed, but this is {path.suffix!r}")
