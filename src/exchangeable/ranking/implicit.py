"""Implicit factors: a factorization in which all that is not observed is a weak zero.

Users' and items' vectors are solved in turn by weighted least squares (Hu, Koren and Volinsky
2008): observed cells have the target 1 and the weight 1 + w s, with s their strength, all others
the target 0 and the weight 1. Vectors start from the normalised table's singular vectors, so
nothing is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from exchangeable.ranking.positives import Positives, Rows
from exchangeable.ranking.spectrum import Spectrum
from exchangeable.runtime.cache import cached_property

ENTRIES_PER_BATCH = {"cpu": 1 << 13, "cuda": 1 << 20}
"""Observed cells of members that are solved together, with those that fill up shorter rows. Their
vectors should stay in the processor's cache: with 2^19 a fit of ML-1M takes four times as long."""

ROUNDS = 6
"""Rounds over items and users."""
ROUNDS_FROM_START = 2

STEPS_FROM_START = 3
"""Steps of conjugate gradients in each round."""
STEPS_FROM_NOTHING = 6
"""Steps where vectors have no start. With the diagonal matrix of inner products that vectors of
fitted items have, they end within a thousandth of the solution."""

_TINY = 1e-20


@dataclass(frozen=True)
class ImplicitFactors:
    """The settings of a factorization of positives."""

    rank: int = 128
    weight: float = 2.0
    regularisation: float = 0.1
    """Strength of the ridge for each unit of weight of a member's cells."""
    unseen: float = 1e-3
    """Weight in this of a cell that is not observed."""

    def fit(
        self, positives: Positives, spectrum: Spectrum, start: FittedFactors | None = None
    ) -> FittedFactors:
        """Fit from the spectrum of the normalised table, or from factors of nearly the same table.

        From the latter fewer rounds are needed.
        """
        rounds = ROUNDS if start is None else ROUNDS_FROM_START
        if start is None:
            first = spectrum.leading(self.rank)
            items = first.vectors * first.squares**0.25
        else:
            items = start.items
        users = self.solve(positives.by_user, items)
        for _ in range(rounds):
            items = self.solve(positives.by_item, users, items)
            users = self.solve(positives.by_user, items, users)
        # Turned so that their inner products are a diagonal matrix, which solves fast.
        _, turn = torch.linalg.eigh((items.T @ items).double())
        return FittedFactors(self, items @ turn.to(items))

    def solve(
        self,
        table: Tensor,
        others: Tensor,
        start: Tensor | None = None,
        gram: Tensor | None = None,
    ) -> Tensor:
        """Solve for the vectors of the rows of a sparse table, given those of its columns.

        With a ``start`` fewer steps are taken. ``gram`` are inner products of the others, where
        they are known.
        """
        starts, columns = table.crow_indices().long(), table.col_indices().long()
        sizes, strengths = starts.diff(), table.values()
        even = bool((strengths == 1).all())
        result = others.new_zeros(len(sizes), others.shape[1])
        padded = others
        if len(sizes) > 1:  # one row needs no filling up
            padded = torch.cat([others, others.new_zeros(1, others.shape[1])])
        gram = others.T @ others if gram is None else gram
        last = len(columns) - 1
        for rows in _batches(sizes):
            places = torch.arange(int(sizes[rows].max()), device=columns.device)
            inside = places < sizes[rows][:, None]
            at = (starts[rows][:, None] + places).clamp(max=last)
            own = padded[torch.where(inside, columns[at], len(others))]  # (B, L, K)
            own_strengths = None if even else strengths[at] * inside  # (B, L)
            total = sizes[rows] if own_strengths is None else own_strengths.sum(dim=1)
            ridge = self.regularisation * (self.weight * total + self.unseen * len(others))
            first = result[rows] if start is None else start[rows]
            steps = STEPS_FROM_NOTHING if start is None else STEPS_FROM_START
            result[rows] = self._improve(first, own, own_strengths, gram, ridge, steps)
        return result

    def _improve(
        self,
        start: Tensor,
        own: Tensor,
        strengths: Tensor | None,
        gram: Tensor,
        ridge: Tensor,
        steps: int,
    ) -> Tensor:
        """Take steps of conjugate gradients from vectors (B, K), preconditioned by the diagonal.

        ``own`` (B, L, K) are the vectors of the observed cells' items, ``strengths`` (B, L) those
        of the cells; None: all 1.
        """
        weighted = own if strengths is None else own * strengths[:, :, None]

        def product(vectors: Tensor) -> Tensor:
            reached = (own @ vectors[:, :, None]).transpose(1, 2)
            observed = self.weight * (reached @ weighted).squeeze(1)
            return observed + vectors @ gram + ridge[:, None] * vectors

        diagonal = self.weight * (own * weighted).sum(dim=1) + gram.diagonal() + ridge[:, None]
        found = start.clone()
        left = own.sum(dim=1) + self.weight * weighted.sum(dim=1) - product(found)
        direction = left / diagonal
        size = (left * direction).sum(dim=1, keepdim=True)
        for _ in range(steps):
            along = product(direction)
            length = size / (direction * along).sum(dim=1, keepdim=True).clamp(min=_TINY)
            found += length * direction
            left -= length * along
            towards = left / diagonal
            before, size = size, (left * towards).sum(dim=1, keepdim=True)
            direction = towards + size / before.clamp(min=_TINY) * direction
        return found


@dataclass(frozen=True, eq=False)
class FittedFactors:
    """Vectors of the items; a user's follows from its own cells."""

    factors: ImplicitFactors
    items: Tensor  # (M, K)

    @cached_property
    def gram(self) -> Tensor:
        return self.items.T @ self.items

    @cached_property
    def by_factor(self) -> Tensor:
        """The vectors' elements one after the other (K, M), in which one row is scored faster."""
        return self.items.T.contiguous()

    def score(self, rows: Rows) -> Tensor:
        return self.by_factor.T @ self.factors.solve(rows.table, self.items, gram=self.gram).T


def _batches(sizes: Tensor) -> list[Tensor]:
    """Divide rows with entries into batches of like sizes."""
    ascending = sizes.argsort(stable=True)
    lengths, batches = sizes[ascending].tolist(), []
    limit = ENTRIES_PER_BATCH[sizes.device.type]
    start = int((sizes == 0).sum())
    while start < len(lengths):
        end = start + 1
        # Rows are filled up to the longest of their batch, which is the last one.
        while end < len(lengths) and (end + 1 - start) * lengths[end] <= limit:
            end += 1
        batches.append(ascending[start:end])
        start = end
    return batches
