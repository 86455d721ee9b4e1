"""Rankers by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from torch import Tensor

from exchangeable.ranking.implicit import ImplicitFactors
from exchangeable.ranking.positives import Positives
from exchangeable.ranking.spectrum import LowPass, Ridge
from exchangeable.ranking.walks import Walks


class FittedRanker(Protocol):
    """A ranker fitted to positives."""

    def score(self, rows: Tensor) -> Tensor:
        """Score all items for rows of positives, of any user: (M, B) -> (M, B)."""
        ...


class Ranker(Protocol):
    """The settings of a ranker, with its ``fit``."""

    def fit(self, positives: Positives) -> FittedRanker: ...


@dataclass(frozen=True)
class Popularity:
    """The number of users of each item, for all alike."""

    def fit(self, positives: Positives) -> FittedPopularity:
        return FittedPopularity(positives.per_item)


@dataclass(frozen=True, eq=False)
class FittedPopularity:
    per_item: Tensor  # (M,)

    def score(self, rows: Tensor) -> Tensor:
        return self.per_item[:, None].expand_as(rows)


RANKERS: Mapping[str, Mapping[str, Ranker]] = MappingProxyType(
    {
        "popularity": {"": Popularity()},
        "item-cosine": {f"{c}": Walks(0.5, 0.0, c) for c in (0.3, 0.5)},
        "user-cosine": {f"{b}": Walks(0.0, b, 0.0) for b in (0.5, 1.0)},
        "rp3": {f"{c}": Walks(1.0, 1.0, c) for c in (0.3, 0.6)},
        "graph-filter": {
            **{f"walk {b} {c}": Walks(0.5, b, c) for b in (0.5, 1.0) for c in (0.3, 0.5, 0.7)},
            **{f"low-pass {k}": LowPass(k) for k in (16, 64, 256)},
        },
        "ease": {f"{strength}": Ridge(strength) for strength in (30, 100, 300, 1000)},
        "ridge": {f"{strength}": Ridge(strength, others=False) for strength in (300, 1000, 3000)},
        "ials": {
            f"{weight} {ridge}": ImplicitFactors(weight=weight, regularisation=ridge)
            for weight, ridge in ((2.0, 0.1), (5.0, 0.1), (1.0, 0.3))
        },
    }
)
"""Each name with its settings, one of which is chosen on hidden positives of a table."""
