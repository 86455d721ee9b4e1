"""Metrics of ranked lists, such as ``recall@20``: one figure for each user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exchangeable.arrays.cells import Floats
from exchangeable.errors import InputError

KINDS = ("recall", "precision", "ndcg", "hit", "mrr")


@dataclass(frozen=True)
class RankingMetric:
    """A metric of the first ``n`` places.

    >>> hits = np.array([[0.0, 1.0, 1.0]])
    >>> RankingMetric.parse("recall@2").of(hits, np.array([4.0])).tolist()
    [0.25]
    """

    kind: str
    n: int

    @classmethod
    def parse(cls, text: str) -> RankingMetric:
        """Read a name and a number of places, as in ``ndcg@10``."""
        kind, at, places = text.strip().partition("@")
        if kind not in KINDS or not at or not places.isdecimal() or int(places) < 1:
            raise InputError(
                f"a metric must be one of {', '.join(KINDS)} with a number of places, as in "
                f"recall@20, but is {text!r}"
            )
        return cls(kind, int(places))

    def __str__(self) -> str:
        return f"{self.kind}@{self.n}"

    def of(self, hits: Floats, counts: Floats) -> Floats:
        """Compute it from hits of U users' lists (U, K), best first, and their held-out items (U,).

        NDCG is divided by that of the best list there can be, and recall by all held-out items.
        """
        first = hits[:, : self.n]
        length = max(first.shape[1], int(min(self.n, counts.max())))
        discounts: Floats = 1 / np.log2(np.arange(2, length + 2))
        if self.kind == "recall":
            return first.sum(axis=1) / counts
        if self.kind == "precision":
            return first.sum(axis=1) / self.n
        if self.kind == "ndcg":
            best = np.cumsum(discounts)[np.minimum(counts, self.n).astype(int) - 1]
            return np.asarray(first @ discounts[: first.shape[1]] / best)
        if self.kind == "hit":
            return np.asarray(first.any(axis=1), dtype=np.float64)
        places = np.arange(1, first.shape[1] + 1)
        reciprocal: Floats = (first / places).max(axis=1, initial=0.0)
        return reciprocal


def parse_metrics(text: str) -> tuple[RankingMetric, ...]:
    """Read metrics separated by commas."""
    return tuple(dict.fromkeys(RankingMetric.parse(part) for part in text.split(",")))


def longest(metrics: Sequence[RankingMetric]) -> int:
    """Return the number of places that metrics need."""
    return max(metric.n for metric in metrics)
