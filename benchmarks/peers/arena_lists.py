"""One run of a peer that ranks positives, for the arena: METHOD FOLDER BUDGET.

The python is that of the environment with the peer. A fifth of the positives of each user is
hidden to choose settings, as in ranking_harness.py, and the search ends with the budget.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.arena.problem import Problem
from harness import peak, version_of
from numpy.typing import NDArray
from positives import Positives, Score, highest, membership
from ranking_harness import Ranker, choose_settings, hide
from threadpoolctl import threadpool_limits

PLACES, USERS_AT_ONCE, THREADS = 20, 2048, 2


def ranker_of(name: str) -> Ranker:
    library, _, model = name.partition("-")
    if library == "implicit":
        from implicit_ranking import RANKERS

        return RANKERS[model]
    from irspack_ranking import RANKERS

    return RANKERS[{"ease": "dense-slim"}.get(model, model)]


def lists(score: Score, data: Positives, users: NDArray[np.int64]) -> NDArray[np.int64]:
    """The best unseen items of users; equal scores in a sequence drawn once for all of them."""
    sequence = np.random.default_rng(0).permutation(data.shape[1])
    parts = []
    for start in range(0, len(users), USERS_AT_ONCE):
        chosen = users[start : start + USERS_AT_ONCE]
        scores = np.array(score(chosen), dtype=np.float64)
        scores[membership(data.train, chosen, data.shape[1])] = -np.inf
        parts.append(sequence[highest(scores[:, sequence], PLACES)])
    return np.concatenate(parts)


def run(name: str, folder: Path, budget: float) -> dict[str, Any]:
    problem, ranker = Problem.read(folder / "problem.npz"), ranker_of(name)
    data = Positives(problem.index, np.empty((0, 2), dtype=np.int64), problem.shape)
    before, started = peak(), time.perf_counter()
    settings, trial, tried = choose_settings(ranker, hide(data), THREADS, budget)
    chosen = time.perf_counter()
    rounds = [count for count in ranker.rounds if count <= trial.rounds]
    *_, score = ranker.train(data, settings, rounds, THREADS)
    fitted = time.perf_counter()
    found = lists(score, data, np.unique(problem.queries[:, 0]))
    np.savez(folder / "answers.npz", lists=found)
    return {
        "version": version_of(ranker.package),
        "settings": settings | {"iterations": trial.rounds},
        "validation_ndcg": trial.ndcg,
        "tried": tried,
        "search_s": chosen - started,
        "fit_s": fitted - chosen,
        "predict_s": time.perf_counter() - fitted,
        "before_mb": before,
        "peak_mb": peak(),
    }


if __name__ == "__main__":
    with threadpool_limits(1, "blas"):  # as implicit itself advises: it has threads of its own
        print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))), flush=True)
