"""Several tables in one service: each with its own calls, limits, and place in the database."""

import io
import threading

import polars as pl
import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from fastapi.testclient import TestClient
from tests.support.service import served
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

from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.serve.app import create_app
from exchangeable.serve.engine import Engine
from exchangeable.serve.limits import Limits
from exchangeable.serve.tables.served import ServedTable, Tables, one_at_a_time
from exchangeable.storage.database import Occupied
from exchangeable.storage.schema import check_name, name_of
from exchangeable.storage.store import Store

CSV = "text/csv; charset=utf-8"


def open_tables(url, **limits):
    engines = []
    for name, frame in (("films", FRAME), ("numbers", NUMBERED)):
        store = Store.open(url, name)
        if store.is_empty:
            store.fill(f"{name}.csv", Table.of(frame))
        engines.append(Engine(store, fit_bias))
    own = {name: Limits(**limits.get(name, {})) for name in ("films", "numbers")}
    return Tables([ServedTable(engine, own[engine.store.name]) for engine in engines], own["films"])


@pytest.fixture
def tables(url):
    return open_tables(url)


@pytest.fixture
def client(tables):
    with TestClient(create_app(tables)) as opened:
        yield opened


def test_the_list_says_what_each_table_is(client):
    told = client.get("/v1/tables").json()
    assert told == {
        "tables": [
            {
                "name": "films",
                "source": "films.csv",
                "axes": [
                    {"name": "member", "members": 200, "labels": "texts"},
                    {"name": "film", "members": 120, "labels": "texts"},
                ],
                "value": "rating",
                "scale": "levels 1-5 by 1",
                "levels": [1.0, 2.0, 3.0, 4.0, 5.0],
                "cells": len(FRAME),
                "writable": True,
            },
            {
                "name": "numbers",
                "source": "numbers.csv",
                "axes": [
                    {"name": "user", "members": 12, "labels": "whole numbers"},
                    {"name": "item", "members": 15, "labels": "whole numbers"},
                ],
                "value": "stars",
                "scale": "levels 1-3 by 1",
                "levels": [1.0, 2.0, 3.0],
                "cells": len(NUMBERED),
                "writable": True,
            },
        ]
    }


def test_the_calls_of_the_first_table_are_at_two_addresses(client):
    for call in ("/model", "/members"):
        own = client.get(f"/v1/tables/films{call}").json()
        assert {**own, "pools": 0} == {**client.get(f"/v1{call}").json(), "pools": 0}
    body = {"cells": [[MEMBER, FILM]]}
    own = client.post("/v1/tables/films/predict", json=body).json()
    assert own["answers"] == client.post("/v1/predict", json=body).json()["answers"]


def test_each_table_has_its_own_cells(client, tables, url):
    body = {"cells": [[[77, 88], 2]]}
    assert client.put("/v1/tables/numbers/interactions", json=body).json()["version"] == 2
    until(lambda: tables.get("numbers").engine.snapshot.version == 2)
    about = client.get("/v1/tables/numbers/model").json()
    assert (about["source"], about["cells"]) == ("numbers.csv", len(NUMBERED) + 1)
    assert client.get("/v1/model").json()["cells"] == len(FRAME)
    gone = client.delete("/v1/tables/numbers/members", params={"axis": "user", "member": "77"})
    assert gone.json()["cells"] == 1
    refused = client.post("/v1/tables/numbers/recommend", json={"member": 77})
    assert refused.status_code == 422
    tables.close()
    again = open_tables(url)
    assert [table.engine.snapshot.version for table in again] == [1, 3]
    again.close()


def test_a_table_that_is_busy_does_not_shut_out_another(url):
    tables = open_tables(url, films={"calls": 1, "writes": 1}, numbers={"calls": 1})
    engine = tables.first.engine
    begun, go_on, plain = threading.Event(), threading.Event(), engine.predict
    engine.predict = lambda *given: begun.set() or (go_on.wait(20) and plain(*given))
    with TestClient(create_app(tables)) as client:
        ask = {"json": {"cells": [[MEMBER, FILM]]}}
        busy = threading.Thread(target=lambda: client.post("/v1/predict", **ask))
        busy.start()
        assert begun.wait(20)
        assert client.post("/v1/predict", **ask).status_code == 503
        assert client.post("/v1/tables/films/predict", **ask).status_code == 503
        other = client.post("/v1/tables/numbers/predict", json={"cells": [[1, 1]]})
        assert other.status_code == 200
        assert client.get("/v1/tables").status_code == 200
        go_on.set()
        busy.join()
        assert client.post("/v1/predict", **ask).status_code == 200


def test_a_change_that_waits_for_another_process_in_vain_may_be_tried_again(engine, monkeypatch):
    def fail(*given):
        raise Occupied("another writer holds the table: try again")

    monkeypatch.setattr(engine.store, "put", fail)
    with TestClient(create_app(engine)) as client:
        answer = client.put("/v1/interactions", json={"cells": [[["eve", FILM], 4]]})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert client.get("/ready").status_code == 200


def test_tables_share_the_memory_for_bodies(tables):
    assert [table.limits.waiting for table in tables] == [Limits().waiting // 2] * 2
    tables.close()


def test_a_read_only_table_is_not_changed(engine):
    tables = Tables([ServedTable(engine, read_only=True)])
    with TestClient(create_app(tables)) as client:
        body = {"cells": [[["eve", FILM], 4]]}
        refused = [
            client.put("/v1/interactions", json=body),
            client.delete("/v1/interactions", params={"label": [MEMBER, FILM]}),
            client.delete("/v1/members", params={"axis": "member", "member": MEMBER}),
            client.post("/v1/import", content=FRAME.write_csv().encode()),
        ]
        assert [one.status_code for one in refused] == [403] * 4
        assert refused[0].json()["error"] == "the first table is read-only"
        assert client.get("/v1/export").status_code == 200
        assert client.get("/v1/tables").json()["tables"][0]["writable"] is False
        predicted(client, [MEMBER, FILM])
    again = Store.open(str(engine.store.engine.url))
    assert again.read_table()[0] == 1
    again.close()


def test_metrics_and_log_name_the_table(tables, caplog):
    told = []
    with TestClient(create_app(tables, on_response=told.append)) as client:
        client.post("/v1/tables/numbers/predict", json={"cells": [[1, 1]]})
        client.get("/v1/tables/fictional/model")
        text = client.get("/metrics").text
    first, second = told[:2]
    assert (first.table, first.role, first.route) == (
        "numbers", "admin", "/v1/tables/{table}/predict",
    )  # fmt: skip
    assert first.received == len(b'{"cells":[[1,1]]}')
    assert first.sent > 50
    assert [phase.name for phase in first.phases] == ["queue", "compute"]
    assert second.table == ""  # which a client has made up
    assert 'exchangeable_cells{table="numbers"}' in text
    assert "fictional" not in text


def test_names_of_tables_are_safe(tmp_path):
    for source, name in {
        "/srv/Films 2024.csv.gz": "Films-2024", "ml-100k": "ml-100k", "../..": "table",
        "дані.csv": "table", "a/b/c_d.parquet": "c_d", "x" * 99: "x" * 40, "-a-.csv": "a",
    }.items():  # fmt: skip
        assert check_name(name_of(source)) == name
    for name in ("", "a b", "a/b", "..", "é", "a" * 41, "-a", "a\n", "a;b"):
        with pytest.raises(InputError, match="names of tables must be"):
            check_name(name)
    with pytest.raises(InputError, match="names of tables must be"):
        open_engine(tmp_path, NUMBERED, name="a/b")


def test_two_tables_do_not_have_one_name(tmp_path):
    one = open_engine(tmp_path, NUMBERED)
    (tmp_path / "other").mkdir()
    other = open_engine(tmp_path / "other", NUMBERED)
    with pytest.raises(InputError, match="two are named film-club"):
        Tables([ServedTable(one), ServedTable(other)])
    again = Store.open(str(one.store.engine.url), "second")
    again.fill("x.csv", Table.of(NUMBERED))
    third = Store.open(str(one.store.engine.url), "third")
    third.name = "second"
    with pytest.raises(InputError, match="already holds a table named second"):
        third.fill("y.csv", Table.of(NUMBERED))
    for opened in (one, other, again, third):
        opened.close()


def test_one_table_at_a_time_is_read():
    running, most, lock = [0], [0], threading.Lock()

    def make(table):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.02)
        with lock:
            running[0] -= 1

    threads = [threading.Thread(target=one, args=(None,)) for one in one_at_a_time([make] * 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


# Import and export --------------------------------------------------------------------------


def test_a_table_is_exported_and_imported_by_call(client, tables):
    answer = client.get("/v1/export")
    assert answer.headers["content-type"] == CSV
    assert answer.headers["content-disposition"] == 'attachment; filename="films.csv"'
    assert int(answer.headers["content-length"]) == len(answer.content)
    exported = pl.read_csv(answer.content)
    assert exported.sort("member", "film").equals(FRAME.sort("member", "film"))
    parquet = client.get("/v1/export", params={"format": "parquet"}).content
    assert pl.read_parquet(io.BytesIO(parquet)).equals(exported)
    assert client.get("/v1/export", params={"format": "xlsx"}).status_code == 422

    client.delete("/v1/members", params={"axis": "member", "member": MEMBER})
    written = client.post("/v1/import", content=parquet).json()
    assert written == {"version": 3, "cells": len(FRAME)}
    until(lambda: tables.first.engine.snapshot.read_version == 3)
    again = pl.read_csv(client.get("/v1/export").content)
    assert again.sort("member", "film").equals(FRAME.sort("member", "film"))
    assert MEMBER in [label for label, _ in tables.first.engine.members(0, "", 1000)]


def test_few_files_are_exported_at_the_same_time(client, tables):
    """Each takes a temporary file for as long as its client takes to read it."""
    for _ in range(Limits().uploads):
        tables.upload_slots.take("")
    refused = client.get("/v1/export")
    assert refused.status_code == 503
    assert "too many files are in progress" in refused.json()["error"]
    tables.upload_slots.free("")
    assert client.get("/v1/export").status_code == 200
    assert tables.upload_slots.used == 1


def test_a_file_that_does_not_fit_is_not_imported(client, tables):
    whole = FRAME.write_csv().encode()
    files = [
        whole + b"ann,Heat,nine\n",
        whole + b"ann,Heat,17\n",
        whole + b"ann," + b"x" * 501 + b",5\n",
        b"user,item,stars\n1,2,3\n",
        b"",
        b"PAR1 and nothing else PAR1",
    ]
    for content in files:
        answer = client.post("/v1/import", content=content)
        assert answer.status_code == 422, answer.text
        assert "\n" not in answer.json()["error"]
    twice = b"member,film,rating\neve,Heat,4\neve,Heat,2\n"
    assert client.post("/v1/import", content=twice).status_code == 422
    assert tables.first.engine.store.read_table()[0] == 1
    mean = client.post("/v1/import", params={"duplicates": "last"}, content=twice)
    assert mean.json() == {"version": 2, "cells": 1}


def test_a_file_whose_process_breaks_off_leaves_nothing(url):
    many = pl.DataFrame({"user": range(60_000), "item": [1] * 60_000, "stars": [2.0] * 60_000})
    tables = open_tables(url, films={"upload_output": 300_000})
    with TestClient(create_app(tables)) as client:
        path = "/v1/tables/numbers/import"
        answer = client.post(path, content=many.write_csv().encode())
        assert answer.status_code == 413
        assert tables.get("numbers").engine.store.read_table()[0] == 1
        small = client.post(path, content=b"user,item,stars\n99,99,2\n")
        assert small.json() == {"version": 2, "cells": 1}


def test_a_service_of_two_files_goes_on_with_what_its_database_holds(tmp_path):
    FRAME.write_csv(tmp_path / "films.csv")
    NUMBERED.write_csv(tmp_path / "numbers.csv")
    with served(tmp_path, "films.csv", "some=numbers.csv", "--model", "bias") as service:
        told = service.call("GET", "/v1/tables")[1]["tables"]
        assert [one["name"] for one in told] == ["films", "some"]
        body = {"cells": [[[99, 1], 2]]}
        assert service.call("PUT", "/v1/tables/some/interactions", body)[0] == 200
        assert service.stop() == 0
    (tmp_path / "numbers.csv").unlink()
    with served(tmp_path, "--db", "sqlite:///films.db", "--model", "bias") as service:
        told = service.call("GET", "/v1/tables")[1]["tables"]
        assert [(one["name"], one["cells"]) for one in told] == [
            ("films", len(FRAME)), ("some", len(NUMBERED) + 1),
        ]  # fmt: skip
        assert service.call("GET", "/ready")[0] == 200
    text = (tmp_path / "serve.log").read_text()
    assert '"table": "some"' in text
