"""One ranker on a table, by its name: its setting is chosen on hidden positives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from exchangeable.ranking.chances import Chances, shares_of
from exchangeable.ranking.channels import FORMS, Channels
from exchangeable.ranking.positives import Positives, Rows
from exchangeable.ranking.registry import RANKERS
from exchangeable.ranking.stack import (
    CANDIDATES,
    RIDGE,
    find_examples,
    fit_softmax,
    hide,
    ranker_gains,
    stack_scores,
    users_per_block,
    usual_weights,
)

CHANCE_USERS = 200
"""Users whose unseen items chances are fitted to."""
MIN_WEIGHT = 0.01
"""Least weight of the ranker in the softmax, so that higher scores are never less likely."""


TIES = 1e-4
"""Most that popularity adds to a score."""


class RankingModel(Protocol):
    """Ranks the items of any user."""

    @property
    def channels(self) -> Channels:
        """The rankers that it is made of."""
        ...

    @property
    def chances(self) -> Chances:
        """Chances that the shares of a user's further items come to."""
        ...

    def score(self, rows: Rows) -> Tensor:
        """Score all items for rows, -inf for what they have: (M, B)."""
        ...


@dataclass(frozen=True, eq=False)
class SingleRanker:
    """One ranker, in deviations within a user."""

    channels: Channels
    weights: Tensor  # (FORMS,)
    setting: str
    chances: Chances
    gain: float = 0.0
    """Discounted gain on hidden positives."""

    def score(self, rows: Rows) -> Tensor:
        scores = stack_scores(self.channels.deviations(rows), self.weights, rows)
        # Equal ones, such as those of users without items, come by popularity.
        counts = self.channels.table.positives.per_item
        return scores + TIES * (counts / counts.max().clamp(min=1))[:, None]


@torch.no_grad()
def fit_single(name: str, positives: Positives) -> SingleRanker:
    """Fit the ranker of a name, with the setting that finds hidden positives best."""
    settings = RANKERS[name]
    first = next(iter(settings))
    kept, hidden, users = hide(positives)
    if not len(users):
        channels = Channels.fit(positives, rankers={first: settings[first]})
        return SingleRanker(channels, usual_weights(channels), first, Chances())
    tried = Channels.fit(kept, rankers=settings)
    pool = find_examples(tried, kept, hidden, users, usual_weights(tried))
    gains = ranker_gains(pool).mean(dim=1)
    best = int(gains.argmax())
    own = pool.z[:, :, FORMS * best : FORMS * best + 1]  # compressed
    usual = own.new_ones(1)
    order = own.squeeze(2).topk(min(CANDIDATES, own.shape[1]), dim=1).indices
    z, found = own.gather(1, order[:, :, None]), pool.hidden.gather(1, order)
    weight = fit_softmax(z, found, usual, RIDGE).clamp(min=MIN_WEIGHT)
    weights = torch.cat([weight, torch.zeros_like(weight)])
    chosen = list(settings)[best]
    inner = SingleRanker(Channels(tried.table, (tried.rankers[best],)), weights, chosen, Chances())
    chances = fit_chances(inner, kept, hidden, users)
    channels = Channels.fit(positives, tried, {chosen: settings[chosen]})
    return SingleRanker(channels, weights, chosen, chances, float(gains[best]))


def fit_chances(model: RankingModel, kept: Positives, hidden: Positives, users: Tensor) -> Chances:
    """Compare the shares of all unseen items of some users with what was hidden."""
    shares, hits = [], []
    for some in users[:CHANCE_USERS].split(users_per_block(kept)):
        rows = kept.rows(some)
        unseen = ~rows.seen
        shares.append(shares_of(model.score(rows), rows.counts)[unseen])
        hits.append(hidden.rows(some).seen[unseen])
    return Chances.fit(torch.cat(shares), torch.cat(hits))
