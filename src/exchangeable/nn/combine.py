"""The sum of a cell's terms, and its epilogue: norm, activation, dropout, residual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import LayerNorm, functional

from exchangeable.arrays.grid import AnyGroups
from exchangeable.arrays.groups import Groups
from exchangeable.nn.pooling import unpool
from exchangeable.nn.segments import has_kernels

Activation = Literal["identity", "relu", "leaky_relu", "gated"]


class Epilogue(NamedTuple):
    """Operations that follow the sum of a cell's terms."""

    norm: LayerNorm | None = None
    activation: Activation = "identity"
    dropout_mask: Tensor | None = None
    """A factor for each channel, 0 where it is dropped: (O,)."""
    residual: bool = False
    """Whether the cell's input values are added at the end."""


PLAIN = Epilogue()


def combine(
    values: Tensor,
    weight: Tensor,
    constant: Tensor | None,
    rows: Sequence[tuple[Tensor, AnyGroups]],
    extra: Tensor | None = None,
    epilogue: Epilogue = PLAIN,
) -> Tensor:
    """Return the new values of cells: their own times a matrix, plus the rows of their groups.

    ``weight`` is (K, O), ``constant`` (O,), ``rows`` (G, O) for the groups of several axes, and
    ``extra`` a further term, (E, O).
    """
    listed = [(row, groups) for row, groups in rows if isinstance(groups, Groups)]
    if len(listed) == len(rows) and has_kernels(values, outputs=weight.shape[1]):
        return _combine_on_gpu(values, weight, constant, listed, extra, epilogue)
    varying = []
    for row, groups in rows:
        if isinstance(groups, Groups) and groups.number == 1:  # all cells read the same
            shared = row[groups.start]
            constant = shared if constant is None else constant + shared
        else:
            varying.append((row, groups))
    y = values @ weight if constant is None else _affine(values, weight, constant)
    for row, groups in varying:
        y = add_in_place(y, unpool(row, groups))
    if extra is not None:
        y = add_in_place(y, extra)
    return apply_epilogue(y, values, epilogue)


def _affine(values: Tensor, weight: Tensor, constant: Tensor) -> Tensor:
    if values.ndim != 2:
        return values @ weight + constant
    return torch.addmm(constant, values, weight)


def _combine_on_gpu(
    values: Tensor,
    weight: Tensor,
    constant: Tensor | None,
    rows: list[tuple[Tensor, Groups]],
    extra: Tensor | None,
    epilogue: Epilogue,
) -> Tensor:
    from exchangeable import kernels

    if torch.is_autocast_enabled(values.device.type):
        values = values.to(torch.get_autocast_dtype(values.device.type))
    norm = epilogue.norm
    return kernels.read(
        values,
        weight,
        constant,
        [_local(row, groups) for row, groups in rows],
        [groups.runs for _, groups in rows],
        extra=extra,
        norm=None if norm is None else (norm.weight, norm.bias, norm.eps),
        activation=epilogue.activation,
        kept=epilogue.dropout_mask,
        residual=epilogue.residual,
    )


def _local(rows: Tensor, groups: Groups) -> Tensor:
    """Return the rows of the groups that the cells meet; all as they are, as a slice costs time."""
    start, end = groups.start, groups.start + groups.number
    return rows if (start, end) == (0, len(rows)) else rows[start:end]


def apply_epilogue(y: Tensor, values: Tensor, epilogue: Epilogue) -> Tensor:
    """Apply norm, activation, dropout and residual to the sum ``y`` of the cells' terms."""
    if epilogue.norm is not None:
        y = epilogue.norm(y)
    y = activate(y, epilogue.activation)
    if epilogue.dropout_mask is not None:
        y = y * epilogue.dropout_mask
    if not epilogue.residual:
        return y
    return values + y if torch.is_grad_enabled() else add_in_place(y, values)


def activate(y: Tensor, activation: Activation) -> Tensor:
    if activation == "gated":
        value, gate = y.chunk(2, dim=-1)
        return value * functional.silu(gate)
    # Without a gradient nothing needs the values from before.
    in_place = not torch.is_grad_enabled()
    if activation == "relu":
        return y.relu_() if in_place else y.relu()
    return functional.leaky_relu(y, inplace=in_place) if activation == "leaky_relu" else y


def add_in_place(total: Tensor, more: Tensor) -> Tensor:
    """Return the sum, made in place where it fits: allocating a large tensor costs more."""
    fits = total.shape == more.shape or more.shape == total.shape[-1:]
    return total.add_(more) if fits and total.dtype == more.dtype else total + more
