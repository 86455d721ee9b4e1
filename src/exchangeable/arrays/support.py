"""Supports: sets of cells and the groups they form.

Letters used for sizes throughout the package:

    D  order of the array (number of axes)      E  observed cells
    N  members of one axis                      Q  queried cells
    K  channels of a cell                       G  groups that a pooling forms
    O  channels a layer gives out               S  a subset of the axes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from exchangeable.arrays.checks import (
    check_range,
    check_selection,
    checked_shape,
    format_count,
    format_shape,
    to_tensor,
)
from exchangeable.arrays.groups import (
    PAIR,
    Axes,
    Diagonal,
    GroupIndex,
    Grouping,
    Groups,
    check_axes,
    group_keys,
    locate,
)
from exchangeable.runtime.cache import cached_property

if TYPE_CHECKING:
    from exchangeable.arrays.checks import ArrayLike


@dataclass(frozen=True, eq=False)
class Support:
    """A list of cells without their values, in any sequence; repeats allowed.

    Every layer of a network runs on the same cells, so arrays share one ``Support`` and
    its groups are computed once per batch rather than once per layer.
    Queried cells are ``indexed_by`` the group index of the observed cells.
    """

    index: Tensor  # (E, D) int64; row e holds the coordinates of cell e
    shape: tuple[int, ...]  # (N_1, ..., N_D)
    numbering: GroupIndex | None = None
    local_groups: bool = False
    """Whether groups are numbered from the first to the last that contains one of these cells."""
    writers: Tensor | None = field(default=None, repr=False)  # (E,)
    """Mask of the observed cells, which write; the others only read. None: all write."""
    unmasked: Support | None = field(default=None, repr=False)
    """The same cells without the mask: their groups are sorted once for all masks."""
    _groups: dict[Grouping, Groups] = field(default_factory=dict, init=False, repr=False)
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
        """Build from any integers: a list of tuples, a numpy array, a tensor.

        >>> len(Support.of([(0, 0), (0, 2)], (2, 3)))
        2
        """
        sizes = checked_shape(shape)
        cells = to_tensor(index, "index")
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
        """The numbering of the groups that these cells form."""
        return self.numbering or GroupIndex.of(self.index, self.shape)

    def groups(self, grouping: Grouping) -> Groups:
        """Return the groups of cells that agree on some axes: ``()`` one for all, ``(0,)`` rows.

        On all axes every cell is a group of its own; in a joint matrix it is that of its pair.
        """
        if grouping not in self._groups:
            self._groups[grouping] = self._partition(grouping)
        return self._groups[grouping]

    def _partition(self, grouping: Grouping) -> Groups:
        if isinstance(grouping, Diagonal):
            writers = self.on_diagonal
            writers = writers if self.writers is None else writers & self.writers
            return (self.unmasked or self).groups(grouping.axes).with_writers(writers)
        axes = grouping
        check_axes(axes, self.order)
        if len(axes) == self.order > 1 and not self.group_index.joint:
            return Groups(torch.arange(len(self), device=self.index.device), len(self))
        if self.unmasked is not None and self.writers is not None:
            return self.unmasked.groups(axes).with_writers(self.writers)
        return self.group_index.groups(self.index, axes, local_groups=self.local_groups)

    @cached_property
    def joint(self) -> Support:
        """The same cells of a joint matrix, whose axes are one set, with their pairs numbered."""
        if self.group_index.joint:
            return self
        if self.unmasked is not None and self.writers is not None:
            return self.unmasked.joint.with_writers(self.writers)
        return self._derived(
            self.index, numbering=GroupIndex.of(self.index, self.shape, joint=True)
        )

    @cached_property
    def mirrored(self) -> Support:
        """The cells (j, i) of a joint matrix for (i, j), to read the groups of these."""
        if self.unmasked is not None:
            return self.unmasked.mirrored
        return self._derived(self.index.flip(1))

    @cached_property
    def on_diagonal(self) -> Tensor:
        """Which cells of a joint matrix are of a member with itself: (E,)."""
        if self.unmasked is not None:
            return self.unmasked.on_diagonal
        return self.index[:, 0] == self.index[:, 1]

    @cached_property
    def meets_diagonal(self) -> bool:
        """Whether any cell is on the diagonal."""
        if self.unmasked is not None:
            return self.unmasked.meets_diagonal
        return bool(self.on_diagonal.any())

    def with_writers(self, writers: Tensor) -> Support:
        """Return the same cells, of which those in the mask write and the others only read."""
        if writers.dtype != torch.bool or writers.shape != (len(self),):
            raise ValueError(
                f"writers must be a mask of shape ({len(self)},), but are {writers.dtype} of shape "
                f"{tuple(writers.shape)}"
            )
        return self._derived(self.index, writers=writers, unmasked=self.unmasked or self)

    def part(self, start: int, stop: int, *, remember: bool = True) -> Support:
        """Return a slice of the cells, with the group numbers of the whole support.

        A remembered part is not sorted again when it is requested again.
        """
        if (start, stop) == (0, len(self)):
            return self
        if self.writers is not None:
            unmasked = (self.unmasked or self).part(start, stop, remember=remember)
            return unmasked.with_writers(self.writers[start:stop])
        if (start, stop) in self._parts:
            return self._parts[start, stop]
        part = self._derived(self.index[start:stop], local_groups=True, writers=None, unmasked=None)
        if remember:
            self._parts[start, stop] = part
        return part

    def split(self, size: int) -> list[Support]:
        """Return all cells in supports of at most ``size`` cells."""
        return [self._derived(index) for index in self.index.split(size)]

    def restricted_to(self, groups: Mapping[Axes, Tensor]) -> Support:
        """Return the same cells, with groups numbered within the given ones, which ascend."""
        support = self._derived(self.index)
        for axes, numbers in groups.items():
            ids = torch.searchsorted(numbers, self.groups(axes).ids)
            support._groups[axes] = Groups(ids, len(numbers))
        if PAIR in groups and self.group_index.joint:
            ids = torch.searchsorted(groups[PAIR], self.mirrored.groups(PAIR).ids)
            support.mirrored._groups[PAIR] = Groups(ids, len(groups[PAIR]))
        return support

    def _derived(self, index: Tensor, **changed: Any) -> Support:
        """Return a support of cells of this one, with its numbering and without checks."""
        if "numbering" not in changed:  # computing it may sort all cells
            changed["numbering"] = self.group_index
        other = object.__new__(Support)
        fields = {
            "index": index,
            "shape": self.shape,
            "numbering": self.numbering,
            "local_groups": self.local_groups,
            "writers": self.writers,
            "unmasked": self.unmasked,
            "_groups": {},
            "_parts": {},
        }
        for name, value in {**fields, **changed}.items():
            object.__setattr__(other, name, value)
        return other

    def indexed_by(self, group_index: GroupIndex) -> Support:
        """Return the same cells, with their groups numbered by the index of another array."""
        fits = all(size <= limit for size, limit in zip(self.shape, group_index.shape, strict=True))
        if not fits:
            return Support(self.index, group_index.shape, group_index)
        return self._derived(self.index, shape=group_index.shape, numbering=group_index)

    def take(self, cells: Tensor) -> Support:
        """Select cells by position or by mask.

        Their groups are numbered anew, unless this support was ``indexed_by`` a group index.
        """
        check_selection(cells, len(self))
        return Support(self.index[cells], self.shape, self.numbering)

    def find(self, cells: Tensor) -> Tensor:
        """Return the position of each row of ``cells`` (Q, D) in this support; E if absent."""
        keys, positions = self._sorted
        ids = locate(keys, group_keys(cells, tuple(range(self.order)), self.shape))
        return torch.cat([positions, positions.new_tensor([len(self)])])[ids]

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """The keys of all cells, ascending, and the position of each of these cells."""
        keys, positions = group_keys(self.index, tuple(range(self.order)), self.shape).sort()
        return keys, positions

    @cached_property
    def first_repeat(self) -> int | None:
        """The first position whose cell occurs at an earlier one too, or None."""
        permutation = torch.arange(len(self), device=self.index.device)
        for column in self.index.T.flip(0):
            permutation = permutation[column[permutation].argsort(stable=True)]
        ordered = self.index[permutation]
        repeats = permutation[1:][(ordered[1:] == ordered[:-1]).all(dim=1)]
        return int(repeats.min()) if len(repeats) else None

    def check_distinct(self) -> None:
        """Raise if a cell occurs twice."""
        repeat = self.first_repeat
        if repeat is not None:
            cell = tuple(self.index[repeat].tolist())
            raise ValueError(f"every cell may come once, but {cell} comes again at entry {repeat}")
