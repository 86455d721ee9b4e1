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
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.base import chunks
from exchangeable.baselines.unfolding import Combinations, Unfolding

SAID = 4
"""Numbers that are said of a cell: by what members hold the mean and its share, by where too."""

AT_ONCE = 1 << 25
"""Numbers of members and combinations, times members that are compared with them, at a time."""

KEPT = 1 << 25
"""Pairs of members up to which likenesses are kept for the next questions."""

SAID_KEPT = 1 << 25
"""Places of the table up to which all that is said of any of them is kept."""

SAID_KEPT_WHOLE = 1 << 23
"""Up to as many with 16 bytes each; others with half of that, since digits beyond the third say
nothing of what somebody likes."""

PAIRS = 1 << 21
"""Pairs of a question and a member who speaks of it, at a time, where tables are sparse."""

FEW = 30
"""Combinations per question from which on it is quicker to add up for each question by itself."""


@dataclass(frozen=True, eq=False)
class Similarity:
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

    def joined(self, axis: int, index: Tensor, residuals: Tensor) -> Joined:
        """What is said of one new member of an axis, number 0 there, with these cells."""
        return Joined(self, axis, index, residuals)

    def said(self, index: Tensor) -> Tensor:
        """Of cells (Q, D): mean and believed share by likeness s, then by p: (Q, 4)."""
        result = self.residuals.new_zeros(len(index), SAID)
        if not len(self.residuals) or not len(self._unfolded.speakers):
            return result
        at, member = self._unfolded.combinations.find(index), index[:, self.axis]
        known = (member >= 0) & (member < self._unfolded.members)
        asked = ((at != UNKNOWN) & known).nonzero().squeeze(1)
        places = len(self._unfolded) * self._unfolded.members
        many = FEW * len(asked) > places
        held = self._unfolded.values.layout == torch.strided  # with its empty places
        if (many and held and places <= SAID_KEPT) or "_everything" in vars(self):
            result[asked] = self._everything[at[asked], member[asked]].to(result)
            return result
        asked = asked[member[asked].argsort(stable=True)]
        members, column = member[asked].unique_consecutive(return_inverse=True)
        most = 2 * len(members) > self._unfolded.members
        kept = self._kept if most or "_kept" in vars(self) else None  # not all for the sake of one
        for part in self._parts(len(members)):
            first, last = torch.searchsorted(column, column.new_tensor([part.start, part.stop]))
            some, own = asked[first:last], column[first:last] - part.start
            chosen = members[part]
            weights = self._likeness(chosen) if kept is None else kept[:, :, chosen]
            result[some] = self._heard(weights, at[some], own)
        return result

    def _heard(self, likeness: Tensor, at: Tensor, column: Tensor) -> Tensor:
        """What is said of combinations ``at`` (Q,) of members by column of likeness: (Q, 4)."""
        table, told = self._unfolded, []
        if not len(at):
            return likeness.new_zeros(0, SAID)
        if table.values.layout != torch.strided:
            return self._heard_there(likeness, at, column)
        if FEW * len(at) > likeness.shape[2] * len(table):
            return self._heard_everywhere(likeness)[at, column]
        for weights in likeness:
            parts = []
            for own in chunks(len(at), max(1, AT_ONCE // len(weights))):
                heard = weights.T[column[own]]
                said = (table.ones.T[at[own]], table.values_turned[at[own]])
                parts.append(torch.stack([(one * heard).sum(dim=1) for one in said]))
            total, mean = torch.cat(parts, dim=1)
            told += [mean / (total + self.doubt), total / (total + self.doubt)]
        return torch.stack(told, dim=1)

    def _heard_there(self, likeness: Tensor, at: Tensor, column: Tensor) -> Tensor:
        """The same where cells are few: only those who have one at the combination are asked."""
        table = self._unfolded.values_turned
        starts, values = table.crow_indices().long(), table.values()
        speakers = table.col_indices().long()
        sizes = starts[at + 1] - starts[at]
        ends = sizes.cumsum(0)
        result = likeness.new_zeros(len(at), SAID)
        # Parts of about as many pairs, each of one question at least.
        cuts = ((ends - sizes) // PAIRS).diff().nonzero().squeeze(1) + 1
        limits = [0, *cuts.tolist(), len(at)] if len(at) else []
        for first, last in pairwise(limits):
            own, number = sizes[first:last], torch.arange(last - first, device=at.device)
            question = number.repeat_interleave(own)
            before = (own.cumsum(0) - own)[question]
            cell = starts[at[first:last]][question] - before
            cell += torch.arange(len(question), device=at.device)
            weights = likeness[:, speakers[cell], column[first:last][question]].T
            pairs = torch.cat([weights, weights * values[cell, None]], dim=1)
            summed = torch.segment_reduce(pairs, "sum", lengths=own, axis=0, initial=0.0)
            total, mean = summed[:, :2], summed[:, 2:]
            shares = torch.stack([mean, total], dim=2) / (total + self.doubt)[:, :, None]
            result[first:last] = shares.flatten(1)
        return result

    def _heard_everywhere(self, likeness: Tensor) -> Tensor:
        """What is said of each combination of each of some members: (combinations, members, 4)."""
        return self._told(self._unfolded.ones.T, self._unfolded.values_turned, likeness)

    def _told(self, ones: Tensor, values: Tensor, likeness: Tensor) -> Tensor:
        """From what those who speak have at combinations (C, S), and (2, S, M): (C, M, 4)."""
        result = likeness.new_empty(len(ones), likeness.shape[2], SAID)
        for kind, weights in enumerate(likeness):
            total, mean = ones @ weights, values @ weights
            doubted = total + self.doubt
            result[:, :, 2 * kind] = mean.div_(doubted)
            result[:, :, 2 * kind + 1] = total.div_(doubted)
        return result

    @cached_property
    def _everything(self) -> Tensor:
        everyone = torch.arange(self._unfolded.members, device=self.index.device)
        whole = len(self._unfolded) * len(everyone) <= SAID_KEPT_WHOLE
        heard = self.residuals.new_empty(
            (len(self._unfolded), len(everyone), SAID), dtype=None if whole else torch.float16
        )
        for part in self._parts(len(everyone)):
            heard[:, part] = self._heard_everywhere(self._likeness(everyone[part]))
        return heard

    @cached_property
    def _kept(self) -> Tensor | None:
        table = self._unfolded
        if len(table.speakers) * table.members > KEPT:
            return None
        everyone = torch.arange(table.members, device=self.index.device)
        parts = [self._likeness(everyone[part]) for part in self._parts(table.members)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)

    def _parts(self, members: int) -> list[slice]:
        """Of some members, so that what is held at a time stays small."""
        total = len(self._unfolded.speakers) + len(self._unfolded)
        return list(chunks(members, max(1, AT_ONCE // total)))

    def _likeness(self, members: Tensor) -> Tensor:
        """Of those who speak with some members, by s and by p: (2, speakers, members)."""
        table = self._unfolded
        both = len(members) == len(table.speakers) == table.members  # who speaks, and of whom
        found = self._compared(*table.some(members), table.sizes[members], both)
        number, own = table.number[members], torch.arange(len(members), device=members.device)
        found[:, number[number != UNKNOWN], own[number != UNKNOWN]] = 0
        return found

    def _compared(
        self,
        held: Tensor,
        there: Tensor,
        sizes: Tensor,
        mutual: bool = False,
        only: Tensor | None = None,
    ) -> Tensor:
        """Likeness of those who speak with others, by what and where these hold (combinations, M).

        ``sizes`` is how many cells they have: (M,). ``mutual`` says that they are those who speak.
        ``only`` are the combinations that are meant, where these are some.
        """
        table = self._unfolded if only is None else self._unfolded.at(only)
        # In place where it can be: these are passes over members times members.
        alike, beside = found = held.new_empty(2, len(table.speakers), held.shape[1])
        beside.copy_(table.ones @ there)
        lengths = table.ones @ held.square()
        lengths = lengths * lengths.T if mutual else lengths.mul_(table.squares @ there)
        lengths.sqrt_().clamp_(min=1e-12)
        alike.copy_(table.values @ held).div_(lengths).mul_(beside)
        alike.div_(lengths.copy_(beside).add_(self.shrink)).clamp_(min=0).square_()
        each = table.sizes[table.speakers].to(held).clamp(min=1).rsqrt()
        beside.mul_(each[:, None]).mul_(sizes.to(held).clamp(min=1).rsqrt()).pow_(3)
        return found


@dataclass(frozen=True, eq=False)
class Joined:
    """What is said of the cells of one new member, number 0 of its axis.

    It is compared with all that speak. Members of other axes speak of it as they are alike
    without its cells, so that nothing that was found before is found again.
    """

    before: Similarity
    axis: int
    """Of the new member."""
    index: Tensor  # (E, D), its cells
    residuals: Tensor

    def said(self, index: Tensor) -> Tensor:
        """Of cells (Q, D) of the new member, as ``Alike.said``: (Q, 4)."""
        before = self.before
        result = self.residuals.new_zeros(len(index), SAID)
        if len(self.residuals) and len(before.residuals) and len(before._unfolded.speakers):
            asked = self._by_it if self.axis == before.axis else self._by_others
            some, said = asked(index)
            result[some] = said
        return result

    def _by_it(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """By whom the new member is like: which cells are known about, and what is said there."""
        at = self.before._unfolded.combinations.find(index)
        some = (at != UNKNOWN).nonzero().squeeze(1)
        return some, self.before._heard(self._likeness, at[some], torch.zeros_like(some))

    @cached_property
    def _likeness(self) -> Tensor:
        """Of those who speak with the new member: (2, speakers, 1)."""
        table = self.before._unfolded
        own = table.combinations.find(self.index)
        known = own != UNKNOWN
        held, sizes = self.residuals[known, None], torch.tensor([len(own)], device=own.device)
        there, only = torch.ones_like(held), own[known]
        if table.values.layout == torch.strided:
            return self.before._compared(held, there, sizes, only=only)
        everywhere = held.new_zeros(2, len(table), 1)
        everywhere[0, only], everywhere[1, only] = held, there
        return self.before._compared(everywhere[0], everywhere[1], sizes)

    def _by_others(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """By those of another axis with whom the new member has cells."""
        before, table = self.before, self.before._unfolded
        others = [axis for axis in range(len(before.shape)) if axis != before.axis]
        combinations, place = Combinations.of(self.index, others, before.shape)
        speaker = self._known(self.index[:, before.axis], table.number)
        spoken = speaker != UNKNOWN
        who, column = speaker[spoken].unique(return_inverse=True)  # only they are heard
        cells = place[spoken], column
        values = self.residuals.new_zeros(len(combinations), len(who))
        ones = torch.zeros_like(values)
        values[cells], ones[cells] = self.residuals[spoken], 1.0
        at, member = combinations.find(index), index[:, before.axis]
        some = ((at != UNKNOWN) & (member >= 0) & (member < table.members)).nonzero().squeeze(1)
        members, column = member[some].unique(return_inverse=True)
        said = self.residuals.new_empty(len(combinations), len(members), SAID)
        kept = before._kept
        for part in before._parts(len(members)):
            chosen = members[part]
            likeness = (
                before._likeness(chosen)[:, who] if kept is None else kept[:, who][:, :, chosen]
            )
            said[:, part] = before._told(ones, values, likeness)
        return some, said[at[some], column]

    @staticmethod
    def _known(members: Tensor, number: Tensor) -> Tensor:
        inside = (members >= 0) & (members < len(number))
        return torch.where(inside, number[members.clamp(0, len(number) - 1)], UNKNOWN)
