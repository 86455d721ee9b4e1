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

from exchangeable.ranking.positives import Positives, Rows


@dataclass(frozen=True, eq=False)
class Walks:
    """Walks over a table of positives, before items are scaled."""

    positives: Positives
    own_items: Tensor  # (M, 1), factors of a user's items
    users: Tensor  # (N, 1), factors of the users on the way

    @classmethod
    def of(cls, positives: Positives, own_items: float, users: float) -> Walks:
        """Prepare walks with the exponents a and b."""
        per_item, per_user = (n.clamp(min=1) for n in (positives.per_item, positives.per_user))
        return cls(positives, (per_item**-own_items)[:, None], (per_user**-users)[:, None])

    def score(self, rows: Rows) -> Tensor:
        reached = self.positives.by_user @ (self.own_items * rows.columns)
        return self.positives.by_item @ (self.users * reached)
