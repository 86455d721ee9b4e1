"""The service as a process: started by the command, killed, stopped, and started again."""

import sys
import threading
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")
pytest.importorskip("uvicorn", reason="needs exchangeable[serve]")

from soak import serve_attacks, serve_kill, serve_schema, serve_uploads
from tests.support import postgres
from tests.support.service import Service, served
from tests.support.service_engine import until
from typer.testing import CliRunner

from benchmarks import serve_load
from exchangeable.cli import app
from exchangeable.data.table import Table
from exchangeable.storage.store import Store

FILMS = ["The Princess Bride", "Halloween"]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'kept.db'}"
    elif postgres.missing():
        pytest.skip(postgres.missing())
    else:
        with postgres.server() as address:
            yield f"{address}/postgres"


def test_nothing_that_was_acknowledged_is_lost_when_it_is_killed(url, tmp_path):
    acknowledged = []
    for life in range(2):
        acknowledged += serve_kill.one_life(tmp_path, url, life, 0.7)
        assert not serve_kill.lost(url, acknowledged)
    assert acknowledged


def test_many_clients_at_once_and_broken_files_are_answered(tmp_path):
    with served(tmp_path, "--model", "bias") as service:
        told = serve_load.loaded(service, 8, 2)
        assert told["requests_per_second"] > 0
        assert told["errors"] == told["refused_503"] == 0
        assert set(serve_uploads.sent(service, 12)) <= {200, 413, 422}
        assert service.stop() == 0


def arenas(process):
    """Number of arenas of glibc's malloc beside the main one: 64 MiB each, most not in use yet."""
    rows = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    spans = [tuple(int(end, 16) for end in row.split()[0].split("-")) for row in rows]
    accesses = [row.split()[1] for row in rows]
    pairs = zip(pairwise(spans), pairwise(accesses), strict=True)
    return sum(
        access == ("rw-p", "---p") and first[0] % 2**26 == 0 and second[1] - first[0] == 2**26
        for (first, second), access in pairs
    )


@pytest.mark.skipif(sys.platform != "linux", reason="arenas are glibc's")
def test_all_threads_of_the_service_share_one_arena(tmp_path):
    """With arenas of their own, memory that one has freed stays out of use for the others."""
    with served(tmp_path, "--model", "bias") as service:
        assert serve_load.loaded(service, 8, 1)["requests_per_second"] > 0
        assert arenas(service.process) == 0


def test_others_are_served_during_attacks(tmp_path):
    with served(tmp_path) as service:
        found = serve_attacks.attacked(service, serve_attacks.SHORT)
        assert service.process.poll() is None
    assert [one["statuses"] for one in found.values()] == [{"200": 8}] * len(found)


def test_calls_made_up_from_its_description_are_answered_as_it_says(tmp_path):
    with served(tmp_path, "--model", "bias") as service:
        found = serve_schema.tried(service, 9)
    assert len(found) == 17
    assert all(statuses.total() >= 9 for statuses in found.values())


def test_without_an_argument_it_serves_the_sample_and_goes_on_where_it_was(tmp_path):
    with served(tmp_path) as service:
        about = service.call("GET", "/v1/model")[1]
        assert about["source"] == "film-club"
        assert about["model"] == "pretrained"
        body = {"cells": [[["somebody", FILMS[0]], 5]]}
        assert service.call("PUT", "/v1/interactions", body)[0] == 200
        assert b"<title>exchangeable" in service.call("GET", "/")[1]
        assert service.stop() == 0
    assert (tmp_path / "film-club.db").exists()
    with served(tmp_path, "film-club", "--model", "bias") as again:
        about = again.call("GET", "/v1/model")[1]
        assert about["cells"] == 4483
        assert about["model"] == "bias"
    text = (tmp_path / "serve.log").read_text()
    assert "somebody" not in text
    assert FILMS[0] not in text


def test_asked_to_stop_it_ends_the_calls_under_way(tmp_path):
    frame = pl.DataFrame({"user": range(4000), "item": [n % 50 for n in range(4000)]})
    frame = frame.with_columns(value=pl.col("user") % 5 + 1.0)
    found = []
    with served(tmp_path, "--model", "bias") as service:
        connection = service.connection()
        content = frame.write_csv().encode()
        # A small file first: after it the process that others are forked from is there.
        connection.request("POST", "/v1/complete", frame.head(60).write_csv().encode())
        assert connection.getresponse().read()
        forked = service.children()

        def upload():
            connection.request("POST", "/v1/complete?all=true", content)
            answer = connection.getresponse()
            found.append((answer.status, len(answer.read())))

        asking = threading.Thread(target=upload)
        asking.start()
        until(lambda: found or service.children() - forked)  # another one has the call
        assert service.stop() == 0
        asking.join()
        connection.close()
    assert found
    assert found[0][0] == 200
    assert found[0][1] > 200_000


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere.csv"], "no such file"),
        (["folder"], "a file is needed, but this is a directory"),
        (["text.csv"], "two columns or more are needed"),
        (["text.csv", "--db", "sqlite:///kept.db"], "two columns or more are needed"),
        (["--host", "0.0.0.0"], "anyone could read and change the table"),
        (["--token-file", "nowhere"], "the token cannot be read"),
        (["--db", "mysql://x/y"], "sqlite or postgresql"),
        (["--model", "residual"], "trained anew at each refresh"),
        (["--model", "no such model"], "model must be one of"),
        (["--model", "./nowhere"], "a checkpoint was needed"),
        (["--port", "99999"], "cannot listen at"),
        (["--host", "no.such.host.invalid", "--anyone"], "cannot listen at"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.csv").write_text("once upon a time\n")
    before = sorted(tmp_path.iterdir())
    port = [] if "--port" in arguments else ["--port", "0"]
    told = CliRunner().invoke(app, ["serve", *arguments, *port])
    assert told.exit_code == 2, told.output
    assert reason in told.stderr
    assert told.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before  # nothing is left behind


def test_another_table_than_the_one_that_is_kept_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [1.0, 2.0]}).write_csv("small.csv")
    store = Store.open("sqlite:///kept.db")
    store.fill("others.csv", Table.read("small.csv"))
    store.close()
    given = ["serve", "small.csv", "--db", "sqlite:///kept.db", "--port", "0"]
    told = CliRunner().invoke(app, given)
    assert told.exit_code == 2
    assert "kept.db holds others.csv, but small.csv is to be served" in told.stderr


def test_a_service_that_does_not_start_is_told(tmp_path):
    broken = Service(tmp_path, "nowhere.csv")
    with pytest.raises(RuntimeError, match="ended with 2"):
        broken.wait()
    broken.log.close()
