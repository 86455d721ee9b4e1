"""A fitted table after new cells came, and after all cells were read together again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from exchangeable.arrays.cells import UNKNOWN, Cells, Index, cell_keys
from exchangeable.completion.fit import Fitted, check_size
from exchangeable.completion.inputs import check_columns
from exchangeable.data.column_roles import match_axes
from exchangeable.data.features import TableFeatures
from exchangeable.data.frames import frame_of
from exchangeable.data.joint import mirrored, share_features, with_more_members
from exchangeable.data.negatives import draw_negatives_beside, observed_cells, ranked_cells
from exchangeable.data.options import Duplicates
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.predictors.base import Predictor
from exchangeable.predictors.literal import TrainedPredictor
from exchangeable.predictors.ranking import RankingPredictor
from exchangeable.predictors.units import UnitsPredictor, unwrapped

_CELLS_PER_SEARCH = 2**20
REFRESH_SHARE = 0.05
"""Cells folded in, over those read together, after which a refresh is due."""


def read_new_cells(
    table: Table, X: Any, y: Any, duplicates: Duplicates, times: Any = None
) -> Table:
    """Read further cells as a table of its own, with the columns of the first one."""
    frame, kind = frame_of(X)
    if y is not None and (kind == "numpy" or None in match_axes(table.axes, frame.columns)):
        check_columns(table, frame)
    axes = table.label_columns(frame)
    value = table.value_name if y is None and table.value_name in frame.columns else None
    time = table.time_name if table.time_name in frame.columns else None
    added = Table.of(X, y, axes=axes, value=value, time=time, duplicates=duplicates, times=times)
    if added.value_name is None and table.scale.kind != "positives":
        raise InputError("new cells must have values, but neither y nor a column of X has them")
    return added


def update(fitted: Fitted, added: Table, features: Mapping[str, Any] | None = None) -> Fitted:
    """Fold in the cells of another table; members may be new, known cells change their value.

    ``features`` are frames about further members, by axis.
    """
    table = fitted.table
    columns = [v.decode(added.index[:, a]) for a, v in enumerate(added.vocabularies)]
    vocabularies = with_more_members(table.vocabularies, columns, joint=table.joint)
    features = share_features(table, features)
    has_value = added.is_observed
    codes = [v.encode(column) for v, column in zip(vocabularies, columns, strict=True)]
    index, values = np.stack(codes, axis=1)[has_value], added.values[has_value]
    if not len(values):
        raise InputError("new cells must have values, but none has one")
    table.scale.check(values)
    check_size(values)
    shape = tuple(len(vocabulary) for vocabulary in vocabularies)
    before = Cells(table.index, table.values, table.shape, table.scale, table.times, table.joint)
    observed = table.is_observed  # rows without a value were queries, which are predicted
    if not observed.all():
        before = before.take(observed)
    new_times = None if added.times is None else added.times[has_value]
    new = Cells(index, values, shape, table.scale, new_times)
    everything, changed = _merge(before, new)
    ranked = isinstance(fitted.predictor, RankingPredictor)
    if table.scale.kind == "positives" and not ranked:
        zeros = draw_negatives_beside(index, everything, np.random.default_rng(len(everything)))
        index, values = np.concatenate([index, zeros]), np.r_[values, np.zeros(len(zeros))]
        new = Cells(index, values, shape, table.scale)
    if fitted.mirrored:
        new = mirrored(new, everything)
    if _is_same(before, fitted.cells):
        cells = replace(everything, scale=fitted.cells.scale)
    else:  # with negatives that were drawn beside them, or the same cells mirrored
        cells, changed = _merge(fitted.cells, new)
    described = fitted.features
    predictor = fitted.predictor
    if described.axes:
        described = described.with_more(replace(table, vocabularies=vocabularies), features)
        predictor = _with_features(predictor, described)
    elif features:
        described.with_more(table, features)  # raises: there were none when the table was fitted
    known = len(fitted.cells)
    refitted = predictor.needs_refit(cells, changed, known=known)
    predictor = predictor.updated(cells, changed, known=known)
    whole = replace(
        table,
        vocabularies=vocabularies,
        index=everything.index,
        values=everything.values,
        times=everything.times,
    )
    updated = replace(
        fitted,
        table=whole,
        cells=cells,
        predictor=predictor,
        cells_since_refresh=0 if refitted else fitted.cells_since_refresh + len(changed),
        features=described,
    )
    if observed.all():
        _keep_sorted_rows(fitted, updated)
    return updated


def _keep_sorted_rows(fitted: Fitted, updated: Fitted) -> None:
    """Insert the rows that came last into the rows that were sorted by member before."""
    known, index = len(fitted.table), updated.table.index
    for axis, (permutation, starts) in fitted.sorted_rows.items():
        members, size = index[known:, axis], updated.table.shape[axis]
        by_member = np.argsort(members, kind="stable")
        ends = np.append(starts[1:], np.full(size - len(starts) + 1, known))
        rows = np.insert(permutation, ends[members[by_member]], known + by_member)
        later = np.concatenate([[0], np.bincount(members, minlength=size).cumsum()])
        updated.sorted_rows[axis] = rows, np.append(starts[:1], ends) + later


def refresh(fitted: Fitted) -> Fitted:
    """Fit closed forms to all cells together and read them, by the weights that there are."""
    predictor = fitted.predictor.refreshed(fitted.cells)
    return replace(fitted, predictor=predictor, cells_since_refresh=0)


def reread(fitted: Fitted, table: Table) -> Fitted:
    """Let the same model read another table, of the same axes and scale."""
    table = table.in_label_order()
    if isinstance(fitted.predictor, RankingPredictor):
        cells = ranked_cells(table)
    else:
        cells, _ = observed_cells(table, seed=0)
        cells = replace(cells, scale=fitted.cells.scale)
    predictor, features = fitted.predictor, fitted.features
    if isinstance(unwrapped(predictor), TrainedPredictor) and features.axes:
        features = features.reordered(fitted.table.vocabularies, table.vocabularies)
        predictor = _with_features(predictor, features)
    predictor = predictor.refreshed(cells)
    return replace(
        fitted,
        table=table,
        cells=cells,
        predictor=predictor,
        features=features,
        cells_since_refresh=0,
    )


def _with_features(predictor: Predictor, features: TableFeatures) -> Predictor:
    """Give the features of the members to a model that reads them."""
    if isinstance(predictor, UnitsPredictor):
        return replace(predictor, inner=_with_features(predictor.inner, features))
    return (
        predictor.with_features(features) if isinstance(predictor, TrainedPredictor) else predictor
    )


def refresh_is_due(fitted: Fitted) -> bool:
    """Whether so many cells were folded in that reading all together would matter.

    Folded cells change the predictions for their own members at once; what they would have changed
    for others is left out, and that is about in proportion to their share.
    """
    read_together = len(fitted.cells) - fitted.cells_since_refresh
    return fitted.cells_since_refresh > REFRESH_SHARE * read_together


def find_cells(index: Index, wanted: Index, shape: tuple[int, ...]) -> Index:
    """Return the positions of distinct cells (Q, D) among others (E, D): (Q,); ``UNKNOWN`` if none.

    Only cells of the wanted members of the first axis are looked at closely.
    """
    wanted_keys = cell_keys(wanted, shape)
    permutation = np.argsort(wanted_keys)
    ascending, positions = wanted_keys[permutation], np.full(len(wanted_keys), UNKNOWN)
    is_wanted = np.zeros(shape[0], dtype=bool)
    is_wanted[wanted[:, 0]] = True
    for start in range(0, len(index) if len(wanted) else 0, _CELLS_PER_SEARCH):
        members = index[start : start + _CELLS_PER_SEARCH, 0]
        rows = start + np.flatnonzero(is_wanted[members])
        keys = cell_keys(index[rows], shape)
        at = np.searchsorted(ascending, keys).clip(max=len(wanted_keys) - 1)
        matches = ascending[at] == keys
        positions[permutation[at[matches]]] = rows[matches]
    return positions


def _is_same(one: Cells, other: Cells) -> bool:
    """Whether cells are the same arrays in memory."""
    pairs = [(one.index, other.index), (one.values, other.values)]
    if one.times is not None and other.times is not None:
        pairs.append((one.times, other.times))
    elif one.times is not None or other.times is not None:
        return False
    return all(a.shape == b.shape and a.ctypes.data == b.ctypes.data for a, b in pairs)


def _merge(cells: Cells, new: Cells) -> tuple[Cells, Index]:
    """Merge new cells into others: all cells, and the positions of the new ones.

    The result has times where the others have any; a new cell without one has NaN.
    """
    index, values, shape = new.index, new.values, new.shape
    positions = find_cells(cells.index, index, shape)
    replaced = positions != UNKNOWN
    merged = cells.values.copy()
    merged[positions[replaced]] = values[replaced]
    positions[~replaced] = len(cells) + np.arange(int((~replaced).sum()))
    times = None
    if cells.times is not None:
        new_times = np.full(len(new), np.nan) if new.times is None else new.times
        times = cells.times.copy()
        times[positions[replaced]] = new_times[replaced]
        times = np.concatenate([times, new_times[~replaced]])
    everything = Cells(
        np.concatenate([cells.index, index[~replaced]]),
        np.concatenate([merged, values[~replaced]]),
        shape,
        cells.scale,
        times,
        cells.joint,
    )
    return everything, positions
