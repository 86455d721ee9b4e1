"""Members in a memory whose cells have other values: their pools are computed again.

A value cannot be taken out of a pool: what its cell wrote to deeper layers depended on all others,
and a softmax keeps no single terms. So all cells of these members run through the layers again,
and write the members' pools anew; the pools of others stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.groups import PAIR, Diagonal, Grouping, axes_of
from exchangeable.arrays.support import Support
from exchangeable.models.checks import check_memory
from exchangeable.models.prior_channels import PriorFunction
from exchangeable.models.stream import features_at
from exchangeable.nn import pool_states
from exchangeable.nn.layers import Layer, LayerReadout
from exchangeable.nn.pool_states import PoolStates
from exchangeable.nn.pools import GroupReadout

if TYPE_CHECKING:
    from exchangeable.models.memory import Memory, MemoryModel


def rewrite(
    model: MemoryModel,
    memory: Memory,
    observed: ExchangeableArray,
    changed: Tensor,
    *,
    prior: PriorFunction | None = None,
) -> Memory:
    """Compute the pools of members again of which cells have other values than before.

    ``changed`` (C, D) are these cells, and ``observed`` all cells of their members on every axis,
    in an array of the memory's shape. The pools of other members keep what the old values had
    changed in their own cells. ``prior`` takes the place of the memory's.
    """
    check_memory(memory.readouts, model.layers)
    if not memory.pools:
        raise ValueError("the memory was made to be read only: it cannot be rewritten")
    cells = observed.support.indexed_by(memory.group_index)
    values = model.start_cells(observed, cells, memory.features, prior)
    pools, readouts = rewrite_pools(
        list(model.layers),
        memory.pools,
        memory.readouts,
        cells,
        values,
        groups_of_cells(cells, changed),
        memory.features,
    )
    return replace(memory, pools=pools, readouts=readouts, prior=prior)


def groups_of_cells(cells: Support, changed: Tensor) -> dict[Grouping, Tensor]:
    """Return the groups that the changed cells (C, D) meet, by axes, ascending: (T,) each.

    The group of all cells is left out: one of them matters little there, and all would be read.
    """
    if cells.group_index.joint:  # all that is read of a member is in its row and in its column
        members = changed.unique()
        own = torch.isin(cells.index, members).any(dim=1)
        groupings: list[Grouping] = [(0,), (1,), Diagonal((0,))]
        return {**dict.fromkeys(groupings, members), PAIR: cells.groups(PAIR).ids[own].unique()}
    subsets = [*cells.group_index.keys, *((axis,) for axis in range(cells.order))]
    return {axes: cells.group_index.groups(changed, axes).ids.unique() for axes in subsets}


def rewrite_pools(
    layers: Sequence[Layer[Any, Any]],
    pools: Sequence[PoolStates],
    readouts: Sequence[LayerReadout],
    cells: Support,
    values: Tensor,
    touched: Mapping[Grouping, Tensor],
    features: FeatureTensors | None,
) -> tuple[tuple[PoolStates, ...], tuple[LayerReadout, ...]]:
    """Compute the pools of some groups again in all layers; return pools and readouts of all.

    ``cells`` are all of the groups ``touched``, and others; they enter the first layer as
    ``values``. ``features`` are those of all members.
    """
    writers = {axes: _writers(cells, axes, groups) for axes, groups in touched.items()}
    own_features = None
    if features is not None:
        own_features = tuple(
            None if f is None else f[touched[(axis,)]] for axis, f in enumerate(features)
        )
    new_pools, new_readouts = [], []
    for level, (layer, before, readout) in enumerate(zip(layers, pools, readouts, strict=True)):
        every, fresh = dict(before.states), {}
        for axes, (some, local) in writers.items():
            if axes not in layer.poolings:
                continue
            own = {axes: layer.poolings[axes]}
            seen = _features_on(axes, features, own_features)
            written = pool_states.write(own, values[some], local, features_at(level, seen))[1]
            fresh[axes] = written.states[axes]
            every[axes] = tuple(
                tuple(_patched(*pair, touched[axes]) for pair in zip(old, new, strict=True))
                for old, new in zip(before.states[axes], fresh[axes], strict=True)
            )
        local_readout = layer.readout(
            PoolStates(fresh, before.dropout_mask), features_at(level, own_features)
        )
        new_pools.append(PoolStates(every, before.dropout_mask))
        new_readouts.append(_patch_readout(readout, local_readout, touched))
        if level < len(layers) - 1:
            values = layer.read(values, cells, new_readouts[-1])
    return tuple(new_pools), tuple(new_readouts)


def _writers(cells: Support, grouping: Grouping, groups: Tensor) -> tuple[Tensor, Support]:
    """Return the cells of some groups, by position, and these with groups numbered among them."""
    some = torch.isin(cells.groups(grouping).ids, groups).nonzero().squeeze(1)
    return some, cells.take(some).restricted_to({axes_of(grouping): groups})


def _features_on(
    axes: Grouping, features: FeatureTensors | None, own: FeatureTensors | None
) -> FeatureTensors | None:
    """Return the features of cells whose members are numbered anew on the one axis of ``axes``."""
    if features is None or own is None:
        return features
    pairs = enumerate(zip(features, own, strict=True))
    return tuple(few if (axis,) == axes else every for axis, (every, few) in pairs)


def _patched(rows: Tensor, fresh: Tensor, groups: Tensor) -> Tensor:
    """Return a copy of rows of all groups, with others for some of them."""
    return rows.index_copy(0, groups, fresh)


def _patch_readout(
    readout: LayerReadout, local: LayerReadout, touched: Mapping[Grouping, Tensor]
) -> LayerReadout:
    """Replace the rows of the touched groups in a readout of all."""
    on = dict(readout.on)
    for axes, fresh in local.on.items():
        rows, per_cell = readout.on[axes]
        groups = touched[axes]
        on[axes] = GroupReadout(
            None if rows is None or fresh.rows is None else _patched(rows, fresh.rows, groups),
            tuple(_patched(*pair, groups) for pair in zip(per_cell, fresh.per_cell, strict=True)),
        )
    return LayerReadout(on, readout.dropout_mask)
