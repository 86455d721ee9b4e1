"""Completed tables have all columns of their input, in their place, beside the predictions."""

import gzip
import io
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from pandas.testing import assert_frame_equal
from tests.support.strangers import STRANGERS

from exchangeable.completion import fill
from exchangeable.completion.completer import Completer
from exchangeable.data import build, columns
from exchangeable.data.options import TableOptions
from exchangeable.data.table import Table
from exchangeable.errors import InputError

FRAME = pl.DataFrame(
    {
        "note": ['a "b"', None, "c, d", "", "e"],
        "user": ["ann", "ann", "bob", "bob", "cleo"],
        "low": [7, 8, 9, 10, 11],
        "film": ["Heat", "Alien", "Heat", "Alien", "Heat"],
        "rating": [5.0, 4.0, None, 2.0, None],
        "seen": ["2024-01-02", "007", " 1.50", "nan", None],
    }
)
COLUMNS = [*FRAME.columns, "low end", "high"]
PREDICTED = ["rating", "low end", "high"]


def filled_from(path, **options):
    table = Table.read(path, **options)
    request = fill.FillRequest.of(table)
    completer = Completer("bias").fit_table(table.in_label_order(in_place=True))
    return fill.fill(completer.fitted_, request)


def test_a_polars_frame_comes_back_with_all_its_columns():
    completed = fill.complete(FRAME, model="bias")
    assert completed.columns == COLUMNS
    assert completed.drop(PREDICTED).equals(FRAME.drop("rating"))
    assert completed["rating"].null_count() == 0
    plain = fill.complete(FRAME.select("user", "film", "rating"), model="bias")
    assert plain.columns == ["user", "film", "rating", "low", "high"]
    assert completed.select(PREDICTED).rows() == plain.drop("user", "film").rows()


def test_a_pyarrow_table_comes_back_with_all_its_columns():
    given = FRAME.to_arrow()
    completed = fill.complete(given, model="bias")
    assert completed.column_names == COLUMNS
    assert completed.drop_columns(PREDICTED).equals(given.drop_columns(["rating"]))


def test_a_pandas_frame_keeps_its_types_and_index():
    given = FRAME.to_pandas().astype({"user": "category", "low": "Int16"})
    given.index = [3, 3, 4, 5, 6]
    before = given.copy()
    completed = fill.complete(given, model="bias")
    assert list(completed.columns) == COLUMNS
    assert_frame_equal(completed.drop(columns=PREDICTED), given.drop(columns="rating"))
    assert_frame_equal(given, before)


def test_columns_named_by_numbers_keep_their_names():
    given = pd.DataFrame({0: list("aab"), 1: list("xyx"), 2: [1.0, 2.0, None], 3: [7, 8, 9]})
    completed = fill.complete(given, model="bias")
    assert list(completed.columns) == [0, 1, 2, 3, "low", "high"]
    assert completed[3].tolist() == [7, 8, 9]
    assert completed[2].notna().all()


def test_an_array_keeps_its_columns():
    given = np.array([["a", "x", 1.0, "p"], ["a", "y", 2.0, 5], ["b", "x", None, None]], object)
    completed = fill.complete(given, model="bias")
    assert completed.shape == (3, 6)
    assert completed[:, [0, 1, 3]].tolist() == given[:, [0, 1, 3]].tolist()


def test_of_merged_rows_the_first_one_stays():
    again = pl.concat([FRAME, FRAME.head(2).with_columns(note=pl.lit("again"), rating=1.0)])
    for given in (again, again.to_pandas()):
        completed = fill.complete(given, model="bias", duplicates="last")
        assert list(completed["note"])[2:] == FRAME["note"].to_list()[2:]
        assert list(completed["low"]) == FRAME["low"].to_list()
        assert list(completed["rating"])[:2] == [1.0, 1.0]


@pytest.mark.parametrize("kind", ["csv", "tsv.gz", "parquet", "blank lines", "bad lines", "quotes"])
@pytest.mark.parametrize("block", [2, 2**20])
def test_a_file_comes_back_with_all_its_columns(tmp_path, monkeypatch, kind, block):
    monkeypatch.setattr(fill, "_ROWS_PER_BLOCK", block)
    monkeypatch.setattr(columns, "ROWS_PER_BLOCK", 2)
    path, options = tmp_path / "ratings", {}
    text = FRAME.write_csv()
    if kind == "csv":
        path.write_text(text)
    elif kind == "tsv.gz":
        path.write_bytes(gzip.compress(FRAME.write_csv(separator="\t").encode()))
    elif kind == "parquet":
        FRAME.write_parquet(path, row_group_size=2)
    elif kind == "blank lines":
        path.write_text(text.replace("\n", "\n\n"))
    elif kind == "bad lines":
        lines = text.splitlines()
        lines[2:2] = ["too,short", "n,ann,1,Big,many,x"]
        path.write_text("\n".join(lines))
        options = {"skip_bad_lines": True}
    elif kind == "quotes":  # in the midst of a field, for which the file is rewritten
        path.write_text(text.replace("\ne,", '\ne"e,'))
    filled = filled_from(path, **options)
    expected = FRAME.with_columns(pl.col("low").cast(pl.Int64 if kind == "parquet" else pl.String))
    if kind == "quotes":
        expected = expected.with_columns(note=pl.Series([*FRAME["note"].to_list()[:4], 'e"e']))
    for whole in (filled.frame(), pl.concat(filled.blocks())):
        assert whole.columns == COLUMNS
        # In CSV an empty text may come back as a missing one.
        both = [f.with_columns(pl.col("note").fill_null("")) for f in (whole, expected)]
        assert both[0].drop(PREDICTED).equals(both[1].drop("rating"))
    filled.write_parquet(tmp_path / "out.parquet")
    assert pl.read_parquet(tmp_path / "out.parquet").equals(filled.frame())


def test_merged_rows_of_a_parquet_file_keep_their_own_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(fill, "_ROWS_PER_BLOCK", 2)
    again = pl.concat([FRAME.head(2), FRAME.with_columns(pl.col("low") + 100)])
    again.write_parquet(tmp_path / "again.parquet", row_group_size=3)
    filled = filled_from(tmp_path / "again.parquet", duplicates="first")
    assert pl.concat(filled.blocks())["low"].to_list() == [7, 8, 109, 110, 111]


def test_the_time_is_one_of_the_other_columns(tmp_path):
    frame = FRAME.select("user", "film", "rating", when=pl.Series(range(5)))
    frame.write_parquet(tmp_path / "timed.parquet")
    filled = filled_from(tmp_path / "timed.parquet", time="when")
    assert filled.frame()["when"].equals(frame["when"])


@STRANGERS
def test_queries_come_back_with_all_their_columns(tmp_path):
    table = Table.of(FRAME.select("user", "film", "rating"))
    path = tmp_path / "asked.csv"
    path.write_text("id,film,high,user\n007,Heat,x,cleo\n008,New,y,cleo\n")
    request = fill.FillRequest.of(table, queries=path)
    filled = fill.fill(Completer("bias").fit_table(table).fitted_, request).frame()
    assert filled.columns == ["id", "film", "high", "user", "rating", "low", "high end"]
    assert filled.select("id", "film", "high", "user").rows() == [
        ("007", "Heat", "x", "cleo"),
        ("008", "New", "y", "cleo"),
    ]
    path.write_text("cleo,Heat,5\n")
    request = fill.FillRequest.of(table, queries=path)
    filled = fill.fill(Completer("bias").fit_table(table).fitted_, request).frame()
    assert filled.columns == ["user", "film", "column 3", "rating", "low", "high"]


@pytest.mark.parametrize(
    ("others", "names"),
    [
        ([], ("rating", "low", "high")),
        (["low", "note"], ("rating", "low end", "high")),
        (["low", "low end", "high"], ("rating", "low end 2", "high end")),
    ],
)
def test_predictions_never_replace_a_column(others, names):
    table = Table.of(FRAME.select("user", "film", "rating"))
    assert table.prediction_columns(others) == names


def test_lists_are_refused_for_csv_alone(tmp_path):
    frame = FRAME.with_columns(tags=pl.concat_list("note"))
    frame.write_parquet(tmp_path / "tags.parquet")
    filled = filled_from(tmp_path / "tags.parquet")
    filled.write_parquet(tmp_path / "out.parquet")
    assert pl.read_parquet(tmp_path / "out.parquet")["tags"].equals(frame["tags"])
    with pytest.raises(InputError, match=r"cannot hold the List\(String\) of column 'tags'"):
        filled.request.check_csv()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_that_is_changed_meanwhile_is_told(tmp_path, kind):
    path, frame = tmp_path / "ratings", FRAME.drop("note")
    getattr(frame, f"write_{kind}")(path)
    filled = filled_from(path)
    getattr(frame.head(3), f"write_{kind}")(path)
    with pytest.raises(InputError, match="changed while it was read"):
        filled.frame()


def test_a_table_keeps_no_file_where_nothing_is_missing():
    full = FRAME.drop_nulls("rating").write_csv().encode()
    assert build.table_from_source("full", full, TableOptions()).others is None
    plain = FRAME.select("user", "film", "rating").write_csv().encode()
    assert build.table_from_source("plain", plain, TableOptions()).others.open_input is None


def test_a_fitted_table_has_no_other_columns_and_any_can_be_pickled():
    table = Table.of(FRAME)
    assert len(pickle.loads(pickle.dumps(table))) == len(table)
    assert Completer("bias").fit_table(table).table_.others is None
    assert table.take(np.array([0, 1])).others is None
    cells = FRAME.sort(pl.col("rating").is_null(), "user", "film")
    assert Table.of(cells).in_label_order().others is None  # even if nothing is rearranged


def test_csv_of_blocks_is_that_of_the_whole(tmp_path, monkeypatch):
    FRAME.write_csv(tmp_path / "ratings.csv")
    filled = filled_from(tmp_path / "ratings.csv")
    expected = filled.frame().write_csv()
    monkeypatch.setattr(fill, "_ROWS_PER_BLOCK", 2)
    filled.write_csv(tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == expected
    assert pl.read_csv(io.StringIO(expected), infer_schema=False)["seen"].equals(FRAME["seen"])
