"""The row that each group offers its cells, from their sums, as a function with a gradient."""

from __future__ import annotations

from collections.abc import Sequence
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
    return summarise_all([sums], [weights])[0]


def summarise_all(sums: Sequence[Sums], weights: Sequence[Weights]) -> list[Tensor]:
    """Return the rows of the groups of several groupings, with the same parts: (G, O) each."""
    device = sums[0].cells.device.type
    # Results rounded to half precision need not all digits of float32.
    narrow = torch.is_autocast_enabled(device)
    digits = precision(torch.get_autocast_dtype(device) if narrow else torch.float32)
    inputs = [one for pair in zip(sums, weights, strict=True) for part in pair for one in part]
    return list(_Summarise.apply(digits, *inputs))  # type: ignore[no-untyped-call]


def can_summarise(sums: Sums, weights: Weights) -> bool:
    """Whether the kernel takes these: float32, listed groups, and not too wide."""
    tensors = [one for one in (*sums, *weights) if one is not None]
    matrix = weights.mean if weights.mean is not None else weights.attention
    if matrix is None or not available(sums.cells):
        return False
    small = padded(matrix.shape[0]) * padded(matrix.shape[1]) <= MAX_WEIGHTS
    return small and all(one.ndim == 2 and one.dtype == torch.float32 for one in tensors)


_PARTS = len(Sums._fields) + len(Weights._fields)


class _Summarise(Function):
    """Inputs: of each grouping its sums and its weights. Outputs: its rows."""

    @staticmethod
    def forward(ctx: Any, digits: str, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        from exchangeable.kernels.summary_programs import summarise_groups

        inputs = tuple(None if one is None else one.contiguous() for one in inputs)
        ctx.digits = digits
        ctx.save_for_backward(*inputs)
        by_part = _by_part(inputs)
        sizes, programs = _sizes(by_part)
        counts = by_part[0]
        rows = tuple(count.new_empty(len(count), sizes["OUT"]) for count in counts)
        launch(
            summarise_groups,
            (programs, len(counts)),
            (*by_part, rows, tuple(len(count) for count in counts)),
            PRECISION=digits,
            num_warps=SUMMARY.warps,
            num_stages=SUMMARY.stages,
            **sizes,
        )
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_rows: Tensor) -> Any:
        from exchangeable.kernels.summary_programs import summary_gradient

        by_part = _by_part(ctx.saved_tensors)
        counts, *sums = by_part[:4]
        weights = by_part[4:]
        sizes, programs = _sizes(by_part)
        like = [None if part is None else tuple(map(torch.empty_like, part)) for part in sums]
        lengths = [0 if part is None else len(part[0]) for part in weights]
        # An array without groups launches nothing, and its weights' gradient is 0.
        d_weights = counts[0].new_empty(programs, len(counts), sum(lengths), sizes["OUT"])
        launch(
            summary_gradient,
            (programs, len(counts)),
            (
                *by_part[:6],
                tuple(one.contiguous() for one in d_rows),
                *like,
                d_weights,
                tuple(len(count) for count in counts),
            ),
            COLUMNS=padded(sizes["HEADS"]),
            PRECISION=ctx.digits,
            num_warps=SUMMARY.warps,
            num_stages=SUMMARY.stages,
            **sizes,
        )
        gradients: list[Tensor | None] = []
        for i, total in enumerate(d_weights.sum(dim=0)):
            parts = total.split(lengths)
            d_each = [None if one is None else d for one, d in zip(weights, parts, strict=True)]
            gradients += [None, *(None if part is None else part[i] for part in like), *d_each]
        return None, *gradients


def _by_part(inputs: tuple[Tensor | None, ...]) -> list[Any]:
    """Return each part of the sums and weights by grouping; None where it is missing."""
    parts = [inputs[part::_PARTS] for part in range(_PARTS)]
    return [None if part[0] is None else part for part in parts]


def _sizes(by_part: list[Any]) -> tuple[dict[str, Any], int]:
    """Return the sizes that the kernel and its gradient share, and the number of programs."""
    counts, _, weight, _, mean, attention, by_count = by_part
    channels, outputs = (mean if mean is not None else attention)[0].shape
    wide, out_wide = padded(channels), padded(outputs)
    tile = SUMMARY.cells(wide, out_wide)
    sizes = {
        "NUMBER": len(counts),
        "K": channels,
        "WIDE": wide,
        "OUT": outputs,
        "OUT_WIDE": out_wide,
        "HEADS": 1 if weight is None else weight[0].shape[1],
        "GROUPS": tile,
        "MEAN": mean is not None,
        "ATTENTION": attention is not None,
        "COUNTS": by_count is not None,
    }
    return sizes, SUMMARY.programs(max(map(len, counts)), tile, counts[0])
