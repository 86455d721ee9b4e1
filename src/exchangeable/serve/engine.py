"""The service's engine: predictions and recommendations from an immutable snapshot of the table.

Every call reads one snapshot from start to end. A ``Refresher`` replaces the snapshot in the
background, so a call neither waits for changes nor sees half of one.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import polars as pl

from exchangeable.arrays.cells import UNKNOWN, Floats, Index
from exchangeable.completion.candidates import Recommendations
from exchangeable.completion.effects import effects_of_ratings
from exchangeable.completion.recommend import RecommendQuery, recommend
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of
from exchangeable.errors import InputError
from exchangeable.predictors.base import (
    MEAN,
    PROBABILITIES,
    interval_ends,
    read_predictions,
)
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.serve.call import Call, Ended
from exchangeable.serve.refresher import MakeCompleter, Refresher
from exchangeable.serve.snapshot import Snapshot
from exchangeable.storage.facts import Cell, Label, Time
from exchangeable.storage.store import Store

T = TypeVar("T")

MAX_CANDIDATES = 1_000_000
"""Maximum number of cells compared for one recommendation."""
_UNUSED_LABELS: dict[bool, Label] = {False: "\x00", True: -(2**62)}
"""Labels that no member can have, by whether labels are whole numbers: for new members."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for Q cells: (Q,) each, and (Q, L) for a scale with L levels."""

    mean: Floats
    low: Floats
    high: Floats
    probabilities: Floats | None


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


class Engine:
    """Predicts from the snapshot of a ``Refresher``, in as many threads as there are cores."""

    def __init__(self, store: Store, make: MakeCompleter) -> None:
        self.store = store
        self.refresher = Refresher(store, make)
        # More threads than cores would get in each other's way, at a third of the pace; and every
        # thread that ever predicted keeps some memory for the next time.
        self._workers = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="predicting")

    @property
    def snapshot(self) -> Snapshot:
        return self.refresher.snapshot

    def close(self) -> None:
        """Stop all threads and close the database."""
        self.refresher.close()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    def predict(
        self,
        cells: Sequence[Cell],
        coverage: float,
        times: Sequence[Time] | None = None,
    ) -> tuple[Predictions, Snapshot]:
        """Mean, interval and, on a scale with levels, probabilities of cells.

        ``times`` are those of the cells; without them they are the latest.
        """
        snapshot = self.snapshot
        completer = snapshot.ready
        index = self._index(snapshot, cells)
        at = None if times is None else self.store.facts.read_times(times, len(cells))
        statistics = [MEAN, *interval_ends(coverage)]
        if completer.levels_:
            statistics.append(PROBABILITIES)
        mean, low, high, *probabilities = read_predictions(
            completer.predictor_, index, *statistics, times=at
        )
        return Predictions(mean, low, high, probabilities[0] if probabilities else None), snapshot

    def recommend(
        self,
        axis: int,
        member: Label | None,
        ratings: Sequence[tuple[Label, float]],
        given: Mapping[str, Label],
        n: int,
        *,
        features: Mapping[str, Any] | None = None,
        why: bool = False,
        progress: Progress = SILENT,
    ) -> tuple[list[RecommendedCell], Snapshot]:
        """Rank the unobserved cells of a member, or of a new one with these ratings or features."""
        snapshot = self.snapshot
        completer = snapshot.ready
        table = completer.table_
        _check_candidates(table, axis, given)
        if member is not None:
            self._check_members(snapshot, axis, [member])
            fixed = {name: self._given_label(snapshot, name, one) for name, one in given.items()}
            label = self.store.facts.normalise(axis, member)
            query = RecommendQuery(label, n, axis, None, fixed, completer.duplicates)
            return _to_cells(_rank(snapshot, query), table), snapshot
        if table.order != 2:
            raise InputError(f"ratings need a table with two axes, but this one has {table.order}")
        other = 1 - axis
        rated = {self.store.facts.normalise(other, label): value for label, value in ratings}
        if len(rated) < len(ratings):
            raise InputError("every rating must be of another member, but one comes twice")
        self._check_members(snapshot, other, list(rated))
        unused = _UNUSED_LABELS[self.store.facts.whole[axis]]
        query = RecommendQuery(unused, n, axis, rated, {}, completer.duplicates, features)
        best = _rank(snapshot, query)
        effects = effects_of_ratings(completer, query, best.cells, progress) if why else []
        return _to_cells(best, table, effects), snapshot

    def members(self, axis: int, holding: str, limit: int) -> list[tuple[Label, int]]:
        """Labels that contain a text, with their numbers of cells, the most frequent first."""
        snapshot = self.snapshot
        if snapshot.completer is None:
            return []
        table = snapshot.completer.table_
        labels = table.vocabularies[axis].labels
        texts = labels.cast(pl.String).str.to_lowercase()
        matches = texts.str.contains(holding.lower(), literal=True).to_numpy()
        for where, label in snapshot.deleted_members:
            if where == axis:
                matches &= (labels != label).to_numpy()
        counts = table.cells_per_member(axis)
        permutation = np.argsort(-counts, kind="stable")
        best = permutation[matches[permutation]][:limit]
        return [(labels[int(n)], int(counts[n])) for n in best]

    def run(self, task: Callable[[], T], call: Call) -> T:
        """Run a task in a worker thread, and wait for its result, but not longer than its call."""
        future, over = self._workers.submit(task), threading.Event()
        future.add_done_callback(lambda _: over.set())
        call.on_end(future.cancel)
        call.on_end(over.set)
        over.wait()
        call.check()  # a task that has begun ends by itself, where it checks the call
        try:
            return future.result()
        except CancelledError:
            raise Ended("the service stops") from None

    # Labels ------------------------------------------------------------------------------

    def _check_members(self, snapshot: Snapshot, axis: int, labels: Sequence[Label]) -> None:
        unknown = self._encode(snapshot, axis, labels) == UNKNOWN
        if unknown.any():
            label = labels[int(unknown.argmax())]
            raise InputError(f"{self.store.facts.axes[axis]} {label!r} is not in the table")

    def _given_label(self, snapshot: Snapshot, name: str, label: Label) -> Label:
        axes = self.store.facts.axes
        if name not in axes:
            raise InputError(f"given must name axes of {', '.join(axes)}, but names {name[:60]!r}")
        self._check_members(snapshot, axes.index(name), [label])
        return self.store.facts.normalise(axes.index(name), label)

    def _encode(self, snapshot: Snapshot, axis: int, labels: Sequence[Label]) -> Index:
        """Codes of labels; labels of unknown and of deleted members are ``UNKNOWN``."""
        table = snapshot.ready.table_
        normalised = [self.store.facts.normalise(axis, label) for label in labels]
        codes = table.vocabularies[axis].encode(column_of(table.axes[axis], normalised))
        for where, deleted in snapshot.deleted_members:
            if where == axis:
                codes = np.where([label == deleted for label in normalised], UNKNOWN, codes)
        return codes

    def _index(self, snapshot: Snapshot, cells: Sequence[Cell]) -> Index:
        """Coordinates of cells, (Q, D)."""
        axes = self.store.facts.axes
        for cell in cells:
            self.store.facts.check_length(cell)
        columns = [
            self._encode(snapshot, axis, [cell[axis] for cell in cells])
            for axis in range(len(axes))
        ]
        return np.stack(columns, axis=1)


def _check_candidates(table: Table, axis: int, given: Mapping[str, Label]) -> None:
    """Raise if one call would compare so many cells that all others wait for it."""
    free = [size for other, size in enumerate(table.shape)
            if other != axis and table.axes[other] not in given]  # fmt: skip
    if math.prod(free) > MAX_CANDIDATES:
        raise InputError(
            f"at most {MAX_CANDIDATES:,} cells are compared in a call, but there are "
            f"{math.prod(free):,}; fix members of other axes with given"
        )


def _rank(snapshot: Snapshot, query: RecommendQuery) -> Recommendations:
    """The best cells, without those of members deleted since the last refresh."""
    # The pools still contain these members, so as many further cells are ranked.
    more = replace(query, n=query.n + len(snapshot.deleted_members))
    best = recommend(snapshot.ready.fitted_, more)
    keep = np.ones(len(best.cells), dtype=bool)
    for axis, label in snapshot.deleted_members:
        if axis != best.axis:
            code = snapshot.ready.table_.vocabularies[axis].encode(column_of("label", [label]))
            keep &= best.cells[:, axis] != code
    rows = np.flatnonzero(keep)[: query.n]
    return best.take(rows)


def _to_cells(
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
