"""A predictor that reads values in other units than those of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.predictors.base import Predictor
from exchangeable.values.distributions import Distribution
from exchangeable.values.units import Units, UnitsKind, choose_units

OFFSET_CELLS = 4096
"""Cells that tell how far predicted logarithms usually spread."""


@dataclass(frozen=True, eq=False)
class UnitsPredictor:
    """Predicts in the units of the table what another predictor has read in others."""

    inner: Predictor
    units: Units
    chosen: bool
    """Whether the units were asked for; others are found again when all cells are read."""

    @classmethod
    def of(cls, units: Units, chosen: bool, cells: Cells, inner: Predictor) -> UnitsPredictor:
        """Build the predictor from one that has read the cells in these units."""
        if units.kind == "log":
            # Taken by value, so that the sequence of the cells does not matter.
            step = -(-len(cells) // OFFSET_CELLS)
            some = np.argsort(cells.values, kind="stable")[::step]
            units = units.read_offsets(inner.predict(cells.index[some]))
        return cls(inner, units, chosen)

    def predict(self, index: Index, times: Floats | None = None) -> Distribution:
        return self.units.apply(self.inner.predict(index, times), index)

    def updated(self, cells: Cells, changed: Index, *, known: int) -> UnitsPredictor:
        if self.units.kind == "log" and not self.chosen and cells.values.min() < 0:
            return self.refreshed(cells)  # they have no logarithm: other units suit them now
        units = self.units.with_members(cells.index, cells.values, cells.shape)
        inner = self.inner.updated(in_units(units, cells), changed, known=known)
        return replace(self, inner=inner, units=units)

    def needs_refit(self, cells: Cells, changed: Index, *, known: int) -> bool:
        return self.inner.needs_refit(cells, changed, known=known)

    def refreshed(self, cells: Cells) -> UnitsPredictor:
        asked = (self.units.kind, self.units.axis) if self.chosen else None
        units = find_units(asked, cells)
        inner = self.inner.refreshed(in_units(units, cells))
        return self.of(units, self.chosen, cells, inner)

    def for_new_members(
        self,
        axis: int,
        index: Index,
        values: Floats,
        features: Tensor | None = None,
        *,
        count: int = 1,
    ) -> UnitsPredictor | None:
        units = self.units
        if units.kind == "own" and units.axis == axis:
            units = units.for_new_members(index[:, axis], values, count)
        put = units.put(index, values)
        inner = self.inner.for_new_members(axis, index, put, features, count=count)
        return None if inner is None else replace(self, inner=inner, units=units)

    def factors(self) -> tuple[Floats, ...]:
        return self.inner.factors()

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        config, tensors = self.inner.to_parts()
        units = self.units
        stored = {
            "kind": units.kind,
            "axis": units.axis,
            "small": units.small,
            "least": units.least,
            "offsets": list(units.offsets),
            "chosen": self.chosen,
        }
        own = {f"units.{name}": torch.from_numpy(getattr(units, name).copy()) for name in _ARRAYS}
        return {**config, "units": stored}, {**tensors, **own}

    @classmethod
    def from_parts(
        cls,
        config: dict[str, Any],
        tensors: dict[str, Tensor],
        cells: Cells,
        read: Callable[[dict[str, Any], dict[str, Tensor], Cells], Predictor],
    ) -> UnitsPredictor:
        """Build a predictor from what ``to_parts`` returned; ``read`` builds the inner one."""
        stored = config["units"]
        arrays = {name: tensors[f"units.{name}"].numpy() for name in _ARRAYS}
        units = Units(
            stored["kind"],
            int(stored["axis"]),
            arrays["centre"],
            arrays["scale"],
            arrays["counts"],
            float(stored["small"]),
            stored["least"],
            tuple(stored["offsets"]),
        )
        inner_config = {name: part for name, part in config.items() if name != "units"}
        inner_tensors = {n: t for n, t in tensors.items() if not n.startswith("units.")}
        inner = read(inner_config, inner_tensors, in_units(units, cells))
        return cls(inner, units, bool(stored["chosen"]))


_ARRAYS = ("centre", "scale", "counts")


def in_units(units: Units, cells: Cells) -> Cells:
    """Return the cells with their values in these units."""
    return replace(cells, values=units.put(cells.index, cells.values))


def find_units(asked: tuple[UnitsKind, int] | None, cells: Cells) -> Units:
    """Return the units that were asked for, or those in which biases explain the values."""
    if asked is None:
        return choose_units(cells.index, cells.values, cells.shape)
    return Units.of(*asked, cells.index, cells.values, cells.shape)


def unwrapped(predictor: Predictor) -> Predictor:
    """Return the predictor that has read the cells, in whatever units."""
    return predictor.inner if isinstance(predictor, UnitsPredictor) else predictor
