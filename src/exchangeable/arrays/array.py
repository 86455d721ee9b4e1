"""Exchangeable arrays: which cells are observed, and the values observed there.

Letters used for sizes throughout the package:

    D  order of the array (number of axes)      E  observed cells
    N  members of one axis                      Q  queried cells
    K  channels of a cell                       G  groups that a pooling forms
    O  channels a layer gives out               S  a subset of the axes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from exchangeable.arrays.checks import (
    check_choice,
    check_range,
    check_values,
    checked_permutation,
    checked_shape,
    floating,
    kind_of,
    tensor_of,
)
from exchangeable.arrays.groups import Axes, Directory, Groups, check_axes, keys_of, position

if TYPE_CHECKING:
    from scipy.sparse import coo_array

    from exchangeable.arrays.checks import ArrayLike


@dataclass(frozen=True, eq=False)
class Support:
    """Which cells, with no word about their values; in any order, and as often as asked.

    Every layer of a network runs on the same cells, so arrays share one ``Support`` and
    the groups it works out are computed once per batch rather than once per layer.
    Queried cells are ``numbered_by`` the directory of the cells that were observed.
    """

    index: Tensor  # (E, D) int64; row e holds the coordinates of cell e
    shape: tuple[int, ...]  # (N_1, ..., N_D)
    numbering: Directory | None = None
    near: bool = False
    """Whether groups are only those between the first and the last that these cells meet."""
    writers: Tensor | None = field(default=None, repr=False)  # (E,)
    """Which cells are observed, where others are only asked about; without it, all are."""
    whole: Support | None = field(default=None, repr=False)
    """The same cells without a word about who writes: its groups are sorted once."""
    _groups: dict[Axes, Groups] = field(default_factory=dict, init=False, repr=False)
    _parts: dict[tuple[int, int], Support] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", checked_shape(self.shape))
        if self.index.ndim != 2 or self.index.shape[1] != len(self.shape):
            raise ValueError(
                f"index must have shape (E, {len(self.shape)}), one column per axis of "
                f"shape={self.shape}, but has shape {tuple(self.index.shape)}"
            )
        if self.index.dtype != torch.int64:
            raise ValueError(f"index must be torch.int64, but is {self.index.dtype}")
        check_range(self.index, self.shape)

    @classmethod
    def of(cls, index: ArrayLike, shape: Sequence[int]) -> Support:
        """Cells from any integers: a list of tuples, a numpy array, a tensor.

        >>> len(Support.of([(0, 0), (0, 2)], (2, 3)))
        2
        """
        sizes = checked_shape(shape)
        cells = tensor_of(index, "index")
        if cells.shape == (0,):
            cells = cells.reshape(0, len(sizes)).to(torch.int64)
        if cells.is_floating_point() or cells.is_complex() or cells.dtype == torch.bool:
            raise ValueError(f"index must hold integers, but holds {cells.dtype}")
        return cls(cells.to(torch.int64), sizes)

    def __len__(self) -> int:
        return self.index.shape[0]

    def __repr__(self) -> str:
        return f"Support({_sizes(self.shape)}, {_many(len(self), 'cell')})"

    @property
    def order(self) -> int:
        return len(self.shape)

    @cached_property
    def directory(self) -> Directory:
        """How the groups that these cells form are numbered."""
        return self.numbering or Directory.of(self.index, self.shape)

    def groups(self, axes: Axes) -> Groups:
        """The groups of cells that agree on ``axes``: ``()`` is all of them, ``(0,)`` the rows.

        On all axes at once every cell is a group of its own.
        """
        if axes not in self._groups:
            self._groups[axes] = self._partition(axes)
        return self._groups[axes]

    def _partition(self, axes: Axes) -> Groups:
        check_axes(axes, self.order)
        if len(axes) == self.order > 1:
            return Groups(torch.arange(len(self), device=self.index.device), len(self))
        if self.whole is not None and self.writers is not None:
            return self.whole.groups(axes).written_by(self.writers)
        return self.directory.groups(self.index, axes, near=self.near)

    def written_by(self, writers: Tensor) -> Support:
        """The same cells, of which those of the mask are observed and others only asked about."""
        if writers.dtype != torch.bool or writers.shape != (len(self),):
            raise ValueError(
                f"writers must be a mask of shape ({len(self)},), but are {writers.dtype} of shape "
                f"{tuple(writers.shape)}"
            )
        return self._same(self.index, writers=writers, whole=self.whole or self)

    def part(self, start: int, stop: int, *, remember: bool = True) -> Support:
        """Some cells in a row, which find their groups among those of all.

        What is remembered is not sorted again when the same part is asked for.
        """
        if (start, stop) == (0, len(self)):
            return self
        if self.writers is not None:
            every = (self.whole or self).part(start, stop, remember=remember)
            return every.written_by(self.writers[start:stop])
        if (start, stop) in self._parts:
            return self._parts[start, stop]
        some = self._same(self.index[start:stop], near=True, writers=None, whole=None)
        if remember:
            self._parts[start, stop] = some
        return some

    def split(self, size: int) -> list[Support]:
        """All cells, ``size`` at a time."""
        return [self._same(index) for index in self.index.split(size)]

    def among(self, groups: Mapping[Axes, Tensor]) -> Support:
        """The same cells, whose groups on some axes are numbered among a few, ascending."""
        some = self._same(self.index)
        for axes, few in groups.items():
            ids = torch.searchsorted(few, self.groups(axes).ids)
            some._groups[axes] = Groups(ids, len(few))
        return some

    def _same(self, index: Tensor, **changed: Any) -> Support:
        """Cells of this support, numbered as here; they were checked before."""
        if "numbering" not in changed:  # working it out may mean to sort all cells
            changed["numbering"] = self.directory
        other = object.__new__(Support)
        known = {
            "index": index,
            "shape": self.shape,
            "numbering": self.numbering,
            "near": self.near,
            "writers": self.writers,
            "whole": self.whole,
            "_groups": {},
            "_parts": {},
        }
        for name, value in {**known, **changed}.items():
            object.__setattr__(other, name, value)
        return other

    def numbered_by(self, directory: Directory) -> Support:
        """The same cells, finding their groups among those of an array observed before."""
        fits = all(own <= known for own, known in zip(self.shape, directory.shape, strict=True))
        if not fits:
            return Support(self.index, directory.shape, directory)
        return self._same(self.index, shape=directory.shape, numbering=directory)

    def take(self, cells: Tensor) -> Support:
        """The given cells, by position or by a mask.

        They number their groups anew, unless this support was ``numbered_by`` a directory.
        """
        check_choice(cells, len(self))
        return Support(self.index[cells], self.shape, self.numbering)

    def find(self, cells: Tensor) -> Tensor:
        """At which position each row of ``cells`` (Q, D) stands here; E where it does not."""
        keys, positions = self._sorted
        ids = position(keys, keys_of(cells, tuple(range(self.order)), self.shape))
        return torch.cat([positions, positions.new_tensor([len(self)])])[ids]

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """The keys of all cells, ascending, and the positions at which those cells stand."""
        keys, positions = keys_of(self.index, tuple(range(self.order)), self.shape).sort()
        return keys, positions

    @cached_property
    def first_repeat(self) -> int | None:
        """The first position whose cell stands at an earlier one too, if there is any."""
        order = torch.arange(len(self), device=self.index.device)
        for column in self.index.T.flip(0):
            order = order[column[order].argsort(stable=True)]
        ordered = self.index[order]
        repeats = order[1:][(ordered[1:] == ordered[:-1]).all(dim=1)]
        return int(repeats.min()) if len(repeats) else None

    def check_distinct(self) -> None:
        repeat = self.first_repeat
        if repeat is not None:
            cell = tuple(self.index[repeat].tolist())
            raise ValueError(f"every cell may come once, but {cell} comes again at entry {repeat}")


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
        """Cells and their values from lists, numpy arrays or tensors: (E, D) and (E, K)."""
        content, support = floating(tensor_of(values, "values")), Support.of(index, shape)
        if content.shape == (0,):
            content = content.reshape(0, 1)
        return cls(support, content)

    @classmethod
    def from_dense(cls, dense: ArrayLike, observed: ArrayLike | None = None) -> ExchangeableArray:
        """From a tensor (N_1, ..., N_D, K): the cells where ``observed`` (N_1, ..., N_D) is true.

        All cells count as observed when no mask is given; missing ones that are marked by
        NaN are left out with ``observed=~dense.isnan().any(-1)``.
        """
        full = floating(tensor_of(dense, "dense"))
        if full.ndim < 2:
            raise ValueError(
                f"dense must have shape (N_1, ..., N_D, K), but has shape {tuple(full.shape)}"
            )
        shape = tuple(full.shape[:-1])
        if observed is None:
            mask = torch.ones(shape, dtype=torch.bool, device=full.device)
        else:
            mask = tensor_of(observed, "observed")
        if mask.shape != shape or mask.dtype != torch.bool:
            raise ValueError(
                f"observed must be a mask of shape {shape}, but is {mask.dtype} of shape "
                f"{tuple(mask.shape)}"
            )
        return cls(Support(mask.nonzero(), shape), full[mask])

    @classmethod
    def from_scipy(cls, matrix: object) -> ExchangeableArray:
        """From a scipy sparse array of any order: what it stores is observed, zeros included."""
        from scipy.sparse import coo_array, issparse

        if not issparse(matrix):
            raise ValueError(f"matrix must be a scipy sparse array, but is {kind_of(matrix)}")
        coo = coo_array(matrix)
        index = torch.stack([torch.as_tensor(axis, dtype=torch.int64) for axis in coo.coords], 1)
        return cls.of(index, torch.as_tensor(coo.data)[:, None], coo.shape)

    @classmethod
    def from_torch_sparse(cls, tensor: Tensor) -> ExchangeableArray:
        """From a torch sparse tensor; one dense dimension, if it has it, holds the channels."""
        if not isinstance(tensor, Tensor) or tensor.layout == torch.strided:
            raise ValueError(f"tensor must be a torch sparse tensor, but is {kind_of(tensor)}")
        coo = tensor if tensor.layout == torch.sparse_coo else tensor.to_sparse_coo()
        if coo.dense_dim() > 1:
            raise ValueError(
                f"a sparse tensor may have one dense dimension, but has {coo.dense_dim()}"
            )
        # Coalescing adds duplicates up without a word, so they are looked for before.
        Support.of(coo._indices().T, tuple(coo.shape[: coo.sparse_dim()])).check_distinct()
        coo = coo.coalesce()
        support = Support.of(coo.indices().T, tuple(coo.shape[: coo.sparse_dim()]))
        values = coo.values() if coo.dense_dim() else coo.values()[:, None]
        return cls(support, floating(values))

    def __len__(self) -> int:
        return len(self.support)

    def __repr__(self) -> str:
        return (
            f"ExchangeableArray({_sizes(self.shape)}, {_many(len(self), 'cell')}, "
            f"{_many(self.channels, 'channel')})"
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
        """The same cells holding other values; channels may differ in number."""
        return ExchangeableArray(self.support, values)

    def take(self, cells: Tensor) -> ExchangeableArray:
        """The given cells, by position or by a mask: a subsample, a split or a shuffle."""
        support = self.support.take(cells)
        if cells.dtype == torch.bool:  # cannot repeat a cell, so there is nothing to check
            return self.trusted(support, self.values[cells])
        return ExchangeableArray(support, self.values[cells])

    def relabel(self, permutations: Sequence[Tensor]) -> ExchangeableArray:
        """Rename members: number ``n`` on axis ``d`` becomes ``permutations[d][n]``."""
        if len(permutations) != self.order:
            raise ValueError(
                f"relabelling takes a permutation for each of {self.order} axes, but "
                f"{len(permutations)} came"
            )
        columns = [
            checked_permutation(names, size).to(self.support.index.device)[column]
            for names, size, column in zip(
                permutations, self.shape, self.support.index.T, strict=True
            )
        ]
        return ExchangeableArray(Support(torch.stack(columns, dim=1), self.shape), self.values)

    def to(self, target: torch.device | torch.dtype | str) -> ExchangeableArray:
        """On another device, or with values of another floating-point type."""
        values = self.values.to(target)
        support = Support(self.support.index.to(values.device), self.shape)
        if values.dtype == self.values.dtype:
            return self.trusted(support, values)
        return ExchangeableArray(support, values)  # a narrower type may not hold every value

    def to_dense(self, fill: float = 0.0) -> Tensor:
        """A tensor of shape (N_1, ..., N_D, K) with ``fill`` where nothing was observed."""
        dense = self.values.new_full((*self.shape, self.channels), fill)
        return dense.index_put(tuple(self.support.index.T), self.values)

    def to_scipy(self, channel: int | None = None) -> coo_array:
        """One channel as a scipy sparse array; it must be named where there are several."""
        from scipy.sparse import coo_array

        if channel is None and self.channels != 1:
            raise ValueError(f"channel must be given, since there are {self.channels} of them")
        values = self.values[:, channel or 0].detach().cpu().numpy()
        return coo_array((values, tuple(self.support.index.cpu().numpy().T)), shape=self.shape)

    def to_torch_sparse(self) -> Tensor:
        """A torch sparse COO tensor with the channels as its one dense dimension."""
        size = (*self.shape, self.channels)
        return torch.sparse_coo_tensor(
            self.support.index.T, self.values, size, check_invariants=True
        )

    @classmethod
    def trusted(cls, support: Support, values: Tensor) -> ExchangeableArray:
        """Skip all checks: for what a layer gives out, or parts of an array already checked."""
        array = object.__new__(cls)
        object.__setattr__(array, "support", support)
        object.__setattr__(array, "values", values)
        return array


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{size:,}" for size in shape)


def _many(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
