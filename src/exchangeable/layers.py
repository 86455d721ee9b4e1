"""Equivariant layers: observed cells write to pools, and every cell reads its own.

A layer has two halves. ``write`` pools the observed cells; ``read`` gives any cell, observed
or queried, its new values from its own and from the pools it belongs to. Called on an array
a layer does both: array in, array on the same cells out. Called on a plain tensor of shape
(N_1, ..., N_D, K) it does the same for a full grid, without building an index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar, get_args

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from exchangeable.array import ExchangeableArray
from exchangeable.groups import Axes, proper_subsets
from exchangeable.pooling import Cells, Grid, State, spread, spread_members
from exchangeable.pools import MeanPool, Modules, PooledTerm, Pooling, uniform

Activation = Literal["identity", "relu", "leaky_relu", "gated"]
Features = tuple[Tensor | None, ...]
"""For each axis the features of its members, (N, F), or None where it has none."""
ArrayOrTensor = TypeVar("ArrayOrTensor", ExchangeableArray, Tensor)


class Pools(NamedTuple):
    """What one layer keeps of the observed cells."""

    states: Mapping[Axes, tuple[State, ...]]
    kept: Tensor | None = None
    """The channels that dropout left, (O,), scaled; observed and queried cells lose the same."""


class Layer(nn.Module):
    """What every layer offers: ``write``, ``read``, ``merge``, and both halves in one call."""

    order: int
    in_channels: int

    def write(self, values: Tensor, cells: Cells, generator: Generator | None = None) -> Pools:
        """Pool the observed ``cells``, whose values are (E, K)."""
        raise NotImplementedError

    def read(
        self, values: Tensor, cells: Cells, pools: Pools, features: Features | None = None
    ) -> Tensor:
        """New values of any ``cells``, from their own and from the pools: (Q, K) -> (Q, O)."""
        raise NotImplementedError

    def merge(self, one: Pools, other: Pools) -> Pools:
        """The pools of the cells of both."""
        raise NotImplementedError

    def forward(
        self,
        x: ArrayOrTensor,
        features: Features | None = None,
        generator: Generator | None = None,
    ) -> ArrayOrTensor:
        values, cells = (x, grid_of(x)) if isinstance(x, Tensor) else (x.values, x.support)
        self.check(values, cells)
        y = self.read(values, cells, self.write(values, cells, generator), features)
        return y if isinstance(x, Tensor) else x.trusted(x.support, y)

    def check(self, values: Tensor, cells: Cells) -> None:
        """Raise unless the layer can run on these cells and values."""
        if cells.order != self.order:
            raise ValueError(
                f"the layer is for arrays of order {self.order}, but this one has shape "
                f"{cells.shape}"
            )
        if values.shape[-1] != self.in_channels:
            raise ValueError(
                f"the layer takes {self.in_channels} channels, but the array has {values.shape[-1]}"
            )
        weight = next(self.parameters(), values)
        if (weight.dtype, weight.device) != (values.dtype, values.device):
            raise ValueError(
                f"values must be {weight.dtype} on {weight.device} as the layer's weights are, "
                f"but are {values.dtype} on {values.device}"
            )


def grid_of(dense: Tensor) -> Grid:
    """The cells of a full tensor (N_1, ..., N_D, K)."""
    return Grid(tuple(dense.shape[:-1]), dense.device)


class ExchangeableLinear(Layer):
    """The most expressive linear map that commutes with permuting each axis (Theorem 5.1).

    There is a weight matrix for every subset S of the axes, applied to what is pooled of
    the observed cells that agree with the output cell on S:

        y = b + x @ W  +  sum over proper subsets S of  unpool_S(pool_S(x) @ W_S)

    With mean pooling and a matrix these are the terms of equation (4): the cell itself
    (``own``), the whole matrix, its row and its column (``terms`` in the order of ``axes``:
    (), (0,), (1,)). The equations of the paper number their weights; ours are named by S.

    Beyond the paper: several poolings side by side, the size of each group as two more
    channels (``counts``), and ``features`` of the members of each axis (their number per
    axis), which enter as unpool(features @ U). Broadcasting them over the array, as the
    paper has it, gives the cell's own term of the same; pools of them come a layer later.

    >>> layer = ExchangeableLinear(1, 8, order=2)
    >>> layer.axes
    ((), (0,), (1,))
    >>> sum(weight.numel() for weight in layer.parameters())
    40
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        order: int,
        pooling: Sequence[Pooling] = ("mean",),
        counts: bool = False,
        features: Sequence[int] = (),
        bias: bool = True,
        heads: int = 1,
        rank: int = 4,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        _check_sizes(order, in_channels, out_channels, pooling, features)
        self.order, self.in_channels, self.out_channels = order, in_channels, out_channels
        self.axes = proper_subsets(order)
        fan_in = in_channels * (1 + len(self.axes) * len(pooling)) + sum(features)
        self.own = uniform((in_channels, out_channels), fan_in, generator)
        self.terms = Modules[PooledTerm](
            PooledTerm(
                in_channels,
                out_channels,
                pooling,
                counts=counts,
                heads=heads,
                rank=rank,
                fan_in=fan_in,
                generator=generator,
            )
            for _ in self.axes
        )
        self.features = nn.ParameterList(
            [uniform((size, out_channels), fan_in, generator) for size in features]
        )
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def write(self, values: Tensor, cells: Cells, generator: Generator | None = None) -> Pools:
        named = zip(self.axes, self.terms, strict=True)
        return Pools({axes: term.write(values, cells.groups(axes)) for axes, term in named})

    def read(
        self, values: Tensor, cells: Cells, pools: Pools, features: Features | None = None
    ) -> Tensor:
        y = values @ self.own
        if self.bias is not None:
            y = y + self.bias
        for axes, term in zip(self.axes, self.terms, strict=True):
            y = y + term.read(pools.states[axes], values, cells.groups(axes))
        for axis, members in self._given(features, cells):
            y = y + spread_members(members @ self.features[axis], cells, axis)
        return y

    def merge(self, one: Pools, other: Pools) -> Pools:
        named = zip(self.axes, self.terms, strict=True)
        return Pools(
            {axes: term.merge(one.states[axes], other.states[axes]) for axes, term in named}
        )

    def _given(self, features: Features | None, cells: Cells) -> list[tuple[int, Tensor]]:
        """The axes that have features, with them, once they are sure to fit."""
        members = features or (None,) * self.order
        sizes = [weight.shape[0] for weight in self.features] or [0] * self.order
        wanted = [(n, size) if size else None for n, size in zip(cells.shape, sizes, strict=True)]
        came = [None if f is None else tuple(f.shape) for f in members]
        if came != wanted:
            raise ValueError(f"features must have shapes {wanted}, one per axis, but have {came}")
        given = [(axis, f) for axis, f in enumerate(members) if f is not None]
        for axis, f in given:
            if (f.dtype, f.device) != (self.own.dtype, self.own.device):
                raise ValueError(
                    f"features must be {self.own.dtype} on {self.own.device} as the layer's "
                    f"weights are, but those of axis {axis} are {f.dtype} on {f.device}"
                )
            if not f.isfinite().all():
                member = int((~f.isfinite()).nonzero()[0, 0])
                raise ValueError(
                    f"features must be finite, but member {member} of axis {axis} has "
                    f"{f[member].tolist()}"
                )
        return given


class ChannelDropout(nn.Module):
    """Drop whole channels, the same ones in every cell, and scale up those that stay.

    The paper's text; the code released with it drops single elements.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        if not 0 <= share < 1:
            raise ValueError(f"the share of channels to drop must be in [0, 1), but is {share}")
        self.share = share

    def draw(self, values: Tensor, channels: int, generator: Generator | None) -> Tensor | None:
        """A factor for each channel, 0 or 1 / (1 - share): (O,). None when nothing is dropped."""
        if not self.training or self.share == 0:
            return None
        chance = torch.rand(channels, generator=generator, device=_home(generator, values))
        return (chance >= self.share).to(values) / (1 - self.share)

    def forward(self, x: ArrayOrTensor, generator: Generator | None = None) -> ArrayOrTensor:
        values = x if isinstance(x, Tensor) else x.values
        kept = self.draw(values, values.shape[-1], generator)
        if kept is None:
            return x
        return x * kept if isinstance(x, Tensor) else x.trusted(x.support, x.values * kept)


class ExchangeableBlock(Layer):
    """A layer with all that surrounds it: linear, norm, activation, dropout, residual.

        y = [x +] dropout(activation([norm](linear(x))))

    A residual needs as many channels out as in. Gated units multiply one half of twice
    the channels by the SiLU of the other.
    """

    def __init__(
        self,
        linear: ExchangeableLinear,
        *,
        activation: Activation = "leaky_relu",
        norm: bool = False,
        dropout: float = 0.0,
        residual: bool = False,
    ) -> None:
        super().__init__()
        if activation not in get_args(Activation):
            known = ", ".join(get_args(Activation))
            raise ValueError(f"activation must be one of {known}, but is {activation!r}")
        self.linear = linear
        self.order, self.in_channels = linear.order, linear.in_channels
        self.out_channels = linear.out_channels // (2 if activation == "gated" else 1)
        if residual and self.in_channels != self.out_channels:
            raise ValueError(
                f"a residual needs as many channels out as in, but they are "
                f"{self.out_channels} and {self.in_channels}"
            )
        self.norm = nn.LayerNorm(linear.out_channels) if norm else None
        self.activation, self.residual = activation, residual
        self.dropout = ChannelDropout(dropout)

    def write(self, values: Tensor, cells: Cells, generator: Generator | None = None) -> Pools:
        pools = self.linear.write(values, cells)
        return pools._replace(kept=self.dropout.draw(values, self.out_channels, generator))

    def read(
        self, values: Tensor, cells: Cells, pools: Pools, features: Features | None = None
    ) -> Tensor:
        y = self.linear.read(values, cells, pools, features)
        if self.norm is not None:
            y = self.norm(y)
        y = _activate(y, self.activation)
        if pools.kept is not None:
            y = y * pools.kept
        return values + y if self.residual else y

    def merge(self, one: Pools, other: Pools) -> Pools:
        return self.linear.merge(one, other)._replace(kept=one.kept)


class FactorLayer(Layer):
    """Summarise every member by a vector, and give each cell the vectors of its members.

    The vectors are means of the observed cells' values along each axis, optionally passed
    through a learned linear map per axis, which also sets how long that axis' vectors are.
    What a cell held itself does not go on: only the factors do.
    """

    def __init__(
        self,
        in_channels: int,
        sizes: Sequence[int],
        *,
        maps: bool,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if not maps and set(sizes) != {in_channels}:
            raise ValueError(
                f"without maps every factor has the {in_channels} channels that are pooled, "
                f"but sizes are {tuple(sizes)}; maps=True lets them differ"
            )
        self.order, self.in_channels, self.out_channels = len(sizes), in_channels, sum(sizes)
        self.pool = MeanPool(in_channels)
        self.maps = nn.ParameterList(
            [uniform((in_channels, size), in_channels, generator) for size in sizes if maps]
        )

    def write(self, values: Tensor, cells: Cells, generator: Generator | None = None) -> Pools:
        axes = range(self.order)
        return Pools({(a,): (self.pool.write(values, cells.groups((a,))),) for a in axes})

    def factors(self, pools: Pools) -> tuple[Tensor, ...]:
        """One tensor per axis, of shape (N, size), or of a grid's shape with that axis only."""
        means = [self.pool.summary(pools.states[(axis,)][0]) for axis in range(self.order)]
        if not self.maps:
            return tuple(means)
        return tuple(mean @ weight for mean, weight in zip(means, self.maps, strict=True))

    def read(
        self, values: Tensor, cells: Cells, pools: Pools, features: Features | None = None
    ) -> Tensor:
        named = enumerate(self.factors(pools))
        spreads = [spread(factor, cells.groups((axis,))) for axis, factor in named]
        if isinstance(cells, Grid):
            spreads = [factor.expand(*cells.shape, -1) for factor in spreads]
        return torch.cat(spreads, dim=-1)

    def merge(self, one: Pools, other: Pools) -> Pools:
        states = {
            axes: (self.pool.merge(one.states[axes][0], other.states[axes][0]),)
            for axes in one.states
        }
        return Pools(states)


def _activate(y: Tensor, activation: Activation) -> Tensor:
    if activation == "gated":
        value, gate = y.chunk(2, dim=-1)
        return value * functional.silu(gate)
    if activation == "relu":
        return y.relu()
    return functional.leaky_relu(y) if activation == "leaky_relu" else y


def _home(generator: Generator | None, values: Tensor) -> torch.device:
    """A generator draws on its own device only."""
    return values.device if generator is None else generator.device


def _check_sizes(
    order: int, inputs: int, outputs: int, pooling: Sequence[Pooling], features: Sequence[int]
) -> None:
    if order < 1 or inputs < 1 or outputs < 1:
        raise ValueError(
            f"order and channels must be 1 or more, but are order={order}, "
            f"in_channels={inputs}, out_channels={outputs}"
        )
    if not pooling or isinstance(pooling, str):
        raise ValueError(f"pooling must be a tuple of one name or more, but is {pooling!r}")
    if features and len(features) != order:
        raise ValueError(
            f"features must give a number for each of the {order} axes, but are {features}"
        )
