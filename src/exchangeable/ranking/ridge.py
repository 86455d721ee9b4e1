"""Ridge regression of items on items, as EASE does, or of users on users.

With A the positives both are one filter, A'A (A'A + l)^-1 = A' (AA' + l)^-1 A, which is found by
the smaller side: exactly while a dense matrix of that side fits, and else from the leading
spectrum. EASE, in which an item is regressed on others alone, divides each item by what its own
share h leaves, 1 - h (Steck 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from exchangeable.ranking.positives import Positives, Rows
from exchangeable.ranking.spectrum import Filter, Spectrum

MAX_EXACT = 4096
"""Members of the smaller side up to which the regression is exact."""

_MIN_LEFT = 0.02  # of an item that others explain nearly wholly
_ITEMS_PER_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class ItemRidge:
    """The regression by items: scores are right for items that a row does not have."""

    filter: Tensor  # (M, M)
    left: Tensor  # (M,), 1 - h

    @classmethod
    def of(cls, gram: Tensor, strength: float) -> ItemRidge:
        """Regress with A'A (M, M)."""
        inverse = _inverse(gram, strength)
        # By rows, as sparse products want it; LAPACK gives it by columns.
        return cls((-strength * inverse).contiguous(), strength * inverse.diagonal())

    def score(self, rows: Rows) -> Tensor:
        return (rows.table @ self.filter).T.contiguous()


@dataclass(frozen=True, eq=False)
class UserRidge:
    """The regression by users."""

    positives: Positives
    inverse: Tensor  # (N, N)
    left: Tensor  # (M,), 1 - h

    @classmethod
    def of(cls, positives: Positives, gram: Tensor, strength: float) -> UserRidge:
        """Regress with AA' (N, N)."""
        inverse = _inverse(gram, strength)
        own = []
        for items in torch.arange(positives.shape[1], device=gram.device).split(_ITEMS_PER_CHUNK):
            columns = _columns(positives, items)  # (N, chunk)
            own.append((columns * (inverse @ columns)).sum(dim=0))
        return cls(positives, inverse, 1 - torch.cat(own))

    def score(self, rows: Rows) -> Tensor:
        if self.positives not in rows.found:  # the same for every strength
            rows.found[self.positives] = self.positives.by_user @ rows.columns
        return self.positives.by_item @ (self.inverse @ rows.found[self.positives])


@dataclass(frozen=True, eq=False)
class SpectralRidge:
    """The regression by the leading spectrum, of tables whose sides are both large."""

    filter: Filter
    left: Tensor  # (M,), 1 - h

    @classmethod
    def of(cls, spectrum: Spectrum, strength: float) -> SpectralRidge:
        weights = spectrum.squares / (spectrum.squares + strength)
        return cls(Filter(spectrum, weights), 1 - spectrum.vectors.square() @ weights)

    def score(self, rows: Rows) -> Tensor:
        return self.filter.score(rows)


def others_factor(left: Tensor) -> Tensor:
    """Return the factors of items by which the filter becomes EASE: (M,)."""
    return 1 / left.clamp(min=_MIN_LEFT)


def _inverse(gram: Tensor, strength: float) -> Tensor:
    precision = gram.clone()
    precision.diagonal().add_(strength)
    return torch.cholesky_inverse(torch.linalg.cholesky(precision))


def _columns(positives: Positives, items: Tensor) -> Tensor:
    """Return the columns of items, dense: (N, B)."""
    chosen = positives.per_item.new_zeros(positives.shape[1], len(items))
    chosen[items, torch.arange(len(items), device=items.device)] = 1
    return positives.by_user @ chosen
