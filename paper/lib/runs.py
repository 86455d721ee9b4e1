"""One run: a method on one split of a problem with one seed; kept as JSON.

    python -m paper.lib.runs ml-100k --method ours --split u1 --seed 0 --device cuda

Choices are made on validation cells; at the end all cells but those for testing are observed,
and these are answered once. What was run before is not run again unless asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import kendalltau

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.cells import Cells
from exchangeable.arrays.support import Support
from exchangeable.errors import InputError
from exchangeable.models.configs import build
from exchangeable.models.memory import MemoryModel
from exchangeable.predictors.baseline import BaselinePredictor, fit_baseline
from exchangeable.prior.side_information import SideInformation
from exchangeable.runtime.files import whole_file
from exchangeable.runtime.progress import Progress
from exchangeable.training.execution import Execution
from exchangeable.training.loop import train
from exchangeable.training.masking import ExampleSource
from exchangeable.training.run import Run
from exchangeable.training.task import Task
from exchangeable.training.validation import predict_cells
from exchangeable.values.codecs import ValueStats
from exchangeable.values.distributions import Distribution, interval
from paper.lib import methods, problems, provenance
from paper.lib.command import run_command
from paper.lib.methods import Deep
from paper.lib.problems import Floats, Index, Problem

RESULTS = Path(__file__).parents[1] / "results"


def run(
    problem: Problem, split: str, method: str, seed: int, device: str = "cpu", **changed: Any
) -> dict[str, Any]:
    """Fit, answer the test cells, and say how well."""
    started = time.perf_counter()
    train_cells, validation, test = problem.parts(split, seed)
    base = np.sort(np.concatenate([train_cells, validation]))
    if methods.is_baseline(method):
        fitted = fitted_baseline(problem, method, base, seed)
        answers = fitted.predict(problem.index[test])
        told = baseline_summary(fitted)
    else:
        made = methods.deep(method, problem, seed, **changed)
        state = fit(problem, made, train_cells, validation, device)
        answers = predictions_of(state.best, made, problem, base, test, device)
        told = {**training_summary(state, made), "training_seconds": time.perf_counter() - started}
    return {
        "problem": problem.name,
        "split": split,
        "method": method,
        "seed": seed,
        "changed": changed,
        **scores(answers, torch.from_numpy(problem.values[test])),
        **told,
        "seconds": time.perf_counter() - started,
        **environment_facts(device),
    }


def environment_facts(device: str) -> dict[str, Any]:
    """Where, with what and by which code something was run."""
    return {
        "device": _device_name(device),
        "torch": torch.__version__,
        "commit": provenance.commit(),
        "code": dict(provenance.code_here()),
    }


def scores(answers: Distribution, truth: torch.Tensor) -> dict[str, float]:
    """Errors of the means, log-likelihood, and how often 80 % intervals hold the truth."""
    mean = answers.mean()
    error = mean - truth
    low, high = interval(answers, 0.8)
    return {
        "rmse": float(error.square().mean().sqrt()),
        "mse": float(error.square().mean()),
        "mae": float(error.abs().mean()),
        "concordance": concordance(truth.numpy(), mean.numpy()),
        "log_likelihood": float(answers.log_likelihood(truth).mean()),
        "coverage": float(((truth >= low) & (truth <= high)).double().mean()),
        "cells": len(truth),
    }


def concordance(truth: Floats, answers: Floats) -> float:
    """The share of pairs that are in the right order, ties by halves.

    It is that of ``exchangeable.metrics``, which scikit-learn is needed for: not all machines
    on which this is run have it.
    """
    untied, differing = _untied_pairs(truth), _untied_pairs(answers)
    if not untied or not differing:
        return 0.5  # where tau is not defined
    tau = kendalltau(truth, answers).statistic
    return float(np.clip((1 + tau * np.sqrt(differing / untied)) / 2, 0, 1))


def _untied_pairs(values: Floats) -> int:
    _, counts = np.unique(values, return_counts=True)
    return (len(values) ** 2 - int((counts**2).sum())) // 2


def fitted_baseline(problem: Problem, method: str, seen: Index, seed: int = 0) -> BaselinePredictor:
    """Fit a baseline to some cells; the rank of a factorization is chosen on hidden ones."""
    cells = Cells(problem.index[seen], problem.values[seen], problem.shape, problem.scale)
    return fit_baseline(method, cells, seed)


def baseline_summary(fitted: BaselinePredictor) -> dict[str, Any]:
    """Its settings, and how its rank was chosen."""
    settings = asdict(fitted.baseline)  # type: ignore[call-overload]  # all are dataclasses
    choice = fitted.choice
    return {"settings": settings, "rank_choice": None if choice is None else asdict(choice)}


def fit(
    problem: Problem,
    made: Deep,
    train_cells: Index,
    validation: Index,
    device: str,
) -> Run:
    """Train; the weights that did best on the validation cells are ``best``."""
    reference = stats_of(problem, train_cells)
    task = Task(
        array_of(problem, train_cells),
        array_of(problem, validation),
        reference,
        side_of(problem, made, train_cells),
        times_of(problem, made, validation),
    )
    model = made.start or build(made.config, made.training.seed)
    state = Run.start(model.to(device), made.training)
    execution = Execution(torch.device(device), progress=Progress(show=_Told()))
    train(state, ExampleSource(state, made.codec, task), execution)
    return state


def predictions_of(
    model: MemoryModel,
    made: Deep,
    problem: Problem,
    seen: Index,
    asked: Index,
    device: str,
) -> Distribution:
    """For cells of a table, given others of it."""
    reference, observed = stats_of(problem, seen), array_of(problem, seen).to(device)
    queries = Support(torch.from_numpy(problem.index[asked]).to(device), problem.shape)
    side = side_of(problem, made, seen).to(torch.device(device))
    times = times_of(problem, made, asked)
    outputs = predict_cells(
        model,
        made.codec,
        observed,
        queries,
        reference,
        side=side,
        times=None if times is None else times.to(device),
    )
    return made.codec.read(outputs.double().cpu(), reference)


def training_summary(state: Run, made: Deep) -> dict[str, Any]:
    """How training went."""
    return {
        "validation": state.best_rmse,
        "best_step": state.best_step,
        "weights": sum(w.numel() for w in state.model.parameters()),
        "settings": {"model": asdict(made.config), "training": asdict(made.training)},
        "history": [[look["step"], round(look["validation_rmse"], 5)] for look in state.history],
    }


def array_of(problem: Problem, cells: Index) -> ExchangeableArray:
    support = Support(torch.from_numpy(problem.index[cells]), problem.shape)
    return ExchangeableArray.unchecked(support, torch.from_numpy(problem.values[cells])[:, None])


def stats_of(problem: Problem, cells: Index) -> ValueStats:
    return ValueStats.of(problem.values[cells], problem.scale)


def side_of(problem: Problem, made: Deep, cells: Index) -> SideInformation:
    """Features of members and times of cells, where the method takes them."""
    if not made.side:
        return SideInformation()
    by_axis = [problem.features.get(axis) for axis in range(len(problem.shape))]
    features = tuple(None if f is None else torch.from_numpy(f - f.mean(axis=0)) for f in by_axis)
    return SideInformation(times_of(problem, made, cells), features if problem.features else None)


def times_of(problem: Problem, made: Deep, cells: Index) -> torch.Tensor | None:
    if not made.side or problem.times is None:
        return None
    return torch.from_numpy(problem.times[cells])


class _Told:
    """A line every ten seconds."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def __call__(self, share: float, text: str) -> None:
        now = time.perf_counter()
        if now - self.last > 10:
            self.last = now
            print(f"  {text}", file=sys.stderr, flush=True)


# Kept runs -------------------------------------------------------------------------------


def results(folder: Path | None = None) -> list[dict[str, Any]]:
    """All runs that are kept."""
    return [json.loads(path.read_text()) for path in sorted((folder or RESULTS).glob("*/*.json"))]


def place_of(problem: str, split: str, method: str, seed: int, folder: Path | None = None) -> Path:
    return (folder or RESULTS) / problem / f"{split}.{method}.{seed}.json"


def ensure(
    problem: str,
    split: str,
    method: str,
    seed: int,
    device: str,
    *,
    again: bool = False,
    folder: Path | None = None,
    label: str | None = None,
    **changed: Any,
) -> dict[str, Any]:
    """A run from its file, or carried out now; ``label`` names a method with changed settings."""
    path = place_of(problem, split, label or method, seed, folder)
    if path.exists() and not again:
        return json.loads(path.read_text())
    found = run(problems.load(problem), split, method, seed, device, **changed)
    found["method"] = label or method
    keep(found, folder)
    return found


def keep(found: dict[str, Any], folder: Path | None = None) -> None:
    """Write a run to its file, whole or not at all."""
    path = place_of(found["problem"], found["split"], found["method"], found["seed"], folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as target:
        target.write_text(to_json_lines(found))


def to_json_lines(found: dict[str, Any]) -> str:
    """As JSON with a line for each entry, however long its value is.

    >>> print(to_json_lines({"seed": 0, "history": [[1, 0.9], [2, 0.8]]}), end="")
    {
     "seed": 0,
     "history": [[1, 0.9], [2, 0.8]]
    }
    """
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def check_trial(changed: dict[str, Any], folder: Path) -> None:
    """Raise where a run with changed settings would pass for one of the results."""
    if changed and folder.resolve() == RESULTS.resolve():
        raise InputError("runs with changed settings need a folder of their own: add --out FOLDER")


def settings_of(said: Sequence[str]) -> dict[str, Any]:
    """From NAME=VALUE, with values as in JSON, but lists as tuples, which settings have.

    >>> settings_of(["steps=100", 'activation="gated"', "encoder=[8, 4]"])
    {'steps': 100, 'activation': 'gated', 'encoder': (8, 4)}
    """
    named = {name: json.loads(value) for name, value in (one.split("=", 1) for one in said)}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in named.items()}


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", choices=problems.NAMES)
    parser.add_argument("--method", nargs="+", required=True)
    parser.add_argument("--split", nargs="+")
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    changed = settings_of(given.set)
    check_trial(changed, given.out or RESULTS)
    for split in given.split or list(problems.load(given.problem).tests)[:1]:
        for method in given.method:
            for seed in given.seed:
                found = ensure(
                    given.problem, split, method, seed, given.device,
                    again=given.again, folder=given.out, **changed,
                )  # fmt: skip
                validation = found.get("validation")
                print(
                    f"{given.problem} {split} {method} seed {seed}: RMSE {found['rmse']:.4f}"
                    + (f", validation {validation:.4f}" if validation else "")
                    + f", 80 % intervals hold {found['coverage']:.1%}, {found['seconds']:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    run_command(main)
