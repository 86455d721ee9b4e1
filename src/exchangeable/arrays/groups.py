"""Groups of cells that agree on some axes, and the index by which later cells find theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from exchangeable.arrays.cells import MAX_KEY
from exchangeable.runtime.cache import cached_property

if TYPE_CHECKING:
    from exchangeable.kernels import Runs

Axes = tuple[int, ...]
PAIR: Axes = (0, 1)
"""Both axes of a joint matrix: its pairs of members, in one direction."""


@dataclass(frozen=True)
class Diagonal:
    """Grouping of the cells on the diagonal of a joint matrix by some axes; no others write."""

    axes: Axes


Grouping = Axes | Diagonal
"""How cells are grouped: all of them by some axes, or those on the diagonal alone."""


def axes_of(grouping: Grouping) -> Axes:
    """Return the axes that the members of a group agree on."""
    return grouping.axes if isinstance(grouping, Diagonal) else grouping


def proper_subsets(order: int) -> tuple[Axes, ...]:
    """Every subset of the axes but the full set, small to large: the axes that pools keep.

    >>> proper_subsets(2)
    ((), (0,), (1,))
    """
    return tuple(axes for size in range(order) for axes in combinations(range(order), size))


def check_axes(axes: Axes, order: int) -> None:
    """Raise unless ``axes`` ascend and are axes of an array of this order."""
    if axes != tuple(sorted(set(axes).intersection(range(order)))):
        raise ValueError(f"axes must ascend and lie between 0 and {order - 1}, but are {axes}")


@dataclass(frozen=True, eq=False)
class Groups:
    """A partition of cells: cell ``e`` is in group ``ids[e]``, one of ``number``.

    Where some cells only read, ``writers`` is a mask of the others, and ``unmasked`` holds the
    same groups without it, so that nothing is sorted again when the mask changes.
    """

    ids: Tensor  # (E,)
    number: int
    start: int = 0
    """Number, in the whole array, of the group that is 0 here: a part may cover few groups."""
    writers: Tensor | None = None  # (E,)
    unmasked: Groups | None = field(default=None, repr=False)

    def with_writers(self, writers: Tensor) -> Groups:
        """Return the same groups, to which only the cells of the mask write."""
        return Groups(self.ids, self.number, self.start, writers, self)

    @cached_property
    def sizes(self) -> Tensor:
        """Number of cells that write to each group: (G,)."""
        if self.writers is None:
            return self.ids.bincount(minlength=self.number)
        if self.ids.is_cuda:  # adding ones there takes long, or atomic additions
            return self.runs.count(self.writers)
        none = self.ids.new_zeros(self.number)
        return none.index_add(0, self.ids, self.writers.to(none.dtype))

    def counts(self, dtype: torch.dtype) -> Tensor:
        """Return ``sizes`` as one channel: (G, 1)."""
        if dtype not in self._counts:
            self._counts[dtype] = self.sizes.to(dtype).unsqueeze(-1)
        return self._counts[dtype]

    @cached_property
    def _counts(self) -> dict[torch.dtype, Tensor]:
        return {}

    @cached_property
    def permutation(self) -> Tensor:
        """Positions of the cells that write, sorted by group: (E,)."""
        if self.unmasked is not None and self.writers is not None:
            return self.unmasked.permutation[self.writers[self.unmasked.permutation]]
        if bool((self.ids[1:] >= self.ids[:-1]).all()):
            return torch.arange(len(self.ids), device=self.ids.device)
        return self.ids.argsort(stable=True)

    @cached_property
    def runs(self) -> Runs:
        """Sorted chunks of all cells for GPU kernels, those that only read included."""
        from exchangeable.kernels import Runs

        return Runs.of(self.ids, self.number) if self.unmasked is None else self.unmasked.runs

    def bags(self, max_cells: int) -> tuple[Tensor, Tensor | None]:
        """Cut ``permutation`` into bags: one per group, or several of at most ``max_cells`` cells.

        Returns the start of each bag, and the first bag of each group: None if each has one.
        """
        if max_cells not in self._bags:
            ends = self.sizes.cumsum(0)
            starts, first_bags = ends - self.sizes, None
            if len(self.permutation) > max_cells and int(self.sizes.max()) > max_cells:
                counts = ((self.sizes + max_cells - 1) // max_cells).clamp(min=1)
                first_bags = counts.cumsum(0) - counts
                within = torch.arange(int(counts.sum()), device=self.ids.device)
                within = within - first_bags.repeat_interleave(counts)
                starts = starts.repeat_interleave(counts) + max_cells * within
            self._bags[max_cells] = starts, first_bags
        return self._bags[max_cells]

    @cached_property
    def _bags(self) -> dict[int, tuple[Tensor, Tensor | None]]:
        return {}


@dataclass(frozen=True, eq=False)
class GroupIndex:
    """The numbering of the groups of an array, by which later cells find theirs.

    One axis makes one group per member, empty ones included. Two axes or more (of an array
    of higher order) make one group per observed combination, and a last group that stays
    empty: the one that unobserved combinations read. In a joint matrix, whose axes are one
    set, so do the pairs of members, as each cell reads the mirrored one.
    """

    shape: tuple[int, ...]
    keys: Mapping[Axes, Tensor]  # keys of the observed combinations, ascending: (G - 1,) each

    @classmethod
    def of(cls, index: Tensor, shape: tuple[int, ...], *, joint: bool = False) -> GroupIndex:
        """Number the groups of the cells of ``index`` (E, D)."""
        several = [axes for axes in proper_subsets(len(shape)) if len(axes) > 1]
        several += [PAIR] if joint else []
        return cls(shape, {axes: group_keys(index, axes, shape).unique() for axes in several})

    @property
    def joint(self) -> bool:
        """Whether both axes of the matrix are one set, so that its pairs are numbered too."""
        return len(self.shape) == len(PAIR) and PAIR in self.keys

    def number(self, grouping: Grouping) -> int:
        """Return the number of groups, the empty one of combinations included."""
        axes = axes_of(grouping)
        if len(axes) > 1:
            return len(self.keys[axes]) + 1
        return self.shape[axes[0]] if axes else 1

    def groups(self, index: Tensor, axes: Axes, *, local_groups: bool = False) -> Groups:
        """Return the groups on ``axes`` of the cells of ``index`` (E, D).

        With ``local_groups``, only those from the first to the last that contains a cell.
        """
        if not axes:
            ids = index.new_zeros(len(index))
        elif len(axes) == 1:
            ids = index[:, axes[0]].contiguous()
        else:
            ids = locate(self.keys[axes], group_keys(index, axes, self.shape))
        if not local_groups or not len(ids) or not axes:
            return Groups(ids, self.number(axes))
        first, last = (int(end) for end in ids.aminmax())
        return Groups(ids - first, last - first + 1, first)

    def extended(self, index: Tensor, shape: tuple[int, ...]) -> GroupIndex:
        """Return the index with the cells of ``index`` added, in an array of ``shape``."""
        added = GroupIndex.of(index, shape, joint=self.joint)
        keys = {
            axes: torch.cat([self._renumbered(axes, shape), added.keys[axes]]).unique()
            for axes in self.keys
        }
        return GroupIndex(shape, keys)

    def with_new_members(self, axis: int, count: int = 1) -> GroupIndex:
        """Return the index of the same table with other members, without cells, on ``axis``."""
        shape = tuple(count if a == axis else size for a, size in enumerate(self.shape))
        keys = {axes: key[:0] if axis in axes else key for axes, key in self.keys.items()}
        return GroupIndex(shape, keys)

    def positions_in(self, later: GroupIndex, grouping: Grouping) -> Tensor:
        """Number in ``later`` of each group, the empty one left out: (G,)."""
        axes = axes_of(grouping)
        if len(axes) > 1:
            return locate(later.keys[axes], self._renumbered(axes, later.shape))
        return torch.arange(self.number(axes))

    def _renumbered(self, axes: Axes, shape: tuple[int, ...]) -> Tensor:
        """Return the keys of the same combinations in a larger shape; they ascend as before."""
        keys, columns = self.keys[axes], []
        for axis in reversed(axes):
            columns.append(keys % self.shape[axis])
            keys = keys // self.shape[axis]
        sizes = [shape[axis] for axis in axes]
        return group_keys(torch.stack(columns[::-1], dim=1), tuple(range(len(axes))), sizes)


def group_keys(index: Tensor, axes: Axes, shape: Sequence[int]) -> Tensor:
    """Number the combinations of coordinates on ``axes``, ascending as they do: (E, D) -> (E,)."""
    sizes = [shape[axis] for axis in axes]
    if math.prod(sizes) > MAX_KEY:
        raise ValueError(
            f"axes {axes} of shape {tuple(shape)} must make fewer than 2^63 combinations, "
            f"but make {math.prod(sizes):.1e}"
        )
    key = index[:, axes[0]]
    for axis in axes[1:]:
        key = key * shape[axis] + index[:, axis]
    return key


def locate(sorted_keys: Tensor, keys: Tensor) -> Tensor:
    """Return the position of each key among ``sorted_keys``; their length if it is absent."""
    padded = torch.cat([sorted_keys, sorted_keys.new_tensor([MAX_KEY])])
    at = torch.searchsorted(padded, keys)
    return torch.where(padded[at] == keys, at, len(sorted_keys))
