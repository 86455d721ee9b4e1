"""What a Completer may be given, checked: cells and values as scikit-learn has them, seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import column_or_1d

from exchangeable.errors import InputError


def checked_input(X: Any, y: Any) -> tuple[Any, Any]:
    """What scikit-learn's users may pass, refused in its words where it cannot be taken."""
    if y is not None and hasattr(X, "tocoo"):
        raise InputError("sparse input is a table of its own: pass it without y")
    other = hasattr(X, "__array__") and not hasattr(X, "columns")
    given = np.asarray(X) if other and not isinstance(X, np.ma.MaskedArray) else X
    for name, data in (("X", given), ("y", y)):
        if isinstance(data, np.ndarray) and data.dtype.kind == "c":
            raise InputError(f"Complex data not supported, but {name} holds {data.dtype}")
    if isinstance(given, np.ndarray) and given.ndim == 1:
        raise InputError(
            "cells are needed as a table with a column for each axis, but came as a list. "
            "Reshape your data with [cells] if it is one cell."
        )
    if isinstance(given, np.ndarray) and given.ndim == 2:
        if not given.shape[1]:
            raise InputError(
                f"Found array with 0 feature(s) (shape={given.shape}) while a minimum of 1 is "
                f"required."
            )
        if given.dtype.kind == "f" and not np.isfinite(given).all():
            raise InputError("labels must be given and finite, but some in X are NaN or infinity")
    if y is None:
        return given, None
    masked = isinstance(y, np.ma.MaskedArray)
    values = np.ma.filled(y.astype(np.float64), np.nan) if masked else np.asarray(y)
    return given, column_or_1d(values, warn=True) if values.ndim == 2 else values
