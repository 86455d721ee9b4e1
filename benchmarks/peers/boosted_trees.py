"""LightGBM on what is known of the members of a cell: what a practitioner would try first.

For each axis: the member as a category, the number of its cells, the mean and the deviation of
their values without the cell itself, and its features where it has some. Means are shrunk towards
the mean of all cells by five cells.
"""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
from harness import Floats
from numpy.typing import NDArray

SHRINK = 5.0
MAX_FEATURES = 50
"""Features of a member; of more, the first components."""


class BoostedTrees:
    """Gradient boosting of squared errors."""

    def __init__(
        self, shape: tuple[int, ...], features: dict[int, Floats], settings: dict[str, Any]
    ) -> None:
        self.shape = shape
        self.features = {axis: reduced(block) for axis, block in features.items()}
        self.model = lightgbm.LGBMRegressor(**settings, random_state=0, verbose=-1)

    def fit(self, index: NDArray[np.int64], values: Floats) -> None:
        self.sums = [
            np.stack([np.bincount(column, weights, size) for weights in (None, values, values**2)])
            for column, size in zip(index.T, self.shape, strict=True)
        ]
        self.mean = float(values.mean())
        rows = self.rows(index, values)
        categories = [axis * 4 for axis in range(len(self.shape))]
        self.model.fit(rows, values, categorical_feature=categories)

    def predict(self, index: NDArray[np.int64]) -> Floats:
        return np.asarray(self.model.predict(self.rows(index, None)))

    def rows(self, index: NDArray[np.int64], own: Floats | None) -> Floats:
        """A row of numbers for each cell; ``own`` values are taken out of sums that hold them."""
        blocks, described = [], []
        for axis, column in enumerate(index.T):
            count, total, squares = self.sums[axis][:, column]
            if own is not None:
                count, total, squares = count - 1, total - own, squares - own**2
            mean = (total + SHRINK * self.mean) / (count + SHRINK)
            spread = np.sqrt(np.maximum(squares / np.maximum(count, 1) - mean**2, 0))
            blocks += [column.astype(np.float64), count, mean, spread]
            if axis in self.features:
                described.append(self.features[axis][column])
        return np.column_stack([*blocks, *described])


def reduced(block: Floats) -> Floats:
    """The leading components of a wide block of features, or of similarities."""
    if block.shape[1] <= MAX_FEATURES:
        return block
    left, sizes, _ = np.linalg.svd(block - block.mean(axis=0), full_matrices=False)
    return left[:, :MAX_FEATURES] * sizes[:MAX_FEATURES]
