"""The pretrained ranker on a table: channels, the stack, and the network as far as it helps.

Hidden positives of the table decide three things, each for users that it was not fitted to: how
the stack and what the network adds are weighed (trust), how far the chances are right, and whether
one ranker alone would do better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from exchangeable.ranking.chances import Chances
from exchangeable.ranking.channels import CHANNEL_RANKERS, FORMS, Channels
from exchangeable.ranking.network import RankingNetwork, TableFacts
from exchangeable.ranking.positives import Positives, Rows
from exchangeable.ranking.single import fit_chances
from exchangeable.ranking.stack import (
    CANDIDATES,
    HIDDEN_BY_HALF,
    Examples,
    candidate_channels,
    choose_usual,
    find_examples,
    fit_softmax,
    fit_stack,
    gains_of,
    hide,
    ranker_gains,
    share_of_few,
    stack_scores,
    top_items,
    usual_few_weights,
    usual_weights,
)
from exchangeable.runtime.phrases import format_count

NETWORK_CANDIDATES = 200
"""Items of a user that the network scores; those below keep the sequence of the stack."""
LOWEST = 20
"""Candidates whose mean addition all items below them have."""
TRUST_RIDGE = 10.0
MIN_AHEAD = 2.0
"""Standard errors by which one ranker alone must be ahead."""
MIN_TRUST = 0.1
"""Weight of the stack at least."""
MIN_POPULARITY = 0.01
"""Weight of popularity at least, for users with few items: those without any have nothing else."""
MIN_USERS = 4
"""Users with hidden positives, with fewer of which there are no halves to be fitted to."""
MIN_HIDDEN = 8
"""Hidden positives, with fewer of which nothing is fitted."""


@dataclass(frozen=True)
class Backtest:
    """Discounted gains on hidden positives: of the ranker, and of each of its channels alone."""

    users: int
    gain: float
    alone: dict[str, float]
    ahead: dict[str, float]
    """Mean difference of a channel's gain and the ranker's, in standard errors."""

    @property
    def better(self) -> str | None:
        """The name of a ranker that alone does clearly better, without its setting."""
        best = max(self.ahead, key=lambda name: self.alone[name])
        return best.split()[0] if self.ahead[best] > MIN_AHEAD else None

    def __str__(self) -> str:
        best = max(self.alone, key=lambda name: self.alone[name])
        return (
            f"positives of {format_count(self.users, 'user')} were hidden, of which the pretrained "
            f"ranker has a discounted gain of {self.gain:.4f}, and {best} alone "
            f"{self.alone[best]:.4f}"
        )


class Trust(NamedTuple):
    """Weights of the stack's score and of what the network adds."""

    stack: float = 1.0
    network: float = 0.0


@dataclass(frozen=True, eq=False)
class PretrainedRanker:
    """A table read by the pretrained ranker."""

    network: RankingNetwork
    channels: Channels
    facts: TableFacts
    trust: Trust
    few: Tensor  # (C,)
    """Weights of the channels for users with a single item."""
    usual_items: float
    """Number of items of the users that all other weights were fitted to."""
    chances: Chances
    backtest: Backtest | None

    def score(self, rows: Rows) -> Tensor:
        """Score all items for rows, -inf for what they have: (M, B)."""
        deviations = self.channels.deviations(rows)
        stack = stack_scores(deviations, self.facts.weights, rows)
        scores = self.trust.stack * stack
        if self.trust.network:
            items = top_items(stack.T, NETWORK_CANDIDATES)
            z = candidate_channels(deviations, items)
            added = self.network(z, items, self.facts.of_users(rows), self.facts)
            scores.add_(add_to_all(items, added, len(stack)).T, alpha=self.trust.network)
        share = share_of_few(rows.counts, self.usual_items)
        if not share.any():
            return scores
        by_few = stack_scores(deviations, self.few, rows)
        # Not a weighted sum, in which the -inf of what a row has would be no number.
        return torch.lerp(scores, by_few, share).masked_fill_(rows.seen, -torch.inf)


def add_to_all(positions: Tensor, added: Tensor, count: int) -> Tensor:
    """Give all items (B, count) what candidates got; the others get the mean of the lowest."""
    lowest = added[:, -LOWEST:].mean(dim=1, keepdim=True)
    return lowest.repeat(1, count).scatter_(1, positions, added)


@torch.no_grad()
def fit_pretrained(network: RankingNetwork, positives: Positives) -> PretrainedRanker:
    """Fit rankers to a table, and a few coefficients that weigh them, in closed form."""
    kept, hidden, users = hide(positives)
    if hidden.per_user.sum() < MIN_HIDDEN or len(users) < MIN_USERS:
        channels = Channels.fit(positives)
        few = usual_few_weights(channels)
        facts = TableFacts.of(positives, few, few.new_zeros(len(CHANNEL_RANKERS)))
        return PretrainedRanker(network, channels, facts, Trust(), few, 1.0, Chances(), None)
    inner = Channels.fit(kept)
    pool = find_examples(inner, kept, hidden, users, usual_weights(inner))
    usual = choose_usual(inner, pool)
    gains = ranker_gains(pool)
    facts = TableFacts.of(kept, fit_stack(pool, usual), gains.mean(dim=1))
    trial = _Trial.of(network, kept, pool, facts, usual)
    trust = trial.fit_trust()
    few = fit_few(inner, kept, hidden, users)
    usual_items = float(kept.per_user[users].log().mean().exp())
    tried = PretrainedRanker(
        network, inner, trial.facts[0], trust, few, usual_items, Chances(), None
    )
    return PretrainedRanker(
        network,
        Channels.fit(positives, inner),
        TableFacts.of(positives, facts.weights, facts.gains),
        trust,
        few,
        usual_items,
        fit_chances(tried, kept, hidden, trial.pools[0].users),
        trial.backtest(trust, gains),
    )


def fit_few(channels: Channels, kept: Positives, hidden: Positives, users: Tensor) -> Tensor:
    """Fit the weights of channels for users with a single item; popular items never count less."""
    usual = usual_few_weights(channels)
    pool = find_examples(channels, kept, hidden, users, usual, single_items=True)
    weights = fit_stack(pool, choose_usual(channels, pool)).view(-1, FORMS)
    weights[0, 0] = weights[0, 0].clamp(min=MIN_POPULARITY)
    weights[0, 1] = weights[0, 1].clamp(min=0)
    return weights.flatten()


@dataclass(frozen=True, eq=False)
class _Trial:
    """Scores of users by stacks that were fitted to other users."""

    pools: tuple[Examples, ...]
    stacks: tuple[Tensor, ...]  # (Q, P) each
    added: tuple[Tensor, ...]  # (Q, P) each, by the network
    facts: tuple[TableFacts, ...]

    @classmethod
    def of(
        cls,
        network: RankingNetwork,
        kept: Positives,
        pool: Examples,
        facts: TableFacts,
        usual: Tensor,
    ) -> _Trial:
        """Fit the stack to one half of the users for the other, and the other way round."""
        half = torch.arange(len(pool.users), device=pool.users.device) % 2 == 0
        parts = []
        for fitted_to in (half, ~half):
            own = replace(facts, weights=fit_stack(pool.of_users(fitted_to), usual))
            others = pool.of_users(~fitted_to)
            stack = others.z @ own.weights
            positions = top_items(stack, NETWORK_CANDIDATES)
            candidates = others.take(positions)
            users = own.of_users(kept.rows(others.users))
            added = network(candidates.z, candidates.items, users, own)
            added = add_to_all(positions, added, stack.shape[1])
            parts.append((others, stack, added, own))
        return cls(*zip(*parts, strict=True))

    def fit_trust(self) -> Trust:
        """Fit weights of the stack and of what the network adds to the hidden positives."""
        leading = []
        for pool, stack, added in zip(self.pools, self.stacks, self.added, strict=True):
            both = replace(pool, z=torch.stack([stack, added], dim=2))
            leading.append(both.take(top_items(stack + added, CANDIDATES)))
        z, hidden = (
            torch.cat([getattr(part, name) for part in leading]) for name in ("z", "hidden")
        )
        doubt = HIDDEN_BY_HALF / float(hidden.sum() + 1)
        usual = z.new_tensor([1.0, 1 / (1 + doubt)])
        stack, network = fit_softmax(z, hidden, usual, TRUST_RIDGE * (1 + doubt)).tolist()
        return Trust(max(stack, MIN_TRUST), max(network, 0.0))

    def backtest(self, trust: Trust, gains: Tensor) -> Backtest:
        """Compare with each ranker alone; ``gains`` (R, Q) are theirs, of all users."""
        own = torch.cat(
            [
                gains_of(trust.stack * stack + trust.network * added, pool)
                for pool, stack, added in zip(self.pools, self.stacks, self.added, strict=True)
            ]
        )
        # Halves come one after the other here: users of odd positions first.
        alone = torch.cat([gains[:, 1::2], gains[:, ::2]], dim=1)
        away = alone - own
        errors = away.std(dim=1, correction=0).clamp(min=1e-9) / len(own) ** 0.5
        names = list(CHANNEL_RANKERS)
        return Backtest(
            len(own),
            float(own.mean()),
            dict(zip(names, alone.mean(dim=1).tolist(), strict=True)),
            dict(zip(names, (away.mean(dim=1) / errors).tolist(), strict=True)),
        )
