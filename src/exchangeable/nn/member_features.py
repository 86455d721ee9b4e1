"""Features of members in the pools of the layer that they enter, without a copy for each cell.

The paper broadcasts features of rows and columns over the array, as further channels of its cells.
The mean of such channels over a group's cells is a sum of the features of members, each as often as
it has cells there: within its own group a member's features times the group's size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.grid import AnyCells, Grid
from exchangeable.arrays.groups import Grouping
from exchangeable.nn import pooling
from exchangeable.nn.pooling import State
from exchangeable.nn.pools import Pool

BLOCK = 8
"""Features that are spread to the cells at a time, where members have to be counted."""


class FeaturePool(Pool):
    """The average of the features of the group's cells, those of all axes side by side."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.channels = sum(sizes)

    def state_size(self, in_channels: int) -> int:
        return self.channels + 1

    def summarise(self, state: State) -> Tensor:
        return pooling.read_mean(state)

    def write_features(
        self, features: FeatureTensors | None, values: Tensor, cells: AnyCells, grouping: Grouping
    ) -> State:
        """Write the state (total, count) of each group, from the features of members alone."""
        count = pooling.count_over(values, cells.groups(grouping))
        totals = [
            _total(members.to(count.dtype), count, cells, axis, grouping)
            for axis, members in enumerate(features or ())
            if members is not None
        ]
        return torch.cat(totals, dim=-1), count


def _total(
    members: Tensor, count: Tensor, cells: AnyCells, axis: int, grouping: Grouping
) -> Tensor:
    """Add up the features of the members of one axis over each group's cells: (N, F) -> (G, F)."""
    own = grouping == (axis,)
    if isinstance(cells, Grid):
        spread = pooling.unpool_members(members, cells, axis).expand(*cells.shape, -1)
        return pooling.sum_over(spread, cells.groups(grouping))
    if own or grouping == ():
        groups = cells.groups((axis,))
        met = members[groups.start : groups.start + groups.number]
        if own:
            return count * met
        return groups.counts(met.dtype).T @ met
    blocks = [
        pooling.sum_over(pooling.unpool_members(block, cells, axis), cells.groups(grouping))
        for block in members.split(BLOCK, dim=1)
    ]
    return torch.cat(blocks, dim=-1)


def check_member_features(
    features: FeatureTensors | None, sizes: Sequence[int], shape: tuple[int, ...], weight: Tensor
) -> None:
    """Raise unless features have these sizes, by axis, and the type and device of a weight."""
    members = (None,) * len(shape) if features is None else features
    expected = [(n, size) if size else None for n, size in zip(shape, sizes, strict=True)]
    shapes = [tuple(f.shape) if isinstance(f, Tensor) else f for f in members]
    if isinstance(members, Tensor) or shapes != expected:
        raise ValueError(f"features must have shapes {expected}, one per axis, but have {shapes}")
    for axis, f in enumerate(members):
        if f is None:
            continue
        check_like_weights(f"features of axis {axis}", f, weight)
        if not f.isfinite().all():
            member = int((~f.isfinite()).nonzero()[0, 0])
            raise ValueError(
                f"features must be finite, but member {member} of axis {axis} has "
                f"{f[member].tolist()}"
            )


def check_like_weights(name: str, tensor: Tensor, weight: Tensor) -> None:
    """Raise unless a tensor has the type and device of the layer's weights."""
    if (weight.dtype, weight.device) != (tensor.dtype, tensor.device):
        raise ValueError(
            f"{name} must be {weight.dtype} on {weight.device} as the layer's weights are, but "
            f"are {tensor.dtype} on {tensor.device}"
        )
