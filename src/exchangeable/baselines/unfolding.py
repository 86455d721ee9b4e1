"""A table unfolded: members of one axis by the combinations of all others that have cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from exchangeable.baselines.base import UNKNOWN, Floats, Index


@dataclass(frozen=True, eq=False)
class Combinations:
    """Numbers for the combinations of some axes' members that occur.

    They are numbered axis after axis, so that numbers stay below the cells times the members
    of one axis, where the product of all axes might not fit an integer.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    levels: tuple[Index, ...]  # per axis the keys that occur, ascending

    @classmethod
    def of(cls, index: Index, axes: Sequence[int], shape: Sequence[int]) -> Combinations:
        levels, place = [], np.zeros(len(index), dtype=np.int64)
        for axis in axes:
            keys, place = np.unique(place * shape[axis] + index[:, axis], return_inverse=True)
            levels.append(keys)
        return cls(tuple(axes), tuple(shape[axis] for axis in axes), tuple(levels))

    def __len__(self) -> int:
        return len(self.levels[-1]) if self.levels else 1

    def find(self, index: Index) -> Index:
        """The number of each cell's combination, -1 where it does not occur: (Q, D) -> (Q,)."""
        place = np.zeros(len(index), dtype=np.int64)
        for axis, size, keys in zip(self.axes, self.sizes, self.levels, strict=True):
            key = place * size + index[:, axis]
            at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
            place = np.where((place != UNKNOWN) & (keys[at] == key), at, UNKNOWN)
        return place


@dataclass(frozen=True, eq=False)
class Unfolding:
    """Values of cells as a sparse matrix, with what comparing its rows takes."""

    index: Index  # (E, D)
    values: Floats  # (E,)
    shape: tuple[int, ...]
    axis: int

    @cached_property
    def combinations(self) -> Combinations:
        others = [axis for axis in range(len(self.shape)) if axis != self.axis]
        return Combinations.of(self.index, others, self.shape)

    @cached_property
    def table(self) -> csr_array:
        """Members by combinations, in single precision."""
        shape = (self.shape[self.axis], len(self.combinations))
        where = self.index[:, self.axis], self.combinations.find(self.index)
        return csr_array((self.values.astype(np.float32), where), shape=shape)

    @cached_property
    def squares(self) -> csr_array:
        return _same_cells(self.table, self.table.data**2)

    @cached_property
    def ones(self) -> csr_array:
        return _same_cells(self.table, np.ones_like(self.table.data))

    @cached_property
    def by_combination(self) -> csr_array:
        return self.table.T.tocsr()


def _same_cells(table: csr_array, data: NDArray[np.float32]) -> csr_array:
    return csr_array((data, table.indices, table.indptr), shape=table.shape)
