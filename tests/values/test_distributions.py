"""Distributions agree with scipy, and quantiles invert ranks."""

import numpy as np
import pytest
import torch
from scipy import stats
from tests.support.values import some_levels

from exchangeable.errors import InputError
from exchangeable.values import distributions
from exchangeable.values.calibration import Calibration
from exchangeable.values.distributions import (
    LogisticMixture,
    Normal,
    OnLevels,
    interval,
    level_edges,
)
from exchangeable.values.joined import Joined


def test_the_mean_on_levels_is_each_level_times_its_probability():
    answers = some_levels()
    expected = sum(
        answers.probabilities()[:, k] * level for k, level in enumerate([1.0, 2, 3, 4, 5])
    )
    torch.testing.assert_close(answers.mean(), expected)


@pytest.mark.parametrize("levels", [(1.0, 2.0, 3.0), (0.0, 0.1, 5.0, 100.0), (0.0, 1.0)])
def test_quantiles_on_levels_invert_the_evenly_spread_probability(levels):
    answers = some_levels(levels=levels)
    edges = level_edges(answers.levels)
    for share in (0.01, 0.3, 0.5, 0.77, 0.999):
        found = answers.quantile(share)
        for cell, value in enumerate(found):
            below = 0.0
            for k, mass in enumerate(answers.probabilities()[cell]):
                part = (value - edges[k]) / (edges[k + 1] - edges[k])
                below += float(mass) * float(part.clamp(0, 1))
            inside = levels[0] < float(value) < levels[-1]
            assert not inside or below == pytest.approx(share, abs=1e-9)
            assert levels[0] <= float(value) <= levels[-1]


MIXTURE = LogisticMixture(
    torch.tensor([[0.3, 0.7]]).double().log(),
    torch.tensor([[1.0, 4.0]]).double(),
    torch.tensor([[0.5, 0.2]]).double(),
)


WIDE = torch.arange(-20.0, 30.0).double()


@pytest.mark.parametrize(
    "answers",
    [
        some_levels(),
        MIXTURE,
        MIXTURE.on_levels(WIDE),
        Normal(torch.tensor([1.0, 2.0]).double(), torch.tensor([0.5, 3.0]).double()),
        Normal(torch.tensor([1.0]).double(), torch.tensor([2.0]).double(), WIDE),
    ],
    ids=["levels", "mixture", "levels with a mixture", "normal", "normal on levels"],
)
def test_a_rank_is_the_share_whose_quantile_the_value_is(answers):
    for share in (0.3, 0.5, 0.6):
        value = answers.quantile(share)
        inside = (value > 1) & (value < 5) if len(value) > 2 else value == value
        assert inside.any()
        torch.testing.assert_close(
            answers.rank(value)[inside], torch.full_like(value, share)[inside], rtol=0, atol=1e-6
        )


def test_quantiles_never_cross():
    answers = some_levels(cells=200)
    shares = torch.linspace(0.01, 0.99, 30).tolist()
    values = torch.stack([answers.quantile(share) for share in shares])
    assert (values.diff(dim=0) >= 0).all()


def test_ends_of_intervals_are_quantiles_found_one_by_one():
    levels = torch.arange(1.0, 6.0, dtype=torch.float64)

    sure = torch.tensor([[1.2], [4.8]], dtype=torch.float64)  # of an end, but not beyond it
    narrow = LogisticMixture(torch.zeros_like(sure), sure, torch.full_like(sure, 0.02))
    kinds = mixture(300), mixture(300).on_levels(levels), narrow.on_levels(levels)
    for answers in (*kinds, some_levels(cells=200)):
        low, high = interval(answers, 0.8)
        lowest, highest = answers.quantile(0.1), answers.quantile(0.9)
        if answers.bounds() is not None:
            first, last = answers.bounds()
            shares = answers.probabilities()
            at_start = (shares[:, 0] > 0.5) & (lowest <= first)
            at_end = (shares[:, -1] > 0.5) & (highest >= last)
            shorter = answers.quantile(0.2), answers.quantile(0.8)
            lowest = torch.where(at_end, shorter[0], lowest)
            highest = torch.where(at_start, shorter[1], highest)
        expected = torch.minimum(lowest, answers.mean()), torch.maximum(highest, answers.mean())
        torch.testing.assert_close((low, high), expected, rtol=0, atol=1e-7)


def test_locations_do_not_depend_on_what_else_is_asked(monkeypatch):
    levels = torch.arange(1.0, 6.0, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    mean = 1 + 4 * torch.rand(500, generator=generator, dtype=torch.float64)
    deviation = 0.2 + torch.rand(500, generator=generator, dtype=torch.float64)
    together = distributions.location_for_mean(mean, deviation, levels)
    monkeypatch.setattr(distributions, "MAX_FEW", 0)  # those that are found leave the search
    apart = distributions.location_for_mean(mean, deviation, levels)
    alone = distributions.location_for_mean(mean[7:8], deviation[7:8], levels)
    torch.testing.assert_close(apart, together, rtol=0, atol=1e-12)
    torch.testing.assert_close(alone, together[7:8], rtol=0, atol=1e-12)


def test_a_level_that_is_certain_has_its_interval_around_itself():
    sure = OnLevels(
        torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[0.0, 1.0, 0.0]]).clamp(1e-12).log()
    )
    assert 1.5 <= float(sure.quantile(0.1)) <= 2 <= float(sure.quantile(0.9)) <= 2.5


def test_normal_answers_agree_with_scipy():
    location, deviation = torch.tensor([0.0, 2.0, -1.0]).double(), torch.tensor([1.0, 0.5, 3.0])
    answers = Normal(location, deviation.double())
    reference = stats.norm(location.numpy(), deviation.numpy())
    np.testing.assert_allclose(answers.quantile(0.9).numpy(), reference.ppf(0.9), rtol=1e-7)
    values = torch.tensor([0.3, 1.0, 5.0]).double()
    np.testing.assert_allclose(
        answers.log_likelihood(values).numpy(), reference.logpdf(values.numpy()), rtol=1e-7
    )


def test_normal_answers_on_levels_are_masses_between_midpoints_and_stay_on_the_scale():
    levels = torch.tensor([1.0, 2.0, 5.0]).double()
    answers = Normal(
        torch.tensor([1.8, 9.0], dtype=torch.float64),
        torch.tensor([0.7, 1.0], dtype=torch.float64),
        levels,
    )
    cuts = stats.norm(1.8, 0.7).cdf([1.5, 3.5])
    expected = [cuts[0], cuts[1] - cuts[0], 1 - cuts[1]]
    np.testing.assert_allclose(answers.probabilities()[0].numpy(), expected, atol=1e-9)
    assert answers.mean().tolist() == [1.8, 5.0]
    assert float(answers.quantile(0.99)[1]) == 5.0
    torch.testing.assert_close(
        answers.log_likelihood(torch.tensor([2.0, 5.0]).double()).exp(),
        answers.probabilities()[[0, 1], [1, 2]],
    )


def mixture(cells=5, components=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda: torch.randn(cells, components, generator=generator, dtype=torch.float64)  # noqa: E731
    return LogisticMixture(draw().log_softmax(1), 2 * draw(), draw().exp())


def test_a_mixture_of_logistics_agrees_with_scipy():
    answers = mixture()
    values = torch.linspace(-3, 3, 5).double()
    weights = answers.log_weights.exp().numpy()
    parts = stats.logistic(answers.locations.numpy(), answers.scales.numpy())
    density = (weights * parts.pdf(values.numpy()[:, None])).sum(axis=1)
    np.testing.assert_allclose(answers.log_likelihood(values).numpy(), np.log(density), rtol=1e-9)
    below = (weights * parts.cdf(answers.quantile(0.3).numpy()[:, None])).sum(axis=1)
    np.testing.assert_allclose(below, 0.3, atol=1e-9)
    np.testing.assert_allclose(
        answers.mean().numpy(), (weights * answers.locations.numpy()).sum(axis=1)
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_quantiles_of_steep_and_of_distant_mixtures_are_found_too(dtype):
    generator = torch.Generator().manual_seed(1)
    draw = lambda: torch.randn(2000, 4, generator=generator, dtype=torch.float64)  # noqa: E731
    # Scales from a ten-thousandth to a thousand: plateaus, on which Newton's step leads nowhere.
    scales = (3 * draw()).exp().clamp(1e-4, 1e3)
    answers = LogisticMixture(draw().log_softmax(1), 10 * draw(), scales)
    answers = LogisticMixture(
        answers.log_weights.to(dtype), answers.locations.to(dtype), answers.scales.to(dtype)
    )
    for share in (1e-6, 0.1, 0.5, 0.9):
        value = answers.quantile(share)
        found = answers.rank(value)
        # A hair's breadth of the value changes the rank by as much where scales are small.
        width = 1e-11 if dtype == torch.float64 else 1e-5
        around = [answers.rank(value + side * width * (1 + value.abs())) for side in (-1, 1)]
        assert (around[0] <= share + width).all()
        assert (around[1] >= share - width).all()
        assert (found - share).abs().median() < 1e-6


@pytest.mark.parametrize(
    "answers",
    [
        some_levels(),
        mixture(40),
        mixture(40).on_levels(WIDE),
        Normal(torch.arange(40.0), torch.arange(1.0, 41.0)),
        Calibration.fit(np.linspace(0.2, 0.9, 500)).apply(mixture(40)),
    ],
    ids=["levels", "mixture", "levels with a mixture", "normal", "calibrated"],
)
def test_some_of_the_answers_are_as_they_were_among_all(answers):
    chosen = torch.tensor([7, 3, 3, 30])
    some = answers.take(chosen)
    torch.testing.assert_close(some.mean(), answers.mean()[chosen])
    torch.testing.assert_close(some.quantile(0.2), answers.quantile(0.2)[chosen])


def test_a_mixture_on_levels_gives_each_the_values_nearest_to_it():
    answers, levels = mixture(), torch.tensor([-1.0, 0.0, 2.0]).double()
    on = answers.on_levels(levels)
    torch.testing.assert_close(on.probabilities().sum(dim=1), torch.ones(5).double())
    below = answers.below(torch.tensor([[-0.5, 1.0]]).double().expand(5, 2))
    torch.testing.assert_close(on.probabilities()[:, 0], below[:, 0])
    torch.testing.assert_close(on.probabilities()[:, 1], below[:, 1] - below[:, 0])


def test_real_values_have_no_probabilities():
    with pytest.raises(InputError, match="scale with levels"):
        mixture().probabilities()
    with pytest.raises(InputError, match="scale with levels"):
        Normal(torch.zeros(1), torch.ones(1)).probabilities()


def test_distributions_of_several_kinds_are_joined_in_the_places_of_their_cells():
    parts = Normal(torch.tensor([1.0, 3.0]), torch.ones(2)), Normal(torch.zeros(1), torch.ones(1))
    joined = Joined(((torch.tensor([2, 0]), parts[0]), (torch.tensor([1]), parts[1])))
    assert joined.mean().tolist() == [3, 0, 1]
    np.testing.assert_allclose(joined.quantile(0.5), [3, 0, 1])
    ranks = joined.rank(torch.tensor([3.0, 0.0, 50.0]))
    np.testing.assert_allclose(ranks, [0.5, 0.5, 1])
    some = joined.take(torch.tensor([1, 0, 1]))
    assert some.mean().tolist() == [0, 3, 0]
    assert joined.bounds() is None
