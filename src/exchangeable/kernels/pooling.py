"""Sums, maxima and softmax-weighted sums over groups of cells, as functions with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from exchangeable.kernels.launch import (
    CHUNKS,
    REDUCE_STAGES,
    launch,
    padded,
    precision,
    warps,
)
from exchangeable.kernels.pooling_gradient import (
    MAX_COLUMNS,
    MAX_GROUPINGS,
    add_pool_gradients,
)
from exchangeable.kernels.runs import CHUNKS_PER_BUNDLE, Runs

_BLOCKS_PER_GROUP = 4
"""Blocks of chunks in the largest group: most groups have one chunk or two."""
_SMALL_GROUP = 192
"""Groups with fewer cells on average are read faster in small blocks."""


class Pooled(NamedTuple):
    """Sums of the cells of each group, in float32.

    A cell weighs exp(score - peak), with the group's largest score as its peak; head h weighs
    the h-th of H equal slices of the channels.
    """

    total: Tensor  # (G, K)
    peak: Tensor  # (G, H); -inf where no cell writes. No gradient: it cancels in the end.
    weight: Tensor  # (G, H)
    weighted: Tensor  # (G, K)


def segment_sum(values: Tensor, runs: Runs, writers: Tensor | None = None) -> Tensor:
    """Add up the writing cells of each group, in float32: (E, K) -> (G, K). Empty gives 0."""
    return sum_all(values, [runs], writers)[1][0]


def segment_max(values: Tensor, runs: Runs, writers: Tensor | None = None) -> Tensor:
    """Maximum over the writing cells of each group, in float32: (E, K) -> (G, K). Empty: -inf.

    It has no gradient.
    """
    with torch.no_grad():
        return reduce_groups(values.contiguous(), runs, _bytes(writers), largest=True)


def pool(values: Tensor, scores: Tensor, runs: Runs, writers: Tensor | None = None) -> Pooled:
    """Sum and attention by one grouping, for values (E, K) and score weights (K, H)."""
    return pool_all(values, [scores], [runs], writers)[1][0]


def sum_all(
    values: Tensor, runs: Sequence[Runs], writers: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Return the values themselves, and their sums by each of several groupings: (G, K) each.

    Callers that go on with the returned values, instead of the passed ones, get their gradient
    added where that of the sums is computed, which saves a pass over the cells.
    """
    values, *totals = _Pool.apply(values, tuple(runs), _bytes(writers))  # type: ignore[no-untyped-call]
    return values, totals


def pool_all(
    values: Tensor,
    scores: Sequence[Tensor],
    runs: Sequence[Runs],
    writers: Tensor | None = None,
) -> tuple[Tensor, list[Pooled]]:
    """Return the values themselves, as ``sum_all`` does, and sum and attention by each grouping.

    The scores of grouping i are values @ scores[i], (E, K) @ (K, H), with equal H for all.
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
    """Outputs: the values, then four tensors per grouping, or one if there are no score weights."""

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
            totals = [reduce_groups(values, each, writers) for each in runs]
            return values.view_as(values), *totals
        pools = _attend_all(values, scores, runs, writers)
        peaks = [pooled.peak for pooled in pools]
        ctx.mark_non_differentiable(*peaks)
        ctx.save_for_backward(values, writers, *scores, *peaks)
        return values.view_as(values), *[part for pooled in pools for part in pooled]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, further: Tensor | None, *gradients: Tensor | None) -> Any:
        values, writers, *saved = ctx.saved_tensors
        groupings, parts = len(ctx.runs), 4 if saved else 1
        by_grouping = [gradients[parts * i : parts * (i + 1)] for i in range(groupings)]
        heads = saved[0].shape[1] if saved else 1
        d_scores: list[Tensor | None] = []
        step = min(MAX_GROUPINGS, max(1, MAX_COLUMNS // heads))
        for first in range(0, groupings, step):
            batch = slice(first, first + step)
            further, more = add_pool_gradients(
                values,
                further,
                ctx.runs[batch],
                saved[:groupings][batch],
                saved[groupings:][batch],
                by_grouping[batch],
                writers,
            )
            d_scores += more
        return further, None, None, *d_scores


def reduce_groups(
    values: Tensor, runs: Runs, writers: Tensor | None = None, *, largest: bool = False
) -> Tensor:
    """Sum or maximum of each group, without a gradient: (E, K) -> (G, K) float32."""
    cells = _cells_per_block(values, runs)
    parts = _reduce_runs(
        values, runs.permutation, runs.chunk_starts, writers, cells, runs.is_sorted, largest
    )
    chunks = _chunks_per_block(values, runs.max_chunks)
    return _reduce_runs(parts, None, runs.group_chunks, None, chunks, True, largest)


def _reduce_runs(
    values: Tensor,
    permutation: Tensor | None,
    starts: Tensor,
    writers: Tensor | None,
    cells: int,
    is_sorted: bool,
    largest: bool,
) -> Tensor:
    """Sum or maximum of the rows from starts[p] up to starts[p + 1], for every p."""
    from exchangeable.kernels.pooling_programs import reduce_rows

    programs, channels = len(starts) - 1, values.shape[1]
    out = values.new_empty(programs, channels, dtype=torch.float32)
    launch(
        reduce_rows,
        programs,
        (values, permutation, starts, writers, out),
        K=channels,
        WIDE=padded(channels),
        CELLS=cells,
        LARGEST=largest,
        SORTED=is_sorted,
        MASKED=writers is not None,
        STAGES=REDUCE_STAGES,
        num_warps=warps(cells * padded(channels)),
    )
    return out


def _attend_all(
    values: Tensor, scores: Sequence[Tensor], runs: Sequence[Runs], writers: Tensor | None
) -> list[Pooled]:
    """Attention by each grouping. The one over all cells shares a pass with the next."""
    rest = list(zip(scores, runs, strict=True))
    if len(rest) < 2 or runs[0].number != 1 or runs[1].number == 1:
        return [_attend(values, [weight], each, writers)[0] for weight, each in rest]
    second, all_cells = _attend(values, [scores[1], scores[0]], runs[1], writers)
    others = [_attend(values, [weight], each, writers)[0] for weight, each in rest[2:]]
    return [all_cells, second, *others]


def _attend(
    values: Tensor, scores: Sequence[Tensor], runs: Runs, writers: Tensor | None
) -> list[Pooled]:
    """Attend within every chunk, then merge the chunks of every group.

    The second of two score weights attends over all cells.
    """
    from exchangeable.kernels.pooling_programs import attend_chunks

    (channels, heads), kinds = scores[0].shape, len(scores)
    wide, cells = padded(channels), _cells_per_block(values, runs)
    parts = _empty_pools(values, runs.chunks, heads, kinds)
    launch(
        attend_chunks,
        runs.chunks,
        (values, tuple(scores), runs.permutation, runs.chunk_starts, writers, *parts),
        NUMBER=kinds,
        K=channels,
        WIDE=wide,
        HEADS=heads,
        COLUMNS=padded(heads * kinds + 1),
        CELLS=cells,
        SORTED=runs.is_sorted,
        MASKED=writers is not None,
        PRECISION=precision(values.dtype),
        num_warps=min(warps(cells * wide), CHUNKS[values.dtype].warps),
        STAGES=CHUNKS[values.dtype].stages,
        num_stages=CHUNKS[values.dtype].stages,
    )
    total, *by_kind = parts
    chunks = [Pooled(total, *(part[i] for part in by_kind)) for i in range(kinds)]
    block = _chunks_per_block(values, -(-runs.max_chunks // _BLOCKS_PER_GROUP))
    pools = [_merge_chunks(chunks[0], runs.group_chunks, block)]
    for all_cells in chunks[1:]:
        block = _chunks_per_block(values, CHUNKS_PER_BUNDLE)
        bundles = _merge_chunks(all_cells, runs.bundles, block)
        block = _chunks_per_block(values, len(bundles.total))
        pools.append(_merge_chunks(bundles, runs.all_bundles, block))
    return pools


def _merge_chunks(parts: Pooled, starts: Tensor, block: int) -> Pooled:
    """Merge the parts from starts[g] up to starts[g + 1], for every g, in blocks of ``block``."""
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
        CHUNKS=block,
        num_warps=warps(block * padded(channels)),
    )
    return pools


def _empty_pools(values: Tensor, groups: int, heads: int, *kinds: int) -> Pooled:
    """Allocate the sums of groups, and those of several kinds of attention: (N, G, ...)."""
    by_head, by_channel = (*kinds, groups, heads), (groups, values.shape[1])
    shapes = by_channel, by_head, by_head, (*kinds, *by_channel)
    return Pooled(*(values.new_empty(shape, dtype=torch.float32) for shape in shapes))


def _cells_per_block(values: Tensor, runs: Runs) -> int:
    """Cells of a block: no more than most groups have, so that few are idle."""
    limit = CHUNKS[values.dtype].cells(padded(values.shape[1]))
    if runs.number == 1:
        return limit
    mean = len(runs.ids) // max(runs.number, 1)
    return max(limit // (4 if mean < _SMALL_GROUP else 2), 16)


def _chunks_per_block(values: Tensor, max_chunks: int) -> int:
    """Chunks of a block, when at most ``max_chunks`` are merged."""
    return min(CHUNKS[values.dtype].cells(padded(values.shape[1])), padded(max_chunks, 2))


def _bytes(writers: Tensor | None) -> Tensor | None:
    """View a mask as bytes, which kernels can load."""
    return None if writers is None else writers.contiguous().view(torch.uint8)
