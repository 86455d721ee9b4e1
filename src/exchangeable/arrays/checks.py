"""Checks of what arrays are made from: what was needed, and what came, in one line."""

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


def tensor_of(data: ArrayLike, name: str) -> Tensor:
    """A copy, so that an array stays as it is whatever becomes of what it was made from."""
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
            f"{kind_of(data)} ({reason})"
        ) from None


def floating(values: Tensor) -> Tensor:
    """Whole numbers become the default floating-point type; anything else stays."""
    whole = not values.is_floating_point() and not values.is_complex()
    return values.to(torch.get_default_dtype()) if whole else values


def kind_of(thing: object) -> str:
    return f"a {type(thing).__module__}.{type(thing).__qualname__}".replace("builtins.", "")


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    if not shape or not all(isinstance(size, Integral) and size >= 0 for size in shape):
        raise ValueError(f"shape must give a size of 0 or more for each axis, but is {shape}")
    return tuple(int(size) for size in shape)


def check_choice(cells: Tensor, number: int) -> None:
    """Positions among ``number`` cells, or a mask of them."""
    mask = isinstance(cells, Tensor) and cells.dtype == torch.bool and cells.shape == (number,)
    listed = isinstance(cells, Tensor) and cells.dtype == torch.int64 and cells.ndim == 1
    if not mask and not listed:
        came = f"{cells.dtype} of shape {tuple(cells.shape)}" if isinstance(cells, Tensor) else ""
        raise ValueError(
            f"cells must be positions (int64) or a mask (bool) of {number} cells, but are "
            f"{came or kind_of(cells)}"
        )
    if listed and len(cells) and not (int(cells.min()) >= 0 and int(cells.max()) < number):
        wrong = int(cells[(cells < 0) | (cells >= number)][0])
        raise ValueError(f"positions must be at least 0 and below {number}, but one is {wrong}")


def checked_permutation(names: Tensor, size: int) -> Tensor:
    fits = isinstance(names, Tensor) and names.dtype == torch.int64 and names.shape == (size,)
    if not fits or not torch.equal(names.sort().values, torch.arange(size, device=names.device)):
        raise ValueError(f"relabelling takes a permutation of {size} members, but {names} came")
    return names


def check_range(index: Tensor, shape: tuple[int, ...]) -> None:
    if not len(index):
        return
    least, most = index.aminmax(dim=0)
    if bool((least < 0).any() | (most >= most.new_tensor(shape)).any()):
        outside = (index < 0) | (index >= index.new_tensor(shape))
        entry, axis = outside.nonzero()[0].tolist()
        raise ValueError(
            f"index on axis {axis} must be at least 0 and below {shape[axis]}, but entry {entry} "
            f"holds {int(index[entry, axis])}"
        )


def check_values(values: Tensor, index: Tensor) -> None:
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
    return " x ".join(f"{size:,}" for size in shape)


def format_count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
