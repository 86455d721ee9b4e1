"""Uploaded files come back completed, summarised, or refused in one line."""

import io
import re
import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from tests.support.attacks import growing_parquet
from tests.support.service_engine import FRAME


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


def test_other_columns_come_back_as_they_were_sent(client):
    note, rows = pl.lit('a "b", c').alias("note"), pl.int_range(pl.len()).alias("low")
    sent = MISSING.select("member", note, rows, "film", "rating", seen=pl.lit("2024-01-02"))
    buffer = io.BytesIO()
    sent.write_parquet(buffer)
    for content in (csv_of(sent), buffer.getvalue()):
        answer = client.post("/v1/complete", content=content)
        found = pl.read_csv(io.StringIO(answer.text))
        assert found.columns == [*sent.columns, "low end", "high"]
        assert found.drop("rating", "low end", "high").equals(sent.drop("rating"))
        assert found["rating"].null_count() == 0


def test_other_columns_that_csv_cannot_hold_are_refused(client):
    buffer = io.BytesIO()
    MISSING.with_columns(tags=pl.concat_list("film")).write_parquet(buffer)
    answer = client.post("/v1/complete", content=buffer.getvalue())
    assert answer.status_code == 422
    assert "List(String) of column 'tags'" in answer.json()["error"]


@pytest.mark.parametrize("stored", [True, False])  # as categories, or as texts
def test_texts_that_are_small_in_the_file_alone_are_refused(client, stored):
    rows = 2**16
    note = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x" * 2**16])  # 2^32 bytes
    users, films = np.divmod(np.arange(rows), 2**8)
    ratings = pa.array([None, *[3.0] * (rows - 1)])
    sent = pa.table({"user": users, "film": films, "rating": ratings, "note": note})
    buffer = io.BytesIO()
    pq.write_table(sent, buffer, store_schema=stored)
    for path in ("/v1/complete", "/v1/columns"):
        answer = client.post(path, content=buffer.getvalue())
        assert answer.status_code == 422
        assert "at most 256 MB uncompressed, but has 4,0" in answer.json()["error"]


IMPORTS = """
import importlib, io, sys
import polars as pl
from exchangeable.data.options import TableOptions
from exchangeable.serve import sandbox
for name in sandbox.modules():
    importlib.import_module(name)
before = set(sys.modules)
from exchangeable.serve.limits import Limits
from exchangeable.serve.upload_process import Task, _respond
from exchangeable.serve.uploads import Upload
frame = pl.DataFrame({"user": [n % 7 for n in range(40)], "film": [n // 7 for n in range(40)]})
frame = frame.with_columns(film="f" + pl.col("film").cast(pl.String))
rated = frame.with_columns(rating=pl.int_range(40) % 5, day=pl.lit("2024-01-02"))
rated = rated.with_columns(rating=pl.when(pl.int_range(40) > 3).then("rating"))
parquet = io.BytesIO()
rated.write_parquet(parquet)
wide = rated.pivot("film", index="user", values="rating")
contents = [rated.write_csv().encode(), rated.write_csv().encode("utf-16"), parquet.getvalue(),
            rated.write_json().encode(), frame.write_csv().encode(), wide.write_csv().encode()]
for content in contents:
    for kind in ("columns", "look", "complete"):
        task = Task(kind, TableOptions(), every=True)
        assert list(_respond(Upload(content, task.options), task, Limits()))
print(sorted(name for name in set(sys.modules) - before if name.startswith("exchangeable")))
"""


def test_everything_is_imported_before_the_first_file():
    ended = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert (ended.stdout, ended.returncode) == ("[]\n", 0), ended.stderr


def test_a_file_is_looked_at(client):
    told = client.post("/v1/look", content=csv_of(MISSING)).json()
    assert told["without_value"] == MISSING["rating"].null_count()
    assert any("hidden" in note for note in told["notes"])
    picture = told["picture"]
    assert len(picture["rows"]) == len(picture["mean"]) == FRAME["member"].n_unique()
    assert len(picture["columns"]) == len(picture["mean"][0]) == FRAME["film"].n_unique()
    known = {row[:2]: row[2] for row in MISSING.rows()}
    for r, row in enumerate(picture["rows"]):
        for c, column in enumerate(picture["columns"]):
            assert picture["observed"][r][c] == known.get((row, column))
            assert picture["low"][r][c] <= picture["mean"][r][c] <= picture["high"][r][c]


def columns_of(client, content, **options):
    answer = client.post("/v1/columns", params=options, content=content)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_columns_of_a_file_are_read_before_it_is_completed(client):
    found = columns_of(client, csv_of(MISSING))
    assert (found["columns"], found["problem"]) == (["member", "film", "rating"], None)
    assert found["rows"][1] == [str(cell) for cell in MISSING.row(1)]
    table = found["table"]
    assert table["without_value"] == MISSING["rating"].null_count()
    assert [axis["name"] for axis in table["axes"]] == ["member", "film"]
    assert (table["value"], table["levels"]) == ("rating", [1, 2, 3, 4, 5])
    assert not table["wide"]
    buffer = io.BytesIO()
    MISSING.write_parquet(buffer)
    assert columns_of(client, buffer.getvalue())["table"] == table
    assert columns_of(client, MISSING.head(9).write_json().encode())["table"]["axes"]


def test_columns_can_be_chosen(client):
    content = b"when,who,what,a,b\n1,x,p,4,1\n2,y,q,2,2\n3,x,q,3,9\n"
    chosen = columns_of(client, content, axes="who,what", value="b")["table"]
    assert ([axis["name"] for axis in chosen["axes"]], chosen["value"]) == (["who", "what"], "b")
    wide = columns_of(client, content, axes="who", wide=True)
    assert wide["problem"].startswith("the file: rows of a wide table need labels that differ")
    assert wide["columns"] == ["when", "who", "what", "a", "b"]  # so that others can be chosen
    likes = columns_of(client, content, axes="who,what", likes=True, duplicates="count")["table"]
    assert (likes["positives"], likes["cells"]) == (True, 3)
    long = b"q,r,s,t\nann,1,2,3\nbob,4,,3\ncleo,2,3,4\n"
    assert columns_of(client, long)["table"]["wide"]
    assert not columns_of(client, long, wide=False)["table"]["wide"]


def test_very_many_columns_are_cut(client):
    header = ",".join(["who", *(f"question {n}" for n in range(300))])
    rows = [",".join([f"{'x' * 300}{r}", *["3"] * 300]) for r in range(4)]
    found = columns_of(client, "\n".join([header, *rows]).encode())
    assert (len(found["columns"]), found["further_columns"]) == (100, 201)
    assert {len(row) for row in found["rows"]} == {100}
    assert len(found["rows"][0][0]) == 80
    assert found["table"]["axes"][1]["members"] == 300


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
    for path in ("/v1/complete", "/v1/look", "/v1/columns"):
        answer = client.post(path, content=content)
        told = answer.json()
        if path == "/v1/columns" and answer.status_code == 200:  # others may be chosen
            assert re.search(reason, told["problem"])
            continue
        assert answer.status_code == 422
        assert re.search(reason, told["error"])


@pytest.mark.parametrize("title", ["*", "^fil.$", "^.*$"])
def test_a_column_that_polars_would_take_for_a_pattern_is_refused(client, title):
    frame = MISSING.rename({"film": title})
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    for content in (csv_of(frame), buffer.getvalue(), frame.write_json().encode()):
        answer = client.post("/v1/columns", content=content)
        assert answer.status_code == 422
        assert f"{title!r} is a pattern" in answer.json()["error"]


def test_a_pattern_hides_no_text_that_grows(client):
    content = growing_parquet("^(film)$", others=5000)
    answer = client.post("/v1/columns", content=content)
    assert answer.status_code == 422
    assert "is a pattern" in answer.json()["error"]


def test_json_that_is_too_deep_is_refused(client):
    answer = client.post("/v1/columns", content=b'{"a":' * 10_000)
    assert answer.status_code == 422
