"""The presence of cells: how many each member has, and how far to believe estimates of none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from exchangeable.prior.unseen import share_of_newcomers
from exchangeable.runtime.cache import cached_property


@dataclass(frozen=True, eq=False)
class Presence:
    """How many cells each member of an axis has."""

    sizes: Tensor  # (N + 1,); the last is unknown and has none
    newcomers: float
    """How likely one without cells is one that newly comes."""

    @cached_property
    def has_cells(self) -> Tensor:
        """Which members have cells: (N + 1,) bool."""
        return self.sizes > 0

    @cached_property
    def belief(self) -> Tensor:
        """How far to believe the factors of each member: (N + 1,)."""
        return self.has_cells.double() * self.newcomers + (1 - self.newcomers)

    @classmethod
    def by_axis(cls, index: Tensor, shape: tuple[int, ...]) -> tuple[Presence, ...]:
        """Find the members of every axis that have cells (E, D)."""
        pairs = zip(index.T, shape, strict=True)
        return cls.of_sizes([column.bincount(minlength=size) for column, size in pairs])

    @classmethod
    def of_sizes(cls, sizes: Sequence[Tensor]) -> tuple[Presence, ...]:
        """Find the members of every axis that have cells by their numbers of these, (N,) each."""
        return tuple(cls(pad(each, (0, 1)), share_of_newcomers(each)) for each in sizes)

    def for_new_members(self, member: Tensor, count: int) -> Presence:
        """Return the same axis with ``count`` new members only, those of the cells (E,)."""
        return Presence(member.bincount(minlength=count + 1), self.newcomers)


def judge_members(
    presence: Sequence[Presence], described: Sequence[bool], index: Tensor
) -> tuple[Tensor, Tensor | None]:
    """How far to believe the factors of each cell, and whether features stand for cells: (Q,).

    Factors of members without cells and features are believed as far as these are no newcomers.
    ``described`` tells which axes have features; the second is None where none has.
    """
    believed, by_features = None, None
    for axis, each in enumerate(presence):
        member = index[:, axis]
        if described[axis]:
            empty = ~each.has_cells[member]
            by_features = empty if by_features is None else by_features | empty
        else:
            trust = each.belief[member]
            believed = trust if believed is None else believed * trust
    if believed is None:
        believed = torch.ones(len(index), dtype=torch.float64, device=index.device)
    if by_features is not None:
        believed = torch.where(by_features, 1.0, believed)
    return believed, by_features


def find_unseen(presence: Sequence[Presence], index: Tensor) -> Tensor:
    """Tell which members of queried cells have no cells: (Q, D) bool."""
    columns = [~each.has_cells[index[:, axis]] for axis, each in enumerate(presence)]
    return torch.stack(columns, dim=1)


def count_cells(presence: Sequence[Presence], index: Tensor) -> Tensor:
    """Count the cells of the members of queried cells: (Q, D)."""
    counts = torch.zeros_like(index)  # of a table without cells nothing is known
    for axis, each in enumerate(presence):
        counts[:, axis] = each.sizes[index[:, axis]]
    return counts
