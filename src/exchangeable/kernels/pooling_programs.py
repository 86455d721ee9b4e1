# mypy: ignore-errors
"""Triton programs that pool cells on the GPU.

Blocks have power-of-two sides of 16 or more: ``WIDE`` pads the channels, ``COLUMNS`` the heads.
Sums are kept in float32. Rows are addressed in 64 bits: 100 million cells of 64 channels do not
fit 32.
"""

from __future__ import annotations

from exchangeable.kernels.compat import jit, tl

# Sums and maxima of groups ---------------------------------------------------------------


@jit
def reduce_rows(
    values,  # (E, K)
    permutation,  # (E,) rows, sorted as ``starts`` says
    starts,  # (P + 1,)
    writers,  # (E,) uint8
    out,  # (P, K) float32
    K: tl.constexpr,
    WIDE: tl.constexpr,
    CELLS: tl.constexpr,
    LARGEST: tl.constexpr,
    SORTED: tl.constexpr,
    MASKED: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Program p: sum or maximum of the rows from starts[p] up to starts[p + 1]."""
    piece = tl.program_id(0)
    channel = tl.arange(0, WIDE)
    start, end = tl.load(starts + piece), tl.load(starts + piece + 1)
    nothing = float("-inf") if LARGEST else 0.0
    result = tl.full([CELLS, WIDE], nothing, tl.float32)
    row, inside = _rows(permutation, writers, start, end, CELLS, SORTED, MASKED)
    for at in tl.range(start, end, CELLS, num_stages=STAGES):
        offset = row.to(tl.int64)[:, None] * K + channel[None, :]
        valid = inside[:, None] & (channel < K)[None, :]
        value = tl.load(values + offset, mask=valid, other=nothing).to(tl.float32)
        result = tl.maximum(result, value) if LARGEST else result + value
        row, inside = _rows(permutation, writers, at + CELLS, end, CELLS, SORTED, MASKED)
    whole = tl.max(result, axis=0) if LARGEST else tl.sum(result, axis=0)
    tl.store(out + piece.to(tl.int64) * K + channel, whole, mask=channel < K)


@jit
def _rows(
    permutation, writers, at, end, CELLS: tl.constexpr, SORTED: tl.constexpr, MASKED: tl.constexpr
):
    """The next rows of a chunk, and a mask of those that exist and write."""
    row = at + tl.arange(0, CELLS)
    inside = row < end
    if not SORTED:
        row = tl.load(permutation + row, mask=inside, other=0)
    if MASKED:
        inside = inside & (tl.load(writers + row, mask=inside, other=0) != 0)
    return row, inside


# Attention -------------------------------------------------------------------------------


@jit
def attend_chunks(
    values,  # (E, K)
    scores,  # by kind of attention: (K, H)
    permutation,
    starts,
    writers,
    totals,  # (C, K) float32, and so are all that follow
    peaks,  # (N, C, H)
    weights,  # (N, C, H)
    weighted,  # (N, C, K)
    NUMBER: tl.constexpr,  # N, kinds of attention
    K: tl.constexpr,
    WIDE: tl.constexpr,
    HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CELLS: tl.constexpr,
    SORTED: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Program c: sum of the cells of chunk c, and their sums weighted by exp(score - peak).

    The heads of all kinds of attention are columns side by side. Columns after the last head
    have scores of 0, so that they weigh each cell by exactly 1: the first of them makes the plain
    sum, in the same product as the weighted ones.
    """
    chunk = tl.program_id(0)
    channel, column = tl.arange(0, WIDE), tl.arange(0, COLUMNS)
    score = side_by_side(scores, NUMBER, K, WIDE, HEADS, COLUMNS).to(values.dtype.element_ty)
    start, end = tl.load(starts + chunk), tl.load(starts + chunk + 1)
    peak = tl.full([COLUMNS], float("-inf"), tl.float32)
    weight = tl.zeros([COLUMNS], tl.float32)
    moment = tl.zeros([COLUMNS, WIDE], tl.float32)
    row, inside = _rows(permutation, writers, start, end, CELLS, SORTED, MASKED)
    for at in tl.range(start, end, CELLS, num_stages=STAGES):
        offset = row.to(tl.int64)[:, None] * K + channel[None, :]
        valid = inside[:, None] & (channel < K)[None, :]
        value = tl.load(values + offset, mask=valid, other=0.0)
        scored = tl.dot(value, score, input_precision=PRECISION)
        scored = tl.where(inside[:, None], scored, float("-inf"))
        higher = tl.maximum(peak, tl.max(scored, axis=0))
        # Where no cell has written yet, -inf minus -inf would be NaN.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        share = tl.exp(scored - base[None, :])
        rescale = tl.exp(peak - base)
        weight = weight * rescale + tl.sum(share, axis=0)
        moment = moment * rescale[:, None]
        share = tl.trans(share.to(value.dtype))
        moment = tl.dot(share, value, moment, input_precision=PRECISION)
        peak = higher
        row, inside = _rows(permutation, writers, at + CELLS, end, CELLS, SORTED, MASKED)
    chunk, chunks = chunk.to(tl.int64), tl.num_programs(0)
    of_head = column < NUMBER * HEADS
    by_head = (column // HEADS * chunks + chunk) * HEADS + column % HEADS
    tl.store(peaks + by_head, peak, mask=of_head)
    tl.store(weights + by_head, weight, mask=of_head)
    total = tl.sum(tl.where((column == NUMBER * HEADS)[:, None], moment, 0.0), axis=0)
    tl.store(totals + chunk * K + channel, total, mask=channel < K)
    for i in tl.static_range(NUMBER):
        own = column[:, None] == (i * HEADS + channel // (K // HEADS))[None, :]
        sliced = tl.sum(tl.where(own, moment, 0.0), axis=0)
        tl.store(weighted + (i * chunks + chunk) * K + channel, sliced, mask=channel < K)


@jit
def attend_groups(
    chunk_totals,
    chunk_peaks,
    chunk_weights,
    chunk_weighted,
    starts,  # (G + 1,) the first chunk of each group
    totals,  # (G, K) float32, and so are all that follow
    peaks,  # (G, H)
    weights,  # (G, H)
    weighted,  # (G, K)
    K: tl.constexpr,
    WIDE: tl.constexpr,
    HEADS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Program g: merge the chunks of group g, rescaled to their highest peak.

    Each channel repeats the peak and weight of its head: cheaper than two kinds of blocks.
    """
    group = tl.program_id(0)
    channel = tl.arange(0, WIDE)
    head = channel // (K // HEADS)
    start, end = tl.load(starts + group), tl.load(starts + group + 1)
    peak = tl.full([WIDE], float("-inf"), tl.float32)
    weight = tl.zeros([WIDE], tl.float32)
    total = tl.zeros([WIDE], tl.float32)
    moment = tl.zeros([WIDE], tl.float32)
    for at in range(start, end, CHUNKS):
        chunk = at + tl.arange(0, CHUNKS)
        valid = (chunk < end)[:, None] & (channel < K)[None, :]
        by_head = chunk.to(tl.int64)[:, None] * HEADS + head[None, :]
        by_channel = chunk.to(tl.int64)[:, None] * K + channel[None, :]
        part = tl.load(chunk_peaks + by_head, mask=valid, other=float("-inf"))
        higher = tl.maximum(peak, tl.max(part, axis=0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        rescale, part = tl.exp(peak - base), tl.exp(part - base[None, :])
        more = tl.load(chunk_weights + by_head, mask=valid, other=0.0)
        weight = weight * rescale + tl.sum(part * more, axis=0)
        more = tl.load(chunk_weighted + by_channel, mask=valid, other=0.0)
        moment = moment * rescale + tl.sum(part * more, axis=0)
        total += tl.sum(tl.load(chunk_totals + by_channel, mask=valid, other=0.0), axis=0)
        peak = higher
    group = group.to(tl.int64)
    first = (channel < K) & (channel % (K // HEADS) == 0)
    tl.store(peaks + group * HEADS + head, peak, mask=first)
    tl.store(weights + group * HEADS + head, weight, mask=first)
    tl.store(totals + group * K + channel, total, mask=channel < K)
    tl.store(weighted + group * K + channel, moment, mask=channel < K)


@jit
def side_by_side(
    scores, NUMBER: tl.constexpr, K: tl.constexpr, WIDE: tl.constexpr,
    HEADS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Score weights of all groupings, side by side: (K, COLUMNS)."""
    channel, column = tl.arange(0, WIDE), tl.arange(0, COLUMNS)
    joined = tl.zeros([WIDE, COLUMNS], tl.float32)
    for i in tl.static_range(NUMBER):
        head = column - i * HEADS
        own = (channel < K)[:, None] & ((head >= 0) & (head < HEADS))[None, :]
        entry = channel[:, None] * HEADS + head[None, :]
        joined += tl.load(scores[i] + entry, mask=own, other=0.0).to(tl.float32)
    return joined
