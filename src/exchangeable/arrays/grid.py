"""Full arrays: every cell of a grid is observed, so groups are slices and need no index."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from exchangeable.arrays.groups import Axes, Diagonal, Grouping, Groups, check_axes
from exchangeable.arrays.support import Support
from exchangeable.runtime.cache import cached_property


@dataclass(frozen=True)
class GridGroups:
    """Groups of the cells of a full grid that agree on ``axes``: its slices."""

    shape: tuple[int, ...]
    axes: Axes
    device: torch.device

    @property
    def pooled(self) -> Axes:
        """Axes that are summed over."""
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.axes)

    @cached_property
    def sizes(self) -> Tensor:
        """Number of cells in each group, in the shape of the grid with pooled axes of length 1."""
        shape = [size if axis in self.axes else 1 for axis, size in enumerate(self.shape)]
        cells = math.prod(self.shape[axis] for axis in self.pooled)
        return torch.full(shape, cells, device=self.device)

    def counts(self, dtype: torch.dtype) -> Tensor:
        """Return ``sizes`` as one channel: (..., 1)."""
        return self.sizes.to(dtype).unsqueeze(-1)


@dataclass(frozen=True)
class Grid:
    """All cells of an array: the counterpart of ``Support`` for a full tensor, without an index."""

    shape: tuple[int, ...]
    device: torch.device

    @property
    def order(self) -> int:
        return len(self.shape)

    @property
    def joint(self) -> Support:
        """The cells as those of a joint matrix, which are listed."""
        every = torch.ones(self.shape, dtype=torch.bool, device=self.device)
        return Support(every.nonzero(), self.shape).joint

    def groups(self, grouping: Grouping) -> GridGroups:
        """Return the groups of cells that agree on some axes."""
        if isinstance(grouping, Diagonal):
            raise ValueError("the diagonal is of listed cells, but these are a full grid")
        check_axes(grouping, self.order)
        return GridGroups(self.shape, grouping, self.device)


AnyCells = Support | Grid


AnyGroups = Groups | GridGroups
