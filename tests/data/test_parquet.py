"""Tables come from Parquet block by block, and are no other for it; none is held twice."""

import datetime as dt
import gzip
import tracemalloc
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exchangeable.arrays.cells import Cells
from exchangeable.completion import fill, update
from exchangeable.completion.completer import Completer
from exchangeable.data import cell_order, columns
from exchangeable.data.duplicates import merge_duplicates
from exchangeable.data.negatives import observed_cells
from exchangeable.data.other_columns import OtherColumns
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError
from exchangeable.values import scale
from exchangeable.values.scale import Scale

DAY = dt.date(2020, 1, 1)
LABELS = {
    "strings": ["ann", "七人", "ann", "nan", "007", "bob", "ann", "", "bob"],
    "integers": [7, -1, 7, 2**62, 0, 3, 7, 8, 3],
    "floats": [0.5, 1.5, 0.5, 2.0, 3.0, -0.0, 0.5, 0.0, 1e9],
    "dates": [DAY + dt.timedelta(days=n) for n in (0, 1, 0, 5, 3, 2, 0, 9, 2)],
    "times of day": [dt.datetime(2020, 1, 1, n) for n in (0, 1, 0, 5, 3, 2, 0, 9, 2)],
    "booleans": [True, False, True, True, False, False, True, True, False],
}
FILMS = list("abcdefghi")
RATINGS = [4.0, None, 3.0, 5.0, 1.0, None, 2.0, 3.0, 4.0]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(columns, "ROWS_PER_BLOCK", 4)  # no multiple of the row groups below


def written(tmp_path, frame, groups=3, name="a.parquet"):
    path = tmp_path / name
    pq.write_table(frame.to_arrow(), path, row_group_size=groups)
    return path


def assert_same(one, other):
    assert one.axes == other.axes
    assert one.found == other.found
    assert one.scale == other.scale
    assert one.value_name == other.value_name
    for mine, its in zip(one.vocabularies, other.vocabularies, strict=True):
        assert mine.labels.equals(its.labels, check_dtypes=True, check_names=True)
    np.testing.assert_array_equal(one.index, other.index)
    np.testing.assert_array_equal(one.values, other.values)
    assert (one.times is None) == (other.times is None)
    if one.times is not None:
        np.testing.assert_array_equal(one.times, other.times)


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("groups", [1, 3, 100])
def test_row_groups_of_any_size_give_the_table_of_the_frame(tmp_path, kind, groups):
    frame = pl.DataFrame({"user": LABELS[kind], "film": FILMS, "rating": RATINGS})
    path = written(tmp_path, frame, groups)
    assert pq.ParquetFile(path).num_row_groups == -(-9 // groups)
    assert_same(Table.read(path), Table.of(frame))


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(sorted(set(LABELS["strings"])))])
def test_categories_of_several_row_groups_are_texts(tmp_path, kind):
    column = pl.Series(LABELS["strings"], dtype=kind)
    frame = pl.DataFrame({"user": column, "film": FILMS, "rating": RATINGS})
    table = Table.read(written(tmp_path, frame))
    assert_same(table, Table.of(frame))
    assert table.vocabularies[0].labels.dtype == pl.String


def test_small_and_nullable_integers_keep_their_types(tmp_path):
    users = pl.Series([1, 2, 1, 3, 200, 2, 1, 4, 3], dtype=pl.UInt8)
    stars = pl.Series([1, None, 3, 5, 1, None, 2, 3, 4], dtype=pl.Int16)
    frame = pl.DataFrame({"user": users, "film": FILMS, "rating": stars})
    table = Table.read(written(tmp_path, frame))
    assert_same(table, Table.of(frame))
    assert table.vocabularies[0].labels.dtype == pl.UInt8
    assert np.isnan(table.values).sum() == 2


def test_parquet_and_text_give_the_same_table(tmp_path):
    frame = pl.DataFrame({"user": [f"u{n}" for n in (3, 1, 3, 2, 5, 1, 3, 4, 2)], "film": FILMS})
    frame = frame.with_columns(rating=pl.Series(RATINGS), day=pl.Series(range(9)))
    frame.write_csv(tmp_path / "a.csv")
    asked = {"time": "day"}
    one = Table.read(written(tmp_path, frame), **asked)
    assert_same(one, Table.read(tmp_path / "a.csv", **asked))
    packed = tmp_path / "a.parquet.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    assert_same(one, Table.read(packed, **asked))


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.tuples(st.text(max_size=2), st.integers(0, 3), st.sampled_from([1.0, 2.5, None])),
        min_size=1,
        max_size=30,
    ),
    groups=st.integers(1, 9),
    how=st.sampled_from(["mean", "last", "first", "max"]),
)
def test_any_rows_give_the_table_of_the_frame(tmp_path_factory, rows, groups, how):
    frame = pl.DataFrame(
        rows, schema={"user": pl.String, "film": pl.Int64, "rating": pl.Float64}, orient="row"
    ).with_row_index("day")
    path = written(tmp_path_factory.mktemp("any"), frame, groups)
    asked = {"axes": ["user", "film"], "value": "rating", "time": "day", "duplicates": how}
    table = Table.read(path, **asked)
    assert_same(table, Table.of(frame, **asked))
    merges = {"mean": np.mean, "last": lambda v: v[-1], "first": lambda v: v[0], "max": max}
    cells = {row[:2]: [r[2] for r in rows if r[:2] == row[:2] and r[2] is not None] for row in rows}
    expected = {cell: merges[how](values) for cell, values in cells.items() if values}
    labels = table.frame(table.index, rating=table.values).rows()
    assert {row[:2]: row[2] for row in labels if row[2] == row[2]} == expected
    empty = [row[:2] for row in rows if row[2] is None]
    assert [row[:2] for row in labels if row[2] != row[2]] == empty
    known = sum(cell in expected for cell in empty)
    noun = "row" if known == 1 else "rows"
    note = f"{known} {noun} without a value, of cells that have one elsewhere"
    assert (note in table.found) == (known > 0)


def test_columns_may_come_in_any_order_and_others_are_not_read(tmp_path):
    frame = pl.DataFrame(
        {"rating": RATINGS, "note": [{"a": 1}] * 9, "film": FILMS, "user": LABELS["strings"]}
    )
    table = Table.read(written(tmp_path, frame), axes=["user", "film"])
    assert table.axes == ("user", "film")
    assert table.found[0].endswith("ignored: note")
    assert table.frame(table.index).rows() == list(zip(LABELS["strings"], FILMS, strict=True))
    assert_same(Table.read(tmp_path / "a.parquet", axes=["4", "3"], value="1"), table)


def test_dates_are_times_in_every_row_group(tmp_path):
    frame = pl.DataFrame({"user": LABELS["integers"], "film": FILMS, "rating": RATINGS})
    frame = frame.with_columns(date=pl.Series([None, *LABELS["dates"][1:]]))
    table = Table.read(written(tmp_path, frame), time="date")
    assert_same(table, Table.of(frame, time="date"))
    assert table.times[1] == dt.datetime(2020, 1, 2, tzinfo=dt.UTC).timestamp()
    assert np.isnan(table.times[0])


def test_a_file_without_values_is_of_ones(tmp_path):
    frame = pl.DataFrame({"user": LABELS["integers"], "film": FILMS})
    assert_same(Table.read(written(tmp_path, frame)), Table.of(frame))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"film": [*FILMS[:7], None, "i"]}, "row 8: a label is needed in 'film'"),
        ({"user": [0.5] * 6 + [float("nan")] * 3}, "row 7: a label is needed in 'user'"),
        ({"rating": [1.0] * 8 + [float("inf")]}, "row 9: a finite number is needed in 'rating'"),
        ({"film": [*FILMS[:8], "c"], "user": ["u"] * 9}, "row 9: every cell may come once, but"),
        ({"rating": ["good"] * 9}, "row 1: a number is needed in 'rating', but this is 'good'"),
        ({"user": [[1]] * 9}, "labels must be numbers, texts or dates"),
    ],
)
def test_what_is_wrong_is_named_by_its_row_in_the_file(tmp_path, change, reason):
    frame = pl.DataFrame({"user": LABELS["strings"], "film": FILMS, "rating": [2.0] * 9} | change)
    with pytest.raises(InputError, match=reason) as told:
        Table.read(written(tmp_path, frame))
    with pytest.raises(InputError) as expected:
        Table.of(frame)
    assert str(told.value).split(": ", 1)[-1] == str(expected.value).split(": ", 1)[-1]


def test_no_rows_and_no_row_groups_are_told_as_such(tmp_path):
    frame = pl.DataFrame({"user": ["a"], "film": ["b"], "rating": [1.0]})
    none = written(tmp_path, frame.clear())
    bare = tmp_path / "bare.parquet"
    pq.ParquetWriter(bare, frame.to_arrow().schema).close()
    assert pq.ParquetFile(bare).num_row_groups == 0
    for path in (none, bare):
        with pytest.raises(InputError, match="rows are needed, but there are none"):
            Table.read(path)


@pytest.mark.parametrize("damage", ["cut", "no end", "a page", "no data", "the length"])
def test_a_damaged_file_is_one_clear_line(tmp_path, damage):
    frame = pl.DataFrame({"user": LABELS["strings"], "film": FILMS, "rating": RATINGS})
    path = written(tmp_path, frame)
    whole = path.read_bytes()
    middle = whole.index("七人".encode())
    damaged = {
        "cut": whole[: len(whole) // 2],
        "no end": whole[:-1],
        "a page": whole[: middle - 8] + b"\xff" * 16 + whole[middle + 8 :],
        "no data": b"PAR1",
        "the length": whole[:-8] + b"\xff\xff\xff\x7fPAR1",
    }
    path.write_bytes(damaged[damage])
    with pytest.raises(InputError, match=r"not a whole Parquet file \(") as told:
        Table.read(path)
    assert "\n" not in str(told.value)


def test_a_file_that_shrinks_meanwhile_is_noticed(tmp_path):
    frame = pl.DataFrame({"user": LABELS["strings"], "film": FILMS, "rating": RATINGS})
    path = written(tmp_path, frame)
    file = columns.Columns.of_parquet("a", path)
    written(tmp_path, frame[:6])
    with pytest.raises(InputError, match="the file was changed while it was read"):
        file.numbers("rating")


def test_a_name_is_no_pattern(tmp_path):
    frame = pl.DataFrame({"user": ["a"], "film": ["b"], "rating": [1.0]})
    assert len(Table.read(written(tmp_path, frame, name="[1]*.parquet"))) == 1


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_the_scale_of_many_values_is_found_in_parts(monkeypatch, at_once):
    monkeypatch.setattr(scale, "_VALUES_PER_CHUNK", at_once)
    many = np.r_[np.nan, np.arange(300.0), np.nan]
    assert Scale.of(many) == Scale("real")
    assert Scale.of(many, "levels").levels == tuple(range(300))
    with pytest.raises(InputError, match="but 300 were found"):
        Scale.of(many, "binary")
    assert Scale.of(np.array([5.0, np.nan, 1.0, 5.0])).levels == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert Scale.of(np.array([np.nan])) == Scale.of(np.array([])) == Scale("real")


# The order of labels.


def random_table(rows=200, shape=(30, 20), times=True):
    draws = np.random.default_rng(0)
    index = np.stack([draws.integers(0, size, rows) for size in shape], axis=1)
    values = draws.choice([1.0, 2.0, np.nan], rows)
    labels = [draws.permutation(size) for size in shape]
    return Table(
        tuple(f"axis {n}" for n in range(len(shape))),
        tuple(Vocabulary(pl.Series(some)) for some in labels),
        index,
        values,
        Scale("levels", (1.0, 2.0)),
        times=np.arange(rows, dtype=float) if times else None,
    )


def rows_of(table):
    """What there is to know of each row, NaN as text."""
    labels = [v.decode(table.index[:, a]).to_list() for a, v in enumerate(table.vocabularies)]
    times = [0.0] * len(table.values) if table.times is None else table.times.tolist()
    return list(zip(*labels, map(str, table.values.tolist()), times, strict=True))


@pytest.mark.parametrize(
    "shape",
    [(30,), (30, 20), (5, 6, 7), (2**20, 2**20, 2**18)],  # the last does not fit beside a row
)
@pytest.mark.parametrize("times", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_rows_are_in_the_order_of_labels_those_without_a_value_last(
    monkeypatch, shape, times, in_place, layout
):
    monkeypatch.setattr(cell_order, "_ROWS_PER_BLOCK", 7)
    table = random_table(shape=shape, times=times)
    table = replace(table, index=np.array(table.index, order=layout))
    before = rows_of(table)
    ordered = table.in_label_order(in_place=in_place)
    order = len(shape)
    expected = sorted(before, key=lambda row: (row[order] == "nan", row[:order]))
    assert rows_of(ordered) == expected
    assert all(vocabulary.labels.is_sorted() for vocabulary in ordered.vocabularies)
    assert ordered.index.flags.c_contiguous
    assert (ordered is table) == in_place
    assert rows_of(table) == (expected if in_place else before)
    again = ordered.in_label_order()
    assert rows_of(again) == expected
    assert again is ordered or max(shape) > 1000


def test_rows_in_order_with_members_in_none_are_renumbered():
    names = tuple(Vocabulary(pl.Series(labels)) for labels in (["b", "a"], ["x", "y"]))
    index = np.array([[1, 0], [1, 1], [0, 0]])
    table = Table(("user", "film"), names, index, np.arange(3.0), Scale("real"))
    ordered = table.in_label_order()
    assert ordered.index.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert ordered.vocabularies[0].labels.to_list() == ["a", "b"]


@pytest.mark.parametrize("users", [[0, 2, 1, 3], [1, 0, 2, 3], [0, 1, 2, 3]])
def test_rows_in_no_order_with_members_in_order_are_sorted(monkeypatch, users):
    # Out of order in a block, and only between two.
    monkeypatch.setattr(cell_order, "_ROWS_PER_BLOCK", 2)
    names = (Vocabulary(pl.Series(list("abcd"))), Vocabulary(pl.Series(["x"])))
    index = np.array([[user, 0] for user in users])
    table = Table(("user", "film"), names, index, np.array(users, dtype=float), Scale("real"))
    ordered = table.in_label_order()
    assert ordered.index[:, 0].tolist() == [0, 1, 2, 3]
    assert ordered.values.tolist() == [0, 1, 2, 3]


def test_a_table_put_in_order_forgets_the_cells_it_had_worked_out():
    table = random_table()
    assert len(table.observed) == len(table)
    table.in_label_order(in_place=True)
    assert table.observed.support.index.tolist() == table.index[: len(table)].tolist()
    assert np.isnan(table.values[len(table) :]).all()


def test_observed_cells_of_an_ordered_table_are_not_copied():
    table = random_table()
    ordered = table.in_label_order()
    cells, _ = observed_cells(ordered, 0)
    assert np.shares_memory(cells.index, ordered.index)
    assert np.shares_memory(cells.values, ordered.values)
    others, _ = observed_cells(table, 0)
    seen = table.is_observed
    assert others.index.tolist() == table.index[seen].tolist()
    assert others.values.tolist() == table.values[seen].tolist()


@pytest.mark.parametrize("model", ["bias", "vmf"])
def test_rows_that_come_in_order_give_the_answers_that_others_do(model):
    table = random_table(times=False)
    cells = table.frame(table.index)
    frame = cells.with_columns(rating=pl.Series(table.values)).unique(
        ["axis 0", "axis 1"], maintain_order=True
    )
    completer = Completer(model).fit(frame)
    again = Completer(model).fit(frame.sort("axis 0", "axis 1"))
    np.testing.assert_array_equal(completer.predict(cells), again.predict(cells))


@pytest.mark.parametrize("kept", [0, 1, 50])
def test_new_cells_take_the_places_of_known_ones_wherever_these_stand(monkeypatch, kept):
    monkeypatch.setattr(update, "_CELLS_PER_SEARCH", 7)
    cells = list(product(range(10), range(8)))
    draws = np.random.default_rng(1)
    known = [cells[n] for n in draws.permutation(80)[:60]]
    given = [*[known[n] for n in draws.permutation(60)[:kept]], *(set(cells) - set(known))]
    old = Cells(np.array(known), np.zeros(60), (10, 8), Scale("real"))
    values = np.arange(1.0, len(given) + 1)
    new = Cells(np.array(given), values, (10, 8), Scale("real"))
    found, places = update._merge(old, new)
    assert [tuple(row) for row in found.index[places].tolist()] == given
    assert found.values[places].tolist() == values.tolist()
    assert [tuple(row) for row in found.index[:60].tolist()] == known
    assert len(found) == 60 + 20
    assert found.values.sum() == values.sum()
    assert (places < 60).sum() == kept  # these had a value before
    assert not old.values.any()
    assert found.times is None
    old = replace(old, times=np.arange(100.0, 160.0))
    times = np.arange(200.0, 200.0 + len(given))
    timed, again = update._merge(old, replace(new, times=times))
    assert again.tolist() == places.tolist()
    assert timed.times[places].tolist() == times.tolist()
    others = np.setdiff1d(np.arange(60), places)
    assert timed.times[others].tolist() == old.times[others].tolist()
    untimed, _ = update._merge(old, new)  # new cells without times have none
    assert np.isnan(untimed.times[places]).all()
    assert untimed.times[others].tolist() == old.times[others].tolist()
    assert old.times.tolist() == list(range(100, 160))
    assert update._merge(replace(old, times=None), replace(new, times=times))[0].times is None


# Memory.


def peak(work):
    """Bytes that arrays took at most while this went on."""
    tracemalloc.start()
    try:
        kept = work()
        return tracemalloc.get_traced_memory()[1], kept
    finally:
        tracemalloc.stop()


def test_ordering_takes_no_more_than_the_ordered_table(monkeypatch):
    monkeypatch.setattr(cell_order, "_ROWS_PER_BLOCK", 2**10)
    rows = 2**17
    table = random_table(rows, (1000, 500))
    most, _ = peak(lambda: table.in_label_order())
    assert most < 1.1 * 8 * rows * (2 + 1 + 1)  # two coordinates, a value and a time
    most, _ = peak(lambda: table.in_label_order(in_place=True))
    assert most < 1.1 * 8 * rows * (1 + 1)  # a value and a time
    most, _ = peak(lambda: table.in_label_order())
    assert most < 0.1 * 8 * rows  # it is in order


def test_looking_for_duplicates_takes_one_number_for_each_row():
    rows = 2**17
    cells = np.random.default_rng(0).permutation(2**20)[:rows]
    index = np.asfortranarray(np.stack(np.divmod(cells, 2**10), axis=1))
    values = np.ones(rows)
    values[::100] = np.nan
    vocabularies = [Vocabulary(pl.Series(range(2**10)))] * 2
    there = columns.Columns("a", {}, rows, lambda column: iter([]))
    none = OtherColumns.of_frame(pl.DataFrame(), ())
    most, (kept, *_) = peak(
        lambda: merge_duplicates(there, none, index, values, vocabularies, "error")
    )
    assert kept == slice(None)
    assert most < 8 * rows * 1.5


# Answers.


@pytest.mark.parametrize("ratings", [RATINGS, [0.1, None, 0.3, *RATINGS[3:]]])
def test_answers_are_written_block_by_block_as_they_are_in_a_frame(tmp_path, monkeypatch, ratings):
    frame = pl.DataFrame({"user": LABELS["strings"], "film": FILMS, "rating": ratings})
    table = Table.read(written(tmp_path, frame))
    request = fill.FillRequest.of(table)
    assert request.missing == frame["rating"].null_count()
    completer = Completer("bias").fit_table(table.in_label_order(in_place=True))
    filled = fill.fill(completer.fitted_, request)
    whole = filled.frame()
    assert whole.select("user", "film").equals(frame.select("user", "film"))
    known = frame["rating"].is_not_null()
    assert whole.filter(known)["rating"].equals(frame.filter(known)["rating"])
    assert whole.filter(known)["low"].null_count() == known.sum()
    cells = frame.filter(~known).select("user", "film")
    assert whole.filter(~known)["rating"].to_list() == completer.predict(cells).tolist()
    monkeypatch.setattr(fill, "_ROWS_PER_BLOCK", 2)
    filled.write_parquet(tmp_path / "out.parquet")
    assert pl.read_parquet(tmp_path / "out.parquet").equals(whole)
    for separator in ",\t":
        filled.write_csv(tmp_path / "out.csv", separator=separator)
        whole.write_csv(tmp_path / "whole.csv", separator=separator)
        assert (tmp_path / "out.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert fill.complete(frame, model="bias").equals(whole)


def test_a_parquet_file_of_arrow_dictionaries_is_read(tmp_path):
    users = pa.array(LABELS["strings"]).dictionary_encode()
    arrow = pa.table({"user": users, "film": FILMS, "rating": RATINGS})
    pq.write_table(arrow, tmp_path / "a.parquet", row_group_size=2)
    plain = pl.DataFrame({"user": LABELS["strings"], "film": FILMS, "rating": RATINGS})
    assert_same(Table.read(tmp_path / "a.parquet"), Table.of(plain))
