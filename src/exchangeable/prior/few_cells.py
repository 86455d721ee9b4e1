"""Members with few cells: held-out cells as they are estimated from few of their member's cells.

Held-out cells are mostly of members with many others, but whoever is new has few. What estimates
are worth then is found without a further fit: members of held-out cells are taken for new ones that
show 1, 2, 4, ... of their cells, and are solved from these alone. Their vectors, and what they are
compared by, come from these cells; all other members stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from exchangeable.prior.closed_form import ClosedForm
from exchangeable.prior.estimates import Estimates
from exchangeable.prior.side_information import SideInformation
from exchangeable.prior.trust import ENOUGH, Trial

MAX_TRIED = 1000
"""Held-out cells whose members are tried with few cells, for each axis."""


@dataclass(frozen=True, eq=False)
class FewCells:
    """Held-out cells of members of one axis, each shown with few of its other cells."""

    axis: int
    fitted: ClosedForm
    """The models with these members alone on the axis."""
    shown: Tensor  # (S,), positions of the cells that are shown
    cells: Tensor  # (H,), positions of the held-out cells
    index: Tensor  # (H, D), these, with the members' numbers among those that are tried
    fold: Tensor  # (H,)
    estimates: Estimates

    @property
    def count(self) -> int:
        """The number of members."""
        return self.fitted.biases.shape[self.axis]

    def trial(self, values: Tensor) -> Trial:
        """Return the cells with their truth among the values (E,) of all cells."""
        return Trial.of(values[self.cells], self.estimates, self.fold)


@dataclass(frozen=True, eq=False)
class HeldOutCells:
    """Cells of a table, some of which ``fitted`` has not read."""

    fitted: ClosedForm
    index: Tensor  # (E, D), all cells
    values: Tensor  # (E,)
    side: SideInformation
    mask: Tensor  # (E,) bool, those that were held out
    cells: Tensor  # (H,), positions of some of these
    fold: Tensor  # (H,)
    shares_at: Callable[[Tensor], Tensor]
    """Gives pseudo-random numbers in [0, 1) of cells by position, whatever members are called."""

    def try_few(self, axis: int) -> FewCells | None:
        """Estimate held-out cells, the members of an axis by few of their cells; None if none."""
        shares = self.shares_at(self.cells)
        chosen = shares.argsort(stable=True)[:MAX_TRIED]
        cells, shares = self.cells[chosen], shares[chosen]
        member, size = self.index[cells, axis], self.fitted.biases.shape[axis]
        number = torch.full((size,), -1, device=member.device)
        number[member] = 0
        read = ((number[self.index[:, axis]] == 0) & ~self.mask).nonzero().squeeze(1)
        sizes = self.index[read, axis].bincount(minlength=size)
        number[sizes < 2] = -1
        tried = (number == 0).nonzero().squeeze(1)
        if not len(tried):
            return None
        number[tried] = torch.arange(len(tried), device=member.device)
        own = torch.ones(size, dtype=shares.dtype, device=shares.device)
        own = own.scatter_reduce(0, member, shares, "amin")[tried]
        levels = (sizes[tried].clamp(max=ENOUGH) - 1).double().log2().floor() + 1
        shown_each = (2 ** ((1e4 * own % 1).square() * levels).floor()).long()
        shown = self._draw(read[number[self.index[read, axis]] >= 0], axis, number, shown_each)
        index, side = self.index[shown].clone(), self.side.take(shown)
        index[:, axis] = number[index[:, axis]]
        fitted = self.fitted.for_new_members(
            axis, index, self.values[shown], side.of_members(axis, tried), count=len(tried)
        )
        kept = number[member] >= 0
        cells, asked = cells[kept], self.index[cells[kept]].clone()
        asked[:, axis] = number[asked[:, axis]]
        times = None if self.side.times is None else self.side.times[cells]
        return FewCells(
            axis,
            fitted,
            shown,
            cells,
            asked,
            self.fold[chosen][kept],
            fitted.estimates(asked, times),
        )

    def _draw(self, read: Tensor, axis: int, number: Tensor, shown_each: Tensor) -> Tensor:
        """Draw as many of each member's cells as are shown, of those at the positions ``read``."""
        shuffled = read[self.shares_at(read).argsort(stable=True)]
        member = number[self.index[shuffled, axis]]
        by_member = member.argsort(stable=True)
        shuffled, member = shuffled[by_member], member[by_member]
        ends = member.bincount(minlength=len(shown_each)).cumsum(0)
        begins = torch.cat([ends.new_zeros(1), ends[:-1]])
        place = torch.arange(len(member), device=member.device) - begins[member]
        return shuffled[place < shown_each[member]]
