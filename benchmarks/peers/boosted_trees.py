"""LightGBM on what is known of the members of a cell: what a practitioner would try first.

For each axis, and of three axes for each pair of them: the number of cells of the member, the mean
and the deviation of their values; the member itself as a category if ``ids`` are wanted, and its
features where it has some. Means are shrunk towards the mean of all cells by five cells. Those of a
training cell are of the other nine tenths of the cells: without that cell alone they would tell its
value, since the sum with it is the same for all cells of a member. Of ``unseen`` axes,
whose members are asked for without any cell, features are all that is read: trees that learned from
means of members with cells have nothing to read there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import lightgbm
import numpy as np
from harness import Floats
from numpy.typing import NDArray

SHRINK = 5.0
FOLDS = 10
PATIENCE = 50
"""Rounds without a smaller error on one of the folds after which boosting stops."""
MAX_FEATURES = 50
"""Features of a member; of more, the first components."""


class BoostedTrees:
    """Gradient boosting of squared errors.

    With ``stopped`` the number of trees is the best for a fold that is left out, and all cells are
    fitted with as many.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        features: dict[int, Floats],
        unseen: Sequence[int],
        settings: dict[str, Any],
    ) -> None:
        self.shape, self.unseen = shape, unseen
        self.features = {axis: reduced(block) for axis, block in features.items()}
        self.settings = dict(settings)
        ids, self.stopped = self.settings.pop("ids"), self.settings.pop("stopped", False)
        seen = [axis for axis in range(len(shape)) if axis not in unseen]
        self.ids = seen if ids else []
        self.groups = [(axis,) for axis in seen]
        if len(shape) > 2:
            self.groups += combinations(seen, 2)

    def fit(self, index: NDArray[np.int64], values: Floats) -> None:
        self.mean = float(values.mean())
        folds = self.folds(index)
        parts, places = [], []
        for fold in range(FOLDS):
            own = folds == fold
            self.sums = self.sums_of(index[~own], values[~own])
            parts.append(self.rows(index[own]))
            places.append(np.flatnonzero(own))
        rows = np.concatenate(parts)[np.argsort(np.concatenate(places))]
        self.sums = self.sums_of(index, values)
        categories, settings = list(range(len(self.ids))), dict(self.settings)
        if self.stopped:
            out = folds == 0
            trial = lightgbm.LGBMRegressor(**settings, random_state=0, verbose=-1).fit(
                rows[~out],
                values[~out],
                eval_set=[(rows[out], values[out])],
                callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
                categorical_feature=categories,
            )
            settings["n_estimators"] = max(trial.best_iteration_, 1)
        self.model = lightgbm.LGBMRegressor(**settings, random_state=0, verbose=-1)
        self.model.fit(rows, values, categorical_feature=categories)

    def folds(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """The fold of each cell, that of its member where features are all that is read of it."""
        draws = np.random.default_rng(0)
        if not self.unseen:
            return draws.integers(0, FOLDS, len(index))
        axis = self.unseen[0]
        return draws.integers(0, FOLDS, self.shape[axis])[index[:, axis]]

    def predict(self, index: NDArray[np.int64]) -> Floats:
        return np.asarray(self.model.predict(self.rows(index)))

    def members(self, index: NDArray[np.int64], group: tuple[int, ...]) -> NDArray[np.int64]:
        """The member of one axis, or the pair of members of two, as one number: (E,)."""
        return np.ravel_multi_index(index[:, group].T, [self.shape[axis] for axis in group])

    def sums_of(self, index: NDArray[np.int64], values: Floats) -> list[Floats]:
        """Number of cells, sum and sum of squares of the members of each group: (3, N) each."""
        found = []
        for group in self.groups:
            column = self.members(index, group)
            size = int(np.prod([self.shape[axis] for axis in group]))
            sums = [np.bincount(column, weights, size) for weights in (None, values, values**2)]
            found.append(np.stack(sums))
        return found

    def rows(self, index: NDArray[np.int64]) -> Floats:
        """A row of numbers for each cell."""
        blocks = [index[:, axis].astype(np.float64) for axis in self.ids]
        for group, sums in zip(self.groups, self.sums, strict=True):
            count, total, squares = sums[:, self.members(index, group)]
            mean = (total + SHRINK * self.mean) / (count + SHRINK)
            spread = np.sqrt(np.maximum(squares / np.maximum(count, 1) - mean**2, 0))
            blocks += [count, mean, spread]
        described = [self.features[axis][index[:, axis]] for axis in sorted(self.features)]
        return np.column_stack([*blocks, *described])


def reduced(block: Floats) -> Floats:
    """The leading components of a wide block of features, or of similarities."""
    if block.shape[1] <= MAX_FEATURES:
        return block
    left, sizes, _ = np.linalg.svd(block - block.mean(axis=0), full_matrices=False)
    return left[:, :MAX_FEATURES] * sizes[:MAX_FEATURES]
