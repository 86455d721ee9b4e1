"""Whether the service is ready: its database, its disk, and how far predictions are behind."""

import os
import signal
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

import sqlalchemy as sa
from fastapi.testclient import TestClient
from tests.support import postgres
from tests.support.service_engine import FILM, FRAME, MEMBER, fit_bias, until

from exchangeable.data.table import Table
from exchangeable.errors import Failed
from exchangeable.serve import refresher
from exchangeable.serve.app import create_app
from exchangeable.serve.engine import Engine
from exchangeable.serve.monitoring import readiness
from exchangeable.storage import database, store
from exchangeable.storage.store import Store

CELL = [((MEMBER, FILM), 4.0)]


@pytest.fixture
def ready(engine, monkeypatch):
    """Returns the status and the reasons of the service around ``engine``."""
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)
    with TestClient(create_app(engine)) as client:

        def ask():
            answer = client.get("/ready")
            assert client.get("/health").status_code == 200  # a restart would not help
            return answer.status_code, answer.json()["reasons"]

        yield ask


def test_it_is_ready_while_nothing_is_wrong(ready):
    assert ready() == (200, [])


def test_a_database_that_is_gone_is_reported(ready, engine):
    address = engine.store.engine.url.database
    os.rename(address, f"{address}.gone")
    assert ready() == (503, ["database"])


def test_a_database_that_does_not_respond_is_reported_in_time(ready, engine, monkeypatch):
    monkeypatch.setattr(readiness, "CHECK_SECONDS", 0.1)
    go_on, plain = threading.Event(), engine.store.check
    monkeypatch.setattr(engine.store, "check", lambda: go_on.wait(20) and plain())
    for _ in range(3):  # which start no further checks
        assert ready() == (503, ["database"])
    go_on.set()
    until(lambda: ready() == (200, []))


def test_a_full_disk_is_reported_before_and_after_a_write_failed(ready, engine, monkeypatch):
    usage = SimpleNamespace(free=2**20)
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: usage)
    assert ready() == (503, ["disk"])
    usage.free = 2**40
    assert ready() == (200, [])

    def fail(connection, cursor, statement, *rest):
        if statement.startswith(("INSERT", "UPDATE")):
            raise sa.exc.OperationalError(statement, {}, Exception("disk full"))

    sa.event.listen(engine.store.engine, "before_cursor_execute", fail)
    assert ready() == (200, [])
    with pytest.raises(Failed, match="disk full"):
        engine.refresher.put(CELL)
    assert ready() == (503, ["database"])
    sa.event.remove(engine.store.engine, "before_cursor_execute", fail)
    assert ready() == (200, [])


@pytest.mark.parametrize("missing", ["exchangeable_changes", "exchangeable_cells_1"])
def test_it_is_not_ready_while_the_log_or_the_cells_cannot_be_written_to(ready, engine, missing):
    def rename(before, after):
        with engine.store.engine.begin() as connection:
            connection.execute(sa.text(f"ALTER TABLE {before} RENAME TO {after}"))

    rename(missing, "elsewhere")
    with pytest.raises(Failed, match="cannot be written to"):
        engine.store.put(CELL)
    for _ in range(2):  # a check that succeeds would end the doubt
        assert "database" in ready()[1]
    rename("elsewhere", missing)
    assert "database" not in ready()[1]


def test_a_refresh_that_is_overdue_is_reported(ready, engine, monkeypatch):
    monkeypatch.setattr(refresher, "MAX_LAG_SECONDS", 0.0)
    engine.refresher.read_seconds = 0.0
    go_on, plain = threading.Event(), engine.refresher.make
    monkeypatch.setattr(engine.refresher, "make", lambda table: go_on.wait(20) and plain(table))
    engine.refresher.delete_cell(CELL[0][0])
    until(lambda: engine.refresher.refreshing)
    assert ready() == (503, ["refresh"])
    go_on.set()
    until(lambda: ready() == (200, []))


def test_a_write_that_failed_is_explained_in_the_log_alone(engine, caplog):
    def fail(connection, cursor, statement, *rest):
        if statement.startswith("INSERT"):
            raise sa.exc.OperationalError(statement, {}, Exception("server at 10.1.2.3, user ann"))

    sa.event.listen(engine.store.engine, "before_cursor_execute", fail)
    with TestClient(create_app(engine)) as client:
        answer = client.put("/v1/interactions", json={"cells": [[["eve", FILM], 5]]})
    assert answer.status_code == 500
    identity = answer.headers["x-request-id"]
    expected = f"the database cannot be written to; the log says more at {identity}"
    assert answer.json() == {"error": expected}
    (record,) = [one for one in caplog.records if one.message == "failed"]
    assert record.fields["id"] == identity
    assert "10.1.2.3" in record.fields["reason"]


@pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing() or "-")
def test_waiting_for_postgresql_ends_and_its_end_is_reported(monkeypatch):
    monkeypatch.setattr(database, "_SILENCE", 0.5)
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)
    with postgres.server() as address:
        kept = Store.open(f"{address}/postgres")
        kept.fill("film-club", Table.of(FRAME))
        engine = Engine(kept, fit_bias)
        with kept.engine.connect() as connection:
            backend = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar()
        os.kill(backend, signal.SIGSTOP)  # it neither responds nor breaks off
        try:
            written = threading.Thread(target=engine.refresher.put, args=(CELL,), daemon=True)
            written.start()
            written.join(10)
            assert not written.is_alive()
        finally:
            os.kill(backend, signal.SIGCONT)
        client = TestClient(create_app(engine))
        with client:
            assert client.get("/ready").status_code == 200
            until(lambda: engine.refresher.behind == 0)
            for process in postgres.processes(kept.engine.url.port):
                os.kill(process, signal.SIGKILL)
            until(lambda: client.get("/ready").json()["reasons"] == ["database"])
            assert client.post("/v1/predict", json={"cells": [[MEMBER, FILM]]}).status_code == 200
