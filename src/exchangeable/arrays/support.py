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
    checked_shape,
    format_count,
    format_shape,
    tensor_of,
)
from exchangeable.arrays.groups import Axes, GroupIndex, Groups, check_axes, keys_of, position

if TYPE_CHECKING:
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
    numbering: GroupIndex | None = None
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
        return f"Support({format_shape(self.shape)}, {format_count(len(self), 'cell')})"

    @property
    def order(self) -> int:
        return len(self.shape)

    @cached_property
    def group_index(self) -> GroupIndex:
        """How the groups that these cells form are numbered."""
        return self.numbering or GroupIndex.of(self.index, self.shape)

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
            return self.whole.groups(axes).with_writers(self.writers)
        return self.group_index.groups(self.index, axes, near=self.near)

    def with_writers(self, writers: Tensor) -> Support:
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
            return every.with_writers(self.writers[start:stop])
        if (start, stop) in self._parts:
            return self._parts[start, stop]
        some = self._same(self.index[start:stop], near=True, writers=None, whole=None)
        if remember:
            self._parts[start, stop] = some
        return some

    def split(self, size: int) -> list[Support]:
        """All cells, ``size`` at a time."""
        return [self._same(index) for index in self.index.split(size)]

    def restricted_to(self, groups: Mapping[Axes, Tensor]) -> Support:
        """The same cells, whose groups on some axes are numbered among a few, ascending."""
        some = self._same(self.index)
        for axes, few in groups.items():
            ids = torch.searchsorted(few, self.groups(axes).ids)
            some._groups[axes] = Groups(ids, len(few))
        return some

    def _same(self, index: Tensor, **changed: Any) -> Support:
        """Cells of this support, numbered as here; they were checked before."""
        if "numbering" not in changed:  # working it out may mean to sort all cells
            changed["numbering"] = self.group_index
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

    def indexed_by(self, group_index: GroupIndex) -> Support:
        """The same cells, finding their groups among those of an array observed before."""
        fits = all(own <= known for own, known in zip(self.shape, group_index.shape, strict=True))
        if not fits:
            return Support(self.index, group_index.shape, group_index)
        return self._same(self.index, shape=group_index.shape, numbering=group_index)

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
