"""Quantiles of a share for each cell, and draws whose shares are those of the distributions."""

import numpy as np
import pytest
import torch

from exchangeable.values.calibration import Calibration
from exchangeable.values.distributions import LogisticMixture, Normal, OnLevels
from exchangeable.values.joined import Joined
from exchangeable.values.sampling import draw_values

NONE = torch.empty(0, dtype=torch.float64)


def mixture(cells):
    generator = torch.Generator().manual_seed(0)
    weights, locations, scales = torch.randn(3, cells, 3, generator=generator, dtype=torch.float64)
    return LogisticMixture(weights.log_softmax(1), 2 * locations, scales.exp())


def normal(cells):
    location, deviation = torch.randn(2, cells, dtype=torch.float64)
    return Normal(location, deviation.exp())


def on_levels(cells):
    levels = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    return OnLevels(levels, torch.randn(cells, 3, dtype=torch.float64).log_softmax(1))


def joined(cells):
    odd, even = torch.arange(1, cells, 2), torch.arange(0, cells, 2)
    return Joined(((odd, normal(len(odd))), (even, mixture(len(even)))))


def calibrated(cells):
    ranks = np.random.default_rng(0).beta(2, 2, 500)
    return Calibration.fit(ranks).apply(mixture(cells))


def latent(cells):
    return mixture(cells).on_levels(torch.arange(1.0, 6.0, dtype=torch.float64))


@pytest.mark.parametrize("make", [mixture, normal, on_levels, joined, calibrated, latent])
def test_a_share_for_each_cell_gives_what_each_share_alone_does(make):
    torch.manual_seed(0)
    distribution = make(7)
    shares = torch.tensor([0.5, 0.01, 0.99, 0.3, 0.3, 0.8, 0.001], dtype=torch.float64)
    together = distribution.quantile(shares)
    for cell, share in enumerate(shares.tolist()):
        alone = distribution.quantile(share)[cell]
        assert together[cell].item() == pytest.approx(alone.item(), abs=1e-9)


@pytest.mark.parametrize("make", [mixture, normal, joined])
def test_draws_of_real_numbers_have_the_ranks_of_their_uniform_draws(make):
    torch.manual_seed(0)
    distribution = make(6)
    uniform = torch.rand(50, 6, dtype=torch.float64)
    draws = draw_values(distribution, NONE, uniform)
    for drawn, expected in zip(draws, uniform, strict=True):
        np.testing.assert_allclose(distribution.rank(drawn), expected, atol=1e-7)


@pytest.mark.parametrize("make", [on_levels, latent])
def test_draws_on_levels_are_levels_as_often_as_their_probabilities_say(make):
    torch.manual_seed(0)
    distribution = make(4)
    uniform = torch.rand(20_000, 4, dtype=torch.float64)
    draws = draw_values(distribution, distribution.levels, uniform)
    for number, level in enumerate(distribution.levels.tolist()):
        expected = distribution.probabilities()[:, number]
        error = (expected * (1 - expected) / len(draws)).sqrt()
        assert (((draws == level).double().mean(dim=0) - expected).abs() < 4 * error).all()
    assert torch.isin(draws, distribution.levels).all()


def test_the_last_level_takes_what_rounding_leaves():
    levels = torch.tensor([0.0, 1.0], dtype=torch.float64)
    short = OnLevels(levels, torch.tensor([[0.3, 0.7 - 1e-9]], dtype=torch.float64).log())
    ends = torch.tensor([[1 - 1e-12], [0.3 - 1e-12], [0.3 + 1e-12], [1e-300]], dtype=torch.float64)
    assert draw_values(short, levels, ends).flatten().tolist() == [1, 0, 1, 0]
