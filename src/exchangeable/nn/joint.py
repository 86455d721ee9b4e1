"""Jointly exchangeable matrices: rows and columns are the same set, as in a graph."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Generator, Tensor, nn

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.grid import AnyCells, Grid
from exchangeable.nn.combine import PLAIN, Epilogue, apply_epilogue
from exchangeable.nn.layers import Layer, check_sizes
from exchangeable.nn.pooling import pool_mean, sum_over, unpool_members
from exchangeable.nn.pools import uniform

Tying = Literal["joint", "paper"]


class JointPools(NamedTuple):
    """Pools of a jointly exchangeable layer, and the observed cells themselves."""

    row: Tensor  # (N, K) mean of each member's row
    column: Tensor  # (N, K) mean of its column
    diagonal: Tensor  # (N, K) its own cell, 0 where not observed
    total: Tensor  # (1, K) mean of all cells
    trace: Tensor  # (1, K) mean of the diagonal cells
    values: Tensor  # (E, K) the cells themselves
    cells: AnyCells
    dropout_mask: Tensor | None = None  # (O,) a factor per channel, 0 where it is dropped


class JointlyExchangeableLinear(Layer[JointPools, JointPools]):
    """The most expressive linear map that commutes with relabelling one set on both axes.

    Maron et al. (2019) count 15 such maps, and 2 biases. Written for cell (i, j), with R and
    C the means of a member's row and column, D its diagonal cell, T the mean of all cells
    and t that of the diagonal:

        x_ij  x_ji  R_i  R_j  C_i  C_j  D_i  D_j  T  t        in every cell
        D_i  R_i  C_i  T  t                                   on the diagonal only

    ``weight`` (15, K, O) keeps that sequence. The paper holds that joint exchangeability ties
    the row and the column weight (w2 = w3) and leaves x_ij, R_i + C_j and T; that smaller
    family is ``tying="paper"``. Where cells are missing, means are over the observed ones.

    >>> JointlyExchangeableLinear(1, 1).weight.shape
    torch.Size([15, 1, 1])
    >>> JointlyExchangeableLinear(1, 1, tying="paper").weight.shape
    torch.Size([3, 1, 1])
    """

    order = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        tying: Tying = "joint",
        bias: bool = True,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if tying not in get_args(Tying):
            raise ValueError(f"tying must be one of {', '.join(get_args(Tying))}, but is {tying!r}")
        check_sizes(self.order, in_channels, out_channels)
        self.in_channels, self.out_channels, self.tying = in_channels, out_channels, tying
        maps, biases = (15, 2) if tying == "joint" else (3, 1)
        self.weight = uniform((maps, in_channels, out_channels), maps * in_channels, generator)
        self.bias = nn.Parameter(torch.zeros(biases, out_channels)) if bias else None

    def check(self, values: Tensor, cells: AnyCells) -> None:
        super().check(values, cells)
        if cells.shape[0] != cells.shape[1]:
            raise ValueError(
                f"a jointly exchangeable matrix has as many rows as columns, but this one has "
                f"shape {cells.shape}"
            )

    def pool_cells(self, values: Tensor, cells: AnyCells) -> tuple[Tensor, JointPools]:
        shape, on_diagonal = (cells.shape[0], values.shape[-1]), _on_diagonal(values, cells)
        everything, rows = cells.groups(()), cells.groups((0,))
        diagonal_sum = sum_over(values * on_diagonal, everything)
        diagonal_cells = sum_over(on_diagonal, everything).clamp(min=1)
        return values, JointPools(
            row=pool_mean(values, rows).reshape(shape),
            column=pool_mean(values, cells.groups((1,))).reshape(shape),
            diagonal=sum_over(values * on_diagonal, rows).reshape(shape).to(values.dtype),
            total=pool_mean(values, everything).reshape(1, shape[1]),
            trace=(diagonal_sum / diagonal_cells).reshape(1, shape[1]).to(values.dtype),
            values=values,
            cells=cells,
        )

    def readout(self, pools: JointPools, features: FeatureTensors | None = None) -> JointPools:
        return pools

    def read(
        self, values: Tensor, cells: AnyCells, readout: JointPools, epilogue: Epilogue = PLAIN
    ) -> Tensor:
        return apply_epilogue(self._read(values, cells, readout), values, epilogue)

    def _read(self, values: Tensor, cells: AnyCells, pools: JointPools) -> Tensor:
        row, column, diagonal, total, trace = pools[:5]
        if self.tying == "paper":
            w_cell, w_line, w_total = self.weight
            y = values @ w_cell + total.squeeze(0) @ w_total
            y = y + unpool_members(row @ w_line, cells, 0)
            y = y + unpool_members(column @ w_line, cells, 1)
            return y if self.bias is None else y + self.bias[0]
        w = self.weight
        everywhere = (total @ w[8] + trace @ w[9]).squeeze(0)
        loop = diagonal @ w[10] + row @ w[11] + column @ w[12] + total @ w[13] + trace @ w[14]
        if self.bias is not None:
            everywhere, loop = everywhere + self.bias[0], loop + self.bias[1]
        y = values @ w[0] + _transposed(cells, pools) @ w[1] + everywhere
        y = y + unpool_members(row @ w[2] + column @ w[4] + diagonal @ w[6], cells, 0)
        y = y + unpool_members(row @ w[3] + column @ w[5] + diagonal @ w[7], cells, 1)
        return y + _on_diagonal(values, cells) * unpool_members(loop, cells, 0)


def _on_diagonal(values: Tensor, cells: AnyCells) -> Tensor:
    """Return 1 for cells whose members are the same and 0 for others: (E, 1)."""
    if isinstance(cells, Grid):
        return torch.eye(cells.shape[0], dtype=values.dtype, device=values.device).unsqueeze(-1)
    return (cells.index[:, :1] == cells.index[:, 1:]).to(values.dtype)


def _transposed(cells: AnyCells, pools: JointPools) -> Tensor:
    """Return the observed value of the mirrored cell (j, i) of each cell (i, j), or 0."""
    if isinstance(cells, Grid) or isinstance(pools.cells, Grid):
        if not isinstance(cells, Grid) or not isinstance(pools.cells, Grid):
            raise ValueError("pools of a full matrix are read by a full matrix, and lists by lists")
        return pools.values.transpose(0, 1)
    padded = torch.cat([pools.values, pools.values.new_zeros(1, pools.values.shape[1])])
    return padded[pools.cells.find(cells.index.flip(1))]
