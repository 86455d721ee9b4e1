"""Recommendations: the best cells of a member that it has not rated, for known and new members."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN, Cells, Floats, Index, cell_keys
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
    is_many,
    suggest_label,
)
from exchangeable.completion.update import read_new_cells, refresh, update
from exchangeable.data.frames import frame_of
from exchangeable.data.numerals import Numerals
from exchangeable.data.options import Duplicates
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of, column_of_label
from exchangeable.errors import InputError
from exchangeable.predictors.base import MEAN, read_predictions
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
    # Only a new member's own cells are computed, and nothing of its axis is copied.
    ranks = isinstance(fitted.predictor, RankingPredictor)
    if code == UNKNOWN and (ranks or table.scale.kind != "positives"):
        table.scale.check(values)
        if len(values):
            check_size(values)
        check_distinct(table, rated, axis)
        predictor = fitted.predictor.for_new_member(axis, rated, values, row)
        if predictor is not None:
            own = replace(fitted, predictor=predictor)
            exposure = None
            if query.exposure:
                exposure = fitted.exposure.for_new_member(axis, rated, np.ones(len(rated)))
            if exposure is not None or not query.exposure:
                return _find_best(own, query, axis, np.array([0]), rated, exposure)
    if row is not None:
        raise InputError(
            f"features of a new member are read by pretrained and residual models, where memory "
            f"is not limited, but this is {fitted.name}: add its cells and features by update"
        )
    if not len(values):
        return recommend(fitted, replace(query, ratings=None))
    added = read_new_cells(table, labels, values, query.duplicates)
    extended = update(fitted, added)
    if ranks and axis != 0:  # items are known to rankers only once they have read them
        extended = refresh(extended)
    return recommend(extended, replace(query, ratings=None))


def recommend_to_many(fitted: Fitted, members: pl.Series, query: RecommendQuery) -> Recommendations:
    """Find the ``n`` best unseen cells of each of many members, all of them known."""
    if query.ratings is not None or query.features is not None:
        raise InputError("ratings and features are those of one member, but there are several")
    axis = find_axis(fitted.table, query.axis)
    codes = fitted.table.vocabularies[axis].encode(members)
    unknown = codes == UNKNOWN
    if unknown.any():
        name, label = fitted.table.axes[axis], members[int(unknown.argmax())]
        check_type(fitted.table, axis, label)
        hint = suggest_label(fitted.table.vocabularies[axis], label)
        raise InputError(
            f"members must be known, but {int(unknown.sum()):,} of {len(codes):,} are no {name} of "
            f"the table, such as {label!r}{hint}"
        )
    return _find_best(fitted, query, axis, codes)


def _find_best(
    fitted: Fitted,
    query: RecommendQuery,
    axis: int,
    codes: Index,
    seen: Index | None = None,
    exposure: RankingPredictor | None = None,
) -> Recommendations:
    """Find the best cells of members, without those ``seen``: by default their own."""
    check_number(query.n)
    table = fitted.table
    candidates = Candidates.of(table, axis, query.given, query.among, query.exclude)
    predictor = fitted.predictor
    bonus = None
    if query.exposure:
        bonus = _bonus(query.exposure, exposure or fitted.exposure, fitted.cells)
    if isinstance(predictor, RankingPredictor) and axis == 0:
        unseen = not query.include_seen
        return find_best_by_ranker(predictor, candidates, codes, query.n, unseen=unseen)
    cells_of = None
    if not query.include_seen:
        cells_of = _cells_by_member(table, axis, codes) if seen is None else lambda _: seen
    return find_best(predictor, table, candidates, codes, query.n, cells_of, bonus)


def _cells_by_member(table: Table, axis: int, members: Index) -> Callable[[int], Index]:
    """Return a function from a member's code to its observed cells; a stranger has none."""
    index, values = table.index, table.values
    if len(members) > 1:
        permutation = np.argsort(index[:, axis], kind="stable")
        codes = index[permutation, axis]

    def cells_of(code: int) -> Index:
        if len(members) == 1:  # sorting all cells would take longer than finding its own
            rows = np.flatnonzero(index[:, axis] == code)
        else:
            rows = permutation[slice(*np.searchsorted(codes, [code, code + 1]))]
        return index[rows[~np.isnan(values[rows])]]

    return cells_of


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


def encode_ratings(
    table: Table, member: Any, axis: int, ratings: Any
) -> tuple[pl.DataFrame, Index, Floats]:
    """Read cells of one member from a mapping or a frame: labels, coordinates and values.

    The member itself gets the coordinate 0.
    """
    others = [name for n, name in enumerate(table.axes) if n != axis]
    labels, values = _split_ratings(others, ratings, table.scale.kind == "positives")
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        rated = ", ".join(repr(column[row]) for column in labels.values())
        raise InputError(f"the rating of {rated} must be a finite number, but is {values[row]}")
    index = np.zeros((len(values), table.order), dtype=np.int64)
    for name, column in labels.items():
        if column.dtype.is_nested():
            raise InputError(
                f"ratings must be of labels of {name}, numbers, texts or dates, but are of "
                f"{column.dtype}"
            )
        vocabulary = table.vocabularies[table.axes.index(name)]
        codes = vocabulary.encode(column)
        index[:, table.axes.index(name)] = codes
        if (codes == UNKNOWN).any():
            label = column[int((codes == UNKNOWN).argmax())]
            hint = suggest_label(vocabulary, label)
            raise InputError(f"ratings must be of known {name}, but {label!r} is not known{hint}")
    labels[table.axes[axis]] = column_of("member", [member] * len(values))
    return pl.DataFrame({name: labels[name] for name in table.axes}), index, values


def _split_ratings(
    axes: list[str], ratings: Any, positives: bool
) -> tuple[dict[str, pl.Series], Floats]:
    """Split ratings into labels by axis, and values; a list of labels is one of positives."""
    if is_many(ratings) and len(axes) == 1 and positives and np.ndim(ratings) == 1:
        labels = {axes[0]: column_of(axes[0], ratings)}
        return labels, np.ones(len(ratings))
    if isinstance(ratings, Mapping):
        if len(axes) != 1:
            raise InputError(
                f"ratings must be a frame with columns {', '.join(axes)} and values, but are "
                f"a mapping"
            )
        labels = {axes[0]: column_of(axes[0], list(ratings))}
        values = Numerals().convert("ratings", column_of("rating", ratings.values()))
    else:
        frame, _ = frame_of(ratings)
        if len(frame.columns) != len(axes) + 1:
            raise InputError(
                f"ratings must have columns {', '.join(axes)} and values, but have {frame.columns}"
            )
        names = axes if set(axes) <= set(frame.columns) else frame.columns[: len(axes)]
        labels = {axis: frame[name] for axis, name in zip(axes, names, strict=True)}
        (value,) = set(frame.columns) - set(names)
        values = Numerals().convert("ratings", frame[value])
    return labels, values.to_numpy(writable=True)


def check_distinct(table: Table, rated: Index, axis: int) -> None:
    """Raise if a member has two values for the same cell."""
    keys, first, counts = np.unique(
        cell_keys(rated, table.shape), return_index=True, return_counts=True
    )
    if len(keys) < len(rated):
        repeated = rated[first[counts.argmax()]]
        labels = [
            str(vocabulary.decode(repeated[number : number + 1])[0])
            for number, vocabulary in enumerate(table.vocabularies)
            if number != axis
        ]
        raise InputError(f"every cell may be rated once, but {', '.join(labels)} comes again")
