# mypy: ignore-errors
"""The Triton program of the gradient of reading; blocks are those of ``combine_programs``."""

from __future__ import annotations

from exchangeable.kernels.combine_programs import (
    linear_and_norm,
    load_groups,
    load_halves,
    load_row,
    load_terms,
    load_tile,
    tile_pointers,
)
from exchangeable.kernels.compat import jit, tl


@jit(do_not_specialize=["cells"])
def read_gradient(
    values,
    own,
    constant,
    ids,
    tables,
    extra,
    gamma,
    beta,
    kept,
    d_out,  # (E, O')
    d_z,  # (E, O) in the values' type
    d_values,  # (E, K)
    d_own,  # (P, K, O) float32, parts of one tensor (P, STRIDE) as are all that follow
    d_constant,  # (P, O)
    d_gamma,  # (P, O)
    d_beta,  # (P, O)
    cells,
    eps,
    NUMBER: tl.constexpr,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    OUT: tl.constexpr,
    OUT_WIDE: tl.constexpr,
    CELLS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRODUCT: tl.constexpr,
    CONSTANT: tl.constexpr,
    EXTRA: tl.constexpr,
    NORM: tl.constexpr,
    KEPT: tl.constexpr,
    RESIDUAL: tl.constexpr,
    FAR: tl.constexpr,  # whether a table is too large for offsets of 32 bits
    CONSTANT_SUMMED: tl.constexpr,  # whether d_constant is needed,
    OWN_SUMMED: tl.constexpr,  # and d_own,
    STORED: tl.constexpr,  # and d_z
    STRIDE: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Program p: gradients of ``read_cells``, which it recomputes, and partial sums of weights'."""
    GATED: tl.constexpr = ACTIVATION == "gated"
    ALL: tl.constexpr = 2 * OUT if GATED else OUT
    program = tl.program_id(0)
    source, channel = tl.arange(0, WIDE), tl.arange(0, OUT_WIDE)
    there = channel < OUT
    kind = values.dtype.element_ty
    own_1, own_2 = load_halves(values, own, K, WIDE, OUT, OUT_WIDE, GATED)
    if OWN_SUMMED:
        d_own_1 = tl.zeros([WIDE, OUT_WIDE], tl.float32)
        if GATED:
            d_own_2 = tl.zeros([WIDE, OUT_WIDE], tl.float32)
    # Sums over cells are added up thread by thread, and across threads at the end.
    d_constant_1 = tl.zeros([CELLS // 16, 8, OUT_WIDE], tl.float32)
    d_constant_2 = tl.zeros([CELLS // 16, 8, OUT_WIDE], tl.float32)
    d_gamma_1 = tl.zeros([CELLS // 16, 8, OUT_WIDE], tl.float32)
    d_gamma_2 = tl.zeros([CELLS // 16, 8, OUT_WIDE], tl.float32)
    d_beta_1 = tl.zeros([CELLS // 16, 8, OUT_WIDE], tl.float32)
    d_beta_2 = tl.zeros([CELLS // 16, 8, OUT_WIDE], tl.float32)
    groups = load_groups(ids, program, cells, NUMBER, CELLS)
    for tile in tl.range(program, tl.cdiv(cells, CELLS), tl.num_programs(0), num_stages=STAGES):
        inside = tile * CELLS + tl.arange(0, CELLS) < cells
        value = load_tile(values, tile, inside, K, WIDE, CELLS)
        slope = load_tile(d_out, tile, inside, OUT, OUT_WIDE, CELLS)
        terms = load_terms(
            tables, extra, groups, tile, inside, NUMBER, OUT, OUT_WIDE, CELLS, GATED, EXTRA, FAR
        )
        groups = load_groups(ids, tile + tl.num_programs(0), cells, NUMBER, CELLS)
        z_1, z_2, y_1, y_2, scale = linear_and_norm(
            value, own_1, own_2, constant, terms, gamma, beta, eps,
            OUT, OUT_WIDE, CELLS, GATED, PRODUCT, CONSTANT, NORM, PRECISION,
        )  # fmt: skip
        # Backward through dropout, activation and norm.
        d_1 = slope.to(tl.float32)
        if KEPT:
            d_1 = d_1 * load_row(kept, channel, there)
        if GATED:
            gate = tl.sigmoid(y_2)
            d_2 = d_1 * y_1 * gate * (1 + y_2 * (1 - gate))
            d_1 = d_1 * y_2 * gate
        elif ACTIVATION == "relu":
            d_1 = tl.where(y_1 > 0, d_1, 0.0)
        elif ACTIVATION == "leaky_relu":
            d_1 = tl.where(y_1 > 0, d_1, 0.01 * d_1)
        if NORM:
            d_gamma_1 += _add_pairs(d_1 * z_1, CELLS, OUT_WIDE)
            d_beta_1 += _add_pairs(d_1, CELLS, OUT_WIDE)
            d_1 = d_1 * load_row(gamma, channel, there)
            mean = tl.sum(d_1, axis=1)
            along = tl.sum(d_1 * z_1, axis=1)
            if GATED:
                d_gamma_2 += _add_pairs(d_2 * z_2, CELLS, OUT_WIDE)
                d_beta_2 += _add_pairs(d_2, CELLS, OUT_WIDE)
                d_2 = d_2 * load_row(gamma + OUT, channel, there)
                mean += tl.sum(d_2, axis=1)
                along += tl.sum(d_2 * z_2, axis=1)
                d_2 = d_2 - (mean / ALL)[:, None] - z_2 * (along / ALL)[:, None]
                d_2 = tl.where(there[None, :], d_2 * scale, 0.0)
            d_1 = d_1 - (mean / ALL)[:, None] - z_1 * (along / ALL)[:, None]
            d_1 = tl.where(there[None, :], d_1 * scale, 0.0)
        # The gradient of each term of z.
        valid = inside[:, None] & there[None, :]
        half_1 = d_1.to(kind)
        if STORED:
            tl.store(tile_pointers(d_z, tile, ALL, OUT_WIDE, CELLS), half_1, mask=valid)
        if CONSTANT_SUMMED:
            d_constant_1 += _add_pairs(d_1, CELLS, OUT_WIDE)
        if OWN_SUMMED:
            d_own_1 = tl.dot(tl.trans(value), half_1, d_own_1, input_precision=PRECISION)
        if GATED:
            half_2 = d_2.to(kind)
            if STORED:
                tl.store(tile_pointers(d_z + OUT, tile, ALL, OUT_WIDE, CELLS), half_2, mask=valid)
            if CONSTANT_SUMMED:
                d_constant_2 += _add_pairs(d_2, CELLS, OUT_WIDE)
            if OWN_SUMMED:
                d_own_2 = tl.dot(tl.trans(value), half_2, d_own_2, input_precision=PRECISION)
        if PRODUCT:
            d_value = tl.zeros([CELLS, WIDE], tl.float32)
            if RESIDUAL:
                d_value += slope.to(tl.float32)
            d_value = tl.dot(half_1, tl.trans(own_1), d_value, input_precision=PRECISION)
            if GATED:
                d_value = tl.dot(half_2, tl.trans(own_2), d_value, input_precision=PRECISION)
            pointers = tile_pointers(d_values, tile, K, WIDE, CELLS)
            tl.store(pointers, d_value.to(kind), mask=inside[:, None] & (source < K)[None, :])
    # The partial sums of the weights' gradients.
    at = program * STRIDE + channel
    if OWN_SUMMED:
        entry = program * STRIDE + source[:, None] * ALL + channel[None, :]
        real = (source < K)[:, None] & there[None, :]
        tl.store(d_own + entry, d_own_1, mask=real)
        if GATED:
            tl.store(d_own + entry + OUT, d_own_2, mask=real)
    if CONSTANT_SUMMED:
        tl.store(d_constant + at, _sum_rows(d_constant_1), mask=there)
        if GATED:
            tl.store(d_constant + at + OUT, _sum_rows(d_constant_2), mask=there)
    if NORM:
        tl.store(d_gamma + at, _sum_rows(d_gamma_1), mask=there)
        tl.store(d_beta + at, _sum_rows(d_beta_1), mask=there)
        if GATED:
            tl.store(d_gamma + at + OUT, _sum_rows(d_gamma_2), mask=there)
            tl.store(d_beta + at + OUT, _sum_rows(d_beta_2), mask=there)


@jit
def _add_pairs(values, CELLS: tl.constexpr, OUT_WIDE: tl.constexpr):
    """Add the rows that one thread holds of a product: r and r + 8 of every 16."""
    return tl.sum(tl.reshape(values, [CELLS // 16, 2, 8, OUT_WIDE]), axis=1)


@jit
def _sum_rows(partial):
    return tl.sum(tl.sum(partial, axis=0), axis=0)
