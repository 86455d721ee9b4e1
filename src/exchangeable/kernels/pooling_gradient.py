"""The gradient of pools with respect to the cells and to the weights of their scores."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from exchangeable.kernels.launch import POOL_GRADIENT, launch, padded, precision
from exchangeable.kernels.runs import Runs

MAX_GROUPINGS, MAX_COLUMNS = 4, 32
"""Groupings, and heads of all of them, that one kernel differentiates: seven groupings needed
more shared memory than a multiprocessor has."""


def add_pool_gradients(
    values: Tensor,
    further: Tensor | None,
    runs: Sequence[Runs],
    scores: Sequence[Tensor],
    peaks: Sequence[Tensor],
    gradients: Sequence[Sequence[Tensor | None]],
    writers: Tensor | None,
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Add the gradients of the pools by these groupings to those of values and scores."""
    from exchangeable.kernels.pooling_gradient_programs import pool_gradient

    if all(gradient is None for each in gradients for gradient in each):
        return further, [None] * len(scores)
    (cells, channels), dtype = values.shape, values.dtype
    heads = scores[0].shape[1] if scores else 1
    columns = padded(heads * len(runs))

    numbers = [each.number for each in runs]
    d_total, d_weighted, d_weight = (
        # Every cell reads its rows: half the width is half the traffic.
        _by_grouping(gradients, part, numbers, width, kind)
        for part, width, kind in (
            (0, channels, dtype),
            (3, channels, dtype),
            (2, heads, torch.float32),
        )
    )
    attention = d_weight is not None or d_weighted is not None
    tile = POOL_GRADIENT[dtype]
    first_alone = runs[0].number == 1
    if padded(channels) != 64 or len(runs) > 3 or not first_alone:  # the limit is for these
        tile = tile.unlimited()
    block = tile.cells(padded(channels), columns)
    programs = tile.programs(cells, block, values)
    d_values = torch.empty_like(values)
    d_scores = values.new_empty(
        programs, len(runs), channels, heads if attention else 0, dtype=torch.float32
    )
    launch(
        pool_gradient,
        programs,
        (
            values,
            None if further is None else further.contiguous(),
            tuple(each.ids for each in runs),
            tuple(scores) or None,
            tuple(peaks) or None,
            d_weight,
            d_total,
            d_weighted,
            writers,
            d_values,
            d_scores,
            cells,
        ),
        NUMBER=len(runs),
        K=channels,
        WIDE=padded(channels),
        HEADS=heads,
        COLUMNS=columns,
        CELLS=block,
        TOTAL=d_total is not None,
        WEIGHT=d_weight is not None,
        WEIGHTED=d_weighted is not None,
        FURTHER=further is not None,
        FAR=any(each.number * channels >= 2**31 for each in runs),
        FIRST_ALONE=first_alone,
        TIDY=channels == padded(channels) and heads.bit_count() == 1,
        MASKED=writers is not None,
        PRECISION=precision(dtype),
        **tile.options(),
    )
    if not attention:
        return d_values, [None] * len(scores)
    return d_values, list(d_scores.sum(dim=0))


def _by_grouping(
    gradients: Sequence[Sequence[Tensor | None]],
    part: int,
    numbers: Sequence[int],
    width: int,
    dtype: torch.dtype,
) -> tuple[Tensor, ...] | None:
    """Return one part of the gradients by grouping, zeros for missing ones; None if all are."""
    by_run = [each[part] if part < len(each) else None for each in gradients]
    like = next((one for one in by_run if one is not None), None)
    if like is None:
        return None
    return tuple(
        like.new_zeros(number, width, dtype=dtype) if one is None else one.to(dtype).contiguous()
        for one, number in zip(by_run, numbers, strict=True)
    )
