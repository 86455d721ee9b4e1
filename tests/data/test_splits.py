"""Parts of a split are disjoint, cover the table, and hold out what they say."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exchangeable.data import splits
from exchangeable.data.table import Table
from exchangeable.errors import InputError


def table(rows=40, columns=30, cells=400, seed=0, order=2):
    generator = np.random.default_rng(seed)
    shape = (rows, columns, 7)[:order]
    chosen = generator.choice(int(np.prod(shape)), cells, replace=False)
    labels = np.stack(np.unravel_index(chosen, shape), axis=1)
    frame = pl.DataFrame({f"axis{a}": labels[:, a] for a in range(order)})
    values = generator.normal(size=cells)
    values[::50] = np.nan  # some cells are questions, and no part may name them
    frame = frame.with_columns(value=pl.Series(values), when=pl.Series(generator.random(cells)))
    return Table.of(
        frame.with_columns(pl.col("value").fill_nan(None)),
        axes=[f"axis{a}" for a in range(order)],
        value="value",
        time="when",
    )


def assert_partition(split, number):
    together = np.concatenate(list(split.parts().values()))
    assert np.array_equal(np.sort(together), np.arange(number))
    for part in split.parts().values():
        assert np.array_equal(part, np.sort(part))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 1000),
    test=st.floats(0, 0.9),
    validation=st.floats(0, 0.9),
    order=st.integers(2, 3),
)
def test_every_split_is_a_partition_and_repeats_with_its_seed(seed, test, validation, order):
    data = table(seed=seed, order=order)
    makers = [
        lambda: splits.by_share(data, test=test, validation=validation, seed=seed),
        lambda: splits.new_members(data, (0,), members=test, validation=validation, seed=seed),
        lambda: splits.new_members(data, (1,), members=test, shown=validation, seed=seed),
        lambda: splits.new_members(data, (0, 1), members=test, shown=validation, seed=seed),
        lambda: splits.by_time(data, test=test, validation=validation),
        lambda: splits.k_fold(data, 4, validation=validation, seed=seed)[2],
        lambda: splits.by_position(data, [3, 1, 2], validation=validation, seed=seed),
    ]
    for make in makers:
        split = make()
        assert_partition(split, len(data))
        for name, part in make().parts().items():
            assert np.array_equal(part, split.parts()[name])


def test_shares_are_what_was_asked_for():
    data = table()
    split = splits.by_share(data, test=0.25, validation=0.1, seed=3)
    assert len(split.test) == round(0.25 * len(data))
    assert len(split.validation) == round(0.1 * (len(data) - len(split.test)))
    assert not np.array_equal(split.test, splits.by_share(data, test=0.25, seed=4).test)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), (2,), (0, 1, 2)])
def test_new_members_are_unknown_to_training(axes):
    data = table(order=3, cells=2000)
    index = data.observed.support.index.numpy()
    split = splits.new_members(data, axes, members=0.3, shown=0.4, seed=1)
    held = np.concatenate([split.test, split.shown])
    assert len(held)
    for axis in axes:
        assert not set(index[split.train, axis]) & set(index[held, axis])
    assert len(split.unused) == 0 or len(axes) > 1
    others = [a for a in range(3) if a not in axes]
    for axis in others:
        assert set(index[split.train, axis]) & set(index[held, axis])


@pytest.mark.parametrize("shown", [0.05, 0.5, 0.95])
def test_a_share_of_each_new_rows_cells_is_shown(shown):
    data = table(rows=50, columns=400, cells=10_000)
    index = data.observed.support.index.numpy()
    split = splits.new_members(data, (0,), members=0.4, shown=shown, seed=2)
    for row in set(index[split.test, 0]) | set(index[split.shown, 0]):
        visible = int((index[split.shown, 0] == row).sum())
        hidden = int((index[split.test, 0] == row).sum())
        assert abs(visible - shown * (visible + hidden)) <= 1
    total = len(split.shown) + len(split.test)
    assert len(split.shown) == pytest.approx(shown * total, abs=0.02 * total)


def test_time_parts_the_past_from_the_future():
    data = table()
    times = data.times[~np.isnan(data.values)]
    split = splits.by_time(data, test=0.2, validation=0.1)
    assert times[split.train].max() < times[split.validation].min()
    assert times[split.validation].max() < times[split.test].min()


def test_every_cell_is_tested_once_in_k_folds():
    data = table()
    folds = splits.k_fold(data, 5, seed=1)
    together = np.concatenate([fold.test for fold in folds])
    assert np.array_equal(np.sort(together), np.arange(len(data)))
    sizes = [len(fold.test) for fold in folds]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda t: splits.by_share(t, test=1.0), r"test must be a share in \[0, 1\), but is 1.0"),
        (lambda t: splits.by_share(t, validation=-0.1), "validation must be a share"),
        (lambda t: splits.new_members(t, (2,)), r"some of 0 to 1, but are \(2,\)"),
        (lambda t: splits.new_members(t, ()), r"some of 0 to 1, but are \(\)"),
        (lambda t: splits.new_members(t, (0, 0)), r"but are \(0, 0\)"),
        (lambda t: splits.k_fold(t, 1), "folds must be between 2 and"),
        (lambda t: splits.by_position(t, [0, 0]), "some positions repeat"),
        (lambda t: splits.by_position(t, [9999]), "between 0 and .* go from 9999"),
        (lambda t: splits.by_share(t, seed=-1), "seed must be a whole number of 0 or more"),
        (lambda t: splits.by_position(t, [1.7]), "positions must be a list of whole numbers"),
        (lambda t: splits.by_time(Table.of([("a", "b")], [1.0])), "needs a time column"),
    ],
)
def test_wrong_splits_are_named(wrong, message):
    with pytest.raises(InputError, match=message):
        wrong(table())
