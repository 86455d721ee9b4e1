"""Modules around the linear layer: dropout, the residual block, and the bottleneck of factors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import get_args

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.grid import AnyCells, Grid
from exchangeable.arrays.groups import Grouping
from exchangeable.nn import pool_states
from exchangeable.nn.combine import PLAIN, Activation, Epilogue, apply_epilogue
from exchangeable.nn.layers import ArrayOrTensor, Layer, LayerReadout, P, R
from exchangeable.nn.pool_states import Poolings, PoolStates
from exchangeable.nn.pooling import merge, unpool
from exchangeable.nn.pools import GroupReadout, MeanPool, Modules, uniform


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
        """Draw a factor for each channel, 0 or 1 / (1 - share): (O,). None: nothing is dropped."""
        if not self.training or self.share == 0:
            return None
        # A generator draws on its own device only.
        device = values.device if generator is None else generator.device
        chance = torch.rand(channels, generator=generator, device=device)
        return (chance >= self.share).to(values) / (1 - self.share)

    def forward(self, x: ArrayOrTensor, generator: Generator | None = None) -> ArrayOrTensor:
        values = x if isinstance(x, Tensor) else x.values
        mask = self.draw(values, values.shape[-1], generator)
        if mask is None:
            return x
        return x * mask if isinstance(x, Tensor) else x.unchecked(x.support, x.values * mask)


class ExchangeableBlock(Layer[P, R]):
    """A layer with its surroundings: linear, norm, activation, dropout, residual.

        y = [x +] dropout(activation([norm](linear(x))))

    A residual needs as many channels out as in. Gated units multiply one half of the
    linear layer's channels by the SiLU of the other, so that half as many come out.
    """

    def __init__(
        self,
        linear: Layer[P, R],
        *,
        activation: Activation = "leaky_relu",
        norm: bool = False,
        dropout: float = 0.0,
        residual: bool = False,
    ) -> None:
        super().__init__()
        if activation not in get_args(Activation):
            names = ", ".join(get_args(Activation))
            raise ValueError(f"activation must be one of {names}, but is {activation!r}")
        if activation == "gated" and linear.out_channels % 2:
            raise ValueError(f"gated units take channels in pairs, but {linear.out_channels} came")
        self.linear = linear
        self.order, self.in_channels = linear.order, linear.in_channels
        self.joint = linear.joint
        self.out_channels = linear.out_channels // (2 if activation == "gated" else 1)
        if residual and self.in_channels != self.out_channels:
            raise ValueError(
                f"a residual needs as many channels out as in, but they are "
                f"{self.out_channels} and {self.in_channels}"
            )
        self.norm = nn.LayerNorm(linear.out_channels) if norm else None
        self.activation, self.residual = activation, residual
        self.dropout = ChannelDropout(dropout)

    @property
    def poolings(self) -> Poolings:
        return self.linear.poolings

    def pool_cells(
        self, values: Tensor, cells: AnyCells, features: FeatureTensors | None = None
    ) -> tuple[Tensor, P]:
        return self.linear.pool_cells(values, cells, features)

    def draw_dropout(self, like: Tensor, generator: Generator | None) -> Tensor | None:
        return self.dropout.draw(like, self.out_channels, generator)

    def readout(self, pools: P, features: FeatureTensors | None = None) -> R:
        return self.linear.readout(pools, features)

    def read(
        self, values: Tensor, cells: AnyCells, readout: R, epilogue: Epilogue = PLAIN
    ) -> Tensor:
        inner = Epilogue(self.norm, self.activation, readout.dropout_mask, self.residual)
        return apply_epilogue(self.linear.read(values, cells, readout, inner), values, epilogue)

    def check_features(self, features: FeatureTensors | None, shape: tuple[int, ...]) -> None:
        self.linear.check_features(features, shape)


class FactorNetwork(nn.Module):
    """Hidden layers between the mean of a member's cells and the linear map to its vector."""

    def __init__(self, channels: int, sizes: Sequence[int], generator: Generator | None) -> None:
        super().__init__()
        pairs = list(pairwise([channels, *sizes]))
        self.weights = nn.ParameterList([uniform(pair, pair[0], generator) for pair in pairs])
        self.biases = nn.ParameterList([torch.zeros(size) for size in sizes])

    def forward(self, means: Tensor) -> Tensor:
        """Pass the means of members through all layers: (N, K) -> (N, size of the last)."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            means = functional.leaky_relu(means @ weight + bias)
        return means


class FactorLayer(Layer[PoolStates, LayerReadout]):
    """Summarise every member by a vector, and give each cell the vectors of its members.

    The vectors are means of the observed cells' values along each axis, optionally passed
    through a learned map per axis, which also sets the length of that axis' vectors: a linear
    one, or with ``hidden`` layers a feed-forward network with leaky ReLUs between them.
    A cell's own values are not passed on: only the factors are. Where both axes are one set
    (``joint``), a member's vectors are of its row and of its column together: the mean of both,
    or maps of the two means.
    """

    def __init__(
        self,
        in_channels: int,
        sizes: Sequence[int],
        *,
        maps: bool,
        hidden: Sequence[int] = (),
        joint: bool = False,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if not sizes or min(in_channels, *sizes) < 1:
            raise ValueError(
                f"channels and factor sizes must be 1 or more, but are {in_channels} and "
                f"{tuple(sizes)}"
            )
        if hidden and (not maps or min(hidden) < 1):
            raise ValueError(
                f"hidden layers are those of maps and have 1 channel or more, but maps={maps} and "
                f"they are {tuple(hidden)}"
            )
        if not maps and set(sizes) != {in_channels}:
            raise ValueError(
                f"without maps every factor has the {in_channels} channels that are pooled, "
                f"but sizes are {tuple(sizes)}; maps=True lets them differ"
            )
        self.order, self.in_channels, self.out_channels = len(sizes), in_channels, sum(sizes)
        self.joint, self.pool = joint, MeanPool(in_channels)
        pooled = in_channels * (2 if joint else 1)
        self.hidden = Modules[FactorNetwork](
            FactorNetwork(pooled, hidden, generator) for _ in sizes if hidden
        )
        mapped = hidden[-1] if hidden else pooled
        self.maps = nn.ParameterList(
            [uniform((mapped, size), mapped, generator) for size in sizes if maps]
        )

    @property
    def poolings(self) -> Poolings:
        return {(axis,): (self.pool,) for axis in range(self.order)}

    def pool_cells(
        self, values: Tensor, cells: AnyCells, features: FeatureTensors | None = None
    ) -> tuple[Tensor, PoolStates]:
        return pool_states.write(self.poolings, values, cells)

    def factors(self, pools: PoolStates) -> tuple[Tensor, ...]:
        """Return one tensor per axis, (N, size), or of a grid's shape with that axis only."""
        return tuple(self._factor(pools, axis) for axis in range(self.order))

    def _factor(self, pools: PoolStates, axis: int) -> Tensor:
        states = [pools.states[(axis,)][0]]
        if self.joint:
            (row,), (column,) = pools.states[(0,)], pools.states[(1,)]
            states = [row, column] if self.maps else [merge(row, column)]
        mean = torch.cat([self.pool.summarise(state) for state in states], dim=-1)
        if not self.maps:
            return mean
        vectors = mean.to(self.maps[axis].dtype)
        if self.hidden:
            vectors = self.hidden[axis](vectors)
        return vectors @ self.maps[axis]

    def readout(self, pools: PoolStates, features: FeatureTensors | None = None) -> LayerReadout:
        on: dict[Grouping, GroupReadout] = {
            (axis,): GroupReadout(self._factor(pools, axis), ())
            for axis in range(self.order)
            if (axis,) in pools.states
        }
        return LayerReadout(on, pools.dropout_mask)

    def read(
        self, values: Tensor, cells: AnyCells, readout: LayerReadout, epilogue: Epilogue = PLAIN
    ) -> Tensor:
        factors = []
        for axis in range(self.order):
            rows = readout.on[(axis,)].rows
            assert rows is not None
            factors.append(unpool(rows, cells.groups((axis,))).to(values.dtype))
        if isinstance(cells, Grid):
            factors = [factor.expand(*cells.shape, -1) for factor in factors]
        return apply_epilogue(torch.cat(factors, dim=-1), values, epilogue)
