"""Explanations: how much each cell of a member moved the prediction of another cell of it.

The effect of a cell is exact if the table is read again without it. Where that would take long,
the member alone is read again, as a new one: others stay as they were read with the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import polars as pl
from torch import Tensor

from exchangeable.arrays.cells import Floats, Index, Mask
from exchangeable.completion.fit import Fitted
from exchangeable.data.table import Table, free_name
from exchangeable.errors import InputError
from exchangeable.predictors.base import (
    COVERAGE,
    MEAN,
    Predictor,
    interval_ends,
    read_predictions,
)
from exchangeable.predictors.best import rounded
from exchangeable.predictors.model import ModelPredictor
from exchangeable.predictors.ranking import RankingPredictor
from exchangeable.predictors.units import unwrapped
from exchangeable.runtime.phrases import format_count
from exchangeable.runtime.progress import SILENT, Progress

MAX_CELLS = 2_000
"""Most cells of a member whose effects are computed: each takes a reading without it."""
MAX_READ_CELLS = 1_000_000
"""Most cells that are read where every effect takes a reading of the whole table: the pretrained
model takes about 20 s for them on two cores."""
MIN_READING = 5_000
"""Cells that a reading counts for at least: that of a smaller table takes as long."""

ReadMember = Callable[[Mask], Predictor]
"""Reads a member from those of its cells that a mask (E,) keeps."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """The prediction of a cell, and the effects of its member's other cells, largest first."""

    axis: int
    """The member's axis."""
    mean: float
    low: float
    high: float
    cells: Index  # (E, D)
    values: Floats  # (E,)
    effects: Floats  # (E,), the prediction less the one without the cell
    note: str = ""
    """A sentence that says so if the member was read as a new one."""

    def columns(self, table: Table, n: int | None = None) -> dict[str, pl.Series]:
        """Return labels of the other axes, values and effects of the first ``n`` cells."""
        columns = {
            axis: table.vocabularies[number].decode(self.cells[:n, number])
            for number, axis in enumerate(table.axes)
            if number != self.axis
        }
        columns[table.prediction_columns()[0]] = pl.Series(self.values[:n])
        effect = free_name(columns, "effect", "effect of the cell")
        return columns | {effect: pl.Series(self.effects[:n])}


def explain(fitted: Fitted, cell: Index, axis: int, progress: Progress = SILENT) -> Explanation:
    """Explain the prediction of a cell (D,) by the observed cells of its member on an axis."""
    cells, name = fitted.cells, fitted.table.axes[axis]
    of_member = cells.index[:, axis] == cell[axis]
    # A prediction that has read the cell itself would be explained by that cell alone.
    own = np.flatnonzero(of_member & (cells.index != cell).any(axis=1))
    if len(own) > MAX_CELLS:
        raise InputError(
            f"effects of at most {MAX_CELLS:,} cells are computed, but this {name} has "
            f"{len(own):,}; choose another axis"
        )
    observed = np.flatnonzero(_is_observed(fitted)[own])
    read, query, note = _choose_reading(fitted, cell, axis, own, len(observed))
    mean, low, high = read_predictions(
        read(np.ones(len(own), dtype=bool)), query, MEAN, *interval_ends(COVERAGE)
    )
    effects = effects_of_cells(read, query, len(own), observed, progress)[:, 0]
    # Rounded, so that effects that are equal but for the last bits keep the sequence of labels.
    largest = np.argsort(-rounded(np.abs(effects)), kind="stable")
    chosen = own[observed[largest]]
    ends = float(mean[0]), float(low[0]), float(high[0])
    listed = cells.index[chosen], cells.values[chosen], effects[largest]
    return Explanation(axis, *ends, *listed, note)


def effects_of_cells(
    read: ReadMember,
    queries: Index,
    count: int,
    positions: Sequence[int] | Index | None = None,
    progress: Progress = SILENT,
) -> Floats:
    """Predict queries (Q, D) from all ``count`` cells, less the same without each: (E, Q).

    ``positions`` are those of the cells to leave out in turn; None: all.
    """
    kept = np.ones(count, dtype=bool)
    with_all = read_predictions(read(kept), queries, MEAN)[0]
    effects = []
    left_out = range(count) if positions is None else positions
    for number, position in enumerate(left_out):
        progress.at(number / len(left_out), f"leaving out cell {number + 1} of {len(left_out):,}")
        kept[position] = False
        effects.append(with_all - read_predictions(read(kept), queries, MEAN)[0])
        kept[position] = True
    return np.array(effects).reshape(-1, len(queries))


def _choose_reading(
    fitted: Fitted, cell: Index, axis: int, own: Index, effects: int
) -> tuple[ReadMember, Index, str]:
    """Return how a member is read from some of its own cells, the query (1, D), and a note.

    The whole table is read again if that is affordable, and else the member alone.
    """
    together = effects * max(len(fitted.cells), MIN_READING)
    if together <= MAX_READ_CELLS:
        return _table_reader(fitted, cell, axis, own), cell[None], ""
    read_alone, query = _member_reader(fitted, cell, axis, own)
    name = fitted.table.axes[axis]
    needed = (
        f"to read the table again without each of {format_count(effects, 'cell')} of this {name}, "
        f"at most {MAX_READ_CELLS:,} cells are read, but these are {together:,}"
    )
    if read_alone(np.ones(len(own), dtype=bool)) is None:
        raise InputError(f"{needed}; choose another axis, or a model that reads a {name} alone")
    note = (
        f"effects are those on a new {name} with the same cells, and so is the prediction: {needed}"
    )
    return cast(ReadMember, read_alone), query, note


def _table_reader(fitted: Fitted, cell: Index, axis: int, own: Index) -> ReadMember:
    """Return a function that reads the table with some of a member's own cells."""
    cells, predictor = fitted.cells, fitted.predictor
    others = np.flatnonzero(cells.index[:, axis] != cell[axis])
    is_read = not fitted.cells_since_refresh and len(others) + len(own) == len(cells)

    def read(kept: Mask) -> Predictor:
        if kept.all() and is_read:
            return predictor
        return predictor.refreshed(cells.take(np.sort(np.r_[others, own[kept]])))

    return read


def _member_reader(
    fitted: Fitted, cell: Index, axis: int, own: Index
) -> tuple[Callable[[Mask], Predictor | None], Index]:
    """Return a function that reads a member alone, as a new one, and the query (1, D).

    The function returns None if the model cannot do that.
    """
    cells, predictor = fitted.cells, fitted.predictor
    index = cells.index[own]
    index[:, axis] = 0
    features = _features_of_member(fitted, axis, int(cell[axis]))

    def read(kept: Mask) -> Predictor | None:
        return predictor.for_new_members(axis, index[kept], cells.values[own[kept]], features)

    query = cell[None].copy()
    query[0, axis] = 0
    return read, query


def _features_of_member(fitted: Fitted, axis: int, code: int) -> Tensor | None:
    """Return the features of a member as the prior reads them, where the table has any: (1, F)."""
    predictor = unwrapped(fitted.predictor)
    if not isinstance(predictor, ModelPredictor) or predictor.features is None:
        return None
    features = predictor.features[axis]
    return None if features is None else features[code : code + 1]


def _is_observed(fitted: Fitted) -> Mask:
    """Return which of the cells were observed, and not drawn as negatives: (E,)."""
    drawn = fitted.table.scale.kind == "positives" and not isinstance(
        fitted.predictor, RankingPredictor
    )
    return fitted.cells.values > 0 if drawn else np.ones(len(fitted.cells), dtype=bool)
