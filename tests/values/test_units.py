"""Values are read in the units that suit them, and predicted in those of the table."""

import numpy as np
import pytest
import torch

from exchangeable.errors import InputError
from exchangeable.values.distributions import Normal
from exchangeable.values.units import SHARES, Units, choose_units


def grid(rows, columns):
    return np.argwhere(np.ones((rows, columns), dtype=bool))


def quantities(seed=0):
    """Cells of columns in three very different units."""
    generator = np.random.default_rng(seed)
    index = grid(60, 6)
    centre, unit = np.array([3, 900, 0.2, 14, 5e4, 1.0]), np.array([1, 200, 0.05, 2, 9e3, 0.1])
    level = generator.standard_normal(60)
    values = centre[index[:, 1]] + unit[index[:, 1]] * (
        0.7 * level[index[:, 0]] + 0.7 * generator.standard_normal(len(index))
    )
    return index, values, (60, 6)


def counts(seed=0):
    """Counts with heavy tails."""
    generator = np.random.default_rng(seed)
    index = grid(50, 40)
    effects = (
        generator.standard_normal(50)[index[:, 0]] + generator.standard_normal(40)[index[:, 1]]
    )
    values = np.round(np.exp(3 + effects + generator.standard_normal(len(index))))
    return index, values, (50, 40)


def test_different_quantities_are_noticed_on_either_axis():
    index, values, shape = quantities()
    units = choose_units(index, values, shape)
    assert (units.kind, units.axis) == ("own", 1)
    turned = choose_units(index[:, ::-1], values, shape[::-1])
    assert (turned.kind, turned.axis) == ("own", 0)
    read = units.put(index, values)
    assert all(abs(read[index[:, 1] == c].std() - 1) < 1e-9 for c in range(6))


def test_heavy_tails_are_noticed_and_ordinary_values_are_left_alone():
    assert choose_units(*counts()).kind == "log"
    generator = np.random.default_rng(1)
    index = grid(50, 40)
    ordinary = 20 + generator.standard_normal(50)[index[:, 0]] + generator.standard_normal(2000)
    assert choose_units(index, ordinary, (50, 40)).changes_nothing
    assert choose_units(index, ordinary - 20, (50, 40)).changes_nothing
    near = choose_units(index, np.abs(ordinary - 20), (50, 40))
    assert (near.kind, near.least) == ("plain", 0.0)
    assert choose_units(index[:5], np.array([1, 9, 1e9, 3, 1e6]), (50, 40)).kind == "plain"
    assert choose_units(index, np.full(2000, 7.0), (50, 40)).kind == "plain"


def test_the_choice_does_not_depend_on_the_unit_of_all_values():
    for made in (quantities, counts):
        index, values, shape = made()
        one, other = choose_units(index, values, shape), choose_units(index, 1e-4 * values, shape)
        assert (one.kind, one.axis) == (other.kind, other.axis)
        np.testing.assert_allclose(one.put(index, values), other.put(index, 1e-4 * values))


@pytest.mark.parametrize("made", [quantities, counts])
def test_distributions_come_back_in_the_units_of_the_table(made):
    index, values, shape = made()
    units = choose_units(index, values, shape)
    read = torch.from_numpy(units.put(index, values))
    predicted = units.apply(Normal(read, torch.full_like(read, 0.2)), index)
    np.testing.assert_allclose(predicted.quantile(0.5).numpy(), values, rtol=1e-9)
    np.testing.assert_allclose(predicted.rank(torch.from_numpy(values)).numpy(), 0.5, atol=1e-9)
    share = predicted.rank(predicted.quantile(0.9))
    np.testing.assert_allclose(share.numpy(), 0.9, atol=1e-9)
    few = torch.tensor([5, 2])
    np.testing.assert_allclose(predicted.take(few).mean(), predicted.mean()[few])
    # The density is the slope of the share below a value.
    step = 1e-5 * (1 + np.abs(values))
    above, below = (torch.from_numpy(values + sign * step) for sign in (1, -1))
    slope = (predicted.rank(above) - predicted.rank(below)).numpy() / (2 * step)
    density = predicted.log_likelihood(torch.from_numpy(values)).exp().numpy()
    inside = values > 0  # at 0 the share below starts
    np.testing.assert_allclose(density[inside], slope[inside], rtol=1e-4)


def test_the_mean_of_logarithms_is_that_of_the_values():
    generator = np.random.default_rng(0)
    location = torch.from_numpy(8 + generator.standard_normal(400))
    predicted = Normal(location, torch.full_like(location, 0.5))
    units = Units("log", small=1e-9, least=0.0).read_offsets(predicted)
    assert len(units.offsets) == len(SHARES)
    index = np.zeros((400, 2), np.int64)
    mean = units.apply(predicted, index).mean().numpy()
    expected = 1e-9 * np.expm1(location.numpy() + 0.5**2 / 2)
    np.testing.assert_allclose(mean, expected, rtol=0.01)


def test_nothing_is_predicted_below_zero_where_all_values_are_above():
    units = Units(least=0.0)
    location = torch.tensor([-1.0, 2.0], dtype=torch.float64)
    predicted = units.apply(Normal(location, torch.ones_like(location)), np.zeros((2, 2), np.int64))
    assert predicted.mean().tolist() == [0, 2]
    assert predicted.quantile(0.01).min() == 0


def test_new_members_get_units_from_their_own_values():
    index, values, shape = quantities()
    known = index[:, 1] < 5
    units = Units.of("own", 1, index[known], values[known], (60, 5))
    grown = units.with_members(index, values, shape)
    np.testing.assert_array_equal(grown.centre[:5], units.centre[:5])
    assert abs(grown.put(index, values)[index[:, 1] == 5].std() - 1) < 1e-9
    one = units.for_one(values[index[:, 1] == 5])
    assert one.centre[0] == pytest.approx(grown.centre[5])
    single = units.for_one(np.array([1000.0]))  # varies over its mean as the others do
    assert 10 < single.scale[0] < 1000
    assert units.for_one(np.empty(0)).scale[0] > 0


def test_values_that_cannot_be_logarithms_are_one_line():
    index, values, shape = counts()
    with pytest.raises(InputError, match="logarithms need values of 0 or more, but there is -3"):
        Units.of("log", 0, index, np.where(values == values.max(), -3, values), shape)
    units = Units.of("log", 0, index, values, shape)
    with pytest.raises(InputError, match="must be 0 or more, but there is -1; fit again"):
        units.put(index[:1], np.array([-1.0]))


def test_units_are_those_of_all_cells_even_where_few_are_compared(monkeypatch):
    monkeypatch.setattr("exchangeable.values.units._MAX_COMPARED", 120)
    index, values, shape = quantities()
    units = choose_units(index, values, shape)
    assert (units.kind, units.axis) == ("own", 1)
    expected = Units.of("own", 1, index, values, shape)
    np.testing.assert_array_equal(units.centre, expected.centre)


def test_a_member_without_cells_gets_its_unit_when_they_come():
    index, values, shape = quantities()
    before = index[:, 1] < 5
    units = Units.of("own", 1, index[before], values[before], shape)
    grown = units.with_members(index, values, shape)
    assert grown.centre[5] == pytest.approx(values[~before].mean())
    one = units.for_one(np.array([12.0]))
    assert 1 < one.scale[0] < 12
    assert units.for_one(np.empty(0)).centre[0] == units.centre[-1]


def test_new_values_below_zero_lift_the_bound():
    units = Units(least=0.0)
    index = np.array([[0, 0], [1, 1]])
    assert units.with_members(index, np.array([1.0, -5.0]), (2, 2)).least is None
    assert units.with_members(index, np.array([1.0, 5.0]), (2, 2)).least == 0
    log = Units("log", small=2.0, least=0.0)
    density = log.apply(Normal(torch.zeros(1), torch.ones(1)), index[:1])
    assert np.isfinite(density.log_likelihood(torch.tensor([-50.0])).item())


def test_few_rows_of_different_quantities_are_noticed_too():
    whole = np.array([[60, 1.6, 30000.0], [82, 1.8, 52000], [55, 1.7, 40000], [75, 1.75, 36000]])
    units = choose_units(grid(4, 3), whole.ravel(), (4, 3))
    assert (units.kind, units.axis) == ("own", 1)
