"""The spectrum of a table of positives: leading singular vectors, and low-pass filters of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exchangeable.ranking.positives import Positives, Rows
from exchangeable.runtime.cache import cached_property

MAX_WHOLE = 1024
"""Members of the smaller side up to which the whole spectrum is found."""

RANK = 256
"""Singular vectors beyond that."""

EXTRA_VECTORS = 64
ITERATIONS = 6
ITERATIONS_FROM_START = 2
_TINY = 1e-6


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values and the items' vectors of a table, after items were scaled."""

    squares: Tensor  # (K,), of the singular values, descending
    vectors: Tensor  # (M, K)
    scale: Tensor  # (M,), factors of the items

    @classmethod
    def of(
        cls,
        positives: Positives,
        *,
        normalised: bool = False,
        rank: int = RANK,
        start: Spectrum | None = None,
    ) -> Spectrum:
        """Decompose positives; with ``normalised`` each entry over the roots of its counts.

        ``start`` is the spectrum of nearly the same table: fewer iterations are needed then.
        """
        scale = torch.ones_like(positives.per_item)
        if normalised:
            scale = (positives.per_item + 1) ** -0.5
            positives = positives.scaled((positives.per_user + 1) ** -0.5, scale)
        if min(positives.shape) <= max(MAX_WHOLE, rank):
            squares, vectors = _whole(positives)
            return cls(squares[:rank], vectors[:, :rank], scale)
        return cls(*_leading(positives, rank, start), scale)

    def leading(self, count: int) -> Spectrum:
        """Return the largest part of the spectrum only."""
        return replace(self, squares=self.squares[:count], vectors=self.vectors[:, :count])

    @cached_property
    def by_vector(self) -> Tensor:
        """The vectors one after the other (K, M), which one row is scored by in a fifth of time."""
        return self.vectors.T.contiguous()

    def inside(self, rows: Rows) -> Tensor:
        """Return the coordinates of rows: (K, B)."""
        return (rows.scaled(self.scale) @ self.vectors).T


@dataclass(frozen=True, eq=False)
class Filter:
    """A filter of a spectrum, before items are scaled."""

    spectrum: Spectrum
    weights: Tensor  # (K,)

    def score(self, rows: Rows) -> Tensor:
        return self.spectrum.by_vector.T @ (self.weights[:, None] * self.spectrum.inside(rows))


def _whole(positives: Positives) -> tuple[Tensor, Tensor]:
    """Find all squared singular values (K,) and right vectors (M, K), by the smaller side."""
    users, items = positives.shape
    if items <= users:
        gram = positives.by_item @ positives.by_user.to_dense()
        squares, vectors = _eigenvectors(gram)
        return squares.clamp(min=0).flip(0), vectors.flip(1)
    gram = positives.by_user @ positives.by_item.to_dense()
    squares, left = (found.flip(-1) for found in _eigenvectors(gram))
    kept = squares > _TINY * squares.max()
    squares, left = squares[kept], left[:, kept]
    return squares, (positives.by_item @ left) / squares.sqrt()


def _leading(positives: Positives, rank: int, start: Spectrum | None) -> tuple[Tensor, Tensor]:
    """Find the leading ones by iteration in a subspace."""
    block, iterations = _starts(positives, rank + EXTRA_VECTORS), ITERATIONS
    if start is not None:
        block[:, : start.vectors.shape[1]] = start.vectors
        iterations = ITERATIONS_FROM_START
    for _ in range(iterations):
        block = _orthonormal(block)
        block = positives.by_item @ (positives.by_user @ block)
    block = _orthonormal(block)
    reached = positives.by_user @ block
    squares, turn = _eigenvectors(reached.T @ reached)
    largest = turn.flip(1)[:, :rank]
    return squares.flip(0)[:rank].clamp(min=0), block @ largest


def _eigenvectors(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Find eigenvalues, ascending, and vectors of a symmetric matrix."""
    double = gram.double()
    try:
        values, vectors = torch.linalg.eigh(double)
    except RuntimeError:  # cuSOLVER gives up where many values are equal
        values, vectors = torch.linalg.eigh(double.cpu())
    return values.to(gram), vectors.to(gram)


def _orthonormal(block: Tensor) -> Tensor:
    return torch.linalg.qr(block)[0]


def _starts(positives: Positives, count: int) -> Tensor:
    """Return pseudo-random vectors (M, K) that do not depend on how members are numbered."""
    _, items = positives.digits
    steps = torch.arange(1, count + 1, device=items.device, dtype=torch.float64)
    return (((items[:, None] * 97.0 + 1.0) * steps.sqrt() * 13.0) % 1 - 0.5).float()
