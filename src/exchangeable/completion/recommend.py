"""Recommendations: the best cells of a member that it has not rated, for known and new members."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN, Cells, Floats, Index
from exchangeable.completion.candidates import (
    Candidates,
    Recommendations,
    find_best,
    find_best_by_ranker,
)
from exchangeable.completion.fit import Fitted, check_size
from exchangeable.completion.inputs import (
    check_number,
    check_type,
    find_axis,
    suggest_label,
)
from exchangeable.completion.ratings import (
    VALUE,
    check_distinct,
    check_new_members,
    encode_ratings,
    encode_ratings_of_many,
)
from exchangeable.completion.update import read_new_cells, refresh, update
from exchangeable.data.options import Duplicates
from exchangeable.data.vocabulary import column_of, column_of_label
from exchangeable.errors import InputError
from exchangeable.predictors.base import MEAN, read_predictions
from exchangeable.predictors.best import members_per_read
from exchangeable.predictors.ranking import RankingPredictor


@dataclass(frozen=True, eq=False)
class RecommendQuery:
    """The member to recommend to, and what is known beside the table."""

    member: Any
    n: int = 10
    axis: int | str = 0
    """The member's axis."""
    ratings: Any = None
    """Cells of the member to take into account and not keep: labels to values, or a frame."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Members of other axes that are fixed."""
    duplicates: Duplicates = "error"
    """How to treat several ratings of the same cell."""
    features: Mapping[str, Any] | None = None
    """Features of a new member, by their columns."""
    among: Any = None
    """Labels of the other axis that may be listed, or a mapping from axes to labels; None: all."""
    exclude: Any = None
    """Labels that may not be listed, given in the same way."""
    include_seen: bool = False
    """Whether cells that the member has are listed too."""
    exposure: float = 0.0
    """Deviations of values that a cell counts for more where it is e times as likely to come."""


def recommend(fitted: Fitted, query: RecommendQuery) -> Recommendations:
    """Find the ``n`` best unseen cells of a member."""
    member, table = query.member, fitted.table
    label = column_of_label("member", member)
    axis = find_axis(table, query.axis)
    code = int(table.vocabularies[axis].encode(label)[0])
    row = None
    if query.features is not None:
        if code != UNKNOWN:
            raise InputError(f"features are those of a new member, but {member!r} is known")
        row = encode_features(fitted, axis, query.features)
        query = replace(query, ratings={} if query.ratings is None else query.ratings)
    if query.ratings is None:
        return _find_best(fitted, query, axis, np.array([code]))
    labels, rated, values = encode_ratings(table, member, axis, query.ratings)
    if code == UNKNOWN:
        found = recommend_to_new(fitted, query, axis, rated, values, features=row)
        if found is not None:
            return found
    if row is not None:
        raise InputError(
            f"features of a new member are read by pretrained and residual models, where memory "
            f"is not limited, but this is {fitted.name}: add its cells and features by update"
        )
    if not len(values):
        return recommend(fitted, replace(query, ratings=None))
    added = read_new_cells(table, labels, values, query.duplicates)
    extended = update(fitted, added)
    if (
        isinstance(fitted.predictor, RankingPredictor) and axis != 0
    ):  # items are known to rankers only once they have read them
        extended = refresh(extended)
    return recommend(extended, replace(query, ratings=None))


def recommend_to_many(fitted: Fitted, members: pl.Series, query: RecommendQuery) -> Recommendations:
    """Find the ``n`` best unseen cells of each of many members.

    All of them are known, or all are new and have ``ratings``.
    """
    if query.features is not None:
        raise InputError("features are those of one member, but there are several")
    axis = find_axis(fitted.table, query.axis)
    codes = fitted.table.vocabularies[axis].encode(members)
    unknown = codes == UNKNOWN
    if query.ratings is not None:
        check_new_members(fitted.table, axis, members, codes)
        return _recommend_with_ratings(fitted, query, axis, members)
    if unknown.any():
        name, label = fitted.table.axes[axis], members[int(unknown.argmax())]
        check_type(fitted.table, axis, label)
        hint = suggest_label(fitted.table.vocabularies[axis], label)
        raise InputError(
            f"members must be known, but {int(unknown.sum()):,} of {len(codes):,} are no {name} of "
            f"the table, such as {label!r}{hint}"
        )
    return _find_best(fitted, query, axis, codes)


def _recommend_with_ratings(
    fitted: Fitted, query: RecommendQuery, axis: int, members: pl.Series
) -> Recommendations:
    """Find the best cells of many new members, each from its own ratings."""
    labels, rated, values = encode_ratings_of_many(fitted.table, members, axis, query.ratings)
    found = recommend_to_new(fitted, query, axis, rated, values, count=len(members))
    if found is not None:
        return found
    parts = []
    others = [name for number, name in enumerate(fitted.table.axes) if number != axis]
    frame = labels.select(others).with_columns(pl.Series(VALUE, values))
    for place, label in enumerate(members):
        own = frame.filter(pl.Series(rated[:, axis] == place))
        part = recommend(fitted, replace(query, member=label, ratings=own))
        parts.append(replace(part, member=np.full(len(part.member), place)))
    return Recommendations.joined(axis, parts)


def recommend_to_new(
    fitted: Fitted,
    query: RecommendQuery,
    axis: int,
    rated: Index,
    values: Floats,
    *,
    count: int = 1,
    features: Tensor | None = None,
) -> Recommendations | None:
    """Find the best cells of ``count`` new members from their own cells (E, D) alone.

    Nothing of their axis is copied. None where that needs the other cells too.
    """
    table = fitted.table
    if table.scale.kind == "positives" and not isinstance(fitted.predictor, RankingPredictor):
        return None
    table.scale.check(values)
    if len(values):
        check_size(values)
    check_distinct(table, rated, axis, count)
    candidates = Candidates.of(table, axis, query.given, query.among, query.exclude)
    size, parts = members_per_read(len(candidates)), []
    for start in range(0, count, size):
        block = np.arange(min(size, count - start))
        cells = (rated[:, axis] >= start) & (rated[:, axis] < start + size)
        own, exposure = rated[cells], None
        own[:, axis] -= start
        among = axis, own, values[cells], features
        predictor = fitted.predictor.for_new_members(*among, count=len(block))
        if predictor is None:
            return None
        if query.exposure:
            ones = np.ones(len(own))
            exposure = fitted.exposure.for_new_members(axis, own, ones, count=len(block))
            if exposure is None:
                return None
        found = _find_best(
            replace(fitted, predictor=predictor), query, axis, block, own, exposure, candidates
        )
        parts.append(replace(found, member=found.member + start))
    return Recommendations.joined(axis, parts)


def _find_best(
    fitted: Fitted,
    query: RecommendQuery,
    axis: int,
    codes: Index,
    seen: Index | None = None,
    exposure: RankingPredictor | None = None,
    candidates: Candidates | None = None,
) -> Recommendations:
    """Find the best cells of members, without those ``seen``: by default their own."""
    check_number(query.n)
    table, predictor = fitted.table, fitted.predictor
    if candidates is None:
        candidates = Candidates.of(table, axis, query.given, query.among, query.exclude)
    bonus = None
    if query.exposure:
        bonus = _bonus(query.exposure, exposure or fitted.exposure, fitted.cells)
    if isinstance(predictor, RankingPredictor) and axis == 0:
        unseen, without = not query.include_seen, table.leaves_out_diagonal
        found = find_best_by_ranker(predictor, candidates, codes, query.n + without, unseen=unseen)
        return found.without_diagonal(query.n) if without else found
    cells_of: Callable[[Index], Index] | None = None
    if seen is not None:
        cells_of = None if query.include_seen else lambda _: seen
    elif not query.include_seen or table.leaves_out_diagonal:
        cells_of = partial(_cells_left_out, fitted, axis, include_seen=query.include_seen)
    return find_best(predictor, candidates, codes, query.n, cells_of, bonus)


def _cells_left_out(fitted: Fitted, axis: int, codes: Index, *, include_seen: bool) -> Index:
    """Return the cells of members (B,) that are not listed, with places among these on their axis.

    They are those observed, unless seen ones are included, and those of members of a joint table
    with themselves, unless the table has some of these.
    """
    observed = fitted.cells_of_members(axis, codes[: 0 if include_seen else None])
    if not fitted.table.leaves_out_diagonal:
        return observed
    known = np.flatnonzero(codes >= 0)
    own = np.stack([codes[known]] * 2, axis=1)
    own[:, axis] = known
    return np.concatenate([observed, own])


def _bonus(exposure: float, chances: RankingPredictor, cells: Cells) -> Callable[[Index], Floats]:
    """Return a function that gives cells what they get for the chance to be observed."""
    is_number = isinstance(exposure, int | float | np.integer | np.floating)
    if not is_number or not (math.isfinite(exposure) and exposure > 0):
        raise InputError(f"exposure must be a finite number of at least 0, but is {exposure}")
    unit = float(exposure) * float(cells.values.std())
    return lambda index: unit * np.log(read_predictions(chances, index, MEAN)[0])


def encode_features(fitted: Fitted, axis: int, features: Mapping[str, Any]) -> Tensor:
    """Return the features of a new member, as the prior reads them: (1, F)."""
    described = fitted.features.axes[axis] if fitted.features.axes else None
    if described is None:
        raise InputError(
            f"features need a table that was fitted with some of {fitted.table.axes[axis]}, but "
            f"this one has none"
        )
    if not isinstance(features, Mapping):
        raise InputError(
            f"features of a new member must be a mapping from columns to its own, but are a "
            f"{type(features).__name__}"
        )
    columns = [column_of(str(name), [own]) for name, own in features.items()]
    return torch.from_numpy(described.encode(pl.DataFrame(columns)))
