"""Users that were never conditioned on, answered from their own cells; against reading everything.

    python -m paper.pretrained.unseen_users           # ML-100K without the test cells of u1

A tenth of the users is kept out. The pretrained model reads the others; then each of these users
comes with a share of the own cells, which is all that is computed, and the rest are answered. In
the other column the same cells are read together with all others.
"""

from __future__ import annotations

import argparse

import numpy as np

from exchangeable.arrays.cells import Cells
from exchangeable.completion.model_predictor import ModelPredictor
from exchangeable.metrics import rmse
from exchangeable.pretraining.bundled import bundled_model
from paper.lib import problems
from paper.lib.command import run_command
from paper.lib.problems import Floats, Problem

SHARES = (0.05, 0.1, 0.25, 0.5, 0.9)
OUT = 0.1


def errors(problem: Problem, seen: problems.Index, share: float, seed: int) -> tuple[float, float]:
    """RMSE one by one, and with everything read together."""
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
        predictor = others.for_new_member(0, renamed[own], values[own])
        assert predictor is not None
        alone.append(predictor.predict(renamed[wanted]).mean().numpy())
        truth.append(values[wanted])
    known = np.isin(index[:, 0], np.unique(index[shown, 0])) & asked
    exact = together.predict(index[known]).mean().numpy()
    return rmse(np.concatenate(truth), np.concatenate(alone)), rmse(values[known], exact)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", default="ml-100k")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    problem = problems.load(given.table)
    split = next(iter(problem.tests))
    train, validation, _ = problem.parts(split, 0)
    seen = np.sort(np.concatenate([train, validation]))
    print("| own cells shown | from these alone | everything read together | difference |")
    print("|---|---|---|---|")
    for share in SHARES:
        one, other = errors(problem, seen, share, given.seed)
        print(f"| {share:.0%} | {one:.4f} | {other:.4f} | {one / other - 1:+.2%} |", flush=True)


if __name__ == "__main__":
    run_command(main)
