"""New cells in a memory: only the groups that they meet are computed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.groups import Diagonal, GroupIndex, Grouping, axes_of
from exchangeable.arrays.support import Support
from exchangeable.models.stream import features_at
from exchangeable.nn import pool_states
from exchangeable.nn.layers import Layer, LayerReadout
from exchangeable.nn.pool_states import PoolStates
from exchangeable.nn.pools import GroupReadout

Layers = Sequence[Layer[Any, Any]]


def extend_pools(
    layers: Layers,
    pools: Sequence[PoolStates],
    readouts: Sequence[LayerReadout],
    old: GroupIndex,
    cells: Support,
    values: Tensor,
    features: FeatureTensors | None,
) -> tuple[tuple[PoolStates, ...], tuple[LayerReadout, ...]]:
    """Add new cells to the pools of all layers; return the pools and readouts of all groups.

    ``cells`` are numbered by the new group index and enter the first layer as ``values``; ``old``
    numbers the groups of ``pools`` and ``readouts``. ``features`` are those of all members.
    """
    indexes = old, cells.group_index
    groupings = dict.fromkeys(one for layer in layers for one in layer.poolings)
    touched = {one: _touched_groups(cells, one, *indexes) for one in groupings}
    local = cells.restricted_to({a: t for a, t in touched.items() if not isinstance(a, Diagonal)})
    touched_features = None if features is None else _take_features(features, touched)
    new_pools, new_readouts = [], []
    for level, (layer, before, readout) in enumerate(zip(layers, pools, readouts, strict=True)):
        own_features = features_at(level, touched_features)
        written = layer.pool_cells(values, local, own_features)[1]
        every, merged = pool_states.extended(layer.poolings, before, written, touched, indexes)
        local_readout = layer.readout(merged, own_features)
        if level < len(layers) - 1:
            values = layer.read(values, local, local_readout)
        new_pools.append(every)
        new_readouts.append(_patch_readout(readout, local_readout, touched, indexes))
    return tuple(new_pools), tuple(new_readouts)


def read_new_members(
    layers: Layers,
    readouts: Sequence[LayerReadout],
    axis: int,
    cells: Support,
    values: Tensor,
    features: FeatureTensors | None,
) -> tuple[LayerReadout, ...]:
    """Return readouts with the groups of new members of ``axis`` in place of all others of it.

    The readouts of groups on other axes stay as they are, so new members do not see one another.
    """
    new_readouts = []
    for level, (layer, readout) in enumerate(zip(layers, readouts, strict=True)):
        poolings = {axes: pools for axes, pools in layer.poolings.items() if axis in axes_of(axes)}
        own_features = features_at(level, features)
        _, pools = pool_states.write(poolings, values, cells, own_features)
        fresh = layer.readout(pools, own_features)
        new_readouts.append(readout._replace(on={**readout.on, **fresh.on}))
        if level < len(layers) - 1:
            values = layer.read(values, cells, new_readouts[-1])
    return tuple(new_readouts)


def new_members_group_index(old: GroupIndex, axis: int, cells: Support) -> GroupIndex:
    """Number the groups of a table with new members of ``axis``, from their cells.

    Combinations of other axes are those of ``old``.
    """
    empty = old.with_new_members(axis, cells.shape[axis])
    filled = empty.extended(cells.index, cells.shape)
    keys = {axes: (filled if axis in axes else empty).keys[axes] for axes in empty.keys}
    return GroupIndex(empty.shape, keys)


def append_features(
    old: FeatureTensors | None, new: FeatureTensors | None, order: int
) -> FeatureTensors | None:
    """Return the features of all members, those of new ones after the old."""
    if new is not None and len(new) != order:
        raise ValueError(
            f"features must be given for each of {order} axes, but came for {len(new)}"
        )
    if old is None and new is None:
        return None
    nothing = (None,) * order
    return tuple(_append(*pair) for pair in zip(old or nothing, new or nothing, strict=True))


def _append(old: Tensor | None, new: Tensor | None) -> Tensor | None:
    parts = [part for part in (old, new) if part is not None]
    return torch.cat(parts) if parts else None


def replace_features(
    features: FeatureTensors | None, axis: int, new: FeatureTensors | None
) -> FeatureTensors | None:
    """Return the features with those of ``axis`` replaced by new members'."""
    if features is None:
        return None
    added = new or (None,) * len(features)
    return tuple(added[a] if a == axis and f is not None else f for a, f in enumerate(features))


def _touched_groups(cells: Support, grouping: Grouping, old: GroupIndex, new: GroupIndex) -> Tensor:
    """Return the groups that cells meet, or that were not there before, ascending: (T,)."""
    axes = axes_of(grouping)
    index = cells.index
    if new.joint:  # a cell reads the row and the column of both of its members
        index = torch.cat([index, cells.mirrored.index])
    ids = new.groups(index, axes).ids
    added = ids[:0]
    if len(axes) == 1:
        added = torch.arange(old.number(axes), new.number(axes), device=ids.device)
    elif not axes:
        added = ids.new_zeros(1)
    else:  # new pairs are met by definition; the empty one has moved
        added = ids.new_tensor([new.number(axes) - 1])
    return torch.cat([ids, added]).unique()


def _take_features(features: FeatureTensors, touched: Mapping[Grouping, Tensor]) -> FeatureTensors:
    """Return the features of the members that new cells meet."""
    return tuple(None if f is None else f[touched[(axis,)]] for axis, f in enumerate(features))


def _patch_readout(
    readout: LayerReadout,
    local: LayerReadout,
    touched: Mapping[Grouping, Tensor],
    indexes: tuple[GroupIndex, GroupIndex],
) -> LayerReadout:
    """Renumber the rows of a readout by a larger group index, and replace the touched ones."""

    def patch(rows: Tensor, fresh: Tensor, axes: Grouping) -> Tensor:
        groups = touched[axes]
        if len(groups) == indexes[1].number(axes):
            return fresh
        return pool_states.grown_rows(rows, axes, indexes, 0.0).index_copy_(0, groups, fresh)

    on = {}
    for axes, (rows, per_cell) in readout.on.items():
        fresh = local.on[axes]
        on[axes] = GroupReadout(
            None if rows is None or fresh.rows is None else patch(rows, fresh.rows, axes),
            tuple(patch(a, b, axes) for a, b in zip(per_cell, fresh.per_cell, strict=True)),
        )
    return LayerReadout(on, readout.dropout_mask)
