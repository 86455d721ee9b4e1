# mypy: ignore-errors
"""Triton programs for the rows that groups offer their cells, forward and gradient.

Blocks have power-of-two sides of 16 or more: ``WIDE`` pads the input channels,
``OUT_WIDE`` the output channels and ``COLUMNS`` the heads. All numbers are float32.
"""

from __future__ import annotations

from exchangeable.kernels.compat import jit, tl


@jit
def summarise_groups(
    count,  # by grouping, and so are all that follow: (G,)
    total,  # (G, K)
    weight,  # (G, H)
    weighted,  # (G, K)
    mean_weights,  # (K, O)
    attention_weights,  # (K, O)
    count_weights,  # (2, O)
    rows,  # (G, O)
    groups,  # G
    NUMBER: tl.constexpr,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    OUT: tl.constexpr,
    OUT_WIDE: tl.constexpr,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    MEAN: tl.constexpr,
    ATTENTION: tl.constexpr,
    COUNTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program (p, i): the rows of every P-th tile of the groups of grouping i."""
    channel = tl.arange(0, OUT_WIDE)
    there = channel < OUT
    for i in tl.static_range(NUMBER):
        if tl.program_id(1) == i and tl.program_id(0) * GROUPS < groups[i]:
            if MEAN:
                of_mean = _matrix(mean_weights[i], K, WIDE, OUT, OUT_WIDE)
            if ATTENTION:
                of_attention = _matrix(attention_weights[i], K, WIDE, OUT, OUT_WIDE)
            for tile in range(tl.program_id(0), tl.cdiv(groups[i], GROUPS), tl.num_programs(0)):
                group = tile * GROUPS + tl.arange(0, GROUPS)
                inside = group < groups[i]
                number = tl.load(count[i] + group, mask=inside, other=0.0)
                z = tl.zeros([GROUPS, OUT_WIDE], tl.float32)
                if MEAN:
                    size = tl.maximum(number, 1.0)[:, None]
                    mean = _sums(total[i], group, inside, K, WIDE) / size
                    z = tl.dot(mean, of_mean, z, input_precision=PRECISION)
                if ATTENTION:
                    share = _shares(weight[i], group, inside, K, WIDE, HEADS)
                    mean = _sums(weighted[i], group, inside, K, WIDE) / share
                    z = tl.dot(mean, of_attention, z, input_precision=PRECISION)
                if COUNTS:
                    first = tl.load(count_weights[i] + channel, mask=there, other=0.0)
                    second = tl.load(count_weights[i] + OUT + channel, mask=there, other=0.0)
                    z += (tl.log(1 + number) / 10)[:, None] * first[None, :]
                    z += (1 / (1 + number))[:, None] * second[None, :]
                valid = inside[:, None] & there[None, :]
                offset = group.to(tl.int64)[:, None] * OUT + channel[None, :]
                tl.store(rows[i] + offset, z, mask=valid)


@jit
def summary_gradient(
    count,
    total,
    weight,
    weighted,
    mean_weights,
    attention_weights,
    d_rows,  # by grouping, and so are the next three: (G, O)
    d_total,  # (G, K)
    d_weight,  # (G, H)
    d_weighted,  # (G, K)
    d_weights,  # (P, N, S, O): of every grouping the rows of all weights, one after the other
    groups,
    NUMBER: tl.constexpr,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    OUT: tl.constexpr,
    OUT_WIDE: tl.constexpr,
    HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
    GROUPS: tl.constexpr,
    MEAN: tl.constexpr,
    ATTENTION: tl.constexpr,
    COUNTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program (p, i): gradients of every P-th tile of groups, and partial sums of the weights'."""
    COUNT_AT: tl.constexpr = (K if MEAN else 0) + (K if ATTENTION else 0)
    ROWS: tl.constexpr = COUNT_AT + (2 if COUNTS else 0)
    program = tl.program_id(0)
    source, channel, column = tl.arange(0, WIDE), tl.arange(0, OUT_WIDE), tl.arange(0, COLUMNS)
    there = channel < OUT
    for i in tl.static_range(NUMBER):
        if tl.program_id(1) == i:
            if MEAN:
                of_mean = _matrix(mean_weights[i], K, WIDE, OUT, OUT_WIDE)
                d_of_mean = tl.zeros([WIDE, OUT_WIDE], tl.float32)
            if ATTENTION:
                of_attention = _matrix(attention_weights[i], K, WIDE, OUT, OUT_WIDE)
                d_of_attention = tl.zeros([WIDE, OUT_WIDE], tl.float32)
            first, second = tl.zeros([OUT_WIDE], tl.float32), tl.zeros([OUT_WIDE], tl.float32)
            for tile in range(program, tl.cdiv(groups[i], GROUPS), tl.num_programs(0)):
                group = tile * GROUPS + tl.arange(0, GROUPS)
                inside = group < groups[i]
                number = tl.load(count[i] + group, mask=inside, other=0.0)
                valid = inside[:, None] & there[None, :]
                offset = group.to(tl.int64)[:, None] * OUT + channel[None, :]
                d_z = tl.load(d_rows[i] + offset, mask=valid, other=0.0)
                at = group.to(tl.int64)[:, None] * K + source[None, :]
                real = inside[:, None] & (source < K)[None, :]
                if MEAN:
                    size = tl.maximum(number, 1.0)[:, None]
                    mean = _sums(total[i], group, inside, K, WIDE) / size
                    d_mean = tl.dot(d_z, tl.trans(of_mean), input_precision=PRECISION)
                    tl.store(d_total[i] + at, d_mean / size, mask=real)
                    d_of_mean = tl.dot(tl.trans(mean), d_z, d_of_mean, input_precision=PRECISION)
                if ATTENTION:
                    share = _shares(weight[i], group, inside, K, WIDE, HEADS)
                    mean = _sums(weighted[i], group, inside, K, WIDE) / share
                    d_mean = tl.dot(d_z, tl.trans(of_attention), input_precision=PRECISION) / share
                    tl.store(d_weighted[i] + at, d_mean, mask=real)
                    # Summed over the channels of each head.
                    own = (column[None, :] == (source // (K // HEADS))[:, None]) & (source < K)[
                        :, None
                    ]
                    by_head = tl.dot(d_mean * mean, own.to(tl.float32), input_precision=PRECISION)
                    of_head = inside[:, None] & (column < HEADS)[None, :]
                    tl.store(
                        d_weight[i] + group.to(tl.int64)[:, None] * HEADS + column[None, :],
                        tl.where((number > 0)[:, None], -by_head, 0.0),
                        mask=of_head,
                    )
                    d_of_attention = tl.dot(
                        tl.trans(mean), d_z, d_of_attention, input_precision=PRECISION
                    )
                if COUNTS:
                    first += tl.sum((tl.log(1 + number) / 10)[:, None] * d_z, axis=0)
                    second += tl.sum((1 / (1 + number))[:, None] * d_z, axis=0)
            mine = d_weights + (program * NUMBER + i) * ROWS * OUT
            entry = source[:, None] * OUT + channel[None, :]
            fits = (source < K)[:, None] & there[None, :]
            if MEAN:
                tl.store(mine + entry, d_of_mean, mask=fits)
            if ATTENTION:
                tl.store(mine + (COUNT_AT - K) * OUT + entry, d_of_attention, mask=fits)
            if COUNTS:
                tl.store(mine + COUNT_AT * OUT + channel, first, mask=there)
                tl.store(mine + (COUNT_AT + 1) * OUT + channel, second, mask=there)


@jit
def _sums(sums, group, inside, K: tl.constexpr, WIDE: tl.constexpr):
    """Load the sums of a tile of groups: (GROUPS, K)."""
    source = tl.arange(0, WIDE)
    valid = inside[:, None] & (source < K)[None, :]
    offset = group.to(tl.int64)[:, None] * K + source[None, :]
    return tl.load(sums + offset, mask=valid, other=0.0)


@jit
def _shares(weight, group, inside, K: tl.constexpr, WIDE: tl.constexpr, HEADS: tl.constexpr):
    """Total weight of the cells of each group, by channel; 1 for an empty group."""
    source = tl.arange(0, WIDE)
    valid = inside[:, None] & (source < K)[None, :]
    offset = group.to(tl.int64)[:, None] * HEADS + (source // (K // HEADS))[None, :]
    return tl.maximum(tl.load(weight + offset, mask=valid, other=1.0), 1.0)


@jit
def _matrix(
    weights, K: tl.constexpr, WIDE: tl.constexpr, OUT: tl.constexpr, OUT_WIDE: tl.constexpr
):
    source, channel = tl.arange(0, WIDE), tl.arange(0, OUT_WIDE)
    valid = (source < K)[:, None] & (channel < OUT)[None, :]
    return tl.load(weights + source[:, None] * OUT + channel[None, :], mask=valid, other=0.0)
