"""What every baseline can do: be fitted to the cells of a table, and answer for any cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Cells, Floats, Index, Mask
from exchangeable.errors import InputError
from exchangeable.runtime.progress import SILENT, Progress

State = dict[str, NDArray[Any]]


AT_ONCE = 4096
"""Queries answered at a time: a few megabytes of covariances at the usual ranks."""


class Fitted(Protocol):
    """A baseline that has seen the cells of a table."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def predict(self, index: Index) -> tuple[Floats, Floats]:
        """Mean and predictive variance of the cells (Q, D), noise included.

        A coordinate of -1 is a member that is not known: its cell gets the answer of the
        other axes, with the uncertainty of the prior.
        """
        ...

    def updated(self, cells: Cells, changed: Index) -> Fitted:
        """After cells came or changed, at the positions ``changed``; new members come last."""
        ...

    def state(self) -> State:
        """All that is needed to answer again, bit for bit."""
        ...

    @classmethod
    def of_state(cls, config: Any, state: Mapping[str, NDArray[Any]]) -> Self: ...


class Baseline(Protocol):
    """The settings of a baseline, which can be fitted."""

    kind: ClassVar[type[Any]]
    """What fitting gives, whose ``of_state`` reads a state again."""

    def fit(self, cells: Cells, progress: Progress = SILENT) -> Fitted:
        """Learn from cells (E, D) and their values (E,); ``progress`` counts the sweeps."""
        ...


def check_cells(name: str, cells: Cells) -> None:
    """Refuse a table without cells, and one whose parts do not fit together."""
    index, values, shape = cells.index, cells.values, cells.shape
    if len(values) == 0:
        raise InputError(f"{name} needs cells, but there are none")
    if index.shape != (len(values), len(shape)):
        raise InputError(
            f"index must have shape {(len(values), len(shape))}, one row per value and one "
            f"column per axis, but has shape {index.shape}"
        )
    _check_range(index, shape, least=0)


def check_queries(index: Index, shape: tuple[int, ...]) -> None:
    if index.ndim != 2 or index.shape[1] != len(shape):
        raise InputError(f"queries must have shape (Q, {len(shape)}), but have {index.shape}")
    _check_range(index, shape, least=UNKNOWN)


def standardised(values: Floats) -> tuple[Floats, float, float]:
    """Values with mean 0 and variance 1, their centre and their scale; equal ones have scale 0."""
    centre, scale = float(values.mean()), float(values.std())
    # The mean of equal values is not always one of them, so that the scale alone cannot tell.
    if values.min() == values.max() or scale == 0:
        return np.zeros(len(values)), float(values[0]), 0.0
    return (values - centre) / scale, centre, scale


def seen(index: Index, shape: tuple[int, ...]) -> tuple[Mask, ...]:
    """Which members of each axis have cells: (N_d,) each."""
    return tuple(np.bincount(index[:, d], minlength=n) > 0 for d, n in enumerate(shape))


def index_of_seen(index: Index, masks: Sequence[Mask]) -> Index:
    """The same cells, with members that have no cells taken for unknown ones."""
    columns = [np.append(own, False)[index[:, d]] for d, own in enumerate(masks)]
    return np.where(np.stack(columns, axis=1), index, UNKNOWN)


def chunks(queries: int, size: int = AT_ONCE) -> Iterator[slice]:
    return (slice(start, min(start + size, queries)) for start in range(0, queries, size))


def _check_range(index: Index, shape: tuple[int, ...], least: int) -> None:
    if len(index) and not ((index >= least) & (index < np.array(shape))).all():
        lowest, highest = index.min(axis=0).tolist(), index.max(axis=0).tolist()
        raise InputError(
            f"members must be from {least} to below {shape}, but go from {lowest} to {highest}"
        )
