"""``exchangeable serve``."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable.cli.options import (
    DEFAULTS,
    Device,
    FeatureFiles,
    Model,
    Seed,
    check_exists,
    open_table,
    with_table_options,
)
from exchangeable.cli.output import Output, report_errors, stem_of
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError

if TYPE_CHECKING:
    from exchangeable.data.table import Table
    from exchangeable.serve.server import Factory
    from exchangeable.storage.store import Store

SAMPLE = "film-club"
_REQUIRED = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client")


@report_errors
@with_table_options
def serve(
    table: Annotated[
        str | None,
        typer.Argument(
            help="Name of a dataset, a file, or the folder of a saved completer; by default a "
            "simulated film club."
        ),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(
            help="Database to keep the table in: sqlite:///FILE or postgresql://...; by default a "
            ".db file in this folder."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8080,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token that requests must carry.")
    ] = None,
    anyone: Annotated[
        bool, typer.Option("--anyone", help="Allow other machines without a token.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Host name that requests without a token may use, beside this machine's own; may "
            "be repeated."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder to keep the fitted table in, for quick starts; by default beside SQLite's "
            "file, and nowhere for PostgreSQL."
        ),
    ] = None,
    upload_memory: Annotated[
        int, typer.Option(help="Megabytes of memory that an uploaded file may take.", min=64)
    ] = 2048,
    upload_seconds: Annotated[
        float, typer.Option(help="Seconds that an uploaded file may take.", min=1)
    ] = 120,
    model: Model = "auto",
    features: FeatureFiles = None,
    seed: Seed = 0,
    device: Device = "auto",
    options: TableOptions = DEFAULTS,
) -> None:
    """Serve a table over HTTP, with a page to try it; changes are kept in a database.

    Features are not kept there: name their files at each start.
    """
    missing = [name for name in _REQUIRED if find_spec(name) is None]
    if missing:
        raise InputError(f"serve needs {', '.join(missing)}: pip install 'exchangeable[serve]'")
    from exchangeable.serve.engine import Engine
    from exchangeable.serve.limits import Limits
    from exchangeable.serve.server import Address, read_token
    from exchangeable.serve.server import serve as run
    from exchangeable.serve.state import State
    from exchangeable.storage.store import Store

    token = None if token_file is None else read_token(token_file)
    address = Address(host, port, token, anyone, tuple(allowed_host or ()))
    limits = Limits(upload_memory=upload_memory * 2**20, upload_seconds=upload_seconds)
    name, output = table or SAMPLE, Output(as_json=False)
    file = Path(f"{stem_of(name)}.db")
    if db is None and not file.exists():  # checked before the database is created
        check_exists(name)
    with closing(address.bind()) as bound, closing(Store.open(db or f"sqlite:///{file}")) as store:
        make = prepare_store(store, table, name, options, model, seed, device, output, features)
        output.line(f"reading {store.facts.source}")
        engine = Engine(store, make, State.of(store, make.options, state))
        if engine.snapshot.completer is not None:
            output.line(*engine.snapshot.completer.notes_)
        url = f"http://{host}:{port}"
        typer.echo(
            f"serving {store.facts.source} at {url}, kept in {store.location}; Ctrl-C stops it"
        )
        run(engine, address, bound, limits)


def prepare_store(
    store: Store,
    table: str | None,
    name: str,
    options: TableOptions,
    model: str,
    seed: int,
    device: str,
    output: Output,
    features: list[str] | None = None,
) -> Factory:
    """Fill an empty database with the table, and return what fits completers to it."""
    from exchangeable.cli.features import read_features
    from exchangeable.completion.completer import Completer
    from exchangeable.data.features import TableFeatures
    from exchangeable.runtime import checkpoint
    from exchangeable.serve.server import completer_factory, saved_completer_factory

    saved = Path(name).is_dir() and checkpoint.exists(name)
    name = str(Path(name).resolve()) if saved else name  # later starts load it, from any folder
    if not store.is_empty and table is not None and store.facts.source != name:
        raise InputError(
            f"{store.location} holds {store.facts.source}, but {name} is to be served: give "
            f"another database with --db, or omit the table"
        )
    source = name if store.is_empty else store.facts.source
    data: Table | None = None
    if saved if store.is_empty else store.facts.completer:
        if not checkpoint.exists(source):
            raise InputError(
                f"{store.location} needs the saved completer {source}, which does not exist"
            )
        if model != "auto" or options != DEFAULTS or features:
            raise InputError(
                f"{source} is a saved completer: it takes no options for table, features or model"
            )
        completer = Completer.load(source, device=device)
        make, data = saved_completer_factory(completer, source), completer.table_
    else:
        make = completer_factory(model, seed, device, units=options.units)
        data = open_table(name, options)[0] if store.is_empty else None
        if features:
            stored = store.read_table()[1] if data is None else data
            frames = read_features(features, stored, options.encoding)
            TableFeatures.of(stored, frames)  # raise what is wrong before the table is stored
            make = completer_factory(model, seed, device, frames, options.units)
    if data is not None and store.is_empty:
        output.line(*data.found)
        store.fill(name, data, completer=saved)
    else:
        output.line(f"{store.location} holds {store.facts.source}: serving what is stored there")
    return make
