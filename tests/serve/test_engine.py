"""Who answers and keeps up with the database: whatever comes, in whatever order."""

import asyncio
import os
import shutil
import threading
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")
pytest.importorskip("fastapi", reason="needs exchangeable[serve]")

from fastapi.testclient import TestClient
from tests.support.service_engine import FILM, MEMBER, fit_bias, open_engine, until

from exchangeable import Completer
from exchangeable.cli.options import DEFAULTS
from exchangeable.cli.output import Output
from exchangeable.cli.service import prepare_store
from exchangeable.completion.model_predictor import ModelPredictor
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.serve import refresher, server
from exchangeable.serve.app import create_app
from exchangeable.serve.engine import Engine
from exchangeable.serve.guard import Guard, Limits
from exchangeable.serve.server import saved_completer_factory
from exchangeable.serve.snapshot import Busy
from exchangeable.serve.store import Store
from exchangeable.training.config import TrainingConfig

NUMBERED = pl.DataFrame(
    {"user": [n % 12 for n in range(60)], "item": [n // 4 for n in range(60)]}
).with_columns(stars=pl.col("user") % 3 + 1.0)


@pytest.fixture
def engine(tmp_path):
    made = open_engine(tmp_path)
    yield made
    made.close()


@pytest.fixture
def held(engine, monkeypatch):
    """Refreshes wait until it is set."""
    event = threading.Event()
    monkeypatch.setattr(engine.refresher, "make", lambda table: event.wait(20) and fit_bias(table))
    yield event
    event.set()


def test_a_number_and_the_text_of_it_are_one_label(tmp_path):
    engine = open_engine(tmp_path, NUMBERED)
    version = engine.refresher.put([((90, 3), 1.0), (("90", "3"), 2.0)])
    until(lambda: engine.snapshot.version == version)
    assert engine.snapshot.refreshes == 0  # folded in
    assert len(engine.snapshot.completer.table_) == len(NUMBERED) + 1
    assert not engine.refresher.failing
    engine.close()


def test_what_cannot_be_folded_in_is_read_with_all(engine, monkeypatch):
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


def test_who_was_deleted_is_not_named_before_the_refresh_either(engine, held):
    best = engine.recommend(0, MEMBER, [], {}, 3)[0]
    away = best[0].labels["film"]
    engine.refresher.delete_member(1, away)
    listed = [one.labels["film"] for one in engine.recommend(0, MEMBER, [], {}, 3)[0]]
    assert listed[:2] == [one.labels["film"] for one in best[1:]]
    assert len(listed) == 3
    with pytest.raises(InputError, match="is not in the table"):
        engine.recommend(0, None, [(away, 5.0)], {}, 3)
    with pytest.raises(InputError, match="is not in the table"):
        engine.recommend(1, away, [], {}, 3)
    assert away not in [
        one.labels["film"] for one in engine.recommend(0, None, [(FILM, 5.0)], {}, 99)[0]
    ]
    assert engine.refresher.behind == 1  # though somebody is at it
    assert engine.snapshot.deleted_members


def test_somebody_deleted_cannot_be_given(tmp_path):
    frame = pl.DataFrame(
        {
            "user": ["a", "a", "b"],
            "film": ["x", "y", "x"],
            "place": ["m", "t", "m"],
            "stars": [1.0, 2.0, 2.0],
        }
    )
    event = threading.Event()
    engine = open_engine(tmp_path, frame, axes=["user", "film", "place"])
    engine.refresher.make = lambda table: event.wait(20) and fit_bias(table)
    assert engine.recommend(0, "a", [], {"place": "t"}, 3)[0]
    engine.refresher.delete_member(2, "t")
    with pytest.raises(InputError, match="place 't' is not in the table"):
        engine.recommend(0, "a", [], {"place": "t"}, 3)
    with pytest.raises(InputError, match="given must name axes of user, film, place"):
        engine.recommend(0, "a", [], {"month": "t"}, 3)
    event.set()
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


def test_more_writers_than_are_let_in_hear_so_and_readers_are_let_in(engine):
    begun, go_on = threading.Event(), threading.Event()
    plain = engine.refresher.put
    engine.refresher.put = lambda cells: begun.set() or (go_on.wait(20) and plain(cells))
    with TestClient(create_app(engine, limits=Limits(writes=1))) as client:
        body = {"cells": [[["eve", FILM], 5]]}
        first = threading.Thread(target=lambda: client.put("/v1/interactions", json=body))
        first.start()
        assert begun.wait(20)
        refused = client.put("/v1/interactions", json=body)
        assert refused.status_code == 503
        assert "too many writes" in refused.json()["error"]
        assert client.post("/v1/predict", json={"cells": [[MEMBER, FILM]]}).status_code == 200
        go_on.set()
        first.join()


def test_a_desk_that_cannot_keep_up_says_so(engine, monkeypatch):
    monkeypatch.setattr(refresher, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(engine.store, "read_table", lambda: 1 / 0)
    engine.refresher.delete_member(0, MEMBER)
    until(lambda: engine.refresher.failing)
    assert engine.refresher.status == "failing"
    assert engine.refresher.behind == 1
    monkeypatch.undo()
    until(lambda: engine.refresher.status == "ok")
    assert engine.refresher.behind == 0


@pytest.mark.parametrize("model", ["bias", "vmf", "item-knn", "mean", "pretrained"])
@pytest.mark.parametrize("positives", [False, True])
def test_ratings_of_somebody_new_where_labels_are_numbers(tmp_path, model, positives):
    frame = NUMBERED.drop("stars") if positives else NUMBERED
    engine = open_engine(tmp_path, frame, lambda table: Completer(model).fit_table(table))
    value = 1.0 if positives else 3.0
    found = engine.recommend(0, None, [(3, value)], {}, 2, why=True)[0]
    assert len(found) == 2
    assert all(isinstance(one.labels["item"], int) for one in found)
    engine.close()


def test_who_has_rated_everything_is_recommended_nothing(tmp_path):
    small = pl.DataFrame({"user": ["a", "b"], "film": ["x", "x"], "stars": [1.0, 2.0]})
    engine = open_engine(tmp_path, small, lambda table: Completer("pretrained").fit_table(table))
    assert engine.recommend(0, None, [("x", 2.0)], {}, 5, why=True)[0] == []
    engine.close()


def test_made_up_methods_are_not_counted_one_by_one(engine):
    with TestClient(create_app(engine)) as client:
        for number in range(5):
            assert client.request(f"MADEUP{number}", "/v1/model").status_code == 405
        text = client.get("/metrics").text
    assert "MADEUP" not in text
    assert 'method="-"' in text


def test_who_does_not_take_an_answer_is_left():
    """Else two such clients would keep all others from uploading."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 100})

    async def never(message):
        if message["type"] == "http.response.body":
            await asyncio.sleep(60)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    guard = Guard(app, Limits(seconds=0.05), None, None, lambda *told: None)
    scope = {"type": "http", "method": "POST", "path": "/v1/complete", "headers": []}
    asyncio.run(asyncio.wait_for(guard(scope, receive, never), 10))
    assert guard.in_progress == {"calls": 0, "uploads": 0, "writes": 0}


def test_asked_to_end_it_ends_in_any_case(monkeypatch):
    started = []
    timer = lambda *given: SimpleNamespace(start=lambda: started.append(given), daemon=False)  # noqa: E731
    monkeypatch.setattr(server.threading, "Timer", timer)
    running = server._Server(server.uvicorn.Config(lambda: None))
    running.handle_exit(15, None)
    assert running.should_exit
    assert started == [(10, os._exit, (0,))]


@pytest.mark.parametrize("text", ["--5", "9" * 5000, "1_0", "\u0665", "-0", "+1", "1.0"])
def test_what_is_no_whole_number_is_told(tmp_path, text):
    engine = open_engine(tmp_path, NUMBERED)
    with pytest.raises(InputError, match="whole numbers"):
        engine.refresher.put([((text, 1), 1.0)])
    with pytest.raises(InputError, match="whole numbers"):
        engine.predict([(text, 1)], 0.8)
    engine.close()


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


def test_unknown_labels_are_not_members(engine):
    found, _ = engine.predict([("nobody", FILM), (MEMBER, "no film")], 0.8)
    assert np.isfinite(found.mean).all()


def test_a_saved_completer_is_found_from_wherever_it_is_served_again(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    Completer("bias").fit(NUMBERED.drop("stars"), NUMBERED["stars"]).save("kept")
    for place, table in ((".", "kept"), ("elsewhere", None), (".", "kept")):
        monkeypatch.chdir(tmp_path / place)
        store = Store.open(f"sqlite:///{tmp_path / 'kept.db'}")
        prepare_store(
            store, table, table or "film-club", DEFAULTS, "auto", 0, "cpu", Output(as_json=False)
        )
        assert store.facts.source == str(tmp_path / "kept")
        engine = Engine(store, saved_completer_factory(Completer.load(store.facts.source)))
        assert engine.snapshot.completer.model_name_ == "bias"
        engine.close()
    shutil.rmtree(tmp_path / "kept")
    store = Store.open(f"sqlite:///{tmp_path / 'kept.db'}")
    with pytest.raises(InputError, match="which does not exist"):
        prepare_store(store, None, "film-club", DEFAULTS, "auto", 0, "cpu", Output(as_json=False))
    store.close()


def test_what_is_found_out_once_is_found_out_before_anybody_asks(tmp_path, monkeypatch):
    asked, plain = [], ModelPredictor.newcomer
    record = lambda self, axis, *own: asked.append(axis) or plain(self, axis, *own)  # noqa: E731
    monkeypatch.setattr(ModelPredictor, "newcomer", record)
    engine = open_engine(tmp_path, make=lambda table: Completer("pretrained").fit_table(table))
    assert asked == [0]
    engine.refresher.delete_member(0, MEMBER)
    until(lambda: engine.snapshot.refreshes == 1)
    assert asked == [0, 0]
    engine.close()
