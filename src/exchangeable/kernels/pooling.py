"""Sums, maxima and softmax-weighted sums over groups of cells, as functions with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from exchangeable.kernels.launch import CHUNKS, POOL_GRADIENT, launch, padded, precision, warps
from exchangeable.kernels.runs import BUNDLE, Runs

MOST_GROUPINGS, MOST_COLUMNS = 4, 32
"""Groupings, and heads of them together, that one kernel differentiates: seven at once needed
more shared memory than a multiprocessor has."""


_SMALL = 192
"""Groups of fewer cells, on average, are better read in small blocks."""


class Pooled(NamedTuple):
    """What the cells of each group come to, in float32.

    A cell weighs exp(score - peak), with the group's largest score as its peak; head h weighs
    the h-th of H equal slices of the channels.
    """

    total: Tensor  # (G, K)
    peak: Tensor  # (G, H); -inf where nobody wrote. Has no gradient: it cancels in the end.
    weight: Tensor  # (G, H)
    weighted: Tensor  # (G, K)


def segment_sum(values: Tensor, runs: Runs, writers: Tensor | None = None) -> Tensor:
    """Add up the writing cells of each group, in float32: (E, K) -> (G, K). Empty gives 0."""
    return sum_all(values, [runs], writers)[1][0]


def segment_max(values: Tensor, runs: Runs, writers: Tensor | None = None) -> Tensor:
    """The largest writing cell of each group, in float32: (E, K) -> (G, K). Empty gives -inf.

    It has no gradient.
    """
    with torch.no_grad():
        return reduced(values.contiguous(), runs, _bytes(writers), largest=True)


def pool(values: Tensor, scores: Tensor, runs: Runs, writers: Tensor | None = None) -> Pooled:
    """Sum and attention of one grouping: values (E, K), weights of the scores (K, H)."""
    return pool_all(values, [scores], [runs], writers)[1][0]


def sum_all(
    values: Tensor, runs: Sequence[Runs], writers: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """The values themselves, and their sums by each of several groupings: (G, K) each.

    Who goes on with the values that are given back, rather than those that came, has their
    gradient added where that of the sums is computed, which saves a pass over the cells.
    """
    values, *totals = _Pool.apply(values, tuple(runs), _bytes(writers))  # type: ignore[no-untyped-call]
    return values, totals


def pool_all(
    values: Tensor,
    scores: Sequence[Tensor],
    runs: Sequence[Runs],
    writers: Tensor | None = None,
) -> tuple[Tensor, list[Pooled]]:
    """The values themselves, as in ``sum_all``, and sum and attention by several groupings.

    The scores of grouping i are values @ scores[i], (E, K) @ (K, H), of as many heads each.
    """
    heads = {weight.shape[1] for weight in scores}
    if len(scores) != len(runs) or len(heads) > 1:
        raise ValueError(
            f"{len(runs)} groupings need as many weights, with the same number of heads, but "
            f"shapes are {[tuple(weight.shape) for weight in scores]}"
        )
    values, *parts = _Pool.apply(values, tuple(runs), _bytes(writers), *scores)  # type: ignore[no-untyped-call]
    return values, [Pooled(*parts[i : i + 4]) for i in range(0, len(parts), 4)]


class _Pool(Function):
    """With weights of scores four outputs per grouping follow the values, and without one."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, runs: tuple[Runs, ...], writers: Tensor | None, *scores: Tensor
    ) -> tuple[Tensor, ...]:
        values = values.contiguous()
        scores = tuple(weight.contiguous() for weight in scores)
        ctx.set_materialize_grads(False)
        ctx.runs = runs
        if not scores:
            ctx.save_for_backward(values, writers)
            totals = [reduced(values, each, writers) for each in runs]
            return values.view_as(values), *totals
        pools = _all_attended(values, scores, runs, writers)
        peaks = [pooled.peak for pooled in pools]
        ctx.mark_non_differentiable(*peaks)
        ctx.save_for_backward(values, writers, *scores, *peaks)
        return values.view_as(values), *[part for pooled in pools for part in pooled]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, further: Tensor | None, *gradients: Tensor | None) -> Any:
        values, writers, *saved = ctx.saved_tensors
        number, parts = len(ctx.runs), 4 if saved else 1
        by_grouping = [gradients[parts * i : parts * (i + 1)] for i in range(number)]
        heads = saved[0].shape[1] if saved else 1
        d_scores: list[Tensor | None] = []
        step = min(MOST_GROUPINGS, max(1, MOST_COLUMNS // heads))
        for first in range(0, number, step):
            some = slice(first, first + step)
            further, more = _gradient(
                values,
                further,
                ctx.runs[some],
                saved[:number][some],
                saved[number:][some],
                by_grouping[some],
                writers,
            )
            d_scores += more
        return further, None, None, *d_scores


def reduced(
    values: Tensor, runs: Runs, writers: Tensor | None = None, *, largest: bool = False
) -> Tensor:
    """Sum, or largest, of each group without a gradient: (E, K) -> (G, K) float32."""
    cells = _cells(values, runs)
    parts = _reduced(values, runs.order, runs.chunk_starts, writers, cells, runs.is_sorted, largest)
    return _reduced(parts, None, runs.group_chunks, None, _merged(values, runs.most), True, largest)


def _reduced(
    values: Tensor,
    order: Tensor | None,
    starts: Tensor,
    writers: Tensor | None,
    cells: int,
    is_sorted: bool,
    largest: bool,
) -> Tensor:
    from exchangeable.kernels.pooling_programs import reduce_rows

    number, channels = len(starts) - 1, values.shape[1]
    out = values.new_empty(number, channels, dtype=torch.float32)
    launch(
        reduce_rows,
        number,
        (values, order, starts, writers, out),
        K=channels,
        WIDE=padded(channels),
        CELLS=cells,
        LARGEST=largest,
        SORTED=is_sorted,
        MASKED=writers is not None,
        num_warps=warps(cells * padded(channels)),
    )
    return out


def _all_attended(
    values: Tensor, scores: Sequence[Tensor], runs: Sequence[Runs], writers: Tensor | None
) -> list[Pooled]:
    """Attention by each grouping. That over all cells goes along with the one after it."""
    rest = list(zip(scores, runs, strict=True))
    if len(rest) < 2 or runs[0].number != 1 or runs[1].number == 1:
        return [_attended(values, [weight], own, writers)[0] for weight, own in rest]
    processes, everyone = _attended(values, [scores[1], scores[0]], runs[1], writers)
    further = [_attended(values, [weight], own, writers)[0] for weight, own in rest[2:]]
    return [everyone, processes, *further]


def _attended(
    values: Tensor, scores: Sequence[Tensor], runs: Runs, writers: Tensor | None
) -> list[Pooled]:
    """Every chunk by itself, then the chunks of every group together.

    A second kind of attention is that over all cells.
    """
    from exchangeable.kernels.pooling_programs import attend_chunks

    (channels, heads), number = scores[0].shape, len(scores)
    wide, cells = padded(channels), _cells(values, runs)
    parts = _empty_pools(values, runs.chunks, heads, number)
    launch(
        attend_chunks,
        runs.chunks,
        (values, tuple(scores), runs.order, runs.chunk_starts, writers, *parts),
        NUMBER=number,
        K=channels,
        WIDE=wide,
        HEADS=heads,
        COLUMNS=padded(heads * number + 1),
        CELLS=cells,
        SORTED=runs.is_sorted,
        MASKED=writers is not None,
        PRECISION=precision(values.dtype),
        num_warps=min(warps(cells * wide), CHUNKS[values.dtype].warps),
        num_stages=CHUNKS[values.dtype].stages,
    )
    total, *by_kind = parts
    kinds = [Pooled(total, *(part[i] for part in by_kind)) for i in range(number)]
    pools = [_joined(kinds[0], runs.group_chunks, _merged(values, runs.most))]
    for everyone in kinds[1:]:
        some = _joined(everyone, runs.bundles, _merged(values, BUNDLE))
        pools.append(_joined(some, runs.all_bundles, _merged(values, len(some.total))))
    return pools


def _joined(parts: Pooled, starts: Tensor, together: int) -> Pooled:
    """Parts from starts[g] up to starts[g + 1] as one, for every g, so many at once."""
    from exchangeable.kernels.pooling_programs import attend_groups

    channels, heads = parts.total.shape[1], parts.peak.shape[1]
    pools = _empty_pools(parts.total, len(starts) - 1, heads)
    launch(
        attend_groups,
        len(starts) - 1,
        (*parts, starts, *pools),
        K=channels,
        WIDE=padded(channels),
        HEADS=heads,
        CHUNKS=together,
        num_warps=warps(together * padded(channels)),
    )
    return pools


def _gradient(
    values: Tensor,
    further: Tensor | None,
    runs: Sequence[Runs],
    scores: Sequence[Tensor],
    peaks: Sequence[Tensor],
    gradients: Sequence[Sequence[Tensor | None]],
    writers: Tensor | None,
) -> tuple[Tensor | None, list[Tensor | None]]:
    """What the gradients of the pools by some groupings add to those of values and scores."""
    from exchangeable.kernels.pooling_programs import pool_gradient

    if all(gradient is None for each in gradients for gradient in each):
        return further, [None] * len(scores)
    (cells, channels), kind = values.shape, values.dtype
    heads = scores[0].shape[1] if scores else 1
    columns = padded(heads * len(runs))

    def stacked(part: int, width: int, kind: torch.dtype) -> tuple[Tensor, ...] | None:
        """One part of the gradients by grouping, zeros for those that are missing."""
        found = [each[part] if part < len(each) else None for each in gradients]
        if all(gradient is None for gradient in found):
            return None
        shapes = [(each.number, width) for each in runs]
        return tuple(
            values.new_zeros(shape, dtype=kind) if one is None else one.to(kind).contiguous()
            for one, shape in zip(found, shapes, strict=True)
        )

    d_total, d_weighted = stacked(0, channels, kind), stacked(3, channels, kind)
    d_weight = stacked(2, heads, torch.float32)
    attention = d_weight is not None or d_weighted is not None
    tile = POOL_GRADIENT[kind]
    block = tile.cells(padded(channels), columns)
    programs = tile.programs(cells, block, values)
    d_values = torch.empty_like(values)
    d_scores = values.new_empty(
        programs, channels, columns if attention else 0, dtype=torch.float32
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
        FIRST_ALONE=runs[0].number == 1,
        TIDY=channels == padded(channels) and heads.bit_count() == 1,
        MASKED=writers is not None,
        PRECISION=precision(kind),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if not attention:
        return d_values, [None] * len(scores)
    d_all = d_scores.sum(dim=0)
    return d_values, list(d_all[:, : heads * len(runs)].split(heads, dim=1))


def _empty_pools(values: Tensor, number: int, heads: int, *kinds: int) -> Pooled:
    """Room for the sums of so many groups, and for several kinds of attention: (N, G, ...)."""
    by_head, by_channel = (*kinds, number, heads), (number, values.shape[1])
    shapes = by_channel, by_head, by_head, (*kinds, *by_channel)
    return Pooled(*(values.new_empty(shape, dtype=torch.float32) for shape in shapes))


def _cells(values: Tensor, runs: Runs) -> int:
    """Cells of a block: no more than most groups have, so that few lie idle."""
    most = CHUNKS[values.dtype].cells(padded(values.shape[1]))
    if runs.number == 1:
        return most
    mean = len(runs.ids) // max(runs.number, 1)
    return max(most // (4 if mean < _SMALL else 2), 16)


def _merged(values: Tensor, most: int) -> int:
    """Chunks of a block, when at most so many of a group are merged."""
    return min(CHUNKS[values.dtype].cells(padded(values.shape[1])), padded(most, 2))


def _bytes(writers: Tensor | None) -> Tensor | None:
    return None if writers is None else writers.contiguous().view(torch.uint8)
