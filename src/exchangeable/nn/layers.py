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
from exchangeable.arrays.groups import PAIR, Diagonal, Grouping, proper_subsets
from exchangeable.arrays.support import Support
from exchangeable.nn import pool_states
from exchangeable.nn.combine import PLAIN, Epilogue, add_in_place, combine
from exchangeable.nn.member_features import (
    FeaturePool,
    check_like_weights,
    check_member_features,
)
from exchangeable.nn.pool_states import Poolings, PoolStates
from exchangeable.nn.pooling import unpool
from exchangeable.nn.pools import GroupReadout, Modules, PooledTerm, Pooling, rows_fused, uniform
from exchangeable.runtime.cache import cached_property

ArrayOrTensor = TypeVar("ArrayOrTensor", ExchangeableArray, Tensor)


Reads = Mapping[Grouping, tuple[Grouping, ...]]
"""For each grouping in which cells read, the groupings whose pools they read there."""
SINGLE_CELLS: tuple[Grouping, ...] = (PAIR, Diagonal((0,)))
"""Groupings of a joint matrix whose groups have one cell at most."""


class HasDropoutMask(Protocol):
    """Pools or a readout that carry the dropout mask of a layer."""

    @property
    def dropout_mask(self) -> Tensor | None: ...

    def _replace(self, *, dropout_mask: Tensor | None) -> Self: ...


P = TypeVar("P", bound=HasDropoutMask)
R = TypeVar("R", bound=HasDropoutMask)


class LayerReadout(NamedTuple):
    """What cells read from the pools of a layer: for each grouping, a row per group."""

    on: Mapping[Grouping, GroupReadout]
    dropout_mask: Tensor | None = None


class Layer(nn.Module, Generic[P, R]):
    """The interface of layers: ``write`` pools P, and ``read`` their readout R."""

    order: int
    in_channels: int
    out_channels: int
    joint = False
    """Whether rows and columns are one set, as in a graph."""

    @property
    def poolings(self) -> Poolings:
        """The groupings that the layer pools by, with the pools on each."""
        raise NotImplementedError(f"pools of {type(self).__name__} cannot be merged or extended")

    def pool_cells(
        self, values: Tensor, cells: AnyCells, features: FeatureTensors | None = None
    ) -> tuple[Tensor, P]:
        """Return the values of ``cells``, (E, K), as they came, and their pools.

        Use the returned values from here on: their gradient is then added where that of the
        pools is computed, which saves passes over the cells.
        """
        raise NotImplementedError

    def draw_dropout(self, like: Tensor, generator: Generator | None) -> Tensor | None:
        """In training, draw a factor for each output channel, 0 where it is dropped."""
        return None

    def write(
        self,
        values: Tensor,
        cells: AnyCells,
        generator: Generator | None = None,
        features: FeatureTensors | None = None,
    ) -> P:
        """Pool the observed ``cells``, and draw which channels all cells will lose."""
        _, pools = self.pool_cells(values, cells, features)
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
        values: Tensor = x if isinstance(x, Tensor) else x.values
        cells: AnyCells = grid_of(x) if isinstance(x, Tensor) else x.support
        self.check(values, cells)
        self.check_features(features, cells.shape)
        if isinstance(x, Tensor) and not x.isfinite().all():
            first = tuple((~x.isfinite()).any(dim=-1).nonzero()[0].tolist())
            raise ValueError(f"values must be finite, but cell {first} holds {x[first].tolist()}")
        if self.joint:  # its pairs and its diagonal are of listed cells
            values, cells = values.reshape(-1, values.shape[-1]), cells.joint
        readout = self.readout(self.write(values, cells, generator, features), features)
        y = self.read(values, cells, readout)
        if isinstance(x, Tensor):
            return y.reshape(*x.shape[:-1], y.shape[-1])
        return x.unchecked(x.support, y)

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
        if self.joint and len(set(cells.shape)) > 1:
            raise ValueError(
                f"a jointly exchangeable matrix has as many rows as columns, but this one has "
                f"shape {cells.shape}"
            )
        check_like_weights("values", values, next(self.parameters(), values))

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
    axis), which enter as unpool(features @ U). The paper broadcasts features over the array:
    that is the cell's own term, and with ``pools_features`` each pool reads their mean, too.
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
        pools_features: bool = False,
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
        self.reads = self.choose_reads() if pools else {}
        maps = sum(len(pooled) for pooled in self.reads.values())
        pooled = sum(features) if pools_features else 0
        fan_in = in_channels * (1 + maps * len(pooling)) + sum(features) + maps * pooled
        self.own = uniform((in_channels, out_channels), fan_in, generator)
        self.terms = Modules[PooledTerm](
            PooledTerm(
                in_channels,
                out_channels * len(self.readers(grouping)),
                # A group of one cell is the same by any pooling.
                ("mean",) if grouping in SINGLE_CELLS else pooling,
                counts=counts,
                heads=heads,
                rank=rank,
                fan_in=fan_in,
                generator=generator,
                further=[FeaturePool(features)] if pooled else [],
            )
            for grouping in self.axes
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

    def choose_reads(self) -> Reads:
        """Choose what the layer pools by, and which cells read it."""
        return {axes: (axes,) for axes in proper_subsets(self.order)}

    @cached_property
    def axes(self) -> tuple[Grouping, ...]:
        """The groupings that the layer pools by."""
        return tuple(dict.fromkeys(one for pooled in self.reads.values() for one in pooled))

    def readers(self, grouping: Grouping) -> list[Grouping]:
        """Return the groupings in which cells read the pools of one."""
        return [reader for reader, pooled in self.reads.items() if grouping in pooled]

    @cached_property
    def terms_of(self) -> Mapping[Grouping, PooledTerm]:
        """The term of each grouping that the layer pools by."""
        return dict(zip(self.axes, self.terms, strict=True))

    @cached_property
    def poolings(self) -> Poolings:
        return {grouping: tuple(term.pools) for grouping, term in self.terms_of.items()}

    def pool_cells(
        self, values: Tensor, cells: AnyCells, features: FeatureTensors | None = None
    ) -> tuple[Tensor, PoolStates]:
        return pool_states.write(self.poolings, values, cells, features)

    def readout(self, pools: PoolStates, features: FeatureTensors | None = None) -> LayerReadout:
        # A readout may be of some groupings only.
        terms = {axes: term for axes, term in self.terms_of.items() if axes in pools.states}
        states = [pools.states[axes] for axes in terms]
        fused: Sequence[Tensor | None] | None = None
        if not self.joint:  # whose terms are of different widths
            fused = rows_fused(list(terms.values()), states)
        fused = fused or [None] * len(terms)
        on: dict[Grouping, GroupReadout] = {}
        for (axes, term), together in zip(terms.items(), fused, strict=True):
            rows, per_cell = term.readout(pools.states[axes], self.own.dtype, together)
            readers = self.readers(axes)
            parts = [None] * len(readers) if rows is None else rows.chunk(len(readers), dim=-1)
            for reader, part in zip(readers, parts, strict=True):
                on[reader] = GroupReadout(_sum(on, reader, part), per_cell)
        for axis, members in enumerate(features or ()):
            if members is not None and (axis,) in on:
                more = members @ self.features[axis]
                # A grid has its groups in as many dimensions as axes.
                more = more.reshape(*pools.states[(axis,)][0][-1].shape[:-1], -1)
                on[axis,] = on[axis,]._replace(rows=_sum(on, (axis,), more))
        return LayerReadout(on, pools.dropout_mask)

    def read_groups(self, cells: AnyCells, reader: Grouping) -> AnyGroups:
        """Return the groups that each cell reads."""
        return cells.groups(reader)

    def read(
        self, values: Tensor, cells: AnyCells, readout: LayerReadout, epilogue: Epilogue = PLAIN
    ) -> Tensor:
        constant: Tensor | None = self.bias
        rows: list[tuple[Tensor, AnyGroups]] = []
        extra: Tensor | None = None
        for axes in self.reads:
            group_readout = readout.on[axes]
            if isinstance(axes, Diagonal):
                more = _read_diagonal(cells, group_readout, axes)
            else:
                groups = self.read_groups(cells, axes)
                if group_readout.rows is not None:
                    if axes:
                        rows.append((group_readout.rows, groups))
                    else:
                        shared = group_readout.rows.flatten()
                        constant = shared if constant is None else constant + shared
                more = self.terms_of[axes].read_per_cell(group_readout, values, groups)
            if more is not None:
                extra = more if extra is None else add_in_place(extra, more)
        return combine(values, self.own, constant, rows, extra, epilogue)

    def check_features(self, features: FeatureTensors | None, shape: tuple[int, ...]) -> None:
        sizes = [weight.shape[0] for weight in self.features] or [0] * self.order
        check_member_features(features, sizes, shape, self.own)


def _sum(
    on: Mapping[Grouping, GroupReadout], reader: Grouping, more: Tensor | None
) -> Tensor | None:
    """Add rows to those that cells read in a grouping already."""
    rows = on[reader].rows if reader in on else None
    return more if rows is None else rows if more is None else rows + more


def _read_diagonal(cells: AnyCells, readout: GroupReadout, grouping: Diagonal) -> Tensor | None:
    """Give the cells on the diagonal their group's row, and others zeros: (E, O)."""
    if not isinstance(cells, Support) or readout.rows is None or not cells.meets_diagonal:
        return None
    rows = unpool(readout.rows, cells.groups(grouping.axes))
    return rows * cells.on_diagonal.unsqueeze(1).to(rows.dtype)


def check_sizes(order: int, in_channels: int, out_channels: int) -> None:
    if min(order, in_channels, out_channels) < 1:
        raise ValueError(
            f"order and channels must be 1 or more, but are order={order}, "
            f"in_channels={in_channels}, out_channels={out_channels}"
        )
