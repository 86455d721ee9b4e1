"""The refresher follows the database, whatever changes come and in whatever order."""

import gc
import threading
import weakref

import polars as pl
import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")
pytest.importorskip("fastapi", reason="needs exchangeable[serve]")

from fastapi.testclient import TestClient
from tests.support.service_engine import (
    FILM,
    FRAME,
    MEMBER,
    NUMBERED,
    fit_bias,
    open_engine,
    predicted,
    until,
)

from exchangeable import Completer
from exchangeable.predictors.model import ModelPredictor
from exchangeable.serve import refresher
from exchangeable.serve.answers.lists import Question
from exchangeable.serve.app import create_app
from exchangeable.serve.server import saved_completer_factory
from exchangeable.serve.snapshot import Busy
from exchangeable.training.config import TrainingConfig


def test_a_number_and_the_text_of_it_are_one_label(tmp_path):
    engine = open_engine(tmp_path, NUMBERED)
    version = engine.refresher.put([((90, 3), 1.0), (("90", "3"), 2.0)])
    until(lambda: engine.snapshot.version == version)
    assert engine.snapshot.refreshes == 0  # folded in
    assert len(engine.snapshot.completer.table_) == len(NUMBERED) + 1
    assert not engine.refresher.failing
    engine.close()


def test_what_cannot_be_added_is_read_with_all(engine, monkeypatch):
    def fails(self, *given):
        raise RuntimeError

    monkeypatch.setattr(Completer, "update", fails)
    version = engine.refresher.put([(("eve", FILM), 5.0)])
    until(lambda: engine.snapshot.version == version)
    assert engine.snapshot.refreshes == 1


def test_features_stay_with_their_members(tmp_path):
    users = pl.DataFrame({"user": [f"u{n}" for n in range(12)]})
    users = users.with_columns(age=pl.int_range(12).cast(pl.Float64))
    frame = NUMBERED.with_columns(user="u" + pl.col("user").cast(pl.String))
    quick = TrainingConfig(steps=2, evaluate_every=1)
    made = Completer("residual", training=quick, seed=0)
    made.fit(frame.drop("stars"), frame["stars"], features={"user": users})
    engine = open_engine(tmp_path, frame, saved_completer_factory(made))

    def ages():
        completer = engine.snapshot.completer
        own = completer.predictor_.features[0][:, 0].numpy()
        return dict(zip(completer.table_.vocabularies[0].labels, own, strict=True))

    before = ages()
    assert len(set(before.values())) == 12
    version, _ = engine.refresher.delete_member(0, "u3")
    until(lambda: engine.snapshot.read_version >= version)
    assert ages() == {label: age for label, age in before.items() if label != "u3"}
    version = engine.refresher.put([(("u05", 3), 2.0), (("u1", 0), 2.0)])
    until(lambda: engine.snapshot.version >= version)
    engine.refresher.delete_cell(("u1", 0))
    until(lambda: engine.snapshot.refreshes >= 2)
    assert ages() == {**{k: v for k, v in before.items() if k != "u3"}, "u05": 0.0}
    engine.close()


def test_deleting_nobody_changes_nothing(engine):
    for told in (
        engine.refresher.delete_member(0, "nobody"),
        engine.refresher.delete_cell(("nobody", FILM)),
    ):
        assert told == (1, 0)
    assert engine.snapshot.read_version >= 1
    assert engine.snapshot.refreshes == 0
    assert not engine.snapshot.deleted_members
    engine.refresher.put([(("eve", FILM), 5.0)])
    assert engine.refresher.delete_member(0, "nobody")[0] == 1  # which is read already


def test_after_a_refresh_nothing_of_a_label_is_in_the_files(engine, tmp_path):
    version = engine.refresher.put([(("somebody secret", FILM), 5.0)])
    until(lambda: engine.snapshot.version == version)
    files = lambda: b"".join(path.read_bytes() for path in tmp_path.glob("table.db*"))  # noqa: E731
    assert b"somebody secret" in files()
    engine.refresher.delete_member(0, "somebody secret")
    until(lambda: engine.snapshot.refreshes == 1)
    until(lambda: b"somebody secret" not in files())


def test_writers_do_not_wait_for_ever_and_readers_not_at_all(engine, monkeypatch):
    monkeypatch.setattr(refresher, "WRITER_TIMEOUT", 0.05)
    with TestClient(create_app(engine)) as client, engine.refresher._writing:
        answer = client.put("/v1/interactions", json={"cells": [[["eve", FILM], 5]]})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert "try again" in answer.json()["error"]
        with pytest.raises(Busy):
            engine.refresher.delete_member(0, MEMBER)
        assert client.post("/v1/predict", json={"cells": [[MEMBER, FILM]]}).status_code == 200


def test_a_refresher_that_cannot_follow_the_database_says_so(engine, monkeypatch):
    monkeypatch.setattr(refresher, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(engine.store, "read_table", lambda: 1 / 0)
    engine.refresher.delete_member(0, MEMBER)
    until(lambda: engine.refresher.failing)
    assert engine.refresher.status == "failing"
    assert engine.refresher.behind == 1
    monkeypatch.undo()
    until(lambda: engine.refresher.status == "ok")
    assert engine.refresher.behind == 0


def test_what_is_found_out_once_is_found_out_before_anybody_asks(tmp_path, monkeypatch):
    asked, plain = [], ModelPredictor.for_new_members

    def record(self, axis, *own, **options):
        asked.append(axis)
        return plain(self, axis, *own, **options)

    monkeypatch.setattr(ModelPredictor, "for_new_members", record)
    engine = open_engine(tmp_path, make=lambda table: Completer("pretrained").fit_table(table))
    assert set(asked) == {0}
    asked.clear()
    engine.refresher.delete_member(0, MEMBER)
    until(lambda: engine.snapshot.refreshes == 1)
    assert set(asked) == {0}
    engine.close()


def value_of(engine, member=MEMBER, film=FILM):
    table = engine.snapshot.completer.table_
    return table.values[table.positions(pl.DataFrame([{"member": member, "film": film}]))]


def test_a_cell_that_had_a_value_is_folded_in_too(client, engine):
    before = predicted(client, [MEMBER, FILM])["answers"][0]["mean"]
    client.put("/v1/interactions", json={"cells": [[[MEMBER, FILM], 1]]})
    until(lambda: engine.snapshot.version == 2)
    assert engine.snapshot.refreshes == 0
    assert len(engine.snapshot.completer.table_) == len(FRAME)
    assert value_of(engine) == 1
    assert predicted(client, [MEMBER, FILM])["answers"][0]["mean"] < before


@pytest.fixture
def reading(engine, monkeypatch):
    """Refreshes wait, once they have read the table, until it is set."""
    event = threading.Event()
    monkeypatch.setattr(engine.refresher, "make", lambda table: event.wait(20) and fit_bias(table))
    yield event
    event.set()


def test_cells_are_folded_in_while_the_table_is_read(engine, reading):
    others = [one for one in FRAME["member"].unique(maintain_order=True) if one != MEMBER]
    version, _ = engine.refresher.delete_member(0, MEMBER)
    until(lambda: engine.refresher.refreshing)
    engine.refresher.put([(("eve", FILM), 5.0)])
    last = engine.refresher.put([((others[0], FILM), 1.0)])
    until(lambda: engine.snapshot.version == last)
    assert engine.snapshot.read_version < version
    assert engine.refresher.behind == 1  # the deletion
    assert value_of(engine, "eve") == 5
    reading.set()
    until(lambda: engine.snapshot.read_version >= version)
    snapshot = engine.snapshot
    assert (snapshot.version, snapshot.refreshes) == (last, 1)
    assert engine.refresher.behind == 0
    labels = snapshot.completer.table_.vocabularies[0].labels.to_list()
    assert MEMBER not in labels
    assert not snapshot.deleted_members
    assert value_of(engine, "eve") == 5
    assert value_of(engine, others[0]) == 1


def test_who_is_deleted_while_the_table_is_read_is_hidden_until_it_is_read_again(engine, reading):
    first = engine.refresher.delete_cell((MEMBER, FILM))[0]
    until(lambda: engine.refresher.refreshing)
    second = engine.refresher.delete_member(0, MEMBER)[0]
    reading.set()
    until(lambda: engine.snapshot.read_version >= first)
    if engine.snapshot.read_version < second:
        assert engine.snapshot.deleted_members == {(0, MEMBER)}
    until(lambda: engine.snapshot.read_version >= second)
    assert not engine.snapshot.deleted_members


def test_changes_that_wait_are_folded_in_together(engine, monkeypatch):
    sizes, plain = [], Completer.update

    def record(self, cells, *given, **options):
        sizes.append(len(cells))
        return plain(self, cells, *given, **options)

    monkeypatch.setattr(Completer, "update", record)
    with engine.refresher._making:  # as if another update were computed
        engine.refresher.put([(("first", FILM), 5.0)])
        until(lambda: not engine.refresher.pending._waiting)
        for n in range(4):
            last = engine.refresher.put([((f"new {n}", FILM), 5.0)])
        assert engine.refresher.behind == 5
    until(lambda: engine.snapshot.version == last)
    assert sizes == [1, 4]


def test_what_cannot_be_added_waits_for_the_refresh_with_all_that_comes_after_it(
    engine, reading, monkeypatch
):
    failing, plain = [True], Completer.update

    def sometimes(self, *given, **options):
        if failing:
            raise RuntimeError
        return plain(self, *given, **options)

    monkeypatch.setattr(Completer, "update", sometimes)
    engine.refresher.put([(("eve", FILM), 5.0)])
    until(lambda: engine.refresher.refreshing)
    failing.clear()
    last = engine.refresher.put([(("zoe", FILM), 4.0)])
    until(lambda: not engine.refresher.pending._waiting)
    assert engine.snapshot.version == 1  # no version is passed over
    assert engine.refresher.behind == 2
    reading.set()
    until(lambda: engine.snapshot.version == last)
    assert engine.refresher.behind == 0
    assert (value_of(engine, "eve"), value_of(engine, "zoe")) == (5, 4)


def test_what_an_update_drops_is_found_again_before_anybody_asks(tmp_path):
    engine = open_engine(tmp_path, make=lambda table: Completer("pretrained").fit_table(table))
    version = engine.refresher.put([(("eve", FILM), 5.0)])
    until(lambda: engine.snapshot.version == version)
    fitted = engine.snapshot.completer.fitted_
    assert 0 in fitted.sorted_rows
    assert all("_codes" in vars(vocabulary) for vocabulary in fitted.table.vocabularies)
    assert fitted.predictor.unseen.keys() >= {(0,), (1,), (0, 1)}
    engine.close()


def test_many_new_cells_lead_to_a_refresh(client, engine):
    cells = [[[f"new {n}", FILM], 3] for n in range(len(FRAME) // 10)]
    client.put("/v1/interactions", json={"cells": cells})
    until(lambda: engine.snapshot.refreshes == 1)
    assert engine.snapshot.read_version == 2


def test_what_fails_in_the_background_is_tried_again(client, engine, monkeypatch):
    failures = iter([RuntimeError("no luck")])

    def sometimes(table):
        for failure in failures:
            raise failure
        return fit_bias(table)

    monkeypatch.setattr(refresher, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(engine.refresher, "make", sometimes)
    client.delete("/v1/interactions", params={"label": [MEMBER, FILM]})
    until(lambda: engine.snapshot.read_version == 2)


@pytest.mark.parametrize("model", ["bias", "pretrained"])
def test_of_many_folds_and_refreshes_only_the_last_state_stays_in_memory(tmp_path, model):
    engine = open_engine(tmp_path, make=lambda table: Completer(model).fit_table(table))
    past = []
    for n in range(6):
        past += [weakref.ref(engine.snapshot), weakref.ref(engine.snapshot.completer.predictor_)]
        past.append(weakref.ref(engine.snapshot.completer.fitted_))
        engine.recommend(Question(0, MEMBER, n=3))
        engine.recommend(Question(0, None, [(FILM, 5.0)], n=3))
        if n == 3:
            engine.refresher.delete_member(0, "new 0")
        last = engine.refresher.put([((f"new {n}", FILM), 4.0)])
        until(lambda version=last: engine.snapshot.version == version)
    until(lambda: not engine.refresher.behind and not engine.refresher.refreshing)

    def none_left():
        gc.collect()
        return not [one() for one in past if one() is not None]

    until(none_left)
    engine.close()
