"""The states of all pools of a layer as one thing: written, joined, grown, summed up in parts.

A layer pools by several subsets of the axes, and on each by one ``Pool`` or more: its
``poolings``. What its cells wrote are the ``Pools``, one state for each of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from exchangeable.arrays.grid import AnyCells
from exchangeable.arrays.groups import Axes, GroupIndex, Groups
from exchangeable.arrays.support import Support
from exchangeable.nn import pooling
from exchangeable.nn.pooling import State
from exchangeable.nn.pools import AttentionPool, CountPool, Pool, SumPool
from exchangeable.nn.segments import fast

Poolings = Mapping[Axes, Sequence[Pool]]


class Pools(NamedTuple):
    """What a layer keeps of the observed cells: for each subset of the axes, a state per pool."""

    states: Mapping[Axes, tuple[State, ...]]
    kept: Tensor | None = None
    """(O,), scaled: the channels that dropout left. All cells, queried ones too, lose the same."""


def written(poolings: Poolings, values: Tensor, cells: AnyCells) -> tuple[Tensor, Pools]:
    """The values of cells, (E, K), and their pools; see ``Layer.pooled``."""
    if isinstance(cells, Support) and values.is_cuda and _fusable(poolings, values):
        return _written_at_once(poolings, values, cells)
    scores = _scores(poolings, values)

    def state(pool: Pool, axes: Axes) -> State:
        if isinstance(pool, AttentionPool):
            return pool.weighed(values, scores[pool], cells.groups(axes))
        return pool.write(values, cells.groups(axes))

    pools = {axes: tuple(state(p, axes) for p in own) for axes, own in poolings.items()}
    return values, Pools(pools)


def _scores(poolings: Poolings, values: Tensor) -> dict[AttentionPool, Tensor]:
    """The scores of all that attend, (E, H) each: one product is faster than many narrow ones."""
    attending = [p for own in poolings.values() for p in own if isinstance(p, AttentionPool)]
    if not attending:
        return {}
    weights: list[Tensor] = [pool.scores for pool in attending]
    found = (values @ torch.cat(weights, dim=1)).split([w.shape[1] for w in weights], dim=-1)
    return dict(zip(attending, found, strict=True))


def _fusable(poolings: Poolings, values: Tensor) -> bool:
    """Whether kernels serve several pools in one pass over the cells."""
    scores = [_attention(pools) for pools in poolings.values()]
    if not fast(values, heads=max((s.shape[1] for s in scores if s is not None), default=1)):
        return False
    # All attend or none, and something other than a count is asked for.
    alike = len({s is None for s in scores}) == 1
    every = [pool for pools in poolings.values() for pool in pools]
    return alike and any(isinstance(pool, SumPool | AttentionPool) for pool in every)


def _attention(pools: Sequence[Pool]) -> Tensor | None:
    return next((pool.scores for pool in pools if isinstance(pool, AttentionPool)), None)


def _written_at_once(poolings: Poolings, values: Tensor, cells: Support) -> tuple[Tensor, Pools]:
    from exchangeable import kernels

    groups = {axes: cells.groups(axes) for axes in poolings}
    runs = [own.runs for own in groups.values()]
    scores = [_attention(pools) for pools in poolings.values()]
    given = [weight for weight in scores if weight is not None]
    if given:
        values, found = kernels.pool_all(values, given, runs, cells.writers)
        sums: list[tuple[Tensor, ...]] = [tuple(pooled) for pooled in found]
    else:
        values, totals = kernels.sum_all(values, runs, cells.writers)
        sums = [(total,) for total in totals]
    by_axes = dict(zip(poolings, sums, strict=True))

    def state(pool: Pool, axes: Axes) -> State:
        count = pooling.count_over(values, groups[axes])
        match pool:
            case AttentionPool():
                return (*by_axes[axes][1:], count)
            case CountPool():
                return (count,)
            case SumPool(peaked=False):
                return by_axes[axes][0], count
        return pool.write(values, groups[axes])

    pools = {axes: tuple(state(p, axes) for p in own) for axes, own in poolings.items()}
    return values, Pools(pools)


def take_in(poolings: Poolings, whole: Pools, part: Pools, cells: Support) -> None:
    """Add the pools of some more cells to those of others, in place."""
    for axes, pools in poolings.items():
        for pool, old, new in zip(pools, whole.states[axes], part.states[axes], strict=True):
            near = tuple(_near(rows, cells.groups(axes)) for rows in old)
            if pool.peaked:
                peak = torch.maximum(near[0], new[0])
                known, new = pool.aligned(near, peak), pool.aligned(new, peak)
                near[0].copy_(peak)
                for place, x, y in zip(near[1:], known[1:], new[1:], strict=True):
                    torch.add(x, y, out=place)
            else:
                for place, y in zip(near, new, strict=True):
                    place.add_(y)


def aligned(poolings: Poolings, part: Pools, whole: Pools, cells: Support) -> Pools:
    """The pools of some cells as their share in those of all: shares add up to the whole."""

    def share(pool: Pool, axes: Axes, place: int) -> State:
        state = part.states[axes][place]
        if not pool.peaked:
            return state
        return pool.aligned(state, _near(whole.states[axes][place][0], cells.groups(axes)))

    return _each(poolings, share, part.kept)


def sums(poolings: Poolings, pools: Pools) -> list[Tensor]:
    """All parts that are sums over cells, in a fixed order."""
    return [
        part
        for axes, own in poolings.items()
        for pool, state in zip(own, pools.states[axes], strict=True)
        for part in state[pool.peaked :]
    ]


def with_sums(poolings: Poolings, pools: Pools, given: Sequence[Tensor]) -> Pools:
    """The same pools with other sums, in the order of ``sums``."""
    parts = iter(given)

    def filled(pool: Pool, axes: Axes, place: int) -> State:
        state = pools.states[axes][place]
        return (*state[: pool.peaked], *[next(parts) for _ in state[pool.peaked :]])

    return _each(poolings, filled, pools.kept)


def peaks(poolings: Poolings, pools: Pools) -> list[Tensor]:
    """The peaks of all states that have one."""
    return [
        state[0]
        for axes, own in poolings.items()
        for pool, state in zip(own, pools.states[axes], strict=True)
        if pool.peaked
    ]


def raised(poolings: Poolings, pools: Pools, given: Sequence[Tensor]) -> Pools:
    """The pools aligned to other peaks, in the order of ``peaks``."""
    higher = iter(given)

    def lifted(pool: Pool, axes: Axes, place: int) -> State:
        state = pools.states[axes][place]
        return pool.aligned(state, next(higher)) if pool.peaked else state

    return _each(poolings, lifted, pools.kept)


def windows(poolings: Poolings, given: Sequence[Tensor], cells: Support) -> list[Tensor]:
    """Of tensors in the order of ``sums``, the groups that some cells meet."""
    places = [
        cells.groups(axes)
        for axes, own in poolings.items()
        for pool in own
        for _ in pool.neutral[pool.peaked :]
    ]
    return [_near(rows, groups) for rows, groups in zip(given, places, strict=True)]


def empty(poolings: Poolings, like: Pools, group_index: GroupIndex) -> Pools:
    """Pools without any cell, with the groups of a directory."""
    return _each(
        poolings,
        lambda pool, axes, place: _emptied(
            pool, like.states[axes][place], group_index.number(axes)
        ),
        like.kept,
    )


def moved(poolings: Poolings, pools: Pools, old: GroupIndex, new: GroupIndex) -> Pools:
    """The pools among the groups of a larger directory; groups that are new are empty.

    States may have one more group at their end, the empty one of pairs, which stays behind.
    """

    def grown(pool: Pool, axes: Axes, place: int) -> State:
        state = pools.states[axes][place]
        places = old.positions_in(new, axes).to(state[0].device)
        spacious = _emptied(pool, state, new.number(axes))
        pairs = zip(spacious, state, strict=True)
        return tuple(room.index_copy(0, places, part[: len(places)]) for room, part in pairs)

    return _each(poolings, grown, pools.kept)


def joined(poolings: Poolings, pools: Pools, places: Mapping[Axes, Tensor], part: Pools) -> Pools:
    """The pools of some new cells, with what is known of the groups they meet.

    ``places`` says where these groups are among the known ones: beyond the last where one is
    new.
    """

    def both(pool: Pool, axes: Axes, place: int) -> State:
        at, new = places[axes], part.states[axes][place]
        known = tuple(rows[at.clamp(max=len(rows) - 1)] for rows in pools.states[axes][place])
        if strangers[axes] is not None:
            pairs = zip(known, pool.neutral, strict=True)
            known = tuple(_where(strangers[axes], neutral, rows) for rows, neutral in pairs)
        return pooling.merge(known, new, pool.aligned if pool.peaked else None)

    strangers: dict[Axes, Tensor | None] = {}
    for axes, at in places.items():
        if axes in pools.states:
            new = at >= len(pools.states[axes][0][0])
            strangers[axes] = new if bool(new.any()) else None
    return _each(poolings, both, pools.kept)


def _where(chosen: Tensor | None, value: float, rows: Tensor) -> Tensor:
    assert chosen is not None
    return torch.where(chosen.view(-1, *[1] * (rows.ndim - 1)), value, rows)


def replaced(
    poolings: Poolings, pools: Pools, others: Pools, places: Mapping[Axes, Tensor]
) -> Pools:
    """The pools with the states of some groups exchanged for others."""

    def with_others(pool: Pool, axes: Axes, place: int) -> State:
        pairs = zip(pools.states[axes][place], others.states[axes][place], strict=True)
        return tuple(part.index_copy(0, places[axes], row) for part, row in pairs)

    return _each(poolings, with_others, pools.kept)


def _each(
    poolings: Poolings, made: Callable[[Pool, Axes, int], State], kept: Tensor | None
) -> Pools:
    """Pools with a state for every pool, by what makes it."""
    return Pools(
        {
            axes: tuple(made(pool, axes, place) for place, pool in enumerate(pools))
            for axes, pools in poolings.items()
        },
        kept,
    )


def _emptied(pool: Pool, state: State, number: int) -> State:
    parts = zip(state, pool.neutral, strict=True)
    return tuple(part.new_full((number, *part.shape[1:]), neutral) for part, neutral in parts)


def _near(rows: Tensor, groups: object) -> Tensor:
    """The rows of the groups that some cells meet."""
    assert isinstance(groups, Groups)
    return rows[groups.start : groups.start + groups.number]
