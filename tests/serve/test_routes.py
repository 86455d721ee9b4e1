"""The service: what it answers, what it refuses, and what it keeps."""

import json
import threading
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from fastapi.testclient import TestClient
from tests.support.service_engine import (
    FILM,
    FRAME,
    MEMBER,
    fit_bias,
    open_engine,
    predicted,
    until,
)
from tests.support.strangers import STRANGERS

from exchangeable import Completer
from exchangeable.data.table import Table
from exchangeable.serve import engine as engine_module
from exchangeable.serve.app import create_app
from exchangeable.serve.page.files import PAGE
from exchangeable.storage.store import Store

JSON = {"content-type": "application/json"}


@STRANGERS
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


@pytest.mark.parametrize(
    ("kind", "came"),
    [
        ("application/x-www-form-urlencoded", "is 'application/x-www-form-urlencoded'"),  # of curl
        ("", "is missing"),
        ("text/json; charset=utf-8", "is 'text/json'"),
    ],
)
def test_a_body_of_another_kind_than_json_is_told(client, kind, came):
    content = json.dumps({"member": MEMBER})
    answer = client.post("/v1/recommend", content=content, headers={"content-type": kind})
    assert answer.status_code == 422
    assert answer.json() == {"error": f"content-type must be application/json, but {came}"}
    headers = {"content-type": "application/json; charset=utf-8"}
    assert client.post("/v1/recommend", content=content, headers=headers).status_code == 200
    no_object = client.post("/v1/recommend", content="[]", headers=headers).json()["error"]
    assert "dictionary" in no_object


@pytest.mark.parametrize("source", ["/srv/secret/films.csv", r"C:\secret\films.csv", "films.csv/"])
def test_folders_of_the_source_are_not_shown(client, engine, source):
    engine.store._facts = replace(engine.store.facts, source=source)
    assert client.get("/v1/model").json()["source"] == "films.csv"
    assert client.get("/v1/tables").json()["tables"][0]["source"] == "films.csv"


def test_the_model_health_and_metrics_tell_how_it_stands(client):
    about = client.get("/v1/model").json()
    assert about["model"] == "bias"
    assert about["source"] == "film-club"
    assert [axis["name"] for axis in about["axes"]] == ["member", "film"]
    assert client.get("/health").json() == {"status": "ok", "behind": 0}
    assert client.get("/ready").status_code == 200
    text = client.get("/metrics").text
    assert f'exchangeable_cells{{table="film-club"}} {float(len(FRAME))}' in text
    assert 'route="/v1/model"' in text
    assert "exchangeable_pools_age_seconds" in text


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


def test_one_call_does_not_compare_cells_without_end(client, monkeypatch):
    monkeypatch.setattr(engine_module, "MAX_CANDIDATES", 20)
    for asked in ({"member": MEMBER}, {"ratings": [[FILM, 4]]}):
        answer = client.post("/v1/recommend", json=asked)
        assert answer.status_code == 422
        assert "at most 20 cells are compared" in answer.json()["error"]


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
    calls = {
        "predict", "recommend", "interactions", "members", "model", "explore", "complete", "look",
        "columns", "export", "import",
    }  # fmt: skip
    for prefix in ("/v1", "/v1/tables/{table}"):
        assert {f"{prefix}/{call}" for call in calls} <= set(paths)
    assert {"/v1/tables", "/health", "/ready", "/metrics"} <= set(paths)
    assert len(paths) == 2 * len(calls) + 4


def test_times_and_features_come_with_requests(tmp_path):
    generator = np.random.default_rng(0)
    cells = pl.DataFrame(np.argwhere(generator.random((12, 10)) < 0.7), schema=["user", "item"])
    trait = generator.normal(size=12)
    when = pl.Series(generator.integers(100, size=len(cells)), dtype=pl.Float64)
    value = trait[cells["user"]] + 0.1 * generator.normal(size=len(cells))
    frame = cells.with_columns(rating=pl.Series(value), timestamp=when)
    day = pl.Series(range(12)).cast(pl.Date)
    users = pl.DataFrame({"user": range(12), "trait": trait, "born": day, "vip": trait > 0})
    about = {"trait": 0, "born": None, "vip": None}

    def fit(table):
        return Completer("pretrained").fit_table(table, features={"user": users})

    engine = open_engine(tmp_path, frame, fit)
    with TestClient(create_app(engine)) as client:
        ask = {"cells": [[0, 0], [1, 1]]}
        assert client.post("/v1/predict", json={**ask, "times": [3, 99.5]}).status_code == 200
        short = client.post("/v1/predict", json={**ask, "times": [3]})
        assert (short.status_code, "2 in all, but are 1" in short.text) == (422, True)
        odd = client.post("/v1/predict", json={**ask, "times": ["soon", "later"]})
        assert (odd.status_code, "but this is 'soon'" in odd.text) == (422, True)
        means = []
        for own in (-2, 2):
            told = client.post(
                "/v1/recommend", json={"features": {**about, "trait": own}, "n": 10}
            ).json()
            means.append(np.mean([one["mean"] for one in told["recommended"]]))
        assert means[1] > means[0] + 1
        wrong = (
            {"trait": 1e300},
            {"trait": "\ud800"},
            {"\ud800": 1},
            {"born": "soon"},
            {"trait": [1]},
        )
        for own in wrong:
            body = json.dumps({"features": {**about, **own}})
            refused = client.post("/v1/recommend", content=body, headers=JSON)
            assert refused.status_code == 422, own
        told = [
            client.post("/v1/recommend", json={"features": {**about, **own}}).json()
            for own in ({"vip": True}, {"vip": "true"}, {"born": "1970-01-05", "vip": True})
        ]
        assert told[0]["recommended"] == told[1]["recommended"] != told[2]["recommended"]
        asked = {"features": {**about, "trait": 1}, "ratings": [[3, 0.0]], "n": 10}
        after = client.post("/v1/recommend", json={**asked, "why": True}).json()["recommended"]
        before = client.post("/v1/recommend", json={**asked, "ratings": []}).json()["recommended"]
        means = {one["labels"]["item"]: one["mean"] for one in before}
        for one in after:
            moved = one["mean"] - means[one["labels"]["item"]]
            assert one["why"][0]["moved"] == pytest.approx(moved, abs=1e-4)
        for odd in ("inf", "1e400", "\ud800"):
            body = json.dumps({"cells": [[[0, 0], 1.0]], "times": [odd]})
            refused = client.put("/v1/interactions", content=body, headers=JSON)
            assert refused.status_code == 422, odd
        nobody = client.post("/v1/recommend", json={"n": 3})
        assert (nobody.status_code, "ratings or features" in nobody.text) == (422, True)
        written = {"cells": [[[50, 0], 1.5], [[0, 99], 0.5]], "times": [55, 7]}
        assert client.put("/v1/interactions", json=written).status_code == 200
        until(lambda: engine.refresher.behind == 0)
        table = engine.store.read_table()[1]
        assert sorted(table.times[-2:]) == [7, 55]
        assert sorted(engine.snapshot.completer.table_.times[-2:]) == [7, 55]
    engine.close()


def test_times_need_a_table_that_has_some(client):
    asked = client.post("/v1/predict", json={"cells": [[MEMBER, FILM]], "times": [5]})
    assert (asked.status_code, "this one has none" in asked.text) == (422, True)
