"""Synthetic tables of positives to pretrain a ranker on.

Which items a user has is drawn from exposure and interest: each item has a popularity, each user an
activity, and the interest of a user in an item is a sum of some of

    vectors of taste, of few or many factors, with nested families of members
    places: users and items lie in towns, and interest falls with distance
    groups that users belong to, such as genres
    series, of whose items a user has many or none

A user's items are those with the highest sums of all this and noise (Gumbel), as many as its
activity says. Sizes, shapes and strengths of all parts are drawn as well, widely, up to tens of
thousands of members, so that real tables lie within.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exchangeable.pretraining.interactions import log_uniform

Interest = Callable[[Tensor], Tensor]
"""The interest of some users (B,) in all items: (B, M)."""

USERS_PER_CHUNK = 1024
TEST_SHARE = 0.2


@dataclass(frozen=True)
class DrawSizes:
    """Bounds of the size of drawn tables."""

    members: tuple[int, int] = (200, 6_000)
    items_per_user: tuple[float, float] = (3.0, 120.0)
    most_cells: int = 600_000
    cores: tuple[int, ...] = (1, 1, 1, 2, 5)
    """Members with fewer cells are left out."""


SMALL = DrawSizes()
LARGE = DrawSizes((6_000, 45_000), (6.0, 60.0), 1_200_000, (1, 2, 5, 10))


@dataclass(frozen=True, eq=False)
class PositiveDraw:
    """A drawn table, with some positives of every user held out."""

    train: Tensor  # (E, 2)
    test: Tensor  # (T, 2)
    shape: tuple[int, int]


def draw_positives(
    seed: int, sizes: DrawSizes = SMALL, device: torch.device | str = "cpu"
) -> PositiveDraw:
    """Draw a table; the same one for the same seed and device."""
    draw = _Draw(np.random.default_rng(seed), torch.device(device))
    rng = draw.rng
    users = int(log_uniform(rng, *sizes.members))
    low, high = sizes.members
    items = int(log_uniform(rng, max(low, users / 8), min(high, users * 8)))
    popularity, parts = draw.popularity(items), draw.interests(users, items)
    counts = draw.activity(users, items, sizes)
    pairs = draw.choose(counts, popularity, parts)
    pairs = _keep_core(pairs, int(rng.choice(sizes.cores)))
    return _hold_out(pairs, draw)


class _Draw:
    """Random draws of one table."""

    def __init__(self, rng: np.random.Generator, device: torch.device) -> None:
        self.rng = rng
        self.device = device
        self.generator = torch.Generator(device=device).manual_seed(int(rng.integers(2**62)))

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self.device, generator=self.generator)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, device=self.device, generator=self.generator)

    def exponential(self, size: int) -> Tensor:
        return -self.uniform(size).clamp(min=1e-9).log()

    def whole(self, limit: int, *shape: int) -> Tensor:
        return torch.randint(limit, shape, device=self.device, generator=self.generator)

    def chance(self, of: float) -> bool:
        return bool(self.rng.random() < of)

    def popularity(self, items: int) -> Tensor:
        """Popularity of items: (M,), normal or by Zipf's law, with some favourites."""
        rng = self.rng
        if self.chance(0.6):
            popularity = self.normal(items) * rng.uniform(0.3, 1.6)
        else:
            place = torch.randperm(items, device=self.device, generator=self.generator)
            popularity = -rng.uniform(0.4, 1.2) * (place + 1 + rng.uniform(0, 30)).log()
        if self.chance(0.3):
            popularity = popularity + self.exponential(items) * rng.uniform(0, 1)
        return popularity

    def activity(self, users: int, items: int, sizes: DrawSizes) -> Tensor:
        """Numbers of items of users: (N,), alike or heavy-tailed."""
        rng = self.rng
        usual = log_uniform(rng, *sizes.items_per_user)
        spread = 0.0 if self.chance(0.3) else rng.uniform(0.3, 1.3)
        least = int(rng.choice([1, 2, 3, 5, 10]))
        counts = (usual * (spread * self.normal(users)).exp()).round()
        counts = counts.clamp(least, max(3, items // 3))
        total = float(counts.sum())
        if total > sizes.most_cells:
            counts = (counts * (sizes.most_cells / total)).floor().clamp(min=2)
        return counts.long()

    def interests(self, users: int, items: int) -> list[Interest]:
        parts = [self.tastes(users, items)]
        if self.chance(0.45):
            parts.append(self.places(users, items))
        if self.chance(0.4):
            parts.append(self.groups(users, items))
        if self.chance(0.5):
            parts.append(self.series(items))
        return parts

    def tastes(self, users: int, items: int) -> Interest:
        rng = self.rng
        factors = int(log_uniform(rng, 3, 64))
        decay = torch.exp(-rng.uniform(0, 0.25) * torch.arange(factors, device=self.device))
        user_vectors, item_vectors = (
            self.families(size, factors) if self.chance(0.6) else self.normal(size, factors)
            for size in (users, items)
        )
        user_vectors = user_vectors * decay
        spread = float((user_vectors[:500] @ item_vectors[:500].T).std())
        user_vectors *= rng.uniform(0.4, 2.5) / max(spread, 1e-6)
        positive = self.chance(0.3)

        def interest(some: Tensor) -> Tensor:
            product = user_vectors[some] @ item_vectors.T
            return product.relu_() * 1.5 if positive else product

        return interest

    def families(self, size: int, factors: int) -> Tensor:
        """Vectors of members of nested families: (size, factors)."""
        vectors, left = torch.zeros(size, factors, device=self.device), 1.0
        for _ in range(int(self.rng.integers(1, 4))):
            count = max(2, int(log_uniform(self.rng, 4, max(5, size / 3))))
            share = self.rng.uniform(0.2, 0.7) * left
            left -= share
            vectors += math.sqrt(share) * self.normal(count, factors)[self.whole(count, size)]
        return vectors + math.sqrt(left) * self.normal(size, factors)

    def places(self, users: int, items: int) -> Interest:
        rng = self.rng
        towns = max(2, int(log_uniform(rng, 2, max(3, items / 20))))
        centres, sizes = self.uniform(towns, 2), self.exponential(towns)
        spread = log_uniform(rng, 0.003, 0.1)

        def placed(count: int, around: float) -> Tensor:
            chosen = torch.multinomial(sizes, count, replacement=True, generator=self.generator)
            return centres[chosen] + self.normal(count, 2) * around

        homes = [placed(users, spread * rng.uniform(0.5, 2))]
        if self.chance(0.4):  # where they work, say
            homes.append(placed(users, spread))
        there, slope, near = (
            placed(items, spread),
            rng.uniform(0.6, 2.2),
            spread * rng.uniform(0.1, 1),
        )

        def interest(some: Tensor) -> Tensor:
            distance = torch.cdist(homes[0][some], there)
            for other in homes[1:]:
                distance = torch.minimum(distance, torch.cdist(other[some], there))
            return -slope * (distance + near).log()

        return interest

    def groups(self, users: int, items: int) -> Interest:
        count = int(log_uniform(self.rng, 8, max(10, items / 8)))
        group = self.whole(count, items)
        belongs = torch.zeros(users, count, device=self.device)
        belongs.scatter_(1, self.whole(count, users, int(self.rng.integers(1, 5))), 1.0)
        belongs *= self.rng.uniform(0.8, 4.0)
        return lambda some: belongs[some][:, group]

    def series(self, items: int) -> Interest:
        count = max(2, int(items / log_uniform(self.rng, 2, 15)))
        group, strength = self.whole(count, items), self.rng.uniform(0.3, 1.8)
        return lambda some: strength * self.normal(len(some), count)[:, group]

    def choose(self, counts: Tensor, popularity: Tensor, parts: list[Interest]) -> Tensor:
        """Choose the items of all users: (E, 2)."""
        most = min(int(counts.max()), len(popularity))
        noise, crowd = self.rng.uniform(0.7, 1.3), self.rng.uniform(0, 0.5)
        chosen = []
        for some in torch.arange(len(counts), device=self.device).split(USERS_PER_CHUNK):
            total = popularity * (1 + crowd * self.normal(len(some), 1))
            for part in parts:
                total = total + part(some)
            gumbel = -(-self.uniform(*total.shape).clamp(1e-9, 1 - 1e-7).log()).log()
            top = (total + noise * gumbel).topk(most, dim=1).indices
            taken = torch.arange(most, device=self.device) < counts[some][:, None]
            chosen.append(torch.stack([some[:, None].expand_as(top)[taken], top[taken]], dim=1))
        return torch.cat(chosen)


def _keep_core(pairs: Tensor, least: int) -> Tensor:
    """Leave out items with fewer users than that, and users without items, some times over."""
    for _ in range(3):
        users, items = (column.bincount()[column] for column in pairs.T)
        pairs = pairs[(items >= least) & (users >= 1)]
    return pairs


def _hold_out(pairs: Tensor, draw: _Draw) -> PositiveDraw:
    """Hold out a share of the positives; members without others left are no members."""
    held = draw.uniform(len(pairs)) < TEST_SHARE
    train, test = pairs[~held], pairs[held]
    columns, shape = [], []
    for axis in (0, 1):
        members, numbers = train[:, axis].unique(return_inverse=True)
        place = torch.searchsorted(members, test[:, axis].contiguous()).clamp(max=len(members) - 1)
        known = members[place] == test[:, axis]
        columns.append((numbers, torch.where(known, place, -1)))
        shape.append(len(members))
    train = torch.stack([columns[0][0], columns[1][0]], dim=1)
    test = torch.stack([columns[0][1], columns[1][1]], dim=1)
    return PositiveDraw(train, test[(test >= 0).all(dim=1)], (shape[0], shape[1]))
