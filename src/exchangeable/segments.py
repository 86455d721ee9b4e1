"""Sums over groups of rows, and rows given back to their group: each is the other's gradient.

The rows of a group are brought together once, by sorting, and are then added up group by group,
always in the same order. On a CPU that is several times as fast as adding row after row to
where it belongs, and uses all cores; on a GPU it needs no atomic additions, whose order varies.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from exchangeable.groups import Groups

# In float32 a total of millions no longer notices small numbers: a million times 3.6, added one
# after the other, came to 0.9 % too little. Sums of parts do not.
_SUMMED_AT_ONCE = 4096


def segment_sum(values: Tensor, groups: Groups) -> Tensor:
    """Add up the rows of each group: (E, ...) -> (G, ...). An empty group gives 0."""
    flat = _SegmentSum.apply(values.flatten(1), groups)  # type: ignore[no-untyped-call]
    return flat.unflatten(1, values.shape[1:]) if values.ndim != 2 else flat


def gather(rows: Tensor, groups: Groups) -> Tensor:
    """Give every cell the row of its group: (G, ...) -> (E, ...)."""
    flat = _Gather.apply(rows.flatten(1), groups)  # type: ignore[no-untyped-call]
    return flat.unflatten(1, rows.shape[1:]) if rows.ndim != 2 else flat


class _SegmentSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, groups: Groups) -> Tensor:
        ctx.groups = groups
        return _summed(values, groups)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Gather.apply(gradient, ctx.groups), None  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, groups: Groups) -> Tensor:
        ctx.groups = groups
        return rows.index_select(0, groups.ids)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # A sum over readers, which half precision cannot hold.
        half = gradient.dtype in (torch.float16, torch.bfloat16)
        wide = gradient.float() if half else gradient
        total = _SegmentSum.apply(wide, ctx.groups)  # type: ignore[no-untyped-call]
        return total.to(gradient.dtype), None


def _summed(values: Tensor, groups: Groups) -> Tensor:
    if not len(values) or not values.shape[1]:
        return values.new_zeros(groups.number, values.shape[1])
    if groups.number == 1:
        return values.sum(dim=0, keepdim=True)
    starts, parts = groups.bags(_SUMMED_AT_ONCE)
    # Detached: torch prepares for a gradient of its own otherwise, which takes ten times as long.
    sums = functional.embedding_bag(groups.order, values.detach(), starts, mode="sum")
    if parts is None:
        return sums
    each = torch.arange(len(sums), device=sums.device)
    return functional.embedding_bag(each, sums, parts, mode="sum")


def segment_max(values: Tensor, groups: Groups) -> Tensor:
    """The largest row of each group, by channel: (E, K) -> (G, K). An empty group gives -inf."""
    lowest = values.new_full((groups.number, values.shape[1]), -torch.inf)
    return lowest.scatter_reduce(0, groups.ids[:, None].expand_as(values), values, "amax")
