"""Intervals that hold as many cells as they say, on whatever table.

How errors are distributed differs from table to table, and no model knows it beforehand. But some
cells can be hidden: where their values lie in the answers for them tells which quantiles of the
answers have so many cells below them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.errors import InputError
from exchangeable.values.distributions import Distribution

Floats = NDArray[np.float64]

_ENDS = np.array([0, 0.001, 0.003, 0.01])
SHARES = np.concatenate([_ENDS, np.linspace(0.025, 0.975, 39), 1 - _ENDS[::-1]])
"""Of cells that are to be below."""
DOUBT = 50
"""Cells that count for answers as they are, beside the hidden ones, of which there may be few."""
_LEAST = 1e-6


@dataclass(frozen=True)
class Calibration:
    """Which quantiles to take, so that a share of cells is below them; or just those.

    >>> Calibration()(0.9)
    0.9
    >>> round(Calibration.found(np.linspace(0.25, 0.75, 100_000))(0.9), 2)
    0.7
    """

    taken: tuple[float, ...] = ()
    """For each of SHARES; none: answers are as they should be."""

    def __post_init__(self) -> None:
        steps = np.diff(np.array(self.taken, dtype=float))
        if self.taken and not (
            len(self.taken) == len(SHARES)
            and (steps >= 0).all()
            and 0 <= self.taken[0] <= self.taken[-1] <= 1
        ):
            raise InputError(f"a calibration has {len(SHARES)} shares that ascend within 0 and 1")

    @classmethod
    def found(cls, ranks: Floats) -> Calibration:
        """From where hidden values lay: the probability below each, as it was answered."""
        if not len(ranks):
            return cls()
        seen = len(ranks) / (len(ranks) + DOUBT)
        taken = seen * np.quantile(ranks, SHARES) + (1 - seen) * SHARES
        taken[0], taken[-1] = 0.0, 1.0
        return cls(tuple(taken.tolist()))

    def __call__(self, share: float) -> float:
        if not self.taken:
            return share
        return float(np.clip(np.interp(share, SHARES, self.taken), _LEAST, 1 - _LEAST))

    def of(self, answers: Distribution) -> Distribution:
        return Calibrated(answers, self) if self.taken else answers


UNCALIBRATED = Calibration()


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Answers with other quantiles; means and probabilities stay."""

    answers: Distribution
    calibration: Calibration

    def take(self, cells: Tensor) -> Calibrated:
        return Calibrated(self.answers.take(cells), self.calibration)

    def mean(self) -> Tensor:
        return self.answers.mean()

    def quantile(self, share: float) -> Tensor:
        return self.answers.quantile(self.calibration(share))

    def rank(self, values: Tensor) -> Tensor:
        return self.answers.rank(values)

    def probabilities(self) -> Tensor:
        return self.answers.probabilities()

    def log_likelihood(self, values: Tensor) -> Tensor:
        return self.answers.log_likelihood(values)
