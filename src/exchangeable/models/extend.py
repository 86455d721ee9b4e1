"""A memory that grows: which groups new cells meet, and what is known and offered then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.groups import Axes, GroupIndex
from exchangeable.nn.layers import Layer, LayerReadout
from exchangeable.nn.pools import Modules, Summaries


def all_axes(layers: Modules[Layer[Any, Any]]) -> list[Axes]:
    """Every subset of the axes by which one of the layers pools."""
    return list(dict.fromkeys(axes for layer in layers for axes in layer.poolings))


def touched_by(index: Tensor, axes: Axes, old: GroupIndex, new: GroupIndex) -> Tensor:
    """The groups that cells meet, or that were not there before, ascending: (T,)."""
    ids = new.groups(index, axes).ids
    added = ids[:0]
    if len(axes) == 1:
        added = torch.arange(old.number(axes), new.number(axes), device=ids.device)
    elif not axes:
        added = ids.new_zeros(1)
    else:  # new pairs are met by definition; the empty one has moved
        added = ids.new_tensor([new.number(axes) - 1])
    return torch.cat([ids, added]).unique()


def members_of(features: FeatureTensors, touched: Mapping[Axes, Tensor]) -> FeatureTensors:
    """The features of those members who are met."""
    return tuple(None if f is None else f[touched[(axis,)]] for axis, f in enumerate(features))


def patched(
    known: LayerReadout,
    more: LayerReadout,
    touched: Mapping[Axes, Tensor],
    old: GroupIndex,
    new: GroupIndex,
) -> LayerReadout:
    """What was offered, among the groups of a larger directory, with some rows replaced."""

    def patch(rows: Tensor, fresh: Tensor, axes: Axes) -> Tensor:
        number, met = new.number(axes), touched[axes]
        if len(met) == number:
            return fresh
        if len(rows) == number and (len(axes) < 2 or old.number(axes) == number):
            return rows.index_copy(0, met, fresh)
        places = old.positions_in(new, axes).to(rows.device)
        spacious = rows.new_zeros(number, *rows.shape[1:])
        spacious = spacious.index_copy(0, places, rows[: len(places)])
        return spacious.index_copy(0, met, fresh)

    on = {}
    for axes, (rows, by_cell) in known.on.items():
        fresh = more.on[axes]
        on[axes] = Summaries(
            None if rows is None or fresh.rows is None else patch(rows, fresh.rows, axes),
            tuple(patch(a, b, axes) for a, b in zip(by_cell, fresh.by_cell, strict=True)),
        )
    return LayerReadout(on, known.kept)


def all_features(
    known: FeatureTensors | None, added: FeatureTensors | None, order: int
) -> FeatureTensors | None:
    """The features of all members, known ones first."""
    nothing = (None,) * order
    if added is not None and len(added) != order:
        raise ValueError(
            f"features must be given for each of {order} axes, but came for {len(added)}"
        )
    if known is None and added is None:
        return None
    pairs = zip(known or nothing, added or nothing, strict=True)
    return tuple(_stacked(old, new) for old, new in pairs)


def _stacked(known: Tensor | None, new: Tensor | None) -> Tensor | None:
    parts = [part for part in (known, new) if part is not None]
    return torch.cat(parts) if parts else None
