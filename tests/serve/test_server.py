"""The server: address, token, models, logs, and the end of the process."""

import json
import logging
import os
import shutil
import socket
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from fastapi.testclient import TestClient
from tests.support.service_engine import FRAME, NUMBERED

from exchangeable import Completer
from exchangeable.cli.options import DEFAULTS
from exchangeable.cli.output import Output
from exchangeable.cli.service import prepare_store
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.predictors.units import unwrapped
from exchangeable.serve import server
from exchangeable.serve.app import create_app
from exchangeable.serve.call import Phase
from exchangeable.serve.connections import Connections
from exchangeable.serve.engine import Engine
from exchangeable.serve.guard import Response
from exchangeable.serve.limits import Limits
from exchangeable.serve.monitoring.telemetry import JsonFormatter, log_response
from exchangeable.serve.server import (
    Address,
    completer_factory,
    saved_completer_factory,
)
from exchangeable.storage.store import Store
from exchangeable.training.config import TrainingConfig
from exchangeable.training.recipes import RECIPES

TOKEN = "a token that nobody guesses".replace(" ", "-")


def test_logs_are_lines_of_json_without_what_people_rated(engine, caplog):
    caplog.set_level(logging.INFO, logger="exchangeable.serve")
    phases = (Phase("queue", 10**9, 10**9 + 10**6), Phase("compute", 10**9, 10**9 + 10**7))
    log_response(
        Response(
            "PUT", "/v1/interactions", 200, 0.0123, "abc", "films", "write", 5, 9, phases=phases
        )
    )
    line = json.loads(JsonFormatter().format(caplog.records[-1]))
    assert (line["table"], line["role"], line["bytes_in"], line["bytes_out"]) == (
        "films", "write", 5, 9,
    )  # fmt: skip
    assert (line["queue_ms"], line["compute_ms"]) == (1.0, 10.0)
    assert line["route"] == "/v1/interactions"
    assert line["ms"] == 12.3
    assert line["id"] == "abc"
    told = []
    with TestClient(create_app(engine, on_response=told.append)) as other:
        other.get("/v1/members", params={"holding": "secret"})
        other.get("/secret")
    assert [(one.route, one.status) for one in told] == [("/v1/members", 200), ("-", 404)]


def test_strangers_are_kept_out_unless_that_is_asked_for(tmp_path):
    for host in ("0.0.0.0", "192.168.1.2", "::", "example.org"):
        with pytest.raises(InputError, match="anyone could read and change"):
            Address(host)
        assert Address(host, token=TOKEN).origins.names is None
        assert "localhost" in Address(host, anyone=True).origins.names
    for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost"):
        assert host in Address(host).origins.names


def test_an_address_can_be_opened_as_it_is_shown():
    for host in ("::1", "[::1]"):
        assert Address(host).url(8080) == "http://[::1]:8080"
    assert Address().url(1) == "http://127.0.0.1:1"


def test_a_port_that_is_taken_is_told():
    first = Address(port=0).bind()
    assert first.proto == socket.IPPROTO_TCP  # else asyncio would let small answers wait
    first.listen()
    try:
        with pytest.raises(InputError, match="cannot listen at"):
            Address(port=first.getsockname()[1]).bind()
    finally:
        first.close()


@pytest.mark.parametrize("name", RECIPES)
def test_models_that_would_be_trained_at_each_refresh_are_refused(name):
    with pytest.raises(InputError, match="trained anew at each refresh"):
        completer_factory(name, 0, "cpu")


@pytest.mark.parametrize("name", ["self-supervised", "factorized-text"])
def test_a_saved_model_of_the_paper_is_served_with_its_weights(name):
    index = np.argwhere(np.random.default_rng(0).random((12, 9)) < 0.7)
    training = TrainingConfig(steps=1, evaluate_every=1)
    trained = Completer(name, training=training).fit(index, 1.0 + index.sum(axis=1) % 5)
    again = saved_completer_factory(trained)(trained.table_)
    np.testing.assert_array_equal(again.predict(index), trained.predict(index))
    models = [unwrapped(each.predictor_).trained.model for each in (again, trained)]
    assert models[0] is models[1]


def test_a_saved_completer_answers_with_its_own_weights(tmp_path):
    quick = TrainingConfig(steps=2, evaluate_every=1)
    small = Table.of(FRAME[:600])
    trained = Completer("pretrained", validation=0.0).fit_table(small).finetune(training=quick)
    make = saved_completer_factory(trained)
    again = make(Table.of(FRAME[:600]))
    asked = FRAME.select("member", "film")[:50]
    np.testing.assert_allclose(again.predict(asked), trained.predict(asked), atol=1e-6)
    fewer = make(Table.of(FRAME[:500]))
    assert len(fewer.table_) == 500
    assert fewer.predictor_.trained.model is trained.predictor_.trained.model
    untuned = saved_completer_factory(Completer("pretrained").fit_table(small))(
        Table.of(FRAME[:600])
    )
    assert np.abs(untuned.predict(asked) - trained.predict(asked)).max() > 1e-4


def test_asked_to_end_it_ends_in_any_case(monkeypatch):
    started = []
    timer = lambda *given: SimpleNamespace(start=lambda: started.append(given), daemon=False)  # noqa: E731
    monkeypatch.setattr(server.threading, "Timer", timer)
    running = server.Server(server.uvicorn.Config(lambda: None), Connections(Limits()))
    running.handle_exit(15, None)
    assert running.should_exit
    assert started == [(10, os._exit, (0,))]


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
