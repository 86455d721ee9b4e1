# mypy: ignore-errors
"""The Triton program of the gradient of pools; blocks are those of ``pooling_programs``."""

from __future__ import annotations

from exchangeable.kernels.compat import jit, tl
from exchangeable.kernels.pooling_programs import side_by_side


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
        score = side_by_side(scores, NUMBER, K, WIDE, HEADS, COLUMNS).to(kind)
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
