"""Checks of the inputs of arrays. Errors name what was needed and what came, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike as NumpyLike

    ArrayLike = Tensor | NumpyLike


def to_tensor(data: ArrayLike, name: str) -> Tensor:
    """Copy to a tensor, so that later changes of ``data`` do not reach the array."""
    if isinstance(data, Tensor):
        return data.clone()
    if isinstance(data, np.ndarray) and data.dtype.kind not in "biufc":
        raise ValueError(f"{name} must hold numbers, but holds {data.dtype}")
    if isinstance(data, np.ndarray) and data.dtype == np.uint64 and (data > 2**63 - 1).any():
        raise ValueError(f"{name} must fit in 64 bits with a sign, but holds {data.max()}")
    try:
        return torch.from_numpy(data.copy()) if isinstance(data, np.ndarray) else torch.tensor(data)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{name} must be a tensor, or numbers in lists of equal length, but is "
            f"{describe_type(data)} ({reason})"
        ) from None


def to_floating(values: Tensor) -> Tensor:
    """Convert integers to the default floating-point type; leave other types."""
    integral = not values.is_floating_point() and not values.is_complex()
    return values.to(torch.get_default_dtype()) if integral else values


def describe_type(thing: object) -> str:
    """Name the type of an object for an error message."""
    return f"a {type(thing).__module__}.{type(thing).__qualname__}".replace("builtins.", "")


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape as a tuple of ints; raise unless all sizes are at least 0."""
    if not shape or not all(isinstance(size, Integral) and size >= 0 for size in shape):
        raise ValueError(f"shape must give a size of 0 or more for each axis, but is {shape}")
    return tuple(int(size) for size in shape)


def check_selection(cells: Tensor, size: int) -> None:
    """Raise unless ``cells`` are positions among ``size`` cells, or a mask of them."""
    mask = isinstance(cells, Tensor) and cells.dtype == torch.bool and cells.shape == (size,)
    positions = isinstance(cells, Tensor) and cells.dtype == torch.int64 and cells.ndim == 1
    if not mask and not positions:
        came = f"{cells.dtype} of shape {tuple(cells.shape)}" if isinstance(cells, Tensor) else ""
        raise ValueError(
            f"cells must be positions (int64) or a mask (bool) of {size} cells, but are "
            f"{came or describe_type(cells)}"
        )
    if positions and len(cells) and not (int(cells.min()) >= 0 and int(cells.max()) < size):
        wrong = int(cells[(cells < 0) | (cells >= size)][0])
        raise ValueError(f"positions must be at least 0 and below {size}, but one is {wrong}")


def checked_permutation(numbers: Tensor, size: int) -> Tensor:
    """Return ``numbers``; raise unless they are a permutation of ``size`` members."""
    fits = isinstance(numbers, Tensor) and numbers.dtype == torch.int64
    fits = fits and numbers.shape == (size,)
    expected = torch.arange(size, device=numbers.device) if fits else None
    if expected is None or not torch.equal(numbers.sort().values, expected):
        raise ValueError(f"relabelling takes a permutation of {size} members, but {numbers} came")
    return numbers


def check_range(index: Tensor, shape: tuple[int, ...]) -> None:
    """Raise unless all coordinates are within the shape."""
    if not len(index):
        return
    low, high = torch.stack(index.aminmax(dim=0)).tolist()
    if min(low) < 0 or any(last >= size for last, size in zip(high, shape, strict=True)):
        outside = (index < 0) | (index >= index.new_tensor(shape))
        entry, axis = outside.nonzero()[0].tolist()
        raise ValueError(
            f"index on axis {axis} must be at least 0 and below {shape[axis]}, but entry {entry} "
            f"holds {int(index[entry, axis])}"
        )


def check_values(values: Tensor, index: Tensor) -> None:
    """Raise unless there is a row of floating-point values per cell, on the same device."""
    if values.ndim != 2 or len(values) != len(index):
        raise ValueError(
            f"values must have shape (E, K) with E={len(index)}, one row per cell, but have "
            f"shape {tuple(values.shape)}"
        )
    if not values.is_floating_point():
        raise ValueError(f"values must be floating-point numbers, but are {values.dtype}")
    if values.device != index.device:
        raise ValueError(
            f"values and index must be on one device, but are on {values.device} and {index.device}"
        )


def format_shape(shape: tuple[int, ...]) -> str:
    """Format sizes as in 2 x 3."""
    return " x ".join(f"{size:,}" for size in shape)


def format_count(count: int, noun: str) -> str:
    """Format a count with its noun, as in 1 cell or 3 cells."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
