"""Groups of cells: which cells agree on some axes, and how a cell met later finds its group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from exchangeable.kernels import Runs

Axes = tuple[int, ...]

_LARGEST_KEY = 2**63 - 1


def proper_subsets(order: int) -> tuple[Axes, ...]:
    """Every subset of the axes but the whole, small to large: what cells are pooled by.

    >>> proper_subsets(2)
    ((), (0,), (1,))
    """
    return tuple(axes for size in range(order) for axes in combinations(range(order), size))


def check_axes(axes: Axes, order: int) -> None:
    if axes != tuple(sorted(set(axes).intersection(range(order)))):
        raise ValueError(f"axes must ascend and lie between 0 and {order - 1}, but are {axes}")


@dataclass(frozen=True, eq=False)
class Groups:
    """A partition of cells: cell ``e`` is in group ``ids[e]``, one of ``number``.

    Where some of the cells only read, ``writers`` is a mask of the others, and ``whole`` the
    same groups without it, so that nothing needs to be sorted again when the mask changes.
    """

    ids: Tensor  # (E,)
    number: int
    start: int = 0
    """The group with number 0 here is this one among all: some cells meet a few groups only."""
    writers: Tensor | None = None  # (E,)
    whole: Groups | None = field(default=None, repr=False)

    def with_writers(self, writers: Tensor) -> Groups:
        """The same groups, of which only some cells count as members."""
        return Groups(self.ids, self.number, self.start, writers, self)

    @cached_property
    def sizes(self) -> Tensor:
        """How many cells of each group write: (G,)."""
        if self.writers is None:
            return self.ids.bincount(minlength=self.number)
        if self.ids.is_cuda:  # there counting is slow, and sums in sorted order are not
            from exchangeable import kernels

            ones = self.writers.unsqueeze(1).float()
            if kernels.supported(ones):
                return kernels.segment_sum(ones, self.runs).squeeze(1).long()
        none = self.ids.new_zeros(self.number)
        return none.index_add(0, self.ids, self.writers.to(none.dtype))

    def counts(self, dtype: torch.dtype) -> Tensor:
        """The same as a channel beside others: (G, 1)."""
        if dtype not in self._counts:
            self._counts[dtype] = self.sizes.to(dtype).unsqueeze(-1)
        return self._counts[dtype]

    @cached_property
    def _counts(self) -> dict[torch.dtype, Tensor]:
        return {}

    @cached_property
    def order(self) -> Tensor:
        """The cells that write, those of one group together, group after group: (E,)."""
        if self.whole is not None and self.writers is not None:
            return self.whole.order[self.writers[self.whole.order]]
        if bool((self.ids[1:] >= self.ids[:-1]).all()):
            return torch.arange(len(self.ids), device=self.ids.device)
        return self.ids.argsort(stable=True)

    @cached_property
    def runs(self) -> Runs:
        """How a GPU goes through all the cells, those that only read too."""
        from exchangeable.kernels import Runs

        return Runs.of(self.ids, self.number) if self.whole is None else self.whole.runs

    def bags(self, most: int) -> tuple[Tensor, Tensor | None]:
        """Where in ``order`` each group starts, and each part of one with over ``most`` cells.

        The second tells which part is the first of each group; None where all are whole.
        """
        if most not in self._bags:
            ends = self.sizes.cumsum(0)
            starts, parts = ends - self.sizes, None
            if len(self.order) > most and int(self.sizes.max()) > most:
                number = ((self.sizes + most - 1) // most).clamp(min=1)
                parts = number.cumsum(0) - number
                within = torch.arange(int(number.sum()), device=self.ids.device)
                within = within - parts.repeat_interleave(number)
                starts = starts.repeat_interleave(number) + most * within
            self._bags[most] = starts, parts
        return self._bags[most]

    @cached_property
    def _bags(self) -> dict[int, tuple[Tensor, Tensor | None]]:
        return {}


@dataclass(frozen=True, eq=False)
class GroupIndex:
    """How the groups of an array are numbered, so that cells met later find theirs.

    One axis makes one group per member, empty ones included. Two axes or more (of an array
    of higher order) make one group per combination that was observed, and a last group that
    stays empty: the one that a combination nobody observed reads.
    """

    shape: tuple[int, ...]
    keys: Mapping[Axes, Tensor]  # of the observed combinations, ascending: (G - 1,) each

    @classmethod
    def of(cls, index: Tensor, shape: tuple[int, ...]) -> GroupIndex:
        several = [axes for axes in proper_subsets(len(shape)) if len(axes) > 1]
        return cls(shape, {axes: keys_of(index, axes, shape).unique() for axes in several})

    def number(self, axes: Axes) -> int:
        """How many groups there are on ``axes``, the empty one of pairs included."""
        if len(axes) > 1:
            return len(self.keys[axes]) + 1
        return self.shape[axes[0]] if axes else 1

    def groups(self, index: Tensor, axes: Axes, *, near: bool = False) -> Groups:
        """The groups on ``axes`` that the cells of ``index`` (E, D) belong to.

        With ``near``, only those between the first and the last that these cells meet.
        """
        if not axes:
            ids = index.new_zeros(len(index))
        elif len(axes) == 1:
            ids = index[:, axes[0]].contiguous()
        else:
            ids = position(self.keys[axes], keys_of(index, axes, self.shape))
        if not near or not len(ids) or not axes:
            return Groups(ids, self.number(axes))
        first, last = (int(end) for end in ids.aminmax())
        return Groups(ids - first, last - first + 1, first)

    def extended(self, index: Tensor, shape: tuple[int, ...]) -> GroupIndex:
        """The directory once the cells of ``index`` are observed too, in an array of ``shape``."""
        added = GroupIndex.of(index, shape)
        keys = {
            axes: torch.cat([self._renumbered(axes, shape), added.keys[axes]]).unique()
            for axes in self.keys
        }
        return GroupIndex(shape, keys)

    def without(self, axis: int) -> GroupIndex:
        """The directory of the same table with one member of ``axis``, who has no cell."""
        shape = tuple(1 if a == axis else size for a, size in enumerate(self.shape))
        keys = {axes: found[:0] if axis in axes else found for axes, found in self.keys.items()}
        return GroupIndex(shape, keys)

    def positions_in(self, later: GroupIndex, axes: Axes) -> Tensor:
        """Where the groups on ``axes``, but for the empty one, went when it was extended: (G,)."""
        if len(axes) > 1:
            return position(later.keys[axes], self._renumbered(axes, later.shape))
        return torch.arange(self.number(axes))

    def _renumbered(self, axes: Axes, shape: tuple[int, ...]) -> Tensor:
        """The same combinations as keys of a larger shape; their order does not change."""
        keys, columns = self.keys[axes], []
        for axis in reversed(axes):
            columns.append(keys % self.shape[axis])
            keys = keys // self.shape[axis]
        sizes = [shape[axis] for axis in axes]
        return keys_of(torch.stack(columns[::-1], dim=1), tuple(range(len(axes))), sizes)


def keys_of(index: Tensor, axes: Axes, shape: Sequence[int]) -> Tensor:
    """One number per combination of coordinates on ``axes``, ascending as they do: (E,)."""
    sizes = [shape[axis] for axis in axes]
    if math.prod(sizes) > _LARGEST_KEY:
        raise ValueError(
            f"axes {axes} of shape {tuple(shape)} must make fewer than 2^63 combinations, "
            f"but make {math.prod(sizes):.1e}"
        )
    key = index[:, axes[0]]
    for axis in axes[1:]:
        key = key * shape[axis] + index[:, axis]
    return key


def position(known: Tensor, keys: Tensor) -> Tensor:
    """Where each key stands among the ``known`` ones, which ascend; their number if nowhere."""
    padded = torch.cat([known, known.new_tensor([_LARGEST_KEY])])
    at = torch.searchsorted(padded, keys)
    return torch.where(padded[at] == keys, at, len(known))
