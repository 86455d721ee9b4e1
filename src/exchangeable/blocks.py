"""What surrounds the linear layer: dropout, the residual block, and the bottleneck of factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Literal, NamedTuple, get_args

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from exchangeable.groups import Directory
from exchangeable.layers import ArrayOrTensor, Features, Layer, P, Pools, added
from exchangeable.pooling import Cells, Grid, State, spread
from exchangeable.pools import MeanPool, emptied, moved, narrowed, uniform

Activation = Literal["identity", "relu", "leaky_relu", "gated"]


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


class BlockPools(NamedTuple, Generic[P]):
    """What a block keeps: its layer's pools, and the channels that dropout left."""

    inner: P
    kept: Tensor | None
    """(O,), scaled; observed and queried cells lose the same channels."""


class ExchangeableBlock(Layer[BlockPools[P]]):
    """A layer with all that surrounds it: linear, norm, activation, dropout, residual.

        y = [x +] dropout(activation([norm](linear(x))))

    A residual needs as many channels out as in. Gated units multiply one half of the
    linear layer's channels by the SiLU of the other, so that half as many come out.

    With ``recompute`` what happens inside is forgotten after the forward pass and computed
    again in the backward one: half as fast again, for a fraction of the memory.
    """

    recompute = False

    def __init__(
        self,
        linear: Layer[P],
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
        if activation == "gated" and linear.out_channels % 2:
            raise ValueError(f"gated units take channels in pairs, but {linear.out_channels} came")
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

    def write(
        self, values: Tensor, cells: Cells, generator: Generator | None = None
    ) -> BlockPools[P]:
        kept = self.dropout.draw(values, self.out_channels, generator)
        if self.recompute and values.requires_grad:
            inner: P = checkpoint(self.linear.write, values, cells, use_reentrant=False)
            return BlockPools(inner, kept)
        return BlockPools(self.linear.write(values, cells), kept)

    def read(
        self, values: Tensor, cells: Cells, pools: BlockPools[P], features: Features | None = None
    ) -> Tensor:
        if self.recompute and torch.is_grad_enabled():
            y: Tensor = checkpoint(self._read, values, cells, pools, features, use_reentrant=False)
            return y
        return self._read(values, cells, pools, features)

    def _read(
        self, values: Tensor, cells: Cells, pools: BlockPools[P], features: Features | None
    ) -> Tensor:
        y = self.linear.read(values, cells, pools.inner, features)
        if self.norm is not None:
            y = self.norm(y)
        y = _activate(y, self.activation)
        if pools.kept is not None:
            y = y * pools.kept
        if not self.residual:
            return y
        return values + y if torch.is_grad_enabled() else added(y, values)

    def merge(self, one: BlockPools[P], other: BlockPools[P]) -> BlockPools[P]:
        return BlockPools(self.linear.merge(one.inner, other.inner), one.kept)

    def moved(self, pools: BlockPools[P], old: Directory, new: Directory) -> BlockPools[P]:
        return BlockPools(self.linear.moved(pools.inner, old, new), pools.kept)

    def without(self, pools: BlockPools[P], directory: Directory, axis: int) -> BlockPools[P]:
        return BlockPools(self.linear.without(pools.inner, directory, axis), pools.kept)

    def check_features(self, features: Features | None, shape: tuple[int, ...]) -> None:
        self.linear.check_features(features, shape)


class FactorLayer(Layer[Pools]):
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
        if not sizes or min(in_channels, *sizes) < 1:
            raise ValueError(
                f"channels and factor sizes must be 1 or more, but are {in_channels} and "
                f"{tuple(sizes)}"
            )
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
        return tuple(self._factor(pools.states[(a,)][0], a) for a in range(self.order))

    def _factor(self, state: State, axis: int) -> Tensor:
        mean = self.pool.summary(state)
        return mean.to(self.maps[axis].dtype) @ self.maps[axis] if self.maps else mean

    def read(
        self, values: Tensor, cells: Cells, pools: Pools, features: Features | None = None
    ) -> Tensor:
        factors = []
        for axis in range(self.order):
            (state,), groups = narrowed(pools.states[(axis,)], cells.groups((axis,)))
            factors.append(spread(self._factor(state, axis), groups).to(values.dtype))
        if isinstance(cells, Grid):
            factors = [factor.expand(*cells.shape, -1) for factor in factors]
        return torch.cat(factors, dim=-1)

    def merge(self, one: Pools, other: Pools) -> Pools:
        axes = one.states.keys()
        return Pools({a: (self.pool.merge(one.states[a][0], other.states[a][0]),) for a in axes})

    def moved(self, pools: Pools, old: Directory, new: Directory) -> Pools:
        states = {}
        for axes, (state,) in pools.states.items():
            places = old.places_in(new, axes).to(state[0].device)
            states[axes] = (moved(self.pool, state, places, new.number(axes)),)
        return Pools(states)

    def without(self, pools: Pools, directory: Directory, axis: int) -> Pools:
        states = dict(pools.states)
        (state,) = states[(axis,)]
        states[(axis,)] = (emptied(self.pool, state, directory.number((axis,))),)
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
