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
    grid: Sequence[Settings]


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

    return BoostedTrees(problem.shape, problem.features, unseen(problem), settings)


def unseen(problem: Problem) -> list[int]:
    """Axes whose members are asked for and have no cell."""
    axes = range(problem.order)
    return [a for a in axes if not np.isin(problem.queries[:, a], problem.index[:, a]).any()]


def tensorly(settings: Settings, problem: Problem) -> Model:
    from tensorly_cp import MaskedCP

    return MaskedCP(problem.shape, **settings)


def gradients(factors: Sequence[int]) -> list[Settings]:
    """Settings of Surprise: number of factors, penalty, step size and epochs."""
    steps = ((0.02, 0.005, 20), (0.1, 0.005, 60), (0.05, 0.01, 60), (0.2, 0.01, 60))
    return [
        {"n_factors": k, "reg_all": penalty, "lr_all": size, "n_epochs": epochs}
        for penalty, size, epochs in steps
        for k in factors
    ]


PEERS = {
    "myfm": Tried("myfm", myfm, [{"rank": rank} for rank in (10, 4, 2, 20, 1, 40)]),
    "surprise-svd": Tried("scikit-surprise", surprise("svd"), gradients((100, 20, 5))),
    "surprise-svd++": Tried("scikit-surprise", surprise("svdpp"), gradients((20, 5))),
    "lenskit": Tried(
        "lenskit",
        lenskit,
        [
            {"embedding_size": size, "regularization": penalty}
            for penalty in (0.1, 1.0, 3.0, 10.0)
            for size in (50, 12, 4)
        ],
    ),
    "knn-imputer": Tried(
        "scikit-learn",
        imputer("knn"),
        [
            {"n_neighbors": k, "weights": "distance", "turned": turned}
            for k in (5, 20, 50)
            for turned in (False, True)
        ],
    ),
    "iterative-imputer": Tried(
        "scikit-learn",
        imputer("iterative"),
        [{"max_iter": rounds, "n_nearest_features": near} for near in (10, 30) for rounds in (10,)],
    ),
    "lightgbm": Tried(
        "lightgbm",
        trees,
        [
            {"num_leaves": leaves, "learning_rate": size, "n_estimators": number, "ids": ids}
            for leaves, size, number in ((31, 0.1, 100), (7, 0.05, 200), (15, 0.05, 300))
            for ids in (False, True)
        ],
    ),
    "tensorly-cp": Tried("tensorly", tensorly, [{"rank": rank} for rank in (5, 10, 2, 20, 1, 40)]),
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

    choice = choose(tried.grid, error, budget)
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
