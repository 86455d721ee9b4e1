"""A step that would not fit in memory passes in parts."""

from dataclasses import replace

import pytest
from tests.support.training import CODEC, QUICK, SMALL, fresh, learn, task

from exchangeable.models import memory_plan as reading_plans
from exchangeable.models.residual import ResidualModel
from exchangeable.models.stream import Plan
from exchangeable.training import memory_plan as plans


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
