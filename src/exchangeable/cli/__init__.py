"""The command: thin, with everything heavy imported only when it is needed.

Exit 0: done. 1: failed. 2: wrong input, told in one line on standard error.
"""

from __future__ import annotations

import typer

from exchangeable.cli.completing import complete, factorize, recommend
from exchangeable.cli.data import data
from exchangeable.cli.judging import doctor, evaluate
from exchangeable.cli.learning import finetune, train

app = typer.Typer(
    help="Complete tables of interactions between sets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (complete, recommend, factorize, train, finetune, evaluate, doctor):
    app.command()(command)
app.add_typer(data, name="data")


def run() -> None:
    """The entry point: usage errors leave with 2 as well, and in few lines."""
    app(prog_name="exchangeable")
