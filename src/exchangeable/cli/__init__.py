"""The command: thin, with everything heavy imported only when it is needed.

Exit 0: done. 1: failed. 2: wrong input, told in one line on standard error.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

import typer

from exchangeable.cli.completion import complete, factorize, recommend
from exchangeable.cli.data import data
from exchangeable.cli.evaluation import doctor, evaluate
from exchangeable.cli.service import serve
from exchangeable.cli.training import finetune, pretrain, train

app = typer.Typer(
    help="Complete tables of interactions between sets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (complete, recommend, factorize, train, finetune, pretrain, evaluate, serve, doctor):
    app.command()(command)
app.add_typer(data, name="data")


def run() -> None:
    """The entry point: whatever goes wrong is told in one line, and nothing is left half done."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        code = app(prog_name="exchangeable", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read along has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except OSError as error:
        code = _told(f"standard output: {error.strerror or error}", 1)
    except (KeyboardInterrupt, typer.Abort):
        code = _told("stopped", 1)
    except Exception as error:
        usage = getattr(error, "format_message", None)  # what typer says of wrong options
        if usage is None:
            raise
        code = _told(f"{usage()} See exchangeable --help.", 2) if usage() else 2
    sys.exit(code or 0)


def _told(message: str, code: int) -> int:
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    return code


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
