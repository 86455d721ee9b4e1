"""What a table holds, counted: for people and, as a dictionary, for machines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from exchangeable.data.table import Table

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)


def describe(table: Table) -> dict[str, Any]:
    """Cells, members, density, scale, value histogram and cells per member of each axis."""
    seen = ~np.isnan(table.values)
    index, values = table.index[seen], table.values[seen]
    return {
        "cells": len(values),
        "without_value": int((~seen).sum()),
        "axes": [
            {
                "name": axis,
                "members": size,
                "cells_per_member": _spread(np.bincount(index[:, number], minlength=size)),
            }
            for number, (axis, size) in enumerate(zip(table.axes, table.shape, strict=True))
        ],
        "density": len(values) / math.prod(table.shape),
        "scale": {"kind": table.scale.kind, "levels": list(table.scale.levels)},
        "values": {"mean": float(values.mean()), "sd": float(values.std())} if len(values) else {},
        "histogram": _histogram(values),
        "found": list(table.found),
    }


def _spread(counts: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, float]:
    names = [f"{q:.0%}" for q in _QUANTILES]
    return dict(zip(names, np.quantile(counts, _QUANTILES).tolist(), strict=True))


def _histogram(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[dict[str, float]]:
    """A bar per value where they are few, or else ten of equal width."""
    counted = pl.Series("value", values).value_counts().sort("value")
    if len(counted) <= 20:
        return [{"value": v, "cells": n} for v, n in counted.iter_rows()]
    cells, edges = np.histogram(values, bins=10)
    return [
        {"from": float(low), "to": float(high), "cells": int(n)}
        for low, high, n in zip(edges[:-1], edges[1:], cells, strict=True)
    ]
