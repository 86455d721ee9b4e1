"""Cells read the rows of their groups, with norm, activation and residual in the same pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from exchangeable.kernels.launch import (
    GATED_GRADIENT,
    READ,
    READ_GRADIENT,
    launch,
    padded,
    precision,
)
from exchangeable.kernels.pooling import reduce_groups
from exchangeable.kernels.runs import Runs

Activation = Literal["identity", "relu", "leaky_relu", "gated"]

MAX_WEIGHTS = {torch.bfloat16: 128 * 128, torch.float32: 32 * 32}
"""Entries of ``own`` that a program multiplies by; torch multiplies more, in another pass."""
MAX_SUMMED = {torch.bfloat16: 64 * 64, torch.float32: 32 * 32}
"""Entries of the gradient of ``own`` that a program sums in registers; torch sums larger ones."""


class Norm(NamedTuple):
    """A LayerNorm over the channels."""

    gamma: Tensor  # (O,)
    beta: Tensor  # (O,)
    eps: float = 1e-5


class _Options(NamedTuple):
    """Arguments of ``read`` without a gradient."""

    runs: tuple[Runs, ...]
    eps: float
    activation: Activation
    residual: bool


def read(
    values: Tensor,
    own: Tensor,
    constant: Tensor | None = None,
    tables: Sequence[Tensor] = (),
    runs: Sequence[Runs] = (),
    *,
    extra: Tensor | None = None,
    norm: Norm | tuple[Tensor, Tensor, float] | None = None,
    activation: Activation = "identity",
    kept: Tensor | None = None,
    residual: bool = False,
) -> Tensor:
    """Compute the new values of cells, (E, K) -> (E, O'), in the values' type:

        z = values @ own + constant + sum over i of tables[i][runs[i].ids] + extra
        out = [values +] kept * activation([norm](z))

    ``own`` is (K, O), a table (G, O) and ``extra`` (E, O). Gated units multiply the first half
    of the channels by the SiLU of the second, so that O' is half of O, and O otherwise. All
    but ``kept`` (O',) and the ids have gradients.
    """
    gamma, beta, eps = norm or (None, None, 0.0)
    if len(tables) != len(runs):
        raise ValueError(f"every table needs its runs, but {len(tables)} and {len(runs)} came")
    outputs = own.shape[1] // (2 if activation == "gated" else 1)
    if residual and outputs != own.shape[0]:
        raise ValueError(
            f"a residual needs as many channels out as in, but they are {outputs} and "
            f"{own.shape[0]}"
        )
    options = _Options(tuple(runs), eps, activation, residual)
    out: Tensor = _Read.apply(  # type: ignore[no-untyped-call]
        options, values, own, constant, extra, gamma, beta, kept, *tables
    )
    return out


class _Read(Function):
    @staticmethod
    def forward(ctx: Any, options: _Options, *tensors: Tensor | None) -> Tensor:
        from exchangeable.kernels.combine_programs import read_cells

        tensors = tuple(None if one is None else one.contiguous() for one in tensors)
        inputs = _Inputs.of(tensors)
        dtype = inputs.values.dtype
        # Every cell reads its rows: half the width is half the traffic.
        inputs = inputs._replace(tables=tuple(table.to(dtype) for table in inputs.tables))
        ctx.options = options
        ctx.save_for_backward(*inputs[:7], *inputs.tables)
        outputs = inputs.own.shape[1] // (2 if options.activation == "gated" else 1)
        out = inputs.values.new_empty(len(inputs.values), outputs)
        pointers, sizes = _prepare(options, inputs)
        tile, wide = READ[dtype], (sizes["WIDE"], sizes["OUT_WIDE"])
        if max(wide) > 64 or len(options.runs) > 2:
            tile = tile.unlimited()
        block = tile.cells(*wide)
        launch(
            read_cells,
            tile.programs(len(out), block, out),
            (*pointers, out, len(out), options.eps),
            CELLS=block,
            **tile.options(),
            **sizes,
        )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> Any:
        from exchangeable.kernels.combine_gradient_programs import read_gradient

        options, inputs = ctx.options, _Inputs.of(ctx.saved_tensors)
        values, own, d_out = inputs.values, inputs.own, d_out.contiguous()
        (channels, outputs), cells = own.shape, len(values)
        needed = ctx.needs_input_grad[1:]
        pointers, sizes = _prepare(options, inputs)
        product = sizes["PRODUCT"]
        weights = padded(channels) * padded(outputs)
        own_summed = product and weights <= MAX_SUMMED[values.dtype]
        # Every table gets all of d_z, so the sum of its gradient is the constant's too.
        shared = any(needed[7:])
        stored = shared or needed[3] or not own_summed
        tile = (GATED_GRADIENT if options.activation == "gated" else READ_GRADIENT)[values.dtype]
        block = tile.cells(sizes["WIDE"], sizes["OUT_WIDE"])
        tile = tile.fitting(*_shared_bytes(sizes, block, values.element_size()), values)
        programs = tile.programs(cells, block, values)
        d_z = values.new_empty(cells, outputs) if stored else None
        d_values = torch.empty_like(values) if product else None

        normed, summed = inputs.gamma is not None, inputs.constant is not None and not shared
        # Partial sums of every program, side by side: they are added up in one launch.
        lengths = [channels * outputs * own_summed, outputs * summed, *[outputs * normed] * 2]
        shares = values.new_empty(programs, sum(lengths), dtype=torch.float32)
        launch(
            read_gradient,
            programs,
            (*pointers, d_out, d_z, d_values, *shares.split(lengths, dim=1), cells, options.eps),
            CELLS=block,
            CONSTANT_SUMMED=summed,
            OWN_SUMMED=own_summed,
            STORED=stored,
            STRIDE=sum(lengths),
            **tile.options(),
            **sizes,
        )
        d_own, d_constant, d_gamma, d_beta = (
            one if len(one) else None for one in shares.sum(dim=0).split(lengths)
        )
        d_own = None if d_own is None else d_own.view(channels, outputs)
        d_tables: list[Tensor | None] = [None] * len(options.runs)
        if d_z is not None:
            pairs = zip(options.runs, needed[7:], strict=True)
            d_tables = [reduce_groups(d_z, runs) if used else None for runs, used in pairs]
            if not own_summed:
                d_own = values.T @ d_z
            if not product:
                d_values = d_z @ own.to(d_z.dtype).T
                d_values = d_values + d_out if options.residual else d_values
        if shared and inputs.constant is not None:
            d_constant = next(table.sum(dim=0) for table in d_tables if table is not None)
        d_extra = d_z if needed[3] else None
        return None, d_values, d_own, d_constant, d_extra, d_gamma, d_beta, None, *d_tables


class _Inputs(NamedTuple):
    values: Tensor
    own: Tensor
    constant: Tensor | None
    extra: Tensor | None
    gamma: Tensor | None
    beta: Tensor | None
    kept: Tensor | None
    tables: tuple[Tensor, ...]

    @classmethod
    def of(cls, tensors: tuple[Any, ...]) -> _Inputs:
        values, own, constant, extra, gamma, beta, kept, *tables = tensors
        return cls(values, own, constant, extra, gamma, beta, kept, tuple(tables))


def _shared_bytes(sizes: dict[str, Any], cells: int, each: int) -> tuple[int, int]:
    """Return the bytes of the gradient's tiles, and of what stays: both generously."""
    halves = 2 if sizes["ACTIVATION"] == "gated" else 1
    wide, out_wide = sizes["WIDE"], sizes["OUT_WIDE"]
    terms = halves * (sizes["NUMBER"] + sizes["EXTRA"])
    weights = wide * out_wide * halves if sizes["PRODUCT"] else 0
    loaded = cells * (wide + out_wide * (1 + terms)) * each
    return loaded, 2 * weights * each + 24 * 1024


def _prepare(options: _Options, inputs: _Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments and sizes that the kernel and its gradient share."""
    values, own, extra = inputs.values, inputs.own, inputs.extra
    (channels, outputs), gated = own.shape, options.activation == "gated"
    out = outputs // 2 if gated else outputs
    wide, out_wide = padded(channels), padded(out)
    product = wide * out_wide * (2 if gated else 1) <= MAX_WEIGHTS[values.dtype]
    if not product:
        multiplied = values @ own.to(values.dtype)
        extra = multiplied if extra is None else multiplied + extra
    pointers = (
        values,
        own,
        inputs.constant,
        tuple(runs.ids for runs in options.runs) or None,
        inputs.tables or None,
        extra,
        inputs.gamma,
        inputs.beta,
        inputs.kept,
    )
    sizes = {
        "NUMBER": len(options.runs),
        "K": channels,
        "WIDE": wide,
        "OUT": out,
        "OUT_WIDE": out_wide,
        "ACTIVATION": options.activation,
        "PRODUCT": product,
        "CONSTANT": inputs.constant is not None,
        "EXTRA": extra is not None,
        "NORM": inputs.gamma is not None,
        "KEPT": inputs.kept is not None,
        "RESIDUAL": options.residual,
        "FAR": any(table.numel() >= 2**31 for table in inputs.tables),
        "PRECISION": precision(values.dtype),
    }
    return pointers, sizes
