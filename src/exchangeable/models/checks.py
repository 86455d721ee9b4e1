"""Checks of the cells that a memory is read for, or extended by."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

import torch

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.support import Support


def check_queries(queries: Support, shape: tuple[int, ...], device: torch.device) -> None:
    """Raise unless the queries are cells of a table of ``shape``, on the device of the model."""
    if not isinstance(queries, Support):
        raise TypeError(f"queries must be a Support, but are a {type(queries).__name__}")
    sizes = zip(queries.shape, shape, strict=False)
    if queries.order != len(shape) or any(queried > size for queried, size in sizes):
        raise ValueError(
            f"queries must be cells of the table of shape {shape} that was read, but are of "
            f"one of shape {queries.shape}; extend the memory with new members first"
        )
    if queries.index.device != device:
        raise ValueError(
            f"queries must be on {device}, as the model is, but are on {queries.index.device}"
        )


def check_extension(observed: ExchangeableArray, shape: tuple[int, ...]) -> None:
    """Raise unless new cells come in an array that a table of ``shape`` can be extended to."""
    sizes = zip(observed.shape, shape, strict=False)
    if observed.order != len(shape) or any(new < old for new, old in sizes):
        raise ValueError(
            f"new cells must come in an array at least as large as the known one of shape "
            f"{shape}, but come in one of shape {observed.shape}"
        )


def check_memory(readouts: Sequence[Any], layers: Sized) -> None:
    """Raise unless a memory holds the readouts of as many layers as a model has."""
    if len(readouts) != len(layers):
        raise ValueError(
            f"the memory must come from a model of {len(layers)} layers as this one, but holds the "
            f"pools of {len(readouts)}"
        )


def check_new_members(
    observed: ExchangeableArray, axis: int, shape: tuple[int, ...], *, joint: bool
) -> None:
    """Raise unless cells are of new members of ``axis``, in a table otherwise of ``shape``."""
    if joint:
        raise ValueError(
            "new members of a joint table are on both axes, but for_new_members reads those of "
            "one: extend the memory"
        )
    others = tuple("any" if a == axis else size for a, size in enumerate(shape))
    sizes = tuple("any" if a == axis else size for a, size in enumerate(observed.shape))
    if sizes != others:
        raise ValueError(
            f"the cells of new members of axis {axis} must come in an array of the shape {shape} "
            f"on other axes, but come in one of shape {observed.shape}"
        )
