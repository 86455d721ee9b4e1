"""Rows of variances of a posterior, kept from query to query while its tables do not change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from exchangeable.baselines.factorization import VectorLayout, pair_variance_rows

MAX_KEPT = 1 << 23
"""Entries of covariances up to which what follows from them is kept."""


class _Rows(NamedTuple):
    """Rows of variances, with the tables that they follow from."""

    means: Tensor
    covariances: Tensor
    versions: tuple[int, ...]
    rows: Tensor  # (N + 1, K)


@dataclass(eq=False)
class KeptRows:
    """Rows of variances of the members of an axis, by the other axis that they are for.

    They are computed for all members once as many cells were queried, and until then for each
    query: after an update only few may come.
    """

    _rows: dict[int, _Rows] = field(default_factory=dict)
    _queries: dict[int, int] = field(default_factory=dict)

    def of(
        self,
        layout: VectorLayout,
        axis: int,
        other: int,
        tables: tuple[Tensor, Tensor],
        queries: int,
    ) -> Tensor | None:
        """Return the rows of ``axis`` for an other one, from its means and covariances.

        None where they are too large to be kept, where too few cells were queried so far, these
        ``queries`` included, or where the tables count no changes.
        """
        means, covariances = tables
        if any(table.is_inference() for table in tables) or covariances.numel() > MAX_KEPT:
            return None
        versions, kept = tuple(table._version for table in tables), self._rows.get(other)
        is_of = kept is not None and kept.means is means and kept.covariances is covariances
        if kept is not None and is_of and kept.versions == versions:
            return kept.rows
        self._queries[other] = self._queries.get(other, 0) + queries
        if self._queries[other] < len(means):
            return None
        rows = pair_variance_rows(layout, axis, other, *tables)
        self._rows[other] = _Rows(*tables, versions, rows)
        return rows
