"""Negatives: cells drawn as zeros where only positives were observed."""

from __future__ import annotations

import numpy as np

from exchangeable.arrays.cells import Cells, Mask
from exchangeable.data.table import Table
from exchangeable.values.codecs import draw_negatives_among
from exchangeable.values.scale import Scale


def observed_cells(table: Table, seed: int) -> tuple[Cells, tuple[str, ...]]:
    """Return the cells that have a value, and notes; add negatives where all are positives."""
    rows: Mask | slice = slice(len(table))  # no copy where rows without a value come last
    if np.isnan(table.values[rows]).any():
        rows = table.is_observed
    index, values = table.index[rows], table.values[rows]
    if table.scale.kind != "positives":
        return Cells(index, values, table.shape, table.scale), table.found
    # Nothing was observed of members without a cell, not even what they left out.
    members = [np.flatnonzero(np.bincount(index[:, axis])) for axis in range(table.order)]
    draws = np.random.default_rng(seed)
    negatives = draw_negatives_among(members, index, table.shape, len(index), draws)
    cells = Cells(
        np.concatenate([index, negatives]),
        np.concatenate([np.ones(len(index)), np.zeros(len(negatives))]),
        table.shape,
        Scale("binary", (0.0, 1.0)),
    )
    note = (
        f"only positives were observed: {len(negatives):,} negatives were drawn among the other "
        f"cells, and predictions are probabilities as if there were as many"
    )
    return cells, (*table.found, note)
