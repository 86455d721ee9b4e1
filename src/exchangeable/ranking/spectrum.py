"""The spectrum of positives, and rankers that filter it.

With A = U S V' a ridge filter of strength l scores V diag(s^2 / (s^2 + l)) V' x. Divided by what an
item's own share leaves, it is EASE: regression of each item on all others,

    B = -P / diag(P) off the diagonal,   P = (A'A + l)^-1

so that one decomposition serves all strengths. All of the spectrum is found where one side is
small, and its largest part beyond.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exchangeable.ranking.positives import Positives

MAX_EXACT = 4096
"""Members of the smaller side up to which the whole spectrum is found."""

RANK = 256
"""Singular vectors beyond that."""

EXTRA_VECTORS = 64
ITERATIONS = 6
_MIN_LEFT = 0.02  # of an item that others explain nearly wholly
_TINY = 1e-6


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values and the items' vectors of a table, after items were scaled."""

    squares: Tensor  # (K,), of the singular values
    vectors: Tensor  # (M, K)
    scale: Tensor  # (M,), factors of the items

    @classmethod
    def of(cls, positives: Positives, *, normalised: bool = False, rank: int = RANK) -> Spectrum:
        """Decompose positives; with ``normalised`` each entry over the roots of its counts."""
        scale = torch.ones_like(positives.per_item)
        if normalised:
            scale = (positives.per_item + 1) ** -0.5
            positives = positives.scaled((positives.per_user + 1) ** -0.5, scale)
        if min(positives.shape) <= max(MAX_EXACT, rank):
            return cls(*_whole(positives), scale)
        return cls(*_leading(positives, rank), scale)

    def leading(self, count: int) -> Spectrum:
        """Return the largest part of the spectrum only."""
        largest = self.squares.argsort(descending=True)[:count]
        return replace(self, squares=self.squares[largest], vectors=self.vectors[:, largest])


@dataclass(frozen=True)
class Ridge:
    """A ridge filter: with ``others`` each item is regressed on others alone, as EASE does."""

    strength: float
    others: bool = True

    def fit(self, positives: Positives, spectrum: Spectrum | None = None) -> Filter:
        spectrum = Spectrum.of(positives) if spectrum is None else spectrum
        weights = spectrum.squares / (spectrum.squares + self.strength)
        own = (spectrum.vectors**2 @ weights) if self.others else torch.zeros_like(spectrum.scale)
        return Filter(spectrum, weights, 1 / (1 - own).clamp(min=_MIN_LEFT))


@dataclass(frozen=True)
class LowPass:
    """An ideal low-pass filter of the normalised table: only its leading vectors count."""

    vectors: int

    def fit(self, positives: Positives, spectrum: Spectrum | None = None) -> Filter:
        spectrum = Spectrum.of(positives, normalised=True) if spectrum is None else spectrum
        spectrum = spectrum.leading(self.vectors)
        return Filter(spectrum, torch.ones_like(spectrum.squares), 1 / spectrum.scale)


@dataclass(frozen=True, eq=False)
class Filter:
    """A filter of a table's spectrum."""

    spectrum: Spectrum
    weights: Tensor  # (K,)
    after: Tensor  # (M,), factors of the items' scores

    def score(self, rows: Tensor) -> Tensor:
        """Score all items for rows of positives: (M, B) -> (M, B)."""
        vectors = self.spectrum.vectors
        inside = vectors.T @ (self.spectrum.scale[:, None] * rows)
        return self.after[:, None] * (vectors @ (self.weights[:, None] * inside))


def _whole(positives: Positives) -> tuple[Tensor, Tensor]:
    """Find all squared singular values (K,) and right vectors (M, K), by the smaller side."""
    users, items = positives.shape
    if items <= users:
        gram = positives.by_item @ positives.by_user.to_dense()
        squares, vectors = torch.linalg.eigh(gram)
        return squares.clamp(min=0), vectors
    gram = positives.by_user @ positives.by_item.to_dense()
    squares, left = torch.linalg.eigh(gram)
    kept = squares > _TINY * squares.max()
    squares, left = squares[kept], left[:, kept]
    return squares, (positives.by_item @ left) / squares.sqrt()


def _leading(positives: Positives, rank: int) -> tuple[Tensor, Tensor]:
    """Find the leading ones by iteration in a subspace."""
    block = _starts(positives, rank + EXTRA_VECTORS)
    for _ in range(ITERATIONS):
        block = torch.linalg.qr(block)[0]
        block = positives.by_item @ (positives.by_user @ block)
    block = torch.linalg.qr(block)[0]
    _, values, right = torch.linalg.svd(positives.by_user @ block, full_matrices=False)
    return values[:rank].square(), block @ right[:rank].T


def _starts(positives: Positives, count: int) -> Tensor:
    """Return pseudo-random vectors (M, K) that do not depend on how members are numbered."""
    _, items = positives.digits()
    steps = torch.arange(1, count + 1, device=items.device, dtype=torch.float64)
    return (((items[:, None] * 97.0 + 1.0) * steps.sqrt() * 13.0) % 1 - 0.5).float()
