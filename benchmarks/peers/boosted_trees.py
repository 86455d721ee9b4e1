"""LightGBM on what is known of the members of a cell: what a practitioner would try first.

For each axis: the number of cells of the member, the mean and the deviation of their values, the
member itself as a category if ``ids`` are wanted, and its features where it has some. Means are
shrunk towards the mean of all cells by five cells. Those of a training cell are of the other nine
tenths of the cells: without that cell alone they would tell its value, since the sum with it is the
same for all cells of a member.
"""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
from harness import Floats
from numpy.typing import NDArray

SHRINK = 5.0
FOLDS = 10
MAX_FEATURES = 50
"""Features of a member; of more, the first components."""


class BoostedTrees:
    """Gradient boosting of squared errors."""

    def __init__(
        self, shape: tuple[int, ...], features: dict[int, Floats], settings: dict[str, Any]
    ) -> None:
        self.shape = shape
        self.features = {axis: reduced(block) for axis, block in features.items()}
        rest = dict(settings)
        self.ids = rest.pop("ids")
        self.model = lightgbm.LGBMRegressor(**rest, random_state=0, verbose=-1)

    def fit(self, index: NDArray[np.int64], values: Floats) -> None:
        self.mean = float(values.mean())
        folds = np.random.default_rng(0).integers(0, FOLDS, len(values))
        parts, places = [], []
        for fold in range(FOLDS):
            own = folds == fold
            self.sums = self.sums_of(index[~own], values[~own])
            parts.append(self.rows(index[own]))
            places.append(np.flatnonzero(own))
        rows = np.concatenate(parts)[np.argsort(np.concatenate(places))]
        self.sums = self.sums_of(index, values)
        categories = list(range(len(self.shape))) if self.ids else []
        self.model.fit(rows, values, categorical_feature=categories)

    def predict(self, index: NDArray[np.int64]) -> Floats:
        return np.asarray(self.model.predict(self.rows(index)))

    def sums_of(self, index: NDArray[np.int64], values: Floats) -> list[Floats]:
        """Number of cells, sum and sum of squares of the members of each axis: (3, N) each."""
        return [
            np.stack([np.bincount(column, weights, size) for weights in (None, values, values**2)])
            for column, size in zip(index.T, self.shape, strict=True)
        ]

    def rows(self, index: NDArray[np.int64]) -> Floats:
        """A row of numbers for each cell."""
        blocks, described = list(index.T.astype(np.float64)) if self.ids else [], []
        for axis, column in enumerate(index.T):
            count, total, squares = self.sums[axis][:, column]
            mean = (total + SHRINK * self.mean) / (count + SHRINK)
            spread = np.sqrt(np.maximum(squares / np.maximum(count, 1) - mean**2, 0))
            blocks += [count, mean, spread]
            if axis in self.features:
                described.append(self.features[axis][column])
        return np.column_stack([*blocks, *described])


def reduced(block: Floats) -> Floats:
    """The leading components of a wide block of features, or of similarities."""
    if block.shape[1] <= MAX_FEATURES:
        return block
    left, sizes, _ = np.linalg.svd(block - block.mean(axis=0), full_matrices=False)
    return left[:, :MAX_FEATURES] * sizes[:MAX_FEATURES]
