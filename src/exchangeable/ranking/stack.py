"""The stack: channels weighed by how well they find hidden positives of the same table.

Some positives are hidden, all rankers are fitted to the others, and the weights are those of a
softmax over each user's unseen items, found by Newton's method and drawn to small equal ones:

    min  - sum log p(hidden item | user) + (r / 2) |w - v|^2,   p = softmax(z w)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from exchangeable.ranking.channels import FORMS, NAMES, Channels
from exchangeable.ranking.positives import Positives

USUAL_WEIGHT = 0.1
"""Weight of each compressed channel, to which weights are drawn; others are drawn to 0."""

RIDGE = 20.0
STEPS = 6
MAX_STEP = 2.0
"""Length of a step of Newton's method at most."""

HIDDEN = 0.2
"""Share of the items of a user that are hidden, where some are."""

MAX_USERS = 300
"""Users whose hidden items count."""

MIN_ITEMS = 3
"""Items of a user, some of which may be hidden."""

USERS_PER_CHUNK = 64


@dataclass(frozen=True, eq=False)
class Stack:
    """Channels of a table, and their weights."""

    channels: Channels
    weights: Tensor  # (C,)

    @classmethod
    def fit(cls, positives: Positives) -> Stack:
        """Fit the weights with some positives hidden, and then the channels to all."""
        kept, hidden, users = hide(positives)
        weights = usual_weights(positives)
        if len(users):
            channels = Channels.fit(kept)
            chunks = []
            for some in users.split(USERS_PER_CHUNK):
                z, seen = channels.of(kept.rows(some))
                chunks.append((z, seen, hidden.rows(some).T))
            weights = fit_weights(chunks, weights)
        return cls(Channels.fit(positives), weights)

    def score(self, rows: Tensor) -> Tensor:
        """Score all items for rows of positives: (M, B) -> (M, B)."""
        return (self.channels.of(rows)[0] @ self.weights).T


def hide(positives: Positives) -> tuple[Positives, Positives, Tensor]:
    """Divide positives into kept and hidden ones; also return the users with hidden ones.

    They are drawn by digits that do not depend on how members are numbered.
    """
    user_digits, item_digits = positives.digits()
    table = positives.by_user
    items = table.col_indices().long()
    users = torch.arange(positives.shape[0], device=items.device).repeat_interleave(
        table.crow_indices().diff().long()
    )
    may_hide = positives.per_user >= MIN_ITEMS
    order = torch.where(may_hide, user_digits, 2.0).argsort(stable=True)
    chosen = torch.zeros_like(may_hide)
    chosen[order[: min(MAX_USERS, int(may_hide.sum()))]] = True
    # Products, not sums: with those every user would hide items of like digits together.
    drawn = ((user_digits[users] + 1) * (item_digits[items] + 1) * 997.0) % 1 < HIDDEN
    mask = chosen[users] & drawn
    # Whoever has all items hidden has none to be ranked by.
    left = users[~mask].bincount(minlength=positives.shape[0])
    mask &= left[users] > 0
    index, values = torch.stack([users, items], dim=1), table.values()
    parts = [Positives.of(index[part], positives.shape, values[part]) for part in (~mask, mask)]
    return parts[0], parts[1], users[mask].unique()


def usual_weights(positives: Positives) -> Tensor:
    """Return the weights of channels that nothing is known about: (C,)."""
    weights = positives.per_item.new_zeros(len(NAMES), FORMS)
    weights[:, 0] = USUAL_WEIGHT
    return weights.flatten()


def fit_weights(
    chunks: list[tuple[Tensor, Tensor, Tensor]], usual: Tensor, ridge: float = RIDGE
) -> Tensor:
    """Fit weights (C,) to chunks of channels (B, M, C), seen (B, M) and hidden items (B, M)."""
    weights = usual.clone()
    for _ in range(STEPS):
        slope = ridge * (weights - usual)
        curvature = ridge * torch.eye(len(usual)).to(usual)
        for z, seen, hidden in chunks:
            found = (hidden > 0).to(z)
            chance = (z @ weights).masked_fill(seen, -torch.inf).softmax(dim=1)
            count = found.sum(dim=1)
            mean = torch.einsum("bm,bmc->bc", chance, z)
            slope += (count[:, None] * mean).sum(0) - torch.einsum("bm,bmc->c", found, z)
            rooted = z * chance.sqrt()[:, :, None]
            second = rooted.transpose(1, 2) @ rooted - mean[:, :, None] * mean[:, None, :]
            curvature += (count[:, None, None] * second).sum(0)
        step = torch.linalg.solve(curvature, slope)
        weights = weights - step * min(1.0, MAX_STEP / float(step.norm().clamp(min=1e-9)))
    return weights
