"""Channels: the scores of many closed-form rankers, each in deviations within a user.

Scores of different rankers have different units, and of different users different sizes. So each
is standardised over the user's unseen items, and given twice: as it is, for the few items far
ahead, and compressed, for all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from exchangeable.ranking.implicit import ImplicitFactors
from exchangeable.ranking.positives import Positives, Rows
from exchangeable.ranking.registry import RANKERS, FittedRanker, PreparedTable, Ranker

_CHOSEN = (
    ("popularity", ""),
    ("item-cosine", "0.3"),
    ("graph-filter", "walk 0.5 0.5"),
    ("graph-filter", "walk 0.5 0.3"),
    ("graph-filter", "walk 1.0 0.5"),
    ("graph-filter", "walk 1.0 0.7"),
    ("rp3", "0.6"),
    ("user-cosine", "1.0"),
    ("ease", "30"),
    ("ease", "100"),
    ("ease", "300"),
    ("ridge", "300"),
    ("ease", "1000"),
    ("ridge", "1000"),
    ("graph-filter", "low-pass 64"),
    ("graph-filter", "low-pass 256"),
    ("ials", "2.0 0.1"),
    ("ials", "1.0 0.3"),
)  # those with one source stand together
CHANNEL_RANKERS: Mapping[str, Ranker] = MappingProxyType(
    {f"{name} {setting}".strip(): RANKERS[name][setting] for name, setting in _CHOSEN}
)
"""Rankers that the network's channels are made of."""

FACTORS = ImplicitFactors(weight=2.0, regularisation=0.1)
"""Factors whose vectors stand for the members: those of the channel ``ials 2.0 0.1``."""

FORMS = 2
"""Channels of each ranker."""
CHANNELS = FORMS * len(CHANNEL_RANKERS)

_UNIT = 4.0  # deviations
_TINY = 1e-9
_ROUNDING = 1e-5
_NEARLY_EQUAL = 1e-3


@dataclass(frozen=True, eq=False)
class Channels:
    """Several rankers, fitted to a table."""

    table: PreparedTable
    rankers: tuple[FittedRanker, ...]

    @classmethod
    def fit(
        cls,
        positives: Positives,
        before: Channels | None = None,
        rankers: Mapping[str, Ranker] = CHANNEL_RANKERS,
    ) -> Channels:
        """Fit rankers; ``before`` are those of nearly the same table, which is faster."""
        table = PreparedTable(positives, None if before is None else before.table)
        fitted = tuple(fit(table) for fit in rankers.values())
        table.before = None  # which may hold large matrices
        return cls(table, fitted)

    def deviations(self, rows: Rows) -> list[Tensor]:
        """Return the scores of each ranker in deviations: (M, B) each.

        They are those of unseen items; what stands for an item that a row has means nothing.
        """
        unseen = ~rows.seen
        share = 1 / unseen.sum(dim=0).clamp(min=1)
        scaled: list[Tensor] = []
        largest: list[Tensor] = []
        source, scores, most = None, rows.columns, rows.counts
        for ranker in self.rankers:
            if ranker.source is not source:
                source, scores = ranker.source, ranker.source.score(rows)
                most = scores.abs().amax(dim=0)
                scores = scores * unseen
            scaled.append(scores * ranker.factors[:, None])
            largest.append(most * ranker.mean_factor)
        mean = torch.stack([each.sum(dim=0) for each in scaled]) * share  # (R, B)
        norms = torch.stack([torch.linalg.vector_norm(each, dim=0) for each in scaled])
        size = (norms.square() * share - mean.square()).clamp(min=0).sqrt()
        # A filter that keeps all of a row says nothing of what it does not have. And of scores
        # that are all nearly equal only their rounding is left.
        noise = (torch.stack(largest) * _ROUNDING).clamp(min=_TINY)
        noise = torch.maximum(noise, mean.abs() * _NEARLY_EQUAL)
        units = torch.where(size > noise, 1 / size.clamp(min=_TINY), 0.0)
        moved = mean * units
        return [
            each.mul_(unit).sub_(middle)
            for each, unit, middle in zip(scaled, units, moved, strict=True)
        ]


def weigh_forms(deviations: Tensor, compressed: float, plain: float) -> Tensor:
    """Return the sum of both channels of a ranker, times their weights."""
    return deviations * (compressed * (1 + deviations.abs()).rsqrt_() + plain / _UNIT)


def stacked_forms(deviations: list[Tensor]) -> Tensor:
    """Return all channels of some cells: (..., C)."""
    both = ((each * (1 + each.abs()).rsqrt(), each / _UNIT) for each in deviations)
    return torch.stack([form for forms in both for form in forms], dim=-1)
