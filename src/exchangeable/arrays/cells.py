"""The observed cells of a table as plain numpy arrays: coordinates, values, shape and scale.

Data, baselines and the estimator exchange cells in this form. It needs neither torch nor polars;
``Cells.to_array`` makes the tensors that models take.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.errors import InputError
from exchangeable.values.scale import REAL, Scale

if TYPE_CHECKING:
    from exchangeable.arrays.array import ExchangeableArray

Index = NDArray[np.int64]
"""Coordinates of cells, (E, D), or numbers, (N,)."""
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

UNKNOWN = -1
"""The coordinate of a member that the table does not have."""

MAX_KEY = 2**63 - 1
"""Largest number of a cell or group."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Observed cells of a table: where they are and what they hold.

    >>> cells = Cells.of([(0, 0), (1, 2)], [4.0, 5.0], (2, 3))
    >>> len(cells), cells.order
    (2, 2)
    """

    index: Index  # (E, D)
    values: Floats  # (E,)
    shape: tuple[int, ...]  # (N_1, ..., N_D)
    scale: Scale = REAL
    times: Floats | None = None  # (E,), NaN where a cell has none
    joint: bool = False
    """Whether both axes are one set of members."""

    @classmethod
    def of(cls, index: Any, values: Any, shape: tuple[int, ...], scale: Scale = REAL) -> Cells:
        """Build cells from anything numpy can convert."""
        coordinates = np.asarray(index, dtype=np.int64).reshape(-1, len(shape))
        return cls(coordinates, np.asarray(values, dtype=np.float64), shape, scale)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def order(self) -> int:
        return len(self.shape)

    def take(self, positions: NDArray[Any]) -> Cells:
        """Select cells by position or by mask."""
        times = None if self.times is None else self.times[positions]
        return replace(
            self, index=self.index[positions], values=self.values[positions], times=times
        )

    def to_array(self, shape: tuple[int, ...] | None = None) -> ExchangeableArray:
        """Convert to an ``ExchangeableArray`` with one float64 channel."""
        import torch

        from exchangeable.arrays.array import ExchangeableArray
        from exchangeable.arrays.support import Support

        support = Support(torch.from_numpy(self.index), shape or self.shape)
        return ExchangeableArray.unchecked(support, torch.from_numpy(self.values)[:, None])


def cell_keys(index: Index, shape: tuple[int, ...]) -> Index:
    """Number cells row by row, ascending as their coordinates do: (E, D) -> (E,).

    Coordinates are not checked; a shape with more than 2^63 - 1 cells is an error.

    >>> cell_keys(np.array([[0, 2], [1, 0]]), (2, 3)).tolist()
    [2, 3]
    """
    if math.prod(shape) > MAX_KEY:
        raise InputError(f"a table must have fewer than 2^63 cells, but its shape is {shape}")
    keys = index[:, 0].copy()
    for axis, size in list(enumerate(shape))[1:]:
        keys *= size
        keys += index[:, axis]
    return keys


def cells_of_their_members(cells: Cells, some: Index) -> Index:
    """Return the positions of all cells of the members, on any axis, that some cells have."""
    found = np.zeros(len(cells), dtype=bool)
    for axis, size in enumerate(cells.shape if len(some) else ()):
        members = np.zeros(size, dtype=bool)
        members[cells.index[some] if cells.joint else cells.index[some, axis]] = True
        found |= members[cells.index[:, axis]]
    return np.flatnonzero(found)
