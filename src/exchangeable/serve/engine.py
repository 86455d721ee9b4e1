"""The service's engine: predictions and recommendations from an immutable snapshot of the table.

Every call reads one snapshot from start to end. A ``Refresher`` replaces the snapshot in the
background, so a call neither waits for changes nor sees half of one.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import polars as pl

from exchangeable.arrays.cells import UNKNOWN, Floats, Index
from exchangeable.completion import fit
from exchangeable.completion.effects import effects_of_ratings
from exchangeable.completion.recommend import (
    RecommendQuery,
)
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of
from exchangeable.errors import InputError
from exchangeable.predictors.base import (
    MEAN,
    PROBABILITIES,
    interval_ends,
    read_predictions,
)
from exchangeable.predictors.ranking import RankingPredictor
from exchangeable.serve.answers.batches import Workers
from exchangeable.serve.answers.lists import (
    Answer,
    Question,
    Ratings,
    rank,
    rank_known,
    rank_new,
    to_cells,
)
from exchangeable.serve.call import Call
from exchangeable.serve.refresher import MakeCompleter, Refresher
from exchangeable.serve.snapshot import Snapshot
from exchangeable.serve.state import State
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


class Engine:
    """Predicts from the snapshot of a ``Refresher``, in as many threads as there are cores."""

    def __init__(self, store: Store, make: MakeCompleter, state: State | None = None) -> None:
        self.store = store
        self.refresher = Refresher(store, make, state)
        self._workers = Workers(os.cpu_count() or 1)

    @property
    def snapshot(self) -> Snapshot:
        return self.refresher.snapshot

    def close(self) -> None:
        """Stop all threads and close the database."""
        self.refresher.close()
        self._workers.close()
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

    def recommend(self, question: Question) -> Answer:
        """Recommend cells of a member."""
        if not self._goes_together(question):
            return self._recommend_alone(question)
        (answer,) = self._recommend_together([question])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def respond(self, question: Question, write: Callable[[Answer], T], call: Call) -> T:
        """Recommend in a worker thread, and write the response there.

        What waits at the same time is computed together where that is faster, each as if alone.
        """
        if not self._goes_together(question):
            return self.run(lambda: write(self._recommend_alone(question)), call)
        query = question, write
        written: T = self._workers.run(self._respond_together, query, call, question.weight)
        return written

    def _respond_together(
        self, queries: Sequence[tuple[Question, Callable[[Answer], T]]]
    ) -> list[T | Exception]:
        answers = self._recommend_together([question for question, _ in queries])
        return [
            answer if isinstance(answer, Exception) else write(answer)
            for answer, (_, write) in zip(answers, queries, strict=True)
        ]

    def _goes_together(self, question: Question) -> bool:
        """Whether several such questions are answered faster together.

        So are new members, and with a ranker of positives known users: it multiplies matrices. For
        known members of other tables it takes as long, if not longer.
        """
        if question.member is None:
            return question.features is None and not question.why
        ranks = isinstance(self.snapshot.ready.predictor_, RankingPredictor)
        return ranks and question.axis == 0 and not question.given

    def _recommend_together(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """Recommend to several members; errors are those of the questions they belong to."""
        snapshot = self.snapshot
        table, answers = snapshot.ready.table_, dict[int, Answer | Exception]()
        alike: defaultdict[tuple[int, int, bool], list[tuple[int, Any]]] = defaultdict(list)
        for place, question in enumerate(questions):
            new = question.member is None
            try:
                read = self._read_ratings if new else self._read_member
                own = read(snapshot, question)
            except InputError as error:
                answers[place] = error
            else:
                alike[question.axis, question.n, new].append((place, own))
        for (axis, n, new), some in alike.items():
            query = RecommendQuery(self._unused(axis), n, axis)
            rank = rank_new if new else rank_known
            lists = rank(snapshot, query, [own for _, own in some])
            for (place, _), best in zip(some, lists, strict=True):
                answers[place] = to_cells(best, table), snapshot
        return [answers[place] for place in range(len(questions))]

    def _recommend_alone(self, question: Question) -> Answer:
        snapshot, axis = self.snapshot, question.axis
        completer = snapshot.ready
        if question.member is None:
            ratings = self._read_ratings(snapshot, question)
            query = RecommendQuery(
                self._unused(axis),
                question.n,
                axis,
                ratings.values,
                {},
                completer.duplicates,
                question.features,
            )
            best = rank(snapshot, query)
            why = question.why
            effects = (
                effects_of_ratings(completer, query, best.cells, question.progress) if why else []
            )
            return to_cells(best, completer.table_, effects), snapshot
        label = self._read_member(snapshot, question)
        fixed = {
            name: self._given_label(snapshot, name, one) for name, one in question.given.items()
        }
        query = RecommendQuery(label, question.n, axis, None, fixed, completer.duplicates)
        return to_cells(rank(snapshot, query), completer.table_), snapshot

    def _read_member(self, snapshot: Snapshot, question: Question) -> Label:
        """Return the label of a known member; raise if it is not in the table."""
        assert question.member is not None
        _check_candidates(snapshot.ready.table_, question.axis, question.given)
        self._check_members(snapshot, question.axis, [question.member])
        return self.store.facts.normalise(question.axis, question.member)

    def _read_ratings(self, snapshot: Snapshot, question: Question) -> Ratings:
        """Read and check the ratings of a new member."""
        axis, table = question.axis, snapshot.ready.table_
        _check_candidates(table, axis, question.given)
        if table.order != 2:
            raise InputError(f"ratings need a table with two axes, but this one has {table.order}")
        other, facts = 1 - axis, self.store.facts
        values = {facts.normalise(other, label): value for label, value in question.ratings}
        if len(values) < len(question.ratings):
            raise InputError("every rating must be of another member, but one comes twice")
        codes = self._check_members(snapshot, other, list(values))
        if values:
            numbers = np.array(list(values.values()), dtype=np.float64)
            table.scale.check(numbers)
            fit.check_size(numbers)
        return Ratings(values, codes)

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
        result: T = self._workers.run(_run_all, task, call, math.inf)
        return result

    # Labels ------------------------------------------------------------------------------

    def _unused(self, axis: int) -> Label:
        """A label that no member of an axis has."""
        return _UNUSED_LABELS[self.store.facts.whole[axis]]

    def _check_members(self, snapshot: Snapshot, axis: int, labels: Sequence[Label]) -> Index:
        """Return the codes of members; raise if one is not in the table."""
        codes = self._encode(snapshot, axis, labels)
        unknown = codes == UNKNOWN
        if unknown.any():
            label = labels[int(unknown.argmax())]
            raise InputError(f"{self.store.facts.axes[axis]} {label!r} is not in the table")
        return codes

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


def _run_all(tasks: Sequence[Callable[[], T]]) -> list[T]:
    return [task() for task in tasks]
