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
    own_1, own_2 = load_halves(values, own, K, WIDE, OUT, OUT_WIDE, GATED)
    groups = load_groups(ids, tl.program_id(0), cells, NUMBER, CELLS)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(cells, CELLS), tl.num_programs(0), num_stages=STAGES
    ):
        inside = tile * CELLS + tl.arange(0, CELLS) < cells
        value = load_tile(values, tile, inside, K, WIDE, CELLS)
        terms = load_terms(
            tables, extra, groups, tile, inside, NUMBER, OUT, OUT_WIDE, CELLS, GATED, EXTRA, FAR
        )
        groups = load_groups(ids, tile + tl.num_programs(0), cells, NUMBER, CELLS)
        _, _, y_1, y_2, _ = linear_and_norm(
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
            y_1 = y_1 * load_row(kept, channel, there)
        valid = inside[:, None] & there[None, :]
        if RESIDUAL:
            y_1 += value.to(tl.float32)
        pointers = tile_pointers(out, tile, OUT, OUT_WIDE, CELLS)
        tl.store(pointers, y_1.to(out.dtype.element_ty), mask=valid)


@jit
def linear_and_norm(
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
        y_1 = z_1 * load_row(gamma, channel, there) + load_row(beta, channel, there)
        if GATED:
            y_2 = z_2 * load_row(gamma + OUT, channel, there) + load_row(beta + OUT, channel, there)
    return z_1, z_2, y_1, y_2, scale


@jit
def load_groups(ids, tile, cells, NUMBER: tl.constexpr, CELLS: tl.constexpr):
    """Load the groups of a tile's cells, by grouping: (CELLS,) each.

    Loaded a tile ahead: the rows of the groups must not wait for them.
    """
    cell = tile * CELLS + tl.arange(0, CELLS)
    groups = ()
    for i in tl.static_range(NUMBER):
        groups += (tl.load(ids[i] + cell, mask=cell < cells, other=0),)
    return groups


@jit
def load_terms(
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
            pointers = tile_pointers(extra + half * OUT, tile, ALL, OUT_WIDE, CELLS)
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
        z += load_row(constant + half * OUT, channel, channel < OUT)
    return z


@jit
def load_row(weights, channel, there):
    """Weights by channel, as a row to broadcast: (1, O')."""
    return tl.load(weights + channel, mask=there, other=0.0).to(tl.float32)[None, :]


@jit
def load_tile(
    values, tile, inside, K: tl.constexpr, WIDE: tl.constexpr, CELLS: tl.constexpr
):  # fmt: skip
    """Load the rows of a tile: (CELLS, K)."""
    channel = tl.arange(0, WIDE)
    valid = inside[:, None] & (channel < K)[None, :]
    return tl.load(tile_pointers(values, tile, K, WIDE, CELLS), mask=valid, other=0.0)


@jit
def tile_pointers(values, tile, K: tl.constexpr, WIDE: tl.constexpr, CELLS: tl.constexpr):
    """Pointers to the rows of a tile: (CELLS, K).

    Only the start has 64 bits: offsets of that size would take most registers.
    """
    start = values + tl.cast(tile, tl.int64) * (CELLS * K)
    return start + tl.arange(0, CELLS)[:, None] * K + tl.arange(0, WIDE)[None, :]


@jit
def load_halves(
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
