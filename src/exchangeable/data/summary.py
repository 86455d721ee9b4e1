"""Summaries of a table: counts, and its members with the most cells."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from exchangeable.arrays.cells import UNKNOWN, Floats, Index
from exchangeable.data.table import Table

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)
_MAX_BARS = 20


def describe(table: Table) -> dict[str, Any]:
    """Count cells, members, density, values and cells per member of each axis."""
    rows = table.is_observed
    values = table.values[rows]
    return {
        "cells": len(values),
        "without_value": int((~rows).sum()),
        "axes": [
            {
                "name": axis,
                "members": size,
                "cells_per_member": _spread(table.cells_per_member(a)),
            }
            for a, (axis, size) in enumerate(zip(table.axes, table.shape, strict=True))
        ],
        "density": len(values) / math.prod(table.shape),
        "scale": {"kind": table.scale.kind, "levels": list(table.scale.levels)},
        "values": {"mean": float(values.mean()), "sd": float(values.std())} if len(values) else {},
        "histogram": _histogram(values),
        "found": list(table.found),
    }


def busiest_members(table: Table, axis: int, limit: int) -> Index:
    """Return the codes of the members with the most cells, ascending."""
    return np.sort(np.argsort(-table.cells_per_member(axis), kind="stable")[:limit])


def mean_table(table: Table, members: tuple[Index, Index]) -> Floats:
    """Average the observed values of each pair of members of the first two axes, NaN if none."""
    positions = [np.full(table.shape[axis], UNKNOWN) for axis in (0, 1)]
    for position, codes in zip(positions, members, strict=True):
        position[codes] = np.arange(len(codes))
    rows = table.is_observed
    pairs = np.stack([p[table.index[rows, axis]] for axis, p in enumerate(positions)], axis=1)
    inside = (pairs != UNKNOWN).all(axis=1)
    total, count = np.zeros((2, len(members[0]), len(members[1])))
    np.add.at(total, tuple(pairs[inside].T), table.values[rows][inside])
    np.add.at(count, tuple(pairs[inside].T), 1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _spread(counts: Index) -> dict[str, float]:
    names = [f"{q:.0%}" for q in _QUANTILES]
    return dict(zip(names, np.quantile(counts, _QUANTILES).tolist(), strict=True))


def _histogram(values: Floats) -> list[dict[str, float]]:
    """Make a bar per value where there are few, or else ten of equal width."""
    counted = pl.Series("value", values).value_counts().sort("value")
    if len(counted) <= _MAX_BARS:
        return [{"value": v, "cells": n} for v, n in counted.iter_rows()]
    cells, edges = np.histogram(values, bins=10)
    return [
        {"from": float(low), "to": float(high), "cells": int(n)}
        for low, high, n in zip(edges[:-1], edges[1:], cells, strict=True)
    ]
