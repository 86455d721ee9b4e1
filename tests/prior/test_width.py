"""Twice as many factors are fitted where these are much better, and nowhere else."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.support import Support
from exchangeable.models import prior_fit
from exchangeable.models.configs import ResidualConfig, build
from exchangeable.prior import width
from exchangeable.prior.prior import Prior
from exchangeable.prior.width import fit_widest
from exchangeable.values.codecs import ValueStats
from exchangeable.values.scale import Scale


def low_rank(factors, shape=(90, 80), noise=0.1, seed=0):
    """A dense table of so many factors of equal size, with noise."""
    rng = np.random.default_rng(seed)
    index = np.stack(np.nonzero(rng.random(shape) < 0.9), axis=1)
    left, right = (rng.normal(size=(size, factors)) for size in shape)
    truth = (left @ right.T)[tuple(index.T)] / np.sqrt(factors)
    values = truth + noise * rng.normal(size=len(index))
    support = Support(torch.from_numpy(index), shape)
    return ExchangeableArray.unchecked(support, torch.from_numpy(values)[:, None])


def prior_of(table, rank, widest):
    stats = ValueStats.of(table.values.squeeze(1).numpy(), Scale("real", ()))
    return Prior.of(table, stats, rank, widest=widest)


def test_a_table_of_more_factors_than_usual_gets_twice_as_many_until_all_are_found():
    table = low_rank(6)
    hide = torch.arange(len(table)) % 10 == 0
    seen, asked = table.take(~hide), table.support.index[hide]
    truth = table.values[hide].squeeze(1)
    errors = []
    for widest, expected in ((2, 2), (4, 4), (16, 8)):
        prior = prior_of(seen, 2, widest)
        models = [prior.fitted, *(each.fitted for each in prior.holdouts)]
        assert {each.fine.layout.rank for each in models} == {expected}
        assert {each.coarse.layout.rank for each in models} == {expected // 2}
        mean = prior.stats.mean + prior.stats.deviation * prior.predict(asked)[0]
        errors.append(float((mean - truth).square().mean().sqrt()))
    assert errors[0] > 1.2 * errors[1] > 2 * errors[2]
    assert errors[2] < 0.2


@pytest.mark.parametrize(("factors", "noise"), [(2, 0.1), (0, 1.0), (6, 3.0)])
def test_factors_that_are_not_there_are_not_fitted(factors, noise):
    """Of the second table nothing is to be found, of the third too little."""
    table = low_rank(max(factors, 1), noise=noise)
    if not factors:
        table = ExchangeableArray(table.support, torch.randn(len(table), 1).double())
    assert prior_of(table, 4, 16).fitted.fine.layout.rank == 4


def stub_fits(monkeypatch, errors, coarse=1.0, cells=40):
    """Fits whose errors on all cells, or on the first of them alone, are given by rank."""
    monkeypatch.setattr(width, "is_full", lambda posterior: True)
    asked = []

    def posterior(error):
        first = torch.arange(cells) == 0
        away = torch.where(first, error, 1e-3) if lonely else torch.full((cells,), error)
        return SimpleNamespace(predict_mean=lambda index: away)

    lonely = cells == 41

    def fit(rank):
        asked.append(rank)
        return SimpleNamespace(rank=rank, fine=posterior(errors[rank]), coarse=posterior(coarse))

    def choose(rank, widest):
        fitted, chosen = fit_widest(fit, rank, widest, torch.zeros(cells, 2), torch.zeros(cells))
        assert fitted.rank == chosen
        return chosen, asked

    return choose


def test_twice_as_many_factors_stay_only_if_they_are_better_themselves(monkeypatch):
    """However much better the fine factorization was than the coarse one."""
    assert stub_fits(monkeypatch, {4: 0.5, 8: 0.47})(4, 64) == (4, [4, 8])
    assert stub_fits(monkeypatch, {4: 0.5, 8: 0.6})(4, 64) == (4, [4, 8])
    assert stub_fits(monkeypatch, {4: 0.9, 8: 0.2})(4, 64) == (4, [4])  # nothing hints at them
    assert stub_fits(monkeypatch, {4: 0.5, 8: 0.2})(4, 8) == (8, [4, 8])


def test_there_are_never_more_factors_than_the_widest(monkeypatch):
    assert stub_fits(monkeypatch, {4: 0.5, 6: 0.2})(4, 6) == (6, [4, 6])
    assert stub_fits(monkeypatch, {4: 0.5})(4, 4) == (4, [4])


def test_a_gain_on_a_single_cell_is_chance(monkeypatch):
    assert stub_fits(monkeypatch, {4: 0.5, 8: 0.2}, cells=41)(4, 64) == (4, [4])


def test_where_some_factors_died_there_are_no_more():
    table = low_rank(6)
    full, half_dead = (prior_of(table, rank, rank).fitted.fine for rank in (4, 12))
    assert full.layout.rank == 4
    assert width.is_full(full)
    assert half_dead.layout.rank == 12
    assert not width.is_full(half_dead)


def test_a_width_does_not_depend_on_how_members_are_numbered():
    table = low_rank(6)
    flipped = ExchangeableArray(
        Support(
            torch.stack([each.amax() - each for each in table.support.index.T], dim=1),
            table.support.shape,
        ),
        table.values,
    )
    plain, again = (prior_of(each, 4, 16) for each in (table, flipped))
    assert plain.fitted.fine.layout.rank == again.fitted.fine.layout.rank == 8
    one, other = plain.predict(table.support.index)[0], again.predict(flipped.support.index)[0]
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_more_factors_than_usual_are_tried_within_the_limit_of_memory_only():
    table = low_rank(6)
    model = build(ResidualConfig(1, 1, width=8, depth=1, heads=2, prior=4))
    stats = ValueStats.of(table.values.squeeze(1).numpy(), Scale("real", ()))
    used = prior_fit.used_memory(model.device)
    room = {rank: prior_fit.prior_size(table.shape, len(table), rank) for rank in (4, 6)}
    ranks, notes = [], []
    for limit in (None, used + room[6], used + room[4]):
        prior = prior_fit.fit_prior(model, table, stats, limit=limit, note=notes.append)
        ranks.append(prior.fitted.fine.layout.rank)
    assert ranks[0] == 8
    assert 4 <= ranks[2] <= ranks[1] <= 6
