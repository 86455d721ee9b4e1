"""Databases of the first version are brought up to date; those of later versions are refused."""

import json
import threading

import polars as pl
import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")

import sqlalchemy as sa

from exchangeable.errors import Failed, InputError
from exchangeable.storage import schema
from exchangeable.storage.store import Store

FACTS = {
    "source": "/srv/my ratings.csv", "axes": ["user", "film"], "whole": [False, True],
    "value": "rating", "kind": "levels", "levels": [0.5, 1.0, 3.5, 5.0], "completer": False,
    "time": "timestamp",
}  # fmt: skip
# What the first version issued, as PostgreSQL and SQLite log it.
FIRST_VERSION = (
    "CREATE TABLE exchangeable_table (id {serial} NOT NULL, facts TEXT NOT NULL, "
    "version BIGINT NOT NULL, PRIMARY KEY (id))",
    "CREATE TABLE exchangeable_cells (m0 TEXT NOT NULL, m1 TEXT NOT NULL, value {double} NOT NULL, "
    "time {double}, PRIMARY KEY (m0, m1))",
    "INSERT INTO exchangeable_cells (m0, m1, value, time) VALUES ('ann', '1', 5.0, 7.0), "
    "('ann', '7', 3.5, NULL), ('bob', '7', 1.0, 9.0)",
    "INSERT INTO exchangeable_table (id, facts, version) VALUES (1, '{facts}', 12)",
)


def execute(url, *statements):
    engine = sa.create_engine(url)
    try:
        with engine.begin() as connection:
            results = [connection.execute(sa.text(one)) for one in statements]
            return [tuple(row) for row in results[-1]] if results[-1].returns_rows else []
    finally:
        engine.dispose()


@pytest.fixture
def old(url):
    """The URL of a database that the first version has written."""
    postgresql = url.startswith("postgresql")
    types = {
        "serial": "SERIAL" if postgresql else "INTEGER",
        "double": "DOUBLE PRECISION" if postgresql else "DOUBLE",
    }
    facts = json.dumps(FACTS)
    statements = [
        one.replace("{facts}", facts.replace(":", r"\:"))
        .replace("{serial}", types["serial"])
        .replace("{double}", types["double"])
        for one in FIRST_VERSION
    ]
    execute(url, *statements)
    return url


def rows_of(store):
    table = store.read_table()[1]
    columns = {"rating": table.values, "time": table.times}
    return sorted(table.frame(table.index, **columns).fill_nan(None).rows(), key=str)


CELLS = [("ann", 1, 5.0, 7.0), ("ann", 7, 3.5, None), ("bob", 7, 1.0, 9.0)]


def test_a_database_of_the_first_version_keeps_its_table_and_gets_a_name_for_it(old):
    store = Store.open(old)
    assert store.name == "my-ratings"
    assert store.sources() == {"my-ratings": "/srv/my ratings.csv"}
    assert store.read_table()[0] == 12
    assert rows_of(store) == CELLS
    assert store.put([(("cleo", 1), 5.0)]) == 13
    assert store.delete_member(0, "ann") == (14, 2)
    store.close()
    again = Store.open(old, "my-ratings")  # which migrates nothing any more
    assert rows_of(again) == [("bob", 7, 1.0, 9.0), ("cleo", 1, 5.0, None)]
    again.close()
    assert execute(old, "SELECT version FROM exchangeable_schema") == [(schema.VERSION,)]


def test_a_migrated_database_takes_in_a_second_table(old):
    from exchangeable.data.table import Table

    other = Store.open(old, "others")
    assert other.is_empty
    frame = pl.DataFrame({"a": ["x", "y"], "b": ["x", "y"], "stars": [1.0, 2.0]})
    other.fill("others.csv", Table.of(frame))
    assert list(other.sources()) == ["my-ratings", "others"]
    other.close()


def test_a_migration_that_fails_changes_nothing(old, monkeypatch):
    def fail():
        raise RuntimeError("the power fails")

    monkeypatch.setattr(schema, "new_secret", fail)
    with pytest.raises(RuntimeError):
        Store.open(old)
    monkeypatch.undo()
    assert execute(old, "SELECT COUNT(*) FROM exchangeable_cells") == [(3,)]
    store = Store.open(old)
    assert rows_of(store) == CELLS
    store.close()


def test_two_processes_migrate_once(old):
    stores, failures = [], []

    def open_it():
        try:
            stores.append(Store.open(old))
        except (InputError, Failed) as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert [rows_of(store) for store in stores] == [CELLS] * 4
    assert execute(old, "SELECT version FROM exchangeable_schema") == [(schema.VERSION,)]
    for store in stores:
        store.close()


def test_a_database_of_a_later_version_is_refused_and_left_as_it_is(old):
    Store.open(old).close()
    execute(old, f"UPDATE exchangeable_schema SET version = {schema.VERSION + 1}")
    with pytest.raises(InputError) as raised:
        Store.open(old)
    assert f"schema version {schema.VERSION} or an older one, but has 3" in str(raised.value)
    assert "a newer exchangeable wrote it" in str(raised.value)
    assert execute(old, "SELECT COUNT(*) FROM exchangeable_cells_1") == [(3,)]


def test_the_code_of_the_first_version_finds_no_cells_to_change(old):
    """It would delete cells without logging that, and followers would name who was deleted."""
    Store.open(old).close()
    with pytest.raises(sa.exc.DBAPIError):
        execute(old, "SELECT * FROM exchangeable_cells")
    with pytest.raises(sa.exc.DBAPIError):
        execute(old, "CREATE TABLE exchangeable_table (id INTEGER)")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_store_any_text_is_refused(server, encoding):
    engine = sa.create_engine(f"{server}/postgres", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        made = f"CREATE DATABASE {encoding} TEMPLATE template0 ENCODING '{encoding}'"
        connection.execute(sa.text(f"{made} LC_COLLATE 'C' LC_CTYPE 'C'"))
    engine.dispose()
    with pytest.raises(InputError, match=f"must have the encoding UTF8, but has {encoding}"):
        Store.open(f"{server}/{encoding.lower()}")
