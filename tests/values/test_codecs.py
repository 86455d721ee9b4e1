"""Values go in as channels and come out as distributions, on any scale."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from exchangeable.data.negatives import draw_negatives, draw_negatives_among
from exchangeable.errors import InputError
from exchangeable.values.calibration import Calibration
from exchangeable.values.codecs import (
    OneHot,
    ScaleFree,
    ValueStats,
    codec_for,
    codec_from_json,
    codec_to_json,
)
from exchangeable.values.distributions import (
    LogisticMixture,
    Normal,
    OnLevels,
    level_edges,
    nearest_level,
)
from exchangeable.values.losses import loss_of
from exchangeable.values.scale import Scale

STARS = Scale("levels", (1.0, 2.0, 3.0, 4.0, 5.0))


def some_levels(seed=0, cells=40, levels=(1.0, 2.0, 3.0, 4.0, 5.0)):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(cells, len(levels), generator=generator, dtype=torch.float64)
    return OnLevels(torch.tensor(levels, dtype=torch.float64), scores.log_softmax(dim=1))


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


def test_the_nearest_level_of_a_value_between_two():
    levels = torch.tensor([1.0, 2.0, 10.0])
    assert nearest_level(torch.tensor([0.0, 1.4, 1.6, 5.9, 6.1, 99.0]), levels).tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]
    assert nearest_level(torch.tensor([3.0]), torch.tensor([7.0])).tolist() == [0]


def test_few_levels_are_one_hot_and_others_scale_free_unless_asked_for():
    assert codec_for(STARS) == OneHot(5, STARS.levels)
    assert isinstance(codec_for(Scale("real")), ScaleFree)
    assert isinstance(codec_for(Scale("levels", tuple(map(float, range(101))))), ScaleFree)
    assert isinstance(codec_for(STARS, "scale-free"), ScaleFree)
    with pytest.raises(InputError, match="one-hot"):
        codec_for(Scale("real"), "one-hot")
    with pytest.raises(InputError, match="encoding"):
        codec_for(STARS, "ordinal")


@pytest.mark.parametrize("codec", [OneHot(7), ScaleFree(3)])
def test_a_codec_comes_back_from_json(codec):
    assert codec_from_json(codec_to_json(codec)) == codec


def test_one_hot_marks_the_level_of_each_value():
    values = np.array([1.0, 5.0, 3.0])
    reference = ValueStats.of(values, STARS)
    encoded = OneHot(5).encode(torch.from_numpy(values), reference)
    assert encoded.tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 1, 0, 0]]


def test_scale_free_encoding_does_not_know_units():
    generator = np.random.default_rng(0)
    values = generator.normal(size=300)
    codec = ScaleFree()
    one = codec.encode(torch.from_numpy(values), ValueStats.of(values, Scale("real")))
    other_values = 12.5 * values - 40
    other = codec.encode(torch.from_numpy(other_values), ValueStats.of(other_values, Scale("real")))
    torch.testing.assert_close(one, other)
    assert float(one[:, 0].mean()) == pytest.approx(0, abs=1e-9)
    assert float(one[:, 0].std(correction=0)) == pytest.approx(1)


def test_ranks_are_those_of_the_observed_values_with_ties_in_the_middle():
    values = np.array([1.0] * 50 + [2.0] * 100 + [3.0] * 50)
    ranks = ValueStats.of(values, STARS).ranks(torch.tensor([0.0, 1.0, 2.0, 3.0, 9.0]).double())
    np.testing.assert_allclose(ranks.numpy(), [-1, -0.75, 0, 0.75, 1], atol=0.02)


def test_ties_at_either_end_have_ranks_of_equal_size():
    def ranks(*values):
        given = np.array(values)
        return ValueStats.of(given, STARS).ranks(torch.from_numpy(given)).tolist()

    assert ranks(1.0, 5.0, 5.0) == [-1.0, 0.5, 0.5]
    assert ranks(1.0, 1.0, 5.0) == [-0.5, -0.5, 1.0]


def test_answers_of_a_scale_free_model_move_with_the_units():
    codec, outputs = ScaleFree(2), torch.randn(6, 6, dtype=torch.float64)
    values = np.random.default_rng(0).normal(size=100)
    one = codec.read(outputs, ValueStats.of(values, Scale("real")))
    other = codec.read(outputs, ValueStats.of(3 * values + 7, Scale("real")))
    torch.testing.assert_close(3 * one.mean() + 7, other.mean())
    torch.testing.assert_close(3 * one.quantile(0.9) + 7, other.quantile(0.9))


def test_equal_values_are_legal_and_give_themselves():
    values = np.full(10, 4.0)
    reference = ValueStats.of(values, Scale.of(values))
    for codec in (OneHot(1), ScaleFree()):
        encoded = codec.encode(torch.from_numpy(values), reference)
        assert encoded.isfinite().all()
        answers = codec.read(torch.randn(3, codec.out_channels).double(), reference)
        assert answers.mean().tolist() == pytest.approx([4.0] * 3)
        assert answers.quantile(0.1).tolist() == [4.0] * 3


def test_losses_are_what_their_names_say():
    answers = some_levels(cells=3)
    truth = torch.tensor([1.0, 3.0, 5.0]).double()
    reference = ValueStats.of(np.array([1.0, 5.0]), STARS)
    surprise = -sum(
        math.log(answers.probabilities()[cell, int(level) - 1])
        for cell, level in enumerate(truth.tolist())
    )
    squared = ((answers.mean() - truth) / 2).square().mean()  # the deviation of 1 and 5 is 2
    both = loss_of(answers, truth, reference, "both", 3.0)
    assert float(loss_of(answers, truth, reference, "cross-entropy", 3.0)) == pytest.approx(
        surprise / 3
    )
    torch.testing.assert_close(loss_of(answers, truth, reference, "squared", 3.0), squared)
    assert float(both) == pytest.approx(surprise / 3 + 3 * float(squared))


@pytest.mark.parametrize("number", [5, 20, 40, 1000])
def test_negatives_are_cells_that_were_not_observed_and_none_comes_twice(number):
    generator = np.random.default_rng(1)
    shape = (6, 8)
    seen = np.argwhere(generator.random(shape) < 0.3).astype(np.int64)
    drawn = draw_negatives(seen, shape, number, np.random.default_rng(0))
    cells = {tuple(cell) for cell in drawn.tolist()}
    assert len(cells) == len(drawn) == min(number, 48 - len(seen))
    assert not cells & {tuple(cell) for cell in seen.tolist()}


def test_negatives_lie_where_the_given_members_meet():
    seen = np.array([[0, 0], [2, 1], [5, 3]])
    members = [np.array([0, 2]), np.array([1, 3, 4])]
    drawn = draw_negatives_among(members, seen, (6, 5), 100, np.random.default_rng(0))
    expected = {(0, 1), (0, 3), (0, 4), (2, 3), (2, 4)}
    assert {tuple(cell) for cell in drawn.tolist()} == expected


def test_negatives_are_as_likely_everywhere():
    seen = np.array([[0, 0], [1, 1]])
    counts = np.zeros((3, 3))
    for seed in range(2000):
        for cell in draw_negatives(seen, (3, 3), 2, np.random.default_rng(seed)):
            counts[tuple(cell)] += 1
    assert counts[0, 0] == counts[1, 1] == 0
    free = counts[counts > 0]
    assert len(free) == 7
    np.testing.assert_allclose(free / 4000, 1 / 7, atol=0.02)
