"""Cells that models are compared on are predicted by nothing that has read them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from exchangeable import Completer
from exchangeable.metrics import coverage
from exchangeable.predictors.holdouts import find_held_out
from exchangeable.prior import fit
from exchangeable.prior.closed_form_fit import BIASES, fit_closed_form
from exchangeable.prior.drift import Drift
from exchangeable.prior.factor_fit import Sweeps
from exchangeable.prior.fit import fit_models
from exchangeable.prior.side_information import NO_SIDE_INFORMATION, SideInformation
from exchangeable.sums.member_sums import MemberSums


def noise_table(members=120, cells=2000, seed=0):
    """Noise alone, of which members have few cells each: whoever has read a cell can tell it."""
    generator = np.random.default_rng(seed)
    index = np.unique(generator.integers(0, members, (cells, 2)), axis=0)
    return index, generator.normal(size=len(index))


@pytest.fixture(scope="module")
def model():
    return Completer("pretrained").fit(*noise_table())


def means_of(predictor, cells):
    """Predicted means of all held-out cells, holdout by holdout and fold by fold."""
    parts = [each for held_out in find_held_out(predictor, cells) for each in held_out.read().folds]
    return torch.cat([part.predictions.mean() for part in parts])


def test_held_out_cells_are_predicted_with_the_trust_found_without_their_fold(model):
    predictor, cells = model.predictor_, model.cells_
    prior, fold = predictor.prior, 2
    crossed = prior.trust.crossed.clone()
    assert not torch.equal(prior.trust.weights, crossed[fold])
    crossed[fold] += 1
    changed = replace(prior, trust=replace(prior.trust, crossed=crossed))
    found = [means_of(each, cells) for each in (predictor, replace(predictor, prior=changed))]
    folds = torch.cat([each.fold.sort().values for each in prior.holdouts])
    moved = (found[0] - found[1]).abs() > 1e-6
    assert not moved[folds != fold].any()
    assert moved[folds == fold].float().mean() > 0.9


def test_held_out_cells_are_predicted_without_the_models_of_all_cells(model):
    predictor, cells = model.predictor_, model.cells_
    shuffled = np.random.default_rng(1).permutation(cells.values)
    foreign = Completer("pretrained").fit(cells.index, shuffled).predictor_.prior.fitted
    changed = replace(predictor, prior=replace(predictor.prior, fitted=foreign))
    index = torch.from_numpy(cells.index)
    assert (changed.prior(index) - predictor.prior(index)).abs().max() > 0.1
    torch.testing.assert_close(means_of(changed, cells), means_of(predictor, cells))


def test_held_out_cells_are_predicted_without_the_pools_of_all_cells(model):
    predictor, cells = model.predictor_, model.cells_
    foreign = Completer("pretrained").fit(cells.index, cells.values[::-1].copy()).predictor_
    changed = replace(predictor, memory=foreign.memory)
    torch.testing.assert_close(means_of(changed, cells), means_of(predictor, cells))


def test_models_fitted_without_cells_do_not_depend_on_the_values_of_these():
    index, values = (torch.from_numpy(part) for part in noise_table(members=30, cells=300))
    held_out = torch.arange(len(index)) % 5 == 0
    found = []
    for shift in (0.0, 7.0):
        shifted = values + shift * held_out
        sums = [each.without(held_out) for each in MemberSums.by_axis(index, (30, 30))]
        biases = BIASES.posterior_of(index, values, (30, 30)).forget_members()
        fitted = fit_closed_form(
            index, shifted, sums, 3, biases=biases, held_out=held_out, sweeps=Sweeps(4, 2)
        )
        estimates = fitted.estimates(index)
        found.append(torch.cat([estimates.base[:, None], estimates.columns], dim=1))
    torch.testing.assert_close(found[0], found[1])


def test_no_model_of_a_trial_reads_the_values_of_its_cells(monkeypatch):
    """These are other ones by the time that the models are fitted."""
    index, values = (torch.from_numpy(part) for part in noise_table(members=60, cells=900))
    found, plain = [], fit.fit_closed_form
    spoilt = []

    def spoil(index, values, *given, held_out=None, **options):
        if held_out is not None:
            spoilt.append(int(held_out.sum()))
            for means in options["biases"].means:  # from which they start
                assert (means == means[:1]).all()
            values = torch.where(held_out, 100.0, values)
        return plain(index, values, *given, held_out=held_out, **options)

    for fit_one in (plain, spoil):
        monkeypatch.setattr(fit, "fit_closed_form", fit_one)
        found.append(fit_models(index, values, (60, 60), 3, np.inf, NO_SIDE_INFORMATION)[1:])
    (trust, holdouts), (same, others) = found
    assert spoilt == [int(each.mask.sum()) for each in holdouts]
    torch.testing.assert_close(trust.weights, same.weights)
    for one, other in zip(holdouts, others, strict=True):
        estimates = (each.fitted.estimates(index) for each in (one, other))
        torch.testing.assert_close(*(torch.cat([e.base[:, None], e.columns], 1) for e in estimates))
        torch.testing.assert_close(one.estimates.columns, other.estimates.columns)


def test_drift_of_a_trial_is_fitted_without_its_cells(monkeypatch):
    """So is the width chosen: on values of these cells without that drift."""
    generator = np.random.default_rng(1)
    index = np.argwhere(generator.random((10, 200)) < 0.8)
    times = generator.integers(0, 6, len(index))
    values = generator.normal(size=(10, 6))[index[:, 0], times]
    values = torch.from_numpy(values + 0.3 * generator.normal(size=len(index)))
    index, times = torch.from_numpy(index), torch.from_numpy(times).double()
    tried, plain = [], fit.fit_widest

    def record(fit_others, rank, widest, cells, truth):
        tried.append((cells, truth))
        return plain(fit_others, rank, widest, cells, truth)

    monkeypatch.setattr(fit, "fit_widest", record)
    side = SideInformation(times)
    _, _, holdouts = fit_models(index, values, (10, 200), 2, np.inf, side)
    assert len(holdouts) == 3
    for holdout in holdouts:
        others = ~holdout.mask
        alone = Drift.fit(index[others], values[others], times[others], (10, 200))
        torch.testing.assert_close(holdout.fitted.drift.at(index, times), alone.at(index, times))
    ((cells, truth),) = tried
    first = holdouts[0]
    assert torch.equal(cells, index[first.mask])
    moved = values - first.fitted.drift.at(index, times)
    torch.testing.assert_close(truth, moved[first.mask])
    assert (truth - values[first.mask]).abs().max() > 0.5


def test_cells_are_held_out_alike_in_however_many_blocks_they_are_drawn(monkeypatch):
    index, values = (torch.from_numpy(part) for part in noise_table(members=60, cells=900))
    values = values * (1 + index[:, 0])  # blocks of cells differ in size
    found = []
    for size in (1 << 22, 100):
        monkeypatch.setattr(fit, "CELLS_PER_DRAW", size)
        found.append(fit_models(index, values, (60, 60), 2, np.inf, NO_SIDE_INFORMATION)[2])
    assert [each.mask.tolist() for each in found[0]] == [each.mask.tolist() for each in found[1]]
    assert [each.fold.tolist() for each in found[0]] == [each.fold.tolist() for each in found[1]]


def test_trials_are_predicted_by_models_that_were_fitted_without_them():
    index, values = (torch.from_numpy(part) for part in noise_table(members=60, cells=900))
    _, _, holdouts = fit_models(index, values, (60, 60), 3, np.inf, NO_SIDE_INFORMATION)
    for holdout in holdouts:
        assert holdout.mask[holdout.cells].all()
        again = holdout.fitted.estimates(index[holdout.cells])
        torch.testing.assert_close(again.columns, holdout.estimates.columns)
        error = (values[holdout.cells] - holdout.estimates.base).square().mean()
        assert (
            error > 0.85 * values[holdout.cells].square().mean()
        )  # of noise nothing is known in advance


@pytest.mark.parametrize("name", ["pretrained", "auto"])
def test_intervals_of_noise_are_as_wide_as_the_noise(name):
    """Calibrated on cells that were read, they would be far too narrow here."""
    index, values = noise_table(cells=3000, seed=3)
    hidden = np.random.default_rng(0).random(len(values)) < 0.4
    completer = Completer(name).fit(index[~hidden], values[~hidden])
    for share in (0.5, 0.8):
        held = coverage(values[hidden], completer.predict_interval(index[hidden], share))
        assert abs(held - share) < 0.06
