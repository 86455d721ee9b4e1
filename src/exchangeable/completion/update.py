"""From what answers for a table to what answers for one with more cells, or with others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.cells import UNKNOWN, Cells, Index
from exchangeable.completion.fit import Fitted
from exchangeable.completion.predictors import ModelPredictor
from exchangeable.data.negatives import observed_cells
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError

_AT_ONCE = 2**20  # cells
DUE_AFTER = 0.05
"""Cells folded in, over those read together, after which it is time to read all together again."""


def updated(fitted: Fitted, added: Table) -> Fitted:
    """With the cells of another table; members may be new, known cells change their value."""
    table = fitted.table
    columns = [v.decode(added.index[:, a]) for a, v in enumerate(added.vocabularies)]
    pairs = zip(table.vocabularies, columns, strict=True)
    vocabularies = tuple(known.with_more(column) for known, column in pairs)
    seen = added.is_observed
    coded = [v.encode(column) for v, column in zip(vocabularies, columns, strict=True)]
    index, values = np.stack(coded, axis=1)[seen], added.values[seen]
    if not len(values):
        raise InputError("new cells must have values, but none has one")
    fitted.cells.scale.check(values)
    shape = tuple(len(vocabulary) for vocabulary in vocabularies)
    known = table.is_observed  # rows without a value were questions, which are answered
    observed = Cells(table.index[known], table.values[known], table.shape, table.scale)
    everything, _, _ = _merged(observed, index, values, shape)
    if table.scale.kind == "positives":
        zeros = _zeros_beside(index, everything, np.random.default_rng(len(everything)))
        index, values = np.concatenate([index, zeros]), np.r_[values, np.zeros(len(zeros))]
    cells, changed, replaced = _merged(fitted.cells, index, values, shape)
    predictor = fitted.predictor.updated(cells, changed, replaced=replaced)
    anew = fitted.predictor.anew(replaced=replaced)
    folded = 0 if anew else fitted.folded + len(changed)
    whole = replace(
        table,
        vocabularies=vocabularies,
        index=everything.index,
        values=everything.values,
        times=None,
    )
    return replace(fitted, table=whole, cells=cells, predictor=predictor, folded=folded)


def refreshed(fitted: Fitted) -> Fitted:
    """The same model after it read all cells together; nothing is trained."""
    return replace(fitted, predictor=fitted.predictor.refreshed(fitted.cells), folded=0)


def reread(fitted: Fitted, table: Table) -> Fitted:
    """The same model after it read another table, of the same axes and scale."""
    table = table.in_label_order()
    cells, _ = observed_cells(table, seed=0)
    cells = replace(cells, scale=fitted.cells.scale)
    predictor = fitted.predictor
    if isinstance(predictor, ModelPredictor) and predictor.features is not None:
        moved = _moved(predictor.features, fitted.table.vocabularies, table.vocabularies)
        predictor = replace(predictor, features=moved)
    predictor = predictor.refreshed(cells)
    return replace(fitted, table=table, cells=cells, predictor=predictor, folded=0)


def _moved(
    features: FeatureTensors, before: tuple[Vocabulary, ...], after: tuple[Vocabulary, ...]
) -> FeatureTensors:
    """Features of the members of another table, zeros where nothing is known of one."""
    moved: list[Tensor | None] = []
    for own, old, new in zip(features, before, after, strict=True):
        if own is None:
            moved.append(None)
            continue
        codes = torch.from_numpy(old.encode(new.labels))
        known = (codes != UNKNOWN).to(own)[:, None]
        moved.append(own[codes.clamp(min=0)] * known)
    return tuple(moved)


def refresh_is_due(fitted: Fitted) -> bool:
    """Whether so many cells were folded in that reading all together would tell.

    Folded cells change their own members' answers at once; what they would have changed in
    others' is left out, and that is about in proportion to their share.
    """
    return fitted.folded > DUE_AFTER * (len(fitted.cells) - fitted.folded)


def _zeros_beside(index: Index, known: Cells, generator: np.random.Generator) -> Index:
    """For each new positive a cell of the same member that is none: others on the last axis."""
    others = index.copy()
    others[:, -1] = generator.integers(0, known.shape[-1], len(index))
    keys = np.ravel_multi_index(tuple(others.T), known.shape)
    taken = np.ravel_multi_index(tuple(known.index.T), known.shape)
    _, first = np.unique(keys, return_index=True)
    fresh = np.sort(first[~np.isin(keys[first], taken)])
    return others[fresh]


def _merged(
    known: Cells, index: Index, values: NDArray[np.float64], shape: tuple[int, ...]
) -> tuple[Cells, Index, bool]:
    """All cells, where the given ones stand among them, and whether one had a value before."""
    new = np.ravel_multi_index(tuple(index.T), shape)
    order = np.argsort(new)
    ascending, positions = new[order], np.full(len(new), UNKNOWN)
    for start in range(0, len(known), _AT_ONCE):  # the known are many, and in no order
        some = np.ravel_multi_index(tuple(known.index[start : start + _AT_ONCE].T), shape)
        at = np.searchsorted(ascending, some).clip(max=len(new) - 1)
        again = ascending[at] == some
        positions[order[at[again]]] = start + np.flatnonzero(again)
    found = positions != UNKNOWN
    merged = known.values.copy()
    merged[positions[found]] = values[found]
    positions[~found] = len(known) + np.arange(int((~found).sum()))
    cells = Cells(
        np.concatenate([known.index, index[~found]]),
        np.concatenate([merged, values[~found]]),
        shape,
        known.scale,
    )
    return cells, positions, bool(found.any())
