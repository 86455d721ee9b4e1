"""The stack: channels weighed by how well they find hidden positives of the same table.

Some positives are hidden, all rankers are fitted to the others, and the weights are those of a
softmax over the candidates of each user, found by Newton's method and drawn to small equal ones:

    min  - sum log p(hidden item | user) + (r / 2) |w - v|^2,   p = softmax(z w)

Candidates are the items that come first by the weights so far. A softmax over all items does less
well at the top of the list, which is what people see.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exchangeable.ranking.chances import HIDDEN
from exchangeable.ranking.channels import (
    FORMS,
    Channels,
    stacked_forms,
    weigh_forms,
)
from exchangeable.ranking.positives import Positives, Rows

USUAL_TOTAL = 1.8
"""Sum of the equal weights of compressed channels, to which weights are drawn; others are drawn
to 0."""

RIDGE = 20.0
"""Strength of the pull to the usual weights where many positives were hidden."""
STEPS = 6
MAX_STEP = 2.0
"""Length of a step of Newton's method at most."""

MAX_USERS, MAX_SHARE = 700, 1 / 3
"""Users some of whose items are hidden: so many, and this share of all, at most."""

MIN_ITEMS = 3
"""Items of a user, some of which may be hidden."""

POOL = 1000
"""Items of a user that candidates are chosen from, the first by the usual weights."""
CANDIDATES = 100
"""Items of a user that weights are fitted to."""

HIDDEN_BY_HALF = 200
"""Hidden positives of a table with which its weights are drawn twice as strongly to the usual ones
as where many were hidden."""

SHARES, CAUTION, _MIN_SHARE = 11, 2.0, 0.02
"""Usual weights that are tried between popularity and all rankers, and a prior for popularity."""

FEW_POWER, MIN_USUAL_ITEMS = 0.4, 2.0
"""How fast the weights for users with a single item lose theirs, with the number of items. With 1
new users of ML-100K with two items do worse than with one."""
FEW_TOTAL = 0.1
"""Sum of the weights of other rankers than popularity to which those for a single item are drawn,
beside 1 for popularity: one item tells little."""

GAIN_DEPTH = 100
"""Places of a list that count for the gain of a ranker."""

ENTRIES_PER_BLOCK = {"cpu": 1 << 20, "cuda": 1 << 23}
"""Scores of all items for as many users as have so many are found together. On a processor they
should stay in its cache."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Candidates of Q users, and which of them were hidden positives."""

    users: Tensor  # (Q,)
    items: Tensor  # (Q, K)
    z: Tensor  # (Q, K, C), channels
    hidden: Tensor  # (Q, K), 1 where hidden
    counts: Tensor  # (Q,), all hidden positives of the user

    def leading(self, weights: Tensor, count: int) -> Examples:
        """Keep the candidates that come first by weights of the channels."""
        return self.take(top_items(self.z @ weights, count))

    def take(self, positions: Tensor) -> Examples:
        """Keep the candidates at positions (Q, K')."""
        z = self.z.gather(1, positions[:, :, None].expand(-1, -1, self.z.shape[2]))
        items, hidden = self.items.gather(1, positions), self.hidden.gather(1, positions)
        return replace(self, items=items, z=z, hidden=hidden)

    def of_users(self, which: Tensor) -> Examples:
        """Keep some of the users, by position or mask."""
        parts = self.users, self.items, self.z, self.hidden, self.counts
        return Examples(*(part[which] for part in parts))


def find_examples(
    channels: Channels,
    kept: Positives,
    hidden: Positives,
    users: Tensor,
    usual: Tensor,
    *,
    single_items: bool = False,
) -> Examples:
    """Find a pool of candidates of each user by the usual weights (C,).

    With ``single_items`` the channels are those that users would have with one of their items
    alone; candidates are what they do not have, all the same.
    """
    found = []
    for some in users.split(users_per_block(kept)):
        rows = kept.rows(some)
        deviations = channels.deviations(kept.single_items(some) if single_items else rows)
        items = top_items(stack_scores(deviations, usual, rows).T, POOL)
        z = candidate_channels(deviations, items)
        wanted = hidden.rows(some)
        hits = (wanted.columns.T.gather(1, items) > 0).to(z)
        found.append((some, items, z, hits, wanted.counts))
    return Examples(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def share_of_few(counts: Tensor, usual: float) -> Tensor:
    """Return how far users with so many items (B,) are ranked as those with a single one: (B,).

    ``usual`` is the number of items of those that the other weights were fitted to, at which
    the share is 0.
    """
    last = max(usual, MIN_USUAL_ITEMS) ** -FEW_POWER
    return ((counts.clamp(min=1) ** -FEW_POWER - last) / (1 - last)).clamp(min=0)


def ranker_gains(pool: Examples) -> Tensor:
    """Return the discounted gain of each ranker alone, for each user: (R, Q)."""
    return torch.stack([gains_of(plain, pool) for plain in pool.z[:, :, 1::FORMS].unbind(dim=2)])


def gains_of(scores: Tensor, pool: Examples) -> Tensor:
    """Return the mean discount of each user's hidden positives by scores of its pool: (Q,)."""
    top = top_items(scores, GAIN_DEPTH)
    discounts = 1 / torch.arange(2, 2 + top.shape[1], device=top.device).log2()
    return (pool.hidden.gather(1, top) @ discounts) / pool.counts.clamp(min=1)


def users_per_block(positives: Positives) -> int:
    """Return how many users are scored together."""
    return max(1, ENTRIES_PER_BLOCK[positives.per_item.device.type] // positives.shape[1])


def candidate_channels(deviations: list[Tensor], items: Tensor) -> Tensor:
    """Return the channels of candidates (B, K): (B, K, C)."""
    at = items.T
    return stacked_forms([each.gather(0, at).T for each in deviations])


def stack_scores(deviations: list[Tensor], weights: Tensor, rows: Rows) -> Tensor:
    """Return the sum of all channels times their weights, -inf for what a row has: (M, B)."""
    scores = torch.zeros_like(deviations[0])
    for each, own in zip(deviations, weights.view(-1, FORMS).tolist(), strict=True):
        scores += weigh_forms(each, *own)
    return scores.masked_fill_(rows.seen, -torch.inf)


def top_items(scores: Tensor, count: int) -> Tensor:
    """Return the positions of the highest scores, best first: (B, M) -> (B, count)."""
    return scores.topk(min(count, scores.shape[1]), dim=1).indices


def hide(positives: Positives) -> tuple[Positives, Positives, Tensor]:
    """Divide positives into kept and hidden ones; also return the users with hidden ones.

    They are drawn by digits that do not depend on how members are numbered.
    """
    user_digits, item_digits = positives.digits
    table = positives.by_user
    items = table.col_indices().long()
    users = torch.arange(positives.shape[0], device=items.device).repeat_interleave(
        table.crow_indices().diff().long()
    )
    may_hide = positives.per_user >= MIN_ITEMS
    order = torch.where(may_hide, user_digits, 2.0).argsort(stable=True)
    chosen = torch.zeros_like(may_hide)
    chosen[order[: min(MAX_USERS, int(MAX_SHARE * int(may_hide.sum())))]] = True
    # Products, not sums: with those every user would hide items of like digits together.
    drawn = ((user_digits[users] + 1) * (item_digits[items] + 1) * 997.0) % 1 < HIDDEN
    mask = chosen[users] & drawn
    # Whoever has all items hidden has none to be ranked by.
    left = users[~mask].bincount(minlength=positives.shape[0])
    mask &= left[users] > 0
    index, values = torch.stack([users, items], dim=1), table.values()
    parts = [Positives.of(index[part], positives.shape, values[part]) for part in (~mask, mask)]
    found = users[mask].unique()
    return parts[0], parts[1], found[user_digits[found].argsort(stable=True)]


def usual_weights(channels: Channels) -> Tensor:
    """Return the weights of channels that nothing is known about: (C,)."""
    count = len(channels.rankers)
    weights = torch.zeros(count, FORMS, device=channels.rankers[0].factors.device)
    weights[:, 0] = USUAL_TOTAL / count
    return weights.flatten()


def choose_usual(channels: Channels, pool: Examples) -> Tensor:
    """Choose the weights that those of a table are drawn to, between two usual ones: (C,).

    With popularity alone or all rankers alike; one number between them is found from few hidden
    positives.
    """
    ends = usual_few_weights(channels), usual_weights(channels)
    candidates = pool.leading((ends[0] + ends[1]) / 2, CANDIDATES)
    counts = candidates.hidden.sum(dim=1)
    shares = torch.linspace(0, 1, SHARES, device=counts.device)
    fits = []
    for share in shares:
        scores = candidates.z @ torch.lerp(*ends, share)
        likely = (candidates.hidden * scores).sum() - counts @ scores.logsumexp(dim=1)
        fits.append(likely + CAUTION * torch.log1p(-share * (1 - _MIN_SHARE)))
    return torch.lerp(*ends, shares[torch.stack(fits).argmax()])


def usual_few_weights(channels: Channels) -> Tensor:
    """Return the weights of channels for users with a single item, on any table: (C,).

    The first ranker is popularity.
    """
    count = len(channels.rankers)
    weights = torch.zeros(count, FORMS, device=channels.rankers[0].factors.device)
    weights[1:, 0] = FEW_TOTAL / max(1, count - 1)
    weights[0, 0] = 1.0
    return weights.flatten()


def fit_stack(pool: Examples, usual: Tensor) -> Tensor:
    """Fit the weights of channels to hidden positives, drawn to the usual ones: (C,)."""
    weights, ridge = usual, RIDGE * (1 + HIDDEN_BY_HALF / max(1.0, float(pool.counts.sum())))
    for _ in range(2):  # candidates by the usual weights, and then by those found
        candidates = pool.leading(weights, CANDIDATES)
        weights = fit_softmax(candidates.z, candidates.hidden, usual, ridge)
    return weights


def fit_softmax(z: Tensor, hidden: Tensor, usual: Tensor, ridge: float) -> Tensor:
    """Fit weights (C,) to channels (Q, K, C) of candidates and whether they were hidden (Q, K)."""
    weights, counts = usual.clone(), hidden.sum(dim=1)
    wanted = torch.einsum("qk,qkc->c", hidden, z)
    for _ in range(STEPS):
        chance = (z @ weights).softmax(dim=1)
        mean = torch.einsum("qk,qkc->qc", chance, z)
        slope = ridge * (weights - usual) + counts @ mean - wanted
        rooted = z * (chance * counts[:, None]).sqrt()[:, :, None]
        flat = rooted.flatten(0, 1)
        curvature = flat.T @ flat - (counts[:, None] * mean).T @ mean
        curvature.diagonal().add_(ridge)
        step = torch.linalg.solve(curvature, slope)
        weights = weights - step * min(1.0, MAX_STEP / float(step.norm().clamp(min=1e-9)))
    return weights
