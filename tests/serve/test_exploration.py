"""Parts of a served table come with what was observed and what is predicted."""

import polars as pl
import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from fastapi.testclient import TestClient
from tests.support.service_engine import FILM, FRAME, MEMBER, NUMBERED, open_engine, predicted

from exchangeable.errors import Failed
from exchangeable.runtime.progress import Progress
from exchangeable.serve import exploration
from exchangeable.serve.app import create_app

KNOWN = {row[:2]: row[2] for row in FRAME.rows()}


def explored(client, **part):
    answer = client.post("/v1/explore", json=part)
    assert answer.status_code == 200, answer.text
    return answer.json()["picture"]


def refused(client, **part):
    answer = client.post("/v1/explore", json=part)
    assert answer.status_code == 422
    return answer.json()["error"]


def test_all_cells_of_a_table_are_shown(client):
    picture = explored(client)
    assert len(picture["rows"]) == FRAME["member"].n_unique()
    assert len(picture["columns"]) == FRAME["film"].n_unique()
    for r, member in enumerate(picture["rows"]):
        for c, film in enumerate(picture["columns"]):
            assert picture["observed"][r][c] == KNOWN.get((member, film))
            assert picture["low"][r][c] <= picture["mean"][r][c] <= picture["high"][r][c]


def test_a_member_has_the_predictions_of_predict(client):
    picture = explored(client, rows=[MEMBER])
    assert picture["rows"] == [MEMBER]
    cells = [[MEMBER, film] for film in picture["columns"]]
    for at, answer in enumerate(predicted(client, *cells)["answers"]):
        for name in ("mean", "low", "high"):
            assert picture[name][0][at] == pytest.approx(answer[name], abs=1e-4)
    others = FRAME["member"].unique(maintain_order=True)[:3].to_list()
    chosen = explored(client, rows=others[::-1], columns=[FILM])
    assert (chosen["rows"], chosen["columns"]) == (others[::-1], [FILM])  # as they were named
    assert chosen["observed"] == [[KNOWN.get((one, FILM))] for one in others[::-1]]
    turned = explored(client, axes=["film", "member"], rows=[FILM], columns=others)
    assert turned["observed"][0] == [KNOWN.get((one, FILM)) for one in others]


def test_large_tables_are_shown_in_part(client, monkeypatch):
    monkeypatch.setattr(exploration, "MAX_CELLS", 200)
    picture = explored(client)
    assert 100 < len(picture["rows"]) * len(picture["columns"]) <= 200
    counts = FRAME["member"].value_counts().sort("count", descending=True)
    busiest = set(
        counts.filter(pl.col("count") >= counts["count"][len(picture["rows"]) - 1])["member"]
    )
    assert set(picture["rows"]) <= busiest
    assert len(explored(client, rows=[MEMBER])["columns"]) == FRAME["film"].n_unique()
    members = FRAME["member"].unique()[:20].to_list()
    assert len(explored(client, rows=members)["columns"]) == 10
    films = FRAME["film"].unique()[:20].to_list()
    assert "at most 200 cells are shown" in refused(client, rows=members, columns=films)


def test_deleted_members_are_not_shown(client, engine):
    gone = explored(client)["rows"][0]
    engine.refresher.delete_member(0, gone)
    assert gone not in explored(client)["rows"]
    assert "is not in the table" in refused(client, rows=[gone])


def test_what_cannot_be_shown_is_told(client):
    assert "is not in the table" in refused(client, rows=["nobody"])
    assert "one comes twice" in refused(client, rows=[MEMBER, MEMBER])
    assert "axes are member, film, but one named is 'actor'" in refused(client, given={"actor": 1})
    assert "two axes are shown" in refused(client, axes=["film", "film"])
    assert "two axes are shown" in refused(client, given={"film": FILM})


def test_labels_that_are_numbers_stay_numbers(tmp_path):
    with TestClient(create_app(open_engine(tmp_path, NUMBERED))) as client:
        picture = explored(client, rows=[3])
        assert picture["rows"] == [3]
        assert all(isinstance(label, int) for label in picture["columns"])


def test_a_third_axis_is_given(tmp_path):
    rows = [(a, b, c, float(a + b + c)) for a in range(4) for b in range(5) for c in range(3)]
    frame = pl.DataFrame(rows, schema=["user", "film", "month", "hours"], orient="row")
    engine = open_engine(tmp_path, frame, axes=["user", "film", "month"])
    with TestClient(create_app(engine)) as client:
        assert "two axes are shown" in refused(client)
        picture = explored(client, given={"film": 2})
        assert (len(picture["rows"]), len(picture["columns"])) == (4, 3)
        assert picture["observed"][3][1] == 3 + 2 + 1


def test_nothing_more_is_predicted_once_the_client_has_left(engine, monkeypatch):
    monkeypatch.setattr(exploration, "CELLS_PER_READ", 100)
    reads = []

    def stop(share, text):
        reads.append(share)
        if len(reads) == 3:
            raise Failed("the client has left")

    with pytest.raises(Failed):
        exploration.explore(engine, None, (None, None), {}, Progress(show=stop))
    assert len(reads) == 3
