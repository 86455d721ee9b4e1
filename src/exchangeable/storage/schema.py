"""SQL tables of a database, the version of their schema, and migrations from older ones.

    exchangeable_schema    one row: the version of the schema
    exchangeable_table     one row for each table: its name, its facts, its version
    exchangeable_changes   one row for each recent change of a table
    exchangeable_cells_1   the cells of the table with id 1, one column of labels for each axis

Version 1, without ``exchangeable_schema`` and ``exchangeable_changes``, held a single table without
a name, whose cells were in ``exchangeable_cells``.
"""

from __future__ import annotations

import json
import re
import secrets
from pathlib import PurePath

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from exchangeable.errors import InputError
from exchangeable.storage.database import WRITES
from exchangeable.storage.facts import Facts

VERSION = 2
"""Version of the schema that this code reads and writes."""
MAX_NAME_LENGTH = 40
"""Maximum number of characters of a table's name."""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_NAME_LENGTH - 1}}}")
_LOCK = 0x6578_6368
"""PostgreSQL's advisory lock for changes of the schema."""

_METADATA = sa.MetaData()
SCHEMA = sa.Table(
    "exchangeable_schema", _METADATA, sa.Column("version", sa.Integer, nullable=False)
)
HEAD = sa.Table(
    "exchangeable_table",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("facts", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("name", sa.Text, nullable=False, server_default=""),
    sa.Column("secret", sa.Text, nullable=False, server_default=""),
)
CHANGES = sa.Table(
    "exchangeable_changes",
    _METADATA,
    sa.Column("table_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("payload", sa.Text),
    sa.Column("written", sa.Double, nullable=False),
)


def cells_table(table_id: int, facts: Facts, name: str | None = None) -> sa.Table:
    """The SQL table of cells: a column for each axis, one for values and one for times, if any."""
    keys = [sa.Column(f"m{a}", sa.Text, primary_key=True) for a in range(len(facts.axes))]
    numbers = [sa.Column("value", sa.Double, nullable=False)]
    if facts.time is not None:
        numbers.append(sa.Column("time", sa.Double))
    return sa.Table(name or f"exchangeable_cells_{table_id}", sa.MetaData(), *keys, *numbers)


def name_of(source: str) -> str:
    """The name of a table that was read from a file, a folder or a dataset.

    >>> name_of("/srv/My ratings (2).csv.gz"), name_of("ml-100k"), name_of("...")
    ('My-ratings-2', 'ml-100k', 'table')
    """
    stem = PurePath(source).name.partition(".")[0]
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")
    return safe[:MAX_NAME_LENGTH].rstrip("-_") or "table"


def check_name(name: str) -> str:
    """Return a name of a table; raise if it is not safe in addresses and in files."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"names of tables must be 1 to {MAX_NAME_LENGTH} letters, digits, - and _, but one is "
            f"{name[:60]!r}"
        )
    return name


def new_secret() -> str:
    """A key for the digests of a table's deleted members."""
    return secrets.token_hex(32)


def migrate(engine: Engine) -> None:
    """Bring a database of an older version up to date; raise if it is of a newer one."""
    with engine.connect() as connection:
        version = _version(connection)
    if version == 1:
        with engine.execution_options(**WRITES).begin() as connection:
            prepare(connection)


def prepare(connection: Connection) -> None:
    """Create what the database lacks, or migrate it, within a transaction that writes."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    version = _version(connection)
    if version == VERSION:
        return
    if version == 1:
        _migrate_from_1(connection)
    _METADATA.create_all(connection)
    connection.execute(sa.insert(SCHEMA), [{"version": VERSION}])


def _version(connection: Connection) -> int:
    """Version of the schema, 0 if there is none; raises if it is newer than this code."""
    inspector = sa.inspect(connection)
    if not inspector.has_table(SCHEMA.name):
        return 1 if inspector.has_table(HEAD.name) else 0
    version = int(connection.execute(sa.select(SCHEMA.c.version)).scalar_one())
    if version > VERSION:
        raise InputError(
            f"the database must have schema version {VERSION} or an older one, but has {version}: "
            f"a newer exchangeable wrote it"
        )
    return version


def _migrate_from_1(connection: Connection) -> None:
    """Give the single table a name, and its cells a table of their own name."""
    row = connection.execute(sa.select(HEAD.c.id, HEAD.c.facts)).one_or_none()
    for column in (HEAD.c.name, HEAD.c.secret):
        connection.execute(
            sa.text(f"ALTER TABLE {HEAD.name} ADD COLUMN {column.name} TEXT NOT NULL DEFAULT ''")
        )
    if row is None:
        return
    source = json.loads(row.facts)["source"]
    named = {"name": name_of(source), "secret": new_secret()}
    connection.execute(sa.update(HEAD).where(HEAD.c.id == row.id).values(named))
    cells = cells_table(row.id, Facts.from_json(row.facts))
    connection.execute(sa.text(f"ALTER TABLE exchangeable_cells RENAME TO {cells.name}"))


def heads(connection: Connection) -> list[sa.Row[tuple[int, str, int, str, str]]]:
    """Heads of the tables that a database holds, the first one first."""
    if not sa.inspect(connection).has_table(HEAD.name):
        return []
    return list(connection.execute(sa.select(HEAD).order_by(HEAD.c.id)))


def table_names(connection: Connection) -> list[str]:
    """Names of the tables that a database holds, the first one first."""
    return [head.name for head in heads(connection)]


def try_writes(connection: Connection, table_id: int, cells: sa.Table) -> None:
    """Change nothing in every way that changes of a table do; raise if one of them cannot."""
    same = sa.update(HEAD).where(HEAD.c.id == table_id).values(version=HEAD.c.version)
    connection.execute(same)
    for table in (cells, CHANGES):
        no_rows = sa.select(table).where(sa.false())
        connection.execute(sa.insert(table).from_select(list(table.columns), no_rows))
        unchanged = {column.name: column for column in table.columns}
        connection.execute(sa.update(table).where(sa.false()).values(unchanged))
        connection.execute(sa.delete(table).where(sa.false()))
