"""Calibrated quantiles: intervals that hold as many cells as they promise, on any table.

How errors are distributed differs from table to table, and cannot be known in advance. But some
cells can be hidden: the ranks of their values in the distributions predicted for them show which
predicted quantile has a given share of cells below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.errors import InputError
from exchangeable.values.distributions import Distribution, Share

Floats = NDArray[np.float64]

_TAIL = np.array([0, 0.001, 0.003, 0.01])
SHARES = np.concatenate([_TAIL, np.linspace(0.025, 0.975, 39), 1 - _TAIL[::-1]])
"""Shares of cells below a quantile at which the calibration is fitted."""
UNCALIBRATED_CELLS = 50
"""Weight of the uncalibrated quantiles, in cells, beside the hidden cells, which may be few."""
_MIN_QUANTILE = 1e-6


@dataclass(frozen=True)
class Calibration:
    """A map from a share of cells to the predicted quantile that has this share below it.

    >>> Calibration()(0.9)
    0.9
    >>> round(Calibration.fit(np.linspace(0.25, 0.75, 100_000))(0.9), 2)
    0.7
    """

    quantiles: tuple[float, ...] = ()
    """The quantile to take for each of SHARES; empty for the identity."""

    def __post_init__(self) -> None:
        steps = np.diff(np.array(self.quantiles, dtype=float))
        if self.quantiles and not (
            len(self.quantiles) == len(SHARES)
            and (steps >= 0).all()
            and 0 <= self.quantiles[0] <= self.quantiles[-1] <= 1
        ):
            raise InputError(f"a calibration has {len(SHARES)} shares that ascend within 0 and 1")

    @classmethod
    def fit(cls, ranks: Floats) -> Calibration:
        """Fit to ranks: the predicted probability below the value of each hidden cell."""
        if not len(ranks):
            return cls()
        weight = len(ranks) / (len(ranks) + UNCALIBRATED_CELLS)
        quantiles = weight * np.quantile(ranks, SHARES) + (1 - weight) * SHARES
        quantiles[0], quantiles[-1] = 0.0, 1.0
        return cls(tuple(quantiles.tolist()))

    def __call__(self, share: Share) -> Share:
        """Return the quantile to take so that ``share`` of the cells is below it."""
        if not self.quantiles:
            return share
        quantile = np.interp(share, SHARES, self.quantiles)
        inside = np.clip(quantile, _MIN_QUANTILE, 1 - _MIN_QUANTILE)
        return torch.from_numpy(inside) if isinstance(share, Tensor) else float(inside)

    def apply(self, predictions: Distribution) -> Distribution:
        """Return the predictions with calibrated quantiles."""
        return Calibrated(predictions, self) if self.quantiles else predictions


UNCALIBRATED = Calibration()


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Predictions with calibrated quantiles; means and probabilities stay."""

    predictions: Distribution
    calibration: Calibration

    def take(self, cells: Tensor) -> Calibrated:
        return Calibrated(self.predictions.take(cells), self.calibration)

    def mean(self) -> Tensor:
        return self.predictions.mean()

    def quantile(self, share: Share) -> Tensor:
        return self.predictions.quantile(self.calibration(share))

    def rank(self, values: Tensor) -> Tensor:
        return self.predictions.rank(values)

    def bounds(self) -> tuple[float, float] | None:
        return self.predictions.bounds()

    def probabilities(self) -> Tensor:
        return self.predictions.probabilities()

    def log_likelihood(self, values: Tensor) -> Tensor:
        return self.predictions.log_likelihood(values)
