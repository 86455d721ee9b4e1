"""Tables keep the user's labels, order and kind of frame, and say what they found."""

import gzip
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.data.features import MemberFeatures
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary, column_of
from exchangeable.errors import InputError
from exchangeable.values.scale import Scale

LABELS = st.one_of(
    st.text(min_size=1, max_size=8),
    st.integers(-(2**62), 2**62),
    st.sampled_from(["nan", "NaN", "null", "None", "007", "7", " 7", "é", "七", "a,b", 'q"q']),
)
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@settings(max_examples=200)
@given(st.lists(LABELS, min_size=1, max_size=30))
def test_labels_of_mixed_types_come_back_as_they_went_in(labels):
    vocabulary, codes = Vocabulary.of(column_of("x", labels))
    back = vocabulary.decode(codes).to_list()
    assert [(type(a), a) for a in back] == [(type(a), a) for a in labels]
    assert vocabulary.encode(column_of("x", labels)).tolist() == codes.tolist()
    firsts = [labels[codes.tolist().index(number)] for number in range(len(vocabulary))]
    assert [labels.index(label) for label in firsts] == sorted(labels.index(x) for x in firsts)


def test_seven_as_a_number_and_as_text_are_different_labels():
    _, codes = Vocabulary.of(column_of("x", [7, "7", "007", 7.0, True, 1]))
    assert codes.tolist() == [0, 1, 2, 3, 4, 5]
    numbers, _ = Vocabulary.of(pl.Series([7, 8]))
    assert numbers.encode(pl.Series(["7", "8"])).tolist() == [UNKNOWN, UNKNOWN]
    assert numbers.encode(pl.Series([8, 9], dtype=pl.Int16)).tolist() == [1, UNKNOWN]


def test_a_million_labels_round_trip():
    numbers = np.random.default_rng(0).permutation(1_000_000)
    column = pl.Series("x", numbers).cast(pl.String) + "-ü"
    vocabulary, codes = Vocabulary.of(column)
    assert len(vocabulary) == 1_000_000
    assert codes.tolist() == list(range(1_000_000))
    assert vocabulary.decode(codes).equals(column)
    assert vocabulary.encode(column[::-1]).tolist() == list(range(1_000_000))[::-1]


def test_strings_that_share_a_hash_are_still_told_apart(monkeypatch):
    monkeypatch.setattr(pl.Series, "hash", lambda self: self.str.len_bytes().cast(pl.UInt64))
    vocabulary, codes = Vocabulary.of(pl.Series(["ab", "cd", "ab", "xyz"]))
    assert vocabulary.labels.to_list() == ["ab", "cd", "xyz"]
    assert codes.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_frames_of_every_kind_and_order_come_back(kind, order):
    names = ["user", "artist", "tag", "year"][:order]
    columns = {name: [f"{name}{r % (3 + a)}-é" for r in range(6)] for a, name in enumerate(names)}
    columns |= {"rating": [1.0, 2.0, 3.0, None, 5.0, 2.0]} if order > 1 else {}
    if order == 1:
        columns = {"user": list("abcdef"), "rating": [1.0, 2.0, 3.0, None, 5.0, 2.0]}
    frame = FRAMES[kind](columns)
    table = Table.of(frame, axes=names, value="rating", duplicates="last")
    assert (table.order, table.native) == (order, kind)
    answers = table.frame(table.index, guess=np.arange(len(table.index)))
    assert type(answers) is type(frame)
    listed = pl.DataFrame(pa.table(answers) if kind != "polars" else answers)
    for name in names:
        assert set(listed[name].to_list()) <= set(columns[name])
    assert table.cells(answers).tolist() == table.index.tolist()


def test_whole_numbers_in_a_frame_stay_whole_numbers():
    frame = pd.DataFrame({"user": [10, 7, 10], "film": ["a", "b", "b"], "rating": [1, 2, 3]})
    table = Table.of(frame)
    back = table.frame(table.index)
    assert back["user"].tolist() == [10, 7, 10]
    assert back["user"].dtype.kind == "i"


def test_a_pandas_column_of_mixed_labels_stays_mixed():
    frame = pd.DataFrame({"user": ["ann", 7, "7"], "film": [1, 2, 3], "rating": [4, 5, 3]})
    table = Table.of(frame)
    assert table.frame(table.index)["user"].tolist() == ["ann", 7, "7"]
    assert table.shape == (3, 3)


def test_arrays_and_sparse_matrices():
    table = Table.of(np.array([[10, 20, 3.5], [11, 20, 4.5]]))
    assert table.values.tolist() == [3.5, 4.5]
    assert table.vocabularies[0].labels.to_list() == [10.0, 11.0]
    table = Table.of([("ann", 1), ("bob", 2)], [4.0, 5.0])
    assert table.cells([("bob", 2), ("ann", 9)]).tolist() == [[1, 1], [0, UNKNOWN]]
    sparse = Table.of(scipy.sparse.coo_array(([1.0, 2.0], ([0, 5], [3, 4])), shape=(9, 9)))
    assert sparse.vocabularies[0].labels.to_list() == [0, 5]


def test_a_row_without_a_value_is_a_question_and_keeps_its_place():
    table = Table.of(
        pl.DataFrame({"user": ["a", "b", "a"], "film": ["x", "x", "y"], "rating": [None, 2.0, 3.0]})
    )
    assert len(table) == 2
    assert table.index[~table.is_observed].tolist() == [[0, 0]]
    assert table.observed.support.index.tolist() == [[1, 0], [0, 1]]
    assert table.observed.values.flatten().tolist() == [2.0, 3.0]
    assert table.observed.values.dtype == torch.float64


@pytest.mark.parametrize(
    ("how", "expected"), [("mean", 2.5), ("last", 1.0), ("first", 4.0), ("max", 4.0)]
)
def test_duplicates_are_merged_as_asked_and_told(how, expected):
    frame = pl.DataFrame({"u": ["a", "b", "a"], "i": ["x", "x", "x"], "rating": [4.0, 5.0, 1.0]})
    table = Table.of(frame, duplicates=how)
    assert table.index.tolist() == [[0, 0], [1, 0]]
    assert table.values.tolist() == [expected, 5.0]
    assert any(f"1 duplicate cell merged ({how})" in line for line in table.found)
    with pytest.raises(InputError, match=r"row 3: every cell may come once, but \('a', 'x'\)"):
        Table.of(frame)


@pytest.mark.parametrize(
    ("values", "kind", "shown"),
    [
        ([1, 2, 3, 4, 5], "levels", "levels 1-5 by 1"),
        ([1, 5, 3], "levels", "levels 1-5 by 1"),
        ([0.5, 1.0, 4.5, 5.0], "levels", "levels 0.5-5 by 0.5"),
        ([7.1, 7.2, 8.0], "levels", "levels 7.1-8 by 0.1"),
        ([0, 1, 1], "binary", "binary 0 and 1"),
        ([1, 1, 1], "positives", "positives 1"),
        ([3, 3], "levels", "levels 3"),
        ([1, 500, 20_000], "real", "real"),
        ([0.123, 4.567, 2.2], "real", "real"),
        (list(range(101)), "levels", "levels 0-100 by 1"),
        (list(range(103)), "real", "real"),
        ([], "real", "real"),
    ],
)
def test_the_scale_is_inferred_and_shown(values, kind, shown):
    scale = Scale.of(np.array(values, dtype=float))
    assert (scale.kind, str(scale)) == (kind, shown)
    assert (
        set(np.round(values, 6)) <= {round(level, 6) for level in scale.levels} or not scale.levels
    )


def test_the_scale_can_be_overridden():
    ratings = np.array([1.0, 2.0, 4.0])
    assert Scale.of(ratings, "real") == Scale("real")
    assert Scale.of(np.array([3.0, 7.0]), "binary").levels == (3.0, 7.0)
    assert Scale.of(np.array([1.25, 9.75]), "levels").levels == (1.25, 9.75)


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_same_table_from_every_kind_of_file(tmp_path):
    rows = [("ann", "七人", 4.0), ("007", "Heat", 5.0), ("ann", "Heat", 3.0)]
    text = "user,film,rating\n" + "".join(f"{u},{f},{r}\n" for u, f, r in rows)
    paths = [write(tmp_path, "a.csv", text), write(tmp_path, "a.tsv", text.replace(",", "\t"))]
    paths.append(write(tmp_path, "a.dat", text.replace(",", "::")))
    paths.append(tmp_path / "a.csv.gz")
    paths[-1].write_bytes(gzip.compress(text.encode()))
    paths.append(tmp_path / "a.zip")
    with zipfile.ZipFile(paths[-1], "w") as archive:
        archive.writestr("inner/a.csv", text)
    paths.append(tmp_path / "a.parquet")
    pl.DataFrame(rows, schema=["user", "film", "rating"], orient="row").write_parquet(paths[-1])
    for path in paths:
        table = Table.read(path)
        assert table.axes == ("user", "film")
        assert table.frame(table.index, rating=table.values).rows() == rows


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1),
            st.integers(-(10**15), 10**15),
            st.floats(-1e6, 1e6),
        ),
        min_size=1,
        max_size=20,
        unique_by=lambda row: row[:2],
    )
)
def test_what_polars_writes_is_read_back(rows):
    import tempfile
    from pathlib import Path

    frame = pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.csv", "a.parquet"):
            path = Path(folder) / name
            frame.write_csv(path) if name.endswith("csv") else frame.write_parquet(path)
            table = Table.read(path, axes=["user", "item"], header=True, separator=",")
            labels = table.frame(table.index)
            assert [str(user) for user in labels["user"]] == [row[0] for row in rows]
            assert labels["item"].to_list() == [row[1] for row in rows]
            assert table.values.tolist() == [row[2] for row in rows]


def test_columns_are_guessed_by_header_or_position_and_echoed(tmp_path):
    text = "rating,timestamp,movieId,userId\n4,99,Heat,ann\n5,98,Alien,bob\n"
    table = Table.read(write(tmp_path, "a.csv", text))
    assert (table.axes, table.value_name) == (("movieId", "userId"), "rating")
    assert table.found[0] == "axes movieId, userId; value rating; time timestamp"
    table = Table.read(write(tmp_path, "b.csv", "1,2,3,99\n4,5,6,98\n"), time=4)
    assert table.axes == ("column 1", "column 2")
    assert table.times.tolist() == [99.0, 98.0]
    assert table.vocabularies[0].labels.to_list() == [1, 4]


def test_three_axes_by_name_and_interactions_without_a_value(tmp_path):
    text = "userID,artistID,tagID\n2,52,13\n2,52,15\n3,52,13\n"
    table = Table.read(write(tmp_path, "a.csv", text))
    assert table.axes == ("userID", "artistID", "tagID")
    assert table.shape == (2, 1, 2)
    assert str(table.scale) == "positives 1"
    assert "no value column" in table.found[0]


def test_leading_zeros_keep_a_column_of_numbers_text(tmp_path):
    table = Table.read(write(tmp_path, "a.csv", "u,i,rating\n01,1,3\n1,2,4\n"))
    assert table.vocabularies[0].labels.to_list() == ["01", "1"]
    assert table.vocabularies[1].labels.to_list() == [1, 2]


def test_wrong_data_is_named():
    with pytest.raises(InputError, match="is needed, but this is a dict"):
        Table.of({"a": 1})
    with pytest.raises(InputError, match=r"must have shape \(rows, columns\), but has \(3,\)"):
        Table.of(np.arange(3))
    with pytest.raises(InputError, match="2 in all, but have shape"):
        Table.of([("a", 1), ("b", 2)], [1.0])
    for labels in ([{"a": 1}], [["a"]]):
        with pytest.raises(InputError, match="labels must be numbers, texts or dates"):
            Table.of(pd.DataFrame({"user": labels, "film": [1], "rating": [1]}))
    with pytest.raises(InputError, match="row 2: a label is needed in 'user'"):
        Table.of(pd.DataFrame({"user": ["a", None], "film": [1, 2], "rating": [1, 2]}))
    with pytest.raises(InputError, match=r"column for each of 2 axes .* but have 1"):
        Table.of([("a", 1)], [1.0]).cells([["a"]])


def test_positions_are_those_of_the_observed_cells():
    table = Table.of([("a", "x"), ("b", "x"), ("a", "y")], [1.0, np.nan, 3.0])
    assert table.positions([("a", "y"), ("a", "x"), ("a", "y")]).tolist() == [1, 0, 1]
    for absent in (("b", "x"), ("b", "y"), ("c", "x")):
        with pytest.raises(InputError, match="must be in the table, but that of row 2 is not"):
            table.positions([("a", "x"), absent])


def test_side_features_are_standardised_or_categories_and_may_be_missing():
    vocabulary, _ = Vocabulary.of(pl.Series(["ann", "bob", "cat", "dan"]))
    frame = pd.DataFrame(
        {
            "user": ["bob", "ann", "cat", "eve"],
            "age": [20.0, 40.0, None, 99.0],
            "job": ["cook", None, "cook", "nurse"],
        }
    )
    features = MemberFeatures.of(frame, vocabulary)
    assert features.names == ("age", "job=cook")
    half = 2**-0.5
    expected = [[half, 0.0], [-half, 1.0], [0.0, 1.0], [0.0, 0.0]]
    assert np.allclose(features.values, expected)
    assert "3 of 4 members have features" in features.found
    with pytest.raises(InputError, match="row per member, but some in 'user' repeat"):
        MemberFeatures.of(pd.DataFrame({"user": ["ann", "ann"], "age": [1, 2]}), vocabulary)


def test_an_unknown_member_has_no_label():
    table = Table.of([("a", "b"), ("c", "d")], [1.0, 2.0])
    with pytest.raises(InputError, match="-1 stands for a member that is not known"):
        table.frame(table.cells([("zz", "b")]))


def test_labels_match_only_their_own_kind():
    numbers, _ = Vocabulary.of(pl.Series([1, 2], dtype=pl.UInt8))
    assert numbers.encode(pl.Series([1.5, 2.0])).tolist() == [UNKNOWN, 1]
    assert numbers.encode(pl.Series([1, 300, -1])).tolist() == [0, UNKNOWN, UNKNOWN]
    texts, _ = Vocabulary.of(pl.Series(["true", "2020-01-01"]))
    assert texts.encode(pl.Series([True])).tolist() == [UNKNOWN]
    days = pl.Series(["2020-01-01"]).str.to_date()
    assert texts.encode(days).tolist() == [UNKNOWN]
    assert texts.encode(pl.Series(["true"]).cast(pl.Categorical)).tolist() == [0]


@pytest.mark.parametrize(
    ("text", "axes", "cells"),
    [
        ("ann,Heat\nbob,300\ncid,Alien\n", ("column 1", "column 2"), 3),
        ("ann,Heat\nnan,Alien\n", ("column 1", "column 2"), 2),
        ("user,film,2020\na,b,3\n", ("user", "film"), 1),
        ("who,what,how much\na,b,3\nc,d,4\n", ("who", "what"), 2),
        ("\n\nuser,film,rating\na,b,1\n", ("user", "film"), 1),
        ("id,user,film\n0,a,b\n1,c,d\n", ("user", "film"), 2),
    ],
)
def test_a_header_is_told_from_a_row(text, axes, cells, tmp_path):
    table = Table.read(write(tmp_path, "a.csv", text))
    assert (table.axes, len(table)) == (axes, cells)


def test_a_column_before_the_labels_is_not_taken_for_the_value(tmp_path):
    table = Table.read(write(tmp_path, "a.csv", "id,user,film\n0,a,b\n1,c,d\n"))
    assert table.value_name is None


@pytest.mark.parametrize(
    ("how", "time"), [("last", 100), ("first", 10), ("max", 100), ("mean", 100)]
)
def test_a_merged_cell_has_the_time_of_the_row_it_came_from(how, time):
    frame = pl.DataFrame(
        {"u": ["a", "b", "a"], "i": ["x", "x", "x"], "rating": [1, 2, 5], "t": [10, 50, 100]}
    )
    table = Table.of(frame, value="rating", time="t", duplicates=how)
    assert table.times.tolist() == [time, 50]


def test_a_time_must_be_finite(tmp_path):
    text = "user,film,rating,timestamp\na,b,1,5\nc,d,2,inf\n"
    with pytest.raises(InputError, match=r"line 3: a finite number, or .* 'timestamp'"):
        Table.read(write(tmp_path, "a.csv", text), time="timestamp")


def test_dates_in_a_frame_can_be_times():
    days = pl.Series(["2020-01-02", "2020-01-01"]).str.to_date()
    frame = pl.DataFrame({"u": ["a", "b"], "i": ["x", "y"], "rating": [1, 2], "day": days})
    times = Table.of(frame, value="rating", time="day").times
    assert times[0] - times[1] == 24 * 3600


def test_quotes_that_csv_cannot_mean_are_part_of_the_text(tmp_path):
    text = 'user,film,rating\na,5" x,1\nc,6" y,2\n'
    table = Table.read(write(tmp_path, "a.csv", text))
    assert table.vocabularies[1].labels.to_list() == ['5" x', '6" y']


@pytest.mark.parametrize("skip", [False, True])
def test_two_stray_quotes_do_not_swallow_the_rows_between_them(skip, tmp_path):
    text = 'user,film,rating,note\n"x,y",5" x,1,n\nc,d,2,n\nb,5" x,4,n\ne,f,5,6" n\ng,h,1,7" n\n'
    table = Table.read(write(tmp_path, "a.csv", text), skip_bad_lines=skip)
    assert table.values.tolist() == [1.0, 2.0, 4.0, 5.0, 1.0]
    assert table.vocabularies[0].labels.to_list() == ["x,y", "c", "b", "e", "g"]
    assert table.vocabularies[1].labels.to_list() == ['5" x', "d", "f", "h"]


def test_an_empty_value_after_stray_quotes_is_a_question(tmp_path):
    table = Table.read(write(tmp_path, "a.csv", 'user,film,rating\n5" x,6" y,\nc,d,2\n'))
    assert (len(table), (~table.is_observed).sum()) == (1, 1)


def test_skipping_bad_lines_keeps_quoted_line_feeds(tmp_path):
    text = 'user,film,rating\nu1,"A\nB",5\nbad\nu2,C,4\nu2,C,3\n'
    path = write(tmp_path, "a.csv", text)
    table = Table.read(path, skip_bad_lines=True, duplicates="last")
    assert table.vocabularies[1].labels.to_list() == ["A\nB", "C"]
    assert "1 bad line skipped" in table.found
    with pytest.raises(InputError, match="line 6: every cell may come once"):
        Table.read(path, skip_bad_lines=True)


def test_a_mask_hides_values():
    masked = np.ma.array([[1, 2, 3], [4, 5, 6]], mask=[[0, 0, 1], [0, 0, 0]])
    table = Table.of(masked)
    assert (len(table), (~table.is_observed).sum()) == (1, 1)


def test_values_of_mixed_numbers_and_of_none_are_numbers():
    assert Table.of([("a", "b", 1), ("c", "d", 2.5)]).values.tolist() == [1.0, 2.5]
    frame = pl.DataFrame({"user": ["a"], "film": ["b"], "rating": [None]})
    assert (~Table.of(frame).is_observed).sum() == 1


@pytest.mark.parametrize("values", [[100000.3, 100001.0], [1.0, 1.0000001], [1e16, 1e16 + 2]])
def test_numbers_that_are_nearly_on_a_grid_are_real_or_keep_their_values(values):
    scale = Scale.of(np.array(values))
    assert scale.kind == "real" or set(values) <= set(scale.levels)


def test_answers_do_not_overwrite_labels():
    table = Table.of([("a", "b")], [1.0], axes=[1, 2])
    with pytest.raises(InputError, match="a name other than column 1, column 2"):
        table.frame(table.index, **{"column 1": [1.0]})
    with pytest.raises(InputError, match=r"must have 1 entries .* has 2"):
        table.frame(table.index, guess=[1.0, 2.0])


def test_a_question_about_an_observed_cell_is_told():
    table = Table.of([("a", "b"), ("a", "b"), ("c", "b")], [3.0, np.nan, np.nan])
    assert "1 row without a value, of cells that have one elsewhere" in table.found


def test_dates_as_labels_of_an_array_stay_dates():
    days = np.array([["2020-01-01", "2020-01-02"]], dtype="datetime64[ns]")
    labels = Table.of(days, [1.0]).vocabularies[0].labels
    assert str(labels[0]) == "2020-01-01 00:00:00"


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (["2024-01-03", " 2024-01-04"], 86400),
        (["2024-01-03T10:00:00Z", "2024-01-03T11:00:00Z"], 3600),
        (["17.5", "20"], 2.5),
    ],
)
def test_times_are_found_by_their_header_as_numbers_or_dates(written, seconds, tmp_path):
    rows = [f"{n},{n},{n},{time}" for n, time in enumerate(written)]
    table = Table.read(write(tmp_path, "a.csv", "\n".join(["user,film,rating,date", *rows])))
    assert (table.time_name, table.times[1] - table.times[0]) == ("date", seconds)
    assert table.found[0] == "axes user, film; value rating; time date"
    columns = {"user": [0, 1], "film": [0, 1], "rating": [0.0, 1.0], "date": written}
    np.testing.assert_array_equal(Table.of(pl.DataFrame(columns)).times, table.times)


def test_a_column_that_is_called_a_time_but_holds_none_is_ignored(tmp_path):
    path = write(tmp_path, "a.csv", "user,film,rating,time\na,b,1,late\nb,c,2,early")
    table = Table.read(path)
    assert table.times is None
    assert table.found[0] == "axes user, film; value rating; ignored: time"
    with pytest.raises(InputError, match=r"line 2: a finite number, .* 'time', but .* 'late'"):
        Table.read(path, time="time")
    mixed = write(tmp_path, "b.csv", "user,film,rating,at\na,b,1,2024-01-03\nb,c,2,soon")
    with pytest.raises(InputError, match=r"line 3: a finite number, .* but this is 'soon'"):
        Table.read(mixed, time="at")


def test_dates_are_no_values():
    days = pl.Series([0, 1]).cast(pl.Date)
    with pytest.raises(InputError, match="numbers are needed in 'rating', but it holds Date"):
        Table.of(pl.DataFrame({"user": [1, 2], "film": [1, 2], "rating": days}))


def test_a_guessed_time_that_is_infinite_is_ignored_and_one_in_parquet_is_read(tmp_path):
    frame = pl.DataFrame({"user": ["a", "b"], "film": ["x", "y"], "rating": [1.0, 2.0]})
    endless = frame.with_columns(date=pl.Series([1.0, np.inf]))
    assert Table.of(endless).times is None
    with pytest.raises(InputError, match=r"row 2: a finite number, .* in 'date', but this is inf"):
        Table.of(endless, time="date")
    dated = frame.with_columns(date=pl.Series(["2024-01-03", "2024-01-04"]))
    dated.write_parquet(tmp_path / "a.parquet")
    times = Table.read(tmp_path / "a.parquet").times
    assert times.tolist() == Table.of(dated).times.tolist()
    assert times[1] - times[0] == 86400


@pytest.mark.parametrize("times", ["timestamp", {1, 2}, np.arange(2).astype("m8[D]"), 7])
def test_times_are_a_list_of_numbers_or_dates(times):
    with pytest.raises(InputError, match="times must be a list or column of numbers or dates"):
        Table.of([["a", "x"], ["b", "y"]], [1.0, 2.0], times=times)


def test_a_column_is_used_once():
    frame = pl.DataFrame({"user": [1, 2], "time": ["x", "y"], "rating": [1.0, 2.0]})
    with pytest.raises(InputError, match="a column can be used once"):
        Table.of(frame, axes=["user", "time"], value="rating", time="rating")
    table = Table.of([["a", "x"], ["b", "y"]], [1.0, 2.0], times=[3, 4])
    assert table.times.tolist() == [3, 4]


@pytest.mark.parametrize("convert", [pl.DataFrame, pd.DataFrame])
def test_a_column_that_equals_the_values_is_no_axis(convert):
    columns = {"user": [1, 2, 1], "film": [7, 7, 8], "rating": [4.0, 5.0, 3.0]}
    table = Table.of(convert(columns), columns["rating"])
    assert (table.axes, table.value_name) == (("user", "film"), "rating")
    assert table.found[1] == (
        "'rating' holds the values once more, and is not taken for an axis; axes= names all"
    )
    assert Table.of(convert(columns), [4.0, 5.0, 2.0]).order == 3
    assert Table.of(convert(columns), columns["rating"], axes=list(columns)).order == 3


def test_two_columns_stay_axes_though_one_equals_the_values():
    assert Table.of(pl.DataFrame({"user": [1, 2], "film": [3, 4]}), [3, 4]).order == 2
    assert Table.of(np.array([[1, 2, 3], [2, 1, 4]]), [3, 4]).order == 3


@pytest.mark.parametrize("kind", ["timedelta64[D]", "timedelta64[s]", "datetime64[M]"])
def test_times_for_values_are_refused_in_one_line_in_any_unit(kind):
    with pytest.raises(InputError, match="numbers are needed in 'value', but it holds") as error:
        Table.of([("a", "x"), ("b", "x")], np.array([1, 2]).astype(kind))
    assert "\n" not in str(error.value)


def test_dates_that_are_labels_keep_their_unit():
    days = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]")
    assert column_of("day", days).dtype == pl.Date
