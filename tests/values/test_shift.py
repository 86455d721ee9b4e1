"""Predicted distributions whose means are changed stay distributions, with these means."""

import numpy as np
import pytest
import torch

from exchangeable.values.distributions import LogisticMixture, OnLevels
from exchangeable.values.joined import Joined
from exchangeable.values.shift import MARGIN, shift_means


def mixture(cells, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits, locations, scales = torch.randn(3, cells, 4, generator=generator).double()
    return LogisticMixture(logits.log_softmax(dim=1), 2 + locations, scales.exp())


def changes(cells, size):
    return size * torch.from_numpy(np.random.default_rng(1).uniform(-1, 1, cells))


def test_real_numbers_move_as_they_are():
    before, change = mixture(50), changes(50, 3.0)
    moved = shift_means(before, change)
    torch.testing.assert_close(moved.mean(), before.mean() + change)
    torch.testing.assert_close(moved.quantile(0.2), before.quantile(0.2) + change)


@pytest.mark.parametrize("levels", [(0.0, 1.0), (1.0, 2.0, 3.0, 4.0, 5.0), (0.0, 1.0, 4.0)])
def test_on_levels_the_means_are_the_wanted_ones_or_at_the_ends(levels):
    levels = torch.tensor(levels, dtype=torch.float64)
    width = float(levels[-1] - levels[0])
    before, change = mixture(2000).on_levels(levels), changes(2000, 0.4 * width)
    moved = shift_means(before, change)
    ends = levels[0] + MARGIN * width, levels[-1] - MARGIN * width
    wanted = before.mean() + change
    inside = (wanted > ends[0]) & (wanted < ends[1])
    assert 0.5 < inside.double().mean() < 1
    torch.testing.assert_close(moved.mean()[inside], wanted[inside], atol=1e-4 * width, rtol=0)
    assert ((moved.mean() - wanted) * change)[~inside].max() <= 1e-9
    torch.testing.assert_close(moved.probabilities().sum(dim=1), torch.ones(2000).double())
    up = change > 0.1 * width
    assert (moved.quantile(0.5) >= before.quantile(0.5))[up].all()


def test_no_change_changes_nothing():
    levels = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    before = mixture(20).on_levels(levels)
    moved = shift_means(before, torch.zeros(20).double())
    assert torch.equal(moved.log_probabilities, before.log_probabilities)


def test_one_level_stays():
    one = OnLevels(torch.tensor([2.0]), torch.zeros(3, 1))
    assert torch.equal(shift_means(one, torch.ones(3)).mean(), one.mean())


def test_parts_of_joined_distributions_move_each_by_its_own():
    parts = ((torch.tensor([2, 0]), mixture(2)), (torch.tensor([1]), mixture(1, seed=1)))
    joined, change = Joined(parts), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(shift_means(joined, change).mean(), joined.mean() + change)
