"""Members of an axis that are solved from all of their cells, while all others stay as they are."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from exchangeable.sums.member_sums import MemberSums


class SolvedMembers(NamedTuple):
    """Some members of an axis, which are solved from all of their cells."""

    members: Tensor  # (M,), ascending
    sums: MemberSums
    cells: Tensor  # positions of their cells among all, ascending

    def of_members(self, some: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions of the cells of some of the members (M,), a mask, member by member.

        And where each of these members begins: (M' + 1,).
        """
        sizes = self.sums.sizes
        kept = some.repeat_interleave(sizes)
        ends = sizes[some].cumsum(0)
        (part,) = self.sums.parts
        return part.take(self.cells)[kept], torch.cat([ends.new_zeros(1), ends])

    @classmethod
    def new(cls, index: Tensor, axis: int) -> SolvedMembers:
        """Return the new members of an axis that have some of the cells (E, D), all theirs."""
        members, column = index[:, axis].unique(return_inverse=True)
        columns = [column if a == axis else index[:, a] for a in range(index.shape[1])]
        sums = MemberSums.of(torch.stack(columns, dim=1), axis, len(members))
        return cls(members, sums, torch.arange(len(index), device=index.device))

    @classmethod
    def by_axis(cls, index: Tensor, changed: Tensor) -> list[SolvedMembers]:
        """Find the members of every axis with cells at the positions ``changed`` of (E, D)."""
        found = []
        for axis in range(index.shape[1]):
            members = index[changed, axis].unique()
            found.append(cls(members, *MemberSums.of_members(index, axis, members)))
        return found
