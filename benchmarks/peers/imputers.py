"""scikit-learn's imputers, which take a matrix with gaps as a whole."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from harness import Floats
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401, it makes the import below
from sklearn.impute import IterativeImputer, KNNImputer


class Imputed:
    """The filled matrix. A column without a value has the mean of all values.

    With ``turned`` the second axis has the rows; the iterative imputer, which regresses each
    column on others, has the axis with fewer members as columns.
    """

    def __init__(self, kind: str, shape: tuple[int, ...], settings: dict[str, Any]) -> None:
        rest = dict(settings)
        turned = rest.pop("turned", False) if kind == "knn" else shape[0] < shape[1]
        self.axes = (1, 0) if turned else (0, 1)
        self.shape = tuple(shape[axis] for axis in self.axes)
        usual: dict[str, Any] = {"keep_empty_features": True}
        if kind == "knn":
            self.imputer = KNNImputer(**usual, **rest)
        else:
            self.imputer = IterativeImputer(**usual, **rest, random_state=0)

    def fit(self, index: NDArray[np.int64], values: Floats) -> None:
        matrix = np.full(self.shape, np.nan)
        matrix[tuple(index[:, self.axes].T)] = values
        empty = np.isnan(matrix).all(axis=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.filled = self.imputer.fit_transform(matrix)
        self.filled[:, empty] = values.mean()

    def predict(self, index: NDArray[np.int64]) -> Floats:
        return self.filled[tuple(index[:, self.axes].T)]
