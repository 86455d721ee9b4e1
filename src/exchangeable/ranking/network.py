"""The network that corrects the stack: what it adds depends on table, user and item.

It reads the channels of a candidate, the stack's score and how many users the item has. Its hidden
units are modulated by facts of the table and of the user, by the weights of the stack and by how
well each ranker alone finds hidden positives. It is the same for every candidate, user and table,
so nothing depends on how members are numbered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from exchangeable.errors import InputError
from exchangeable.ranking.channels import CHANNEL_RANKERS, CHANNELS
from exchangeable.ranking.positives import Positives, Rows
from exchangeable.runtime import checkpoint

KIND = "ranker"
_CARD = """# A ranker of positives

A network that corrects a stack of closed-form rankers, trained on synthetic tables of positives
alone (`python -m exchangeable.pretraining.ranking`).
"""
TABLE_FACTS, USER_FACTS = 7, 2
_GAIN_UNIT = 20.0
_LOG_COUNT = 3.0  # about that of usual members


@dataclass(frozen=True, eq=False)
class TableFacts:
    """Facts of a table that the network knows beside the channels."""

    sizes: Tensor  # (TABLE_FACTS,)
    weights: Tensor  # (C,), of the stack
    gains: Tensor  # (R,), of each ranker alone
    item_counts: Tensor  # (M,), logarithms
    usual_count: float
    """Mean of these logarithms over the cells of the table."""

    @classmethod
    def of(cls, positives: Positives, weights: Tensor, gains: Tensor) -> TableFacts:
        counts = (positives.per_item + 1).log()
        cells = float(positives.per_item.sum())
        usual = float((counts * positives.per_item).sum()) / max(1.0, cells)
        return cls(_sizes(positives), weights, gains, counts, usual)

    def of_users(self, rows: Rows) -> Tensor:
        """Return how many items users have, and how popular these are: (B, USER_FACTS)."""
        counts = rows.counts
        held = rows.seen.to(self.item_counts).T @ self.item_counts
        popular = torch.where(counts > 0, held / counts.clamp(min=1) - self.usual_count, 0.0)
        return torch.stack([(counts + 1).log() - _LOG_COUNT, popular], dim=1)


class RankingNetwork(nn.Module):
    """Scores of candidates, from their channels and from facts of table and user."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        facts = TABLE_FACTS + USER_FACTS + CHANNELS + len(CHANNEL_RANKERS)
        self.width = width
        self.context = nn.Sequential(
            nn.Linear(facts, width), nn.GELU(), nn.Linear(width, 2 * width)
        )
        self.reads = nn.Linear(CHANNELS + 2, width)
        self.hidden = nn.Sequential(
            nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
        )
        self.gate = nn.Linear(2 * width, CHANNELS + 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        last = self.hidden[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            last.weight.mul_(0.1)

    def forward(self, z: Tensor, items: Tensor, users: Tensor, facts: TableFacts) -> Tensor:
        """Return what to add to the stack's scores of candidates (B, K) of users: (B, K).

        ``z`` are their channels (B, K, C), and ``users`` facts of the users (B, USER_FACTS).
        """
        stack = z @ facts.weights
        popular = facts.item_counts[items] - _LOG_COUNT
        table = torch.cat([facts.sizes, facts.weights, _GAIN_UNIT * facts.gains])
        context = self.context(torch.cat([table.expand(len(users), -1), users], dim=1))
        scale, shift = context[:, None, :].chunk(2, dim=2)
        read = self.reads(torch.cat([z, stack[:, :, None], popular[:, :, None]], dim=2))
        gates = self.gate(context)
        linear = (z @ gates[:, :-1, None]).squeeze(2) + gates[:, -1:] * stack
        return linear + self.hidden(read * (1 + scale) + shift).squeeze(2)


def network_to_parts(network: RankingNetwork) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return JSON and tensors, from which ``network_from_parts`` builds it again."""
    return {"kind": KIND, "width": network.width}, dict(network.state_dict())


def network_from_parts(config: dict[str, Any], tensors: dict[str, Tensor]) -> RankingNetwork:
    """Build a network, for use and not for training."""
    if config.get("kind") != KIND:
        raise InputError(f"a ranker is needed, but this is a {config.get('kind')}")
    network = RankingNetwork(int(config["width"]))
    network.load_state_dict(tensors)
    return network.eval().requires_grad_(False)


def save_network(path: Path, network: RankingNetwork, facts: Mapping[str, Any]) -> None:
    """Save a network to a folder, with facts of its training."""
    config, tensors = network_to_parts(network)
    checkpoint.save(path, config, {"model": tensors}, card=_CARD, facts=facts)


def load_network(path: Path) -> RankingNetwork:
    """Load a network from a folder, after every byte was verified."""
    stored = checkpoint.load(path)
    return network_from_parts(stored.config, stored.tensors["model"])


def _sizes(positives: Positives) -> Tensor:
    users, items = positives.shape
    per_item = positives.per_item[positives.per_item > 0].log()
    per_user = positives.per_user[positives.per_user > 0].log()
    density = float(positives.per_item.sum()) / (users * items)
    facts = [
        math.log(users) - 8,
        math.log(items) - 8,
        float(per_user.mean()) - 3,
        float(per_item.mean()) - 3,
        float(per_item.std(correction=0)) - 1,
        float(per_user.std(correction=0)) - 1,
        math.log(density) + 5,
    ]
    return torch.tensor(facts, device=per_item.device)
