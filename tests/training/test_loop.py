"""Training is a function of its seed, can be stopped anywhere, and chooses on validation alone."""

import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.errors import Failed, InputError
from exchangeable.models import plan as reading_plans
from exchangeable.models.configs import (
    FactorizedConfig,
    ResidualConfig,
    SelfSupervisedConfig,
    build,
)
from exchangeable.models.residual import ResidualModel
from exchangeable.models.stream import Plan
from exchangeable.runtime import checkpoint, devices
from exchangeable.runtime.interruption import Interrupted, explain_out_of_memory, stoppable
from exchangeable.runtime.progress import Progress
from exchangeable.runtime.random import hashed_uniform
from exchangeable.testing import random_array
from exchangeable.training import plan as plans
from exchangeable.training.config import TrainingConfig
from exchangeable.training.execution import Execution
from exchangeable.training.loop import train
from exchangeable.training.masking import ExampleSource, draw_mask, make_sampler
from exchangeable.training.recipes import RECIPES, find_recipe
from exchangeable.training.run import Run
from exchangeable.training.task import Task
from exchangeable.training.train_model import train_model
from exchangeable.training.trained_model import TrainedModel
from exchangeable.training.validation import validation_rmse
from exchangeable.values.codecs import OneHot, ScaleFree, ValueStats
from exchangeable.values.scale import Scale

STARS = Scale("levels", (1.0, 2.0, 3.0, 4.0, 5.0))
CODEC = OneHot(5)
SMALL = ResidualConfig(5, 5, width=8, depth=2, pooling=("mean", "attention"), heads=2)
QUICK = TrainingConfig(steps=12, evaluate_every=3, learning_rate=1e-2)


def ratings(shape=(12, 9), seed=0, density=0.7):
    """Ratings with a bias of rows and of columns, so that there is something to learn."""
    noise = random_array(shape, density=density, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    total = sum(
        torch.randn(size, generator=generator, dtype=torch.float64)[noise.support.index[:, axis]]
        for axis, size in enumerate(shape)
    )
    values = (3 + total[:, None] + 0.3 * noise.values).round().clamp(1, 5)
    return ExchangeableArray(noise.support, values)


def task(shape=(12, 9), seed=0, validation=0.2):
    table = ratings(shape, seed)
    kept = torch.from_numpy(np.random.default_rng(seed).random(len(table)) < validation)
    shown = table.take(~kept)
    return Task(shown, table.take(kept), ValueStats.of(shown.values.squeeze(1).numpy(), STARS))


def fresh(config=QUICK, model=SMALL):
    return Run.start(build(model, config.seed), config)


def learn(run, data, save=None, codec=CODEC, **execution):
    train(run, ExampleSource(run, codec, data), Execution(**execution), save=save)


def weights(run):
    return {name: value.clone() for name, value in run.best.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


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


def test_a_state_goes_through_a_checkpoint_unchanged(tmp_path):
    run = fresh(replace(QUICK, steps=5))
    learn(run, task())
    tensors, numbers = run.state()
    checkpoint.save(tmp_path / "run", numbers, {"model": tensors}, card="")
    stored = checkpoint.load(tmp_path / "run")
    again = fresh()
    again.restore(stored.tensors["model"], stored.config)
    assert same(run.state()[0], again.state()[0])
    assert again.draws.random() == run.draws.random()


def execution(tmp_path, **settings):
    return Execution(folder=tmp_path / "model", **settings)


def trained_in(tmp_path, config=QUICK, **settings):
    return train_model(
        SMALL,
        CODEC,
        task(),
        config,
        name="test",
        facts={"data": "x"},
        execution=execution(tmp_path, save_every=-1),
        **settings,
    )


def stop_after(monkeypatch, steps):
    """Send ourselves a signal in the midst of a step, as a batch system does."""
    from exchangeable.training import loop

    real, done = loop.take_step, []

    def step(*args):
        done.append(1)
        if len(done) == steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*args)

    monkeypatch.setattr(loop, "take_step", step)


def test_a_signal_saves_what_there_is_and_resuming_gives_what_would_have_come(
    tmp_path, monkeypatch
):
    whole = trained_in(tmp_path / "whole")
    with monkeypatch.context() as patched:
        stop_after(patched, 5)
        # Not an ordinary error, after which others would go on.
        with pytest.raises(KeyboardInterrupt, match=r"stopped after step 5 of 12.*saved in"):
            trained_in(tmp_path)
    assert "training" in checkpoint.load(tmp_path / "model").tensors
    usable = TrainedModel.load(tmp_path / "model")  # a run that is not finished is a model too
    assert usable.facts["steps"] == 5
    done = trained_in(tmp_path, resume=True)
    assert same(done.model.state_dict(), whole.model.state_dict())
    assert "training" not in checkpoint.load(tmp_path / "model").tensors


@pytest.mark.parametrize("finished", [True, False])
def test_a_folder_with_the_removed_setting_hidden_share_loads_and_resumes(tmp_path, finished):
    config = SelfSupervisedConfig(5, 5, width=8, depth=3)
    made = {"name": "ours", "facts": {}, "execution": execution(tmp_path)}
    trained = train_model(config, CODEC, task(), QUICK, **made)

    def save(run):
        if run.step == 5:
            trained.save(tmp_path / "model", run=run)

    if not finished:
        learn(fresh(model=config), task(), save, save_every=-1)
    stored = checkpoint.load(tmp_path / "model")
    stored.config["model"]["hidden_share"] = 0.15
    checkpoint.save(tmp_path / "model", stored.config, stored.tensors, card="", facts=stored.facts)

    assert TrainedModel.load(tmp_path / "model").config == config
    again = train_model(config, CODEC, task(), QUICK, resume=True, **made)
    assert again.config == config
    assert same(trained.model.state_dict(), again.model.state_dict())


def test_resuming_says_what_it_finds(tmp_path):
    said = []
    settings = {"progress": Progress(note=said.append), "save_every": -1}

    def go(config=QUICK, facts="x", data=None):
        return train_model(
            SMALL,
            CODEC,
            data or task(),
            config,
            name="test",
            facts={"data": facts},
            execution=execution(tmp_path, **settings),
            resume=True,
        )

    go()
    assert "no run in" in said[0]
    go()
    assert "finished already" in said[-1]
    with pytest.raises(InputError, match="its training differs"):
        go(replace(QUICK, steps=13))
    with pytest.raises(InputError, match="other cells"):
        go(facts="y")
    with pytest.raises(InputError, match="other validation cells"):
        go(data=task(validation=0.4))
    settings["precision"] = "bfloat16"
    with pytest.raises(InputError, match="another precision"):
        go()


def test_handlers_are_put_back_and_a_second_signal_stops_at_once():
    before = signal.getsignal(signal.SIGINT)
    asked_after_one = []

    def two_signals():
        with stoppable() as asked:
            os.kill(os.getpid(), signal.SIGINT)
            asked_after_one.append(asked())
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        two_signals()
    assert asked_after_one == [True]
    assert signal.getsignal(signal.SIGINT) is before


def test_out_of_memory_is_one_line_with_the_setting_that_helps():
    with pytest.raises(Failed, match=r"out of memory.*batch_cells"), explain_out_of_memory():
        torch.empty(2**60)
    with pytest.raises(ValueError, match="other"), explain_out_of_memory():
        raise ValueError("other")
    with pytest.raises(RuntimeError, match="unrelated"), explain_out_of_memory():
        raise RuntimeError("unrelated")


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


@pytest.mark.parametrize("way", ["flat", "rows", "columns"])
def test_shares_hidden_differ_between_members_only_where_they_should(way):
    support = random_array((40, 50), density=1.0).support
    config = TrainingConfig(hide=way, hide_least=0.05, hide_most=0.95)
    mask = draw_mask(support, config, np.random.default_rng(3)).double()
    shares = torch.zeros(40, 50, dtype=torch.float64)
    shares[tuple(support.index.T)] = mask
    rows, columns = shares.mean(dim=1).std(), shares.mean(dim=0).std()
    noise = 0.5 / math.sqrt(40)
    assert (rows > 2 * noise) == (way == "rows")
    assert (columns > 2 * noise) == (way == "columns")


@pytest.mark.parametrize(("scale", "below_a_tenth"), [("even", 0.09), ("log", 0.42)])
def test_shares_are_drawn_evenly_or_so_that_nearly_empty_tables_come_up_often(scale, below_a_tenth):
    support = random_array((400, 50), density=1.0).support
    config = TrainingConfig(hide="rows", hide_least=0.05, hide_most=0.98, hide_scale=scale)
    mask = draw_mask(support, config, np.random.default_rng(3)).double()
    left = torch.zeros(400, 50, dtype=torch.float64)
    left[tuple(support.index.T)] = 1 - mask
    assert (left.mean(dim=1) < 0.1).double().mean() == pytest.approx(below_a_tenth, abs=0.06)


def test_what_is_hidden_is_told_by_a_hash_that_is_the_same_everywhere():
    def mixed(place, key):
        whole = 2**64 - 1
        x = (place * 0x9E3779B97F4A7C15 + key) & whole
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & whole
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & whole
        return ((x ^ (x >> 31)) & (2**24 - 1)) / 2**24

    for key in (0, 5, 2**63 - 1):
        found = hashed_uniform(50, key, torch.device("cpu")).tolist()
        assert found == [mixed(place, key) for place in range(50)]


def test_something_is_always_hidden():
    support = random_array((2, 1), density=0.5).support
    assert len(support) == 1
    config = TrainingConfig(hide_least=1e-9, hide_most=1e-9)
    assert draw_mask(support, config, np.random.default_rng(0)).tolist() == [True]


def test_a_batch_has_about_as_many_cells_as_asked():
    support = random_array((200, 150), density=0.2).support
    for batch in ("uniform", "rows-columns", "conditional", "neighbourhood"):
        sampler = make_sampler(support, TrainingConfig(batch=batch, batch_cells=1000))
        drawn = [len(sampler.draw(np.random.default_rng(seed))) for seed in range(5)]
        assert 500 < np.mean(drawn) < 2500, batch
    assert len(make_sampler(support, TrainingConfig(batch="full"))) == len(support)


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


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        replace(SMALL, features=(3, 0), activation="gated"),
        FactorizedConfig(5, 5, encoder=(8, 4), maps=True, decoder=(8,)),
        SelfSupervisedConfig(5, 5, width=8, depth=3, literal=True),
    ],
)
def test_a_trained_model_comes_back_as_it_was_saved(tmp_path, config):
    model = build(config, seed=3).eval()
    kept = TrainedModel(config, CODEC, model, QUICK, "mine", {"data": "x"})
    kept.save(tmp_path / "kept")
    again = TrainedModel.load(tmp_path / "kept")
    assert again.config == config
    assert again.codec == CODEC
    assert again.training == QUICK
    assert again.name == "mine"
    assert again.facts["data"] == "x"
    assert same(model.state_dict(), again.model.state_dict())
    assert not again.model.training


def test_a_forged_configuration_is_refused_in_one_line(tmp_path):
    kept = TrainedModel(SMALL, CODEC, build(SMALL), QUICK, "mine", {})
    described, tensors = kept.to_parts()
    forgeries = [
        {**described, "architecture": "pickle"},
        {**described, "model": {**asdict(SMALL), "width": 16}},
        {**described, "model": {**asdict(SMALL), "surprise": 1}},
        {**described, "training": {**asdict(QUICK), "surprise": 1}},
        {**described, "codec": {"encoding": "one-hot"}},
        {name: part for name, part in described.items() if name != "model"},
    ]
    for number, forged in enumerate(forgeries):
        place = tmp_path / str(number)
        checkpoint.save(place, {"kind": "model", **forged}, {"model": tensors}, card="")
        with pytest.raises(InputError) as raised:
            TrainedModel.load(place)
        assert "\n" not in str(raised.value)


def test_the_estimate_grows_with_the_cells():
    data, model = task((60, 50)), ResidualModel(SMALL)
    few, many = (plans.step_memory(model, CODEC, data, cells) for cells in (5_000, 50_000))
    assert 5 < many / few < 11


def test_what_would_not_fit_passes_in_parts_and_that_is_said(monkeypatch):
    data, model = task((30, 30)), ResidualModel(SMALL)
    plan, sentence = plans.plan_step(model, CODEC, data, 500)
    assert plan is None
    assert sentence.startswith("a step takes about")
    monkeypatch.setattr(plans, "used_memory", lambda device: 0)
    plan, sentence = plans.plan_step(model, CODEC, data, 50_000, limit=4 * 2**20)
    assert plan.activations == "scratch"
    assert 100 < plan.chunk_cells < 20_000
    assert "cells pass at a time, and wait in a scratch file" in sentence
    full = type("Disk", (), {"free": 10})
    monkeypatch.setattr(reading_plans.shutil, "disk_usage", lambda folder: full)
    plan, sentence = plans.plan_step(model, CODEC, data, 50_000, limit=4 * 2**20)
    assert plan.activations == "recompute"
    plan, sentence = reading_plans.plan_reading(model, data.observed.support.group_index, 10**6)
    assert plan.activations == "memory"
    plan, sentence = reading_plans.plan_reading(
        model, data.observed.support.group_index, 10**6, limit=2**20
    )
    assert plan.activations == "recompute"
    assert not plan.keep_pools
    assert "nowhere" in sentence
    assert "reading all again" in sentence


def test_training_in_parts_is_training():
    config, ends = replace(QUICK, steps=20), []
    for plan in (None, Plan(chunk_cells=100, activations="scratch"), Plan(chunk_cells=64)):
        run = fresh(config)
        learn(run, task((30, 20)), plan=plan)
        ends.append(run.best_rmse)
    assert ends[1] == pytest.approx(ends[0], rel=1e-3)
    assert ends[2] == pytest.approx(ends[0], rel=1e-3)


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 2**32), ("500 mb", 500 * 2**20), ("2e9", 2 * 10**9), ("1TiB", 2**40)]
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert devices.parse_size(text) == size
    assert devices.parse_size(np.int64(size)) == devices.parse_size(float(size)) == size


@pytest.mark.parametrize(
    "text", ["", "much", "4 bananas", "-1GB", "0GB", "1.2.3GB", 0, -5, True, [1], float("nan")]
)
def test_sizes_that_are_none_are_refused(text):
    with pytest.raises(InputError, match="memory must be a size such as 4GB"):
        devices.parse_size(text)


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


def test_recipes_have_names():
    assert set(RECIPES) == {"residual", "factorized"}
    with pytest.raises(InputError, match="residual, factorized"):
        find_recipe("deep")


def test_the_former_name_of_a_recipe_is_refused_with_the_new_one():
    with pytest.raises(InputError, match="the recipe 'self-supervised' is called 'residual' now"):
        find_recipe("self-supervised")


def test_a_run_of_a_recipe_that_was_renamed_is_resumed(tmp_path):
    def go(name, **settings):
        return train_model(
            SMALL,
            CODEC,
            task(),
            QUICK,
            name=name,
            facts={"data": "x"},
            execution=execution(tmp_path),
            **settings,
        )

    before = go("self-supervised")
    again = go("residual", resume=True)
    assert again.name == before.name == "self-supervised"
    assert same(before.model.state_dict(), again.model.state_dict())
    with pytest.raises(InputError, match="its name differs"):
        go("factorized", resume=True)


def test_progress_is_shown_as_it_goes():
    shown, run = [], fresh()
    learn(run, task(), progress=Progress(show=lambda share, text: shown.append((share, text))))
    assert [share for share, _ in shown] == [step / 12 for step in range(1, 13)]
    line = (
        r"step (\d+) of 12, loss [\d.]+, validation RMSE ([\d.]+), "
        r"([\d,]+) cells/s, (\d+:\d\d) left"
    )
    found = [re.fullmatch(line, text).groups() for _, text in shown]
    assert [int(step) for step, *_ in found] == list(range(1, 13))
    validations = [float(validation) for _, validation, *_ in found]
    assert validations[2::3] == [round(seen["validation_rmse"], 4) for seen in run.history[1:]]
    assert run.best_rmse == min(seen["validation_rmse"] for seen in run.history)
    assert all(int(rate.replace(",", "")) > 0 for *_, rate, _ in found)
    assert found[-1][-1] == "0:00"


def test_a_run_that_diverges_says_so_and_keeps_its_best_weights(tmp_path):
    wild = replace(QUICK, steps=300, learning_rate=1e6, clip=1e9, average=0.0)
    with pytest.raises(Failed, match=r"no longer finite.*learning rate"):
        trained_in(tmp_path, wild)
    kept = TrainedModel.load(tmp_path / "model")
    assert all(bool(weight.isfinite().all()) for weight in kept.model.parameters())


def test_members_that_meet_in_no_cell_are_drawn_again():
    config = replace(QUICK, steps=5, batch="rows-columns", batch_cells=1)
    run = fresh(config)
    learn(run, task((40, 40)))
    assert run.step == 5


def test_whoever_goes_on_after_errors_does_not_after_an_interruption():
    assert not issubclass(Interrupted, Exception)


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


def test_that_a_prior_is_being_fitted_is_told_before_the_first_step():
    shown = []
    run = fresh(replace(QUICK, steps=2), replace(SMALL, prior=2))
    learn(run, task(), progress=Progress(show=lambda share, text: shown.append((share, text))))
    assert [share for share, _ in shown] == [0, 0.5, 1]
    assert shown[0][1] == "fitting the factorization that cells start from"
    assert shown[1][1].startswith("step 1 of 2, loss ")


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
