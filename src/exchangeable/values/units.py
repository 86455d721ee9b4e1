"""Units in which models read values: as they came, as logarithms, or each member in its own.

Models compare cells with one another. That goes wrong where counts have heavy tails, and where the
columns of a table are different quantities, such as litres and years. Both are noticed: in the
right units biases explain the values far better, whatever the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.errors import InputError
from exchangeable.values.distributions import Distribution

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
UnitsKind = Literal["plain", "log", "own"]

MIN_GAIN = 1.0
"""Log-likelihood of a cell that other units must gain over plain ones to be taken by themselves."""
MIN_CELLS = 8
MIN_OWN = 3
"""Cells from which on a member's own values tell its unit."""
SHARES = (np.arange(41) + 0.5) / 41
"""Quantiles that stand for a distribution where the mean of powers is taken."""
_MAX_COMPARED = 200_000
_SWEEPS = 8
_STEADY = 1e-3  # least deviation of a member, over its mean
_LOW = 0.1


@dataclass(frozen=True, eq=False)
class Units:
    """The units of a table's values."""

    kind: UnitsKind = "plain"
    axis: int = 0
    """The axis whose members have their own units."""
    centre: Floats = field(default_factory=lambda: np.zeros(1))
    """Origins of the members' units (N + 1,); the last is that of unknown members."""
    scale: Floats = field(default_factory=lambda: np.ones(1))
    """Sizes of these units (N + 1,)."""
    counts: Floats = field(default_factory=lambda: np.zeros(0))
    """Numbers of cells that they were found from (N,)."""
    small: float = 1.0
    """Value at which logarithms start: smaller ones are nearly read as they are."""
    least: float | None = None
    """Value below which no prediction is."""
    offsets: tuple[float, ...] = (0.0,)
    """Usual quantiles of a predicted logarithm, from its mean, at ``SHARES``."""

    @classmethod
    def of(
        cls, kind: UnitsKind, axis: int, index: Index, values: Floats, shape: tuple[int, ...]
    ) -> Units:
        """Find the units of this kind for cells (E, D) with these values."""
        least = 0.0 if values.min() >= 0 else None
        if kind == "log":
            if values.min() < 0:
                raise InputError(
                    f"logarithms need values of 0 or more, but there is {values.min():g}"
                )
            above = values[values > 0]
            small = float(np.quantile(above, _LOW)) if len(above) else 1.0
            return cls("log", small=small, least=0.0)
        if kind == "own":
            units = _own_units(index[:, axis], values, shape[axis])
            return cls("own", axis, *units, least=least)
        return cls(least=least)

    @property
    def changes_nothing(self) -> bool:
        return self.kind == "plain" and self.least is None

    def put(self, index: Index, values: Floats) -> Floats:
        """Convert values of cells to these units."""
        if self.kind == "log":
            if len(values) and values.min() < 0:
                raise InputError(
                    f"values are read as logarithms and must be 0 or more, but there is "
                    f"{values.min():g}; fit again with it"
                )
            return np.log1p(values / self.small)
        if self.kind == "own":
            member = index[:, self.axis]
            return (values - self.centre[member]) / self.scale[member]
        return values

    def with_members(self, index: Index, values: Floats, shape: tuple[int, ...]) -> Units:
        """Return units for all cells: those of members that had too few are found again."""
        least = self.least
        if least is not None and len(values) and values.min() < least:
            least = None
        if self.kind != "own":
            return self if least == self.least else replace(self, least=least)
        centre, scale, counts = _own_units(index[:, self.axis], values, shape[self.axis])
        settled = np.flatnonzero(self.counts >= MIN_OWN)
        for now, before in ((centre, self.centre), (scale, self.scale), (counts, self.counts)):
            now[settled] = before[settled]
        centre[-1], scale[-1] = self.centre[-1], self.scale[-1]
        return replace(self, centre=centre, scale=scale, counts=counts, least=least)

    def for_one(self, values: Floats) -> Units:
        """Return the units of one new member, from its own values; without any it is unknown."""
        if self.kind != "own":
            return self
        if not len(values):
            unknown = self.centre[[-1, -1]], self.scale[[-1, -1]]
            return replace(self, centre=unknown[0], scale=unknown[1], counts=np.zeros(1))
        usual = _variation(self.centre[:-1], self.scale[:-1], self.counts)
        units = _own_units(np.zeros(len(values), np.int64), values, 1, usual)
        return replace(self, centre=units[0], scale=units[1], counts=units[2])

    def for_new_members(self, member: Index, values: Floats, count: int) -> Units:
        """Return the units of new members, each from its own of the values (E,)."""
        parts = [self.for_one(values[member == number]) for number in range(count)]
        centre, scale = (
            np.concatenate([*[getattr(part, name)[:1] for part in parts], getattr(self, name)[-1:]])
            for name in ("centre", "scale")
        )
        counts = np.concatenate([part.counts for part in parts])
        return replace(self, centre=centre, scale=scale, counts=counts)

    def apply(self, predicted: Distribution, index: Index) -> Distribution:
        """Return predicted distributions of cells (Q, D) in the units of the table."""
        member = index[:, self.axis] if self.kind == "own" else np.zeros(len(index), np.int64)
        centre, scale = (torch.from_numpy(each[member]) for each in (self.centre, self.scale))
        return InUnits(predicted, self, centre, scale)

    def read_offsets(self, predicted: Distribution) -> Units:
        """Return the units with the usual quantiles of predicted logarithms."""
        mean = predicted.mean().double()
        offsets = [
            float((predicted.quantile(float(share)).double() - mean).mean()) for share in SHARES
        ]
        return replace(self, offsets=tuple(offsets))

    def describe(self, axes: tuple[str, ...]) -> str:
        """Say in a sentence how values are read."""
        if self.kind == "log":
            return "values are read as logarithms, in which errors above are"
        return f"values are read in the units of each {axes[self.axis]}, in which errors above are"


@dataclass(frozen=True, eq=False)
class InUnits:
    """Distributions that were predicted in some units, in those of the table."""

    predicted: Distribution
    units: Units
    centre: Tensor  # (Q,)
    scale: Tensor  # (Q,)

    def take(self, cells: Tensor) -> InUnits:
        return InUnits(
            self.predicted.take(cells), self.units, self.centre[cells], self.scale[cells]
        )

    def mean(self) -> Tensor:
        mean = self.predicted.mean().double().cpu()
        if self.units.kind != "log":
            return self._back(mean)
        # Of the same spread for all cells: that of one cell is known too badly for its mean.
        return torch.stack([self._back(mean + away) for away in self.units.offsets]).mean(dim=0)

    def quantile(self, share: float | Tensor) -> Tensor:
        return self._back(self.predicted.quantile(share).double().cpu())

    def rank(self, values: Tensor) -> Tensor:
        return self.predicted.rank(self._put(values))

    def bounds(self) -> tuple[float, float] | None:
        return None

    def probabilities(self) -> Tensor:
        return self.predicted.probabilities()

    def log_likelihood(self, values: Tensor) -> Tensor:
        density = self.predicted.log_likelihood(self._put(values))
        if self.units.kind == "log":
            return density - torch.log(values.to(density).clamp(min=0) + self.units.small)
        return density - self.scale.log().to(density)

    def _put(self, values: Tensor) -> Tensor:
        if self.units.kind == "log":
            return torch.log1p(values.clamp(min=0) / self.units.small)
        return (values - self.centre.to(values)) / self.scale.to(values)

    def _back(self, read: Tensor) -> Tensor:
        if self.units.kind == "log":
            back = self.units.small * torch.expm1(read)
        else:
            back = self.centre + self.scale * read
        return back if self.units.least is None else back.clamp(min=self.units.least)


def choose_units(index: Index, values: Floats, shape: tuple[int, ...]) -> Units:
    """Find the units in which biases explain values best, if they do far better than in plain ones.

    Log-likelihoods are those of normal errors, in the units of the table.
    """
    plain = Units.of("plain", 0, index, values, shape)
    close = values.min() < values.std()
    if not close:  # predictions do not come near 0
        plain = Units()
    if len(values) < MIN_CELLS or len(shape) < 2 or values.min() == values.max():
        return plain
    whole = index, values
    if len(values) > _MAX_COMPARED:
        some = np.random.default_rng(0).choice(len(values), _MAX_COMPARED, replace=False)
        index, values = index[some], values[some]
    tried: list[tuple[float, Units]] = []
    if values.min() >= 0 and values.max() > 0:
        units = Units.of("log", 0, index, values, shape)
        gained = -float(np.log(values + units.small).mean())
        tried.append((_explained(index, units.put(index, values), shape) + gained, units))
    for axis, size in enumerate(shape):
        if len(values) >= MIN_OWN * size:
            units = Units.of("own", axis, index, values, shape)
            # Every unit is found from the values themselves, which counts against it.
            gained = -float(np.log(units.scale[index[:, axis]]).mean())
            gained -= size * float(np.log(len(values))) / len(values)
            tried.append((_explained(index, units.put(index, values), shape) + gained, units))
    best = max(tried, key=lambda pair: pair[0], default=(-np.inf, plain))
    if best[0] <= _explained(index, values, shape) + MIN_GAIN:
        return plain
    return Units.of(best[1].kind, best[1].axis, *whole, shape)


def _explained(index: Index, values: Floats, shape: tuple[int, ...]) -> float:
    """Log-likelihood of a cell under biases, but for a constant."""
    left = values - values.mean()
    effects = [np.zeros(size) for size in shape]
    for _ in range(_SWEEPS):
        for axis, size in enumerate(shape):
            members = index[:, axis]
            left += effects[axis][members]
            counts = np.bincount(members, minlength=size)
            effects[axis] = np.bincount(members, left, size) / (counts + 1)
            left -= effects[axis][members]
    return -float(np.log(max(left.std(), np.finfo(float).tiny)))


def _variation(centre: Floats, scale: Floats, counts: Floats) -> float:
    """Return the usual deviation of members over their mean."""
    many = (counts >= MIN_OWN) & (centre != 0)
    return float(np.median(scale[many] / np.abs(centre[many]))) if many.any() else 1.0


def _own_units(
    member: Index, values: Floats, size: int, variation: float | None = None
) -> tuple[Floats, Floats, Floats]:
    """Return origins and sizes of the members' units, and of unknown ones last, and their cells.

    A member with few cells has the ``variation`` of others over its mean.
    """
    count = np.bincount(member, minlength=size)
    centre = np.bincount(member, values, size) / np.maximum(count, 1)
    squares = np.bincount(member, (values - centre[member]) ** 2, size)
    scale = np.sqrt(squares / np.maximum(count, 1))
    many = count >= MIN_OWN
    if variation is None:
        variation = _variation(centre, scale, count.astype(np.float64))
    whole = (float(values.mean()), float(values.std()) or 1.0) if len(values) else (0.0, 1.0)
    scale = np.where(many, scale, np.maximum(scale, variation * np.abs(centre)))
    scale = np.maximum(scale, _STEADY * np.abs(centre))
    scale = np.where(scale > 0, scale, whole[1])
    centre = np.where(count > 0, centre, whole[0])
    scale = np.where(count > 0, scale, whole[1])
    return np.append(centre, whole[0]), np.append(scale, whole[1]), count.astype(np.float64)
