"""myFM: a Bayesian factorization machine of the members of any number of axes, with features."""

from __future__ import annotations

import numpy as np
from harness import Floats
from myfm import MyFMRegressor, RelationBlock
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack, identity

ITERATIONS = 200
MAX_FEATURES = 50
"""Features of a member; of more, the first components."""


class MemberMachine:
    """A column for every member and for every feature, with a prior for each kind."""

    def __init__(self, shape: tuple[int, ...], features: dict[int, Floats], rank: int) -> None:
        self.model = MyFMRegressor(rank=rank, random_seed=42)
        self.rows, self.groups = [], []
        for axis, size in enumerate(shape):
            parts = [identity(size, format="csr")]
            if axis in features:
                parts.append(csr_matrix(standardised(features[axis])))
            self.rows.append(hstack(parts).tocsr())
            self.groups += [part.shape[1] for part in parts]

    def blocks(self, index: NDArray[np.int64]) -> list[RelationBlock]:
        return [RelationBlock(c, rows) for c, rows in zip(index.T, self.rows, strict=True)]

    def fit(self, index: NDArray[np.int64], values: Floats) -> None:
        self.model.fit(
            None,
            values,
            X_rel=self.blocks(index),
            group_shapes=self.groups,
            n_iter=ITERATIONS,
            n_kept_samples=ITERATIONS - 20,
        )

    def predict(self, index: NDArray[np.int64]) -> Floats:
        return self.model.predict(None, self.blocks(index))


def standardised(block: Floats) -> Floats:
    """Features of mean 0 and deviation 1, divided by the root of their number."""
    centred = block - block.mean(axis=0)
    if block.shape[1] > MAX_FEATURES:
        left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
        centred = left[:, :MAX_FEATURES] * sizes[:MAX_FEATURES]
    return centred / (centred.std(axis=0) + 1e-9) / np.sqrt(centred.shape[1])
