"""The interface of baselines: fitted to the cells of a table, they predict any cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Cells, Floats, Index, Mask
from exchangeable.errors import InputError
from exchangeable.runtime.progress import SILENT, Progress

State = dict[str, NDArray[Any]]
"""Arrays of a fitted baseline by name, as they are saved."""

QUERIES_PER_CHUNK = 4096
"""Queries predicted at a time: a few megabytes of covariances at the usual ranks."""


class FittedBaseline(Protocol):
    """A baseline fitted to the cells of a table."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def predict(self, index: Index) -> tuple[Floats, Floats]:
        """Mean and predictive variance of the cells (Q, D), noise included.

        A coordinate of -1 is an unknown member: its cell is predicted from the other axes,
        with the uncertainty of the distribution of members.
        """
        ...

    def updated(self, cells: Cells, changed: Index) -> FittedBaseline:
        """Return the baseline for ``cells``, new or changed at the positions ``changed``."""
        ...

    def state(self) -> State:
        """Return the arrays from which ``from_state`` rebuilds it, with the same predictions."""
        ...

    @classmethod
    def from_state(cls, config: Any, state: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted baseline from its state."""
        ...


class Baseline(Protocol):
    """The settings of a baseline, with its ``fit``."""

    kind: ClassVar[type[Any]]
    """The type that ``fit`` returns."""

    def fit(self, cells: Cells, progress: Progress = SILENT) -> FittedBaseline:
        """Fit to observed cells; ``progress`` counts the sweeps."""
        ...


def check_cells(name: str, cells: Cells) -> None:
    """Raise if there are no cells, or if index, values and shape do not match."""
    index, values, shape = cells.index, cells.values, cells.shape
    if len(values) == 0:
        raise InputError(f"{name} needs cells, but there are none")
    if index.shape != (len(values), len(shape)):
        raise InputError(
            f"index must have shape {(len(values), len(shape))}, one row per value and one "
            f"column per axis, but has shape {index.shape}"
        )
    _check_range(index, shape, minimum=0)


def check_queries(index: Index, shape: tuple[int, ...]) -> None:
    """Raise unless queries have a known or unknown (-1) member on each axis."""
    if index.ndim != 2 or index.shape[1] != len(shape):
        raise InputError(f"queries must have shape (Q, {len(shape)}), but have {index.shape}")
    _check_range(index, shape, minimum=UNKNOWN)


def standardise(values: Floats) -> tuple[Floats, float, float]:
    """Scale to mean 0 and variance 1; also return centre and scale, which is 0 for equal values."""
    centre, scale = float(values.mean()), float(values.std())
    # The mean of equal values may differ from them by rounding, so the scale alone cannot tell.
    if values.min() == values.max() or scale == 0:
        return np.zeros(len(values)), float(values[0]), 0.0
    return (values - centre) / scale, centre, scale


def members_with_cells(index: Index, shape: tuple[int, ...]) -> tuple[Mask, ...]:
    """Return a mask of the members with cells for each axis: (N_d,) each."""
    return tuple(np.bincount(index[:, d], minlength=n) > 0 for d, n in enumerate(shape))


def hide_empty_members(index: Index, masks: Sequence[Mask]) -> Index:
    """Replace members without cells by UNKNOWN: (Q, D) -> (Q, D)."""
    columns = [np.append(mask, False)[index[:, d]] for d, mask in enumerate(masks)]
    return np.where(np.stack(columns, axis=1), index, UNKNOWN)


def chunks(queries: int, size: int = QUERIES_PER_CHUNK) -> Iterator[slice]:
    """Cut a number of queries into slices of at most ``size``."""
    return (slice(start, min(start + size, queries)) for start in range(0, queries, size))


def _check_range(index: Index, shape: tuple[int, ...], minimum: int) -> None:
    if len(index) and not ((index >= minimum) & (index < np.array(shape))).all():
        lowest, highest = index.min(axis=0).tolist(), index.max(axis=0).tolist()
        raise InputError(
            f"members must be from {minimum} to below {shape}, but go from {lowest} to {highest}"
        )
