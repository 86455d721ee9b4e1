"""Held-out cells of a table correct the pretrained model's means where they say so for sure."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from exchangeable import Completer
from exchangeable.completion import select
from exchangeable.completion.select import compare_models
from exchangeable.metrics import rmse
from exchangeable.predictors.correction import (
    Correction,
    HeldOutTerms,
    _ridge,
    correct,
    describe_cells,
    fit_correction,
)
from exchangeable.predictors.holdouts import find_held_out
from exchangeable.values.calibration import UNCALIBRATED
from exchangeable.values.codecs import ValueStats
from exchangeable.values.distributions import LogisticMixture
from exchangeable.values.joined import Joined
from exchangeable.values.scale import REAL

FOLDS = 5
NONE = torch.zeros(2000, 2, dtype=torch.float64)
"""Scarcity of members with enough cells."""


def held_out(cells=2000, terms=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(cells, terms, generator=generator, dtype=torch.float64)
    noise = torch.randn(cells, generator=generator, dtype=torch.float64)
    return rows, noise, torch.arange(cells) % FOLDS


def fit(terms, left, fold, few=None):
    """Fit to cells of members that have enough cells."""
    return fit_correction(HeldOutTerms(terms, left, fold, terms.new_zeros(len(terms), 2)), few)


def test_what_terms_explain_is_found():
    terms, noise, fold = held_out()
    left = 0.5 * terms[:, 1] - 0.2 * terms[:, 4] + 0.3 * noise
    correction, changes = fit(terms, left, fold)
    wanted = [0, 0.5, 0, 0, -0.2, 0]
    np.testing.assert_allclose(correction.coefficients, wanted, atol=0.03)
    assert float((left - changes).square().mean()) == pytest.approx(0.09, rel=0.1)


def test_noise_is_left_as_it_is():
    for seed in range(5):
        terms, noise, fold = held_out(seed=seed)
        correction, changes = fit(terms, noise, fold)
        moved = (
            0.0 if correction is None else float(correction.changes(terms, NONE).square().mean())
        )
        assert moved < 2e-3
        assert float((noise - changes).square().mean()) < float(noise.square().mean()) + 1e-9


def test_few_cells_correct_nothing():
    terms, _, fold = held_out(cells=40)
    assert fit(terms, terms[:, 0], fold)[0] is None
    empty = terms[:0]
    assert fit(empty, empty[:, 0], fold[:0])[0] is None


def test_of_a_correction_as_large_a_share_is_taken_as_folds_say_for_sure():
    """Of new cells, too, not only of those that it was found on."""
    generator = torch.Generator().manual_seed(3)
    terms, noise, fold = held_out(cells=600, terms=20)
    left = 0.12 * terms[:, 0] + noise
    correction, changes = fit(terms, left, fold)
    assert float(changes @ left / (changes @ changes)) > 1.2  # on average it would be more
    new = torch.randn(20_000, 20, generator=generator, dtype=torch.float64)
    moved = correction.changes(new, new.new_zeros(len(new), 2))
    size = [float(each.square().mean().sqrt()) for each in (moved, changes)]
    assert size[0] == pytest.approx(size[1], rel=0.25)


def test_terms_count_as_far_as_those_of_the_held_out_cells_go():
    terms, noise, fold = held_out()
    terms *= torch.tensor([1.0, 5.0, 0.2, 1.0, 1.0, 1.0])
    correction, _ = fit(terms, terms[:, 0] + 0.3 * noise, fold)
    assert correction.low == tuple(terms.amin(dim=0).tolist())
    assert correction.high == tuple(terms.amax(dim=0).tolist())


def test_a_few_cells_far_off_do_not_decide():
    terms, noise, _ = held_out()
    left = 0.5 * terms[:, 1] + 0.1 * noise
    left[::200] += 60 * terms[::200, 3].sign()
    plain = torch.linalg.lstsq(terms, left[:, None]).solution.squeeze(1)
    found = _ridge(terms, left)[0]  # with the least strength
    assert plain[3] > 0.15
    assert abs(found[3]) < 0.4 * plain[3]
    assert abs(found[1] - 0.5) < 0.5 * abs(plain[1] - 0.5) + 0.02


def mixture(cells, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits, locations, scales = torch.randn(3, cells, 4, generator=generator).double()
    return LogisticMixture(logits.log_softmax(dim=1), 2 + locations, scales.exp())


def test_means_are_moved_into_the_range_of_the_table_and_never_out_of_it():
    """Those outside of it stay where they are, but may come nearer."""
    before = mixture(300)
    stats = ValueStats(REAL, 2.0, 1.0, (1.5, 2.5))
    change = 3 * torch.randn(300, generator=torch.Generator().manual_seed(1)).double()
    start, moved = before.mean(), correct(before, change, stats).mean()
    low, high = start.clamp(max=1.5), start.clamp(min=2.5)
    assert (start < 1.5).any()
    assert (start > 2.5).any()
    assert ((moved - start) * change >= -1e-9).all()
    assert (moved >= low - 1e-9).all()
    assert (moved <= high + 1e-9).all()
    expected = torch.minimum(torch.maximum(start + change, low), high)
    torch.testing.assert_close(moved, expected)
    torch.testing.assert_close(correct(before, 0 * change, stats).mean(), start)


def test_the_terms_of_a_cell_are_the_same_in_whatever_part_it_comes():
    stats = ValueStats(REAL, 2.0, 1.0, (-9.0, 9.0))
    whole, generator = mixture(30), torch.Generator().manual_seed(1)
    channels = torch.randn(30, 13, generator=generator).abs()
    places = torch.randperm(30, generator=generator)
    joined = Joined(tuple((at, whole.take(at)) for at in places.split([7, 13, 10])))
    torch.testing.assert_close(
        describe_cells(joined, channels, stats), describe_cells(whole, channels, stats)
    )


def test_changes_of_a_fold_do_not_depend_on_its_values():
    terms, noise, fold = held_out()
    left = terms[:, 0] + noise
    other = torch.where(fold == 2, left + 0.01 * noise.flip(0), left)
    one, two = (fit(terms, each, fold)[1] for each in (left, other))
    ratio = (one / two)[fold == 2]
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-9, atol=0)  # the share
    assert float(ratio[0]) == pytest.approx(1, abs=0.01)


def test_terms_beyond_those_of_the_held_out_cells_count_as_the_farthest():
    correction = Correction((2.0, 1.0), (-1.0, 0.0), (1.0, 0.0))
    terms = torch.tensor([[0.5, 3.0], [9.0, -3.0], [-9.0, 0.0]], dtype=torch.float64)
    assert correction.changes(terms, NONE[:3]).tolist() == [1.0, 2.0, -2.0]


def test_a_correction_fades_where_it_does_not_hold_of_members_with_few_cells():
    terms, noise, fold = held_out()
    left = 0.5 * terms[:, 1] + 0.3 * noise
    scarcity = torch.rand(2000, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    g = scarcity.amax(dim=1).sqrt()
    for share in (0.0, 0.6, 1.0):
        few = HeldOutTerms(terms, 0.5 * (1 - share * g) * terms[:, 1] + 0.3 * noise, fold, scarcity)
        correction, changes = fit(terms, left, fold, few)
        assert correction.fading == pytest.approx(share, abs=0.1)
        plain, usual = fit(terms, left, fold)
        torch.testing.assert_close(changes, usual)  # of members with enough
        faded = correction.changes(terms, scarcity) / plain.changes(terms, NONE)
        torch.testing.assert_close(faded, 1 - correction.fading * g)


def structured_table(seed=0):
    """A dense table of products of three factors, cut off at both ends."""
    generator = np.random.default_rng(seed)
    left, right = generator.normal(size=(80, 3)), generator.normal(size=(60, 3))
    values = (left @ right.T + 0.2 * generator.normal(size=(80, 60))).clip(-1, 1)
    return np.argwhere(np.ones(values.shape)), values.ravel()


@pytest.fixture(scope="module")
def fitted():
    index, values = structured_table()
    hide = np.random.default_rng(1).random(len(index)) < 0.3
    completer = Completer("pretrained").fit(index[~hide], values[~hide])
    return completer, index[hide], values[hide]


def test_a_structured_table_is_completed_better_with_the_correction(fitted):
    completer, index, values = fitted
    model = completer.predictor_
    assert model.correction is not None
    bare = replace(model, correction=None)
    errors = [rmse(values, each.predict(index).mean().numpy()) for each in (model, bare)]
    assert errors[0] < 0.97 * errors[1]


def test_held_out_cells_are_read_without_correction_and_calibration(fitted):
    model, cells = fitted[0].predictor_, fitted[0].cells_
    bare = replace(model, correction=None)
    for one, two in zip(find_held_out(model, cells), find_held_out(bare, cells), strict=True):
        for reading, same in zip(one.read().folds, two.read().folds, strict=True):
            assert torch.equal(reading.predictions.mean(), same.predictions.mean())


def test_candidates_are_compared_by_what_corrects_each_fold_without_it(fitted, monkeypatch):
    """And intervals are calibrated by it: the final correction has seen the cells."""
    completer, given = fitted[0], []
    model, cells = completer.predictor_, completer.cells_

    def fit_known(cells, few=None):
        given.append(cells.fold)
        return Correction((0.0,) * cells.terms.shape[1], (0.0,), (0.0,)), wanted(cells.left)

    def compare():
        comparison = compare_models(model, cells)
        return comparison.rmse["pretrained"], comparison.calibration

    monkeypatch.setattr(select, "fit_correction", fit_known)
    wanted = torch.zeros_like
    plain = compare()
    wanted = torch.clone  # what is left of every cell, as if it were known
    right = compare()
    assert right[0] < 0.02 * plain[0]
    assert right[1] != plain[1]
    folds = [each.fold[each.fold == n] for each in model.prior.holdouts for n in range(FOLDS)]
    assert torch.equal(given[0], torch.cat(folds))


def test_cells_of_members_without_others_teach_the_correction_nothing(monkeypatch):
    """Such cells are predicted without it."""
    generator = np.random.default_rng(0)
    index = np.unique(generator.integers(0, 500, (1200, 2)), axis=0)
    completer = Completer("pretrained").fit(index, generator.normal(size=len(index)))
    model, cells = completer.predictor_, completer.cells_
    readings = [r for held_out in find_held_out(model, cells) for r in held_out.read().folds]
    seen = torch.cat([each.seen for each in readings])
    assert 0.05 < seen.double().mean() < 0.95
    given = []

    def fit_known(cells, few=None):
        given.append(cells)
        return Correction((0.0,) * cells.terms.shape[1], (0.0,), (0.0,)), cells.left

    monkeypatch.setattr(select, "fit_correction", fit_known)
    found = compare_models(model, cells).rmse["pretrained"]
    ((terms, left, fold, _),) = given
    torch.testing.assert_close(terms, torch.cat([each.terms for each in readings])[seen])
    assert len(left) == len(fold) == int(seen.sum())
    rest = np.concatenate([cells.values[p] for h in find_held_out(model, cells) for p in h.folds])
    means = torch.cat([each.predictions.mean() for each in readings]).numpy()
    expected = np.where(seen.numpy(), 0, rest - means)
    assert found == pytest.approx(np.sqrt(np.mean(expected**2)), rel=0.02)


def test_the_correction_stays_after_updates_in_folders_and_for_new_members(fitted, tmp_path):
    completer, index, _ = fitted
    correction = completer.predictor_.correction
    calibration = completer.predictor_.calibration
    assert calibration != UNCALIBRATED
    completer.save(tmp_path / "saved")
    loaded = Completer.load(tmp_path / "saved")
    assert loaded.predictor_.correction == correction
    np.testing.assert_allclose(loaded.predict(index), completer.predict(index), atol=1e-6)
    updated = loaded.update(np.array([[80, 0], [80, 1], [0, 60]]), [0.1, -0.2, 0.3])
    assert updated.predictor_.correction == correction
    assert updated.predictor_.calibration == calibration
    refreshed = updated.refresh()
    assert refreshed.predictor_.correction == correction
    assert refreshed.predictor_.calibration == calibration


def test_cells_of_members_without_cells_are_not_corrected(fitted):
    model = fitted[0].predictor_
    queries = np.array([[-1, 3], [2, -1], [-1, -1]])
    bare = replace(model, correction=None)
    assert torch.equal(model.predict(queries).mean(), bare.predict(queries).mean())


def test_a_corrected_prediction_does_not_depend_on_what_else_is_asked(fitted):
    completer, index, _ = fitted
    together, alone = completer.predict(index[:200]), completer.predict(index[7:8])
    assert alone[0] == pytest.approx(together[7], abs=1e-5)
