"""The Rasch model of binary tables: the ability of a row less the difficulty of a column.

    p(1) = sigmoid(ability_n - difficulty_m),  both normal around a mean that is free

The posterior's mode is found by Newton's method, an axis at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from benchmarks.arena.problem import Floats, Index
from scipy.special import expit

SWEEPS = 100
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Rasch:
    """Abilities, difficulties and their common level."""

    level: float
    vectors: tuple[Floats, Floats]

    @classmethod
    def fit(cls, index: Index, values: Floats, shape: tuple[int, ...], deviation: float) -> Rasch:
        """Fit with a normal prior of the given deviation for the members of each axis."""
        level, vectors = 0.0, [np.zeros(size) for size in shape]
        for _ in range(SWEEPS):
            change = 0.0
            for axis, vector in enumerate(vectors):
                chance = expit(level + sum(v[index[:, a]] for a, v in enumerate(vectors)))
                slope = np.bincount(index[:, axis], values - chance, len(vector))
                curve = np.bincount(index[:, axis], chance * (1 - chance), len(vector))
                step = (slope - vector / deviation**2) / (curve + deviation**-2)
                vector += np.clip(step, -1, 1)
                change = max(change, float(np.abs(step).max()))
            chance = expit(level + sum(v[index[:, a]] for a, v in enumerate(vectors)))
            step = (values - chance).sum() / max((chance * (1 - chance)).sum(), 1e-9)
            level += float(np.clip(step, -1, 1))
            if max(change, abs(step)) < TOLERANCE:
                break
        return cls(level, (vectors[0], vectors[1]))

    def predict(self, index: Index) -> Floats:
        """The chance of a 1: (Q,)."""
        return expit(self.level + sum(v[index[:, a]] for a, v in enumerate(self.vectors)))
