"""Cells that models are compared on are predicted by nothing that has read them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from exchangeable import Completer
from exchangeable.metrics import coverage
from exchangeable.predictors.holdouts import find_held_out
from exchangeable.prior.closed_form_fit import BIASES, fit_closed_form
from exchangeable.prior.factor_fit import Sweeps
from exchangeable.prior.fit import fit_models
from exchangeable.prior.side_information import NO_SIDE_INFORMATION
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
