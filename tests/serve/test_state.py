"""What is saved beside the database leads to the same answers, or is not used."""

import json
import logging
from dataclasses import replace

import polars as pl
import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")
pytest.importorskip("fastapi", reason="needs exchangeable[serve]")

from tests.support.service_engine import FILM, FRAME, MEMBER, fit_bias, until

from exchangeable import Completer
from exchangeable.data.table import Table
from exchangeable.serve.answers.lists import Question
from exchangeable.serve.engine import Engine
from exchangeable.serve.server import completer_factory, saved_completer_factory
from exchangeable.serve.snapshot import Change
from exchangeable.serve.state import State
from exchangeable.storage.store import Store

OPTIONS = {"model": "pretrained"}


def fit(table):
    return Completer("pretrained").fit_table(table)


@pytest.fixture
def opened(tmp_path):
    """Opens engines on one database, and closes them in the end."""
    engines = []

    def open_again(make=fit, options=OPTIONS, frame=FRAME):
        for engine in engines:
            engine.close()
        store = Store.open(f"sqlite:///{tmp_path / 'table.db'}")
        if store.is_empty:
            store.fill("film-club", Table.of(frame))
        engine = Engine(store, make, State.of(store, options))
        engines.append(engine)
        return engine

    yield open_again
    for engine in engines:
        engine.close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "table.db.state" / "film-club"


def never(table):
    raise AssertionError("the table was read again")


def saved(engine):
    """Wait until the completer of the last refresh is saved."""
    file = engine.refresher.state.folder / "changes.jsonl"

    def version():
        return json.loads(file.read_text().split("\n")[0])["version"] if file.exists() else 0

    until(lambda: version() == engine.snapshot.read_version)
    return engine


def lists(engine):
    cells = engine.recommend(Question(0, None, [(FILM, 5.0)], n=5))[0]
    return [(one.labels["film"], one.mean, one.low, one.high) for one in cells]


def test_a_start_goes_on_from_what_was_saved(opened):
    first = saved(opened())
    expected = lists(first)
    again = opened(never)
    assert lists(again) == [pytest.approx(one, abs=1e-5) for one in expected]
    assert again.snapshot.version == 1
    assert again.snapshot.completer.notes_ == first.snapshot.completer.notes_


def test_changes_since_are_folded_in_even_if_the_process_was_killed(opened, folder):
    first = saved(opened())
    first.refresher.put([(("eve", FILM), 5.0)])
    last = first.refresher.put([((MEMBER, FILM), 1.0), (("eve", "a new one"), 2.0)])
    # Nothing is closed or waited for: the lines are there before the changes are acknowledged.
    assert len((folder / "changes.jsonl").read_text().splitlines()) == 3
    until(lambda: first.snapshot.version == last)
    expected = lists(first)
    again = opened(never)
    assert again.snapshot.version == last
    assert again.snapshot.read_version == 1
    table = again.snapshot.completer.table_
    asked = pl.DataFrame({"member": ["eve", MEMBER, "eve"], "film": [FILM, FILM, "a new one"]})
    assert table.values[table.positions(asked)].tolist() == [5, 1, 2]
    assert [one[0] for one in lists(again)] == [one[0] for one in expected]
    further = again.refresher.put([(("zoe", FILM), 3.0)])
    until(lambda: again.snapshot.version == further)
    assert opened(never).snapshot.version == further


def test_what_was_deleted_is_in_no_file_once_that_is_acknowledged(opened, folder, monkeypatch):
    engine = saved(opened())
    files = lambda: [path for path in folder.rglob("*") if path.is_file()]  # noqa: E731
    assert files()
    monkeypatch.setattr(engine.refresher, "make", lambda table: 1 / 0)  # no refresh succeeds
    engine.refresher.delete_member(0, MEMBER)
    assert not files()
    engine.refresher.put([(("eve", FILM), 5.0)])
    assert not files()
    monkeypatch.undo()
    again = saved(opened())
    assert MEMBER not in again.snapshot.completer.table_.vocabularies[0].labels.to_list()
    other = FRAME.filter(pl.col("member") != MEMBER).row(0)
    assert again.refresher.delete_cell(other[:2])[1] == 1
    assert again.refresher.state._least == again.refresher.pending.deleted


def test_a_deletion_that_the_follower_brings_first_is_in_no_file_once_acknowledged(
    opened, folder, monkeypatch
):
    engine = saved(opened())
    refresher, plain = engine.refresher, engine.store.delete_member

    def delete_and_follow(axis, member):
        version, deleted = plain(axis, member)
        # As far as the follower's thread has come when the deletion is acknowledged.
        refresher.pending.add(Change(version, needs_refresh=True))
        return version, deleted

    monkeypatch.setattr(engine.store, "delete_member", delete_and_follow)
    monkeypatch.setattr(refresher, "make", lambda table: 1 / 0)  # no refresh succeeds
    refresher.delete_member(0, MEMBER)
    assert not folder.exists()


def test_a_completer_that_was_being_saved_when_something_was_deleted_does_not_stay(
    opened, folder, monkeypatch
):
    engine = saved(opened())
    plain = Completer.save

    def save_while_deleted(self, path):
        engine.refresher.state.remove(7)
        plain(self, path)

    monkeypatch.setattr(Completer, "save", save_while_deleted)
    engine.refresher.state.save(3, engine.snapshot.completer)
    assert not folder.exists()
    engine.refresher.state.save(6, engine.snapshot.completer)
    assert not folder.exists()
    monkeypatch.undo()
    engine.refresher.state.save(7, engine.snapshot.completer)
    assert folder.exists()


def test_what_is_being_saved_when_the_service_stops_is_whole(opened, folder, monkeypatch):
    engine, plain = saved(opened()), Completer.save

    def save_while_stopped(self, path):
        engine.close()
        plain(self, path)

    monkeypatch.setattr(Completer, "save", save_while_stopped)
    state = engine.refresher.state
    state.save(1, engine.snapshot.completer)
    assert state._file is None
    monkeypatch.undo()
    assert opened(never).snapshot.version == 1


def test_after_a_refresh_the_state_is_that_of_the_refresh(opened, folder):
    engine = saved(opened())
    version, _ = engine.refresher.delete_member(0, MEMBER)
    until(lambda: engine.snapshot.read_version >= version)
    saved(engine)
    last = engine.refresher.put([(("eve", FILM), 5.0)])
    again = opened(never)
    assert (again.snapshot.version, again.snapshot.read_version) == (last, version)
    labels = again.snapshot.completer.table_.vocabularies[0].labels.to_list()
    assert MEMBER not in labels
    assert "eve" in labels


def test_the_state_of_another_model_or_table_is_not_used(opened, folder, caplog):
    saved(opened())
    with caplog.at_level(logging.WARNING):
        other = opened(fit_bias, {"model": "bias"})
    assert "state not used" in caplog.text
    assert other.snapshot.completer.model_name_ == "bias"
    assert "another table, model or release" in caplog.records[-1].fields["reason"]
    saved(other)
    assert opened(never, {"model": "bias"}).snapshot.completer.model_name_ == "bias"


@pytest.mark.parametrize(
    "harm", ["weights", "head", "empty", "a line", "a line between", "gone", "manifest"]
)
def test_a_damaged_state_is_not_used(opened, folder, harm, caplog):
    first = saved(opened())
    first.refresher.put([(("eve", FILM), 4.0)])
    last = first.refresher.put([(("eve", FILM), 5.0)])
    until(lambda: first.snapshot.version == last)
    expected, changes = lists(first), folder / "changes.jsonl"
    first.close()
    if harm == "weights":
        file = folder / "completer" / "table.safetensors"
        content = bytearray(file.read_bytes())
        content[-9] ^= 1
        file.write_bytes(content)
    elif harm == "head":
        changes.write_text("{" + changes.read_text())
    elif harm == "empty":
        changes.write_text("")
    elif harm == "a line":
        lines = changes.read_text().splitlines(keepends=True)
        changes.write_text("".join(lines[:-1]))
    elif harm == "a line between":
        lines = changes.read_text().splitlines(keepends=True)
        changes.write_text(lines[0] + lines[-1])
    elif harm == "gone":
        changes.unlink()
    else:
        file = folder / "completer" / "manifest.json"
        file.write_text(file.read_text() + " ")
    again = opened()
    assert again.snapshot.read_version == last
    assert "state not used" in caplog.text
    assert len(again.snapshot.completer.table_) == len(FRAME) + 1
    assert len(lists(again)) == len(expected)
    saved(again)
    assert opened(never).snapshot.version == last


def test_a_state_that_cannot_be_saved_harms_nothing(opened, folder, caplog):
    folder.parent.mkdir()
    folder.write_text("a file in its place")
    engine = opened()
    version = engine.refresher.put([(("eve", FILM), 5.0)])
    until(lambda: engine.snapshot.version == version)
    assert not engine.refresher.failing


def test_what_completers_depend_on_is_in_the_key(tmp_path, opened):
    store = opened().store
    ages = {"member": pl.DataFrame({"member": [MEMBER], "age": [30.0]})}
    older = {"member": pl.DataFrame({"member": [MEMBER], "age": [31.0]})}
    factories = [
        completer_factory("auto", 0, "auto"),
        completer_factory("pretrained", 0, "auto"),
        completer_factory("auto", 1, "auto"),
        completer_factory("auto", 0, "cpu"),
        completer_factory("auto", 0, "auto", ages),
        completer_factory("auto", 0, "auto", older),
        completer_factory("auto", 0, "auto", units="log"),
    ]
    keys = [State.of(store, factory.options).key for factory in factories]
    assert len(set(keys)) == len(keys)
    same = completer_factory("auto", 0, "auto", ages)
    assert State.of(store, same.options).key == keys[4]


def test_a_saved_completer_in_the_place_of_another_is_another(tmp_path, opened):
    store, keys = opened().store, []
    for seed in (0, 1):
        completer = Completer("bias", seed=seed).fit_table(Table.of(FRAME))
        completer.fitted_ = replace(completer.fitted_, notes=(f"note {seed}",))
        completer.save(tmp_path / "kept")
        factory = saved_completer_factory(completer, tmp_path / "kept")
        keys.append(State.of(store, factory.options).key)
    assert keys[0] != keys[1]


def test_a_file_in_the_place_of_the_database_is_another_database(tmp_path, opened):
    first = saved(opened())
    key = first.refresher.state.key
    first.close()
    copied = tmp_path / "copy.db"
    copied.write_bytes((tmp_path / "table.db").read_bytes())
    copied.replace(tmp_path / "table.db")
    assert opened().refresher.state.key != key


@pytest.fixture
def together(tmp_path):
    """Opens engines on one database beside each other, and closes them in the end."""
    engines = []

    def open_beside(make=fit, options=OPTIONS):
        store = Store.open(f"sqlite:///{tmp_path / 'table.db'}")
        if store.is_empty:
            store.fill("film-club", Table.of(FRAME))
        engine = Engine(store, make, State.of(store, options))
        engines.append(engine)
        return engine

    yield open_beside
    for engine in engines:
        engine.close()


def current(*engines):
    """Wait until engines include all changes."""
    last = engines[0].store.read_version()
    until(lambda: all(engine.snapshot.version == last for engine in engines))
    return last


def test_each_of_two_services_goes_on_from_a_state_of_its_own(together):
    one, two = saved(together()), saved(together())
    assert one.refresher.state.folder != two.refresher.state.folder
    one.refresher.put([(("eve", FILM), 5.0)])
    two.refresher.put([(("zoe", FILM), 4.0)])
    last = current(one, two)
    for engine in (one, two):
        engine.close()
    again = [together(never), together(never)]
    assert [engine.snapshot.version for engine in again] == [last, last]
    assert lists(again[0]) == lists(again[1])


def test_a_service_keeps_its_state_while_another_one_starts(together):
    one = saved(together())
    one.refresher.put([(("eve", FILM), 5.0)])
    saved(together())
    folder = one.refresher.state.folder
    one.close()
    again = together(never)
    assert again.refresher.state.folder == folder


def test_services_with_other_models_do_not_take_each_others_state(together):
    plain = {"model": "bias"}
    saved(together())
    saved(together(fit_bias, plain)).close()
    assert together(never, plain).snapshot.completer.model_name_ == "bias"


def test_a_deletion_removes_the_states_of_all_services_from_before_it(together, monkeypatch):
    one, two = saved(together()), saved(together())
    stopped = saved(together())
    stopped.close()
    engines = (one, two)
    folders = [engine.refresher.state.folder for engine in (*engines, stopped)]
    assert len({*folders}) == 3
    for engine in engines:
        monkeypatch.setattr(engine.refresher.follower, "look", lambda: None)
        monkeypatch.setattr(engine.refresher, "make", lambda table: 1 / 0)  # no refresh succeeds
    one.refresher.delete_member(0, MEMBER)
    assert not any(folder.exists() for folder in folders)


def test_the_state_that_another_service_saved_after_a_deletion_stays(together):
    one, two = saved(together()), saved(together())
    version, _ = one.refresher.delete_member(0, MEMBER)
    until(lambda: one.snapshot.read_version >= version)
    saved(one)
    two.refresher.state.remove(version)  # as when its follower brings the deletion late
    assert one.refresher.state.folder.exists()


def test_a_folder_is_free_only_after_what_is_being_saved_is_whole(together, monkeypatch):
    engine, plain = saved(together()), Completer.save
    free = []

    def save_while_stopped(self, path):
        engine.close()
        beside = State.of(engine.store, OPTIONS)
        beside.load(1)
        free.append(beside.folder == engine.refresher.state.folder)
        beside.close()
        plain(self, path)

    monkeypatch.setattr(Completer, "save", save_while_stopped)
    engine.refresher.state.save(1, engine.snapshot.completer)
    assert free == [False]
    beside = State.of(engine.store, OPTIONS)
    assert beside.load(1) is not None
    assert beside.folder == engine.refresher.state.folder
    beside.close()


def test_a_folder_of_the_user_with_the_name_of_the_table_stays(tmp_path):
    mine = tmp_path / "film-club" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    store = Store.open(f"sqlite:///{tmp_path / 'table.db'}")
    store.fill("film-club", Table.of(FRAME))
    for _ in range(2):
        engine = Engine(store, fit_bias, State.of(store, OPTIONS, tmp_path))
        saved(engine)
        engine.refresher.delete_member(0, MEMBER)
        assert engine.refresher.state.folder.parent.parent == tmp_path
        engine.close()
    assert mine.read_text() == "mine"
