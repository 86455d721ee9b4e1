"""Baselines answer as their models say, for any order, and for members nobody knows."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from tests.support.baselines import NAMES, baseline, cells_of, planted, queries, rmse

from exchangeable.arrays.cells import Cells
from exchangeable.baselines import (
    BASELINES,
)
from exchangeable.errors import InputError
from exchangeable.runtime.progress import Progress

HELD = os.environ.get("EXCHANGEABLE_DATA")


real = pytest.mark.skipif(not HELD, reason="needs EXCHANGEABLE_DATA to name the data folder")


SHAPES = [(7,), (6, 5), (4, 5, 3), (3, 4, 2, 3)]


def named(shapes):
    """Pairs of baselines and shapes; rows of one normal distribution have two axes."""
    return [(name, s) for name in NAMES for s in shapes if name != "gaussian" or len(s) == 2]


@pytest.mark.parametrize(("name", "shape"), named(SHAPES))
def test_every_cell_of_any_order_has_an_answer_and_a_variance(name, shape):
    index, values = planted(shape)
    mean, variance = baseline(name).fit(Cells(index, values, shape)).predict(queries(shape))
    assert mean.dtype == variance.dtype == np.float64
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    assert np.isfinite(variance).all()


@pytest.mark.parametrize(("name", "shape"), named(SHAPES))
@pytest.mark.parametrize("number", [1, 6])
def test_a_table_of_equal_values_answers_that_value_for_sure(name, shape, number):
    index = cells_of(shape, 1.0)[:number]
    fitted = baseline(name).fit(Cells(index, np.full(len(index), 0.1), shape))
    mean, variance = fitted.predict(queries(shape))
    assert (mean == 0.1).all()
    assert (variance == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_values_too_close_to_square_their_difference_count_as_equal(name):
    index = np.array([[0, 0], [0, 1], [1, 1]])
    mean, variance = (
        baseline(name).fit(Cells(index, np.array([0, 1e-200, 0]), (2, 2))).predict(index)
    )
    np.testing.assert_allclose(mean, 0, atol=1e-199)
    assert (variance == 0).all()


@pytest.mark.parametrize(("name", "shape"), named([(1,), (2, 1), (1, 4), (3, 1, 2)]))
def test_an_axis_may_have_a_single_member_and_a_table_may_be_full(name, shape):
    index = np.array(list(product(*map(range, shape))))
    values = np.arange(len(index)) ** 2.0
    mean, variance = baseline(name).fit(Cells(index, values, shape)).predict(queries(shape))
    assert np.isfinite(mean).all()
    assert np.isfinite(variance).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_table_without_cells_is_refused(name):
    with pytest.raises(InputError, match="needs cells, but there are none"):
        baseline(name).fit(Cells(np.empty((0, 2), dtype=np.int64), np.empty(0), (3, 3)))


@pytest.mark.parametrize("name", NAMES)
def test_cells_and_queries_outside_the_table_are_refused(name):
    with pytest.raises(InputError, match="from 0 to below"):
        baseline(name).fit(Cells(np.array([[0, 3]]), np.ones(1), (3, 3)))
    fitted = baseline(name).fit(Cells(np.array([[0, 2]]), np.ones(1), (3, 3)))
    with pytest.raises(InputError, match="from -1 to below"):
        fitted.predict(np.array([[3, 0]]))
    with pytest.raises(InputError, match=r"queries must have shape \(Q, 2\)"):
        fitted.predict(np.array([[0, 0, 0]]))


@pytest.mark.parametrize(("name", "shape"), named(SHAPES))
def test_a_member_without_cells_is_like_one_that_is_not_known(name, shape):
    index, values = planted(shape)  # leaves the last member of each axis empty
    fitted = baseline(name).fit(Cells(index, values, shape))
    unknown = queries(shape)
    empty = np.where(unknown == -1, np.array(shape) - 1, unknown)
    np.testing.assert_array_equal(fitted.predict(unknown), fitted.predict(empty))


@pytest.mark.parametrize("name", ["bias", "vmf", "bmf", "item-knn", "user-knn"])
def test_what_is_not_known_makes_answers_less_sure(name):
    index, values = planted((30, 20))
    fitted = baseline(name).fit(Cells(index, values, (30, 20)))
    known, row, both = (
        fitted.predict(np.where(mask, -1, index))[1].mean() for mask in ([0, 0], [1, 0], [1, 1])
    )
    assert known < row < both


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_does_not_depend_on_what_else_is_asked(name):
    shape = (90, 60)
    index, values = planted(shape)
    fitted = baseline(name).fit(Cells(index, values, shape))
    asked = queries(shape)  # more than are answered at once
    mean, variance = fitted.predict(asked)
    some = np.random.default_rng(0).permutation(len(asked))[:1000]
    # Products of matrices add in an order of their own, and members are compared in float32.
    far = 1e-6 if "knn" in name else 1e-12
    there = np.stack([mean, variance])
    np.testing.assert_allclose(fitted.predict(asked[some]), there[:, some], rtol=0, atol=far)
    for one in some[:20]:
        found = fitted.predict(asked[[one]])
        np.testing.assert_allclose(found, there[:, [one]], rtol=0, atol=far)
    assert [len(part) for part in fitted.predict(asked[:0])] == [0, 0]


@pytest.mark.parametrize(("name", "shape"), named(SHAPES[:3]))
def test_a_saved_state_answers_again_bit_for_bit(name, shape):
    index, values = planted(shape)
    chosen = baseline(name)
    fitted = chosen.fit(Cells(index, values, shape))
    read = chosen.kind.from_state(chosen, load_arrays(save_arrays(fitted.state())))
    assert read.shape == shape
    np.testing.assert_array_equal(read.predict(queries(shape)), fitted.predict(queries(shape)))
    changed = np.array([0])
    again = [own.updated(Cells(index, values + 1, shape), changed) for own in (fitted, read)]
    np.testing.assert_array_equal(*[own.predict(queries(shape)) for own in again])


@pytest.mark.parametrize("name", NAMES)
def test_progress_is_reported_up_to_the_end(name):
    index, values = planted((6, 5))
    heard = []
    baseline(name).fit(
        Cells(index, values, (6, 5)), Progress(lambda share, text: heard.append(share))
    )
    assert heard == sorted(heard)
    assert heard[-1] == 1


def test_the_package_imports_without_polars():
    code = "import sys; sys.modules['polars'] = None; import exchangeable.baselines"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("vmf", "bmf")])
def test_an_update_of_what_is_cheap_is_a_refit(name):
    index, values = planted((12, 9))
    old = index[:, 0] < 8
    fitted = baseline(name).fit(Cells(index[old], values[old], (8, 9)))
    updated = fitted.updated(Cells(index, values, (12, 9)), np.flatnonzero(~old))
    refit = baseline(name).fit(Cells(index, values, (12, 9)))
    np.testing.assert_array_equal(updated.predict(index), refit.predict(index))


@pytest.mark.parametrize("new", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(80, 60), (24, 20, 12)])
@pytest.mark.parametrize("name", ["vmf", "bmf"])
def test_new_members_are_answered_nearly_as_well_as_after_a_refit(name, shape, new):
    index, values = planted(shape, density=0.3)
    chosen = replace(BASELINES[name](), rank=3)
    if name == "bmf":
        chosen = replace(chosen, sweeps=60, burn_in=30)
    before = tuple(size - 4 if axis in new else size for axis, size in enumerate(shape))
    fresh = (index >= before).any(axis=1)
    held = fresh & (np.arange(len(index)) % 4 == 0)
    old = chosen.fit(Cells(index[~fresh], values[~fresh], before))
    shown, changed = index[~held], np.flatnonzero(fresh[~held])
    updated = old.updated(Cells(shown, values[~held], shape), changed)
    refit = chosen.fit(Cells(shown, values[~held], shape))
    blank = old.predict(np.where(index[held] >= before, -1, index[held]))[0]
    unknown, quick, full = (
        rmse(answer, values[held])
        for answer in (blank, updated.predict(index[held])[0], refit.predict(index[held])[0])
    )
    assert updated.shape == shape
    assert quick < 0.5 * unknown
    assert quick < full + 0.15


@pytest.mark.parametrize("name", ["vmf", "bmf"])
def test_an_update_leaves_members_alone_whose_cells_did_not_change(name):
    shape = (30, 20)
    index, values = planted(shape)
    old = baseline(name).fit(Cells(index, values, shape))
    changed = np.array([3])
    other = values.copy()
    other[3] += 2
    new = old.updated(Cells(index, other, shape), changed)
    elsewhere = queries(shape)
    touched = (elsewhere == index[3]).any(axis=1)
    found, expected = np.array(new.predict(elsewhere)), np.array(old.predict(elsewhere))
    np.testing.assert_array_equal(found[:, ~touched], expected[:, ~touched])
    here = (elsewhere == index[3]).all(axis=1)
    assert found[0, here] > expected[0, here]


@pytest.mark.parametrize("name", ["vmf", "bmf"])
def test_a_table_of_equal_values_can_be_updated_with_others(name):
    index, values = planted((12, 9))
    fitted = baseline(name).fit(Cells(index[:5], np.ones(5), (12, 9)))
    mixed = np.append(np.ones(5), values[5:])
    updated = fitted.updated(Cells(index, mixed, (12, 9)), np.arange(5, len(index)))
    refit = baseline(name).fit(Cells(index, mixed, (12, 9)))
    np.testing.assert_array_equal(updated.predict(index), refit.predict(index))


@pytest.fixture(scope="module")
def u1():
    from exchangeable.datasets import load

    dataset = load("ml-100k")
    split = dataset.splits["u1"]
    table = dataset.table

    def error(name):
        train, test = split.train, split.test
        fitted = BASELINES[name]().fit(Cells(table.index[train], table.values[train], table.shape))
        mean, variance = fitted.predict(table.index[test])
        truth = table.values[test]
        assert 0.8 < np.mean((mean - truth) ** 2 / variance) < 1.25
        return rmse(np.clip(mean, 1, 5), truth)

    return error


@real
@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("mean", 1.15, 1.16),
        ("bias", 0.951, 0.955),
        ("vmf", 0.90, 0.918),
        ("item-knn", 0.92, 0.95),
        ("user-knn", 0.92, 0.95),
    ],
)
def test_the_error_on_ml_100k_is_in_its_known_range(u1, name, least, most):
    assert least <= u1(name) <= most
