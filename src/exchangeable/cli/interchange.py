"""``exchangeable data export`` and ``import``: tables of the service's databases as files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.cli.options import Encoding, Force
from exchangeable.cli.output import check_writable, report_errors
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError

if TYPE_CHECKING:
    from exchangeable.storage.store import Store

Database = Annotated[
    str,
    typer.Option(help="Database of a service: sqlite:///FILE or postgresql://..."),
]
TableName = Annotated[
    str | None, typer.Option(help="Name of the table; by default the first of the database.")
]


@report_errors
def export_table(
    db: Database,
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")],
    table: TableName = None,
    force: Force = False,
) -> None:
    """Write all cells of a table to a file, also while a service changes the table."""
    from exchangeable.runtime.files import whole_file
    from exchangeable.storage import interchange

    write = interchange.WRITERS.get(out.suffix.lower().removeprefix("."))
    if write is None:
        raise InputError(
            f"{out}: the name must end in .csv or .parquet, but ends in {out.suffix!r}"
        )
    check_writable(out, force)
    with _open(db, table) as store, whole_file(out) as target, target.open("wb") as file:
        write(store.export(), file)
    typer.echo(f"{out}: all cells of {store.name}")


@report_errors
def import_table(
    file: Annotated[Path, typer.Argument(help="File with the table's columns: CSV or Parquet.")],
    db: Database,
    table: TableName = None,
    duplicates: Annotated[
        str, typer.Option(help="Value of a cell that the file has more than once, as elsewhere.")
    ] = "error",
    encoding: Encoding = None,
) -> None:
    """Add the cells of a file to a table, or replace their values: all of them, or none.

    Services on the database take them up.
    """
    from exchangeable.data.build import table_from_file
    from exchangeable.storage import interchange

    with _open(db, table) as store:
        chosen: Any = duplicates  # which reading the file checks
        given = TableOptions(duplicates=chosen, encoding=encoding)
        options = interchange.import_options(store.facts, given)
        rows = interchange.table_rows(store.facts, table_from_file(str(file), options))
        version, number = store.load(rows)
    typer.echo(f"{store.name}: {number:,} cells written, version {version}")


@contextmanager
def _open(db: str, table: str | None) -> Iterator[Store]:
    """A table that a database holds."""
    if find_spec("sqlalchemy") is None:
        raise InputError("databases need sqlalchemy: pip install 'exchangeable[serve]'")
    from exchangeable.storage.store import Store

    with closing(Store.open(db, table)) as store:
        if store.is_empty:
            held = ", ".join(store.sources()) or "no table"
            wanted = "a table" if table is None else f"the table {table[:60]}"
            raise InputError(f"{store.location} must hold {wanted}, but holds {held}")
        yield store
