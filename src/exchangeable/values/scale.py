"""The scale of a table's values: levels such as 1-5, real numbers, binary, or positives only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from exchangeable.errors import InputError
from exchangeable.runtime.phrases import did_you_mean

Kind = Literal["levels", "real", "binary", "positives"]

MAX_LEVELS = 101
"""More values than 0-100 are taken for real numbers."""
_MIN_REGULAR = 5
"""Different values from which on their own differences tell the step. Fewer say little of others:
1, 3 and 5 stars are of five, and not of three."""
_MAX_DIVISOR = 10
"""Parts of the smallest difference of two values that are tried as a step."""
_GRID_TOLERANCE = 1e-6
_VALUES_PER_CHUNK = 2**20  # so that a long table is not copied


@dataclass(frozen=True)
class Scale:
    """The values that are possible.

    >>> Scale.of(np.array([1.0, 2.0, 5.0]))
    Scale(kind='levels', levels=(1.0, 2.0, 3.0, 4.0, 5.0))
    >>> print(Scale.of(np.array([0.5, 3.0, 5.0])))
    levels 0.5-5 by 0.5
    """

    kind: Kind
    levels: tuple[float, ...] = ()
    """Ascending; none for real numbers and for positives of different strengths."""

    @classmethod
    def of(cls, values: NDArray[np.float64], kind: Kind | None = None) -> Scale:
        """Guess the scale from observed values, or check that they allow the given kind.

        Missing values (NaN) are ignored.
        """
        if kind is not None and kind not in get_args(Kind):
            raise InputError(
                f"scale must be one of {', '.join(get_args(Kind))}, but is {kind!r}"
                f"{did_you_mean(str(kind), get_args(Kind))}"
            )
        distinct = _distinct(values)
        if len(distinct) > MAX_LEVELS:
            if kind is None or kind == "real":
                return cls("real")
            distinct = np.unique(values[~np.isnan(values)])
        guessed = _guess(distinct)
        if kind is None or kind == guessed.kind:
            return guessed
        if kind == "real":
            return cls("real")
        if kind == "binary" and len(distinct) > 2:
            raise InputError(f"a binary scale has two values, but {len(distinct)} were found")
        if kind == "positives" and len(distinct) > 1:
            if distinct[0] <= 0:
                raise InputError(
                    f"strengths of positives must be above 0, but {distinct[0]:g} is not"
                )
            return cls(kind)  # strengths, such as plays
        return cls(kind, tuple(distinct.tolist()))

    def check(self, values: NDArray[np.float64]) -> None:
        """Raise unless new values are on this scale."""
        if not self.levels:
            return
        levels = np.asarray(self.levels)
        off = np.abs(values[:, None] - levels[None, :]).min(axis=1) > 1e-9
        if off.any():
            raise InputError(
                f"new values must be on the table's scale ({self}), but {values[off][0]:g} is "
                f"not; fit again if the scale has grown"
            )

    def __str__(self) -> str:
        if self.kind != "levels":
            ends = " and ".join(f"{level:g}" for level in self.levels)
            return self.kind + (f" {ends}" if ends else "")
        steps = np.diff(self.levels)
        if len(steps) and np.allclose(steps, steps[0]):
            return f"levels {self.levels[0]:g}-{self.levels[-1]:g} by {steps[0]:g}"
        return "levels " + ", ".join(f"{level:g}" for level in self.levels)


def _distinct(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distinct values, ascending; counting stops once there are more than MAX_LEVELS."""
    distinct = np.empty(0)
    for start in range(0, len(values), _VALUES_PER_CHUNK):
        chunk = values[start : start + _VALUES_PER_CHUNK]
        distinct = np.union1d(distinct, chunk[~np.isnan(chunk)])
        if len(distinct) > MAX_LEVELS:
            break
    return distinct


def _guess(distinct: NDArray[np.float64]) -> Scale:
    """Guess the scale from the distinct values, ascending."""
    if len(distinct) == 0:
        return Scale("real")
    if set(distinct.tolist()) <= {0.0, 1.0} and len(distinct) == 2:
        return Scale("binary", (0.0, 1.0))
    if len(distinct) == 1:
        only = float(distinct[0])
        return Scale("positives" if only == 1.0 else "levels", (only,))
    step = _plain_step(distinct) if len(distinct) < _MIN_REGULAR else _regular_step(distinct)
    if step is None:
        return Scale("real")
    places = np.rint((distinct - distinct[0]) / step).astype(np.int64)
    levels = np.array([float(f"{distinct[0] + step * k:.12g}") for k in range(places[-1] + 1)])
    levels[places] = distinct
    return Scale("levels", tuple(levels.tolist()))


def _regular_step(distinct: NDArray[np.float64]) -> float | None:
    """Find the largest step that all values are a whole number of from the lowest.

    It depends on ratios of differences alone, so that other units have the same levels.
    """
    smallest, away = float(np.diff(distinct).min()), distinct - distinct[0]
    for divisor in range(1, _MAX_DIVISOR + 1):
        step = smallest / divisor
        if away[-1] >= (MAX_LEVELS - 0.5) * step:
            return None
        counts = away / step
        if np.abs(counts - counts.round()).max() <= _GRID_TOLERANCE:
            return step
    return None


def _plain_step(distinct: NDArray[np.float64]) -> float | None:
    """Largest of 1, .5 and .1 on whose grid few values lie, with at most MAX_LEVELS steps."""
    for step in (1.0, 0.5, 0.1):
        grid = (distinct / step).round()
        regular = np.abs(grid * step - distinct).max() <= 1e-9 * max(1.0, np.abs(distinct).max())
        different = len(np.unique(grid)) == len(distinct)
        if regular and different and grid[-1] - grid[0] < MAX_LEVELS:
            return step
    return None


REAL = Scale("real")
"""Real numbers: no levels."""
