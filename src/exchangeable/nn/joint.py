"""Jointly exchangeable matrices: rows and columns are the same set, as in a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Generator, nn

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.grid import AnyCells, AnyGroups
from exchangeable.arrays.groups import PAIR, Diagonal, Grouping
from exchangeable.arrays.support import Support
from exchangeable.nn.layers import ExchangeableLinear, LayerReadout, Reads
from exchangeable.nn.pool_states import PoolStates
from exchangeable.nn.pools import GroupReadout, PooledTerm, Pooling
from exchangeable.runtime.cache import cached_property

Tying = Literal["joint", "paper"]

LOOP, LOOPS = Diagonal((0,)), Diagonal(())
"""The cell of a member with itself, and all of these cells."""
_OF_MEMBER: tuple[Grouping, ...] = ((0,), (1,), LOOP)
_OF_ALL: tuple[Grouping, ...] = ((), LOOPS)

JOINT_READS: Reads = {
    (): _OF_ALL,
    (0,): _OF_MEMBER,
    (1,): _OF_MEMBER,
    PAIR: (PAIR,),
    LOOP: _OF_MEMBER,
    LOOPS: _OF_ALL,
}
"""What a cell (i, j) reads: in its row all of member i, in its column all of member j, of its pair
the mirrored cell, and on the diagonal all of its member once more."""
PAPER_READS: Reads = {axes: (axes,) for axes in ((), (0,), (1,))}


def linear_layer(
    in_channels: int, out_channels: int, *, order: int, joint: bool, **options: Any
) -> ExchangeableLinear:
    """Make the linear layer for tables of an order, whose axes are one set if ``joint``."""
    if joint:
        return JointlyExchangeableLinear(in_channels, out_channels, **options)
    return ExchangeableLinear(in_channels, out_channels, order=order, **options)


class JointlyExchangeableLinear(ExchangeableLinear):
    """The most expressive linear map that commutes with relabelling one set on both axes.

    Maron et al. (2019) count 15 such maps, and 2 biases. Written for cell (i, j), with R and
    C the means of a member's row and column, D its diagonal cell, T the mean of all cells
    and t that of the diagonal:

        x_ij  x_ji  R_i  R_j  C_i  C_j  D_i  D_j  T  t        in every cell
        D_i  R_i  C_i  T  t                                   on the diagonal only

    ``own`` is the weight of x_ij. ``terms`` has a pool for each of T, t, R, C, D and x_ji in the
    sequence of ``axes``, with a weight for each place where it is read: ``reads``. The paper
    holds that joint exchangeability ties the row and the column weight (w2 = w3) and leaves x_ij,
    R_i + C_j and T; that smaller family is ``tying="paper"``. Where cells are missing, means are
    over the observed ones. Poolings, counts and features are those of ``ExchangeableLinear``.

    >>> layer = JointlyExchangeableLinear(1, 1)
    >>> sum(weight.numel() for weight in [layer.own, *layer.terms.parameters()])
    15
    >>> tied = JointlyExchangeableLinear(1, 1, tying="paper", bias=False)
    >>> sum(weight.numel() for weight in tied.parameters())
    3
    """

    joint = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        tying: Tying = "joint",
        pooling: Sequence[Pooling] = ("mean",),
        bias: bool = True,
        generator: Generator | None = None,
        **options: Any,
    ) -> None:
        if tying not in get_args(Tying):
            raise ValueError(f"tying must be one of {', '.join(get_args(Tying))}, but is {tying!r}")
        if "least_squares" in pooling:
            raise ValueError(
                "a jointly exchangeable layer pools by mean, sum, max and attention, but "
                "'least_squares' is among its poolings"
            )
        self.tying = tying
        super().__init__(
            in_channels,
            out_channels,
            order=2,
            pooling=pooling,
            bias=bias,
            generator=generator,
            **options,
        )
        # Of the diagonal's cells, beside the bias of all.
        has_own = bias and tying == "joint" and options.get("pools", True)
        self.diagonal_bias = nn.Parameter(torch.zeros(out_channels)) if has_own else None
        if tying == "paper" and len(self.terms):
            del self.terms[-1]  # the columns have the term of the rows

    def choose_reads(self) -> Reads:
        return JOINT_READS if self.tying == "joint" else PAPER_READS

    @cached_property
    def terms_of(self) -> Mapping[Grouping, PooledTerm]:
        terms = list(self.terms)
        if self.tying == "paper" and terms:
            terms.append(terms[-1])
        return dict(zip(self.axes, terms, strict=True))

    def readout(self, pools: PoolStates, features: FeatureTensors | None = None) -> LayerReadout:
        readout = super().readout(pools, features)
        if self.diagonal_bias is None or LOOPS not in readout.on:
            return readout
        rows = readout.on[LOOPS].rows
        assert rows is not None
        on = {**readout.on, LOOPS: GroupReadout(rows + self.diagonal_bias, ())}
        return readout._replace(on=on)

    def read_groups(self, cells: AnyCells, reader: Grouping) -> AnyGroups:
        if reader == PAIR and isinstance(cells, Support):
            return cells.mirrored.groups(PAIR)
        return super().read_groups(cells, reader)
