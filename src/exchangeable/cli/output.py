"""What commands print and write: lines or JSON, progress, errors in one line, files."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import typer

from exchangeable.data.options import TableOptions
from exchangeable.errors import Failed, InputError, InputWarning, word
from exchangeable.runtime.files import whole_file
from exchangeable.runtime.progress import SILENT, Progress, progress_lines

if TYPE_CHECKING:
    from exchangeable.runtime.processes import Processes

P = ParamSpec("P")
R = TypeVar("R")

MAX_NAME_BYTES = 200
"""Maximum length of an output's name: of 255 bytes some are left for a temporary file beside it."""
STANDARD_STREAM = "-"
"""Name that stands for standard input or output in the place of a file's."""
WRITTEN_KINDS = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
"""Endings of the files that can be written."""
_ENDINGS = (
    *(".gz", ".zip", ".csv", ".tsv", ".txt", ".dat", ".data", ".parquet"),
    *(".xlsx", ".json", ".jsonl", ".ndjson"),
)
_OPTIONS = {
    **{field.name: field.name.replace("_", "-") for field in fields(TableOptions)},
    **{name: name.replace("_", "-") for name in ("all", "queries", "limit", "anyone")},
    "batch": "batch",
    "batch_cells": "batch-cells",
    "token": "token-file",
}
"""Options of commands by the name of the argument in Python."""
_UNEXPECTED = "this is a bug in exchangeable: set EXCHANGEABLE_TRACE=1 to see where"


class Output:
    """Prints what a command found and did: line by line, or as one JSON object at the end."""

    def __init__(
        self, as_json: bool, processes: Processes | None = None, *, to_stderr: bool = False
    ) -> None:
        self.as_json = as_json
        self.to_stderr = to_stderr  # where standard output is for the table
        self.silent = processes is not None and not processes.first
        self.facts: dict[str, Any] = {}

    def line(self, *lines: object) -> None:
        """Print lines at once, unless the output is JSON."""
        if not self.as_json and not self.silent:
            for line in lines:
                typer.echo(f"  {with_options(line)}", err=self.to_stderr)

    def fact(self, **facts: Any) -> None:
        """Add fields to the JSON object; sentences in them name options of the command."""
        for name in ("notes", "warnings", "found"):
            if name in facts:
                facts[name] = [with_options(sentence) for sentence in facts[name]]
        self.facts |= facts

    @contextmanager
    def warnings(self) -> Iterator[None]:
        """Print warnings about the input as lines, and add them to the JSON object."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InputWarning)
            yield
        for warning in caught:
            if issubclass(warning.category, InputWarning):
                self.line(warning.message)
                self.fact(warnings=[*self.facts.get("warnings", ()), warning.message])
            else:
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )

    def finish(self, line: str = "") -> None:
        """Print the JSON object, or a last line that says what was done."""
        if self.silent:
            return
        if self.as_json:
            # Labels may be dates.
            typer.echo(json.dumps(self.facts, default=str), err=self.to_stderr)
        elif line:
            typer.echo(line, err=self.to_stderr)


def print_error(error: object) -> None:
    typer.echo(f"error: {' '.join(with_options(error).split())}", err=True)


def with_options(message: object) -> str:
    """Write an error, a warning or a note with the command's options.

    >>> from exchangeable.errors import Note, option
    >>> with_options(Note(f"if 'tag' is an axis, choose {option('axes', ('user', 'tag'))}"))
    "if 'tag' is an axis, choose --axes user,tag"
    """
    return word(message, _word_option)


def _word_option(name: str, value: Any) -> str | None:
    if name not in _OPTIONS:
        return None
    words = f"--{_OPTIONS[name]}"
    if value is None or value is True:
        return words
    if value is False:
        return f"--no-{_OPTIONS[name]}"
    texts = value if isinstance(value, tuple) else (value,)
    return f"{words} {shlex.quote(','.join(map(str, texts)))}"


def report_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Print an error in one line, and exit with 2 for wrong input or 1 for a failure."""

    @wraps(command)
    def wrapped(*args: P.args, **options: P.kwargs) -> R:
        try:
            return command(*args, **options)
        except InputError as error:
            if os.environ.get("RANK", "0") == "0":  # one of several processes prints it
                print_error(error)
            raise typer.Exit(2) from None
        except Failed as error:
            print_error(error)
            raise typer.Exit(1) from None
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            raise  # the reader of standard output has closed it
        except OSError as error:
            print_error(error)
            raise typer.Exit(1) from None
        except (KeyboardInterrupt, Exception) as error:
            if os.environ.get("EXCHANGEABLE_TRACE"):
                raise
            if isinstance(error, KeyboardInterrupt):
                print_error(str(error) or "stopped")
            else:
                print_error(f"{f'{type(error).__name__} {error}'.strip()}; {_UNEXPECTED}")
            raise typer.Exit(1) from None

    return wrapped


@contextmanager
def progress_bar(processes: Processes | None = None) -> Iterator[Progress]:
    """Show progress on standard error: a bar after two seconds, or a line now and then in logs."""
    if processes is not None and not processes.first:
        yield SILENT
        return
    if not sys.stderr.isatty():
        yield Progress(progress_lines())
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


# Files -----------------------------------------------------------------------------------


def default_out(name: str, suffix: str) -> Path:
    """Path of an output beside its input: ratings.csv.gz becomes ratings.completed.csv.

    It is of the kind of the input, or else CSV. That of a table from standard input is standard
    output.
    """
    if name == STANDARD_STREAM:
        return Path(STANDARD_STREAM)
    endings = [ending.lower() for ending in Path(name).suffixes]
    *_, kind = "", *(ending for ending in endings if ending not in (".gz", ".zip"))
    kind = ".jsonl" if kind == ".json" else kind
    written = kind if kind in WRITTEN_KINDS else ".csv"
    return Path(Path(name).parent, f"{stem_of(name)}.{suffix}{written}")


def stem_of(name: str) -> str:
    """Name of a table's file without folder and endings."""
    stem = "stdin" if name == STANDARD_STREAM else Path(name).name
    for ending in _ENDINGS:
        stem = stem[: -len(ending)] if stem.lower().endswith(ending) else stem
    return stem or "table"


def check_plotting() -> None:
    """Raise before any work if matplotlib is not installed."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise InputError("pictures need matplotlib: pip install 'exchangeable[plot]'")


def check_writable(path: Path, force: bool) -> Path:
    """Raise before any work if a file cannot be written there."""
    if str(path) == STANDARD_STREAM:
        return path
    if path.is_dir():
        raise InputError(f"{path}: the output must be a file, but this is a folder")
    if path.exists() and not force:
        raise InputError(f"{path} exists already; --force replaces it, --out names another")
    target = path.resolve()
    if not target.parent.is_dir():
        raise InputError(f"{path}: the folder {target.parent} does not exist")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{path}: the folder {target.parent} is not writable")
    if len(os.fsencode(target.name)) > MAX_NAME_BYTES:
        raise InputError(
            f"a file's name must have at most {MAX_NAME_BYTES} bytes, but this has more: "
            f"{path.name[:40]}..."
        )
    return path


def is_printed(out: Path, as_json: bool) -> bool:
    """Whether an output goes to standard output, which it cannot share with JSON."""
    printed = str(out) == STANDARD_STREAM
    if printed and as_json:
        raise InputError("--json takes standard output, but so does the table; name an --out")
    return printed


def name_output(out: Path) -> str:
    return "standard output" if str(out) == STANDARD_STREAM else str(out)


def check_ending(path: Path) -> None:
    """Raise unless ``write_frame`` can write a file of this name."""
    if str(path) == STANDARD_STREAM:
        return
    if path.suffix.lower() not in WRITTEN_KINDS:
        raise InputError(
            f"{path}: the name must end in {', '.join(WRITTEN_KINDS[:-1])} or {WRITTEN_KINDS[-1]}, "
            f"but ends in {path.suffix!r}"
        )


def write_frame(path: Path, frame: Any) -> None:
    """Write a frame as the ending of the name says; ``-`` is CSV on standard output."""
    if str(path) == STANDARD_STREAM:
        _print_csv(frame.blocks() if hasattr(frame, "blocks") else [frame])
        return
    with whole_file(path) as target:
        kind = path.suffix.lower()
        if kind == ".parquet":
            frame.write_parquet(target)
        elif kind in (".jsonl", ".ndjson"):
            frame.write_ndjson(target)
        else:
            frame.write_csv(target, separator="\t" if kind == ".tsv" else ",")


def _print_csv(blocks: Iterable[Any]) -> None:
    """Write frames to standard output, through Python: polars would report a closed pipe."""
    sys.stdout.flush()
    for number, block in enumerate(blocks):
        text = io.BytesIO()
        block.write_csv(text, include_header=number == 0)
        sys.stdout.buffer.write(text.getbuffer())
    sys.stdout.buffer.flush()
