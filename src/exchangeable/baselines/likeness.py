"""What members that are alike say of each other's cells.

A table of residuals r is unfolded to the members of one axis by the combinations of all others.
Two members are alike by what they hold, the cosine of their residuals over the n_ij combinations
that both have, shrunk where these are few, and by where they hold something at all:

    s_ij = max(0, cosine) n_ij / (n_ij + shrink)        p_ij = n_ij / sqrt(n_i n_j)

Of a cell all members that have one at the same combination speak, or in large tables those that
have the most cells, by s^2 or p^3, and what they say is pulled towards 0 where these weights are
small. A member does not speak of its own cells.
Where factors have too little to go by, this does better than they do, and it knows what they do
not: who has a cell, whatever is in it.
"""

from __future__ import annotations

import math
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

KEPT = 1 << 25
"""Pairs of members up to which likenesses are kept for the next questions."""

FEW = 30
"""Combinations per question from which on it is quicker to add up for each question by itself."""


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
    compared: float = math.inf
    """Members who speak, times entries of the table, at most: then those with the most cells do."""

    @cached_property
    def _unfolded(self) -> Unfolding:
        return Unfolding.of(self.index, self.residuals, self.shape, self.axis, self.compared)

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
        if not len(self.residuals) or not len(self._unfolded.speakers):
            return result
        at, member = self._unfolded.combinations.find(index), index[:, self.axis]
        known = (member >= 0) & (member < self._unfolded.members)
        asked = ((at != UNKNOWN) & known).nonzero().squeeze(1)
        asked = asked[member[asked].argsort(stable=True)]
        members, column = member[asked].unique_consecutive(return_inverse=True)
        most = 2 * len(members) > self._unfolded.members
        kept = self._kept if most or "_kept" in vars(self) else None  # not all for the sake of one
        total = len(self._unfolded.speakers) + len(self._unfolded)
        for part in chunks(len(members), max(1, AT_ONCE // total)):
            first, last = torch.searchsorted(column, column.new_tensor([part.start, part.stop]))
            some, own = asked[first:last], column[first:last] - part.start
            chosen = members[part]
            weights = self._likeness(chosen) if kept is None else kept[:, :, chosen]
            result[some] = self._heard(weights, at[some], own)
        return result

    def _heard(self, likeness: Tensor, at: Tensor, column: Tensor) -> Tensor:
        """What is said of combinations ``at`` (Q,) of members by column of likeness: (Q, 4)."""
        table, told = self._unfolded, []
        many = FEW * len(at) > likeness.shape[2] * len(table)
        for weights in likeness:
            if many or table.values.layout != torch.strided:
                total = (table.ones_turned @ weights)[at, column]
                mean = (table.values_turned @ weights)[at, column]
            else:
                parts = []
                for own in chunks(len(at), max(1, AT_ONCE // len(weights))):
                    heard = weights.T[column[own]]
                    said = (table.ones_turned[at[own]], table.values_turned[at[own]])
                    parts.append(torch.stack([(one * heard).sum(dim=1) for one in said]))
                total, mean = torch.cat(parts, dim=1)
            told += [mean / (total + self.doubt), total / (total + self.doubt)]
        return torch.stack(told, dim=1)

    @cached_property
    def _kept(self) -> Tensor | None:
        table = self._unfolded
        if len(table.speakers) * table.members > KEPT:
            return None
        everyone = torch.arange(table.members, device=self.index.device)
        size = max(1, AT_ONCE // (len(table.speakers) + len(table)))
        parts = [self._likeness(everyone[part]) for part in chunks(table.members, size)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)

    def _likeness(self, members: Tensor) -> Tensor:
        """Of those who speak with some members, by s and by p: (2, speakers, members)."""
        table = self._unfolded
        held, there = table.some(members)
        # In place where it can be: these are passes over members times members.
        alike, beside = found = held.new_empty(2, len(table.speakers), len(members))
        beside.copy_(table.ones @ there)
        sizes = (table.ones @ held.square()).mul_(table.squares @ there).sqrt_().clamp_(min=1e-12)
        alike.copy_(table.values @ held).div_(sizes).mul_(beside)
        alike.div_(sizes.copy_(beside).add_(self.shrink)).clamp_(min=0).square_()
        each = table.sizes.to(held).clamp(min=1).rsqrt()
        beside.mul_(each[table.speakers, None]).mul_(each[members]).pow_(3)
        number, own = table.number[members], torch.arange(len(members), device=members.device)
        found[:, number[number != UNKNOWN], own[number != UNKNOWN]] = 0
        return found
