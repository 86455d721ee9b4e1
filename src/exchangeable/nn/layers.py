"""Equivariant layers: observed cells write to pools, and every cell reads its own.

A layer has two halves. ``write`` pools the observed cells; ``read`` gives any cell, observed
or queried, its new values from its own and from the ``readout`` of the pools it belongs to.
Called on an array a layer does both: array in, array on the same cells out. Called on a
plain tensor of shape (N_1, ..., N_D, K) it does the same for a full grid, without building an
index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Generator, Tensor, nn

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.grid import AnyCells, AnyGroups, Grid
from exchangeable.arrays.groups import Axes, proper_subsets
from exchangeable.nn import pool_states
from exchangeable.nn.combine import PLAIN, Epilogue, add_in_place, combine
from exchangeable.nn.pool_states import Poolings, PoolStates
from exchangeable.nn.pools import GroupReadout, Modules, PooledTerm, Pooling, rows_fused, uniform
from exchangeable.runtime.cache import cached_property

ArrayOrTensor = TypeVar("ArrayOrTensor", ExchangeableArray, Tensor)


class HasDropoutMask(Protocol):
    """Pools or a readout that carry the dropout mask of a layer."""

    @property
    def dropout_mask(self) -> Tensor | None: ...

    def _replace(self, *, dropout_mask: Tensor | None) -> Self: ...


P = TypeVar("P", bound=HasDropoutMask)
R = TypeVar("R", bound=HasDropoutMask)


class LayerReadout(NamedTuple):
    """What cells read from the pools of a layer: for each subset of the axes, a row per group."""

    on: Mapping[Axes, GroupReadout]
    dropout_mask: Tensor | None = None


class Layer(nn.Module, Generic[P, R]):
    """The interface of layers: ``write`` pools P, and ``read`` their readout R."""

    order: int
    in_channels: int
    out_channels: int

    @property
    def poolings(self) -> Poolings:
        """The subsets of the axes that the layer pools by, with the pools on each."""
        raise NotImplementedError(f"pools of {type(self).__name__} cannot be merged or extended")

    def pool_cells(self, values: Tensor, cells: AnyCells) -> tuple[Tensor, P]:
        """Return the values of ``cells``, (E, K), as they came, and their pools.

        Use the returned values from here on: their gradient is then added where that of the
        pools is computed, which saves passes over the cells.
        """
        raise NotImplementedError

    def draw_dropout(self, like: Tensor, generator: Generator | None) -> Tensor | None:
        """In training, draw a factor for each output channel, 0 where it is dropped."""
        return None

    def write(self, values: Tensor, cells: AnyCells, generator: Generator | None = None) -> P:
        """Pool the observed ``cells``, and draw which channels all cells will lose."""
        _, pools = self.pool_cells(values, cells)
        return pools._replace(dropout_mask=self.draw_dropout(values, generator))

    def readout(self, pools: P, features: FeatureTensors | None = None) -> R:
        """Compute what cells read, once per table, for any number of cells."""
        raise NotImplementedError

    def read(
        self, values: Tensor, cells: AnyCells, readout: R, epilogue: Epilogue = PLAIN
    ) -> Tensor:
        """Return new values of any ``cells``, from their own and the readout: (Q, K) -> (Q, O)."""
        raise NotImplementedError

    def forward(
        self,
        x: ArrayOrTensor,
        features: FeatureTensors | None = None,
        generator: Generator | None = None,
    ) -> ArrayOrTensor:
        values, cells = (x, grid_of(x)) if isinstance(x, Tensor) else (x.values, x.support)
        self.check(values, cells)
        self.check_features(features, cells.shape)
        if isinstance(x, Tensor) and not x.isfinite().all():
            first = tuple((~x.isfinite()).any(dim=-1).nonzero()[0].tolist())
            raise ValueError(f"values must be finite, but cell {first} holds {x[first].tolist()}")
        readout = self.readout(self.write(values, cells, generator), features)
        y = self.read(values, cells, readout)
        return y if isinstance(x, Tensor) else x.unchecked(x.support, y)

    def check(self, values: Tensor, cells: AnyCells) -> None:
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
        _check_like_weights("values", values, next(self.parameters(), values))

    def check_features(self, features: FeatureTensors | None, shape: tuple[int, ...]) -> None:
        """Raise unless the layer takes these features of an array of ``shape``."""
        if features is not None and any(part is not None for part in features):
            raise ValueError("the layer was made without features, but some came")


def grid_of(dense: Tensor) -> Grid:
    """Return the cells of a full tensor (N_1, ..., N_D, K)."""
    return Grid(tuple(dense.shape[:-1]), dense.device)


class ExchangeableLinear(Layer[PoolStates, LayerReadout]):
    """The most expressive linear map that commutes with permuting each axis (Theorem 5.1).

    There is a weight matrix for every subset S of the axes, applied to the pool of the
    observed cells that agree with the output cell on S:

        y = b + x @ W  +  sum over proper subsets S of  unpool_S(pool_S(x) @ W_S)

    With mean pooling and a matrix these are the terms of equation (4): the cell itself
    (``own``), the whole matrix, its row and its column (``terms`` in the sequence of ``axes``:
    (), (0,), (1,)). The equations of the paper number their weights; ours are named by S.

    Beyond the paper: several poolings side by side, the size of each group as two more
    channels (``counts``), and ``features`` of the members of each axis (their number per
    axis), which enter as unpool(features @ U). Broadcasting them over the array, as the
    paper has it, gives the cell's own term of the same; pools of them come a layer later.
    Without ``pools`` a cell's own term is the only one.

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
        pools: bool = True,
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
        self.axes = proper_subsets(order) if pools else ()
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

    def zero_weights(self) -> None:
        """Set the weights to zero, so that the layer outputs its bias until it is trained."""
        pooled = [weight for term in self.terms for weight in term.weights]
        for weight in [self.own, *pooled, *self.features]:
            nn.init.zeros_(weight)

    @cached_property
    def poolings(self) -> Poolings:
        return {axes: tuple(term.pools) for axes, term in zip(self.axes, self.terms, strict=True)}

    def pool_cells(self, values: Tensor, cells: AnyCells) -> tuple[Tensor, PoolStates]:
        return pool_states.write(self.poolings, values, cells)

    def readout(self, pools: PoolStates, features: FeatureTensors | None = None) -> LayerReadout:
        on = {}
        # A readout may be of some axes only.
        by_axes = zip(self.axes, self.terms, strict=True)
        terms = {axes: term for axes, term in by_axes if axes in pools.states}
        states = [pools.states[axes] for axes in terms]
        fused: Sequence[Tensor | None] | None = rows_fused(list(terms.values()), states)
        fused = fused or [None] * len(terms)
        for (axes, term), together in zip(terms.items(), fused, strict=True):
            rows, per_cell = term.readout(pools.states[axes], self.own.dtype, together)
            members = features[axes[0]] if features is not None and len(axes) == 1 else None
            if members is not None:
                more = members @ self.features[axes[0]]
                # A grid has its groups in as many dimensions as axes.
                more = more.reshape(*pools.states[axes][0][-1].shape[:-1], -1)
                rows = more if rows is None else rows + more
            on[axes] = GroupReadout(rows, per_cell)
        return LayerReadout(on, pools.dropout_mask)

    def read(
        self, values: Tensor, cells: AnyCells, readout: LayerReadout, epilogue: Epilogue = PLAIN
    ) -> Tensor:
        constant: Tensor | None = self.bias
        rows: list[tuple[Tensor, AnyGroups]] = []
        extra: Tensor | None = None
        for axes, term in zip(self.axes, self.terms, strict=True):
            groups, group_readout = cells.groups(axes), readout.on[axes]
            if group_readout.rows is not None:
                if axes:
                    rows.append((group_readout.rows, groups))
                else:
                    shared = group_readout.rows.flatten()
                    constant = shared if constant is None else constant + shared
            more = term.read_per_cell(group_readout, values, groups)
            if more is not None:
                extra = more if extra is None else add_in_place(extra, more)
        return combine(values, self.own, constant, rows, extra, epilogue)

    def check_features(self, features: FeatureTensors | None, shape: tuple[int, ...]) -> None:
        members = (None,) * self.order if features is None else features
        sizes = [weight.shape[0] for weight in self.features] or [0] * self.order
        expected = [(n, size) if size else None for n, size in zip(shape, sizes, strict=True)]
        shapes = [tuple(f.shape) if isinstance(f, Tensor) else f for f in members]
        if isinstance(members, Tensor) or shapes != expected:
            raise ValueError(
                f"features must have shapes {expected}, one per axis, but have {shapes}"
            )
        for axis, f in enumerate(members):
            if f is None:
                continue
            _check_like_weights(f"features of axis {axis}", f, self.own)
            if not f.isfinite().all():
                member = int((~f.isfinite()).nonzero()[0, 0])
                raise ValueError(
                    f"features must be finite, but member {member} of axis {axis} has "
                    f"{f[member].tolist()}"
                )


def _check_like_weights(name: str, tensor: Tensor, weight: Tensor) -> None:
    if (weight.dtype, weight.device) != (tensor.dtype, tensor.device):
        raise ValueError(
            f"{name} must be {weight.dtype} on {weight.device} as the layer's weights are, but "
            f"are {tensor.dtype} on {tensor.device}"
        )


def check_sizes(order: int, in_channels: int, out_channels: int) -> None:
    if min(order, in_channels, out_channels) < 1:
        raise ValueError(
            f"order and channels must be 1 or more, but are order={order}, "
            f"in_channels={in_channels}, out_channels={out_channels}"
        )
