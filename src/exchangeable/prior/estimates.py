"""What closed-form models estimate of cells, and the weights that suit most tables."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Estimates:
    """What closed-form models estimate of cells."""

    base: Tensor  # (Q,), means of the biases
    drift: Tensor  # (Q,)
    factors: Tensor  # (Q, 2), fine and coarse, relative to the base
    variances: Tensor  # (Q, 2), of biases and of the fine factors; (Q, 0) beside means alone
    similar: Tensor  # (Q, D, 4), means and certainties by similar members of each axis
    nearby: Tensor  # (Q, D, 2), by cells of the same member that are near in time
    counts: Tensor  # (Q, D), cells of the members

    @property
    def columns(self) -> Tensor:
        """All estimates relative to the base, to be weighted: (Q, 3 + 4 D)."""
        similar = self.similar[:, :, ::2].flatten(1).to(self.base)
        nearby = self.nearby.flatten(1)
        return torch.cat([self.drift[:, None], self.factors, similar, nearby], dim=1)

    def weighted(self, weights: Tensor) -> Tensor:
        """Return the sum of the columns times weights (3 + 4 D,), without a copy of all: (Q,)."""
        by_axis = 2 * self.similar.shape[1]
        drift, factors, similar, nearby = weights.split_with_sizes([1, 2, by_axis, by_axis])
        total = self.factors @ factors
        for column, weight in enumerate(similar.tolist()):  # added in 64 bits, column by column
            total.add_(self.similar[:, column // 2, 2 * (column % 2)], alpha=weight)
        if self.drift.stride(0):  # otherwise it is one number for all cells, 0
            total += self.drift * drift
        if self.nearby.stride(0):
            total += self.nearby.flatten(1) @ nearby
        return total

    def take(self, cells: Tensor) -> Estimates:
        """Select cells by position."""
        return Estimates(*(getattr(self, each.name)[cells] for each in fields(self)))

    def only_near(self, axes: tuple[int, ...]) -> Estimates:
        """Return the same without what cells near in time say of other axes' members."""
        kept = torch.zeros_like(self.nearby)
        kept[:, axes] = self.nearby[:, axes]
        return replace(self, nearby=kept)


USUAL_NEARBY = (0.2, 0.3)
"""Usual weights of cells at the same time, and of those in a window."""


def usual_weights(order: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights of ``Estimates.columns`` that suit most tables, and how far others are."""
    weights = [1.0, 0.5, 0.5, *[0.2, 0.3] * order, *USUAL_NEARBY * order]
    deviations = [0.25] * 3 + [0.4] * 2 * order + [0.25] * 2 * order
    return like.new_tensor(weights), like.new_tensor(deviations)


def usual_changes(weights: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """Return what one cell adds to weights (C,) on most tables, and how far others are: (C,) each.

    Half of what factors say is left. Similar members are weighed anew: those of other axes give
    the mean of a member's own residuals then, which is next to nothing where it has many cells, so
    that its weight there says nothing.
    """
    similar = weights.new_tensor([0.2, 0.1] * order)
    drift, factors, before, nearby = weights.split_with_sizes([1, 2, 2 * order, 2 * order])
    changes = [0 * drift, -factors / 2, similar - before, 0 * nearby]
    deviations = [0.1, 0.25, 0.25, *[0.3, 0.15] * order, *[0.1] * 2 * order]
    return torch.cat(changes), weights.new_tensor(deviations)
