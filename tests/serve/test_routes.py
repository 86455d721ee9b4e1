"""The service: what it answers, what it refuses, and what it keeps."""

import io
import json
import logging
import re
import socket
import threading

import numpy as np
import polars as pl
import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from fastapi.testclient import TestClient
from tests.support.service_engine import FILM, FRAME, MEMBER, fit_bias, open_engine, until

from exchangeable import Completer
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.serve import engine as engine_module
from exchangeable.serve import refresher
from exchangeable.serve.app import create_app
from exchangeable.serve.guard import Limits
from exchangeable.serve.routes import PAGE
from exchangeable.serve.server import (
    Address,
    _JsonFormatter,
    _log_response,
    completer_factory,
    read_token,
    saved_completer_factory,
)
from exchangeable.serve.store import Store
from exchangeable.training.config import TrainingConfig

TOKEN = "a token that nobody guesses".replace(" ", "-")


@pytest.fixture
def engine(tmp_path):
    return open_engine(tmp_path)


@pytest.fixture
def client(engine):
    with TestClient(create_app(engine)) as made:
        yield made


def predicted(client, *cells):
    answer = client.post("/v1/predict", json={"cells": cells})
    assert answer.status_code == 200, answer.text
    return answer.json()


# Answers ---------------------------------------------------------------------------------


def test_cells_are_answered_as_the_completer_does(client):
    cells = [[MEMBER, FILM], ["nobody", FILM], [MEMBER, "nothing"]]
    told = predicted(client, *cells)
    completer = Completer("bias").fit_table(Table.of(FRAME))
    expected = completer.predict(pl.DataFrame(cells, orient="row", schema=["member", "film"]))
    np.testing.assert_allclose([one["mean"] for one in told["answers"]], expected)
    assert told["levels"] == [1, 2, 3, 4, 5]
    for one in told["answers"]:
        assert one["low"] <= one["mean"] <= one["high"]
        assert sum(one["probabilities"]) == pytest.approx(1)
    wide = client.post("/v1/predict", json={"cells": cells, "coverage": 0.99}).json()["answers"]
    assert wide[0]["low"] < told["answers"][0]["low"]


def test_a_known_member_and_given_ratings_get_recommendations(client):
    known = client.post("/v1/recommend", json={"member": MEMBER, "n": 5}).json()
    assert len(known["recommended"]) == 5
    seen = set(FRAME.filter(pl.col("member") == MEMBER)["film"])
    assert not seen & {one["labels"]["film"] for one in known["recommended"]}
    asked = {"ratings": [[FILM, 5], [FRAME["film"][1], 1]], "n": 3, "why": True}
    fresh = client.post("/v1/recommend", json=asked).json()
    assert len(fresh["recommended"]) == 3
    assert fresh["milliseconds"] > 0
    for one in fresh["recommended"]:
        assert [reason["label"] for reason in one["why"]] == [FILM, FRAME["film"][1]]
    other = client.post("/v1/recommend", json={"axis": "film", "member": FILM, "n": 2}).json()
    assert [list(one["labels"]) for one in other["recommended"]] == [["member"], ["member"]]
    assert client.get("/v1/model").json()["cells"] == len(FRAME)  # nothing was stored


def test_why_is_the_answer_less_what_it_were_without_the_rating(client):
    ratings = [[FILM, 5], [FRAME["film"][1], 1], [FRAME["film"][2], 4]]
    whole = client.post("/v1/recommend", json={"ratings": ratings, "n": 200, "why": True}).json()
    for at in range(3):
        rest = [one for n, one in enumerate(ratings) if n != at]
        less = client.post("/v1/recommend", json={"ratings": rest, "n": 200}).json()
        means = {one["labels"]["film"]: one["mean"] for one in less["recommended"]}
        for one in whole["recommended"]:
            moved = one["mean"] - means[one["labels"]["film"]]
            assert one["why"][at]["moved"] == pytest.approx(moved, abs=1e-9)


def test_members_are_found_by_what_their_labels_hold(client):
    found = client.get("/v1/members", params={"axis": "film", "holding": "THE", "limit": 3}).json()
    assert len(found["members"]) == 3
    assert all("the" in one["label"].lower() for one in found["members"])
    cells = [one["cells"] for one in found["members"]]
    assert cells == sorted(cells, reverse=True)
    assert client.get("/v1/members").json()["axis"] == "member"


def test_the_model_health_and_metrics_tell_how_it_stands(client):
    about = client.get("/v1/model").json()
    assert about["model"] == "bias"
    assert about["source"] == "film-club"
    assert [axis["name"] for axis in about["axes"]] == ["member", "film"]
    assert client.get("/health").json() == {"status": "ok", "behind": 0}
    assert client.get("/ready").status_code == 200
    text = client.get("/metrics").text
    assert f"exchangeable_cells {float(len(FRAME))}" in text
    assert 'route="/v1/model"' in text
    assert "exchangeable_pools_age_seconds" in text


# Changes ---------------------------------------------------------------------------------


def test_new_cells_are_durable_and_then_in_the_answers(client, engine, tmp_path):
    before = predicted(client, ["newcomer", FILM])["answers"][0]["mean"]
    cells = [[["newcomer", film], 1] for film in FRAME["film"].unique()[:20]]
    told = client.put("/v1/interactions", json={"cells": cells}).json()
    assert told == {"version": 2, "cells": 20}
    again = Store.open(f"sqlite:///{tmp_path / 'table.db'}")
    assert len(again.read_table()[1]) == len(FRAME) + 20
    again.close()
    until(lambda: engine.snapshot.version == 2)
    after = predicted(client, ["newcomer", FILM])
    assert after["answers"][0]["mean"] < before - 0.3
    assert after["pools"]["version"] == 2


def test_a_cell_that_had_a_value_is_read_anew(client, engine):
    client.put("/v1/interactions", json={"cells": [[[MEMBER, FILM], 1]]})
    until(lambda: engine.snapshot.version == 2)
    assert engine.snapshot.refreshes == 1
    table = engine.snapshot.completer.table_
    assert len(table) == len(FRAME)
    assert table.values[table.positions(pl.DataFrame([{"member": MEMBER, "film": FILM}]))] == 1


def test_many_new_cells_lead_to_a_refresh(client, engine):
    cells = [[[f"new {n}", FILM], 3] for n in range(len(FRAME) // 10)]
    client.put("/v1/interactions", json={"cells": cells})
    until(lambda: engine.snapshot.refreshes == 1)
    assert engine.snapshot.read_version == 2


def test_after_a_member_was_deleted_it_is_as_if_it_never_was(tmp_path):
    def pretrained(table):
        return Completer("pretrained").fit_table(table)

    cells = [["stranger", film] for film in FRAME["film"].unique(maintain_order=True)[:10]]
    without = FRAME.filter(pl.col("member") != MEMBER)
    with TestClient(create_app(open_engine(tmp_path, without, pretrained))) as never:
        expected = predicted(never, *cells)["answers"]
    (tmp_path / "other").mkdir()
    engine = open_engine(tmp_path / "other", FRAME, pretrained)
    with TestClient(create_app(engine)) as client:
        told = client.delete("/v1/members", params={"axis": "member", "member": MEMBER}).json()
        assert told["cells"] == len(FRAME) - len(without)
        asked = {"member": MEMBER}
        assert client.post("/v1/recommend", json=asked).status_code == 422  # at once
        until(lambda: engine.snapshot.read_version >= told["gone_with_version"])
        after = predicted(client, *cells)
        assert after["pools"]["refreshed_version"] >= told["gone_with_version"]
        assert client.post("/v1/recommend", json=asked).status_code == 422
    for one, other in zip(after["answers"], expected, strict=True):
        for part in ("mean", "low", "high"):
            assert one[part] == pytest.approx(other[part], abs=1e-9)


def test_of_a_deleted_member_nothing_is_told_even_before_the_refresh(client, engine, monkeypatch):
    held = threading.Event()
    monkeypatch.setattr(engine.refresher, "make", lambda table: held.wait(20) and fit_bias(table))
    unknown = predicted(client, ["nobody", FILM])["answers"]
    client.delete("/v1/members", params={"axis": "member", "member": MEMBER})
    assert predicted(client, [MEMBER, FILM])["answers"] == unknown
    members = client.get("/v1/members", params={"axis": "member", "limit": 1000}).json()
    assert MEMBER not in [one["label"] for one in members["members"]]
    until(lambda: engine.refresher.refreshing)
    assert client.get("/health").json()["status"] == "refreshing"
    held.set()
    until(lambda: engine.snapshot.refreshes == 1)
    assert not engine.snapshot.deleted_members


def test_a_cell_is_deleted(client, engine):
    told = client.delete("/v1/interactions", params={"label": [MEMBER, FILM]}).json()
    assert told == {"gone_with_version": 2, "cells": 1}
    until(lambda: engine.snapshot.read_version == 2)
    assert len(engine.snapshot.completer.table_) == len(FRAME) - 1
    again = client.delete("/v1/interactions", params={"label": [MEMBER, FILM]}).json()
    assert again["cells"] == 0


def test_a_table_without_cells_says_so_and_takes_new_ones(tmp_path):
    frame = FRAME[:1]
    engine = open_engine(tmp_path, frame)
    with TestClient(create_app(engine)) as client:
        client.delete("/v1/members", params={"axis": "member", "member": MEMBER})
        until(lambda: engine.snapshot.completer is None)
        answer = client.post("/v1/predict", json={"cells": [[MEMBER, FILM]]})
        assert answer.status_code == 409
        assert "no cells" in answer.json()["error"]
        assert client.get("/v1/model").json()["cells"] == 0
        assert client.get("/v1/members").json()["members"] == []
        value = frame["rating"][0]
        client.put("/v1/interactions", json={"cells": [[["eve", FILM], value]]})
        until(lambda: engine.snapshot.completer is not None)
        assert predicted(client, ["eve", FILM])["pools"]["version"] == 3


def test_a_restart_goes_on_with_all_that_was_acknowledged(tmp_path):
    with TestClient(create_app(open_engine(tmp_path))) as client:
        client.put("/v1/interactions", json={"cells": [[["eve", FILM], 5]]})
    engine = open_engine(tmp_path)
    with TestClient(create_app(engine)) as client:
        assert engine.snapshot.version == 2
        assert client.get("/v1/model").json()["cells"] == len(FRAME) + 1


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


# Refusals --------------------------------------------------------------------------------

BAD = [
    ("/v1/predict", {"cells": []}),
    ("/v1/predict", {"cells": [["one label"]]}),
    ("/v1/predict", {"cells": [[MEMBER, FILM]], "more": 1}),
    ("/v1/predict", {"cells": [[MEMBER, 1.5]]}),
    ("/v1/predict", {"cells": [[MEMBER, True]]}),
    ("/v1/predict", {"cells": [[MEMBER, FILM]], "coverage": 1}),
    ("/v1/recommend", {}),
    ("/v1/recommend", {"member": MEMBER, "ratings": [[FILM, 5]]}),
    ("/v1/recommend", {"member": "nobody at all"}),
    ("/v1/recommend", {"member": MEMBER, "axis": "colour"}),
    ("/v1/recommend", {"member": MEMBER, "given": {"colour": "red"}}),
    ("/v1/recommend", {"ratings": [["no such film", 5]]}),
    ("/v1/recommend", {"ratings": [[FILM, 5], [FILM, 4]]}),
    ("/v1/recommend", {"ratings": [[FILM, 17]]}),
    ("/v1/recommend", {"member": MEMBER, "n": 0}),
]


@pytest.mark.parametrize(("path", "body"), BAD)
def test_a_call_that_does_not_fit_is_told_why_in_one_line(client, path, body):
    answer = client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    assert list(answer.json()) == ["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    "cells",
    [
        [[["eve", FILM], 7]],
        [[["eve", FILM], "five"]],
        [[["eve", ""], 5]],
        [[["eve", "a\x00b"], 5]],
        [[["eve"], 5]],
        [[["eve", FILM]]],
    ],
)
def test_interactions_that_do_not_fit_are_refused_whole(client, engine, cells):
    answer = client.put("/v1/interactions", json={"cells": [[["ann", FILM], 5], *cells]})
    assert answer.status_code == 422
    assert engine.store.read_table()[0] == 1


@pytest.mark.parametrize("body", [b"{", b"", b"[1, 2", b'{"cells": NaN}', b"\xff\xfe"])
def test_what_is_no_json_is_refused(client, body):
    headers = {"content-type": "application/json"}
    assert client.post("/v1/predict", content=body, headers=headers).status_code in (400, 422)
    infinite = '{"cells": [[["a", "b"], Infinity]]}'
    answer = client.put("/v1/interactions", content=infinite, headers=headers)
    assert answer.status_code == 422


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


def test_one_call_does_not_compare_cells_without_end(client, monkeypatch):
    monkeypatch.setattr(engine_module, "MAX_CANDIDATES", 20)
    for asked in ({"member": MEMBER}, {"ratings": [[FILM, 4]]}):
        answer = client.post("/v1/recommend", json=asked)
        assert answer.status_code == 422
        assert "at most 20 cells are compared" in answer.json()["error"]


def test_under_overload_further_calls_hear_so_at_once_and_later_ones_are_answered(engine):
    begun, go_on = threading.Semaphore(0), threading.Event()
    plain = engine.predict

    def slow(cells, coverage):
        begun.release()
        go_on.wait(20)
        return plain(cells, coverage)

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
    own = Address().hosts
    with TestClient(create_app(engine, hosts=own), base_url="http://127.0.0.1:8080") as client:
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
    assert answer.status_code == 405
    assert "access-control-allow-origin" not in answer.headers
    read = client.get("/v1/model", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in read.headers


# Files -----------------------------------------------------------------------------------


def csv_of(frame):
    return frame.write_csv().encode()


MISSING = FRAME.with_columns(
    rating=pl.when(pl.int_range(pl.len()) % 10 == 0).then(None).otherwise(pl.col("rating"))
)


def test_a_file_comes_back_completed(client):
    answer = client.post("/v1/complete", content=csv_of(MISSING))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/csv")
    found = pl.read_csv(io.StringIO(answer.text))
    assert found.columns == ["member", "film", "rating", "low", "high"]
    assert len(found) == len(FRAME)
    assert found["rating"].null_count() == 0
    assert found["low"].null_count() == len(FRAME) - MISSING["rating"].null_count()
    buffer = io.BytesIO()
    MISSING.write_parquet(buffer)
    same = client.post("/v1/complete", content=buffer.getvalue())
    assert same.text == answer.text
    small = FRAME.filter(pl.col("film").is_in(FRAME["film"].unique(maintain_order=True)[:5]))
    every = client.post("/v1/complete", params={"all": True}, content=csv_of(small))
    rows = small["member"].n_unique() * 5
    assert len(pl.read_csv(io.StringIO(every.text))) == rows


def test_a_file_is_looked_at(client):
    told = client.post("/v1/look", content=csv_of(MISSING)).json()
    assert told["without_value"] == MISSING["rating"].null_count()
    assert any("hidden" in note for note in told["notes"])
    picture = told["picture"]
    assert len(picture["rows"]) == len(picture["mean"]) == 60
    assert len(picture["columns"]) == len(picture["mean"][0]) == 60
    known = {row[:2]: row[2] for row in MISSING.rows()}
    for r, row in enumerate(picture["rows"]):
        for c, column in enumerate(picture["columns"]):
            assert picture["observed"][r][c] == known.get((row, column))
            assert picture["low"][r][c] <= picture["mean"][r][c] <= picture["high"][r][c]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"a,b,c\n1,2,x\n", "a number is needed"),
        (b"\x1f\x8b\x08\x00", "archive"),
        (b"PK\x03\x04", "archive"),
        (b"PAR1 and nothing more", "Parquet"),
        (b"\x00\x01\x02", "binary"),
        (b"a,b,c\n1,2,3\n1,2,4\n", "1, 2|twice|again"),
    ],
)
def test_a_bad_file_is_told_in_the_words_of_the_command(client, content, reason):
    for path in ("/v1/complete", "/v1/look"):
        answer = client.post(path, content=content)
        assert answer.status_code == 422
        assert re.search(reason, answer.json()["error"])


# Around it -------------------------------------------------------------------------------


def test_the_page_is_whole_and_asks_nobody_else(client):
    for name, (_, kind) in PAGE.items():
        answer = client.get(f"/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == kind
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text


def test_the_schema_names_every_call(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        "/v1/predict", "/v1/recommend", "/v1/interactions", "/v1/members", "/v1/model",
        "/v1/complete", "/v1/look", "/health", "/ready", "/metrics",
    }  # fmt: skip


def test_logs_are_lines_of_json_without_what_people_rated(engine, caplog):
    caplog.set_level(logging.INFO, logger="exchangeable.serve")
    _log_response("PUT", "/v1/interactions", 200, 0.0123)
    line = json.loads(_JsonFormatter().format(caplog.records[-1]))
    assert line["route"] == "/v1/interactions"
    assert line["ms"] == 12.3
    told = []
    with TestClient(create_app(engine, on_response=lambda *a: told.append(a))) as other:
        other.get("/v1/members", params={"holding": "secret"})
        other.get("/secret")
    assert [one[:3] for one in told] == [("GET", "/v1/members", 200), ("GET", "-", 404)]


def test_strangers_are_kept_out_unless_that_is_asked_for(tmp_path):
    for host in ("0.0.0.0", "192.168.1.2", "::", "example.org"):
        with pytest.raises(InputError, match="anyone could read and change"):
            Address(host)
        assert Address(host, token=TOKEN).hosts is None
        assert Address(host, anyone=True).hosts is None
    for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost"):
        assert host in Address(host).hosts


def test_a_port_that_is_taken_is_told():
    first = Address(port=0).bind()
    assert first.proto == socket.IPPROTO_TCP  # else asyncio would let small answers wait
    first.listen()
    try:
        with pytest.raises(InputError, match="cannot listen at"):
            Address(port=first.getsockname()[1]).bind()
    finally:
        first.close()


def test_a_token_is_read_from_a_file(tmp_path):
    place = tmp_path / "token"
    place.write_text(f"{TOKEN}\n")
    assert read_token(place) == TOKEN
    for bad in ("short", "with a space in the midst", ""):
        place.write_text(bad)
        with pytest.raises(InputError, match="16 characters"):
            read_token(place)
    with pytest.raises(InputError, match="cannot be read"):
        read_token(tmp_path / "nowhere")


def test_models_that_would_be_trained_at_each_refresh_are_refused():
    with pytest.raises(InputError, match="trained anew at each refresh"):
        completer_factory("residual", 0, "cpu")


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
