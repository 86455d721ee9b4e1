"""The row that each group offers its cells, from their sums, as a function with a gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from exchangeable.kernels.launch import SUMMARY, available, launch, padded, precision

MAX_WEIGHTS = 64 * 128
"""Entries of a weight matrix: a program holds two, and their gradients."""


class Sums(NamedTuple):
    """Sums over the cells of each group; attention and plain sums may each be missing."""

    cells: Tensor  # (G, 1): their number
    total: Tensor | None = None  # (G, K)
    weight: Tensor | None = None  # (G, H)
    weighted: Tensor | None = None  # (G, K)


class Weights(NamedTuple):
    """Weights of averages and counts."""

    mean: Tensor | None = None  # (K, O)
    attention: Tensor | None = None  # (K, O)
    counts: Tensor | None = None  # (2, O)


def summarise(sums: Sums, weights: Weights) -> Tensor:
    """Return the row of each group, (G, O). With n its cells:

    total / max(n, 1) @ mean + weighted / max(weight, 1) @ attention
                             + (log(1 + n) / 10, 1 / (1 + n)) @ counts
    """
    device = sums.cells.device.type
    # Results rounded to half precision need not all digits of float32.
    narrow = torch.is_autocast_enabled(device)
    digits = precision(torch.get_autocast_dtype(device) if narrow else torch.float32)
    rows: Tensor = _Summarise.apply(digits, *sums, *weights)  # type: ignore[no-untyped-call]
    return rows


def can_summarise(sums: Sums, weights: Weights) -> bool:
    """Whether the kernel takes these: float32, listed groups, and not too wide."""
    tensors = [one for one in (*sums, *weights) if one is not None]
    matrix = weights.mean if weights.mean is not None else weights.attention
    if matrix is None or not available(sums.cells):
        return False
    small = padded(matrix.shape[0]) * padded(matrix.shape[1]) <= MAX_WEIGHTS
    return small and all(one.ndim == 2 and one.dtype == torch.float32 for one in tensors)


class _Summarise(Function):
    @staticmethod
    def forward(ctx: Any, digits: str, *inputs: Tensor | None) -> Tensor:
        from exchangeable.kernels.summary_programs import summarise_groups

        inputs = tuple(None if one is None else one.contiguous() for one in inputs)
        count = inputs[0]
        assert count is not None
        ctx.digits = digits
        ctx.save_for_backward(*inputs)
        sizes, programs = _sizes(inputs)
        rows = count.new_empty(len(count), sizes["OUT"])
        launch(
            summarise_groups,
            programs,
            (*inputs, rows, len(rows)),
            PRECISION=digits,
            num_warps=SUMMARY.warps,
            num_stages=SUMMARY.stages,
            **sizes,
        )
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_rows: Tensor) -> Any:
        from exchangeable.kernels.summary_programs import summary_gradient

        inputs = ctx.saved_tensors
        count, *sums = inputs[:4]
        weights = inputs[4:]
        sizes, programs = _sizes(inputs)
        like = [None if one is None else torch.empty_like(one) for one in sums]
        lengths = [0 if one is None else len(one) for one in weights]
        # An array without groups launches nothing, and its weights' gradient is 0.
        d_weights = count.new_empty(programs, sum(lengths), sizes["OUT"])
        launch(
            summary_gradient,
            programs,
            (*inputs[:6], d_rows.contiguous(), *like, d_weights, len(count)),
            COLUMNS=padded(sizes["HEADS"]),
            PRECISION=ctx.digits,
            num_warps=SUMMARY.warps,
            num_stages=SUMMARY.stages,
            **sizes,
        )
        parts = d_weights.sum(dim=0).split(lengths)
        d_each = [None if one is None else d for one, d in zip(weights, parts, strict=True)]
        return None, None, *like, *d_each


def _sizes(inputs: tuple[Tensor | None, ...]) -> tuple[dict[str, Any], int]:
    """Return the sizes that the kernel and its gradient share, and the number of programs."""
    count, _, weight, _, mean, attention, counts = inputs
    matrix = mean if mean is not None else attention
    assert count is not None
    assert matrix is not None
    channels, outputs = matrix.shape
    wide, out_wide = padded(channels), padded(outputs)
    tile = SUMMARY.cells(wide, out_wide)
    sizes = {
        "K": channels,
        "WIDE": wide,
        "OUT": outputs,
        "OUT_WIDE": out_wide,
        "HEADS": 1 if weight is None else weight.shape[1],
        "GROUPS": tile,
        "MEAN": mean is not None,
        "ATTENTION": attention is not None,
        "COUNTS": counts is not None,
    }
    return sizes, SUMMARY.programs(len(count), tile, count)
