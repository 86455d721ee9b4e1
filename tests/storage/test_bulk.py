"""Very many rows go in at once, all or none, and come out as they were at one moment."""

import io
import time

import numpy as np
import polars as pl
import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")

from exchangeable.data.build import table_from_source
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.storage import bulk, database, interchange
from exchangeable.storage.store import Store

FRAME = pl.DataFrame(
    {
        "user": ["ann", "ann", "bob", 'a "quoted", label\n\\N'],
        "film": [1, 7, 7, 12],
        "rating": [5.0, 3.5, 1.0, 0.1 + 0.2],
        "timestamp": [1.5, None, 3.0, 4.0],
    }
)


@pytest.fixture
def store(url):
    made = Store.open(url)
    made.fill("films", Table.of(FRAME))
    yield made
    made.close()


def exported(store):
    return pl.concat(store.export()).sort("user", "film")


def written(store, kind):
    file = io.BytesIO()
    interchange.WRITERS[kind](store.export(), file)
    return file.getvalue()


def rows_of(store, content):
    table = table_from_source("file", content, interchange.import_options(store.facts))
    return interchange.table_rows(store.facts, table)


def test_what_comes_out_is_what_went_in(store):
    assert exported(store).equals(FRAME.sort("user", "film"))
    csv = written(store, "csv")
    assert pl.read_csv(csv).sort("user", "film").equals(FRAME.sort("user", "film"))
    parquet = written(store, "parquet")
    assert pl.read_parquet(io.BytesIO(parquet)).sort("user", "film").equals(exported(store))


def test_files_add_cells_and_replace_their_values_and_times(store, monkeypatch):
    monkeypatch.setattr(bulk, "ROWS_PER_PART", 2)
    content = b"film,user,timestamp,rating\n7,ann,2,5\n1,eve,,1\n9,eve,4,1\n"
    assert store.load(rows_of(store, content)) == (2, 3)
    new = {row[:2]: row[2:] for row in exported(store).rows()}
    assert new["ann", 7] == (5.0, 2.0)
    assert new["eve", 1] == (1.0, None)
    assert new["eve", 9] == (1.0, 4.0)
    assert new["ann", 1] == (5.0, 1.5)
    assert len(new) == len(FRAME) + 2


def test_an_exported_file_can_be_imported(store, url):
    content = written(store, "parquet")
    store.delete_member(0, "ann")
    assert len(exported(store)) == 2
    store.load(rows_of(store, content))
    assert exported(store).equals(FRAME.sort("user", "film"))


@pytest.mark.parametrize("fails", ["late", "label", "value"])
def test_rows_that_fail_leave_nothing(store, fails):
    def rows():
        for n in range(12_000):
            yield (f"user {n}", "1", 5.0, None)
        if fails == "late":
            raise ValueError("the file ends here")
        bad = ["x" * 600, 1, 5.0, None] if fails == "label" else ["zoe", 1, 1e300, None]
        import json

        yield from interchange.decode_rows(store.facts, json.dumps([bad]).encode())

    with pytest.raises(ValueError, match=r"ends here|500 characters|values must be"):
        store.load(rows())
    assert store.read_table()[0] == 1
    assert exported(store).equals(FRAME.sort("user", "film"))
    assert store.load([("zoe", "1", 5.0, None)]) == (2, 1)  # and nothing is in the way


def test_others_write_while_rows_arrive(store, url):
    other = Store.open(url)

    def rows():
        for n in range(6000):
            yield (f"user {n}", "1", 5.0, None)
            if n % 3000 == 0:
                other.put([((f"other {n}", 1), 1.0)])

    assert store.load(rows()) == (4, 6000)
    assert len(exported(store)) == len(FRAME) + 6002
    other.close()


def test_rows_may_arrive_slowly(url, monkeypatch):
    """PostgreSQL counts the time that it waits for them."""
    limits = "-c statement_timeout=200 -c idle_in_transaction_session_timeout=200"
    monkeypatch.setitem(database._LIMITS, "options", limits)
    store = Store.open(url)
    store.fill("films", Table.of(FRAME))

    def rows():
        time.sleep(0.5)
        yield ("eve", "1", 5.0, None)

    assert store.load(rows()) == (2, 1)
    store.close()


def test_the_rows_of_a_new_table_may_arrive_slowly(url, monkeypatch):
    monkeypatch.setitem(database._LIMITS, "options", "-c statement_timeout=200")
    store = Store.open(url)
    store.fill("films", Table.of(FRAME))

    def rows():
        time.sleep(0.5)
        yield ("eve", "1", 5.0, None)

    with store.engine.begin() as connection:
        assert bulk.insert_rows(connection, store.cells, rows()) == 1
    store.close()


def test_an_export_is_of_one_moment(store, url, monkeypatch):
    monkeypatch.setattr("exchangeable.storage.store.ROWS_PER_PART", 2)
    other, parts = Store.open(url), store.export()
    first = next(parts)
    other.delete_member(0, "bob")
    other.put([(("zoe", 1), 5.0)])
    whole = pl.concat([first, *parts])
    assert whole.sort("user", "film").equals(FRAME.sort("user", "film"))
    other.close()


def test_an_empty_table_is_exported_with_its_columns(store):
    for user in FRAME["user"].unique():
        store.delete_member(0, user)
    assert written(store, "csv") == b"user,film,rating,timestamp\n"
    assert exported(store).schema == FRAME.schema


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"user,film,stars\nann,1,5\n", "rating"),
        (b"user,film,rating,timestamp\nann,one,5,1\n", "whole numbers"),
        (b"user,film,rating,timestamp\nann,1,17,1\n", "17"),
        (b"user,film,rating,timestamp\nann,1,5,1\nann,1,1,1\n", "ann"),
    ],
)
def test_a_file_that_does_not_fit_the_table_is_refused(store, content, reason):
    with pytest.raises(InputError, match=reason):
        store.load(rows_of(store, content))
    assert store.read_table()[0] == 1


def test_rows_are_the_same_after_a_message(store):
    table = Table.of(FRAME)
    rows = list(interchange.table_rows(store.facts, table))
    messages = list(interchange.encode_rows(rows * 50))
    assert all(len(message) < 2**20 for message in messages)
    decoded = [row for message in messages for row in interchange.decode_rows(store.facts, message)]
    assert decoded == rows * 50


def test_the_longest_labels_fit_a_message(store):
    """A message of more bytes than the service takes would end the import."""
    label = "\x01" * 500
    frame = pl.DataFrame({c: [f"{label[2:]}{n:02}" for n in range(90)] for c in "abcd"})
    table = Table.of(frame.with_columns(v=pl.Series(np.arange(90) % 5 + 1.0)), axes=list("abcd"))
    from exchangeable.storage.facts import Facts

    facts = Facts.of("x", table)
    assert all(
        len(message) <= 2**20
        for message in interchange.encode_rows(interchange.table_rows(facts, table))
    )


def test_positives_come_out_and_go_in(url):
    frame = pl.DataFrame({"user": ["a", "b"], "value": ["x", "y"]})
    store = Store.open(url)
    store.fill("likes", Table.of(frame, axes=["user", "value"], scale="positives"))
    content = written(store, "csv")
    assert content.startswith(b"user,value,")
    store.load(rows_of(store, b"user,value\nc,x\n"))
    assert len(store.read_table()[1]) == 3
    store.close()
