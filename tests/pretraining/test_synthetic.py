"""Synthetic tables are what they say, and cover what tables people have are like."""

import numpy as np
import pytest

from exchangeable.arrays.cells import Cells
from exchangeable.baselines import Bias
from exchangeable.errors import InputError
from exchangeable.pretraining.synthetic import CELLS_PER_MEMBER, SIZES, draw_table
from exchangeable.values.scale import Scale

DRAWS = [draw_table([7, number], most=12_000) for number in range(60)]


def test_a_seed_tells_the_table():
    one, same, other = draw_table(3, most=2000), draw_table(3, most=2000), draw_table(4, most=2000)
    assert (one.index == same.index).all()
    assert (one.values == same.values).all()
    assert one.shape != other.shape


@pytest.mark.parametrize("given", [{"order": 0}, {"most": 0}])
def test_tables_have_axes_and_cells(given):
    with pytest.raises(InputError, match="order and most must be 1 or more, but are"):
        draw_table(0, **given)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_cells_are_distinct_places_of_the_table_and_values_on_its_scale(order):
    for number in range(12):
        table = draw_table([order, number], order, most=3000)
        assert len(table.shape) == order
        assert 0 < len(table.index) == len(table.values) <= 3000
        assert (table.index >= 0).all()
        assert (table.index < table.shape).all()
        assert len(np.unique(table.index, axis=0)) == len(table.index)
        assert np.isfinite(table.values).all()
        assert table.values.std() > 0
        if table.scale.levels:
            assert np.isin(table.values, table.scale.levels).all()
        else:
            assert table.scale == Scale("real")
        assert all(SIZES[0] <= size <= SIZES[1] for size in table.shape)


def test_draws_are_of_many_kinds():
    kinds = [(table.scale.kind, len(table.scale.levels)) for table in DRAWS]
    assert {"levels", "real", "binary"} <= {kind for kind, _ in kinds}
    assert {5, 10, 101} <= {number for _, number in kinds}
    cells = [len(table.values) / np.mean(table.shape) for table in DRAWS]
    assert min(cells) < 2 * CELLS_PER_MEMBER[0]
    assert max(cells) > 50
    full = [len(table.values) / np.prod(table.shape) for table in DRAWS]
    assert min(full) < 0.002
    assert max(full) > 0.9
    noise = [table.noise for table in DRAWS]
    assert np.quantile(noise, [0.1, 0.9]) == pytest.approx([0.1, 0.6], abs=0.1)


def test_degrees_are_skewed_in_some_and_even_in_others():
    spread = []
    for table in DRAWS:
        if len(table.values) < 0.5 * np.prod(table.shape) and len(table.values) > 3000:
            degrees = np.bincount(table.index[:, 0], minlength=table.shape[0])
            spread.append(degrees.std() / degrees.mean())
    assert min(spread) < 0.8
    assert max(spread) > 1.3


def test_biases_say_something_of_hidden_cells_but_not_all():
    gains = []
    for table in [table for table in DRAWS if len(table.values) > 300][:25]:
        hidden = np.arange(len(table.values)) % 5 == 0
        fitted = Bias().fit(Cells(table.index[~hidden], table.values[~hidden], table.shape))
        error = fitted.predict(table.index[hidden])[0] - table.values[hidden]
        gains.append(np.mean(error**2) / table.values[hidden].var())
    assert np.quantile(gains, 0.1) < 0.6
    assert np.median(gains) == pytest.approx(0.75, abs=0.2)


def test_what_is_liked_is_observed_more_often_in_some():
    """Columns with many cells have higher values in more tables than lower ones."""
    along = []
    for table in DRAWS:
        counts = np.bincount(table.index[:, 1], minlength=table.shape[1])
        sums = np.bincount(table.index[:, 1], table.values, minlength=table.shape[1])
        some = counts > 1
        if some.sum() > 20 and counts[some].std() > 0:
            along.append(np.corrcoef(np.log(counts[some]), sums[some] / counts[some])[0, 1])
    assert np.mean(np.array(along) > 0) > 0.6
    assert max(along) > 0.4
