"""A quarter of the film club's ratings, and the models that tests of completers run over."""

import numpy as np
import polars as pl

from exchangeable.datasets import load
from exchangeable.training.config import TrainingConfig

SHORT = TrainingConfig(steps=4, evaluate_every=2)
MODELS = ["mean", "row-mean", "column-mean", "bias", "vmf", "bmf", "item-knn", "user-knn"]
TRAINED = ["residual", "factorized"]


def club(share=1.0):
    """Ratings with a bias of members and films, in a frame of labels."""
    table = load("film-club").table
    rows = np.random.default_rng(0).permutation(len(table))[: round(share * len(table))]
    return pl.DataFrame(table.frame(table.index[rows], rating=table.values[rows]))


FRAME = club(0.25)
LABELS, RATINGS = FRAME.select("member", "film"), FRAME["rating"].to_numpy()
ASKED = LABELS.head(40)
