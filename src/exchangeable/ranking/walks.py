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

import torch
from torch import Tensor

from exchangeable.ranking.positives import Positives, Rows
from exchangeable.runtime.cache import cached_property


@dataclass(frozen=True, eq=False)
class WalkGroup:
    """Walks of several exponents over one table, which are all found in two products."""

    positives: Positives
    exponents: list[tuple[float, float]]  # a and b of each

    def walks(self, own_items: float, users: float) -> Walks:
        """Return the walks with these exponents, before items are scaled."""
        if (own_items, users) not in self.exponents:
            self.exponents.append((own_items, users))
            self.__dict__.pop("_factors", None)
        return Walks(self, own_items, users)

    def scores(self, rows: Rows) -> dict[tuple[float, float], Tensor]:
        """Score all items for rows: (M, B) by exponents."""
        if self not in rows.found:
            rows.found[self] = self._score(rows)
        scores: dict[tuple[float, float], Tensor] = rows.found[self]
        return scores

    @cached_property
    def _factors(self) -> tuple[dict[float, Tensor], list[Tensor]]:
        """Factors of items (M, 1) by first exponents, and of users (N, 1) by pairs of them."""
        per_item, per_user = (
            counts.clamp(min=1)[:, None]
            for counts in (self.positives.per_item, self.positives.per_user)
        )
        first = sorted({own_items for own_items, _ in self.exponents})
        of_items = {power: per_item**-power for power in first}
        return of_items, [per_user**-power for _, power in self.exponents]

    def _score(self, rows: Rows) -> dict[tuple[float, float], Tensor]:
        of_items, of_users = self._factors
        starts = torch.cat([factors * rows.columns for factors in of_items.values()], dim=1)
        parts = (self.positives.by_user @ starts).chunk(len(of_items), dim=1)
        reached = dict(zip(of_items, parts, strict=True))
        pairs = zip(self.exponents, of_users, strict=True)
        on = torch.cat([factors * reached[first] for (first, _), factors in pairs], dim=1)
        found = (self.positives.by_item @ on).chunk(len(self.exponents), dim=1)
        return dict(zip(self.exponents, found, strict=True))


@dataclass(frozen=True, eq=False)
class Walks:
    """Walks with the exponents a and b."""

    group: WalkGroup
    own_items: float
    users: float

    def score(self, rows: Rows) -> Tensor:
        return self.group.scores(rows)[self.own_items, self.users]
