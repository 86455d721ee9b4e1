"""``exchangeable serve``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.cli.configuration import (
    Configuration,
    TableSetting,
    parse_words,
    read_configuration,
)
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
    from exchangeable.serve.access.tokens import Tokens
    from exchangeable.serve.server import Factory
    from exchangeable.storage.store import Store

SAMPLE = "film-club"
_REQUIRED = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client")


@report_errors
@with_table_options
def serve(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables to serve: names of datasets, files, or folders of saved completers, also "
            "as NAME=FILE; by default those in the database, or else a simulated film club."
        ),
    ] = None,
    configuration: Annotated[
        Path | None,
        typer.Option("--tables", help="TOML file with the tables to serve, and tokens, instead."),
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
        Path | None,
        typer.Option(
            help="File with the bearer token that requests must carry, or with lines of a role "
            "(read, write, admin), a table unless it is for all, and a token."
        ),
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
    """Serve tables over HTTP, with a page to try them; changes are kept in a database.

    Features are not kept there: name their files at each start.
    """
    missing = [name for name in _REQUIRED if find_spec(name) is None]
    if missing:
        raise InputError(f"serve needs {', '.join(missing)}: pip install 'exchangeable[serve]'")
    from exchangeable.runtime.arenas import share_one_arena

    share_one_arena()  # before threads that the modules below start have arenas of their own
    from exchangeable.serve.engine import Engine
    from exchangeable.serve.limits import Limits
    from exchangeable.serve.monitoring.telemetry import log_as_json
    from exchangeable.serve.server import Address
    from exchangeable.serve.server import serve as run
    from exchangeable.serve.state import State
    from exchangeable.serve.tables.served import ServedTable, Tables, one_at_a_time
    from exchangeable.storage.store import Store

    if configuration is not None and (tables or features):
        raise InputError("--tables names tables and features: give no others")
    chosen = (
        parse_words(tables or ()) if configuration is None else read_configuration(configuration)
    )
    tokens = _read_tokens(token_file, chosen)
    address = Address(host, port, tokens, anyone, tuple(allowed_host or ()))
    limits = Limits(upload_memory=upload_memory * 2**20, upload_seconds=upload_seconds)
    output = Output(as_json=False)
    log_as_json()  # what is wrong with a saved state, too
    file = Path(f"{stem_of(chosen.tables[0].source or SAMPLE) if chosen.tables else SAMPLE}.db")
    url = db or f"sqlite:///{file}"
    with ExitStack() as opened:
        bound = opened.enter_context(closing(address.bind()))
        if db is None and not file.exists():  # checked before the database is created
            for setting in chosen.tables or (TableSetting(SAMPLE, SAMPLE),):
                check_exists(setting.source or setting.name)
        settings = _choose(opened.enter_context(closing(Store.open(url))), chosen)
        if tokens is not None:
            tokens.check_tables(setting.name for setting in settings)
        if features and len(settings) > 1:
            raise InputError("--features is for a single table: name them in a file with --tables")
        stores, makes = [], []
        for setting in settings:
            store = opened.enter_context(closing(Store.open(url, setting.name)))
            makes.append(
                prepare_store(
                    store,
                    setting.source,
                    setting.source or SAMPLE,
                    options,
                    setting.model or model,
                    seed,
                    device,
                    output,
                    [*setting.features, *(features or ())],
                )
            )
            stores.append(store)
        states = [
            State.of(store, make.options, state) for store, make in zip(stores, makes, strict=True)
        ]
        served = []
        for setting, store, make, kept in zip(
            settings, stores, one_at_a_time(makes), states, strict=True
        ):
            output.line(f"reading {store.facts.source}")
            engine = Engine(store, make, kept)
            if engine.snapshot.completer is not None:
                output.line(*engine.snapshot.completer.notes_)
            own = replace(limits, **dict[str, Any](setting.limits))
            served.append(ServedTable(engine, own, read_only=setting.read_only))
        sources = ", ".join(store.facts.source for store in stores)
        typer.echo(
            f"serving {sources} at {address.url(bound.getsockname()[1])}, kept in "
            f"{stores[0].location}; Ctrl-C stops it"
        )
        run(Tables(served, limits), address, bound)


def _read_tokens(file: Path | None, chosen: Configuration) -> Tokens | None:
    """Tokens of a file, or of a configuration."""
    from exchangeable.serve.access.tokens import Grant, Tokens

    if file is not None and chosen.tokens:
        raise InputError("tokens are either in the file of --tables or in that of --token-file")
    if file is not None:
        return Tokens.read(file)
    grants = [Grant.of(one.token, one.role, one.table) for one in chosen.tokens]
    return Tokens(grants) if grants else None


def _choose(store: Store, chosen: Configuration) -> Sequence[TableSetting]:
    """The tables to serve: those chosen, or else all that the database holds, or the sample."""
    names = store.sources()
    if not chosen.tables:
        return [TableSetting(name) for name in names] or [TableSetting(SAMPLE, SAMPLE)]
    wanted = [setting.name for setting in chosen.tables]
    twice = next((name for name in wanted if wanted.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"every table must have a name of its own, but two are named {twice}: name one, as in "
            f"other={twice}.csv"
        )
    if names and not names.keys() & set(wanted):
        raise InputError(
            f"{store.location} holds {', '.join(names.values())}, but "
            f"{', '.join(s.source or s.name for s in chosen.tables)} is to be served: give another "
            f"database with --db, name a table that it holds too, or omit the table"
        )
    for setting in chosen.tables:
        if setting.name not in names and setting.source is None:
            raise InputError(f"{store.location} must hold the table {setting.name}, but does not")
    return chosen.tables


def _check_separate(name: str, *, joint: bool) -> None:
    """Raise unless the axes of a table are two sets, as those that a database keeps."""
    if joint:
        raise InputError(f"{name}: the service keeps tables of separate axes, but this is joint")


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
            f"another database with --db, or another name, as in other={name}"
        )
    _check_separate(name, joint=options.joint)
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
        _check_separate(source, joint=completer.table_.joint)
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
