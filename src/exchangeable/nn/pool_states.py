"""The states of all pools of a layer as one object: write, accumulate, merge, extend.

A layer pools by several groupings of the cells, and on each by one ``Pool`` or more: its
``poolings``. Its cells write the ``PoolStates``, one state for each of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.grid import AnyCells
from exchangeable.arrays.groups import Diagonal, GroupIndex, Grouping, Groups, axes_of
from exchangeable.arrays.support import Support
from exchangeable.nn import pooling
from exchangeable.nn.member_features import FeaturePool
from exchangeable.nn.pooling import State
from exchangeable.nn.pools import AttentionPool, CountPool, Pool, SumPool
from exchangeable.nn.segments import has_kernels

Poolings = Mapping[Grouping, Sequence[Pool]]


class PoolStates(NamedTuple):
    """What a layer keeps of the observed cells: for each grouping, a state per pool."""

    states: Mapping[Grouping, tuple[State, ...]]
    dropout_mask: Tensor | None = None
    """A factor per channel, (O,), 0 where it is dropped: the same for all cells, queries too."""


def write(
    poolings: Poolings, values: Tensor, cells: AnyCells, features: FeatureTensors | None = None
) -> tuple[Tensor, PoolStates]:
    """Return the values of cells, (E, K), and their pools; see ``Layer.pool_cells``."""
    of_features = {
        axes: pools[-1] for axes, pools in poolings.items() if isinstance(pools[-1], FeaturePool)
    }
    if not of_features:
        return _write_values(poolings, values, cells)
    of_values = {axes: pools[:-1] for axes, pools in poolings.items()}
    values, pools = _write_values(of_values, values, cells)
    states = {
        axes: (*state, of_features[axes].write_features(features, values, cells, axes))
        for axes, state in pools.states.items()
    }
    return values, pools._replace(states=states)


def _write_values(poolings: Poolings, values: Tensor, cells: AnyCells) -> tuple[Tensor, PoolStates]:
    if isinstance(cells, Support) and values.is_cuda and _can_fuse(poolings, values):
        return _write_fused(poolings, values, cells)
    scores = _scores(poolings, values)

    def state(pool: Pool, axes: Grouping) -> State:
        if isinstance(pool, AttentionPool):
            return pool.write_scored(values, scores[pool], cells.groups(axes))
        return pool.write(values, cells.groups(axes))

    states = {axes: tuple(state(p, axes) for p in pools) for axes, pools in poolings.items()}
    return values, PoolStates(states)


def _scores(poolings: Poolings, values: Tensor) -> dict[AttentionPool, Tensor]:
    """Return the scores of attention pools, (E, H) each: one product is faster than many."""
    attending = [p for pools in poolings.values() for p in pools if isinstance(p, AttentionPool)]
    if not attending:
        return {}
    weights: list[Tensor] = [pool.scores for pool in attending]
    scores = (values @ torch.cat(weights, dim=1)).split([w.shape[1] for w in weights], dim=-1)
    return dict(zip(attending, scores, strict=True))


def _can_fuse(poolings: Poolings, values: Tensor) -> bool:
    """Whether kernels compute several pools in one pass over the cells."""
    if any(isinstance(grouping, Diagonal) for grouping in poolings):  # other cells write there
        return False
    scores = [_attention_scores(pools) for pools in poolings.values()]
    if not has_kernels(values, heads=max((s.shape[1] for s in scores if s is not None), default=1)):
        return False
    # Attention on all axes or on none, and some pool that is more than a count.
    is_uniform = len({s is None for s in scores}) == 1
    all_pools = [pool for pools in poolings.values() for pool in pools]
    return is_uniform and any(isinstance(pool, SumPool | AttentionPool) for pool in all_pools)


def _attention_scores(pools: Sequence[Pool]) -> Tensor | None:
    return next((pool.scores for pool in pools if isinstance(pool, AttentionPool)), None)


def _write_fused(poolings: Poolings, values: Tensor, cells: Support) -> tuple[Tensor, PoolStates]:
    from exchangeable import kernels

    groups = {axes: cells.groups(axes) for axes in poolings}
    runs = [each.runs for each in groups.values()]
    scores = [_attention_scores(pools) for pools in poolings.values()]
    weights = [weight for weight in scores if weight is not None]
    if weights:
        values, all_pooled = kernels.pool_all(values, weights, runs, cells.writers)
        sums: list[tuple[Tensor, ...]] = [tuple(pooled) for pooled in all_pooled]
    else:
        values, totals = kernels.sum_all(values, runs, cells.writers)
        sums = [(total,) for total in totals]
    by_axes = dict(zip(poolings, sums, strict=True))

    def state(pool: Pool, axes: Grouping) -> State:
        count = pooling.count_over(values, groups[axes])
        match pool:
            case AttentionPool():
                return (*by_axes[axes][1:], count)
            case CountPool():
                return (count,)
            case SumPool(has_peak=False):
                return by_axes[axes][0], count
        return pool.write(values, groups[axes])

    states = {axes: tuple(state(p, axes) for p in pools) for axes, pools in poolings.items()}
    return values, PoolStates(states)


def accumulate(poolings: Poolings, total: PoolStates, part: PoolStates, cells: Support) -> None:
    """Add the pools of some more cells to ``total``, in place."""
    for axes, pools in poolings.items():
        for pool, old, new in zip(pools, total.states[axes], part.states[axes], strict=True):
            local = tuple(_local(rows, cells.groups(axes)) for rows in old)
            if pool.has_peak:
                peak = torch.maximum(local[0], new[0])
                aligned, new = pool.align(local, peak), pool.align(new, peak)
                local[0].copy_(peak)
                for target, x, y in zip(local[1:], aligned[1:], new[1:], strict=True):
                    torch.add(x, y, out=target)
            else:
                for target, y in zip(local, new, strict=True):
                    target.add_(y)


def align(poolings: Poolings, part: PoolStates, total: PoolStates, cells: Support) -> PoolStates:
    """Turn the pools of some cells into their share of the total: shares add up to it."""

    def share(pool: Pool, axes: Grouping, slot: int) -> State:
        state = part.states[axes][slot]
        if not pool.has_peak:
            return state
        return pool.align(state, _local(total.states[axes][slot][0], cells.groups(axes)))

    return _for_each_pool(poolings, share, part.dropout_mask)


def sums(poolings: Poolings, pools: PoolStates) -> list[Tensor]:
    """Return all parts that are sums over cells, in a fixed sequence."""
    return [
        part
        for axes, each in poolings.items()
        for pool, state in zip(each, pools.states[axes], strict=True)
        for part in state[pool.has_peak :]
    ]


def with_sums(poolings: Poolings, pools: PoolStates, new_sums: Sequence[Tensor]) -> PoolStates:
    """Return the same pools with other sums, in the sequence of ``sums``."""
    parts = iter(new_sums)

    def fill(pool: Pool, axes: Grouping, slot: int) -> State:
        state = pools.states[axes][slot]
        return (*state[: pool.has_peak], *[next(parts) for _ in state[pool.has_peak :]])

    return _for_each_pool(poolings, fill, pools.dropout_mask)


def peaks(poolings: Poolings, pools: PoolStates) -> list[Tensor]:
    """Return the peaks of all states that have one."""
    return [
        state[0]
        for axes, each in poolings.items()
        for pool, state in zip(each, pools.states[axes], strict=True)
        if pool.has_peak
    ]


def raise_peaks(poolings: Poolings, pools: PoolStates, new_peaks: Sequence[Tensor]) -> PoolStates:
    """Align the pools to other peaks, in the sequence of ``peaks``."""
    higher = iter(new_peaks)

    def lift(pool: Pool, axes: Grouping, slot: int) -> State:
        state = pools.states[axes][slot]
        return pool.align(state, next(higher)) if pool.has_peak else state

    return _for_each_pool(poolings, lift, pools.dropout_mask)


def slice_groups(poolings: Poolings, tensors: Sequence[Tensor], cells: Support) -> list[Tensor]:
    """Take the groups that some cells meet from tensors in the sequence of ``sums``."""
    groups_of_sums = [
        cells.groups(axes)
        for axes, pools in poolings.items()
        for pool in pools
        for _ in pool.neutral[pool.has_peak :]
    ]
    return [_local(rows, groups) for rows, groups in zip(tensors, groups_of_sums, strict=True)]


def empty(poolings: Poolings, like: PoolStates, group_index: GroupIndex) -> PoolStates:
    """Make pools without any cell, with the groups of ``group_index``."""
    return _for_each_pool(
        poolings,
        lambda pool, axes, slot: _empty_state(
            pool, like.states[axes][slot], group_index.number(axes)
        ),
        like.dropout_mask,
    )


def extended(
    poolings: Poolings,
    pools: PoolStates,
    part: PoolStates,
    groups: Mapping[Grouping, Tensor],
    indexes: tuple[GroupIndex, GroupIndex],
) -> tuple[PoolStates, PoolStates]:
    """Merge the pools of some new cells, in the given ``groups``, with those of all others.

    ``indexes`` number the groups before and after. Return the pools of all groups, and those of the
    given ones alone.
    """
    merged: dict[Grouping, list[State]] = {axes: [] for axes in poolings}

    def extend_state(pool: Pool, axes: Grouping, slot: int) -> State:
        state = zip(pools.states[axes][slot], pool.neutral, strict=True)
        grown = tuple(grown_rows(rows, axes, indexes, neutral) for rows, neutral in state)
        old = tuple(rows[groups[axes]] for rows in grown)
        align = pool.align if pool.has_peak else None
        merged[axes].append(pooling.merge(old, part.states[axes][slot], align))
        for rows, fresh in zip(grown, merged[axes][-1], strict=True):
            rows.index_copy_(0, groups[axes], fresh)
        return grown

    every = _for_each_pool(poolings, extend_state, pools.dropout_mask)
    local = {axes: tuple(states) for axes, states in merged.items()}
    return every, PoolStates(local, pools.dropout_mask)


def grown_rows(
    rows: Tensor, axes: Grouping, indexes: tuple[GroupIndex, GroupIndex], value: float
) -> Tensor:
    """Return a copy of the rows of groups on ``axes``, numbered by a larger index.

    Groups that are new get rows of a value. Rows may have one more at their end, the empty group of
    pairs, which stays behind.
    """
    before, after = indexes
    size = after.number(axes)
    if len(axes_of(axes)) < 2:  # new groups come last
        return torch.cat([rows, rows.new_full((size - len(rows), *rows.shape[1:]), value)])
    positions = before.positions_in(after, axes).to(rows.device)
    larger = rows.new_full((size, *rows.shape[1:]), value)
    return larger.index_copy_(0, positions, rows[: len(positions)])


def _for_each_pool(
    poolings: Poolings, make: Callable[[Pool, Grouping, int], State], dropout_mask: Tensor | None
) -> PoolStates:
    """Make pools with a state for every pool."""
    return PoolStates(
        {
            axes: tuple(make(pool, axes, slot) for slot, pool in enumerate(pools))
            for axes, pools in poolings.items()
        },
        dropout_mask,
    )


def _empty_state(pool: Pool, like: State, groups: int) -> State:
    parts = zip(like, pool.neutral, strict=True)
    return tuple(part.new_full((groups, *part.shape[1:]), neutral) for part, neutral in parts)


def _local(rows: Tensor, groups: object) -> Tensor:
    """Return the rows of the groups that some cells meet."""
    assert isinstance(groups, Groups)
    return rows[groups.start : groups.start + groups.number]
