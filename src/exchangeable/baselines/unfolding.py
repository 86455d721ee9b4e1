"""A table unfolded: members of one axis by the combinations of all others that have cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from exchangeable.baselines.base import UNKNOWN
from exchangeable.baselines.factorization import sparse

FULL_ENOUGH = 64
"""Places per cell up to which a table is held with its empty places, which is quicker then."""


@dataclass(frozen=True, eq=False)
class Combinations:
    """Numbers for the combinations of some axes' members that occur.

    They are numbered axis after axis, so that numbers stay below the cells times the members
    of one axis, where the product of all axes might not fit an integer.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    levels: tuple[Tensor, ...]  # per axis the keys that occur, ascending

    @classmethod
    def of(
        cls, index: Tensor, axes: Sequence[int], shape: Sequence[int]
    ) -> tuple[Combinations, Tensor]:
        """With the number of each cell's combination, (E,)."""
        levels, place = [], index.new_zeros(len(index))
        for axis in axes:
            key = place * shape[axis] + index[:, axis]
            keys, place = key.unique(return_inverse=True)
            levels.append(keys)
        return cls(tuple(axes), tuple(shape[axis] for axis in axes), tuple(levels)), place

    def __len__(self) -> int:
        return len(self.levels[-1]) if self.levels else 1

    def find(self, index: Tensor) -> Tensor:
        """The number of each cell's combination, -1 where it does not occur: (Q, D) -> (Q,)."""
        place = index.new_zeros(len(index))
        for axis, size, keys in zip(self.axes, self.sizes, self.levels, strict=True):
            key = place * size + index[:, axis]
            at = torch.searchsorted(keys, key).clamp(max=len(keys) - 1)
            place = torch.where((place != UNKNOWN) & (keys[at] == key), at, UNKNOWN)
        return place


@dataclass(frozen=True, eq=False)
class Unfolding:
    """Values (E,) of cells as a matrix, members by combinations, to multiply others with."""

    combinations: Combinations
    values: Tensor
    squares: Tensor
    ones: Tensor
    values_turned: Tensor
    """Combinations by members."""
    ones_turned: Tensor

    @classmethod
    def of(cls, index: Tensor, values: Tensor, shape: Sequence[int], axis: int) -> Self:
        others = [other for other in range(len(shape)) if other != axis]
        combinations, place = Combinations.of(index, others, shape)
        size = (shape[axis], len(combinations))
        member, ones = index[:, axis], torch.ones_like(values)
        kinds = (values, values.square(), ones)
        if size[0] * size[1] <= FULL_ENOUGH * len(values):
            tables = [v.new_zeros(size).index_put_((member, place), v) for v in kinds]
            turned = [tables[0].T, tables[2].T]
        else:
            tables = sparse(member, place, kinds, size)
            turned = sparse(place, member, (values, ones), size[::-1])
        return cls(combinations, *tables, *turned)

    @property
    def members(self) -> int:
        return int(self.values.shape[0])

    def some(self, members: Tensor) -> tuple[Tensor, Tensor]:
        """What some members hold, and where: (combinations, members) each, zero where nothing."""
        if self.values.layout == torch.strided:
            return self.values[members].T, self.ones[members].T
        size, kind = (self.members, len(members)), self.values.dtype
        chosen = torch.zeros(size, dtype=kind, device=members.device)
        chosen[members, torch.arange(len(members), device=members.device)] = 1
        return self.values_turned @ chosen, self.ones_turned @ chosen
