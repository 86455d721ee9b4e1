"""The command serve: the features and times that a table is served with."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")
pytest.importorskip("fastapi", reason="needs exchangeable[serve]")

from exchangeable import Completer
from exchangeable.cli.options import DEFAULTS
from exchangeable.cli.output import Output
from exchangeable.cli.service import prepare_store
from exchangeable.data.options import TableOptions
from exchangeable.data.table import Table
from exchangeable.serve.server import saved_completer_factory
from exchangeable.storage.store import Store

FILMS = pl.DataFrame(
    {"film": ["Heat", "Alien", "Big", "Up"], "length": [170, 117, 104, 96], "year": [1, 2, 3, 4]}
)


@pytest.fixture
def timed(here):
    """A table with times, and features of its films and of one more."""
    lines = (here / "ratings.csv").read_text().splitlines()
    rows = [f"{line},{'time' if n == 0 else 10 * n}" for n, line in enumerate(lines)]
    rows[1] = rows[1].rpartition(",")[0] + ","  # a cell without a time
    (here / "timed.csv").write_text("\n".join(rows) + "\n")
    FILMS.write_csv("films.csv")
    return here


def prepare(store, table="timed.csv", options=DEFAULTS, features=("film=films.csv",)):
    given = (options, "pretrained", 0, "cpu", Output(as_json=False))
    return prepare_store(store, table, table or "film-club", *given, list(features))


def open_store(folder):
    return Store.open(f"sqlite:///{folder / 'table.db'}")


def test_a_table_is_served_with_features_also_at_a_later_start(timed):
    for table in ("timed.csv", None, "timed.csv"):
        store = open_store(timed)
        completer = prepare(store, table)(store.read_table()[1])
        store.close()
        (note,) = [note for note in completer.notes_ if note.startswith("features of film")]
        assert note.endswith("3 of 3 members have features")
        assert completer.fitted_.features.sizes == (0, 2)


def test_a_member_that_was_deleted_does_not_come_back_with_its_features(timed):
    store = open_store(timed)
    make = prepare(store)
    store.delete_member(1, "Heat")
    completer = make(store.read_table()[1])
    assert completer.table_.vocabularies[1].labels.to_list() == ["Alien", "Big"]
    store.put([(("ann", "Up"), 3.0)])
    completer = make(store.read_table()[1])
    assert completer.fitted_.features.axes[1].described.tolist() == [True, True, True]
    for film in ("Alien", "Big", "Up"):
        store.delete_member(1, film)
    store.put([(("ann", "Jaws"), 3.0), (("bob", "Jaws"), 2.0)])
    assert not make(store.read_table()[1]).fitted_.features.axes
    store.close()


def test_times_are_stored_with_the_cells(timed):
    store = open_store(timed)
    prepare(store, options=TableOptions(time="time"), features=())
    store.put([(("ann", "Alien"), 3.0), (("eve", "Heat"), 5.0)])
    store.close()
    store = open_store(timed)
    _, table = store.read_table()
    store.close()
    assert table.time_name == "time"
    frame = table.frame(table.index, time=table.times)
    times = {(user, film): time for user, film, time in frame.rows()}
    assert times["bob", "Heat"] == 30
    assert times["dora", "Big"] == 90
    # Without a time in the file, with a new value, and new.
    for cell in (("ann", "Heat"), ("ann", "Alien"), ("eve", "Heat")):
        assert np.isnan(times[cell])


def test_a_table_without_times_has_none_in_its_database(timed):
    store = open_store(timed)
    prepare(store, options=replace(DEFAULTS, time=""), features=())
    assert "time" not in store.cells.columns
    assert store.read_table()[1].times is None
    store.close()


def test_a_saved_completer_is_served_with_its_features(timed):
    table = Table.read("timed.csv", time="time")
    saved = Completer("pretrained").fit_table(table, features={"film": FILMS})
    saved.save("kept")
    again = saved_completer_factory(Completer.load("kept"))(table)
    assert again.fitted_.features.sizes == (0, 2)
    cells = [("cleo", "Big"), ("bob", "Alien"), ("cleo", "Heat")]
    np.testing.assert_allclose(again.predict(cells), saved.predict(cells), atol=1e-5)
