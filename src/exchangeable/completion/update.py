"""A fitted table after new cells came, and after all cells were read together again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.cells import UNKNOWN, Cells, Floats, Index, cell_keys
from exchangeable.completion.fit import Fitted, check_size
from exchangeable.completion.inputs import check_columns
from exchangeable.completion.model_predictor import ModelPredictor
from exchangeable.data.frames import frame_of
from exchangeable.data.negatives import draw_negatives_beside, observed_cells
from exchangeable.data.options import Duplicates
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError

_CELLS_PER_SEARCH = 2**20
REFRESH_SHARE = 0.05
"""Cells folded in, over those read together, after which a refresh is due."""


def read_new_cells(table: Table, X: Any, y: Any, duplicates: Duplicates) -> Table:
    """Read further cells as a table of its own, with the columns of the first one."""
    frame, kind = frame_of(X)
    axes = list(table.label_columns(frame))
    if y is not None and (kind == "numpy" or axes != list(table.axes)):
        check_columns(table, frame)
    value = table.value_name if y is None and table.value_name in frame.columns else None
    added = Table.of(X, y, axes=axes, value=value, duplicates=duplicates)
    if added.value_name is None and table.scale.kind != "positives":
        raise InputError("new cells must have values, but neither y nor a column of X has them")
    return added


def update(fitted: Fitted, added: Table) -> Fitted:
    """Fold in the cells of another table; members may be new, known cells change their value."""
    table = fitted.table
    columns = [v.decode(added.index[:, a]) for a, v in enumerate(added.vocabularies)]
    pairs = zip(table.vocabularies, columns, strict=True)
    vocabularies = tuple(vocabulary.with_more(column) for vocabulary, column in pairs)
    has_value = added.is_observed
    codes = [v.encode(column) for v, column in zip(vocabularies, columns, strict=True)]
    index, values = np.stack(codes, axis=1)[has_value], added.values[has_value]
    if not len(values):
        raise InputError("new cells must have values, but none has one")
    fitted.cells.scale.check(values)
    check_size(values)
    shape = tuple(len(vocabulary) for vocabulary in vocabularies)
    observed = table.is_observed  # rows without a value were queries, which are predicted
    before = Cells(table.index[observed], table.values[observed], table.shape, table.scale)
    everything, _, _ = _merge(before, index, values, shape)
    if table.scale.kind == "positives":
        zeros = draw_negatives_beside(index, everything, np.random.default_rng(len(everything)))
        index, values = np.concatenate([index, zeros]), np.r_[values, np.zeros(len(zeros))]
    cells, changed, replaced = _merge(fitted.cells, index, values, shape)
    predictor = fitted.predictor.updated(cells, changed, replaced=replaced)
    refitted = fitted.predictor.needs_refit(replaced=replaced)
    whole = replace(
        table,
        vocabularies=vocabularies,
        index=everything.index,
        values=everything.values,
        times=None,
    )
    return replace(
        fitted,
        table=whole,
        cells=cells,
        predictor=predictor,
        cells_since_refresh=0 if refitted else fitted.cells_since_refresh + len(changed),
    )


def refresh(fitted: Fitted) -> Fitted:
    """Let the same model read all cells together; nothing is trained."""
    predictor = fitted.predictor.refreshed(fitted.cells)
    return replace(fitted, predictor=predictor, cells_since_refresh=0)


def reread(fitted: Fitted, table: Table) -> Fitted:
    """Let the same model read another table, of the same axes and scale."""
    table = table.in_label_order()
    cells, _ = observed_cells(table, seed=0)
    cells = replace(cells, scale=fitted.cells.scale)
    predictor = fitted.predictor
    if isinstance(predictor, ModelPredictor) and predictor.features is not None:
        features = _reorder(predictor.features, fitted.table.vocabularies, table.vocabularies)
        predictor = replace(predictor, features=features)
    predictor = predictor.refreshed(cells)
    return replace(fitted, table=table, cells=cells, predictor=predictor, cells_since_refresh=0)


def refresh_is_due(fitted: Fitted) -> bool:
    """Whether so many cells were folded in that reading all together would matter.

    Folded cells change the predictions for their own members at once; what they would have changed
    for others is left out, and that is about in proportion to their share.
    """
    read_together = len(fitted.cells) - fitted.cells_since_refresh
    return fitted.cells_since_refresh > REFRESH_SHARE * read_together


def _reorder(
    features: FeatureTensors, before: tuple[Vocabulary, ...], after: tuple[Vocabulary, ...]
) -> FeatureTensors:
    """FeatureTensors of the members of another table, zeros for those that had none."""
    reordered: list[Tensor | None] = []
    for rows, old, new in zip(features, before, after, strict=True):
        if rows is None:
            reordered.append(None)
            continue
        codes = torch.from_numpy(old.encode(new.labels))
        is_known = (codes != UNKNOWN).to(rows)[:, None]
        reordered.append(rows[codes.clamp(min=0)] * is_known)
    return tuple(reordered)


def _merge(
    cells: Cells, index: Index, values: Floats, shape: tuple[int, ...]
) -> tuple[Cells, Index, bool]:
    """Merge new cells into others: all cells, positions of the new ones, whether any was there."""
    new_keys = cell_keys(index, shape)
    permutation = np.argsort(new_keys)
    ascending, positions = new_keys[permutation], np.full(len(new_keys), UNKNOWN)
    for start in range(0, len(cells), _CELLS_PER_SEARCH):  # these are many, and not sorted
        chunk = cells.index[start : start + _CELLS_PER_SEARCH]
        keys = cell_keys(chunk, shape)
        at = np.searchsorted(ascending, keys).clip(max=len(new_keys) - 1)
        matches = ascending[at] == keys
        positions[permutation[at[matches]]] = start + np.flatnonzero(matches)
    replaced = positions != UNKNOWN
    merged = cells.values.copy()
    merged[positions[replaced]] = values[replaced]
    positions[~replaced] = len(cells) + np.arange(int((~replaced).sum()))
    everything = Cells(
        np.concatenate([cells.index, index[~replaced]]),
        np.concatenate([merged, values[~replaced]]),
        shape,
        cells.scale,
    )
    return everything, positions, bool(replaced.any())
