"""A table unfolded: members of one axis by the combinations of all others that have cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN
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
    """Cells as a matrix, members by combinations, to multiply others with.

    Some of the members speak: only their rows are held as a matrix. What any member holds is
    found by ``some``.
    """

    combinations: Combinations
    starts: Tensor  # (N + 1,), where the cells of each member begin
    places: Tensor  # (E,), their combinations, ordered by member
    held: Tensor  # (E,), their values
    speakers: Tensor  # (S,), ascending
    number: Tensor  # (N,), of those who speak; -1 for others
    values: Tensor  # (S, C)
    squares: Tensor
    ones: Tensor
    values_turned: Tensor  # (C, S)

    @classmethod
    def of(
        cls, index: Tensor, values: Tensor, shape: Sequence[int], axis: int, compared: float
    ) -> Self:
        """Of values (E,); as many members speak as ``compared`` entries allow, those with most."""
        others = [other for other in range(len(shape)) if other != axis]
        combinations, place = Combinations.of(index, others, shape)
        sizes = index[:, axis].bincount(minlength=shape[axis])
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        order = index[:, axis].argsort(stable=True)
        speakers = _speakers(index[:, axis], values, sizes, len(combinations), compared)
        number = torch.full_like(sizes, UNKNOWN)
        number[speakers] = torch.arange(len(speakers), device=index.device)
        row, size = number[index[:, axis]], (len(speakers), len(combinations))
        spoken = row != UNKNOWN
        row, column, said = row[spoken], place[spoken], values[spoken]
        kinds = (said, said.square(), torch.ones_like(said))
        if size[0] * size[1] <= FULL_ENOUGH * len(said):
            tables = [v.new_zeros(size).index_put_((row, column), v) for v in kinds]
            tables.append(tables[0].T)
        else:
            tables = sparse(row, column, kinds, size)
            tables += sparse(column, row, (said,), size[::-1])
        return cls(combinations, starts, place[order], values[order], speakers, number, *tables)

    def __len__(self) -> int:
        return len(self.combinations)

    @property
    def members(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> Tensor:
        return self.starts.diff()

    def at(self, combinations: Tensor) -> Self:
        """To be multiplied with what is held at some combinations only; not of sparse tables."""
        values, squares, ones = (t[:, combinations] for t in (self.values, self.squares, self.ones))
        return replace(self, values=values, squares=squares, ones=ones)

    def some(self, members: Tensor) -> tuple[Tensor, Tensor]:
        """What some members hold, and where: (combinations, members) each, zero where nothing."""
        sizes = self.sizes[members]
        column = torch.arange(len(members), device=members.device).repeat_interleave(sizes)
        before = (sizes.cumsum(0) - sizes)[column]
        own = self.starts[members][column] + torch.arange(len(column), device=members.device)
        own = own - before
        where = self.places[own], column
        held = self.held.new_zeros(len(self.combinations), len(members))
        there = torch.zeros_like(held)
        held.index_put_(where, self.held[own])
        there.index_put_(where, torch.ones_like(self.held[own]))
        return held, there


def _speakers(
    member: Tensor, values: Tensor, sizes: Tensor, combinations: int, compared: float
) -> Tensor:
    """Members with the most cells, as many as may be compared with all; ascending."""
    entries = min(len(sizes) * combinations, FULL_ENOUGH * len(values))
    number = int(min(len(sizes), compared // max(entries, 1)))
    if number == len(sizes):
        return torch.arange(number, device=member.device)
    # Between equals what they hold decides, not how they are numbered.
    weight = torch.zeros(len(sizes), dtype=torch.float64, device=member.device)
    weight.index_add_(0, member, values.double().square())
    chosen = (sizes + weight / (1 + weight)).topk(number).indices
    return chosen.sort().values
