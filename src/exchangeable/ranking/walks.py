"""Walks: from a user to its items, to others that have them, and on to their items.

A score is the weight of all walks of three steps,

    x D^-a A' E^-b A D^-c

with x the items of a user, A the positives, D the numbers of users of each item and E the numbers
of items of each user. The exponents make it cosine of items, cosine of users, random walks or a
graph filter. No matrix of members by members is made, and items are never scored by themselves,
since a user's own items are not among the candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from exchangeable.ranking.positives import Positives


@dataclass(frozen=True)
class Walks:
    """Exponents of the counts along the way."""

    own_items: float
    users: float
    items: float

    def fit(self, positives: Positives) -> FittedWalks:
        per_item, per_user = (n.clamp(min=1) for n in (positives.per_item, positives.per_user))
        scales = per_item**-self.own_items, per_user**-self.users, per_item**-self.items
        return FittedWalks(positives, *(scale[:, None] for scale in scales))


@dataclass(frozen=True, eq=False)
class FittedWalks:
    """Walks over a table of positives."""

    positives: Positives
    own_items: Tensor  # (M, 1)
    users: Tensor  # (N, 1)
    items: Tensor  # (M, 1)

    def score(self, rows: Tensor) -> Tensor:
        """Score all items for rows of positives: (M, B) -> (M, B)."""
        reached = self.positives.by_user @ (self.own_items * rows)
        return self.items * (self.positives.by_item @ (self.users * reached))
