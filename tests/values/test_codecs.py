"""Values go in as channels and come out as distributions, on any scale."""

import math

import numpy as np
import pytest
import torch
from tests.support.values import some_levels

from exchangeable.errors import InputError
from exchangeable.values import codecs
from exchangeable.values.codecs import (
    OneHot,
    ScaleFree,
    ValueStats,
    codec_for,
    codec_from_json,
    codec_to_json,
)
from exchangeable.values.losses import loss_of
from exchangeable.values.scale import Scale

STARS = Scale("levels", (1.0, 2.0, 3.0, 4.0, 5.0))


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


def test_quantiles_of_many_values_on_levels_come_from_counts(monkeypatch):
    rng = np.random.default_rng(0)
    scale = Scale("levels", (1.0, 2.0, 3.5, 4.0, 7.0))
    values = rng.choice([1.0, 3.5, 4.0, 7.0], 1000, p=[0.1, 0.2, 0.69, 0.01])
    expected = ValueStats.of(values, scale)
    monkeypatch.setattr(codecs, "MIN_COUNTED", 300)
    found = ValueStats.of(values, scale)
    assert found.knots == pytest.approx(expected.knots)
    assert (found.mean, found.deviation) == (expected.mean, expected.deviation)


@pytest.mark.parametrize("kind", ["cross-entropy", "squared", "both", "relative"])
def test_a_loss_of_shares_is_that_of_the_cells_that_have_one(kind):
    reference = ValueStats.of(np.array([1.0, 2.0, 3.0]), Scale("levels", (1.0, 2.0, 3.0)))
    answers = OneHot(3).read(torch.randn(20, 3, dtype=torch.float64), reference)
    truth = torch.randint(1, 4, (20,)).double()
    chosen = torch.arange(20) % 3 == 0
    expected = loss_of(answers.take(chosen), truth[chosen], reference, kind, 2.0)
    found = loss_of(answers, truth, reference, kind, 2.0, chosen.double() / chosen.sum())
    torch.testing.assert_close(found, expected)
