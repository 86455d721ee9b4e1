"""Channels: the scores of all closed-form rankers, each in deviations within a user.

Scores of different rankers have different units, and of different users different sizes. So each
is standardised over the user's unseen items, and given twice: as it is, for the few items far
ahead, and compressed, for all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from exchangeable.ranking.implicit import ImplicitFactors
from exchangeable.ranking.positives import Positives
from exchangeable.ranking.registry import FittedRanker, Popularity, Ranker
from exchangeable.ranking.spectrum import LowPass, Ridge, Spectrum
from exchangeable.ranking.walks import Walks

PLAIN: MappingProxyType[str, Ranker] = MappingProxyType(
    {
        "popularity": Popularity(),
        "item cosine": Walks(0.5, 0.0, 0.3),
        "filter .5 .5": Walks(0.5, 0.5, 0.5),
        "filter 1 .5": Walks(0.5, 1.0, 0.5),
        "random walk": Walks(1.0, 1.0, 0.6),
        "filter 1 .7": Walks(0.5, 1.0, 0.7),
        "user cosine": Walks(0.0, 1.0, 0.0),
        "filter .5 .3": Walks(0.5, 0.5, 0.3),
    }
)
"""Rankers that need nothing but the table."""
RIDGES = MappingProxyType(
    {
        **{f"ease {strength}": Ridge(strength) for strength in (30, 100, 300, 1000)},
        **{f"ridge {strength}": Ridge(strength, others=False) for strength in (300, 1000, 3000)},
    }
)
"""Filters of the table's spectrum."""
NORMALISED: MappingProxyType[str, LowPass | ImplicitFactors] = MappingProxyType(
    {
        "low-pass 64": LowPass(64),
        "low-pass 256": LowPass(256),
        "ials 2": ImplicitFactors(weight=2.0, regularisation=0.1),
        "ials 1": ImplicitFactors(weight=1.0, regularisation=0.3),
    }
)
"""Rankers that start from the spectrum of the normalised table."""
NAMES = (*PLAIN, *RIDGES, *NORMALISED)

FORMS = 2
"""Channels of each ranker."""

_UNIT = 4.0  # deviations
_MAX_DEVIATIONS = 240.0
_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Channels:
    """All rankers, fitted to a table."""

    rankers: tuple[FittedRanker, ...]

    @classmethod
    def fit(cls, positives: Positives) -> Channels:
        """Fit all rankers; those that filter a spectrum share it."""
        fitted: list[FittedRanker] = [ranker.fit(positives) for ranker in PLAIN.values()]
        spectrum = Spectrum.of(positives)
        fitted += [ranker.fit(positives, spectrum) for ranker in RIDGES.values()]
        spectrum = Spectrum.of(positives, normalised=True)
        fitted += [ranker.fit(positives, spectrum) for ranker in NORMALISED.values()]
        return cls(tuple(fitted))

    def of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the channels of rows of positives (M, B), and what they have: (B, M, C), (B, M).

        Channels of items that a row has are 0.
        """
        seen = (rows > 0).T
        unseen = (~seen).sum(dim=1, keepdim=True).clamp(min=1)
        channels = []
        for ranker in self.rankers:
            scores = ranker.score(rows).T.masked_fill(seen, 0.0)
            mean = scores.sum(dim=1, keepdim=True) / unseen
            away = (scores - mean).masked_fill(seen, 0.0)
            deviation = (away.square().sum(dim=1, keepdim=True) / unseen).sqrt().clamp(min=_TINY)
            away = (away / deviation).clamp(-_MAX_DEVIATIONS, _MAX_DEVIATIONS)
            channels += [away.asinh(), away / _UNIT]
        return torch.stack(channels, dim=2), seen
