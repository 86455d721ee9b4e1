"""A run whose errors on test cells are noted at every validation, beside those on validation cells.

Nothing is chosen by them. They show how much lower a figure gets that was: the released code of
the paper prints its best error on test cells, too, and measures errors in conditional samples until
95 % of the test cells were drawn.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.support import Support
from exchangeable.models.configs import build
from exchangeable.models.memory import MemoryModel
from exchangeable.runtime.interruption import Interrupted
from exchangeable.training.execution import Execution
from exchangeable.training.loop import train
from exchangeable.training.masking import ExampleSource
from exchangeable.training.run import Run
from exchangeable.training.samplers import Conditional
from exchangeable.training.task import Task
from exchangeable.training.validation import predict_cells
from exchangeable.values.codecs import ValueStats
from paper.lib import runs
from paper.lib.methods import Deep
from paper.lib.problems import Floats, Index, Problem

DRAWN = 0.95
"""Share of the test cells after which the released code stops drawing samples."""
MEMBERS = {"ml-100k": (300, 300), "ml-1m": (800, 1300)}
"""Users and films that it draws for a sample."""


@dataclass(eq=False)
class WatchedSource(ExampleSource):
    """The examples of a table; at every validation the test cells are predicted, too."""

    others: tuple[ExchangeableArray, ExchangeableArray, ValueStats] | None = None
    """Cells that are observed for the test cells, the test cells, and the former's statistics."""
    watched: list[tuple[int, float, float]] = field(default_factory=list)
    """Step, RMSE on the validation cells and RMSE on the test cells."""

    def validate(self, model: MemoryModel, execution: Execution) -> float | None:
        error = super().validate(model, execution)
        if self.others is not None and error is not None:
            seen, asked, stats = self.others
            outputs = predict_cells(model, self.codec, seen, asked.support, stats)
            apart = self.codec.read(outputs.double(), stats).mean() - asked.values.squeeze(1)
            rmse = float(apart.square().mean().sqrt())
            self.watched.append((self.run.step, round(error, 5), round(rmse, 5)))
        return error


def watched_run(
    problem: Problem, made: Deep, split: str, seed: int, device: str, *, seconds: float = np.inf
) -> tuple[dict[str, Any], MemoryModel]:
    """Train a method; return its errors as chosen by validation and by test cells, and it."""
    started = time.perf_counter()
    train_cells, validation, test = problem.parts(split, seed)
    base = np.sort(np.concatenate([train_cells, validation]))
    task = Task(
        runs.array_of(problem, train_cells),
        runs.array_of(problem, validation),
        runs.stats_of(problem, train_cells),
    )
    model = build(made.config, made.training.seed)
    state = Run.start(model.to(device), made.training)
    others = (
        runs.array_of(problem, base).to(torch.device(device)),
        runs.array_of(problem, test).to(torch.device(device)),
        runs.stats_of(problem, base),
    )
    source = WatchedSource(state, made.codec, task, others=others)
    try:
        train(state, source, Execution(torch.device(device), seconds=seconds))
    except Interrupted:
        print(f"stopped after step {state.step:,}", flush=True)
    answers = runs.predictions_of(state.best, made, problem, base, test, device)
    by_test = min(source.watched, key=lambda look: look[2])
    apart = answers.mean().numpy() - problem.values[test]
    sampled: dict[str, float] = {}
    if problem.name in MEMBERS:
        drawn = drawn_first(problem, test, seed)
        means = sampled_means(state.best, made, problem, test, seed, device)
        sampled["rmse_drawn"] = _rmse(apart[drawn])
        sampled["rmse_sampled"] = _rmse((means - problem.values[test])[np.isfinite(means)])
    found = {
        "problem": problem.name,
        "split": split,
        "seed": seed,
        **runs.scores(answers, torch.from_numpy(problem.values[test])),
        **runs.training_summary(state, made),
        "steps": state.step,
        "rmse_by_test": by_test[2],
        "step_by_test": by_test[0],
        **sampled,
        "watched": [list(look) for look in source.watched],
        "seconds": time.perf_counter() - started,
        **runs.environment_facts(device),
    }
    return found, state.best


def drawn_first(problem: Problem, test: Index, seed: int) -> Index:
    """Positions of the test cells that conditional samples of all cells draw first, up to 95 %."""
    sampler = _sampler(problem)
    generator, drawn = np.random.default_rng(seed), np.zeros(len(problem.values), dtype=bool)
    while drawn[test].mean() < DRAWN:
        drawn[sampler.draw(generator)] = True
    return np.flatnonzero(drawn[test])


def sampled_means(
    model: MemoryModel,
    made: Deep,
    problem: Problem,
    test: Index,
    seed: int,
    device: str,
) -> Floats:
    """Means of test cells, each from the last sample that drew it; NaN where none did."""
    sampler, generator = _sampler(problem), np.random.default_rng(seed)
    is_test = np.zeros(len(problem.values), dtype=bool)
    is_test[test] = True
    means = np.full(len(problem.values), np.nan)
    while np.isfinite(means[test]).mean() < DRAWN:
        drawn = sampler.draw(generator)
        seen, asked = drawn[~is_test[drawn]], drawn[is_test[drawn]]
        answers = runs.predictions_of(model, made, problem, seen, asked, device)
        means[asked] = answers.mean().numpy()
    return means[test]


def _sampler(problem: Problem) -> Conditional:
    support = Support(torch.from_numpy(problem.index), problem.shape)
    return Conditional(support, MEMBERS[problem.name])


def _rmse(apart: Floats) -> float:
    return float(np.sqrt(np.mean(apart**2)))
