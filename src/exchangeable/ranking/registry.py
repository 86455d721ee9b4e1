"""Rankers by name.

A fitted ranker scores all items for rows of positives, of any user: a source gives scores (M, B),
and each item has a factor. Several rankers share a source, and several sources what a table is
decomposed into; a ``PreparedTable`` finds each of these once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor

from exchangeable.ranking.implicit import FittedFactors, ImplicitFactors
from exchangeable.ranking.positives import Positives, Rows
from exchangeable.ranking.ridge import (
    MAX_EXACT,
    ItemRidge,
    SpectralRidge,
    UserRidge,
    others_factor,
)
from exchangeable.ranking.spectrum import Filter, Spectrum
from exchangeable.ranking.walks import WalkGroup, Walks
from exchangeable.runtime.cache import cached_property


class Source(Protocol):
    """Scores before items are scaled."""

    def score(self, rows: Rows) -> Tensor:
        """Score all items for rows: (M, B)."""
        ...


@dataclass(frozen=True, eq=False)
class FittedRanker:
    """A source of scores, and the factors of items."""

    source: Source
    factors: Tensor  # (M,)

    @cached_property
    def mean_factor(self) -> Tensor:
        return self.factors.mean()

    def score(self, rows: Rows) -> Tensor:
        """Score all items for rows: (M, B)."""
        return self.source.score(rows) * self.factors[:, None]


@dataclass(eq=False)
class PreparedTable:
    """A table, and what rankers that were fitted to it share."""

    positives: Positives
    before: PreparedTable | None = None
    """Nearly the same table, from whose decompositions those of this one start."""
    _found: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def spectrum(self) -> Spectrum:
        start = None if self.before is None else self.before.spectrum
        return Spectrum.of(self.positives, start=start)

    @cached_property
    def normalised(self) -> Spectrum:
        start = None if self.before is None else self.before.normalised
        return Spectrum.of(self.positives, normalised=True, start=start)

    @cached_property
    def gram(self) -> Tensor:
        """Inner products of the members of the smaller side."""
        tables = self.positives.by_user, self.positives.by_item
        one, other = tables if self.positives.shape[0] < self.positives.shape[1] else tables[::-1]
        return one @ other.to_dense()

    def walks(self, own_items: float, users: float) -> Walks:
        group: WalkGroup = self._once("walks", lambda: WalkGroup(self.positives, []))
        return self._once(("walks", own_items, users), lambda: group.walks(own_items, users))

    def ridge(self, strength: float) -> ItemRidge | UserRidge | SpectralRidge:
        return self._once(("ridge", strength), lambda: self._fit_ridge(strength))

    def factors(self, settings: ImplicitFactors) -> FittedFactors:
        start = None if self.before is None else self.before.factors(settings)
        return self._once(settings, lambda: settings.fit(self.positives, self.normalised, start))

    def _fit_ridge(self, strength: float) -> ItemRidge | UserRidge | SpectralRidge:
        users, items = self.positives.shape
        if min(users, items) > MAX_EXACT:
            return SpectralRidge.of(self.spectrum, strength)
        if items <= users:
            return ItemRidge.of(self.gram, strength)
        return UserRidge.of(self.positives, self.gram, strength)

    def _once(self, key: Any, compute: Callable[[], Any]) -> Any:
        if key not in self._found:
            self._found[key] = compute()
        return self._found[key]


Ranker = Callable[[PreparedTable], FittedRanker]


@dataclass(frozen=True)
class _Same:
    """The same score for all items."""

    def score(self, rows: Rows) -> Tensor:
        return torch.ones_like(rows.columns)


def popularity() -> Ranker:
    """The number of users of each item, for all alike."""
    return lambda table: FittedRanker(_Same(), table.positives.per_item)


def walks(own_items: float, users: float, items: float) -> Ranker:
    """Walks with the exponents a, b and c."""

    def fit(table: PreparedTable) -> FittedRanker:
        factors = table.positives.per_item.clamp(min=1) ** -items
        return FittedRanker(table.walks(own_items, users), factors)

    return fit


def ease(strength: float) -> Ranker:
    """Each item regressed on others alone."""

    def fit(table: PreparedTable) -> FittedRanker:
        ridge = table.ridge(strength)
        return FittedRanker(ridge, others_factor(ridge.left))

    return fit


def ridge(strength: float) -> Ranker:
    """Users regressed on users."""
    return lambda table: FittedRanker(
        table.ridge(strength), torch.ones_like(table.positives.per_item)
    )


def low_pass(vectors: int) -> Ranker:
    """An ideal low-pass filter of the normalised table: only its leading vectors count."""

    def fit(table: PreparedTable) -> FittedRanker:
        spectrum = table.normalised.leading(vectors)
        return FittedRanker(Filter(spectrum, torch.ones_like(spectrum.squares)), 1 / spectrum.scale)

    return fit


def implicit(weight: float, regularisation: float, rank: int = 128, unseen: float = 1e-3) -> Ranker:
    """Implicit factors."""
    settings = ImplicitFactors(rank, weight, regularisation, unseen)
    return lambda table: FittedRanker(
        table.factors(settings), torch.ones_like(table.positives.per_item)
    )


RANKERS: Mapping[str, Mapping[str, Ranker]] = MappingProxyType(
    {
        "popularity": {"": popularity()},
        "item-cosine": {f"{c}": walks(0.5, 0.0, c) for c in (0.3, 0.5)},
        "user-cosine": {f"{b}": walks(0.0, b, 0.0) for b in (0.5, 1.0)},
        "rp3": {
            **{f"{c}": walks(1.0, 1.0, c) for c in (0.3, 0.6)},
            **{f"{c} power {a}": walks(a, a, c) for a in (0.4, 0.7) for c in (0.2, 0.4, 0.6, 0.8)},
        },
        "graph-filter": {
            **{f"walk {b} {c}": walks(0.5, b, c) for b in (0.5, 1.0) for c in (0.3, 0.5, 0.7)},
            **{f"low-pass {k}": low_pass(k) for k in (16, 64, 256)},
        },
        "ease": {f"{strength}": ease(strength) for strength in (30, 100, 300, 1000)},
        "ridge": {f"{strength}": ridge(strength) for strength in (300, 1000, 3000)},
        "ials": {
            **{
                f"{weight} {strength}": implicit(weight, strength)
                for weight, strength in ((2.0, 0.1), (5.0, 0.1), (1.0, 0.3), (1.0, 1.0))
            },
            **{
                f"{weight} {strength} rank {rank}": implicit(weight, strength, rank, 1.0)
                for weight, strength, rank in (
                    (10.0, 0.1, 128),
                    (10.0, 0.01, 64),
                    (10.0, 0.02, 128),
                    (20.0, 0.01, 128),
                    (10.0, 0.02, 256),
                )
            },
        },
    }
)
"""Each name with its settings, one of which is chosen on hidden positives of a table."""
