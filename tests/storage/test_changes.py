"""The log of changes: complete for whoever follows it, without what was deleted."""

import math
import threading

import polars as pl
import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")

import sqlalchemy as sa

from exchangeable.data.table import Table
from exchangeable.errors import Failed
from exchangeable.storage import changes
from exchangeable.storage import watch as watch_module
from exchangeable.storage.changes import digest
from exchangeable.storage.database import Occupied
from exchangeable.storage.schema import CHANGES
from exchangeable.storage.store import Store
from exchangeable.storage.watch import Watch

FRAME = pl.DataFrame(
    {
        "user": ["ann", "ann", "bob", "cleo"],
        "film": [1, 7, 7, 12],
        "rating": [5.0, 3.5, 1.0, 0.5],
        "timestamp": [1.0, 2.0, 3.0, 4.0],
    }
)


@pytest.fixture
def store(url):
    made = Store.open(url)
    made.fill("films", Table.of(FRAME))
    yield made
    made.close()


@pytest.fixture
def watch(store):
    made = Watch(store)
    yield made
    made.close()
    made.disconnect()


def content(store):
    with store.engine.connect() as connection:
        return [row.payload for row in connection.execute(sa.select(CHANGES)) if row.payload]


def test_every_change_is_in_the_log_under_its_version(store, watch):
    store.put([(("dan", 7), 1.0), (("eve", 1), 0.1 + 0.2)], [5.5, math.nan])
    store.put([(("dan", 7), 3.5)])
    news = watch.look(1)
    assert news.version == 3
    assert [entry.version for entry in news.entries] == [2, 3]
    assert news.entries[0].cells == ((("dan", "7"), 1.0), (("eve", "1"), 0.1 + 0.2))
    assert news.entries[0].times[0] == 5.5
    assert math.isnan(news.entries[0].times[1])
    assert watch.look(2).entries == news.entries[1:]
    assert watch.look(3).entries == ()


def test_a_change_in_the_midst_of_a_look_is_found_by_the_next_one(store, watch, monkeypatch):
    assert watch.look(1).version == 1
    store.put([(("dan", 7), 1.0)])

    def change_then(connection, table_id):
        version = plain(connection, table_id)
        monkeypatch.undo()
        store.put([(("eve", 7), 1.0)])
        return version

    plain = watch_module.read_head
    monkeypatch.setattr(watch_module, "read_head", change_then)
    version = watch.look(1).version
    assert watch.look(version).version == 3
    assert watch.look(3) == watch.look(3) == changes_of(3)


def test_a_change_that_fails_is_not_in_the_log(store, watch, monkeypatch):
    def fail(*given):
        raise sa.exc.OperationalError("insert", {}, Exception("disk full"))

    monkeypatch.setattr(store.log, "put", fail)
    with pytest.raises(Failed):
        store.put([(("dan", 7), 1.0)])
    assert watch.look(1) == changes_of(1)


def changes_of(version):
    from exchangeable.storage.watch import News

    return News(version, ())


def test_who_was_deleted_is_in_the_log_by_a_digest_alone(store, watch):
    store.put([(("secret dan", 7), 1.0), (("eve", 1), 5.0)])
    store.put([(("fred", 7), 1.0)])
    store.delete_member(0, "secret dan")
    assert not [text for text in content(store) if "dan" in text or "eve" in text]
    entries = watch.look(1).entries
    assert [entry.version for entry in entries] == [2, 3, 4]  # no gap
    assert [entry.cells for entry in entries] == [None, None, None]
    assert entries[2].kind == "delete member"
    secret = store.log.secret
    assert (entries[2].axis, entries[2].digest) == (0, digest(secret, 0, "secret dan"))
    others = {digest(secret, 1, "secret dan"), digest("00" * 32, 0, "secret dan")}
    assert entries[2].digest not in others


def test_a_deleted_cell_is_in_no_entry(store, watch):
    store.put([(("dan", 7), 1.0)])
    store.delete_cell(("dan", 7))
    assert content(store) == []
    assert [entry.kind for entry in watch.look(1).entries] == ["put", "delete cell"]


def test_entries_are_kept_for_a_while_and_then_removed(store, watch, monkeypatch):
    store.put([(("dan", 7), 1.0)])
    store.trim_log()
    assert len(watch.look(1).entries) == 1
    monkeypatch.setattr(changes, "KEEP_SECONDS", -1.0)
    store.trim_log()
    assert watch.look(1) == changes_of(2)


def test_large_changes_are_logged_without_their_cells(store, watch):
    many = [((f"{'x' * 400} {n}", 7), 1.0) for n in range(1000)]
    store.put(many)
    (entry,) = watch.look(1).entries
    assert (entry.kind, entry.cells) == ("put", None)


def test_versions_of_writers_at_the_same_time_are_durable_in_sequence(store, watch, url):
    """Else a follower would go past a version that is durable only later."""
    stores = [store, Store.open(url)]
    seen, stop = [1], threading.Event()

    def look():
        while not stop.is_set() or watch.look(seen[-1]).version > seen[-1]:
            news = watch.look(seen[-1])
            seen.extend(entry.version for entry in news.entries)

    def write(number):
        for film in range(15):
            stores[number % 2].put([((f"writer {number}", film), 1.0)])

    looker = threading.Thread(target=look)
    looker.start()
    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    stop.set()
    looker.join()
    assert seen == list(range(1, 62))
    stores[1].close()


def test_a_change_wakes_whoever_waits_for_it(store, watch):
    if store.engine.dialect.name != "postgresql":
        pytest.skip("only PostgreSQL notifies")
    watch.look(1)
    woken = threading.Event()
    threading.Thread(target=lambda: (watch.wait(30), woken.set())).start()
    for number in range(200):  # the thread may not wait yet
        store.put([(("dan", number), 1.0)])
        if woken.wait(0.05):
            break
    assert woken.is_set()


def test_a_watch_connects_again(store, watch):
    watch.look(1)
    watch.disconnect()
    store.put([(("dan", 7), 1.0)])
    assert watch.look(1).version == 2


def test_a_writer_that_waits_in_vain_is_told_to_try_again(store, url, monkeypatch):
    from exchangeable.storage import database

    monkeypatch.setattr(database, "_WAIT", 0)
    monkeypatch.setitem(database._LIMITS, "options", "-c lock_timeout=50")
    other = Store.open(url)
    with store._transaction():
        with pytest.raises(Occupied, match="try again"):
            other.put([(("dan", 7), 1.0)])
        assert not other.last_write_failed  # the database can be written to
    assert other.put([(("dan", 7), 1.0)]) == 2
    other.close()
