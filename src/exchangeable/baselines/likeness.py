"""What members that are alike say of each other's cells.

A table of residuals r is unfolded to the members of one axis by the combinations of all others.
Two members are alike by what they hold, the cosine of their residuals over the n_ij combinations
that both have, shrunk where these are few, and by where they hold something at all:

    s_ij = max(0, cosine) n_ij / (n_ij + shrink)        p_ij = n_ij / sqrt(n_i n_j)

Of a cell all members that have one at the same combination speak, by s^2 or p^3, and what they
say is pulled towards 0 where these weights are small. A member does not speak of its own cells.
Where factors have too little to go by, this does better than they do, and it knows what they do
not: who has a cell, whatever is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from exchangeable.baselines.base import UNKNOWN, chunks
from exchangeable.baselines.unfolding import Unfolding

SAID = 4
"""Numbers that are said of a cell: by what members hold the mean and its share, by where too."""

AT_ONCE = 1 << 25
"""Numbers of members and combinations, times members that are compared with them, at a time."""


@dataclass(frozen=True, eq=False)
class Alike:
    """The members of one axis, with the residuals (E,) of their cells (E, D)."""

    index: Tensor
    residuals: Tensor
    shape: tuple[int, ...]
    axis: int
    shrink: float = 30.0
    """Common cells that are needed to believe half of a likeness."""
    doubt: float = 0.1
    """Weight, of all members together, that is needed to believe half of what they say."""

    @cached_property
    def _unfolded(self) -> Unfolding:
        return Unfolding.of(self.index, self.residuals, self.shape, self.axis)

    def joined(self, axis: int, index: Tensor, residuals: Tensor) -> Alike:
        """With one new member of an axis, number 0 there, and its cells; others count on from 1."""
        known, shape = self.index.clone(), list(self.shape)
        known[:, axis] += 1
        shape[axis] += 1
        cells, values = torch.cat([known, index]), torch.cat([self.residuals, residuals])
        return replace(self, index=cells, residuals=values, shape=tuple(shape))

    def said(self, index: Tensor) -> Tensor:
        """Of cells (Q, D): mean and believed share by likeness s, then by p: (Q, 4)."""
        result = self.residuals.new_zeros(len(index), SAID)
        if not len(self.residuals):
            return result
        at, member = self._unfolded.combinations.find(index), index[:, self.axis]
        known = (member >= 0) & (member < self._unfolded.members)
        asked = ((at != UNKNOWN) & known).nonzero().squeeze(1)
        asked = asked[member[asked].argsort(stable=True)]
        members, column = member[asked].unique_consecutive(return_inverse=True)
        total = self._unfolded.members + len(self._unfolded.combinations)
        for part in chunks(len(members), max(1, AT_ONCE // total)):
            first, last = torch.searchsorted(column, column.new_tensor([part.start, part.stop]))
            some, own = asked[first:last], column[first:last] - part.start
            result[some] = self._heard(members[part])[:, at[some], own].T
        return result

    def _heard(self, members: Tensor) -> Tensor:
        """What is said of every combination of some members: (4, combinations, members)."""
        table = self._unfolded
        held, there = table.some(members)
        common = table.ones @ there
        sizes = (table.ones @ held.square()) * (table.squares @ there)
        alike = (table.values @ held) / sizes.sqrt().clamp(min=1e-12) * common
        alike = (alike / (common + self.shrink)).clamp(min=0).square()
        number = (table.ones @ there.new_ones(len(there), 1)).clamp(min=1)
        beside = (common / (number * number[members].T).sqrt()) ** 3
        told = []
        for weights in (alike, beside):
            weights[members, torch.arange(len(members), device=members.device)] = 0
            total = table.ones_turned @ weights
            told += [(table.values_turned @ weights) / (total + self.doubt)]
            told += [total / (total + self.doubt)]
        return torch.stack(told)
