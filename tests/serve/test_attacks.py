"""Attacks on the service: files that grow, pages of other sites, clients that do not let go."""

import json
import threading
import time
from contextlib import closing

import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from fastapi.testclient import TestClient
from tests.support import attacks
from tests.support.service import served
from tests.support.service_engine import FILM, FRAME, MEMBER, predicted, until

from exchangeable.serve import engine as engine_module
from exchangeable.serve.app import create_app
from exchangeable.serve.limits import Limits
from exchangeable.serve.server import Address

TOKEN = "a-token-that-nobody-guesses"
BODY = {"cells": [[MEMBER, FILM]]}
FILMS = FRAME["film"].unique(maintain_order=True).to_list()
CSV = b"user,item,value\n1,1,\n" + b"".join(b"%d,%d,3\n" % (n, n % 7) for n in range(2, 90))


# Files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["user", "rating", "note"])
@pytest.mark.parametrize("others", [0, 5_000])  # short texts that hide the long one from the mean
def test_a_dictionary_that_expands_is_refused_before_it_is_unpacked(client, column, others):
    content = attacks.growing_parquet(column, others=others)
    assert len(content) < 100_000
    answer = client.post("/v1/complete", content=content)
    assert answer.status_code == 422
    assert "at most 256 MB uncompressed, but has 1,2" in answer.json()["error"]


def test_many_columns_of_one_value_are_refused_before_they_are_unpacked(client):
    content = attacks.many_columns()
    assert len(content) < 1_000_000
    answer = client.post("/v1/look", content=content)
    assert answer.status_code == 422
    assert "at most 256 MB uncompressed, but has 305 MB" in answer.json()["error"]


def test_a_file_that_takes_too_much_memory_is_given_up_and_the_next_is_completed(engine):
    limits = Limits(upload_memory=300 * 2**20)
    with TestClient(create_app(engine, limits=limits)) as client:
        answer = client.post("/v1/complete", content=attacks.thin_csv(30_000))
        assert answer.status_code == 413
        assert "at most 300 MB of memory" in answer.json()["error"]
        assert client.post("/v1/complete", content=CSV).status_code == 200


def test_a_file_that_takes_too_long_is_given_up_and_the_next_is_completed(engine):
    limits = Limits(upload_seconds=1.5)
    with TestClient(create_app(engine, limits=limits)) as client:
        answer = client.post("/v1/look", content=attacks.thin_csv(10_000))
        assert answer.status_code == 413
        assert "at most 1.5 seconds" in answer.json()["error"]
    with TestClient(create_app(engine)) as client:
        assert client.post("/v1/complete", content=CSV).status_code == 200


def test_a_response_that_is_too_large_is_refused_before_it_begins(engine):
    with TestClient(create_app(engine, limits=Limits(upload_output=1000))) as client:
        answer = client.post("/v1/complete", content=CSV)
        assert answer.status_code == 413
        assert "at most 1,000 bytes" in answer.json()["error"]


def test_a_file_is_given_up_when_its_client_leaves(tmp_path):
    with served(tmp_path, "--model", "bias") as service:
        content = attacks.thin_csv(30_000)
        head = (
            f"POST /v1/complete HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n"
        )
        sent = head.encode() + b"\r\n" + content
        before = service.children()
        # The second has also begun its next request.
        leaving = [attacks.open_socket(service.port, sent + more) for more in (b"", b"GET ")]
        until(lambda: len(service.children() - before) == 2)
        for one in leaving:
            one.close()
        until(lambda: service.children() <= before, seconds=10)

        def completes() -> bool:
            with closing(service.connection()) as connection:
                connection.request("POST", "/v1/complete", CSV)
                return connection.getresponse().status == 200

        # A place is free a moment after its process has ended.
        until(completes, seconds=10)


# Pages of other sites -------------------------------------------------------------------

CALLS = [
    ("POST", "/v1/predict"),
    ("POST", "/v1/recommend"),
    ("PUT", "/v1/interactions"),
    ("DELETE", "/v1/members?axis=member&member=eve"),
    ("GET", "/v1/members"),
    ("POST", "/v1/complete"),
    ("POST", "/v1/look"),
    ("POST", "/v1/import"),
    ("GET", "/v1/export"),
    ("GET", "/v1/tables"),
    ("DELETE", "/v1/tables/film-club/members?axis=member&member=eve"),
]


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize(("method", "path"), CALLS)
def test_what_pages_of_other_sites_send_is_refused(engine, token, method, path):
    bearing = {"authorization": f"Bearer {token}"} if token else {}
    with TestClient(create_app(engine, token=token), base_url="http://localhost:8080") as client:
        for sent in (
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},  # another port of this machine
            {"sec-fetch-site": "cross-site", "origin": "http://localhost:8080"},
            {"origin": "https://evil.example"},
            {"origin": "http://localhost:3000"},
            {"origin": "https://localhost:8080.evil.example"},
            {"origin": "http://localhost:port"},
            {"origin": "null"},
        ):
            answer = client.request(method, path, headers={**sent, **bearing}, content=CSV)
            assert answer.status_code == 403, sent
            assert answer.json() == {"error": "pages of other sites may not use this service"}


def test_what_its_own_page_and_programs_send_is_admitted(client):
    host = {"host": "tables.example:8080"}
    for sent in (
        {},
        {"sec-fetch-site": "same-origin", "origin": "https://tables.example"},  # behind a proxy
        {"sec-fetch-site": "none"},
        {"origin": "http://tables.example:8080", **host},
        {"origin": "https://tables.example", "host": "tables.example"},
        {"origin": "https://tables.example:443", "host": "tables.example"},
    ):
        assert client.post("/v1/predict", json=BODY, headers=sent).status_code == 200, sent
    followed = {"sec-fetch-site": "cross-site"}  # a link to the page
    assert client.get("/", headers=followed).status_code == 200


def test_whoever_is_let_in_without_a_token_must_use_a_name_of_the_service(engine):
    origins = Address("0.0.0.0", anyone=True, names=("Tables.example",)).origins
    with TestClient(create_app(engine, origins=origins)) as client:
        for name in ("192.168.1.7:8080", "[fe80::1]:8080", "localhost", "tables.example"):
            assert client.get("/v1/model", headers={"host": name}).status_code == 200, name
        for name in ("evil.example", "192.168.1.7.evil.example", "", "[x]"):
            assert client.get("/v1/model", headers={"host": name}).status_code == 421, name


def test_a_proxy_does_not_publish_a_service_without_a_token(engine):
    names = ("for", "host", "proto", "port", "server")
    forwarded = [{f"x-forwarded-{name}": "203.0.113.9"} for name in names]
    forwarded += [{"forwarded": "for=203.0.113.9"}, {"x-real-ip": "203.0.113.9"}, {"via": "1.1 x"}]
    local = Address().origins
    with TestClient(create_app(engine, origins=local), base_url="http://localhost") as client:
        for sent in forwarded:
            answer = client.get("/v1/model", headers=sent)
            assert answer.status_code == 403
            assert "--token-file" in answer.json()["error"]
    with TestClient(create_app(engine, token=TOKEN)) as client:
        for sent in forwarded:
            bearing = {**sent, "authorization": f"Bearer {TOKEN}"}
            assert client.get("/v1/model", headers=bearing).status_code == 200


# Effects of ratings ---------------------------------------------------------------------


def test_effects_of_ratings_are_bounded_in_number(client):
    asked = {"ratings": [[film, 3] for film in FILMS[:60]], "why": True}
    answer = client.post("/v1/recommend", json={**asked, "n": 1000})
    assert answer.status_code == 422
    assert "at most 10,000 effects" in answer.json()["error"]
    assert client.post("/v1/recommend", json={**asked, "n": 20}).status_code == 200


def test_calls_whose_clients_have_left_compute_nothing_more(tmp_path):
    from exchangeable.serve.call import LEFT, Call, Ended

    begun, go_on = threading.Event(), threading.Event()
    from tests.support.service_engine import open_engine

    engine = open_engine(tmp_path)
    calls = [Call() for _ in range(2 * (engine_module.os.cpu_count() or 1) + 1)]
    ran, ended = [], []

    def work(call):
        begun.set()
        go_on.wait(20)
        call.check()
        ran.append(call)

    def ask(call):
        with pytest.raises(Ended, match=LEFT):
            engine.run(lambda: work(call), call)
        ended.append(call)

    asking = [threading.Thread(target=ask, args=(call,)) for call in calls]
    for one in asking:
        one.start()
    assert begun.wait(20)
    for call in calls:
        call.end(LEFT)
    until(lambda: len(ended) == len(calls))
    go_on.set()
    for one in asking:
        one.join()
    assert ran == []
    engine.close()


def test_a_call_that_takes_too_long_is_given_up(engine, monkeypatch):
    def slow(completer, query, cells, progress):
        for _ in range(2000):
            progress.at(0.5, "leaving out a rating")
            time.sleep(0.01)

    monkeypatch.setattr(engine_module, "effects_of_ratings", slow)
    with TestClient(create_app(engine, limits=Limits(call_seconds=0.2))) as client:
        asked = {"ratings": [[FILM, 5]], "why": True}
        answer = client.post("/v1/recommend", json=asked)
        assert answer.status_code == 503
        assert "longer than 0.2 seconds" in answer.json()["error"]
        assert answer.headers["retry-after"] == "1"


# Load of one client ---------------------------------------------------------------------


def test_one_client_does_not_get_all_places(engine):
    begun, go_on = threading.Semaphore(0), threading.Event()
    plain = engine.predict

    def slow(*arguments, **options):
        begun.release()
        go_on.wait(20)
        return plain(*arguments, **options)

    engine.predict = slow
    app = create_app(engine, limits=Limits(calls=4))
    with (
        TestClient(app, client=("203.0.113.1", 1)) as greedy,
        TestClient(app, client=("203.0.113.2", 1)) as modest,
    ):
        two = [threading.Thread(target=predicted, args=(greedy, BODY["cells"][0])) for _ in "12"]
        for one in two:
            one.start()
        assert all(begun.acquire(timeout=20) for _ in two)
        refused = greedy.post("/v1/predict", json=BODY)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert modest.get("/v1/model").status_code == 200
        go_on.set()
        for one in two:
            one.join()


# Failures -------------------------------------------------------------------------------


def test_failures_are_logged_with_the_request_and_not_shown(engine, caplog):
    def fail(*arguments, **options):
        raise KeyError("a label of somebody")

    engine.predict = fail
    with TestClient(create_app(engine)) as client:
        answer = client.post("/v1/predict", json=BODY)
    assert answer.status_code == 500
    identity = answer.headers["x-request-id"]
    assert answer.json() == {"error": f"the service failed; its log says why at {identity}"}
    (record,) = [one for one in caplog.records if one.message == "failed"]
    assert record.fields["id"] == identity
    assert record.fields["error"] == "KeyError"
    assert any("test_attacks.py" in where for where in record.fields["where"])
    assert "somebody" not in json.dumps(record.fields)
