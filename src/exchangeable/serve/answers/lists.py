"""Lists of recommended cells, of one member or of several together, from one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from exchangeable.arrays.cells import Floats, Index
from exchangeable.completion.candidates import Recommendations
from exchangeable.completion.recommend import (
    RecommendQuery,
    recommend,
    recommend_to_many,
    recommend_to_new,
)
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.serve.snapshot import Snapshot
from exchangeable.storage.facts import Label


@dataclass(frozen=True)
class Contribution:
    """How much one rating changed a prediction."""

    label: Label
    amount: float


@dataclass(frozen=True)
class RecommendedCell:
    """A cell, its prediction, and the contribution of each rating to it."""

    labels: dict[str, Label]
    mean: float
    low: float
    high: float
    why: tuple[Contribution, ...] = ()


@dataclass(frozen=True, eq=False)
class Question:
    """Asks for the best unobserved cells of a member, or of a new one with ratings or features."""

    axis: int
    member: Label | None
    ratings: Sequence[tuple[Label, float]] = ()
    given: Mapping[str, Label] = field(default_factory=dict)
    n: int = 10
    features: Mapping[str, Any] | None = None
    why: bool = False
    progress: Progress = SILENT

    @property
    def weight(self) -> float:
        """How long a list takes to compute, about, in those for ten ratings."""
        return 1 + (len(self.ratings) + self.n) / 100


class Ratings(NamedTuple):
    """Ratings of a new member, read and checked."""

    values: dict[Label, float]
    codes: Index
    """Codes of the labels."""


Answer = tuple[list[RecommendedCell], Snapshot]
"""Recommended cells, and the snapshot that they follow from."""


def rank(snapshot: Snapshot, query: RecommendQuery) -> Recommendations:
    """The best cells, without those of members deleted since the last refresh."""
    best = recommend(snapshot.ready.fitted_, _with_more(snapshot, query))
    return _without_deleted(snapshot, best, query.n)


def rank_known(
    snapshot: Snapshot, query: RecommendQuery, members: Sequence[Label]
) -> list[Recommendations]:
    """The best cells of each of several members; one may come more than once."""
    if len(members) == 1:
        return [rank(snapshot, replace(query, member=members[0]))]
    completer = snapshot.ready
    labels = column_of(completer.table_.axes[int(query.axis)], list(members))
    best = recommend_to_many(completer.fitted_, labels, _with_more(snapshot, query))
    return [_without_deleted(snapshot, best.of_member(n), query.n) for n in range(len(members))]


def rank_new(
    snapshot: Snapshot, query: RecommendQuery, ratings: Sequence[Ratings]
) -> list[Recommendations]:
    """The best cells of each of several new members, by their own ratings."""
    completer, axis, count = snapshot.ready, int(query.axis), len(ratings)
    member = np.repeat(np.arange(count), [len(each.codes) for each in ratings])
    columns = [member, np.concatenate([each.codes for each in ratings])]
    index = np.stack(columns if axis == 0 else columns[::-1], axis=1)
    values = np.array([value for each in ratings for value in each.values.values()], np.float64)
    more = _with_more(snapshot, query)
    best = recommend_to_new(completer.fitted_, more, axis, index, values, count=count)
    if best is None:  # the model needs the cells of others too
        own = (replace(query, ratings=r.values, duplicates=completer.duplicates) for r in ratings)
        return [rank(snapshot, each) for each in own]
    if count == 1:
        return [_without_deleted(snapshot, best, query.n)]
    return [_without_deleted(snapshot, best.of_member(n), query.n) for n in range(count)]


def _with_more(snapshot: Snapshot, query: RecommendQuery) -> RecommendQuery:
    # The pools still contain deleted members, so as many further cells are ranked.
    return replace(query, n=query.n + len(snapshot.deleted_members))


def _without_deleted(snapshot: Snapshot, best: Recommendations, n: int) -> Recommendations:
    keep = np.ones(len(best.cells), dtype=bool)
    for axis, label in snapshot.deleted_members:
        if axis != best.axis:
            code = snapshot.ready.table_.vocabularies[axis].encode(column_of("label", [label]))
            keep &= best.cells[:, axis] != code
    return best.take(np.flatnonzero(keep)[:n])


def to_cells(
    best: Recommendations, table: Table, effects: Sequence[tuple[Label, Floats]] = ()
) -> list[RecommendedCell]:
    columns = best.columns(table)
    names = [name for axis, name in enumerate(table.axes) if axis != best.axis]
    return [
        RecommendedCell(
            {name: columns[name][n] for name in names},
            float(best.mean[n]),
            float(best.low[n]),
            float(best.high[n]),
            tuple(Contribution(label, float(amounts[n])) for label, amounts in effects),
        )
        for n in range(len(best.cells))
    ]
