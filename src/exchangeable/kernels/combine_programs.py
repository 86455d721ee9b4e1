# mypy: ignore-errors
"""Triton programs by which cells read their groups, forward and gradient.

Blocks have power-of-two sides of 16 or more: ``WIDE`` pads the input channels and
``OUT_WIDE`` the output channels. Gated units have two halves, which are two blocks, ``_1`` and
``_2``: Triton cannot cut a block. Rows are addressed in 64 bits, as in ``pooling_programs``.
"""

from __future__ import annotations

from exchangeable.kernels.compat import jit, tl


@jit(do_not_specialize=["cells"])
def read_cells(
    values,  # (E, K)
    own,  # (K, O)
    constant,  # (O,)
    ids,  # by grouping: (E,)
    tables,  # by grouping: (G, O) in the values' type
    extra,  # (E, O)
    gamma,  # (O,)
    beta,  # (O,)
    kept,  # (O',)
    out,  # (E, O')
    cells,
    eps,
    NUMBER: tl.constexpr,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    OUT: tl.constexpr,  # O', half of O where gated
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
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Program p: every P-th tile of cells is read, normalised and activated."""
    GATED: tl.constexpr = ACTIVATION == "gated"
    channel = tl.arange(0, OUT_WIDE)
    there = channel < OUT
    own_1, own_2 = _halves(values, own, K, WIDE, OUT, OUT_WIDE, GATED)
    groups = _groups(ids, tl.program_id(0), cells, NUMBER, CELLS)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(cells, CELLS), tl.num_programs(0), num_stages=STAGES
    ):
        inside = tile * CELLS + tl.arange(0, CELLS) < cells
        value = _tile(values, tile, inside, K, WIDE, CELLS)
        terms = _terms(
            tables, extra, groups, tile, inside, NUMBER, OUT, OUT_WIDE, CELLS, GATED, EXTRA, FAR
        )
        groups = _groups(ids, tile + tl.num_programs(0), cells, NUMBER, CELLS)
        _, _, y_1, y_2, _ = _linear_and_norm(
            value, own_1, own_2, constant, terms, gamma, beta, eps,
            OUT, OUT_WIDE, CELLS, GATED, PRODUCT, CONSTANT, NORM, PRECISION,
        )  # fmt: skip
        if GATED:
            y_1 = y_1 * y_2 * tl.sigmoid(y_2)
        elif ACTIVATION == "relu":
            y_1 = tl.maximum(y_1, 0.0)
        elif ACTIVATION == "leaky_relu":
            y_1 = tl.where(y_1 > 0, y_1, 0.01 * y_1)
        if KEPT:
            y_1 = y_1 * _row(kept, channel, there)
        valid = inside[:, None] & there[None, :]
        if RESIDUAL:
            y_1 += value.to(tl.float32)
        pointers = _pointers(out, tile, OUT, OUT_WIDE, CELLS)
        tl.store(pointers, y_1.to(out.dtype.element_ty), mask=valid)


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
    own_1, own_2 = _halves(values, own, K, WIDE, OUT, OUT_WIDE, GATED)
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
    groups = _groups(ids, program, cells, NUMBER, CELLS)
    for tile in tl.range(program, tl.cdiv(cells, CELLS), tl.num_programs(0), num_stages=STAGES):
        inside = tile * CELLS + tl.arange(0, CELLS) < cells
        value = _tile(values, tile, inside, K, WIDE, CELLS)
        slope = _tile(d_out, tile, inside, OUT, OUT_WIDE, CELLS)
        terms = _terms(
            tables, extra, groups, tile, inside, NUMBER, OUT, OUT_WIDE, CELLS, GATED, EXTRA, FAR
        )
        groups = _groups(ids, tile + tl.num_programs(0), cells, NUMBER, CELLS)
        z_1, z_2, y_1, y_2, scale = _linear_and_norm(
            value, own_1, own_2, constant, terms, gamma, beta, eps,
            OUT, OUT_WIDE, CELLS, GATED, PRODUCT, CONSTANT, NORM, PRECISION,
        )  # fmt: skip
        # Backward through dropout, activation and norm.
        d_1 = slope.to(tl.float32)
        if KEPT:
            d_1 = d_1 * _row(kept, channel, there)
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
            d_1 = d_1 * _row(gamma, channel, there)
            mean = tl.sum(d_1, axis=1)
            along = tl.sum(d_1 * z_1, axis=1)
            if GATED:
                d_gamma_2 += _add_pairs(d_2 * z_2, CELLS, OUT_WIDE)
                d_beta_2 += _add_pairs(d_2, CELLS, OUT_WIDE)
                d_2 = d_2 * _row(gamma + OUT, channel, there)
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
            tl.store(_pointers(d_z, tile, ALL, OUT_WIDE, CELLS), half_1, mask=valid)
        if CONSTANT_SUMMED:
            d_constant_1 += _add_pairs(d_1, CELLS, OUT_WIDE)
        if OWN_SUMMED:
            d_own_1 = tl.dot(tl.trans(value), half_1, d_own_1, input_precision=PRECISION)
        if GATED:
            half_2 = d_2.to(kind)
            if STORED:
                tl.store(_pointers(d_z + OUT, tile, ALL, OUT_WIDE, CELLS), half_2, mask=valid)
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
            pointers = _pointers(d_values, tile, K, WIDE, CELLS)
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
def _linear_and_norm(
    value, own_1, own_2, constant, terms, gamma, beta, eps,
    OUT: tl.constexpr, OUT_WIDE: tl.constexpr, CELLS: tl.constexpr, GATED: tl.constexpr,
    PRODUCT: tl.constexpr, CONSTANT: tl.constexpr, NORM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return normalised z and y = z * gamma + beta in two halves; and z's scale.

    Without gates the second half is the first, and without a norm y is z.
    """
    ALL: tl.constexpr = 2 * OUT if GATED else OUT
    channel = tl.arange(0, OUT_WIDE)
    there = channel < OUT
    z_1 = _sum_terms(terms, constant, 0, 2 if GATED else 1, OUT, OUT_WIDE, CELLS, CONSTANT)
    if PRODUCT:
        z_1 = tl.dot(value, own_1, z_1, input_precision=PRECISION)
    z_2 = z_1
    if GATED:
        z_2 = _sum_terms(terms, constant, 1, 2, OUT, OUT_WIDE, CELLS, CONSTANT)
        if PRODUCT:
            z_2 = tl.dot(value, own_2, z_2, input_precision=PRECISION)
    y_1, y_2, scale = z_1, z_2, 1.0
    if NORM:
        mean = tl.sum(z_1, axis=1)
        if GATED:
            mean += tl.sum(z_2, axis=1)
        mean = (mean / ALL)[:, None]
        z_1 = tl.where(there[None, :], z_1 - mean, 0.0)
        z_2 = tl.where(there[None, :], z_2 - mean, 0.0)
        square = tl.sum(z_1 * z_1, axis=1)
        if GATED:
            square += tl.sum(z_2 * z_2, axis=1)
        scale = tl.rsqrt(square / ALL + eps)[:, None]
        z_1 = z_1 * scale
        z_2 = z_2 * scale
        y_1 = z_1 * _row(gamma, channel, there) + _row(beta, channel, there)
        if GATED:
            y_2 = z_2 * _row(gamma + OUT, channel, there) + _row(beta + OUT, channel, there)
    return z_1, z_2, y_1, y_2, scale


@jit
def _groups(ids, tile, cells, NUMBER: tl.constexpr, CELLS: tl.constexpr):
    """Load the groups of a tile's cells, by grouping: (CELLS,) each.

    Loaded a tile ahead: the rows of the groups must not wait for them.
    """
    cell = tile * CELLS + tl.arange(0, CELLS)
    groups = ()
    for i in tl.static_range(NUMBER):
        groups += (tl.load(ids[i] + cell, mask=cell < cells, other=0),)
    return groups


@jit
def _terms(
    tables, extra, groups, tile, inside,
    NUMBER: tl.constexpr, OUT: tl.constexpr, OUT_WIDE: tl.constexpr, CELLS: tl.constexpr,
    GATED: tl.constexpr, EXTRA: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """Load the terms of z for a tile of cells, of both halves in turn: (CELLS, O') each.

    All loads are issued before the first is used: one after the other they would each wait for
    the memory.
    """
    ALL: tl.constexpr = 2 * OUT if GATED else OUT
    channel = tl.arange(0, OUT_WIDE)
    valid = inside[:, None] & (channel < OUT)[None, :]
    terms = ()
    for i in tl.static_range(NUMBER):
        group = groups[i].to(tl.int64) if FAR else groups[i]
        for half in tl.static_range(2 if GATED else 1):
            offset = group[:, None] * ALL + half * OUT + channel[None, :]
            terms += (tl.load(tables[i] + offset, mask=valid, other=0.0),)
    if EXTRA:
        for half in tl.static_range(2 if GATED else 1):
            pointers = _pointers(extra + half * OUT, tile, ALL, OUT_WIDE, CELLS)
            terms += (tl.load(pointers, mask=valid, other=0.0),)
    return terms


@jit
def _sum_terms(
    terms, constant, half: tl.constexpr, HALVES: tl.constexpr, OUT: tl.constexpr,
    OUT_WIDE: tl.constexpr, CELLS: tl.constexpr, CONSTANT: tl.constexpr,
):  # fmt: skip
    """Sum the terms of one half of z, without the product: (CELLS, O')."""
    channel = tl.arange(0, OUT_WIDE)
    z = tl.zeros([CELLS, OUT_WIDE], tl.float32)
    for i in tl.static_range(half, len(terms), HALVES):
        z += terms[i].to(tl.float32)
    if CONSTANT:
        z += _row(constant + half * OUT, channel, channel < OUT)
    return z


@jit
def _add_pairs(values, CELLS: tl.constexpr, OUT_WIDE: tl.constexpr):
    """Add the rows that one thread holds of a product: r and r + 8 of every 16."""
    return tl.sum(tl.reshape(values, [CELLS // 16, 2, 8, OUT_WIDE]), axis=1)


@jit
def _sum_rows(partial):
    return tl.sum(tl.sum(partial, axis=0), axis=0)


@jit
def _row(weights, channel, there):
    """Weights by channel, as a row to broadcast: (1, O')."""
    return tl.load(weights + channel, mask=there, other=0.0).to(tl.float32)[None, :]


@jit
def _tile(
    values, tile, inside, K: tl.constexpr, WIDE: tl.constexpr, CELLS: tl.constexpr
):  # fmt: skip
    """Load the rows of a tile: (CELLS, K)."""
    channel = tl.arange(0, WIDE)
    valid = inside[:, None] & (channel < K)[None, :]
    return tl.load(_pointers(values, tile, K, WIDE, CELLS), mask=valid, other=0.0)


@jit
def _pointers(values, tile, K: tl.constexpr, WIDE: tl.constexpr, CELLS: tl.constexpr):
    """Pointers to the rows of a tile: (CELLS, K).

    Only the start has 64 bits: offsets of that size would take most registers.
    """
    start = values + tl.cast(tile, tl.int64) * (CELLS * K)
    return start + tl.arange(0, CELLS)[:, None] * K + tl.arange(0, WIDE)[None, :]


@jit
def _halves(
    values, own, K: tl.constexpr, WIDE: tl.constexpr, OUT: tl.constexpr, OUT_WIDE: tl.constexpr,
    GATED: tl.constexpr,
):  # fmt: skip
    """Load a matrix (K, O) in the values' type, as two halves if gated: (K, O') each."""
    ALL: tl.constexpr = 2 * OUT if GATED else OUT
    source, channel = tl.arange(0, WIDE), tl.arange(0, OUT_WIDE)
    valid = (source < K)[:, None] & (channel < OUT)[None, :]
    offset = source[:, None] * ALL + channel[None, :]
    kind = values.dtype.element_ty
    own_1 = tl.load(own + offset, mask=valid, other=0.0).to(kind)
    own_2 = own_1
    if GATED:
        own_2 = tl.load(own + offset + OUT, mask=valid, other=0.0).to(kind)
    return own_1, own_2
