"""An imputer for scikit-learn's pipelines: fills in the missing values of a matrix."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Floats
from exchangeable.completion.completer import Completer
from exchangeable.completion.estimator import Estimator
from exchangeable.completion.fit import Fitted
from exchangeable.completion.update import read_new_cells, update
from exchangeable.data.frames import frame_of, with_columns
from exchangeable.errors import InputError
from exchangeable.predictors.base import MEAN, read_predictions

_ROWS, _COLUMNS = "row", "column"


class Imputer(Estimator):
    """Fills in the missing values (NaN) of a matrix or frame of numbers, rows by columns.

    ``fit_transform`` predicts them from all other values. ``transform`` takes further rows, which
    are predicted from their own values and the fitted rows, by most models one by one. ``model``
    and the other parameters are those of ``Completer``.

    >>> matrix = np.array([[1.0, 2.0, 3.0], [2.0, np.nan, 4.0], [3.0, 4.0, 5.0]])
    >>> Imputer("bias").fit_transform(matrix).shape
    (3, 3)
    """

    fitted_: Fitted
    """The fitted table of the matrix's cells."""

    def __init__(
        self,
        model: str = "auto",
        *,
        seed: int = 0,
        device: str = "auto",
        units: str | None = None,
    ) -> None:
        self.model = model
        self.seed = seed
        self.device = device
        self.units = units

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the values of a matrix; ``y`` is ignored, as scikit-learn has it."""
        self._read(*_matrix_of(X))
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Return the matrix with its missing values filled in, in the same form."""
        values, names = _matrix_of(X)
        self._read(values, names)
        return self._shown(X, values, self._fill(self.fitted_, values, 0))

    def transform(self, X: Any) -> Any:
        """Return further rows with their missing values filled in, in the same form."""
        values, names = _matrix_of(X)
        before = getattr(self, "feature_names_in_", None)
        if before is not None and names is not None and list(before) != names:
            raise InputError(
                f"columns must be those that were fitted, {', '.join(before)}, but are "
                f"{', '.join(names)}"
            )
        if values.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {values.shape[1]} features, but Imputer is expecting "
                f"{self.n_features_in_} features as input"
            )
        return self._shown(X, values, self._fill_new_rows(values))

    def _read(self, values: Floats, names: list[str] | None) -> None:
        completer = Completer(
            self.model, seed=self.seed, device=self.device, units=self.units, scale="real"
        )
        self.fitted_ = completer.fit(*_cells_of(values)).fitted_
        self.n_features_in_, self._rows = values.shape[1], len(values)
        self._ends = _ends_of(values)
        vars(self).pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the form of what comes out, as scikit-learn has it: default, pandas or polars."""
        if transform is not None:
            if transform not in ("default", "pandas", "polars"):
                raise InputError(
                    f"the output must be default, pandas or polars, but is {transform!r}"
                )
            self._sklearn_output_config = {"transform": transform}
        return self

    def _shown(self, X: Any, values: Floats, filled: Floats) -> Any:
        """Return filled values in the form that was chosen, or else in that of ``X``.

        Columns that hold two values, such as 0 and 1, stay between them.
        """
        filled = np.where(np.isnan(values), np.clip(filled, *self._ends), values)
        form = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        names = self.get_feature_names_out()
        if form == "polars":
            return pl.DataFrame(filled, schema=[str(name) for name in names])
        if form == "pandas":
            import pandas as pd

            return pd.DataFrame(filled, columns=names, index=getattr(X, "index", None))
        return _with_values(X, filled)

    def _fill_new_rows(self, values: Floats) -> Floats:
        """Fill in further rows, each by itself where the model allows it."""
        fitted = self.fitted_
        filled, known = values.copy(), ~np.isnan(values)
        # A column without a value in the fitted rows is not known.
        codes = fitted.table.vocabularies[1].encode(pl.Series(np.arange(values.shape[1])))
        for row in np.flatnonzero(~known.all(axis=1)):
            own = np.flatnonzero(known[row] & (codes != UNKNOWN))
            cells = np.stack([np.zeros_like(own), codes[own]], axis=1)
            predictor = fitted.predictor.for_new_members(0, cells, values[row, own])
            if predictor is None:
                return self._fill_together(values)
            missing = np.flatnonzero(~known[row])
            queries = np.stack([np.zeros_like(missing), codes[missing]], axis=1)
            filled[row, missing] = read_predictions(predictor, queries, MEAN)[0]
        return filled

    def _fill_together(self, values: Floats) -> Floats:
        """Fill in further rows after all of their values were folded in."""
        fitted, first = self.fitted_, self._rows  # rows without a value have numbers, too
        if not np.isnan(values).all():
            cells, own = _cells_of(values, first)
            fitted = update(fitted, read_new_cells(fitted.table, cells, own, "error"))
        return self._fill(fitted, values, first)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the columns, which stay."""
        numbered = [f"x{number}" for number in range(self.n_features_in_)]
        return np.asarray(getattr(self, "feature_names_in_", numbered), dtype=object)

    def _fill(self, fitted: Fitted, values: Floats, first: int) -> Floats:
        missing = np.argwhere(np.isnan(values))
        filled = values.copy()
        if len(missing):
            queries = pl.DataFrame({_ROWS: missing[:, 0] + first, _COLUMNS: missing[:, 1]})
            index = fitted.table.cells(queries)  # a row without values is unknown
            filled[tuple(missing.T)] = read_predictions(fitted.predictor, index, MEAN)[0]
        return filled


def _matrix_of(X: Any) -> tuple[Floats, list[str] | None]:
    """Return a matrix of floats (N, K), NaN where a value is missing, and names of its columns."""
    if hasattr(X, "columns"):
        frame, _ = frame_of(X)
        frame = frame.with_columns(pl.col(pl.Boolean).cast(pl.Float64))
        wrong = [c for c in frame.columns if not frame[c].dtype.is_numeric()]
        if wrong:
            raise InputError(f"columns of numbers are needed, but {wrong[0]!r} holds others")
        columns = [frame[c].cast(pl.Float64).fill_null(np.nan).to_numpy() for c in frame.columns]
        return _finite(np.stack(columns, axis=1)), frame.columns
    if hasattr(X, "tocoo"):
        raise InputError("a dense matrix is needed, but this is sparse; X.toarray() makes one")
    try:
        values = np.array(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("a matrix of numbers is needed, but some are not numbers") from None
    if values.ndim != 2 or not values.size:
        raise InputError(
            f"a matrix of rows and columns is needed, but this has shape {values.shape}"
        )
    return _finite(values), None


def _finite(values: Floats) -> Floats:
    if np.isinf(values).any():
        raise InputError("values must be finite or missing (NaN), but some are infinite")
    return values


def _ends_of(values: Floats) -> tuple[Floats, Floats]:
    """Return the bounds of columns (K,) each: none but where there are two values."""
    low, high = np.full(values.shape[1], -np.inf), np.full(values.shape[1], np.inf)
    for place, column in enumerate(values.T):
        different = np.unique(column[~np.isnan(column)])
        if len(different) == 2:
            low[place], high[place] = different
    return low, high


def _cells_of(values: Floats, first: int = 0) -> tuple[pl.DataFrame, Floats]:
    """Return the cells with a value, rows numbered from ``first``, and their values."""
    row, column = np.nonzero(~np.isnan(values))
    if not len(row):
        raise InputError("values are needed, but all are missing")
    return pl.DataFrame({_ROWS: row + first, _COLUMNS: column}), values[row, column]


def _with_values(X: Any, values: Floats) -> Any:
    """Return values in the kind of frame that they came in."""
    if not hasattr(X, "columns"):
        return values
    frame, _ = frame_of(X)
    changed = [
        pl.Series(name, values[:, place])
        for place, name in enumerate(frame.columns)
        if frame[name].null_count() or frame[name].cast(pl.Float64).is_nan().any()
    ]
    return with_columns(X, changed) if changed else X
