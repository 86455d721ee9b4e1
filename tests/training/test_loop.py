"""Training is a function of its seed, can be stopped anywhere, and chooses on validation alone."""

import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.training import CODEC, QUICK, SMALL, fresh, learn, same, task, trained_in

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.errors import Failed, InputError
from exchangeable.models.configs import (
    ResidualConfig,
)
from exchangeable.models.stream import Plan
from exchangeable.testing import random_array
from exchangeable.training.config import TrainingConfig
from exchangeable.training.task import Task
from exchangeable.training.trained_model import TrainedModel
from exchangeable.training.validation import validation_rmse
from exchangeable.values.codecs import ScaleFree, ValueStats
from exchangeable.values.scale import Scale


def weights(run):
    return {name: value.clone() for name, value in run.best.state_dict().items()}


def test_training_learns_more_than_it_starts_with():
    run, data = fresh(replace(QUICK, steps=150)), task((30, 20))
    before = validation_rmse(run.best, CODEC, data)
    learn(run, data)
    mean = data.observed.values.mean()
    spread = float((data.validation.values - mean).square().mean().sqrt())
    after = validation_rmse(run.best, CODEC, data)
    assert after == pytest.approx(run.best_rmse)
    assert after < 0.75 * spread < before


def test_the_same_seed_gives_the_same_weights_and_another_does_not():
    runs = [fresh(), fresh(), fresh(replace(QUICK, seed=1))]
    for run in runs:
        learn(run, task())
    assert same(weights(runs[0]), weights(runs[1]))
    assert not same(weights(runs[0]), weights(runs[2]))


@pytest.mark.parametrize(
    "batch", ["full", "uniform", "rows-columns", "conditional", "neighbourhood"]
)
def test_a_run_that_was_stopped_anywhere_ends_with_the_same_weights_bit_for_bit(batch):
    config = replace(QUICK, batch=batch, batch_cells=40)
    whole = fresh(config)
    learn(whole, task())
    for stop in (1, 3, 7, 11):
        first = fresh(config)
        stopped = {}

        def save(run, stop=stop, stopped=stopped):
            if run.step == stop:
                tensors, numbers = run.state()
                stopped["state"] = {k: v.clone() for k, v in tensors.items()}, numbers

        learn(first, task(), save, save_every=-1)
        second = fresh(config)
        second.restore(*stopped["state"])
        assert second.step == stop
        learn(second, task())
        assert same(weights(whole), weights(second))
        assert second.history == whole.history


def test_the_result_is_the_best_that_was_judged_and_never_worse_than_the_start():
    config = replace(QUICK, learning_rate=10.0, clip=100.0, average=0.0)  # makes everything worse
    run = fresh(config)
    start = weights(run)
    learn(run, task())
    best = min(run.history, key=lambda look: look["validation_rmse"])
    assert run.best_rmse == best["validation_rmse"]
    assert run.best_step == best["step"]
    if run.best_step == 0:
        assert same(weights(run), start)
    assert run.best_rmse <= run.history[0]["validation_rmse"]


def test_patience_ends_a_run_that_no_longer_gains():
    config = replace(QUICK, steps=400, learning_rate=1.0, patience=2, evaluate_every=1)
    run = fresh(config)
    learn(run, task())
    assert run.step < 400
    assert run.looks_without_gain == 2


def test_validation_cells_are_neither_trained_on_nor_observed():
    data = task()
    other = Task(
        data.observed,
        data.validation.with_values(6 - data.validation.values),
        data.stats,
    )
    one, two = fresh(), fresh()
    learn(one, data)
    learn(two, other)
    # The steps did not see them.
    assert same(one.averaged.state_dict(), two.averaged.state_dict())
    assert one.best_rmse != two.best_rmse


def test_without_validation_cells_the_last_averaged_weights_are_the_result():
    data = task(validation=0.0)
    run = fresh()
    learn(run, data)
    assert same(weights(run), run.averaged.state_dict())
    assert run.best_step == QUICK.steps


def test_averaged_weights_leave_the_random_start_within_a_few_steps():
    """At a decay of .99 from the first step on they would be nearly what they were drawn as."""
    run = fresh(replace(QUICK, average=0.99))
    start = [weight.detach().clone() for weight in run.averaged.parameters()]
    with torch.no_grad():
        for weight in run.model.parameters():
            weight.add_(1.0)
    moved = []
    for run.step in range(12):
        run.average()
        moved.append(float((next(run.averaged.parameters()).detach() - start[0]).mean()))
    assert moved[0] == pytest.approx(0.9)
    assert all(later > earlier for earlier, later in pairwise(moved))
    assert moved[-1] > 0.999
    assert run.decay(10_000) == 0.99


def test_the_learning_rate_rises_and_falls():
    config = TrainingConfig(steps=100, warm_up=0.1, learning_rate=1.0)
    rates = [config.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1, rel=0.01)
    assert max(rates) == pytest.approx(1.0, rel=0.03)
    assert rates.index(max(rates)) == 9
    assert rates[-1] < 0.01


@pytest.mark.parametrize(
    "wrong",
    [
        {"hide": "diagonal"},
        {"loss": "hinge"},
        {"batch": "some"},
        {"steps": -1},
        {"steps": 1.5},
        {"hide_least": 0.0},
        {"hide_scale": "linear"},
        {"hide_least": 0.7, "hide_most": 0.6},
        {"learning_rate": 0.0},
        {"average": 1.0},
        {"evaluate_every": 0},
        {"seed": -1},
        {"patience": 0},
        {"learning_rate": math.nan},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InputError):
        TrainingConfig(**wrong)


def test_bfloat16_trains_nearly_as_float32_does():
    config = replace(QUICK, steps=60)
    ends = []
    for precision in ("float32", "bfloat16"):
        run = fresh(config)
        learn(run, task((30, 20)), precision=precision)
        ends.append(run.best_rmse)
    assert ends[0] != ends[1]
    assert ends[1] == pytest.approx(ends[0], rel=0.1)


def test_real_values_train_too():
    noise = random_array((20, 15), density=0.6)
    row = torch.randn(20, dtype=torch.float64)[noise.support.index[:, 0]]
    table = ExchangeableArray(noise.support, 100 + 20 * row[:, None] + noise.values)
    kept = torch.from_numpy(np.random.default_rng(0).random(len(table)) < 0.2)
    shown = table.take(~kept)
    reference = ValueStats.of(shown.values.squeeze(1).numpy(), Scale("real"))
    codec, config = ScaleFree(), replace(QUICK, steps=120)
    run = fresh(config, ResidualConfig(2, codec.out_channels, width=16, depth=2, pooling=("mean",)))
    learn(run, Task(shown, table.take(kept), reference), codec=codec)
    assert run.best_rmse < 0.6 * float(table.values.std())


def test_a_run_that_diverges_says_so_and_keeps_its_best_weights(tmp_path):
    wild = replace(QUICK, steps=300, learning_rate=1e6, clip=1e9, average=0.0)
    with pytest.raises(Failed, match=r"no longer finite.*learning rate"):
        trained_in(tmp_path, wild)
    kept = TrainedModel.load(tmp_path / "model")
    assert all(bool(weight.isfinite().all()) for weight in kept.model.parameters())


def test_the_learning_rate_rises_and_then_falls_or_stays():
    falling = TrainingConfig(steps=100, learning_rate=0.5, warm_up=0.1)
    staying = replace(falling, schedule="constant")
    assert [staying.rate(step) for step in (0, 4, 9, 50, 99)] == [0.05, 0.25, 0.5, 0.5, 0.5]
    assert falling.rate(50) == pytest.approx(0.25)
    assert falling.rate(99) < 0.001 < staying.rate(0)


def test_with_nothing_hidden_cells_are_predicted_from_themselves_on_one_process_at_once():
    config = replace(QUICK, hide="nothing")
    run = fresh(config)
    learn(run, task())
    assert run.step == QUICK.steps
    with pytest.raises(InputError, match="learns from hidden cells"):
        learn(fresh(config, replace(SMALL, prior=2)), task())
    with pytest.raises(InputError, match="all cells at once"):
        learn(fresh(config), task(), plan=Plan(4))


@pytest.mark.parametrize("model", [SMALL, replace(SMALL, prior=2)])
def test_validation_cells_may_be_judged_with_fewer_cells_too(model):
    data, ends = task((30, 20)), []
    for shares in ((1.0,), (0.2,), (1.0, 0.2)):
        config = replace(QUICK, steps=1, judged_shares=shares)
        run = fresh(config, model)
        learn(run, data)
        ends.append([seen["validation_rmse"] for seen in run.history])
    all_cells, few, both = ends
    assert all_cells[0] != few[0]
    halves = [(one + other) / 2 for one, other in zip(all_cells, few, strict=True)]
    assert both == pytest.approx(halves)


def test_shares_to_judge_with_are_shares():
    assert TrainingConfig(judged_shares=[0.5, 1.0]).judged_shares == (0.5, 1.0)
    for wrong in ((), (0.0,), (1.5,)):
        with pytest.raises(InputError, match="judged_shares must be one or more above 0"):
            TrainingConfig(judged_shares=wrong)


def test_training_needs_neither_polars_nor_safetensors():
    """As on a machine that has only what models are computed with."""
    code = (
        "import sys; sys.modules |= dict.fromkeys(('polars', 'safetensors', 'sklearn', 'typer')); "
        "import exchangeable.training.loop, exchangeable.pretraining.synthetic, paper.lib.runs"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
