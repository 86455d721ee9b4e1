"""Users that the pretrained model never read, predicted from their own cells.

    python -m paper.pretrained.unseen_users           # ML-100K without the test cells of u1

A tenth of the users is held out, and the model reads the others. Then a share of the cells of each
held-out user is shown, only these are run, and the user's other cells are predicted. The column
beside it reads all shown cells together, and bias and Bayesian MF are fitted to the same cells.
"""

from __future__ import annotations

import argparse

import numpy as np

from exchangeable.arrays.cells import Cells
from exchangeable.baselines import BASELINES
from exchangeable.metrics import rmse
from exchangeable.predictors.model import ModelPredictor
from exchangeable.pretraining.bundled import bundled_model
from paper.lib import problems
from paper.lib.command import run_command
from paper.lib.problems import Floats, Problem

SHARES = (0.05, 0.1, 0.25, 0.5, 0.9)
OUT = 0.1
OTHERS = {"bias": "bias", "bmf": "Bayesian MF"}


def errors(problem: Problem, seen: problems.Index, share: float, seed: int) -> list[float]:
    """RMSE from own cells alone, from all cells together, and of the baselines on all cells."""
    generator = np.random.default_rng([seed, round(1000 * share)])
    strangers = np.flatnonzero(generator.random(problem.shape[0]) < OUT)
    index, values = problem.index[seen], problem.values[seen]
    strange = np.isin(index[:, 0], strangers)
    shown = strange & (generator.random(len(seen)) < share)
    asked = strange & ~shown
    cells = Cells(index, values, problem.shape, problem.scale)
    model = bundled_model(2)
    others = ModelPredictor.of(model, cells.take(~strange))
    together = ModelPredictor.of(model, cells.take(~asked))
    renamed = index.copy()
    renamed[:, 0] = 0  # a newcomer's number
    alone: list[Floats] = []
    truth: list[Floats] = []
    for user in strangers:
        own, wanted = shown & (index[:, 0] == user), asked & (index[:, 0] == user)
        if not own.any() or not wanted.any():
            continue
        predictor = others.for_new_members(0, renamed[own], values[own])
        assert predictor is not None
        alone.append(predictor.predict(renamed[wanted]).mean().numpy())
        truth.append(values[wanted])
    known = np.isin(index[:, 0], np.unique(index[shown, 0])) & asked
    exact = together.predict(index[known]).mean().numpy()
    fitted = [BASELINES[name]().fit(cells.take(~asked)) for name in OTHERS]
    error = rmse(np.concatenate(truth), np.concatenate(alone))
    further = [rmse(values[known], baseline.predict(index[known])[0]) for baseline in fitted]
    return [error, rmse(values[known], exact), *further]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", default="ml-100k")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    problem = problems.load(given.table)
    split = next(iter(problem.tests))
    train, validation, _ = problem.parts(split, 0)
    seen = np.sort(np.concatenate([train, validation]))
    print(
        "| share of the user's cells shown | own cells alone | all cells together | difference | "
        + " | ".join(OTHERS.values()) + " |\n" + "|---" * (4 + len(OTHERS)) + "|", flush=True
    )  # fmt: skip
    for share in SHARES:
        alone, together, *others = errors(problem, seen, share, given.seed)
        cells = [f"{share:.0%}", f"{alone:.4f}", f"{together:.4f}", f"{alone / together - 1:+.2%}"]
        print("| " + " | ".join([*cells, *(f"{one:.4f}" for one in others)]) + " |", flush=True)


if __name__ == "__main__":
    run_command(main)
