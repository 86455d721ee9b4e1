"""What was acknowledged is there: the same claims for SQLite and for PostgreSQL."""

import threading
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")

import sqlalchemy as sa
from tests.support.service_engine import open_engine

from exchangeable.data.table import Table
from exchangeable.errors import Failed, InputError
from exchangeable.storage.database import open_database
from exchangeable.storage.facts import MAX_LABEL_LENGTH, Facts
from exchangeable.storage.store import Store

FRAME = pl.DataFrame(
    {
        "user": ["ann", "ann", "bob", "cleo"],
        "film": [1, 7, 7, 12],
        "rating": [5.0, 3.5, 1.0, 0.5],
    }
)


@pytest.fixture
def store(url):
    made = Store.open(url)
    made.fill("films", Table.of(FRAME))
    yield made
    made.close()


def cells_of(store):
    _, table = store.read_table()
    rows = table.frame(table.index, rating=table.values).rows()
    return {row[:-1]: row[-1] for row in rows}


def test_a_table_goes_in_and_comes_out_as_it_was(store, url):
    version, table = store.read_table()
    assert version == 1
    assert table.axes == ("user", "film")
    assert table.value_name == "rating"
    assert table.scale == Table.of(FRAME).scale
    assert [v.labels.dtype for v in table.vocabularies] == [pl.String, pl.Int64]
    assert cells_of(store) == {row[:2]: row[2] for row in FRAME.rows()}
    again = Store.open(url)
    assert again.facts == store.facts == Facts.of("films", Table.of(FRAME))
    assert cells_of(again) == cells_of(store)
    again.close()


def test_an_empty_database_knows_no_table(url):
    empty = Store.open(url)
    assert empty.is_empty
    with pytest.raises(InputError, match="no table yet"):
        empty.read_table()
    empty.close()


def test_a_file_is_left_only_if_it_holds_a_table_or_was_there_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Store.open("sqlite:///new.db").close()
    assert not list(tmp_path.iterdir())
    filled = Store.open("sqlite:///new.db")
    filled.fill("films", Table.of(FRAME))
    filled.close()
    (tmp_path / "old.db").touch()
    Store.open("sqlite:///old.db").close()
    one, other = Store.open("sqlite:///both.db"), Store.open("sqlite:///both.db")
    other.fill("films", Table.of(FRAME))
    one.close()
    other.close()
    assert {path.name for path in tmp_path.glob("*.db")} == {"new.db", "old.db", "both.db"}


def test_a_second_table_is_refused(store):
    with pytest.raises(InputError, match="already holds films"):
        store.fill("others", Table.of(FRAME))


def test_cells_are_written_and_written_over(store):
    assert store.put([(("dan", 7), 2.0), (("ann", 1), 4.0)]) == 2
    assert store.put([(("dan", 7), 1.0), (("dan", 7), 3.0)]) == 3
    expected = {row[:2]: row[2] for row in FRAME.rows()} | {("dan", 7): 3.0, ("ann", 1): 4.0}
    assert cells_of(store) == expected


def test_a_cell_and_a_member_are_taken_out(store):
    assert store.delete_cell(("ann", 7)) == (2, 1)
    assert store.delete_cell(("ann", 7)) == (2, 0)  # nothing changed
    assert store.delete_member(1, 7) == (3, 1)
    assert set(cells_of(store)) == {("ann", 1), ("cleo", 12)}
    assert store.delete_member(0, "ann") == (4, 1)
    assert store.delete_member(0, "cleo") == (5, 1)
    version, table = store.read_table()
    assert (version, len(table), table.shape) == (5, 0, (0, 0))


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (("ann",), "2 labels"),
        (("ann", "seven"), "whole numbers"),
        (("ann", "07"), "whole numbers"),
        (("ann", 10**20), "whole numbers"),
        (("", 7), "1 to 500 characters"),
        (("x" * (MAX_LABEL_LENGTH + 1), 7), "1 to 500 characters"),
        (("a\x00b", 7), "valid text without null characters"),
        (("\ud800", 7), "valid text without null characters"),
    ],
)
def test_labels_that_cannot_be_are_refused(store, cell, reason):
    with pytest.raises(InputError, match=reason):
        store.put([(("eve", 1), 5.0), (cell, 5.0)])
    with pytest.raises(InputError, match=reason):
        store.delete_cell(cell)
    assert store.read_table()[0] == 1
    assert ("eve", 1) not in cells_of(store)


@pytest.mark.parametrize(
    "label", ["'; DROP TABLE exchangeable_cells; --", "%s", "Amélie 🎬", "a\nb"]
)
def test_labels_are_only_labels(store, label):
    store.put([((label, 7), 2.0)])
    assert cells_of(store)[label, 7] == 2.0
    assert store.delete_member(0, label)[1] == 1


def test_writers_at_the_same_time_lose_nothing(store):
    def write(number):
        for film in range(20):
            store.put([((f"writer {number}", film), 1.0), (("all", film), float(number))])

    writers = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert store.read_table()[0] == 1 + 6 * 20
    assert len(cells_of(store)) == len(FRAME) + 6 * 20 + 20


def test_a_change_that_fails_leaves_nothing(store, monkeypatch):
    def broken(connection):
        raise sa.exc.OperationalError("update", {}, Exception("disk full\nrating 5"))

    monkeypatch.setattr(store, "_next_version", broken)
    with pytest.raises(Failed, match=r"cannot be written to: disk full$"):
        store.put([(("eve", 1), 5.0)])
    monkeypatch.undo()
    assert ("eve", 1) not in cells_of(store)


def test_large_tables_go_in_in_parts(url):
    index = np.argwhere(np.ones((110, 110)))
    large = Store.open(url)
    large.fill("square", Table.of(index, np.arange(len(index)) % 5 + 1.0))
    assert len(large.read_table()[1]) == 12_100
    large.close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mysql://localhost/x", "sqlite or postgresql, but is mysql"),
        ("no address", "cannot be opened"),
        ("sqlite:////proc/nowhere/x.db", "cannot be opened"),
        ("postgresql+psycopg://nobody@127.0.0.1:1/x", "cannot be opened"),
    ],
)
def test_a_database_that_cannot_be_opened_is_told(url, reason):
    with pytest.raises(InputError, match=reason):
        Store.open(url)


def test_labels_of_other_kinds_are_refused(url):
    dates = FRAME.with_columns(user=pl.Series([1.5, 1.5, 2.5, 3.5]))
    store = Store.open(url)
    with pytest.raises(InputError, match="texts or whole numbers"):
        store.fill("dates", Table.of(dates))
    store.close()
    again = Store.open(url)
    assert again.is_empty
    again.close()


def test_labels_fit_a_key_together(tmp_path):
    wide = "\U0001f3ac" * 500
    frame = pl.DataFrame({"a": ["x", "y"], "b": ["x", "y"], "stars": [1.0, 2.0]})
    engine = open_engine(tmp_path, frame)
    with pytest.raises(InputError, match="at most 2,000 bytes together, but these have 4,000"):
        engine.refresher.put([((wide, wide), 1.0)])
    engine.close()
    other = Store.open(f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(InputError, match="at most 2,000 bytes"):
        other.fill("x", Table.of(frame.with_columns(a=pl.lit(wide), b=pl.Series([wide, "y"]))))
    assert other.is_empty
    other.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(url):
    with pytest.raises(InputError, match="kept in a file"):
        Store.open(url)


def test_the_location_shows_no_password(tmp_path):
    url = "postgresql://ann:secret@host/films?password=secret&application_name=films"
    shown = Store.location.fget(SimpleNamespace(engine=open_database(url)[0]))
    assert "secret" not in shown
    assert "application_name=films" in shown
