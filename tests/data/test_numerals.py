"""Values as people write them, in columns of any type and in blocks of a long file."""

import datetime as dt

import pandas as pd
import polars as pl
import pytest

import exchangeable as ex
from exchangeable.data import columns
from exchangeable.data.numerals import Numerals
from exchangeable.data.table import Table
from exchangeable.errors import InputError

CELLS = {"user": ["a", "b", "c"], "film": ["x", "x", "y"]}


def values_of(column, **options):
    return Numerals(**options).convert("data", pl.Series("rating", column)).to_list()


@pytest.mark.parametrize(
    ("column", "options", "values"),
    [
        ([True, None, False], {}, [1.0, None, 0.0]),
        (["True", "n", ""], {}, [1.0, 0.0, None]),
        (["1", "yes", "0"], {}, [1.0, 1.0, 0.0]),
        (["3,5", "4", "-1,25e2"], {"decimal": ","}, [3.5, 4.0, -125.0]),
        (["3,5", "4"], {"guess_commas": True}, [3.5, 4.0]),
        ([1, -9, 3], {"missing": ("-9",)}, [1.0, None, 3.0]),
        ([1.5, float("nan")], {}, [1.5, None]),
        (["-9", "-9,0", "9"], {"missing": ("-9",), "decimal": ","}, [None, None, 9.0]),
    ],
)
def test_values_become_numbers(column, options, values):
    assert values_of(column, **options) == values


@pytest.mark.parametrize("column", [["yes", "2"], ["0.5", "no"], ["inf", "1"], ["1 000"], ["1_0"]])
def test_other_texts_are_refused(column):
    with pytest.raises(InputError, match=r"row [12]: a number is needed in 'rating', but this is"):
        values_of(column)


def test_only_what_was_written_otherwise_is_told():
    numerals = Numerals()
    numerals.convert("data", pl.Series("rating", ["1", None, " ", "2"]))
    assert numerals.notes == ()
    numerals.convert("data", pl.Series("rating", ["NA", "na", "?", "?", "?"]))
    assert numerals.notes == ("5 values written as ?, NA and na, read as missing",)


def test_yes_and_numbers_are_told_apart_across_the_blocks_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "ROWS_PER_BLOCK", 2)
    path = tmp_path / "a.parquet"
    frame = pl.DataFrame({"user": [1, 2, 3, 4], "film": [1, 2, 1, 2]})
    frame.with_columns(rating=pl.Series(["yes", "NA", "no", "NA"])).write_parquet(path)
    table = Table.read(path)
    assert table.values[::2].tolist() == [1.0, 0.0]
    assert "2 values written as NA, read as missing" in table.found
    frame.with_columns(rating=pl.Series(["3", "4", "5", "no"])).write_parquet(path)
    with pytest.raises(InputError, match=r"row 4: a number is needed .* 'no' among numbers"):
        Table.read(path)
    frame.with_columns(rating=pl.Series(["yes", "no", "5", "4"])).write_parquet(path)
    with pytest.raises(InputError, match=r"row 3: .* but this is '5' among words for"):
        Table.read(path)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_booleans_and_words_in_frames_are_read_as_in_files(library):
    table = Table.of(library({**CELLS, "rating": [True, False, True]}))
    assert table.values.tolist() == [1.0, 0.0, 1.0]
    assert "values written as true and false, read as 1 and 0" in table.found
    table = Table.of(library({**CELLS, "rating": ["4,5", "unknown", "NA"]}), missing="unknown",
                     decimal=",")  # fmt: skip
    assert (table.values[0], len(table)) == (4.5, 1)
    assert "2 values written as NA and unknown, read as missing" in table.found


def test_complete_takes_words_for_missing_values():
    frame = pd.DataFrame({**CELLS, "rating": [4, -1, 2]})
    filled = ex.complete(frame, missing=-1, model="mean")
    assert filled["rating"].tolist() == [4.0, 3.0, 2.0]
    with pytest.raises(InputError, match=r"nothing to fill: .* Completer.predict predicts other"):
        ex.complete(frame, model="mean")


def test_dates_as_values_are_refused_with_the_way_to_name_them():
    days = [dt.datetime(2024, 1, day) for day in (1, 2, 3)]
    with pytest.raises(InputError, match=r"holds Datetime.*; time='rating' takes it for times"):
        Table.of(pl.DataFrame({**CELLS, "rating": days}))


def test_fit_takes_three_axes_by_name():
    frame = pl.DataFrame({**CELLS, "genre": ["p", "q", "p"], "score": [1.0, 2.0, 3.0]})
    completer = ex.Completer("mean").fit(frame, axes=("user", "film", "genre"))
    assert completer.table_.axes == ("user", "film", "genre")
    repeated = pl.concat([frame, frame.with_columns(genre=pl.lit("r"))])
    with pytest.raises(InputError, match=r"choose axes=\('user', 'film', 'genre'\)"):
        ex.Completer("mean").fit(repeated)
    alike = pl.concat([frame, frame])
    with pytest.raises(InputError, match="comes again; duplicates= merges"):
        ex.Completer("mean").fit(alike)


@pytest.mark.parametrize(("how", "values"), [("sum", [4.0, 7.0]), ("count", [2.0, 1.0])])
def test_repeated_cells_are_summed_or_counted(how, values):
    frame = pl.DataFrame({"user": ["a", "b", "a"], "film": ["x", "x", "x"], "rating": [1, 7, 3]})
    table = Table.of(frame, duplicates=how)
    assert table.values.tolist() == values
    assert table.value_name == {"sum": "rating", "count": "count"}[how]


def test_a_count_ignores_values_that_are_missing_or_no_numbers():
    frame = pl.DataFrame({"user": ["a", "a"], "film": ["x", "x"], "rating": [None, "good"]})
    for value in (None, "rating"):
        table = Table.of(frame, value=value, duplicates="count")
        assert (table.values.tolist(), table.value_name) == ([2.0], "count")


def test_only_an_axis_whose_members_all_have_one_cell_is_warned_of():
    rows = ["1", "2", "3", "4", "5", "6"]
    frame = pl.DataFrame({"row": rows, "user": list("aabbcc"), "rating": [1, 2, 3, 4, 5, 6]})
    warned = [note for note in Table.of(frame).found if "has one cell" in note]
    assert warned == [
        "every member of 'row' has one cell, as if it numbered the rows; axes= names others"
    ]
    assert not any("has one cell" in note for note in Table.of(frame[:4]).found)
    films = frame.with_columns(row=pl.Series(list("xyxyxy")))
    assert not any("has one cell" in note for note in Table.of(films).found)


@pytest.mark.parametrize("written", ["50 kg", "10%", "$1.20", "7 €"])
def test_units_and_signs_in_values_are_named(tmp_path, written):
    text = f"person,exercise,load\nann,squat,{written}\nbob,squat,{written}\n"
    (tmp_path / "loads.csv").write_text(text)
    with pytest.raises(InputError, match=r"line 2: .* write the number without its unit or sign"):
        Table.read(tmp_path / "loads.csv")


@pytest.mark.parametrize("written", [["1", "NA", "2"], [1, -9, 2]])
def test_values_may_be_in_a_column_named_count(written):
    frame = pl.DataFrame({**CELLS, "count": written})
    table = Table.of(frame, value="count", missing=("-9",))
    assert table.values[[0, 2]].tolist() == [1.0, 2.0]
