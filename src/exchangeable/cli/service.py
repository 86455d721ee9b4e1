"""``exchangeable serve``: a table behind HTTP."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable.cli.common import (
    DEFAULTS,
    Device,
    Model,
    Output,
    Seed,
    open_table,
    report_errors,
    with_table_options,
)
from exchangeable.cli.completion import stem_of
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError

if TYPE_CHECKING:
    from exchangeable.data.table import Table
    from exchangeable.serve.refresher import MakeCompleter
    from exchangeable.serve.store import Store

SAMPLE = "film-club"
_NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client")


@report_errors
@with_table_options
def serve(
    table: Annotated[
        str | None,
        typer.Argument(help="A dataset, a file, or a saved completer; else a simulated film club."),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(help="Where interactions are kept: sqlite:///FILE, postgresql://...; else "
                     "a file .db here."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8080,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token that calls must bear.")
    ] = None,
    anyone: Annotated[
        bool, typer.Option("--anyone", help="Be reached from elsewhere without a token.")
    ] = False,
    model: Model = "auto",
    seed: Seed = 0,
    device: Device = "auto",
    options: TableOptions = DEFAULTS,
) -> None:  # fmt: skip
    """Put a table behind HTTP, with a page to look at; what is written to it is kept."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(f"serving needs {', '.join(missing)}: pip install 'exchangeable[serve]'")
    from exchangeable.serve.engine import Engine
    from exchangeable.serve.server import Address, read_token
    from exchangeable.serve.server import serve as run
    from exchangeable.serve.store import Store

    token = None if token_file is None else read_token(token_file)
    address = Address(host, port, token, anyone)
    name, output = table or SAMPLE, Output(as_json=False)
    file = Path(f"{stem_of(name)}.db")
    if db is None and not file.exists():  # found out before a file is made
        _check_there(name)
    with closing(address.bind()) as bound, closing(Store.open(db or f"sqlite:///{file}")) as store:
        make = filled(store, table, name, options, model, seed, device, output)
        output.say(f"reading {store.facts.source}")
        engine = Engine(store, make)
        if engine.snapshot.completer is not None:
            output.say(*engine.snapshot.completer.notes_)
        where = f"http://{host}:{port}"
        typer.echo(
            f"serving {store.facts.source} at {where}, kept in {store.location}; Ctrl-C stops"
        )
        run(engine, address, bound)


def _check_there(name: str) -> None:
    from exchangeable.datasets import DATASETS

    if name not in DATASETS and not Path(name).exists():
        raise InputError(f"{name}: no such file")


def filled(
    store: Store,
    table: str | None,
    name: str,
    options: TableOptions,
    model: str,
    seed: int,
    device: str,
    output: Output,
) -> MakeCompleter:
    """The database with the table in it, and who reads it."""
    from exchangeable.completion.completer import Completer
    from exchangeable.runtime import checkpoint
    from exchangeable.serve.server import completer_factory, saved_completer_factory

    saved = Path(name).is_dir() and checkpoint.exists(name)
    name = str(Path(name).resolve()) if saved else name  # it is needed again, from wherever
    if not store.is_empty and table is not None and store.facts.source != name:
        raise InputError(
            f"{store.location} holds {store.facts.source}, but {name} is to be served: give "
            f"another database with --db, or omit the table"
        )
    source = name if store.is_empty else store.facts.source
    found: Table | None = None
    if saved if store.is_empty else store.facts.completer:
        if not checkpoint.exists(source):
            raise InputError(f"{store.location} is of the saved completer {source}, which is gone")
        if model != "auto" or options != DEFAULTS:
            raise InputError(f"{source} is a saved completer: give no options for reading or model")
        completer = Completer.load(source, device=device)
        make, found = saved_completer_factory(completer), completer.table_
    else:
        make = completer_factory(model, seed, device)
    if store.is_empty:
        found = found or open_table(name, options)[0]
        output.say(*found.found)
        store.fill(name, found, completer=saved)
    else:
        output.say(f"{store.location} holds {store.facts.source}: it is served as it stands there")
    return make
