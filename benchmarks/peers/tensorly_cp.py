"""TensorLy: CP decomposition of a tensor with missing cells."""

from __future__ import annotations

import numpy as np
from harness import Floats
from numpy.typing import NDArray
from tensorly.decomposition import parafac


class MaskedCP:
    """Alternating least squares that fill the missing cells anew after each sweep."""

    def __init__(self, shape: tuple[int, ...], rank: int, penalty: float, rounds: int) -> None:
        self.shape, self.rank, self.penalty, self.rounds = shape, rank, penalty, rounds

    def fit(self, index: NDArray[np.int64], values: Floats) -> None:
        tensor, mask = np.zeros(self.shape), np.zeros(self.shape)
        tensor[tuple(index.T)], mask[tuple(index.T)] = values, 1.0
        found = parafac(
            tensor,
            self.rank,
            mask=mask,
            n_iter_max=self.rounds,
            init="random",
            random_state=0,
            l2_reg=self.penalty,
        )
        self.weights, self.factors = found

    def predict(self, index: NDArray[np.int64]) -> Floats:
        product = np.broadcast_to(self.weights, (len(index), self.rank)).copy()
        for factor, column in zip(self.factors, index.T, strict=True):
            product *= factor[column]
        return product.sum(axis=1)
