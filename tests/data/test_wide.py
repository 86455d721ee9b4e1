"""Wide tables: a column for each member of the second axis."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from exchangeable.completion.fill import complete
from exchangeable.data.table import Table
from exchangeable.errors import InputError

GRADES = """student,maths,physics,chemistry
ann,1.5,2.0,
bob,2.5,,2.0
cleo,3.0,3.5,3.0
dan,4.5,4.0,4.0
"""


def read(tmp_path, text, name="grades.csv", **options):
    path = tmp_path / name
    path.write_text(text)
    return Table.read(path, **options)


def cells_of(table):
    frame = pl.DataFrame(table.frame(table.index))
    return {(*labels, v) for *labels, v in frame.with_columns(v=pl.Series(table.values)).rows()}


def test_a_wide_table_is_noticed_and_read_cell_by_cell(tmp_path):
    table = read(tmp_path, GRADES)
    assert table.axes == ("student", "column")
    assert table.shape == (4, 3)
    assert len(table) == 10
    assert ("cleo", "physics", 3.5) in cells_of(table)
    assert table.found[0] == "a wide table: 3 columns of values for each student"
    assert table.wide.label == "student"


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("name;a;b;c\nx;1,5;2,5;3,5\ny;2,5;;4,5\nz;1,0;2,0;3,0\n", (3, 3)),
        ("country,2019,2020,2021\nFrance,2.1,2.2,\nItaly,1.1,1.2,1.3\nSpain,4,5,4\n", (3, 3)),
        ("user,1,5,9\nann,2,,4\nbob,3,4,4\ncleo,1,1,2\n", (3, 3)),
        ("id,a,b,c\n7,1,2,3\n9,2,NA,4\n11,3,4,5\n", (3, 3)),
        ("1,1.5,2.5,3.5\n2,2.5,,4.5\n3,1.5,2.5,0.5\n", (3, 3)),
        ("a,b,c,d\n0.1,1.5,2.5,3.5\n.3,2.5,,4.5\n.2,1.5,2.5,0.5\n", (3, 4)),
    ],
)
def test_plain_shapes_are_taken_for_wide_tables(tmp_path, text, shape):
    table = read(tmp_path, text)
    assert table.wide is not None
    assert table.shape == shape
    assert np.isnan(table.values).sum() == 1


@pytest.mark.parametrize(
    "text",
    [
        "user,film,rating\nann,7,4\nbob,8,2\ncleo,7,1\n",
        "userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n1,1029,3.0,1260759179\n",
        "ann,3,4,5\nann,4,2,5\nbob,3,1,5\n",  # a label comes twice
        "1,31,2,1260759144\n1,1029,3,1260759179\n2,31,4,1260759182\n",
        "who,what,how much,when\nann,Heat,4,monday\nbob,Heat,2,tuesday\n",
        "who,sku,amount,price\n3,7,1.5,2.5\n4,8,2.5,0.5\n3,9,1.0,2.0\n",
        "a,b,c,d\n3,7,1.5,2.5\n4,8,2.5,0.5\n3,9,1.0,2.0\n",  # whole numbers come first
        "x,y,z\nann,1.5,2\nbob,2.5,3\ncleo,3.5,4\n",  # two columns may be a label and a value
    ],
)
def test_long_tables_stay_long(tmp_path, text):
    assert read(tmp_path, text).wide is None
    assert read(tmp_path, GRADES, wide=False, value=3, axes=(1, 2)).wide is None


def test_the_form_can_be_asked_for(tmp_path):
    text = "who,kind,a,b\nann,cat,1,2\nbob,dog,,3\n"
    table = read(tmp_path, text, wide=True)
    assert table.shape == (2, 2)
    assert table.found[1] == (
        "kind is left as it is, since it holds more than numbers: row 1 is 'cat'"
    )
    zips = "zip,a,b,c\n02134,1.5,2,3\n02135,2.5,,4\n"
    assert read(tmp_path, zips, wide=True, axes=["zip"]).axes == ("zip", "column")
    with pytest.raises(InputError, match="labels that differ, but 'who' of row 1 is 'ann'"):
        read(tmp_path, "who,a,b\nann,1,2\nann,2,3\n", wide=True)
    with pytest.raises(InputError, match="needs columns of numbers, but there are none"):
        read(tmp_path, "who,a\nann,x\nbob,y\n", wide=True)
    with pytest.raises(InputError, match="holds its own values"):
        Table.of(pl.DataFrame({"a": [1.0, 2.0]}), [1, 2], wide=True)


def test_a_wide_frame_comes_back_in_its_own_form():
    frame = pd.DataFrame(
        {
            "student": ["ann", "bob", "cleo", "dan"],
            "maths": [1.5, 2.5, 3.0, 4.5],
            "physics": [2.0, np.nan, 3.5, 4.0],
            "chemistry": [np.nan, 2.0, 3.0, 4.0],
        }
    )
    filled = complete(frame, model="bias")
    assert isinstance(filled, pd.DataFrame)
    assert list(filled.columns) == list(frame.columns)
    assert filled["maths"].tolist() == frame["maths"].tolist()
    assert not filled.isna().any().any()
    known = frame["physics"].notna()
    assert filled["physics"][known].tolist() == frame["physics"][known].tolist()
    assert 1 < filled["physics"][1] < 4


def test_an_array_with_gaps_is_a_wide_table():
    matrix = np.add.outer(np.arange(5.0), [0.5, 1.5, 2.5])
    gaps = matrix.copy()
    gaps[2, 1] = np.nan
    filled = complete(gaps, model="bias")
    assert isinstance(filled, np.ndarray)
    assert filled[2, 1] == pytest.approx(matrix[2, 1], abs=0.3)
    gaps[2, 1] = matrix[2, 1]
    np.testing.assert_allclose(np.where(np.isnan(gaps), 0, filled), filled)


def test_an_array_of_labels_and_values_with_gaps_stays_long():
    long = np.array([[u, i, u + i / 2] for u in range(5) for i in range(4)])
    long[3, 2] = np.nan
    assert complete(long, model="bias").shape == (20, 5)
    assert complete(long, model="bias", axes=(1, 2), value=3).shape == (20, 5)
    with pytest.raises(InputError, match="one column of labels, which axes= names"):
        Table.of(long, axes=(1, 2), value=3, wide=True)


def test_a_fitted_table_has_cells_in_another_sequence_than_the_wide_one(tmp_path):
    table = read(tmp_path, GRADES)
    assert table.in_label_order().wide is None
    assert table.take(np.arange(4)).wide is None


def test_decimal_commas_come_back_as_points_in_all_columns(tmp_path):
    text = "name;a;b;c\nx;1,5;2,5;3,5\ny;2,5;;4,5\nz;1,0;2,0;3,0\n"
    wide = read(tmp_path, text).wide
    filled = wide.filled(np.arange(9.0))
    assert [kind.is_float() for kind in filled.dtypes] == [False, True, True, True]


def test_columns_and_labels_at_the_edge(tmp_path):
    table = read(tmp_path, "value,a,b,c\nx,1.5,2.5,\ny,2.5,0.5,\nz,1.0,2.0,\n")
    assert table.axes == ("value", "column")
    assert table.shape == (3, 3)  # one column has no value at all
    numbered = read(tmp_path, "id,a,b,c\n7,1.5,2,3\n9,2.5,,4\n11,3,4,5\n")
    assert numbered.vocabularies[0].labels.to_list() == [7, 9, 11]
    filled = complete(np.array([[1, 2.5, 3.5], [2, np.nan, 4.5], [np.nan, 1.5, 2.0]]), model="bias")
    assert filled.shape == (3, 3)


def test_parquet_and_json_may_be_wide_too(tmp_path):
    frame = pl.read_csv(GRADES.encode())
    frame.write_parquet(tmp_path / "grades.parquet")
    frame.write_ndjson(tmp_path / "grades.jsonl")
    expected = cells_of(read(tmp_path, GRADES))
    for name in ("grades.parquet", "grades.jsonl"):
        table = Table.read(tmp_path / name)
        assert {c for c in cells_of(table) if c[2] == c[2]} == {c for c in expected if c[2] == c[2]}
