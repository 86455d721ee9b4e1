"""Whether cells (i, j) and (j, i) of a joint table are about the same, for models of two sets.

Such a model reads rows and columns apart, so a pair that is listed in one direction tells nothing
of the other. Where hidden pairs are predicted better with every cell read in both directions, a
joint table is read so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exchangeable import metrics
from exchangeable.arrays.cells import Cells, Mask
from exchangeable.baselines.variational import VariationalFactorization
from exchangeable.data.joint import mirrored
from exchangeable.runtime import checkpoint
from exchangeable.training.recipes import RECIPES
from exchangeable.training.trained_model import TrainedModel

HIDDEN_SHARE = 0.1
MIN_CELLS = 50
"""Smaller tables are read as they are: too few cells would be hidden."""
MAX_SWEPT_CELLS = 50_000
SWEEPS = 6
"""Sweeps of the factorization of larger tables, which are enough to compare with."""


class Symmetry(NamedTuple):
    """Errors on the same hidden cells, read as they are and in both directions."""

    hidden: int
    apart: float
    mirrored: float

    @property
    def helps(self) -> bool:
        return self.mirrored < self.apart

    def __str__(self) -> str:
        done = "are read in both directions" if self.helps else "are read as they are"
        return (
            f"cells of a joint table {done}: on {self.hidden:,} cells that were hidden, RMSE of "
            f"vmf {self.mirrored:.4g} in both directions, {self.apart:.4g} as they are"
        )


def reads_axes_apart(model: str) -> bool:
    """Whether a model reads the axes of a joint table as two sets."""
    if model in RECIPES:
        return False
    return not (checkpoint.exists(model) and TrainedModel.load(model).config.joint)


def compare_symmetry(cells: Cells) -> Symmetry | None:
    """Compare both readings on pairs that are hidden in both directions; None of few cells."""
    hidden = _hidden_pairs(cells)
    if len(cells) < MIN_CELLS or not hidden.any():
        return None
    read, tried = cells.take(~hidden), cells.take(hidden)
    sweeps = {"sweeps": SWEEPS} if len(cells) > MAX_SWEPT_CELLS else {}
    model = VariationalFactorization(**sweeps)
    errors = [
        metrics.rmse(tried.values, model.fit(each).predict(tried.index)[0])
        for each in (read, mirrored(read))
    ]
    return Symmetry(len(tried), *errors)


def _hidden_pairs(cells: Cells) -> Mask:
    """Choose pairs of members to hide, by value, so that labels do not matter: (E,)."""
    low, high = np.sort(cells.index, axis=1).T
    _, pair = np.unique(low * cells.shape[0] + high, return_inverse=True)
    rank = np.empty(pair.max() + 1, dtype=np.int64)
    rank[np.argsort(np.bincount(pair, cells.values), kind="stable")] = np.arange(len(rank))
    every = round(1 / HIDDEN_SHARE)
    chosen: Mask = rank[pair] % every == every // 2
    return chosen & (low != high)
