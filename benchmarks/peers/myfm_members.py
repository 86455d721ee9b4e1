"""myFM: a Bayesian factorization machine of the members of any number of axes, with features.

On scales with levels it can be an ordered probit, and on two of them a probit, as in its examples.
With ``sets`` a member has a column for every member of the other axis that it shares a cell with,
as in SVD++.
"""

from __future__ import annotations

import numpy as np
from harness import Floats
from myfm import MyFMClassifier, MyFMOrderedProbit, MyFMRegressor, RelationBlock
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack, identity

ITERATIONS = 200
MAX_FEATURES = 50
"""Features of a member; of more, the first components."""


class MemberMachine:
    """A column for every member and for every feature, with a prior for each kind."""

    def __init__(
        self,
        shape: tuple[int, ...],
        features: dict[int, Floats],
        rank: int,
        probit: bool = False,
        sets: bool = False,
    ) -> None:
        self.shape, self.features, self.sets = shape, features, sets
        self.rank, self.probit = rank, probit

    def blocks(self, index: NDArray[np.int64]) -> list[RelationBlock]:
        return [RelationBlock(c, rows) for c, rows in zip(index.T, self.rows, strict=True)]

    def fit(self, index: NDArray[np.int64], values: Floats) -> None:
        self.rows, groups = [], []
        for axis, size in enumerate(self.shape):
            parts = [identity(size, format="csr")]
            if axis in self.features:
                parts.append(csr_matrix(standardised(self.features[axis])))
            if self.sets:
                parts.append(partners(index, self.shape, axis))
            self.rows.append(hstack(parts).tocsr())
            groups += [part.shape[1] for part in parts]
        self.levels, places = np.unique(values, return_inverse=True)
        kind, targets = MyFMRegressor, values
        if self.probit:
            kind = MyFMClassifier if len(self.levels) == 2 else MyFMOrderedProbit
            targets = places
        self.model = kind(rank=self.rank, random_seed=42)
        self.model.fit(
            None,
            targets,
            X_rel=self.blocks(index),
            group_shapes=groups,
            n_iter=ITERATIONS,
            n_kept_samples=ITERATIONS - 20,
        )

    def predict(self, index: NDArray[np.int64]) -> Floats:
        if not self.probit:
            return self.model.predict(None, self.blocks(index))
        chances = self.model.predict_proba(None, self.blocks(index))
        if len(self.levels) == 2:
            chances = np.stack([1 - chances, chances], axis=1)
        return chances @ self.levels


def partners(index: NDArray[np.int64], shape: tuple[int, ...], axis: int) -> csr_matrix:
    """The members of the other axis that each shares a cell with; rows have length 1: (N, M)."""
    other = 1 - axis
    shared = csr_matrix(
        (np.ones(len(index)), (index[:, axis], index[:, other])), (shape[axis], shape[other])
    )
    lengths = np.sqrt(np.maximum(shared.sum(axis=1), 1))
    return csr_matrix(shared.multiply(1 / lengths))


def standardised(block: Floats) -> Floats:
    """Features of mean 0 and deviation 1, divided by the root of their number."""
    centred = block - block.mean(axis=0)
    if block.shape[1] > MAX_FEATURES:
        left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
        centred = left[:, :MAX_FEATURES] * sizes[:MAX_FEATURES]
    return centred / (centred.std(axis=0) + 1e-9) / np.sqrt(centred.shape[1])
