"""Intervals hold as many cells as they say, whatever the errors of a table are like."""

from dataclasses import replace
from operator import methodcaller

import numpy as np
import pytest
import torch
from scipy import stats

from exchangeable import Completer
from exchangeable.completion.select import predict_and_rank
from exchangeable.errors import InputError
from exchangeable.metrics import coverage
from exchangeable.predictors.base import read_predictions
from exchangeable.predictors.baseline import fit_baseline
from exchangeable.predictors.holdouts import find_held_out
from exchangeable.prior import fit
from exchangeable.prior.closed_form_fit import BIASES, fit_closed_form
from exchangeable.prior.factor_fit import Schedule, Sweeps
from exchangeable.prior.prior import Prior
from exchangeable.sums.member_sums import MemberSums
from exchangeable.training.config import TrainingConfig
from exchangeable.values.calibration import SHARES, UNCALIBRATED, Calibration
from exchangeable.values.codecs import ValueStats
from exchangeable.values.distributions import Normal


def peaked_table(seed=0, members=60):
    """Biases, and errors that are small but for a few: the outer deviations say little."""
    generator = np.random.default_rng(seed)
    index = np.argwhere(generator.random((members, members)) < 0.8)
    row, column = generator.normal(size=(2, members))
    noise = generator.standard_t(2.2, size=len(index))
    return index, row[index[:, 0]] + column[index[:, 1]] + noise


def test_hidden_cells_tell_which_quantiles_have_so_many_below_them():
    generator = np.random.default_rng(0)
    truth = torch.from_numpy(generator.normal(size=20_000))
    answers = Normal(torch.zeros(20_000).double(), torch.full((20_000,), 3.0).double())
    found = Calibration.fit(answers.rank(truth).numpy())
    set_right = found.apply(answers)
    for share in (0.025, 0.1, 0.33, 0.5, 0.9, 0.99):
        wanted = stats.norm.ppf(share)
        assert float(set_right.quantile(share)[0]) == pytest.approx(wanted, abs=0.12)
    torch.testing.assert_close(set_right.mean(), answers.mean())
    torch.testing.assert_close(set_right.log_likelihood(truth), answers.log_likelihood(truth))


def test_the_fewer_cells_tell_the_less_is_changed():
    few, many = (Calibration.fit(np.full(n, 0.5)) for n in (5, 5000))
    assert 0.1 < few(0.1) < 0.15 < 0.45 < many(0.1) < 0.5
    assert Calibration.fit(np.empty(0)) == UNCALIBRATED


def test_quantiles_still_ascend():
    found = Calibration.fit(np.full(10_000, 0.3))
    taken = [found(share) for share in np.linspace(0.001, 0.999, 200)]
    assert (np.diff(taken) > 0).all()
    assert 0 < taken[0] < taken[-1] < 1


def test_as_answered_changes_nothing():
    answers = Normal(torch.zeros(2), torch.ones(2))
    assert UNCALIBRATED.apply(answers) is answers
    assert UNCALIBRATED(0.123) == 0.123


@pytest.mark.parametrize(
    "quantiles", [(0.0, 1.0), tuple(SHARES[::-1]), tuple(2 * SHARES), (float("nan"), *SHARES[1:])]
)
def test_what_is_none_is_refused(quantiles):
    with pytest.raises(InputError, match="ascend within 0 and 1"):
        Calibration(quantiles)


def test_ranks_are_even_where_answers_are_right():
    index, values = peaked_table()
    generator = np.random.default_rng(1)
    values = values - values + generator.normal(size=len(values))
    cells = Completer("bias").fit(index, values).cells_
    predictor = fit_baseline("bias", cells, 0)
    fresh = generator.normal(size=len(values))
    means, ranks = predict_and_rank(predictor, replace(cells, values=fresh))
    assert means.shape == ranks.shape == values.shape
    assert stats.kstest(ranks, "uniform").statistic < 0.06


@pytest.mark.parametrize("model", ["pretrained", "auto"])
def test_intervals_hold_what_they_say_where_errors_are_peaked(model):
    index, values = peaked_table(members=90)
    hide = np.random.default_rng(2).random(len(values)) < 0.3
    completer = Completer(model).fit(index[~hide], values[~hide])
    plain = Completer("bias").fit(index[~hide], values[~hide])
    for share in (0.5, 0.8):
        held = coverage(values[hide], completer.predict_interval(index[hide], share))
        assert abs(held - share) < 0.05
    assert coverage(values[hide], plain.predict_interval(index[hide], 0.5)) > 0.57
    assert any("calibrated" in note for note in completer.notes_)


def test_what_was_found_stays_with_new_cells_and_new_members():
    index, values = peaked_table(members=20)
    completer = Completer("pretrained").fit(index, values)
    found = completer.predictor_.calibration
    assert found != UNCALIBRATED
    new = [(99, 1), (99, 2)]
    assert completer.update(new, [0.5, 1.5]).predictor_.calibration == found
    assert completer.refresh().predictor_.calibration == found
    newcomer = completer.predictor_.for_new_members(0, np.array([[0, 1]]), np.array([0.5]))
    assert newcomer.read.calibration == found


def test_a_model_trained_here_is_set_right_by_the_cells_kept_back():
    index, values = peaked_table(members=30)
    quick = TrainingConfig(steps=2, evaluate_every=1)
    completer = Completer("residual", training=quick, validation=0.2).fit(index, values)
    found = completer.predictor_.calibration
    assert found != UNCALIBRATED
    tuned = completer.finetune(training=quick)
    assert tuned.predictor_.calibration != UNCALIBRATED
    none = Completer("residual", training=quick, validation=0.0).fit(index, values)
    assert none.predictor_.calibration == UNCALIBRATED


def test_who_answers_for_cells_left_out_never_saw_them():
    index, values = peaked_table(members=30)
    completer = Completer("pretrained").fit(index, values)
    model, cells = completer.predictor_, completer.cells_
    parts = find_held_out(model, cells)
    assert len(parts) == fit.MAX_HOLDOUTS
    assert not np.any(sum(each.mask.astype(int) for each in parts) > 1)
    for number, held_out in enumerate(parts):
        other = replace(cells, values=np.where(held_out.mask, 1e3, cells.values))
        again = find_held_out(model, other)[number]
        np.testing.assert_array_equal(again.mask, held_out.mask)
        for positions, found, same in zip(
            held_out.folds, held_out.read().folds, again.read().folds, strict=True
        ):
            mine = found.predictions.mean().numpy()
            np.testing.assert_array_equal(mine, same.predictions.mean().numpy())
            (whole,) = read_predictions(model, cells.index[positions], methodcaller("mean"))
            assert np.abs(mine - whole).max() > 1e-3


def test_what_was_believed_without_cells_stays_when_factors_go_on_from_there(monkeypatch):
    index, values = peaked_table(members=30)
    cells = Completer("mean").fit(index, values).cells_
    reference = ValueStats.of(cells.values, cells.scale)
    large = Schedule(Sweeps(6, 3), Sweeps(2, 2), warm=True)
    monkeypatch.setattr(Schedule, "of", lambda cells: large)
    found = Prior.of(cells.to_array(), reference, 3)
    left = found.holdouts[-1]
    kept = ~left.mask
    standard = reference.standardise(torch.from_numpy(cells.values))
    every = torch.from_numpy(cells.index)
    with torch.no_grad():
        biases = BIASES.posterior_of(every, standard, cells.shape)
        alone, cold = (
            fit_closed_form(
                *given, MemberSums.by_axis(given[0], cells.shape), 3, biases=start, sweeps=sweeps
            )
            for *given, start, sweeps in (
                (every[kept], standard[kept], biases.forget_members(), large.most),
                (every, standard, biases, large.all),
            )
        )
    for name in ("biases", "fine", "coarse"):
        mine, theirs, whole, anew = (
            torch.cat([means.flatten() for means in getattr(each, name).means])
            for each in (left.fitted, alone, found.fitted, cold)
        )
        torch.testing.assert_close(mine, theirs)
        assert (mine - whole).abs().max() > 1e-6
        if name != "biases":  # which converge from anywhere
            assert whole.shape != anew.shape or (whole - anew).abs().max() > 1e-3
