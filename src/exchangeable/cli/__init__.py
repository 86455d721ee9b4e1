"""The command ``exchangeable``: one module for the commands of a room, options and output apart.

Everything heavy is imported inside the commands, so that ``--help`` and ``--version`` are fast.
Exit codes: 0 done, 1 failed, 2 wrong input, with one line on standard error.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from exchangeable._version import __version__
from exchangeable.cli.completion import complete, factorize
from exchangeable.cli.data import data
from exchangeable.cli.diagnostics import doctor
from exchangeable.cli.evaluation import evaluate
from exchangeable.cli.interchange import export_table, import_table
from exchangeable.cli.output import print_error
from exchangeable.cli.questions import explain, recommend, similar
from exchangeable.cli.service import serve
from exchangeable.cli.suggestion import suggest
from exchangeable.cli.training import finetune, pretrain, train

app = typer.Typer(
    help="Complete tables of interactions between sets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    *(complete, recommend, similar, explain, suggest, factorize),
    *(train, finetune, pretrain, evaluate),
    *(serve, doctor),
):
    app.command()(command)
data.command("export")(export_table)
data.command("import")(import_table)
app.add_typer(data, name="data")
HINTS = {"--log": "; values are read as logarithms with --units log."}
"""Hints that follow the error about an unknown option, where another option does the same."""


def _print_version(chosen: bool) -> None:
    if chosen:
        typer.echo(f"exchangeable {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command; report any error in one line, and leave no output half written."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        code = app(prog_name="exchangeable", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of standard output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except OSError as error:
        code = _fail(f"standard output: {error.strerror or error}", 1)
    except (KeyboardInterrupt, typer.Abort):
        code = _fail("stopped", 1)
    except Exception as error:
        usage = getattr(error, "format_message", None)  # typer's errors about options
        if usage is None:
            raise
        hint = HINTS.get(getattr(error, "option_name", ""), "")
        code = _fail(f"{usage()}{hint} See exchangeable --help.", 2) if usage() else 2
    sys.exit(code or 0)


def _fail(message: str, code: int) -> int:
    print_error(message)
    return code


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
