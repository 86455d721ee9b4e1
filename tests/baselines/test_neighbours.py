"""Neighbours equal slow loops over members."""

import numpy as np
import pytest
import torch
from tests.support.baselines import planted

from exchangeable.arrays.cells import Cells
from exchangeable.baselines import (
    Bias,
    Neighbours,
)
from exchangeable.baselines.unfolding import Combinations
from exchangeable.errors import InputError


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("by", ["values", "presence"])
@pytest.mark.parametrize(
    ("shape", "density"), [((12, 10), 0.7), ((5, 4, 6), 0.7), ((150, 120), 0.006)]
)
def test_neighbours_equal_a_slow_loop(axis, by, shape, density):
    index, values = planted(shape, density=density)
    fitted = Neighbours(axis=axis, by=by, shrink=2.0, doubt=0.3).fit(Cells(index, values, shape))
    unfolded = fitted._similarity.unfolded.values
    assert (unfolded.layout == torch.strided) == (density > 0.5)  # both ways to hold a table
    bias = Bias().fit(Cells(index, values, shape))
    left = dict(zip(map(tuple, index.tolist()), values - bias.predict(index)[0], strict=True))
    everywhere = np.array(list(np.ndindex(shape)))
    asked = everywhere[np.random.default_rng(0).permutation(len(everywhere))[:3000]]
    asked = asked[np.all([np.isin(asked[:, d], index[:, d]) for d in range(len(shape))], axis=0)]
    expected = [slow_neighbours(left, tuple(cell), axis, by, 2.0, 0.3) for cell in asked.tolist()]
    assert np.count_nonzero(expected) > 5
    found = fitted.predict(asked)[0] - bias.predict(asked)[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("by", ["values", "presence"])
def test_the_variance_of_neighbours_is_that_of_a_slow_loop_over_parts(by):
    shape = (12, 10)
    index, values = planted(shape)
    fitted = Neighbours(by=by, shrink=2.0, doubt=0.3).fit(Cells(index, values, shape))
    part = np.random.default_rng(0).permutation(len(values)) % 10
    errors = []
    for number in range(10):
        out = part == number
        bias = Bias().fit(Cells(index[~out], values[~out], shape))
        residuals = values[~out] - bias.predict(index[~out])[0]
        left = dict(zip(map(tuple, index[~out].tolist()), residuals, strict=True))
        added = [slow_neighbours(left, tuple(c), -1, by, 2.0, 0.3) for c in index[out].tolist()]
        errors.extend(bias.predict(index[out])[0] + added - values[out])
    assert fitted.variance == pytest.approx(np.mean(np.square(errors)), rel=1e-5)


def slow_neighbours(left, cell, axis, by, shrink, doubt):
    """What the members that are like the cell's add to it, by the definition."""
    rows = {}
    for other, value in left.items():
        place = list(other)
        rows.setdefault(place.pop(axis), {})[tuple(place)] = value
    place = list(cell)
    own = rows.get(place.pop(axis), {})
    heard = []
    for row in rows.values():
        common = [at for at in row if at in own]
        if row is own or tuple(place) not in row or not common:
            continue
        products = sum(row[at] * own[at] for at in common)
        sizes = [sum(side[at] ** 2 for at in common) for side in (row, own)]
        alike = products / np.sqrt(sizes[0] * sizes[1]) * len(common) / (len(common) + shrink)
        presence = len(common) / np.sqrt(len(row) * len(own))
        weight = max(alike, 0) ** 2 if by == "values" else presence**3
        heard.append((weight, row[tuple(place)]))
    return sum(w * r for w, r in heard) / (sum(w for w, _ in heard) + doubt)


def test_the_variance_of_neighbours_is_the_error_they_make():
    shape = (150, 100)
    index, values = planted(shape, density=0.2, noise=0.8)
    held = np.arange(len(index)) % 5 == 0
    fitted = Neighbours().fit(Cells(index[~held], values[~held], shape))
    mean, variance = fitted.predict(index[held])
    assert np.mean((mean - values[held]) ** 2 / variance) == pytest.approx(1, abs=0.15)


def test_combinations_are_found_where_their_product_fits_no_integer():
    shape = (2**40, 2**40, 2**40)
    index = torch.tensor([[5, 2**40 - 1, 7], [5, 3, 2**40 - 1], [0, 2**40 - 1, 7]])
    found, places = Combinations.of(index, (0, 1, 2), shape)
    assert found.find(index).tolist() == places.tolist()
    assert sorted(places.tolist()) == [0, 1, 2]
    assert found.find(torch.tensor([[5, 3, 7], [1, 3, 7]])).tolist() == [-1, -1]


def test_members_are_alike_in_one_of_two_ways():
    with pytest.raises(InputError, match="one of values, presence, but is 'looks'"):
        Neighbours(by="looks")
