"""A model may start from what closed-form methods say of each cell, if they have not seen it."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.cells import Cells
from exchangeable.arrays.support import Support
from exchangeable.baselines import (
    Bias,
    VariationalFactorization,
    reference_weights,
    similarity,
    unfolding,
)
from exchangeable.baselines.similarity import Similarity
from exchangeable.completion.completer import Completer
from exchangeable.models.configs import ResidualConfig, build
from exchangeable.models.stream import Plan
from exchangeable.predictors.model import ModelPredictor
from exchangeable.prior.new_members import NewMembersSimilarity
from exchangeable.prior.prior import Prior
from exchangeable.prior.side_information import SideInformation
from exchangeable.testing import assert_same, random_array
from exchangeable.training.config import TrainingConfig
from exchangeable.training.execution import Execution
from exchangeable.training.loop import train
from exchangeable.training.masking import ExampleSource
from exchangeable.training.run import Run
from exchangeable.training.task import Task
from exchangeable.training.trained_model import TrainedModel
from exchangeable.training.validation import validation_rmse
from exchangeable.values.codecs import OneHot, ScaleFree, ValueStats
from exchangeable.values.distributions import Normal, location_for_mean
from exchangeable.values.scale import Scale

STARS = Scale("levels", (1.0, 2.0, 3.0, 4.0, 5.0))
REAL = Scale("real", ())
CODEC = OneHot(5)
SMALL = ResidualConfig(5, 5, width=8, depth=2, heads=2, prior=2)
QUICK = TrainingConfig(
    steps=12, evaluate_every=3, learning_rate=1e-2, views=3, view_steps=4, hide_most=0.4
)


def ratings(shape=(25, 18), seed=0, density=0.6):
    """Ratings with a factor, in stars."""
    noise = random_array(shape, density=density, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in shape]
    own = [part[noise.support.index[:, axis]] for axis, part in enumerate(parts)]
    total = sum(one[:, 0] for one in own) + 1.5 * torch.stack(own).prod(dim=0)[:, 1]
    values = (3 + 0.6 * total[:, None] + 0.2 * noise.values).round().clamp(1, 5)
    return ExchangeableArray(noise.support, values)


def reference_of(table, scale=STARS):
    return ValueStats.of(table.values.squeeze(1).numpy(), scale)


def task(shape=(25, 18)):
    table = ratings(shape)
    kept = torch.arange(len(table)) % 6 == 0
    shown = table.take(~kept)
    return Task(shown, table.take(kept), reference_of(shown))


def predictor(table, config=SMALL, codec=CODEC):
    trained = TrainedModel(config, codec, build(config).eval(), TrainingConfig(), "random", {})
    index, values = table.support.index.numpy(), table.values.squeeze(1).numpy()
    return ModelPredictor.of(trained, Cells(index, values, table.shape, STARS))


def every_cell(shape):
    return np.array(list(np.ndindex(*shape)))


# Answers


def test_a_model_that_says_nothing_answers_what_the_prior_does():
    reference = ValueStats(STARS, 3.0, 1.2, (1.0, 5.0))
    prior = torch.tensor([[0.4, 0.6], [-0.3, 0.4]], dtype=torch.float64)
    levels = reference.standardise(reference.levels(prior))
    where = torch.stack([location_for_mean(*prior.T, levels), prior[:, 1]], dim=1)
    found = CODEC.read(torch.cat([torch.zeros(2, 5), where], dim=1), reference)
    expected = 3 + 1.2 * prior[:, 0]
    assert found.mean().tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    probabilities = found.probabilities()
    spread = (probabilities * (torch.arange(1, 6) - found.mean()[:, None]) ** 2).sum(dim=1)
    assert spread.sqrt().tolist() == pytest.approx((1.2 * prior[:, 1]).tolist(), abs=0.1)
    free = ScaleFree()
    real = ValueStats(REAL, 3.0, 1.2, (1.0, 5.0))
    zeros = torch.zeros(2, free.out_channels)
    found = free.read(torch.cat([zeros, prior], dim=1), real)
    assert found.mean().tolist() == pytest.approx(expected.tolist())
    away = found.quantile(0.84) - found.quantile(0.16)
    assert (away / 2).tolist() == pytest.approx((1.2 * prior[:, 1]).tolist(), rel=0.05)
    # Half as sure, half as wide.
    wide = free.read(torch.cat([zeros, prior * torch.tensor([1.0, 2.0])], dim=1), real)
    widths = [one.quantile(0.9) - one.quantile(0.1) for one in (found, wide)]
    assert (widths[1] / widths[0]).tolist() == pytest.approx([2.0, 2.0])


def test_a_normal_is_placed_so_that_its_mean_on_levels_is_the_one_asked_for():
    levels = torch.arange(1, 6, dtype=torch.float64)
    mean = torch.tensor([1.1, 2.0, 3.0, 4.6, 4.9, 7.0], dtype=torch.float64)
    for width in (0.3, 1.0, 2.0):
        deviation = torch.full_like(mean, width)
        found = (
            Normal(location_for_mean(mean, deviation, levels), deviation, levels).probabilities()
            @ levels
        )
        assert found.tolist() == pytest.approx([1.1, 2.0, 3.0, 4.6, 4.9, 4.96], abs=0.02)


def test_before_training_answers_are_those_of_the_closed_form_models():
    table = ratings((60, 40))
    hide = torch.arange(len(table)) % 5 == 0
    seen, asked = table.take(~hide), table.support.index[hide]
    found = predictor(seen).predict(asked.numpy()).mean()
    # The table that a predictor reads has a spare member on each axis.
    spare = Support(seen.support.index, tuple(size + 1 for size in seen.shape))
    prior = Prior.of(ExchangeableArray(spare, seen.values), reference_of(seen), 2)
    assert prior.trust.share > 0.9
    expected = prior.stats.mean + prior.stats.deviation * prior.predict(asked)[0]
    inside = (expected > 1.2) & (expected < 4.8)
    torch.testing.assert_close(found[inside], expected[inside], rtol=0, atol=0.01)
    factors = VariationalFactorization(2).fit(
        Cells(seen.support.index.numpy(), seen.values.squeeze(1).numpy(), table.shape)
    )
    by_factors = factors.predict(asked.numpy())[0]
    assert np.corrcoef(expected, by_factors)[0, 1] > 0.99


# Trust


def uneven(seed, shape=(150, 80)):
    """Biases, and noise of which some members have ten times as much as others: no factor."""
    rng = np.random.default_rng(seed)
    index = np.stack(np.nonzero(rng.random(shape) < 0.15), axis=1)
    effects = [rng.normal(size=size) for size in shape]
    loud = [np.exp(rng.normal(size=size)) for size in shape]
    values = effects[0][index[:, 0]] + effects[1][index[:, 1]]
    values += loud[0][index[:, 0]] * loud[1][index[:, 1]] * rng.standard_t(3, size=len(index))
    support = Support(torch.from_numpy(index), shape)
    return ExchangeableArray.unchecked(support, torch.from_numpy(values)[:, None])


def test_factors_that_are_only_noise_are_not_believed():
    """On most tables: with tails as heavy as these, held-out cells mislead on some."""
    found = []
    for seed in range(9):
        table = uneven(seed)
        hide = torch.arange(len(table)) % 4 == 0
        seen, asked = table.take(~hide), table.support.index[hide]
        prior = Prior.of(seen, reference_of(seen, REAL), 4)
        truth = prior.stats.standardise(table.values[hide].squeeze(1))
        base, fine, whole = (
            float((mean - truth).square().mean())
            for mean, _ in (
                each.predict(asked) for each in (prior.fitted.biases, prior.fitted.fine, prior)
            )
        )
        found.append((fine / base, whole / base))
    fine, whole = np.array(found).T
    assert (fine > 1.02).all()
    assert np.median(whole) < 1.02
    assert (whole < 1.05).sum() >= 7


def test_variances_are_as_wide_as_errors_on_cells_left_out():
    table = ratings((120, 90))
    hide = torch.arange(len(table)) % 4 == 0
    seen, asked = table.take(~hide), table.support.index[hide]
    for values in (table.values, table.values.exp()):  # noise and scale in one, or far apart
        shown = ExchangeableArray(seen.support, values[~hide])
        prior = Prior.of(shown, reference_of(shown, REAL), 3)
        mean, variance = prior.predict(asked)
        error = prior.stats.standardise(values[hide].squeeze(1)) - mean
        assert float(error.square().mean() / variance.mean()) == pytest.approx(1, abs=0.2)


def test_a_table_without_cells_or_with_equal_ones_has_a_prior():
    for values in (torch.empty(0, 1), torch.full((6, 1), 2.0)):
        index = torch.tensor([(i, i % 2) for i in range(len(values))], dtype=torch.int64)
        table = ExchangeableArray.unchecked(Support(index.reshape(-1, 2), (7, 3)), values.double())
        prior = Prior.of(table, ValueStats.of(values.squeeze(1).numpy(), REAL), 2)
        mean, variance = prior.predict(torch.tensor([(0, 0), (6, 2)]))
        assert mean.tolist() == pytest.approx([0, 0])
        assert variance.isfinite().all()
        assert 0 <= prior.trust.share <= 1


@pytest.mark.parametrize("shape", [(25, 18), (12, 9, 7)])
def test_relabelling_a_table_relabels_the_answers(shape):
    config = replace(SMALL, order=len(shape))
    table, generator = ratings(shape), torch.Generator().manual_seed(1)
    moves = [torch.randperm(n, generator=generator) for n in shape]
    moved = table.relabel(moves)
    shuffled = torch.randperm(len(moved), generator=generator)
    moved = ExchangeableArray(Support(moved.support.index[shuffled], shape), moved.values[shuffled])
    asked = every_cell(shape)
    there = np.stack([move.numpy()[asked[:, d]] for d, move in enumerate(moves)], axis=1)
    plain, other = (predictor(one, config) for one in (table, moved))
    found, expected = other.predict(there).mean(), plain.predict(asked).mean()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_answers_say_more_than_the_biases_do():
    table = ratings((60, 40))
    hide = torch.arange(len(table)) % 5 == 0
    answers = predictor(table.take(~hide)).predict(table.support.index[hide].numpy())
    error = (answers.mean() - table.values[hide].squeeze(1)).square().mean().sqrt()
    bias = Completer("bias").fit(*labelled(table.take(~hide)))
    cells, values = labelled(table.take(hide))
    biased = np.sqrt(np.mean((bias.predict(cells) - values) ** 2))
    assert float(error) < 0.8 * biased  # of random weights: it is the prior that knows


def labelled(table):
    columns = table.support.index.numpy()
    return pl.DataFrame({"row": columns[:, 0], "column": columns[:, 1]}), table.values[:, 0].numpy()


def test_members_nobody_knows_and_tables_without_cells_have_answers_too():
    asked = np.array([[-1, 3], [2, -1], [-1, -1]])
    assert predictor(ratings()).predict(asked).mean().isfinite().all()
    empty = ratings().take(torch.zeros(len(ratings()), dtype=torch.bool))
    found = Prior.of(empty, ValueStats(STARS, 3.0, 1.0, (3.0,)), 2)(torch.zeros(1, 2).long())
    # Nobody is there to say anything.
    torch.testing.assert_close(found, torch.tensor([[0.0, 1.0] + [0.0] * 11]), rtol=0, atol=1e-7)


def test_equal_values_are_answered_with_themselves():
    table = ratings()
    same = table.with_values(torch.full_like(table.values, 4.0))
    found = predictor(same).predict(every_cell((25, 18))).mean()
    assert found.tolist() == pytest.approx([4.0] * 450, abs=0.2)


def test_the_values_of_a_prior_must_fit_the_model():
    table = ratings().to(torch.float32)
    model = build(SMALL)
    with pytest.raises(ValueError, match=r"must have shape \(\d+, 13\), but have shape None"):
        model.condition(table.with_values(torch.zeros(len(table), 5)))
    plain = build(replace(SMALL, prior=0))
    with pytest.raises(ValueError, match=r"must have shape None, but have shape \(\d+, 2\)"):
        plain.condition(
            table.with_values(torch.zeros(len(table), 5)), prior=lambda index: index.float()
        )


def test_there_are_as_many_factors_as_cells_can_tell():
    full = torch.from_numpy(every_cell((40, 30)))
    values = torch.randn(1200, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table = ExchangeableArray(Support(full, (40, 30)), values)
    ranks = [
        Prior.of(some, reference_of(some, REAL), 9).fitted.fine.layout.rank
        for some in (table.take(torch.arange(0, 1200, step)) for step in (1, 4, 40))
    ]
    assert ranks == [7, 2, 1]  # 34, 9 and 2 cells a member


@pytest.mark.parametrize("shape", [(40, 12), (25, 9, 4)])
def test_in_large_tables_those_with_the_most_cells_are_references(shape):
    table = ratings(shape, density=0.5)
    index, left = table.support.index, table.values.squeeze(1).float()
    sizes = index[:, 0].bincount(minlength=shape[0])
    least = sizes.sort(descending=True).values[9]
    loud = sizes > least  # fewer than ten; between others what they hold decides
    some = Similarity(index, left, shape, 0, comparison_budget=10 * math.prod(shape)).estimate(
        index
    )
    assert (
        len(
            Similarity(
                index, left, shape, 0, comparison_budget=10 * math.prod(shape)
            ).unfolded.references
        )
        > 9
    )
    few = int(loud.sum())
    heard = Similarity(index, left, shape, 0, comparison_budget=few * math.prod(shape)).estimate(
        index
    )
    assert not torch.equal(some, heard)
    mine = loud[index[:, 0]]  # these are estimated from each other only
    own = Similarity(index[mine], left[mine], shape, 0).estimate(index[mine])
    assert_same(heard[mine], own, 1e-5)


def test_members_of_the_largest_tables_are_not_compared():
    table = ratings()
    compared = Prior.of(table, reference_of(table), 2)(table.support.index)
    few = math.prod(table.shape) - 1
    alone = Prior.of(table, reference_of(table), 2, few)(table.support.index)
    assert compared[:, 5:].any()
    assert not alone[:, 5:].any()


# Side information


def test_members_without_cells_are_predicted_from_their_features():
    """Every member has a feature that decides its bias: those without a cell are known by it."""
    rng = np.random.default_rng(0)
    shape, feature = (60, 40), rng.normal(size=60)
    index = np.stack(np.nonzero(rng.random(shape) < 0.4), axis=1)
    values = 2 * feature[index[:, 0]] + 0.3 * rng.normal(size=len(index))
    unseen = index[:, 0] >= 50
    observed = Cells(index[~unseen], values[~unseen], shape).to_array()
    stats = ValueStats.of(values[~unseen], REAL)
    asked = torch.from_numpy(index[unseen])
    truth = torch.from_numpy((values[unseen] - stats.mean) / stats.deviation)
    errors = []
    for features in (None, feature, rng.normal(size=60)):
        by_axis = None if features is None else (torch.from_numpy(features)[:, None], None)
        prior = Prior.of(observed, stats, 2, side=SideInformation(features=by_axis))
        mean, variance = prior.predict(asked)
        errors.append(float((mean - truth).square().mean()))
        assert 0.5 < errors[-1] / float(variance.mean()) < 2
    assert errors[1] < 0.1 * errors[0]
    assert errors[2] < 1.1 * errors[0]  # features that say nothing


def test_times_move_predictions_where_they_say_something_and_only_there():
    rng = np.random.default_rng(1)
    shape = (40, 30)
    index = np.stack(np.nonzero(rng.random(shape) < 0.8), axis=1)
    times = rng.integers(0, 6, size=len(index)).astype(float)
    mood = rng.normal(size=(40, 6))
    noise = 0.5 * rng.normal(size=len(index))
    moving = mood[index[:, 0], times.astype(int)] + noise
    hide = torch.arange(len(index)) % 5 == 0
    for values, gain in ((moving, True), (noise + rng.normal(size=40)[index[:, 0]], False)):
        cells = Cells(index, values, shape)
        stats = ValueStats.of(values, REAL)
        observed, at = cells.to_array(), torch.from_numpy(times)
        side = SideInformation(at)
        prior = Prior.of(observed.take(~hide), stats, 2, side=side.take(~hide))
        plain = Prior.of(observed.take(~hide), stats, 2)
        truth = stats.standardise(observed.values[hide].squeeze(1))
        asked = observed.support.index[hide]
        error = (prior.predict(asked, at[hide])[0] - truth).square().mean()
        before = (plain.predict(asked)[0] - truth).square().mean()
        if gain:
            assert error < 0.6 * before
        else:  # nothing changes, to the bit
            assert prior.fitted.drift is None
            assert torch.equal(prior.predict(asked, at[hide])[0], plain.predict(asked)[0])


def test_queries_without_a_time_are_at_the_latest():
    rng = np.random.default_rng(1)
    shape = (40, 30)
    index = np.stack(np.nonzero(rng.random(shape) < 0.8), axis=1)
    times = rng.integers(0, 6, size=len(index)).astype(float)
    values = rng.normal(size=(40, 6))[index[:, 0], times.astype(int)]
    cells = Cells(index, values, shape)
    prior = Prior.of(
        cells.to_array(),
        ValueStats.of(values, REAL),
        2,
        side=SideInformation(torch.from_numpy(times)),
    )
    asked = torch.from_numpy(every_cell(shape))
    latest = torch.full((len(asked),), 5.0, dtype=torch.float64)
    assert torch.equal(prior.predict(asked)[0], prior.predict(asked, latest)[0])
    assert not torch.allclose(prior.predict(asked)[0], prior.predict(asked, latest - 5)[0])


def test_hidden_members_are_predicted_as_high_as_others_on_average():
    """Members with many cells have higher values: a new one is one of these more often than not."""
    rng = np.random.default_rng(0)
    shape, quality = (300, 200), rng.normal(size=200)
    chance = 1 / (1 + np.exp(2 - 2 * quality))
    index = np.stack(np.nonzero(rng.random(shape) < 0.3 * chance[None, :]), axis=1)
    values = quality[index[:, 1]] + 0.5 * rng.normal(size=len(index))
    hidden = (rng.random(200) < 0.2)[index[:, 1]]
    observed = Cells(index[~hidden], values[~hidden], shape).to_array()
    stats = ValueStats.of(values[~hidden], REAL)
    truth = (values[hidden] - stats.mean) / stats.deviation
    found = Prior.of(observed, stats, 4).predict(torch.from_numpy(index[hidden]))[0]
    assert abs(float(found.mean()) - truth.mean()) < 0.15
    by_biases = (
        Bias()
        .fit(Cells(index[~hidden], values[~hidden], shape))
        .predict(np.stack([index[hidden][:, 0], np.full(int(hidden.sum()), -1)], axis=1))[0]
    )
    assert abs((by_biases.mean() - stats.mean) / stats.deviation - truth.mean()) > 0.3


# New members


def test_a_new_member_is_predicted_as_if_all_had_been_read_together():
    table = ratings((40, 30))
    new = table.support.index[:, 0] == 39
    known = predictor(table.take(~new))
    own = table.take(new)
    index = own.support.index.clone()
    index[:, 0] = 0
    alone = known.for_new_members(0, index.numpy(), own.values.squeeze(1).numpy())
    asked = every_cell((1, 30))
    together = predictor(table).predict(asked + np.array([39, 0]))
    far = (alone.predict(asked).mean() - together.mean()).abs()
    assert far.mean() < 0.1
    nobody = known.predict(np.stack([np.full(30, -1), np.arange(30)], axis=1))
    assert far.mean() < 0.3 * (nobody.mean() - together.mean()).abs().mean()


def test_an_update_moves_the_prior_of_those_it_meets():
    table = ratings((80, 60))
    late = torch.arange(len(table)) % 9 == 0
    order = torch.cat([(~late).nonzero(), late.nonzero()]).squeeze(1)
    index, values = table.support.index[order].numpy(), table.values[order].squeeze(1).numpy()
    cells = Cells(index, values, table.shape, STARS)
    first = cells.take(np.arange(int((~late).sum())))
    changed = np.arange(len(first), len(cells))
    trained = TrainedModel(SMALL, CODEC, build(SMALL).eval(), TrainingConfig(), "random", {})
    updated = ModelPredictor.of(trained, first).updated(cells, changed, known=len(first))
    fresh = ModelPredictor.of(trained, cells)
    asked = every_cell(table.shape)
    before = ModelPredictor.of(trained, first).predict(asked).mean()
    far = (updated.predict(asked).mean() - fresh.predict(asked).mean()).square().mean()
    # The pattern of cells and the trust stay as they were, so that some of the way is left.
    assert far < 0.45 * (before - fresh.predict(asked).mean()).square().mean()


def test_values_after_an_update_are_those_without_drift_of_all_cells():
    rng = np.random.default_rng(1)
    index = torch.from_numpy(np.stack(np.nonzero(rng.random((60, 150)) < 0.8), axis=1))
    times = torch.from_numpy(rng.integers(0, 6, size=len(index)).astype(float))
    values = torch.from_numpy(rng.normal(size=(60, 6)))[index[:, 0], times.long()]
    stats, known = ValueStats.of(values.numpy(), REAL), len(index) - 5
    of = lambda each, cells: ExchangeableArray.of(index[:cells], each[:cells, None], (60, 150))  # noqa: E731
    prior = Prior.of(of(values, known), stats, 2, side=SideInformation(times[:known]))
    changed = torch.tensor([3, 8, *range(known, len(index))])
    later = values.clone()
    later[changed[:2]] += 1
    fitted = prior.updated(of(later, len(index)), changed, SideInformation(times)).fitted
    assert fitted.drift is not None
    expected = stats.standardise(later) - fitted.drift.at(index, times)
    torch.testing.assert_close(fitted.values, expected)


def test_a_saved_completer_answers_the_same(tmp_path):
    cells, values = labelled(ratings())
    trained = TrainedModel(SMALL, OneHot(5, STARS.levels), build(SMALL), QUICK, "random", {})
    trained.save(tmp_path / "model")
    completer = Completer(str(tmp_path / "model")).fit(cells, values)
    completer.save(tmp_path / "completer")
    again = Completer.load(tmp_path / "completer")
    assert again.predict(cells).tolist() == completer.predict(cells).tolist()


# Training


def learn(run, data, save=None, **execution):
    train(run, ExampleSource(run, CODEC, data), Execution(**execution), save=save)


def test_what_is_hidden_is_hidden_from_the_prior_too():
    table = ratings()
    other = table.with_values(table.values.clone())
    none = torch.zeros(len(table), dtype=torch.bool)

    def examples(array):
        run = Run.start(build(SMALL), QUICK)
        return ExampleSource(run, CODEC, Task(array, array.take(none), reference_of(table)))

    shown = next(iter(examples(table)))
    other.values[shown.hide] = 6 - other.values[shown.hide]
    changed = next(iter(examples(other)))
    assert torch.equal(shown.hide, changed.hide)
    assert torch.equal(shown.prior_values, changed.prior_values)
    other.values[~shown.hide] = 6 - other.values[~shown.hide]
    moved = next(iter(examples(other)))
    assert not torch.allclose(shown.prior_values, moved.prior_values)


def test_mask_sets_take_turns_and_the_oldest_goes():
    run, keys = Run.start(build(replace(SMALL, prior=1)), QUICK), []
    examples = ExampleSource(run, CODEC, task())
    for step, _ in zip(range(24), examples, strict=False):
        assert run.step == step
        keys.append(list(run.views))
        run.step += 1
    assert [len(own) for own in keys[::4]] == [1, 2, 3, 3, 3, 3]
    assert keys[12][:2] == keys[8][1:]
    assert len(examples.mask_sets) <= 3


@pytest.mark.parametrize("batch", ["full", "uniform", "conditional"])
def test_a_run_that_was_stopped_ends_with_the_same_weights(batch):
    config, data = replace(QUICK, batch=batch, batch_cells=60), task()

    def fresh():
        return Run.start(build(SMALL, 0), config)

    whole, stopped = fresh(), {}
    learn(whole, data)
    assert all(np.isfinite(look["validation_rmse"]) for look in whole.history)

    def save(run):
        if run.step == 7:
            tensors, numbers = run.state()
            stopped["state"] = {k: v.clone() for k, v in tensors.items()}, numbers

    learn(fresh(), data, save, save_every=-1)
    second = fresh()
    second.restore(*stopped["state"])
    learn(second, data)
    for name, weight in whole.best.state_dict().items():
        assert torch.equal(weight, second.best.state_dict()[name]), name


def test_a_step_in_parts_is_that_of_the_whole():
    data, ends = task(), []
    for plan in (None, Plan(chunk_cells=50), Plan(chunk_cells=50, activations="recompute")):
        run = Run.start(build(SMALL, 0), QUICK)
        learn(run, data, plan=plan)
        ends.append(validation_rmse(run.averaged, CODEC, data))
    assert ends == pytest.approx([ends[0]] * 3, rel=1e-4)


def test_training_starts_where_the_prior_ends():
    data = task((60, 40))
    run = Run.start(build(SMALL, 0), QUICK)
    learn(run, data)
    plain = Run.start(build(replace(SMALL, prior=0), 0), QUICK)
    learn(plain, data)
    assert run.best_rmse < 0.7 * plain.best_rmse


def one_joins(order, axis, new):
    """Similarities before and with a new member, and queries about it."""
    shape = (20, 15, 4)[:order]
    table = ratings(shape)
    index, left = table.support.index, table.values.squeeze(1).cos()
    own = index[:, new] == 7 % shape[new]
    moved = index[own].clone()
    moved[:, new] = 0
    before = Similarity(index[~own], left[~own], shape, axis)
    asked = torch.from_numpy(every_cell(shape))
    asked = asked[asked[:, new] == 7 % shape[new]]
    there = asked.clone()
    there[:, new] = 0
    return (
        before,
        NewMembersSimilarity(before, new, moved, left[own]),
        Similarity(index, left, shape, axis),
        asked,
        there,
    )


@pytest.mark.parametrize(("order", "axis"), [(2, 0), (2, 1), (3, 0), (3, 2)])
def test_a_new_member_is_compared_as_if_it_had_always_been_there(order, axis):
    _, joined, together, asked, there = one_joins(order, axis, axis)
    expected = together.estimate(asked)
    torch.testing.assert_close(joined.estimate(there), expected)
    assert (expected.abs() > 1e-3).all(dim=1).sum() > 5


@pytest.mark.parametrize(("order", "axis", "new"), [(2, 0, 1), (2, 1, 0), (3, 0, 2), (3, 2, 1)])
def test_others_estimate_a_new_member_by_their_similarity_before(order, axis, new):
    before, joined, together, asked, there = one_joins(order, axis, new)
    found, exact = joined.estimate(there), together.estimate(asked)
    assert (exact.abs() > 1e-3).all(dim=1).sum() > 5
    assert float((found - exact).abs().mean()) < 0.3 * float(exact.abs().mean())
    # The same by hand, of one cell: all others of its axis that have the same combination.
    likeness = before.compare(torch.arange(before.shape[axis])).table
    cell = int(found.abs().sum(dim=1).argmax())
    others = [a for a in range(order) if a != axis]
    same = (joined.index[:, others] == there[cell, others]).all(dim=1)
    for kind, weights in enumerate(likeness):
        heard = weights[joined.index[same, axis], there[cell, axis]]
        total, said = heard.sum(), (heard * joined.residuals[same]).sum()
        expected = torch.stack([said, total]) / (total + before.doubt)
        torch.testing.assert_close(found[cell, 2 * kind : 2 * kind + 2], expected)


def test_there_is_no_estimate_of_a_new_member_with_unknown_members_or_no_cell():
    before, joined, _, _, there = one_joins(2, 1, 0)
    strange = there.clone()
    strange[:, 1] = 99
    assert not joined.estimate(strange).any()
    without = NewMembersSimilarity(before, 0, joined.index[:0], joined.residuals[:0])
    assert not without.estimate(there).any()


@pytest.mark.parametrize(("order", "axis"), [(2, 0), (2, 1), (3, 1)])
def test_estimates_are_the_same_whatever_is_cached(monkeypatch, order, axis):
    shape = (20, 15, 4)[:order]
    table = ratings(shape)
    index, left = table.support.index, table.values.squeeze(1).cos()
    asked = torch.from_numpy(every_cell(shape))

    def estimates():
        return Similarity(index, left, shape, axis).estimate(asked)

    everything = estimates()
    assert everything.abs().max() > 0.1
    monkeypatch.setattr(similarity, "MAX_CACHED_FLOAT32", 0)
    torch.testing.assert_close(estimates(), everything, rtol=0, atol=1e-3)
    monkeypatch.setattr(similarity, "MAX_CACHED_ESTIMATES", 0)
    torch.testing.assert_close(estimates(), everything)
    monkeypatch.setattr(similarity, "MAX_CACHED_PAIRS", 0)
    torch.testing.assert_close(estimates(), everything)
    monkeypatch.setattr(similarity, "ENTRIES_PER_QUERY", 0)
    monkeypatch.setattr(reference_weights, "ENTRIES_PER_QUERY", 0)
    torch.testing.assert_close(estimates(), everything)
    monkeypatch.setattr(similarity, "NUMBERS_PER_CHUNK", 1)
    torch.testing.assert_close(estimates(), everything)


def test_queries_that_come_one_by_one_are_counted_in_one_number():
    table = ratings((20, 15))
    index, left = table.support.index, table.values.squeeze(1).cos()
    one_by_one = Similarity(index, left, (20, 15), 0)
    for cell in index[:5]:
        one_by_one.estimate(cell[None])
    assert one_by_one.queries == [5]


@pytest.mark.parametrize(("order", "axis"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("at_once", [1 << 25, 40, 1])
def test_a_sparse_table_gives_the_same_estimates(monkeypatch, order, axis, at_once):
    shape = (20, 15, 4)[:order]
    table = ratings(shape)
    index, left = table.support.index, table.values.squeeze(1).cos()
    asked = torch.from_numpy(every_cell(shape))
    expected = Similarity(index, left, shape, axis).estimate(asked)
    monkeypatch.setattr(unfolding, "MAX_ENTRIES_PER_CELL", 0)
    monkeypatch.setattr(reference_weights, "PAIRS_PER_CHUNK", at_once)
    monkeypatch.setattr(similarity, "PAIRS_PER_COMPARISON", at_once)
    monkeypatch.setattr(reference_weights, "PAIRS_PER_BLOCK", {"cpu": at_once})
    sparse = Similarity(index, left, shape, axis)
    assert sparse.unfolded.values.layout == torch.sparse_csr
    torch.testing.assert_close(sparse.estimate(asked), expected)
    assert not sparse.estimate(asked[:0]).numel()


def test_weights_of_one_block_of_members_are_not_those_of_the_next(monkeypatch):
    """In a sparse table most pairs of members have no weight."""
    generator = torch.Generator().manual_seed(0)
    index = (torch.rand(60, 50, generator=generator) < 0.04).nonzero()
    left = torch.randn(len(index), generator=generator)
    asked = torch.from_numpy(every_cell((60, 50)))
    expected = Similarity(index, left, (60, 50), 0).estimate(asked)
    assert (expected == 0).any()
    monkeypatch.setattr(unfolding, "MAX_ENTRIES_PER_CELL", 0)
    for pairs in (1 << 20, 3 * 60, 1):
        monkeypatch.setattr(reference_weights, "PAIRS_PER_BLOCK", {"cpu": pairs})
        sparse = Similarity(index, left, (60, 50), 0)
        torch.testing.assert_close(sparse.estimate(asked), expected)


def test_the_prior_of_a_joint_table_gives_the_channels_of_the_mirrored_cell_too():
    x = random_array((8, 8), density=0.6)
    prior = Prior.of(x, ValueStats.of(x.values.flatten().numpy(), REAL), 3)
    joint = replace(prior, joint=True)
    index = x.support.index[:5]
    own, mirrored = prior(index), prior(index.flip(1))
    both = joint(index)
    assert_same(both[:, : own.shape[1]], own)
    assert_same(both[:, own.shape[1]], mirrored[:, 0] - own[:, 0])
    assert_same(both[:, own.shape[1] + 1 :], mirrored[:, 1:])
    one, other = (each.of_unseen([0])[1] for each in (prior, joint))
    assert other.shape[1] == 2 * one.shape[1]
    assert_same(other[:, : one.shape[1]], one)
