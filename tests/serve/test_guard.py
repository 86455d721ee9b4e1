"""The guard admits or refuses requests before they reach a route."""

import asyncio
import threading

import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from fastapi.testclient import TestClient
from tests.support.service_engine import FILM, MEMBER, predicted

from exchangeable.serve.access.origins import Origins
from exchangeable.serve.app import create_app
from exchangeable.serve.guard import Guard
from exchangeable.serve.limits import Limits
from exchangeable.serve.server import Address
from exchangeable.serve.tables.served import ServedTable, Tables

TOKEN = "a token that nobody guesses".replace(" ", "-")


def test_too_much_is_refused(engine):
    limits = Limits(body=500, upload=1000, cells=3, rows=5)
    with TestClient(create_app(engine, limits=limits)) as client:
        many = client.post("/v1/predict", json={"cells": [["a", "b"]] * 4})
        assert many.status_code == 422
        assert "at most 3 cells" in many.json()["error"]
        large = client.post("/v1/predict", json={"cells": [["a" * 600, "b"]]})
        assert large.status_code == 413
        file = client.post("/v1/complete", content=b"x" * 1001)
        assert file.status_code == 413
        parts = (b"x" * 300 for _ in range(10))  # whose length nobody told
        assert client.post("/v1/predict", content=parts).status_code == 413
        rows = client.post("/v1/complete", content=b"a,b,c\n" + b"1,2,\n" * 10)
        assert rows.status_code == 422
        assert "at most 5 rows" in rows.json()["error"]


def test_commas_are_counted_by_the_limit_of_the_table(engine):
    """Values are parsed where all requests share the time."""
    limits = Limits(cells=3)
    with TestClient(create_app(engine, limits=limits)) as client:
        answer = client.post("/v1/predict", json={"cells": [["a"] * 20]})
        assert answer.status_code == 413
        assert "at most 18 commas" in answer.json()["error"]


def guarded(engine, app, limits):
    """A guard around an app, its tables, and the scope of a request."""
    tables = Tables([ServedTable(engine, limits)])
    guard = Guard(app, tables, None, Origins(), lambda told: None)
    scope = {"type": "http", "method": "POST", "path": "/v1/predict", "headers": []}
    return guard, tables.first, scope


@pytest.mark.parametrize("ending", ["late", "broken off", "too large"])
def test_a_body_that_does_not_arrive_whole_waits_no_longer(engine, ending):
    """Else a few of them would keep all others out."""
    statuses = []

    async def app(scope, receive, send):
        raise AssertionError("it did not arrive")

    async def send(message):
        statuses.append(message.get("status"))

    parts = iter([100, 200, 300])

    async def receive():
        for size in parts:
            return {"type": "http.request", "body": b"x" * size, "more_body": True}
        if ending == "late":
            await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    most = 500 if ending == "too large" else 1000
    guard, table, scope = guarded(engine, app, Limits(seconds=0.05, body=most))
    asyncio.run(asyncio.wait_for(guard(scope, receive, send), 10))
    assert statuses[0] == {"late": 408, "broken off": 400, "too large": 413}[ending]
    assert table.waiting_bytes == 0


def test_bodies_that_arrive_together_do_not_take_more_places_than_there_are(engine):
    running, most, statuses = [], [], []

    async def app(scope, receive, send):
        running.append(scope)
        most.append(len(running))
        await asyncio.sleep(0.05)
        running.pop()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        if "status" in message:
            statuses.append(message["status"])

    async def three():
        arrived = asyncio.Event()

        async def ask():
            parts = iter([b"{}"])

            async def receive():
                await arrived.wait()
                body = next(parts, None)
                if body is None:
                    await asyncio.sleep(60)
                return {"type": "http.request", "body": body, "more_body": False}

            await guard(dict(scope), receive, send)

        asked = [asyncio.create_task(ask()) for _ in range(3)]
        await asyncio.sleep(0.01)  # all are admitted to send their bodies
        arrived.set()
        await asyncio.gather(*asked)

    guard, table, scope = guarded(engine, app, Limits(calls=1))
    asyncio.run(asyncio.wait_for(three(), 10))
    assert max(most) == 1
    assert sorted(statuses) == [200, 503, 503]
    assert table.slots["calls"].used == table.waiting_bytes == 0


def test_under_overload_further_calls_hear_so_at_once_and_later_ones_are_answered(engine):
    begun, go_on = threading.Semaphore(0), threading.Event()
    plain = engine.predict

    def slow(cells, coverage, times):
        begun.release()
        go_on.wait(20)
        return plain(cells, coverage, times)

    engine.predict = slow
    with TestClient(create_app(engine, limits=Limits(calls=2))) as client:
        found = []
        ask = lambda: found.append(predicted(client, [MEMBER, FILM]))  # noqa: E731
        two = [threading.Thread(target=ask) for _ in range(2)]
        for one in two:
            one.start()
        assert all(begun.acquire(timeout=20) for _ in two)
        refused = client.post("/v1/predict", json={"cells": [[MEMBER, FILM]]})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert client.get("/health").status_code == 200  # which is asked by who would restart it
        go_on.set()
        for one in two:
            one.join()
        assert len(found) == 2
        predicted(client, [MEMBER, FILM])


def test_a_token_is_needed_where_there_is_one(engine):
    with TestClient(create_app(engine, token=TOKEN)) as client:
        ways = [
            {},
            {"authorization": TOKEN},
            {"authorization": f"Basic {TOKEN}"},
            {"authorization": f"Bearer {TOKEN[:-1]}"},
            {"authorization": f"Bearer {TOKEN}x"},
            {"authorization": "Bearer "},
            {"authorization": "Bearer \u00e9".encode()},
        ]
        for headers in ways:
            answer = client.get("/v1/model", headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        # Before anything of the body is looked at.
        assert client.post("/v1/predict", content=b"x" * 2**21).status_code == 401
        assert client.get("/v1//model").status_code == 401
        assert client.get("/v1/model", params={"token": TOKEN}).status_code == 401
        bearing = {"authorization": f"Bearer {TOKEN}"}
        assert client.get("/v1/model", headers=bearing).status_code == 200
        assert client.get("/health").status_code == 200
        for path in ("/V1/model", "/%76%31/model", "//v1/model", "/x/../v1/model"):
            assert client.get(path).status_code in (401, 404)


def test_other_names_than_its_own_are_refused(engine):
    own = Address().origins
    with TestClient(create_app(engine, origins=own), base_url="http://127.0.0.1:8080") as client:
        assert client.get("/v1/model").status_code == 200
        for name in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil"):
            assert client.get("/v1/model", headers={"host": name}).status_code == 421
            assert client.get("/", headers={"host": name}).status_code == 421
        for name in ("localhost:8080", "[::1]:8080", "LOCALHOST"):
            assert client.get("/v1/model", headers={"host": name}).status_code == 200


def test_nothing_that_comes_is_a_path(client):
    for path in ("/page/../api.py", "/page/%2e%2e/api.py", "/page//etc/passwd", "/page/x.js"):
        answer = client.get(path)
        assert answer.status_code == 404
    told = client.post("/v1/complete", params={"axes": "/etc/passwd"}, content=b"a,b,c\n1,2,3\n")
    assert told.status_code == 422
    assert "root:" not in told.text
    named = client.post("/v1/complete", content=b"/etc/passwd")
    assert named.status_code == 422


def test_pages_of_other_sites_are_given_nothing(client):
    headers = {"origin": "https://evil.example", "access-control-request-method": "PUT"}
    answer = client.options("/v1/interactions", headers=headers)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    read = client.get("/v1/model", headers={"origin": "https://evil.example"})
    assert read.status_code == 403
    assert "access-control-allow-origin" not in read.headers


def test_more_writers_than_are_let_in_hear_so_and_readers_are_let_in(engine):
    begun, go_on = threading.Event(), threading.Event()
    plain = engine.refresher.put
    engine.refresher.put = lambda *cells: begun.set() or (go_on.wait(20) and plain(*cells))
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


def test_made_up_methods_are_not_counted_one_by_one(engine):
    with TestClient(create_app(engine)) as client:
        for number in range(5):
            assert client.request(f"MADEUP{number}", "/v1/model").status_code == 405
        text = client.get("/metrics").text
    assert "MADEUP" not in text
    assert 'method="-"' in text


def test_who_does_not_take_an_answer_is_left(engine):
    """Else two such clients would keep all others from uploading."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 100})

    async def never(message):
        if message["type"] == "http.response.body":
            await asyncio.sleep(60)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    tables = Tables([ServedTable(engine, Limits(seconds=0.05))])
    guard = Guard(app, tables, None, Origins(), lambda told: None)
    for path in ("/v1/complete", "/v1/predict"):
        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        asyncio.run(asyncio.wait_for(guard(scope, receive, never), 10))
    assert tables.upload_slots.used == tables.first.waiting_bytes == 0
    assert [slots.used for slots in tables.first.slots.values()] == [0, 0]
