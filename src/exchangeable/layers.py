"""Equivariant layers: observed cells write to pools, and every cell reads its own.

A layer has two halves. ``write`` pools the observed cells; ``read`` gives any cell, observed
or queried, its new values from its own and from the pools it belongs to. Called on an array
a layer does both: array in, array on the same cells out. Called on a plain tensor of shape
(N_1, ..., N_D, K) it does the same for a full grid, without building an index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Generator, Tensor, nn

from exchangeable.array import ExchangeableArray
from exchangeable.groups import Axes, Directory, proper_subsets
from exchangeable.pooling import Cells, Grid, State, spread_product
from exchangeable.pools import Modules, PooledTerm, Pooling, uniform

Features = tuple[Tensor | None, ...]
"""For each axis the features of its members, (N, F), or None where it has none."""
ArrayOrTensor = TypeVar("ArrayOrTensor", ExchangeableArray, Tensor)
P = TypeVar("P")


class Pools(NamedTuple):
    """What a layer keeps of the observed cells: for each subset of the axes, a state per pool."""

    states: Mapping[Axes, tuple[State, ...]]


class Layer(nn.Module, Generic[P]):
    """What every layer offers: to ``write`` pools of some kind P, and to ``read`` them."""

    order: int
    in_channels: int
    out_channels: int

    def write(self, values: Tensor, cells: Cells, generator: Generator | None = None) -> P:
        """Pool the observed ``cells``, whose values are (E, K)."""
        raise NotImplementedError

    def read(
        self, values: Tensor, cells: Cells, pools: P, features: Features | None = None
    ) -> Tensor:
        """New values of any ``cells``, from their own and from the pools: (Q, K) -> (Q, O)."""
        raise NotImplementedError

    def merge(self, one: P, other: P) -> P:
        """The pools of the cells of both."""
        raise NotImplementedError(f"pools of {type(self).__name__} cannot be merged")

    def moved(self, pools: P, old: Directory, new: Directory) -> P:
        """The pools among the groups of a larger directory; groups that are new are empty."""
        raise NotImplementedError(f"pools of {type(self).__name__} cannot be extended")

    def without(self, pools: P, directory: Directory, axis: int) -> P:
        """The pools as one new member of ``axis`` finds them: all that is not of that axis.

        ``directory`` is that of the table with this one member.
        """
        raise NotImplementedError(f"pools of {type(self).__name__} cannot be extended")

    def forward(
        self,
        x: ArrayOrTensor,
        features: Features | None = None,
        generator: Generator | None = None,
    ) -> ArrayOrTensor:
        values, cells = (x, grid_of(x)) if isinstance(x, Tensor) else (x.values, x.support)
        self.check(values, cells)
        self.check_features(features, cells.shape)
        if isinstance(x, Tensor) and not x.isfinite().all():
            first = tuple((~x.isfinite()).any(dim=-1).nonzero()[0].tolist())
            raise ValueError(f"values must be finite, but cell {first} holds {x[first].tolist()}")
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
        _check_home("values", values, next(self.parameters(), values))

    def check_features(self, features: Features | None, shape: tuple[int, ...]) -> None:
        """Raise unless these are the features that the layer takes of an array of ``shape``."""
        if features is not None and any(part is not None for part in features):
            raise ValueError("the layer was made without features, but some came")


def grid_of(dense: Tensor) -> Grid:
    """The cells of a full tensor (N_1, ..., N_D, K)."""
    return Grid(tuple(dense.shape[:-1]), dense.device)


class ExchangeableLinear(Layer[Pools]):
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
        check_sizes(order, in_channels, out_channels)
        if not pooling or isinstance(pooling, str):
            raise ValueError(f"pooling must be a tuple of one name or more, but is {pooling!r}")
        if features and (len(features) != order or min(features) < 0):
            raise ValueError(
                f"features must give a number for each of the {order} axes, but are {features}"
            )
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
            y = added(y, self.bias)
        for axes, term in zip(self.axes, self.terms, strict=True):
            y = added(y, term.read(pools.states[axes], values, cells.groups(axes)))
        for axis, members in enumerate(features or ()):
            if members is not None:
                y = added(y, spread_product(members, self.features[axis], cells, axis))
        return y

    def merge(self, one: Pools, other: Pools) -> Pools:
        named = zip(self.axes, self.terms, strict=True)
        return Pools(
            {axes: term.merge(one.states[axes], other.states[axes]) for axes, term in named}
        )

    def moved(self, pools: Pools, old: Directory, new: Directory) -> Pools:
        states = {}
        for axes, term in zip(self.axes, self.terms, strict=True):
            places = old.places_in(new, axes).to(self.own.device)
            states[axes] = term.moved(pools.states[axes], places, new.number(axes))
        return Pools(states)

    def without(self, pools: Pools, directory: Directory, axis: int) -> Pools:
        named = zip(self.axes, self.terms, strict=True)
        return Pools(
            {
                axes: term.emptied(pools.states[axes], directory.number(axes))
                if axis in axes
                else pools.states[axes]
                for axes, term in named
            }
        )

    def check_features(self, features: Features | None, shape: tuple[int, ...]) -> None:
        members = (None,) * self.order if features is None else features
        sizes = [weight.shape[0] for weight in self.features] or [0] * self.order
        wanted = [(n, size) if size else None for n, size in zip(shape, sizes, strict=True)]
        came = [tuple(f.shape) if isinstance(f, Tensor) else f for f in members]
        if isinstance(members, Tensor) or came != wanted:
            raise ValueError(f"features must have shapes {wanted}, one per axis, but have {came}")
        for axis, f in enumerate(members):
            if f is None:
                continue
            _check_home(f"features of axis {axis}", f, self.own)
            if not f.isfinite().all():
                member = int((~f.isfinite()).nonzero()[0, 0])
                raise ValueError(
                    f"features must be finite, but member {member} of axis {axis} has "
                    f"{f[member].tolist()}"
                )


def added(total: Tensor, more: Tensor) -> Tensor:
    """The sum, in place where it fits: large tensors cost more to come by than to fill."""
    fits = total.dtype == more.dtype and total.shape == torch.broadcast_shapes(
        total.shape, more.shape
    )
    return total.add_(more) if fits else total + more


def _check_home(name: str, given: Tensor, weight: Tensor) -> None:
    if (weight.dtype, weight.device) != (given.dtype, given.device):
        raise ValueError(
            f"{name} must be {weight.dtype} on {weight.device} as the layer's weights are, but "
            f"are {given.dtype} on {given.device}"
        )


def check_sizes(order: int, in_channels: int, out_channels: int) -> None:
    if min(order, in_channels, out_channels) < 1:
        raise ValueError(
            f"order and channels must be 1 or more, but are order={order}, "
            f"in_channels={in_channels}, out_channels={out_channels}"
        )
