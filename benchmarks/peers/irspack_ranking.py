"""irspack: factors, random walks and linear autoencoders, on tables of positives.

    EXCHANGEABLE_DATA=... python benchmarks/peers/irspack_ranking.py ials ml-100k 1

The arguments are the model, the table and the number of threads; the python is that of the
environment with irspack. The values of the settings span the ranges that irspack itself searches
by default, which are its ``default_tune_range``, or more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from irspack.recommenders import (
    DenseSLIMRecommender,
    EDLAERecommender,
    IALSRecommender,
    RP3betaRecommender,
)
from irspack.recommenders.base import BaseSimilarityRecommender
from positives import Positives, Score
from ranking_harness import Ranker, Settings, run
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits


def ials(
    data: Positives, settings: Settings, rounds: Sequence[int], threads: int
) -> Iterator[Score]:
    """Weighted least squares, with the loss and the penalty of Rendle et al. (2021).

    ``nu`` is the power by which the penalty of a member grows with its pairs. ``nu_star`` keeps
    the sum of the penalties when ``nu`` changes, as in the paper.
    """
    model = IALSRecommender(matrix(data), **settings, nu_star=1.0, random_seed=0, n_threads=threads)
    model.start_learning()
    for done, count in zip((0, *rounds), rounds, strict=False):
        for _ in range(count - done):
            model.run_epoch()
        yield model.get_score


def rp3beta(
    data: Positives, settings: Settings, rounds: Sequence[int], threads: int
) -> Iterator[Score]:
    """Random walks of three steps, with a penalty for popular items."""
    return similarities(RP3betaRecommender(matrix(data), **settings, n_threads=threads))


def dense_slim(
    data: Positives, settings: Settings, rounds: Sequence[int], threads: int
) -> Iterator[Score]:
    """EASE: a linear autoencoder whose weights have a diagonal of zeros."""
    return similarities(DenseSLIMRecommender(matrix(data), **settings))


def edlae(
    data: Positives, settings: Settings, rounds: Sequence[int], threads: int
) -> Iterator[Score]:
    """EASE with dropout: the penalty of an item grows with its users."""
    return similarities(EDLAERecommender(matrix(data), **settings))


def similarities(model: BaseSimilarityRecommender) -> Iterator[Score]:
    """Fit weights between items, in one step.

    ``get_score`` would multiply in float64, and copy all weights for that.
    """
    table = model.X_train_all.astype(np.float32)
    model.learn()
    yield lambda users: model.get_score_cold_user(table[users])


def matrix(data: Positives) -> csr_matrix:
    """Ones where a user has an item: (N, M)."""
    return csr_matrix((np.ones(len(data.train), dtype=np.float32), data.train.T), data.shape)


RANKERS = {
    "ials": Ranker(
        "irspack",
        ials,
        grid={
            "n_components": (8, 16, 32, 64, 128, 256, 512),
            "alpha0": (0.003, 0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0),
            "reg": (0.0001, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1),
            "nu": (0.0, 0.5, 1.0),
        },
        start={"n_components": 64, "alpha0": 0.1, "reg": 0.003, "nu": 1.0},
        draws=20,
        rounds=(2, 4, 6, 8, 12, 16, 32),
        coupled=("alpha0", "reg"),
    ),
    "rp3beta": Ranker(
        "irspack",
        rp3beta,
        grid={
            "top_k": (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 20000),
            "beta": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
            "normalize_weight": (False, True),
        },
        start={"top_k": 200, "beta": 0.6, "normalize_weight": False},
        draws=20,
        coupled=("top_k", "beta"),
    ),
    "dense-slim": Ranker(
        "irspack",
        dense_slim,
        grid={"reg": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)},
        start={"reg": 200},
    ),
    "edlae": Ranker(
        "irspack",
        edlae,
        grid={
            "dropout_p": (0.0, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9),
            "reg": (1, 3, 10, 30, 100, 300, 1000, 3000, 10000),
        },
        start={"dropout_p": 0.33, "reg": 100},
    ),
}


if __name__ == "__main__":
    # Two threads of OpenBLAS were ten times slower than one, for the inverse on busy cores.
    with threadpool_limits(1, "blas"):
        run(RANKERS[sys.argv[1]], sys.argv[2], int(sys.argv[3]))
