"""Frames about members become numbers, whatever their columns hold, and later rows fit in."""

import json
from datetime import date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from exchangeable.data.feature_columns import (
    COMPONENTS,
    MAX_CATEGORIES,
    CategoryColumn,
    NumberColumn,
    column_from_json,
    column_to_json,
    fit_column,
    similarity_components,
)
from exchangeable.data.features import MemberFeatures, TableFeatures, with_described_members
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError

ABCD = Vocabulary.of(pl.Series("film", ["a", "b", "c", "d"]))[0]
TABLE = Table.of(
    pl.DataFrame({"user": ["u", "u", "v"], "film": ["b", "a", "b"], "rating": [1.0, 2.0, 3.0]})
)


def test_features_whose_labels_are_of_another_type_are_refused_with_both_types():
    numbered = Vocabulary.of(pl.Series("film", [1, 2, 3]))[0]
    message = "'film' has none: they are texts, but those of the table are whole numbers$"
    with pytest.raises(InputError, match=message):
        MemberFeatures.of(pl.DataFrame({"film": ["1", "2"], "year": [1995, 1979]}), numbered)
    with pytest.raises(InputError, match=r"'film' has none$"):
        MemberFeatures.of(pl.DataFrame({"film": [8, 9], "year": [1995, 1979]}), numbered)


def films(labels="abcd", **columns):
    return pl.DataFrame({"film": list(labels), **columns})


def features_of(frame, vocabulary=ABCD):
    return MemberFeatures.of(frame, vocabulary)


# Columns ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "days",
    [
        pl.Series([date(2000, 1, 1), date(2000, 1, 11), None, date(2000, 1, 6)]),
        pl.Series([datetime(2000, 1, 1), datetime(2000, 1, 11), None, datetime(2000, 1, 6)]),
        pl.Series([0.0, 10.0, None, 5.0]),
        pl.Series([0.0, 10.0, np.nan, 5.0]),
        pl.Series([0, 10, None, 5], dtype=pl.UInt8),
    ],
)
def test_dates_and_numbers_are_standardised_over_those_that_are_there(days):
    features = features_of(films(day=days))
    assert features.names == ("day",)
    np.testing.assert_allclose(features.values[:, 0], [-1, 1, 0, 0], atol=1e-6)
    kind = "date" if days.dtype.is_temporal() else "number"
    assert f"day: {kind}, standardised" in features.found
    assert features.values.dtype == np.float32


def test_dates_of_a_pandas_frame_are_standardised_too():
    days = pd.to_datetime(["2000-01-01", "2000-01-11", None, "2000-01-06"])
    features = features_of(pd.DataFrame({"film": list("abcd"), "day": days}))
    np.testing.assert_allclose(features.values[:, 0], [-1, 1, 0, 0], atol=1e-6)


@pytest.mark.parametrize("numbers", [[3.0] * 4, [None, None, 7.0, None]])
def test_numbers_that_are_all_the_same_say_nothing(numbers):
    assert not features_of(films(length=numbers)).values.any()


@pytest.mark.parametrize("separator", ["|", ";", ","])
def test_a_text_may_hold_several_categories(separator):
    genres = ["War|Comedy", "Comedy| War", None, "Comedy|"]
    features = features_of(films(genre=[g and g.replace("|", separator) for g in genres]))
    assert features.names == ("genre=Comedy", "genre=War")
    assert features.values.tolist() == [[1, 1], [1, 1], [0, 0], [1, 0]]
    assert f"genre: 2 categories, several separated by {separator!r}" in features.found


def test_texts_are_lists_only_where_many_have_a_separator_and_parts_come_again():
    titles = pl.Series("title", ["Heat", "Alien", "Ran", "The Good, the Bad and the Ugly"] * 5)
    column, note = fit_column(titles[:19])
    assert column == CategoryColumn("title", tuple(sorted(set(titles))), None)
    assert note == "title: 4 categories"
    genres = ["Comedy|War", "War|Comedy", "War|Comedy", *["War", "Comedy"] * 10]
    several = CategoryColumn("genre", ("Comedy", "War"), "|")
    assert fit_column(pl.Series("genre", genres))[0] == several
    seldom, _ = fit_column(pl.Series("genre", genres[2:]))
    assert seldom == CategoryColumn("genre", ("Comedy", "War", "War|Comedy"))


@pytest.mark.parametrize(
    ("entries", "titles"),
    [
        (pl.Series([True, None, False, True]), ("kind=false", "kind=true")),
        (pl.Series(["x", None, "w", "x"], dtype=pl.Categorical), ("kind=w", "kind=x")),
        (pl.Series(["x", None, "w", "x"], dtype=pl.Enum(["x", "w"])), ("kind=w", "kind=x")),
    ],
)
def test_a_missing_category_is_none_of_them(entries, titles):
    features = features_of(films(kind=entries))
    assert features.names == titles
    assert features.values.tolist() == [[0, 1], [0, 0], [1, 0], [0, 1]]


def test_a_column_without_any_entry_gives_no_feature():
    features = features_of(films(kind=pl.Series([None] * 4)))
    assert features.names == ()
    assert features.values.shape == (4, 0)


def test_texts_that_are_too_many_are_left_out_and_that_is_said():
    names = [f"name {number}" for number in range(MAX_CATEGORIES + 1)]
    column, note = fit_column(pl.Series("title", names))
    assert column is None
    assert note == f"title: left out, {len(names)} different texts"
    assert len(fit_column(pl.Series("title", names[:-1]))[0].categories) == MAX_CATEGORIES
    vocabulary = Vocabulary.of(pl.Series(names))[0]
    frame = pl.DataFrame({"film": names, "title": names, "year": np.arange(float(len(names)))})
    assert features_of(frame, vocabulary).names == ("year",)


@pytest.mark.parametrize("infinite", [np.inf, -np.inf])
def test_infinity_is_refused(infinite):
    with pytest.raises(InputError, match="must be finite, but 'year' holds infinity"):
        features_of(films(year=[1.0, 2.0, infinite, 3.0]))


def test_columns_of_other_types_are_refused():
    with pytest.raises(InputError, match="numbers, dates or categories, but 'cast' holds List"):
        features_of(films(cast=[["x"], ["y"], ["x", "y"], []]))


@pytest.mark.parametrize(
    "column",
    [
        NumberColumn("year", 1990.5, 12.25),
        NumberColumn("day", 1.5, 0.0, dates=True),
        CategoryColumn("genre", ("Comedy", "War"), "|"),
        CategoryColumn("none", ()),
    ],
)
def test_columns_are_the_same_after_they_were_written_and_read(column):
    assert column_from_json(json.loads(json.dumps(column_to_json(column)))) == column


# Members ---------------------------------------------------------------------------------


def test_a_member_without_a_row_has_zeros_and_the_others_mean_zero():
    frame = films("cab", year=[2.0, 3.0, 7.0], kind=["x", "y", "x"])
    features = features_of(frame)
    assert features.described.tolist() == [True, True, True, False]
    assert features.names == ("year", "kind=x", "kind=y")
    assert not features.values[3].any()
    assert not features.centred[3].any()
    np.testing.assert_allclose(features.centred[:3].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(features.centred[:3, 1], np.array([0, 1, 1]) - 2 / 3, atol=1e-6)
    assert "3 of 4 members have features" in features.found


def test_rows_are_of_members_and_each_has_one():
    with pytest.raises(InputError, match="row per member, but some in 'film' repeat"):
        features_of(films("aab", year=[1, 2, 3]))
    with pytest.raises(InputError, match="of the axis' members, but 'film' has none"):
        features_of(films("xyz", year=[1, 2, 3]))
    with pytest.raises(InputError, match="need the label column 'id', but have"):
        MemberFeatures.of(films(year=[1, 2, 3, 4]), ABCD, label="id")
    with pytest.raises(InputError, match="need a label column, but the frame has none"):
        features_of(pl.DataFrame())


def test_the_label_column_is_the_first_or_the_one_that_is_named():
    frame = pl.DataFrame({"year": [4.0, 2.0], "film": ["a", "c"]})
    named = MemberFeatures.of(frame, ABCD, label="film")
    np.testing.assert_array_equal(named.values, features_of(frame.select("film", "year")).values)
    assert named.names == ("year",)


def test_features_follow_their_members_to_another_vocabulary():
    features = features_of(films("abc", year=[1.0, 2.0, 6.0]))
    after = Vocabulary.of(pl.Series(["new", "c", "d", "a"]))[0]
    moved = features.reordered(ABCD, after)
    assert moved.described.tolist() == [False, True, False, True]
    expected = [0, features.values[2, 0], 0, features.values[0, 0]]
    assert moved.values[:, 0].tolist() == expected
    np.testing.assert_array_equal(moved.centred[1], features.centred[2])


# Similarities ----------------------------------------------------------------------------


def kernel(size, rank=2, seed=0):
    points = np.random.default_rng(seed).normal(size=(size, rank))
    return points @ points.T


def similarity_frame(labels, matrix):
    return pl.DataFrame({"film": list(labels), **dict(zip(labels, matrix.T, strict=True))})


def test_components_give_the_similarities_back_up_to_their_size():
    matrix = kernel(30)
    centred = matrix - matrix.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    components = similarity_components(matrix)
    inner = components @ components.T
    np.testing.assert_allclose(inner / np.trace(inner), centred / np.trace(centred), atol=1e-9)
    # The largest component has variance 1, and the others count as in the matrix.
    assert components.var(axis=0).max() == pytest.approx(1)
    assert components[:, 2:] == pytest.approx(0, abs=1e-5)


def test_the_leading_components_are_kept_and_equal_similarities_have_none():
    assert similarity_components(kernel(COMPONENTS + 20, rank=200)).shape[1] == COMPONENTS
    assert similarity_components(np.ones((5, 5))).shape == (5, 0)
    # Only what both members say of each other counts.
    skewed = kernel(6) + np.triu(np.ones((6, 6)), 1) - np.tril(np.ones((6, 6)), -1)
    one, other = similarity_components(skewed), similarity_components(kernel(6))
    np.testing.assert_allclose(one @ one.T, other @ other.T, atol=1e-9)


def test_columns_named_by_the_labels_are_similarities_in_any_sequence():
    matrix = kernel(4)
    features = features_of(similarity_frame("abcd", matrix))
    assert features.names[:2] == ("component 1", "component 2")
    assert features.columns == ()
    assert f"similarities of 4 members: {len(features.names)} components" in features.found
    order = [2, 0, 3, 1]
    turned = similarity_frame([*"cadb"], matrix[np.ix_(order, order)])
    again = features_of(turned.select("film", *"abcd"))
    inner = features.values @ features.values.T
    np.testing.assert_allclose(again.values @ again.values.T, inner, atol=1e-5)
    # A column too few: they are numbers like any others.
    fewer = features_of(similarity_frame("abcd", matrix).drop("d"))
    assert fewer.names == ("a", "b", "c")


def test_labels_that_are_numbers_name_columns_of_similarities_too():
    vocabulary = Vocabulary.of(pl.Series([10, 20, 30]))[0]
    matrix = kernel(3)
    frame = pd.DataFrame(
        {"film": [10, 20, 30], **{n: matrix[i] for i, n in enumerate([10, 20, 30])}}
    )
    inner = features_of(frame, vocabulary).values
    expected = similarity_components(matrix)
    np.testing.assert_allclose(inner @ inner.T, expected @ expected.T, atol=1e-5)


def test_a_missing_similarity_is_zero_and_an_infinite_one_is_refused():
    matrix = kernel(4)
    matrix[0, 1] = matrix[1, 0] = 0
    frame = similarity_frame("abcd", matrix)
    holes = frame.with_columns(
        pl.when(pl.col(own) == 0).then(None).otherwise(pl.col(own)).alias(own) for own in "ab"
    )
    assert holes["a"].null_count() == 1
    np.testing.assert_array_equal(features_of(holes).values, features_of(frame).values)
    for bad in (np.inf, np.nan):
        matrix[2, 3] = bad
        with pytest.raises(InputError, match="similarities must be finite"):
            features_of(similarity_frame("abcd", matrix))


# Later members ---------------------------------------------------------------------------

MORE = ABCD.with_more(pl.Series(["e", "f"]))


def test_later_members_are_measured_as_the_first_ones_were():
    features = features_of(films("abc", year=[0.0, 10.0, 5.0], kind=["x|y", "y|x", "x"]))
    later = films("ef", kind=["y|z", None], year=[15.0, None], other=[1, 2])
    more = features.with_more(later, MORE)
    assert more.names == features.names == ("year", "kind=x", "kind=y")
    np.testing.assert_array_equal(more.values[:4], features.values)
    assert more.values[4:].tolist() == [[2, 0, 1], [0, 0, 0]]  # z is no category that was known
    assert more.described.tolist() == [True, True, True, False, True, True]
    np.testing.assert_array_equal(more.centre, features.centre)
    np.testing.assert_array_equal(more.centred[4:], features.encode(later))


@pytest.mark.parametrize(
    ("first", "later", "joined"),
    [
        ([1, 2, 3], [2.5], [1.0, 2.0, 3.0, 2.5]),
        ([1.0, None, 3.0], ["4"], [1.0, None, 3.0, 4.0]),
        (["x", "y", "x"], [None], ["x", "y", "x", None]),
        ([True, False, True], ["true"], ["true", "false", "true", "true"]),
        (["x", "1", "1"], [1], ["x", "1", "1", "1"]),
        ([date(2000, 1, k) for k in (1, 2, 3)], ["2001-01-01"],
         [*(datetime(2000, 1, k) for k in (1, 2, 3)), datetime(2001, 1, 1)]),
    ],
)  # fmt: skip
def test_rows_of_later_members_are_kept_as_they_are_read(first, later, joined):
    features = features_of(films("abc", own=first))
    more = features.with_more(films("e", own=later), MORE)
    assert more.rows["own"].to_list() == joined
    assert more.rows["film"].to_list() == ["a", "b", "c", "e"]
    assert features.rows["own"].to_list() == first
    assert more.with_more(films("b", own=later), MORE).rows["film"].to_list() == list("aceb")


def test_without_a_row_known_members_keep_what_they_had_and_new_ones_have_nothing():
    features = features_of(films("abc", year=[0.0, 10.0, 5.0]))
    more = features.with_more(None, MORE)
    np.testing.assert_array_equal(more.values[:4], features.values)
    assert not more.values[4:].any()
    assert more.described.tolist() == [True, True, True, False, False, False]
    changed = features.with_more(films("b", year=[0.0]), MORE)
    assert changed.values[:2, 0].tolist() == [features.values[0, 0]] * 2
    assert features.values[1, 0] != changed.values[1, 0]


def test_later_members_need_the_columns_of_the_first_ones():
    features = features_of(films(year=[1.0, 2.0, 3.0, 4.0], kind=["x", "y", "x", "y"]))
    with pytest.raises(InputError, match="need the columns kind, but have film, year"):
        features.with_more(films("e", year=[5.0]), MORE)
    with pytest.raises(InputError, match="need the columns year, kind, but have film"):
        features.encode(films("e"))
    with pytest.raises(InputError, match="'year' holds infinity"):
        features.with_more(films("e", year=[np.inf], kind=["x"]), MORE)


def test_similarities_of_later_members_are_refused():
    features = features_of(similarity_frame("abcd", kernel(4)))
    with pytest.raises(InputError, match="similarities of members that come later cannot be given"):
        features.with_more(films("e", a=[1.0]), MORE)
    more = features.with_more(None, MORE)
    np.testing.assert_array_equal(more.values[:4], features.values)
    assert not more.values[4:].any()


# Tables ----------------------------------------------------------------------------------


def test_features_of_a_table_are_named_by_its_axes():
    features = TableFeatures.of(TABLE, {"film": films("ab", year=[1.0, 3.0])})
    assert features.names == ((), ("year",))
    assert features.sizes == (0, 1)
    assert features.found == (
        "features of film: year: number, standardised; 2 of 2 members have features",
    )
    assert TableFeatures.of(TABLE, None).axes == TableFeatures.of(TABLE, {}).axes == ()
    with pytest.raises(InputError, match=r"of axes user, film, but are of \['studio'\]"):
        TableFeatures.of(TABLE, {"studio": films(year=[1, 2, 3, 4])})
    with pytest.raises(InputError, match="mapping from axes to frames, but are a DataFrame"):
        TableFeatures.of(TABLE, films(year=[1, 2, 3, 4]))


def test_tensors_are_centred_or_as_they_are():
    features = TableFeatures.of(TABLE, {"film": films("ab", kind=["x", "x"], genre=["x", "y"])})
    user, plain = features.to_tensors(centred=False)
    assert user is None
    # Films of the table are b and a, in this sequence.
    assert plain.tolist() == [[1, 0, 1], [1, 1, 0]]
    _, centred = features.to_tensors(centred=True)
    torch.testing.assert_close(centred, plain - plain.mean(dim=0))
    assert plain.dtype == centred.dtype == torch.float32
    assert TableFeatures().to_tensors(centred=True) is None


def test_members_that_only_features_describe_are_added_to_the_table():
    frames = {"film": films("cab", year=[3.0, 1.0, 2.0])}
    table = with_described_members(TABLE, frames)
    assert table.vocabularies[1].labels.to_list() == ["b", "a", "c"]
    assert table.vocabularies[0] is TABLE.vocabularies[0]
    assert table.shape == (2, 3)
    np.testing.assert_array_equal(table.index, TABLE.index)
    features = TableFeatures.of(table, frames)
    np.testing.assert_allclose(features.axes[1].values[:, 0], [0, -1, 1], atol=1e-6)
    assert with_described_members(TABLE, None).shape == TABLE.shape
    with pytest.raises(InputError, match=r"of axes user, film, but are of \['studio'\]"):
        with_described_members(TABLE, {"studio": films(year=[1, 2, 3, 4])})


def test_a_frame_about_none_of_the_members_adds_none():
    table = with_described_members(TABLE, {"film": films("xyz", year=[1, 2, 3])})
    assert table.shape == TABLE.shape
    with pytest.raises(InputError, match="of the axis' members, but 'film' has none"):
        TableFeatures.of(table, {"film": films("xyz", year=[1, 2, 3])})


def test_features_of_a_table_take_in_later_members_of_axes_that_had_some():
    features = TableFeatures.of(TABLE, {"film": films("ab", year=[1.0, 3.0])})
    later = films("c", year=[5.0])
    larger = with_described_members(TABLE, {"film": films("abc")})
    more = features.with_more(larger, {"film": later})
    assert more.axes[0] is None
    np.testing.assert_allclose(
        more.axes[1].values[:, 0], [2**-0.5, -(2**-0.5), 3 * 2**-0.5], rtol=1e-6
    )
    assert more.found == features.found
    without = features.with_more(larger, None).axes[1]
    assert without.values[:2].tolist() == features.axes[1].values.tolist()
    assert not without.values[2].any()
    users = pl.DataFrame({"user": ["u"], "age": [30]})
    with pytest.raises(InputError, match=r"when the table was fitted \(film\), but are of \['user"):
        features.with_more(larger, {"user": users})
    with pytest.raises(InputError, match=r"fitted \(none\), but are of \['film'\]"):
        TableFeatures().with_more(larger, {"film": later})
    with pytest.raises(InputError, match=r"of axes user, film, but are of \['studio'\]"):
        features.with_more(larger, {"studio": later})


def test_features_of_a_table_follow_its_members():
    features = TableFeatures.of(TABLE, {"film": films("ab", year=[1.0, 3.0])})
    ordered = TABLE.in_label_order()
    moved = features.reordered(TABLE.vocabularies, ordered.vocabularies)
    assert moved.axes[0] is None
    assert moved.axes[1].values.tolist() == features.axes[1].values[::-1].tolist()


def test_features_of_few_members_are_told_and_those_of_half_are_not():
    labels = ["a", "b", "c", "d", "e"]
    cells = pl.DataFrame({"user": ["u"] * 5, "film": labels, "rating": [1.0, 2.0, 3.0, 4.0, 5.0]})
    frame = films(["a", "b", "A", "B", "C", "D"], year=[1, 2, 3, 4, 5, 6])
    table = with_described_members(Table.of(cells), {"film": frame})
    (note,) = TableFeatures.of(table, {"film": frame}).found
    assert note.endswith("; only 2 of 5 members with cells are among them; check labels")
    frame = films(["a", "b", "c", "C", "D"], year=[1, 2, 3, 4, 5])
    (note,) = TableFeatures.of(Table.of(cells), {"film": frame}).found
    assert note.endswith("3 of 5 members have features")
