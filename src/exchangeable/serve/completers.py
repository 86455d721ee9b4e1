"""Completers of snapshots: new cells are folded in, and what requests need is computed before."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import combinations, repeat

import numpy as np
import polars as pl

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.completion.completer import Completer
from exchangeable.completion.recommend import RecommendQuery, recommend, recommend_to_new
from exchangeable.data.vocabulary import column_of
from exchangeable.predictors.base import MEAN, read_predictions
from exchangeable.serve.snapshot import Change
from exchangeable.storage.facts import Facts

MAX_LISTED = 1 << 17
"""Candidates up to which lists are made to fill caches: of larger tables these take long."""


def fold(completer: Completer, facts: Facts, changes: Sequence[Change]) -> Completer:
    """Return a completer with the cells of all changes, of which the last one of a cell counts."""
    cells = {
        tuple(facts.normalise(axis, label) for axis, label in enumerate(cell)): (value, at)
        for change in changes
        for (cell, value), at in zip(change.cells, change.times or repeat(math.nan), strict=False)
    }
    table = completer.table_
    columns = {
        name: column_of(name, [cell[axis] for cell in cells])
        for axis, name in enumerate(table.axes)
    }
    values, times = np.array(list(cells.values())).T
    folded = copy.copy(completer)
    timed = table.times is not None
    return folded.update(pl.DataFrame(columns), values, times=times if timed else None)


def warm(completer: Completer, *, unseen: bool = False) -> None:
    """Fill what is cached at the first request: lists of a known and of a new member.

    With ``unseen`` also predict members without cells, whose intervals are found by trials once.
    """
    fitted, table = completer.fitted_, completer.table_
    for axis, vocabulary in enumerate(table.vocabularies):
        vocabulary.encode(vocabulary.labels[:1])
        if unseen:
            _predict_unseen(completer, axis)
    candidates = math.prod(table.shape[1:])
    if table.order != 2 or candidates > MAX_LISTED:
        return
    cell = table.index[:1].copy()
    known = RecommendQuery(table.vocabularies[0].labels[int(cell[0, 0])], n=1)
    recommend(fitted, known)
    cell[:, 0] = 0
    recommend_to_new(fitted, known, 0, cell, table.values[:1])


def _predict_unseen(completer: Completer, size: int) -> None:
    """Predict a cell whose members on ``size + 1`` axes are unknown, for all such axes."""
    for axes in combinations(range(completer.table_.order), size + 1):
        cell = completer.table_.index[:1].copy()
        cell[:, axes] = UNKNOWN
        read_predictions(completer.predictor_, cell, MEAN)
