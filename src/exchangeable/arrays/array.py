"""Exchangeable arrays: observed cells and the values observed there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from exchangeable.arrays.checks import (
    check_values,
    checked_permutation,
    describe_type,
    format_count,
    format_shape,
    to_floating,
    to_tensor,
)
from exchangeable.arrays.support import Support

if TYPE_CHECKING:
    from scipy.sparse import coo_array

    from exchangeable.arrays.checks import ArrayLike

FeatureTensors = tuple[Tensor | None, ...]
"""Features of the members of each axis, (N, F), or None for an axis without features."""


@dataclass(frozen=True, eq=False)
class ExchangeableArray:
    """An array of any order whose axes have no natural ordering, stored as its observed cells.

    Rows without a cell, arrays without any and single cells are all legal. A cell that
    comes twice, or a value that is not finite, is an error.

    >>> ratings = ExchangeableArray.of([[0, 0], [0, 2], [1, 2]], [[5.0], [3.0], [4.0]], (2, 3))
    >>> ratings
    ExchangeableArray(2 x 3, 3 cells, 1 channel)
    """

    support: Support
    values: Tensor  # (E, K)

    def __post_init__(self) -> None:
        check_values(self.values, self.support.index)
        self.support.check_distinct()
        unusable = (~self.values.isfinite()).any(dim=1)
        if unusable.any():
            first = int(unusable.nonzero()[0, 0])
            raise ValueError(
                f"values must be finite, but entry {first}, cell "
                f"{tuple(self.support.index[first].tolist())}, holds {self.values[first].tolist()}"
            )

    @classmethod
    def of(cls, index: ArrayLike, values: ArrayLike, shape: Sequence[int]) -> ExchangeableArray:
        """Build from lists, numpy arrays or tensors: cells (E, D) and values (E, K)."""
        content, support = to_floating(to_tensor(values, "values")), Support.of(index, shape)
        if content.shape == (0,):
            content = content.reshape(0, 1)
        return cls(support, content)

    @classmethod
    def from_dense(cls, dense: ArrayLike, observed: ArrayLike | None = None) -> ExchangeableArray:
        """Take the cells of (N_1, ..., N_D, K) where ``observed`` (N_1, ..., N_D) is true.

        Without a mask all cells count as observed; those marked by NaN are left out with
        ``observed=~dense.isnan().any(-1)``.
        """
        full = to_floating(to_tensor(dense, "dense"))
        if full.ndim < 2:
            raise ValueError(
                f"dense must have shape (N_1, ..., N_D, K), but has shape {tuple(full.shape)}"
            )
        shape = tuple(full.shape[:-1])
        if observed is None:
            mask = torch.ones(shape, dtype=torch.bool, device=full.device)
        else:
            mask = to_tensor(observed, "observed")
        if mask.shape != shape or mask.dtype != torch.bool:
            raise ValueError(
                f"observed must be a mask of shape {shape}, but is {mask.dtype} of shape "
                f"{tuple(mask.shape)}"
            )
        return cls(Support(mask.nonzero(), shape), full[mask])

    @classmethod
    def from_scipy(cls, matrix: object) -> ExchangeableArray:
        """Convert a scipy sparse array; its stored entries are observed, zeros included."""
        from scipy.sparse import coo_array, issparse

        if not issparse(matrix):
            raise ValueError(f"matrix must be a scipy sparse array, but is {describe_type(matrix)}")
        coo = coo_array(matrix)
        index = torch.stack([torch.as_tensor(axis, dtype=torch.int64) for axis in coo.coords], 1)
        return cls.of(index, torch.as_tensor(coo.data)[:, None], coo.shape)

    @classmethod
    def from_torch_sparse(cls, tensor: Tensor) -> ExchangeableArray:
        """Convert a torch sparse tensor; its dense dimension, if any, holds the channels."""
        if not isinstance(tensor, Tensor) or tensor.layout == torch.strided:
            raise ValueError(
                f"tensor must be a torch sparse tensor, but is {describe_type(tensor)}"
            )
        coo = tensor if tensor.layout == torch.sparse_coo else tensor.to_sparse_coo()
        if coo.dense_dim() > 1:
            raise ValueError(
                f"a sparse tensor may have one dense dimension, but has {coo.dense_dim()}"
            )
        # Coalescing adds up duplicates silently, so check for them first.
        Support.of(coo._indices().T, tuple(coo.shape[: coo.sparse_dim()])).check_distinct()
        coo = coo.coalesce()
        support = Support.of(coo.indices().T, tuple(coo.shape[: coo.sparse_dim()]))
        values = coo.values() if coo.dense_dim() else coo.values()[:, None]
        return cls(support, to_floating(values))

    def __len__(self) -> int:
        return len(self.support)

    def __repr__(self) -> str:
        return (
            f"ExchangeableArray({format_shape(self.shape)}, {format_count(len(self), 'cell')}, "
            f"{format_count(self.channels, 'channel')})"
        )

    @property
    def order(self) -> int:
        return self.support.order

    @property
    def shape(self) -> tuple[int, ...]:
        return self.support.shape

    @property
    def channels(self) -> int:
        return self.values.shape[1]

    def with_values(self, values: Tensor) -> ExchangeableArray:
        """Return the same cells with other values; the number of channels may differ."""
        return ExchangeableArray(self.support, values)

    def map_values(self, function: Callable[[Tensor], Tensor]) -> ExchangeableArray:
        """Apply ``function`` to the values, (E, K) -> (E, O), without checks."""
        return self.unchecked(self.support, function(self.values))

    def take(self, cells: Tensor) -> ExchangeableArray:
        """Select cells by position or by mask: a subsample, a split or a shuffle."""
        support = self.support.take(cells)
        if cells.dtype == torch.bool:  # a mask cannot repeat a cell, so there is nothing to check
            return self.unchecked(support, self.values[cells])
        return ExchangeableArray(support, self.values[cells])

    def relabel(self, permutations: Sequence[Tensor]) -> ExchangeableArray:
        """Renumber members: ``n`` on axis ``d`` becomes ``permutations[d][n]``."""
        if len(permutations) != self.order:
            raise ValueError(
                f"relabelling takes a permutation for each of {self.order} axes, but "
                f"{len(permutations)} came"
            )
        columns = [
            checked_permutation(permutation, size).to(self.support.index.device)[column]
            for permutation, size, column in zip(
                permutations, self.shape, self.support.index.T, strict=True
            )
        ]
        return ExchangeableArray(Support(torch.stack(columns, dim=1), self.shape), self.values)

    def to(self, target: torch.device | torch.dtype | str) -> ExchangeableArray:
        """Move to another device, or convert values to another floating-point type."""
        values = self.values.to(target)
        if values is self.values:
            return self
        support = Support(self.support.index.to(values.device), self.shape)
        if values.dtype == self.values.dtype:
            return self.unchecked(support, values)
        return ExchangeableArray(support, values)  # a narrower type may not hold every value

    def to_dense(self, fill: float = 0.0) -> Tensor:
        """Return a tensor (N_1, ..., N_D, K) with ``fill`` in unobserved cells."""
        dense = self.values.new_full((*self.shape, self.channels), fill)
        return dense.index_put(tuple(self.support.index.T), self.values)

    def to_scipy(self, channel: int | None = None) -> coo_array:
        """Return one channel as a scipy sparse array; name it if there are several."""
        from scipy.sparse import coo_array

        if channel is None and self.channels != 1:
            raise ValueError(f"channel must be given, since there are {self.channels} of them")
        values = self.values[:, channel or 0].detach().cpu().numpy()
        return coo_array((values, tuple(self.support.index.cpu().numpy().T)), shape=self.shape)

    def to_torch_sparse(self) -> Tensor:
        """Return a torch sparse COO tensor with the channels as its one dense dimension."""
        size = (*self.shape, self.channels)
        return torch.sparse_coo_tensor(
            self.support.index.T, self.values, size, check_invariants=True
        )

    @classmethod
    def unchecked(cls, support: Support, values: Tensor) -> ExchangeableArray:
        """Build without checks: for outputs of layers and parts of checked arrays."""
        array = object.__new__(cls)
        object.__setattr__(array, "support", support)
        object.__setattr__(array, "values", values)
        return array
