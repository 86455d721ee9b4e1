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
    score = _side_by_side(scores, NUMBER, K, WIDE, HEADS, COLUMNS).to(values.dtype.element_ty)
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


@jit(do_not_specialize=["cells"])
def pool_gradient(
    values,  # (E, K)
    further,  # (E, K) gradient of the values from elsewhere
    ids,  # by grouping: (E,)
    scores,  # by grouping: (K, H)
    peaks,  # by grouping: (G, H) float32
    d_weight,  # by grouping: (G, H) float32
    d_total,  # by grouping: (G, K) in the values' type
    d_weighted,  # by grouping: (G, K) in the values' type
    writers,
    d_values,  # (E, K)
    d_scores,  # (P, N, K, H) float32
    cells,
    NUMBER: tl.constexpr,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CELLS: tl.constexpr,
    TOTAL: tl.constexpr,
    WEIGHT: tl.constexpr,
    WEIGHTED: tl.constexpr,
    FURTHER: tl.constexpr,
    FAR: tl.constexpr,  # whether there are too many groups for offsets of 32 bits
    FIRST_ALONE: tl.constexpr,  # whether the first grouping has one group
    TIDY: tl.constexpr,  # whether channels and heads are powers of two
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Program p: gradients of the pools with respect to every P-th tile of cells.

        d_score = weight * (sum of value * d_weighted over the head's channels + d_weight)
        d_value = d_total + weight * d_weighted + d_score @ scores'

    The heads of all groupings are columns side by side. Where the sizes are tidy, one thread
    holds all channels of a head and sums them alone; elsewhere ``spread`` copies a
    head's column to its channels, and its transpose sums channels by head.
    """
    ATTENTION: tl.constexpr = WEIGHT or WEIGHTED
    program = tl.program_id(0)
    channel, column = tl.arange(0, WIDE), tl.arange(0, COLUMNS)
    kind = values.dtype.element_ty
    if ATTENTION:
        score = _side_by_side(scores, NUMBER, K, WIDE, HEADS, COLUMNS).to(kind)
        d_score_weight = tl.zeros([WIDE, COLUMNS], tl.float32)
    groups, writes = _writers_and_groups(
        ids, writers, program, cells, NUMBER, CELLS, FIRST_ALONE, MASKED
    )
    for tile in tl.range(program, tl.cdiv(cells, CELLS), tl.num_programs(0), num_stages=STAGES):
        inside = tile * CELLS + tl.arange(0, CELLS) < cells
        # Only the start has 64 bits: offsets of that size would take most registers.
        start = tl.cast(tile, tl.int64) * (CELLS * K)
        offset = tl.arange(0, CELLS)[:, None] * K + channel[None, :]
        valid = inside[:, None] & (channel < K)[None, :]
        # All loads are issued before the first is used: one after the other they would each wait.
        if ATTENTION:
            value = tl.load(values + start + offset, mask=valid, other=0.0)
        if FURTHER:
            more = tl.load(further + start + offset, mask=valid, other=0.0)
        if TOTAL:
            totals = _rows_of(d_total, groups, writes, NUMBER, K, WIDE, FAR, FIRST_ALONE)
        if WEIGHTED:
            slopes = _rows_of(d_weighted, groups, writes, NUMBER, K, WIDE, FAR, FIRST_ALONE)
        if ATTENTION and TIDY:
            peak_rows = _rows_of(peaks, groups, writes, NUMBER, HEADS, HEADS, FAR, FIRST_ALONE)
            if WEIGHT:
                d_shares = _rows_of(
                    d_weight, groups, writes, NUMBER, HEADS, HEADS, FAR, FIRST_ALONE
                )
        written = writes[:, None] & (channel < K)[None, :]
        d_value = tl.zeros([CELLS, WIDE], tl.float32)
        if FURTHER:
            d_value += more.to(tl.float32)
        if ATTENTION:
            scored = tl.dot(value, score, input_precision=PRECISION)
            d_score = tl.zeros([CELLS, COLUMNS], tl.float32)
        if ATTENTION and not TIDY:
            peak = tl.zeros([CELLS, COLUMNS], tl.float32)
            d_share = tl.zeros([CELLS, COLUMNS], tl.float32)
            for i in tl.static_range(NUMBER):
                head = column - i * HEADS
                group = groups[i].to(tl.int64) if FAR else groups[i]
                own = writes[:, None] & ((head >= 0) & (head < HEADS))[None, :]
                by_head = group[:, None] * HEADS + head[None, :]
                peak += tl.load(peaks[i] + by_head, mask=own, other=0.0)
                if WEIGHT:
                    d_share += tl.load(d_weight[i] + by_head, mask=own, other=0.0)
            share = tl.exp(tl.where(writes[:, None], scored - peak, float("-inf")))
        for i in tl.static_range(NUMBER):
            if TOTAL:
                # The row of the group of all cells was loaded once.
                total = totals[i].to(tl.float32)
                d_value += tl.where(written, total, 0.0) if FIRST_ALONE and i == 0 else total
            if WEIGHTED:
                slope = tl.broadcast_to(slopes[i].to(tl.float32), [CELLS, WIDE])
            if ATTENTION and TIDY:
                own = writes[:, None]
                scored_i = _select_heads(scored, i, HEADS)
                share = tl.exp(tl.where(own, scored_i - peak_rows[i], float("-inf")))
                d_share = tl.zeros([CELLS, HEADS], tl.float32)
                if WEIGHT:
                    d_share += tl.broadcast_to(d_shares[i], [CELLS, HEADS])
                if WEIGHTED:
                    by_slice = tl.reshape(slope, [CELLS, HEADS, K // HEADS])
                    d_value += tl.reshape(by_slice * share[:, :, None], [CELLS, K])
                    sliced = tl.reshape(value, [CELLS, HEADS, K // HEADS]).to(tl.float32)
                    d_share += tl.sum(by_slice * sliced, axis=2)
                d_score += _spread_heads(share * d_share, i, COLUMNS)
            elif WEIGHTED:
                spread = column[:, None] == (i * HEADS + channel // (K // HEADS))[None, :]
                spread = spread.to(tl.float32).to(kind)
                d_value += slope * tl.dot(share.to(kind), spread, input_precision=PRECISION)
                slope = (slope * value.to(tl.float32)).to(kind)
                d_share = tl.dot(slope, tl.trans(spread), d_share, input_precision=PRECISION)
        if ATTENTION:
            if not TIDY:
                d_score = share * d_share
            d_score = d_score.to(kind)
            d_value = tl.dot(d_score, tl.trans(score), d_value, input_precision=PRECISION)
            d_score_weight = tl.dot(
                tl.trans(value), d_score, d_score_weight, input_precision=PRECISION
            )
        tl.store(d_values + start + offset, d_value.to(kind), mask=valid)
        groups, writes = _writers_and_groups(
            ids, writers, tile + tl.num_programs(0), cells, NUMBER, CELLS, FIRST_ALONE, MASKED
        )
    if ATTENTION:
        grouping, head = (column // HEADS)[None, :], (column % HEADS)[None, :]
        entry = ((program * NUMBER + grouping) * K + channel[:, None]) * HEADS + head
        real = (channel < K)[:, None] & (column < NUMBER * HEADS)[None, :]
        tl.store(d_scores + entry, d_score_weight, mask=real)


@jit
def _select_heads(columns, i: tl.constexpr, HEADS: tl.constexpr):
    """Select the heads of the i-th grouping from the columns: (CELLS, H)."""
    SIDES: tl.constexpr = columns.shape[1] // HEADS
    apart = tl.reshape(columns, [columns.shape[0], SIDES, HEADS])
    return tl.sum(tl.where((tl.arange(0, SIDES) == i)[None, :, None], apart, 0.0), axis=1)


@jit
def _spread_heads(heads, i: tl.constexpr, COLUMNS: tl.constexpr):
    """Put the heads of the i-th grouping into the columns, 0 elsewhere: (CELLS, COLUMNS)."""
    SIDES: tl.constexpr = COLUMNS // heads.shape[1]
    apart = tl.where((tl.arange(0, SIDES) == i)[None, :, None], heads[:, None, :], 0.0)
    return tl.reshape(apart, [heads.shape[0], COLUMNS])


@jit
def _writers_and_groups(
    ids, writers, tile, cells, NUMBER: tl.constexpr, CELLS: tl.constexpr,
    FIRST_ALONE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Load the groups of a tile's cells, and a mask of the cells that write.

    Loaded a tile ahead: the rows of the groups must not wait for them.
    """
    cell = tile * CELLS + tl.arange(0, CELLS)
    inside = cell < cells
    groups = ()
    for i in tl.static_range(NUMBER):
        if FIRST_ALONE and i == 0:
            groups += (tl.zeros([CELLS], tl.int32),)
        else:
            groups += (tl.load(ids[i] + cell, mask=inside, other=0),)
    writes = inside
    if MASKED:
        writes = tl.load(writers + cell, mask=inside, other=0) != 0
    return groups, writes


@jit
def _rows_of(
    tables, groups, writes, NUMBER: tl.constexpr, K: tl.constexpr, WIDE: tl.constexpr,
    FAR: tl.constexpr, FIRST_ALONE: tl.constexpr,
):  # fmt: skip
    """Load the row of every cell's group, by grouping: (CELLS, K); (1, K) for the one of all."""
    channel = tl.arange(0, WIDE)
    rows = ()
    for i in tl.static_range(NUMBER):
        if FIRST_ALONE and i == 0:
            real = (channel < K)[None, :]
            rows += (tl.load(tables[i] + channel[None, :], mask=real, other=0.0),)
        else:
            group = groups[i].to(tl.int64) if FAR else groups[i]
            real = writes[:, None] & (channel < K)[None, :]
            offset = group[:, None] * K + channel[None, :]
            rows += (tl.load(tables[i] + offset, mask=real, other=0.0),)
    return rows


@jit
def _side_by_side(
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
