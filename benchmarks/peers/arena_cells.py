"""One run of a peer that predicts values, for the arena: METHOD FOLDER BUDGET.

The python is that of the environment with the peer. Settings are chosen on the validation cells of
the problem within the budget, and fitted to all cells that may be read. Values are standardised
for the peers, as some step sizes and penalties suit ratings of 1-5 only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from benchmarks.arena.problem import Index, Problem
from benchmarks.arena.search import Settings, choose, validation_error
from harness import Cells, Floats, peak, version_of

MAX_LEVELS = 20
"""Levels up to which an ordered probit is tried."""
MAX_WHOLE = 100
"""Columns up to which each is regressed on all others first."""


class Model(Protocol):
    """A library's model of values with any number of axes."""

    def fit(self, index: Index, values: Floats) -> None: ...

    def predict(self, index: Index) -> Floats: ...


class Matrix:
    """A peer of the harness, which takes users and items."""

    def __init__(self, peer: Any) -> None:
        self.peer = peer

    def fit(self, index: Index, values: Floats) -> None:
        self.peer.fit(Cells(*index.T, values))

    def predict(self, index: Index) -> Floats:
        return np.asarray(self.peer.predict(Cells(*index.T, np.zeros(len(index)))))


@dataclass(frozen=True)
class Tried:
    """A model of a library, and the settings that it is tried with: the first are its own."""

    package: str
    make: Callable[[Settings, Problem], Model]
    grid: Callable[[Problem], Sequence[Settings]]


def always(grid: Sequence[Settings]) -> Callable[[Problem], Sequence[Settings]]:
    """The same settings for all problems."""
    return lambda problem: grid


def myfm(settings: Settings, problem: Problem) -> Model:
    from myfm_members import MemberMachine

    return MemberMachine(problem.shape, problem.features, **settings)


def surprise(kind: str) -> Callable[[Settings, Problem], Model]:
    def make(settings: Settings, problem: Problem) -> Model:
        from surprise import SVD, SVDpp
        from surprise_svd import Surprise

        return Matrix(Surprise({"svd": SVD, "svdpp": SVDpp}[kind], **settings))

    return make


def lenskit(settings: Settings, problem: Problem) -> Model:
    from lenskit_als import LensKit

    return Matrix(LensKit(**settings))


def imputer(kind: str) -> Callable[[Settings, Problem], Model]:
    def make(settings: Settings, problem: Problem) -> Model:
        from imputers import Imputed

        return Imputed(kind, problem.shape, settings)

    return make


def trees(settings: Settings, problem: Problem) -> Model:
    from boosted_trees import BoostedTrees

    rest = dict(settings)
    without = unseen(problem) if rest.pop("alone", False) else []
    return BoostedTrees(problem.shape, problem.features, without, rest)


def unseen(problem: Problem) -> list[int]:
    """Axes whose members are asked for and have no cell."""
    axes = range(problem.order)
    return [a for a in axes if not np.isin(problem.queries[:, a], problem.index[:, a]).any()]


def tensorly(settings: Settings, problem: Problem) -> Model:
    from tensorly_cp import MaskedCP

    return MaskedCP(problem.shape, **settings)


def machines(problem: Problem) -> list[Settings]:
    """Ranks of regression and, where there are few levels, of probit, which its examples prefer."""
    ranks = [{"rank": rank} for rank in (10, 4, 20, 2, 1, 40)]
    probit = {"probit": True} if 2 <= len(problem.levels) <= MAX_LEVELS else {}
    sets = [{"rank": 10, "sets": True, **probit}] if problem.order == 2 else []
    if not probit:
        return ranks + sets
    return [ranks[0], *({**rank, **probit} for rank in ranks[:3]), *sets, *ranks[1:3]] + [
        {**rank, **more} for rank in ranks[3:] for more in (probit, {})
    ]


def gradients(factors: Sequence[int]) -> list[Settings]:
    """Settings of Surprise: number of factors, penalty, step size and epochs.

    Values of deviation 1 take more epochs than the defaults, which are for ratings of 1-5.
    """
    steps = (
        *((0.02, 0.005, 20), (0.05, 0.01, 60), (0.1, 0.01, 200), (0.05, 0.01, 200)),
        *((0.02, 0.01, 200), (0.2, 0.01, 200), (0.1, 0.005, 60)),
    )
    return [
        {"n_factors": k, "reg_all": penalty, "lr_all": size, "n_epochs": epochs}
        for penalty, size, epochs in steps
        for k in factors
    ]


def alternating(problem: Problem) -> list[Settings]:
    """Settings of LensKit. Penalties are multiplied by the number of a member's cells."""
    pairs = [(0.1, 50), (0.03, 50), (0.1, 12), (0.03, 12), (0.01, 50), (0.1, 100), (0.3, 50)]
    pairs += [(0.01, 12), (0.1, 4), (0.03, 4), (0.3, 12), (0.03, 100), (1.0, 12), (0.003, 50)]
    return [{"embedding_size": size, "regularization": penalty} for penalty, size in pairs]


def regressed(problem: Problem) -> list[Settings]:
    """Columns that each is regressed on: all of them, its default, first where they are few."""
    near = [10, 30, 5]
    whole = [None] if min(problem.shape) <= MAX_WHOLE else []
    last = [] if whole else [None]
    return [{"max_iter": 10, "n_nearest_features": number} for number in (*whole, *near, *last)]


def boosted(problem: Problem) -> list[Settings]:
    """Settings of LightGBM; where members without cells are asked for, both ways to see them."""
    fixed = [(31, 0.1, 100, False), (7, 0.05, 200, False), (7, 0.05, 200, True)]
    stopped = [(7, 0.1, 1000, True), (31, 0.1, 1000, True), (31, 0.1, 1000, False)]
    names = ("num_leaves", "learning_rate", "n_estimators", "ids")
    grid: list[Settings] = [dict(zip(names, row, strict=True)) for row in fixed]
    grid += [{**dict(zip(names, row, strict=True)), "stopped": True} for row in stopped]
    grid.append({**grid[4], "min_child_samples": 5, "min_data_per_group": 5, "cat_smooth": 1.0})
    if unseen(problem):
        return [{**settings, "alone": alone} for settings in grid for alone in (False, True)]
    return grid


def products(problem: Problem) -> list[Settings]:
    """Ranks, penalties and rounds of TensorLy's CP, whose missing cells are filled each round."""
    rows = [(10, 0.001, 100), (20, 0.001, 100), (5, 0.001, 100), (20, 0.1, 300), (40, 0.1, 300)]
    rows += [(20, 1.0, 300), (40, 0.03, 1000), (60, 0.1, 300), (50, 0.03, 1000), (10, 1.0, 300)]
    rows += [(60, 0.03, 1000), (40, 1.0, 300), (80, 0.3, 300), (2, 0.001, 100), (1, 0.001, 100)]
    return [dict(zip(("rank", "penalty", "rounds"), row, strict=True)) for row in rows]


PEERS = {
    "myfm": Tried("myfm", myfm, machines),
    "surprise-svd": Tried("scikit-surprise", surprise("svd"), always(gradients((100, 20, 5)))),
    "surprise-svd++": Tried("scikit-surprise", surprise("svdpp"), always(gradients((20, 5)))),
    "lenskit": Tried("lenskit", lenskit, alternating),
    "knn-imputer": Tried(
        "scikit-learn",
        imputer("knn"),
        always(
            [
                {"n_neighbors": k, "weights": weights, "turned": turned}
                for weights, counts in (("uniform", (5, 20, 50, 150)), ("distance", (5, 20)))
                for k in counts
                for turned in (False, True)
            ]
        ),
    ),
    "iterative-imputer": Tried("scikit-learn", imputer("iterative"), regressed),
    "lightgbm": Tried("lightgbm", trees, boosted),
    "tensorly-cp": Tried("tensorly", tensorly, products),
}


def predicted(
    tried: Tried, settings: Settings, problem: Problem, read: Any, asked: Index
) -> Floats:
    """Fit to some of the cells, and answer others; values are standardised in between."""
    values = problem.values[read]
    centre, scale = float(values.mean()), float(values.std()) or 1.0
    model = tried.make(settings, problem)
    model.fit(problem.index[read], (values - centre) / scale)
    return centre + scale * model.predict(asked)


def run(name: str, folder: Path, budget: float) -> dict[str, Any]:
    problem, tried = Problem.read(folder / "problem.npz"), PEERS[name]
    before, started = peak(), time.perf_counter()

    def error(settings: Settings) -> float:
        return validation_error(
            problem, lambda read, asked: predicted(tried, settings, problem, read, asked)
        )

    choice = choose(tried.grid(problem), error, budget)
    chosen = time.perf_counter()
    means = predicted(tried, choice.settings, problem, slice(None), problem.queries)
    ended = time.perf_counter()
    np.savez(folder / "answers.npz", means=means)
    return {
        "version": version_of(tried.package),
        "settings": choice.settings,
        "validation_rmse": choice.error,
        "tried": choice.tried,
        "of": choice.of,
        "search_s": chosen - started,
        "fit_s": ended - chosen,
        "predict_s": 0.0,
        "before_mb": before,
        "peak_mb": peak(),
    }


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))), flush=True)
