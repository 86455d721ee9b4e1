"""implicit: alternating least squares or Bayesian personalized ranking, on tables of positives.

    EXCHANGEABLE_DATA=... python benchmarks/peers/implicit_ranking.py als ml-100k 1

The arguments are the model, the table and the number of threads; the python is that of the
environment with implicit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from implicit.cpu.als import AlternatingLeastSquares
from implicit.cpu.bpr import BayesianPersonalizedRanking
from implicit.nearest_neighbours import bm25_weight
from positives import Positives, Score
from ranking_harness import Ranker, Settings, run
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

Model = AlternatingLeastSquares | BayesianPersonalizedRanking


def least_squares(
    data: Positives, settings: Settings, rounds: Sequence[int], threads: int
) -> Iterator[Score]:
    """Positives weigh ``alpha``, or ``alpha`` times their weight by BM25, as in its examples."""
    table, chosen = matrix(data), dict(settings)
    if chosen.pop("weights") == "bm25":  # its rows are items
        table = bm25_weight(table.T, K1=100, B=0.8).T.tocsr().astype(np.float32)
    model = AlternatingLeastSquares(**chosen, num_threads=threads, random_state=0)
    return scores_after(model, table, rounds)


def personalized_ranking(
    data: Positives, settings: Settings, rounds: Sequence[int], threads: int
) -> Iterator[Score]:
    """Gradients of one pair of items at a time; every call of ``fit`` draws other pairs."""
    state = np.random.default_rng(0)  # a seed would give every call the same pairs
    model = BayesianPersonalizedRanking(**settings, num_threads=threads, random_state=state)
    return scores_after(model, matrix(data), rounds)


def matrix(data: Positives) -> csr_matrix:
    """Ones where a user has an item: (N, M)."""
    return csr_matrix((np.ones(len(data.train), dtype=np.float32), data.train.T), data.shape)


def scores_after(model: Model, table: csr_matrix, rounds: Sequence[int]) -> Iterator[Score]:
    """Fit on, from the factors that are there, up to each number of iterations."""
    for done, count in zip((0, *rounds), rounds, strict=False):
        model.iterations = count - done
        model.fit(table, show_progress=False)
        yield lambda users: model.user_factors[users] @ model.item_factors.T


RANKERS = {
    "als": Ranker(
        "implicit",
        least_squares,
        grid={
            "factors": (8, 16, 32, 64, 128, 256),
            "regularization": (0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0, 50.0, 100.0, 200.0),
            "alpha": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
            "weights": ("ones", "bm25"),
        },
        start={"factors": 64, "regularization": 0.01, "alpha": 1.0, "weights": "ones"},
        draws=20,
        rounds=(2, 5, 10, 15, 30, 60),
        coupled=("regularization", "alpha"),
    ),
    "bpr": Ranker(
        "implicit",
        personalized_ranking,
        grid={
            "factors": (16, 32, 64, 128, 256),
            "learning_rate": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1),
            "regularization": (0.0001, 0.001, 0.003, 0.01, 0.03, 0.1),
        },
        start={"factors": 64, "learning_rate": 0.01, "regularization": 0.01},
        draws=24,
        rounds=(5, 10, 20, 50, 100, 200, 400, 600),
        patience=3,  # NDCG@10 falls and rises again in the first iterations
    ),
}


if __name__ == "__main__":
    with threadpool_limits(1, "blas"):  # as implicit itself advises: it has threads of its own
        run(RANKERS[sys.argv[1]], sys.argv[2], int(sys.argv[3]))
