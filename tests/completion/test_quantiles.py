"""Quantiles and draws of a completer agree with its intervals, probabilities and means."""

import numpy as np
import polars as pl
import pytest
from tests.completion.test_explain import positives
from tests.support.film_club import ASKED, LABELS, RATINGS

from exchangeable.completion.completer import Completer
from exchangeable.errors import InputError
from exchangeable.predictors import base as predictor

SHARES = (0.9, 0.1, 0.5, 0.5 + 1e-10, 0.1 + 1e-12, 0.99, 0.01)


def real_completer(model):
    noise = np.random.default_rng(0).normal(size=len(RATINGS))
    return Completer(model).fit(LABELS, RATINGS + 0.1 * noise)


@pytest.mark.parametrize("model", ["pretrained", "vmf"])
def test_quantiles_are_the_ends_of_intervals_and_ascend(model):
    completer = real_completer(model)
    found = completer.predict_quantiles(ASKED, SHARES)
    assert found.shape == (len(ASKED), len(SHARES))
    assert (np.diff(found[:, np.argsort(SHARES)], axis=1) >= 0).all()
    np.testing.assert_allclose(found[:, [1, 0]], completer.predict_interval(ASKED, 0.8), atol=1e-9)
    np.testing.assert_allclose(found[:, [6, 5]], completer.predict_interval(ASKED, 0.98), atol=1e-9)
    assert (found[:, 0] - found[:, 1] > 0.1).all()
    usual = completer.predict_quantiles(ASKED)
    np.testing.assert_allclose(usual, found[:, [1, 2, 0]], atol=1e-7)


TABLES = {
    "ratings": lambda latent: (3 + 2 * latent).round().clip(1, 5),
    "signs": lambda latent: np.where(latent > -0.8, 1.0, -1.0),
    "zero and five": lambda latent: np.where(latent > 0.5, 5.0, 0.0),
    "counts": lambda latent: np.exp(2 * latent - 1).round().clip(0, 9),
    "heavy tails": lambda latent: np.exp(4 + 3 * latent).round(),
    "real": lambda latent: latent,
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("model", ["pretrained", "bias", "mean"])
def test_intervals_contain_their_own_mean(model, kind):
    generator = np.random.default_rng(1)
    latent = generator.normal(size=(40, 1)) + generator.normal(size=25)
    whole = TABLES[kind](0.7 * (latent + 0.5 * generator.normal(size=latent.shape)))
    kept = generator.random(whole.shape) < 0.4
    completer = Completer(model).fit(np.argwhere(kept), whole[kept])
    asked, truth = np.argwhere(~kept), whole[~kept]
    mean = completer.predict(asked)
    for coverage in (0.5, 0.8, 0.98):
        low, high = completer.predict_interval(asked, coverage).T
        assert (low <= mean).all()
        assert (mean <= high).all()
    if model == "pretrained":
        low, high = completer.predict_interval(asked).T
        assert ((low <= truth) & (truth <= high)).mean() > 0.74


@pytest.mark.parametrize("model", ["pretrained", "vmf"])
def test_quantiles_on_levels_are_within_them(fitted, model):
    found = fitted(model).predict_quantiles(ASKED, np.linspace(0.001, 0.999, 200))
    assert (np.diff(found, axis=1) >= 0).all()
    assert found.min() >= 1
    assert found.max() <= 5


def test_cells_are_predicted_once_for_all_quantiles(fitted, monkeypatch):
    completer, calls = fitted("vmf"), []
    once = type(completer.predictor_).predict

    def count(self, index, times=None):
        calls.append(len(index))
        return once(self, index, times)

    monkeypatch.setattr(type(completer.predictor_), "predict", count)
    completer.predict_quantiles(ASKED, (0.1, 0.2, 0.3, 0.4))
    completer.sample(ASKED, 5)
    assert calls == [len(ASKED)] * 2


@pytest.mark.parametrize("model", ["pretrained", "vmf"])
def test_draws_on_levels_follow_the_probabilities(fitted, model):
    completer, asked = fitted(model), ASKED.head(5)
    draws = completer.sample(asked, 8000, seed=1)
    assert draws.shape == (8000, 5)
    shares = np.stack([(draws == level).mean(axis=0) for level in completer.levels_], axis=1)
    np.testing.assert_allclose(shares.sum(axis=1), 1)  # nothing but levels
    np.testing.assert_allclose(shares, completer.predict_proba(asked), atol=0.025)
    across = np.corrcoef(draws.T)[np.triu_indices(5, 1)]
    assert np.abs(across).max() < 0.05


@pytest.mark.parametrize("model", ["pretrained", "vmf"])
def test_draws_of_real_numbers_lie_below_quantiles_as_often_as_these_say(model):
    completer, asked = real_completer(model), ASKED.head(5)
    draws = completer.sample(asked, 8000)
    for share, ends in zip((0.1, 0.5, 0.9), completer.predict_quantiles(asked).T, strict=True):
        np.testing.assert_allclose((draws <= ends).mean(axis=0), share, atol=0.02)
    assert len(np.unique(draws)) > 0.9 * draws.size


def test_draws_of_positives_are_ones_as_often_as_their_chances():
    completer = Completer("pretrained").fit(positives())
    asked = [(3, item) for item in range(30)]
    draws = completer.sample(asked, 4000)
    assert set(np.unique(draws)) == {0, 1}
    np.testing.assert_allclose(draws.mean(axis=0), completer.predict(asked), atol=0.035)


def test_a_seed_gives_the_same_draws_in_whatever_chunks(fitted, monkeypatch):
    completer = fitted("vmf")
    one = completer.sample(ASKED, 3, seed=7)
    assert not np.array_equal(one, completer.sample(ASKED, 3, seed=8))
    monkeypatch.setattr(predictor, "CELLS_PER_CHUNK", 7)
    np.testing.assert_array_equal(one, completer.sample(ASKED, 3, seed=7))
    assert completer.sample(ASKED).shape == (1, len(ASKED))
    assert completer.sample(ASKED.head(0), 2).shape == (2, 0)
    assert completer.predict_quantiles(ASKED.head(0)).shape == (0, 3)


def test_cells_may_have_times():
    cells = pl.DataFrame({"user": list("aabbcc"), "film": list("xyxyxz")})
    completer = Completer("vmf").fit(cells, [0.12, 2.5, 3.1, 1.7, 2.2, 0.9], times=range(6))
    assert completer.sample(cells, 2, times=range(6)).shape == (2, 6)
    assert completer.predict_quantiles(cells, times=range(6)).shape == (6, 3)


def test_shares_and_numbers_that_make_no_sense_are_one_line(fitted):
    completer = fitted("vmf")
    for shares in ((), (0.0, 0.5), (1.0,), (np.nan,), 0.5, "half", [[0.5]], (None,)):
        with pytest.raises(InputError, match="shares must be numbers between 0 and 1, but are "):
            completer.predict_quantiles(ASKED, shares)
    for n in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="n must be a whole number of 1 or more, but is"):
            completer.sample(ASKED, n)
    with pytest.raises(InputError, match="seed must be a whole number"):
        completer.sample(ASKED, seed=-1)
