"""Conditioning: observed cells become a memory of pools, and any cell is answered from it.

    condition   observed cells -> the pools of every layer
    read        memory + queried cells -> answers, in chunks of any size
    extend      memory + the cells of new members -> memory; nothing old is recomputed
    rebuild     cells, some of which are hidden -> answers for these, given the others

Observed cells write and queried cells only read, so an answer depends on no other query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from exchangeable import states
from exchangeable.array import ExchangeableArray, Support
from exchangeable.distributed import ALONE, Processes
from exchangeable.groups import Axes, Directory, position
from exchangeable.layers import Features, Layer, Offered
from exchangeable.pools import Modules, Summaries
from exchangeable.states import Pools
from exchangeable.streaming import Plan, Stream, Watch, answered

Encode = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Memory:
    """All that a model needs to keep of a table: the pools of its layers, and no cell."""

    directory: Directory
    pools: tuple[Any, ...]
    """Of every layer; none where nothing is to be added any more."""
    offered: tuple[Any, ...]
    """What the pools of every layer offer to cells."""
    features: Features | None = None

    def __repr__(self) -> str:
        sizes = " x ".join(f"{size:,}" for size in self.shape)
        return f"Memory({sizes}, pools of {len(self.offered)} layers)"

    @property
    def shape(self) -> tuple[int, ...]:
        """How many members each axis has."""
        return self.directory.shape


class MemoryModel(nn.Module):
    """A stack of layers that is conditioned on observed cells and then answers any cell.

    A queried cell starts from zeros at layer ``first_read``, where its own values first
    matter, and passes through the layers as observed cells do, except that it never writes.
    """

    layers: Modules[Layer[Any, Any]]
    first_read = 0

    @property
    def literal(self) -> bool:
        """Whether queries are pooled too, so that they cannot be answered from a memory."""
        return False

    def condition(
        self,
        observed: ExchangeableArray,
        features: Features | None = None,
        generator: Generator | None = None,
        *,
        encode: Encode | None = None,
        plan: Plan | None = None,
        among: Processes = ALONE,
        watch: Watch | None = None,
    ) -> Memory:
        """Run the observed cells through the model and keep the pools of every layer.

        ``features`` holds, for each axis, its members' features. In training ``generator``
        draws the channels to drop; the memory keeps them, and all that is read of it loses
        the same ones. ``encode`` makes the channels of cells of their values, some cells at a
        time; ``plan`` says how many, ``among`` which processes share the work, and ``watch`` hears
        how far it is.
        """
        if torch.is_grad_enabled():
            if plan is not None or among.size > 1:
                raise ValueError(
                    "a memory with gradients is of all cells at once: condition in parts under "
                    "torch.no_grad(), or train with rebuild"
                )
            plan = Plan(together=max(len(observed), 1))
        stream = self._stream(observed, observed.support, features, encode, plan, among, watch)
        stream.condition(generator)
        directory = observed.support.directory
        return Memory(directory, tuple(stream.pools), tuple(stream.offered), features)

    def rebuild(
        self,
        cells: ExchangeableArray,
        hidden: Tensor,
        features: Features | None = None,
        generator: Generator | None = None,
        *,
        encode: Encode | None = None,
        plan: Plan | None = None,
        among: Processes = ALONE,
    ) -> Tensor:
        """Answer the cells of a mask, given the values of the others: (Q, O).

        The answers are those of ``forward`` on the two parts, but the cells are sorted once,
        however often others are hidden. With a ``plan``, activations are not kept for the
        backward pass, which is exact all the same. Of several processes each gives the
        answers for its own share of the cells.
        """
        support = cells.support.written_by(~hidden)
        if plan is None and among.size == 1:
            whole = Plan(together=max(len(cells), 1))
            stream = self._stream(cells, support, features, encode, whole, among)
            stream.condition(generator, through=True)
            return stream.answers()
        stream = self._stream(cells, support, features, encode, plan, among)
        return answered(stream, list(self.parameters()), generator)

    def _stream(
        self,
        observed: ExchangeableArray,
        cells: Support,
        features: Features | None,
        encode: Encode | None,
        plan: Plan | None,
        among: Processes,
        watch: Watch | None = None,
    ) -> Stream:
        def start(values: Tensor) -> Tensor:
            return self.observe(values if encode is None else encode(values))

        self.layers[0].check(start(observed.values[:1]), cells)
        self.layers[0].check_features(features, cells.shape)
        return Stream(
            list(self.layers),
            cells,
            observed.values,
            start,
            features=features,
            plan=plan or Plan(),
            among=among,
            watch=watch,
        )

    def read(self, memory: Memory, queries: Support, chunk_size: int | None = None) -> Tensor:
        """Answer the queried cells, ``chunk_size`` at a time: (Q, O).

        A cell may be asked more than once, and may be one that was observed.
        """
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be 1 or more, but is {chunk_size}")
        self._check_memory(memory)
        self._check_asked(queries, memory.shape)
        cells = queries.numbered_by(memory.directory)
        chunks = cells.split(chunk_size or max(len(queries), 1))
        return torch.cat([self._read_chunk(memory, chunk) for chunk in chunks])

    def extend(
        self, memory: Memory, observed: ExchangeableArray, features: Features | None = None
    ) -> Memory:
        """Add new members, or new cells of known ones, from the new cells alone.

        ``observed`` holds the new cells in an array of the new shape; new members come after
        the known ones on each axis, and ``features`` are those of the new members. The new
        cells read the old pools with themselves added, so that a column with a cell or two
        is treated as in training. Cells observed before are not run again: what new cells
        would have changed in them is left out. Members added in one call see one another.
        A memory does not know its cells: one that was observed before must not come again.
        """
        self._check_grown(observed, memory)
        directory = memory.directory.extended(observed.support.index, observed.shape)
        everyone = _joined(memory, features, observed)
        touched = {
            axes: _touched(observed.support.index, axes, memory.directory, directory)
            for axes in _all_axes(self.layers)
        }
        found = {
            axes: position(memory.directory.places_in(directory, axes).to(own.device), own)
            for axes, own in touched.items()
        }
        pools, offered = [], []
        for layer, old, known, (rows, more) in zip(
            self.layers,
            memory.pools,
            memory.offered,
            self._overlay(memory, observed, directory, touched, found, everyone),
            strict=True,
        ):
            grown = states.moved(layer.poolings, old, memory.directory, directory)
            pools.append(states.replaced(layer.poolings, grown, rows, touched))
            offered.append(_patched(known, more, touched, memory.directory, directory))
        return Memory(directory, tuple(pools), tuple(offered), everyone)

    def _overlay(
        self,
        memory: Memory,
        observed: ExchangeableArray,
        directory: Directory,
        touched: Mapping[Axes, Tensor],
        found: Mapping[Axes, Tensor],
        features: Features | None,
    ) -> list[tuple[Pools, Offered]]:
        """For each layer, the groups that new cells meet, with these added: pools and offers.

        ``touched`` are these groups, and ``found`` where each was among the known ones.
        """
        cells = observed.support.numbered_by(directory)
        near = cells.among(touched)
        values = self._start(observed, cells, features)
        some = None if features is None else _members_of(features, touched)
        given = []
        for number, (layer, old) in enumerate(zip(self.layers, memory.pools, strict=True)):
            pools = states.joined(layer.poolings, old, found, layer.pooled(values, near)[1])
            offered = layer.offered(pools, some if number == 0 else None)
            given.append((pools, offered))
            if number < len(self.layers) - 1:
                values = layer.read(values, near, offered)
        return given

    def newcomer(
        self,
        memory: Memory,
        axis: int,
        observed: ExchangeableArray,
        features: Features | None = None,
    ) -> Memory:
        """A memory for one new member of ``axis``, number 0 there, from its own cells alone.

        All pools but its own stay as they are, and nothing is copied, however large they are:
        its cells read what is there of the other axes, to which ``extend`` would add them.
        """
        alone = memory.directory.without(axis)
        if observed.shape != alone.shape:
            raise ValueError(
                f"the cells of a new member of axis {axis} must come in an array of shape "
                f"{alone.shape}, but come in one of shape {observed.shape}"
            )
        self._check_memory(memory)
        everyone = memory.features
        if everyone is not None:
            new = features or (None,) * observed.order
            everyone = tuple(
                new[a] if a == axis and f is not None else f for a, f in enumerate(everyone)
            )
        grown = alone.extended(observed.support.index, observed.shape)
        keys = {axes: (grown if axis in axes else alone).keys[axes] for axes in alone.keys}
        directory, offered = Directory(alone.shape, keys), []
        cells = observed.support.numbered_by(directory)
        values = self._start(observed, cells, everyone)
        for number, (layer, known) in enumerate(zip(self.layers, memory.offered, strict=True)):
            own = {axes: pools for axes, pools in layer.poolings.items() if axis in axes}
            _, pools = states.written(own, values, cells)
            fresh = layer.offered(pools, everyone if number == 0 else None)
            offered.append(known._replace(on={**known.on, **fresh.on}))
            if number < len(self.layers) - 1:
                values = layer.read(values, cells, offered[-1])
        return Memory(directory, (), tuple(offered), everyone)

    def forward(
        self,
        observed: ExchangeableArray,
        queries: Support,
        features: Features | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        """Answer ``queries`` given the observed cells, in one pass: (Q, O)."""
        return self.read(self.condition(observed, features, generator), queries)

    def observe(self, values: Tensor) -> Tensor:
        """The channels with which observed values (E, K) enter the first layer."""
        return values

    def _start(
        self, observed: ExchangeableArray, cells: Support, features: Features | None
    ) -> Tensor:
        values = self.observe(observed.values)
        self.layers[0].check(values, cells)
        self.layers[0].check_features(features, cells.shape)
        return values

    def _read_chunk(self, memory: Memory, cells: Support) -> Tensor:
        weight = next(self.parameters())
        values = weight.new_zeros(len(cells), self.layers[self.first_read].in_channels)
        steps = list(zip(self.layers, memory.offered, strict=True))
        for layer, offered in steps[self.first_read :]:
            values = layer.read(values, cells, offered)
        return values

    def _check_asked(self, queries: Support, shape: tuple[int, ...]) -> None:
        if not isinstance(queries, Support):
            raise TypeError(f"queries must be a Support, but are a {type(queries).__name__}")
        sizes = zip(queries.shape, shape, strict=False)
        if queries.order != len(shape) or any(asked > known for asked, known in sizes):
            raise ValueError(
                f"queries must be cells of the table of shape {shape} that was read, but are of "
                f"one of shape {queries.shape}; extend the memory with new members first"
            )
        home = next(self.parameters()).device
        if queries.index.device != home:
            raise ValueError(
                f"queries must be on {home}, as the model is, but are on {queries.index.device}"
            )

    def _check_memory(self, memory: Memory) -> None:
        if len(memory.offered) != len(self.layers):
            raise ValueError(
                f"the memory must come from a model of {len(self.layers)} layers as this one, "
                f"but holds the pools of {len(memory.offered)}"
            )

    def _check_grown(self, observed: ExchangeableArray, memory: Memory) -> None:
        self._check_memory(memory)
        if not memory.pools:
            raise ValueError("the memory was made to be read only: it cannot be extended")
        sizes = zip(observed.shape, memory.shape, strict=False)
        if observed.order != len(memory.shape) or any(new < known for new, known in sizes):
            raise ValueError(
                f"new cells must come in an array at least as large as the known one of shape "
                f"{memory.shape}, but come in one of shape {observed.shape}"
            )


def _all_axes(layers: Modules[Layer[Any, Any]]) -> list[Axes]:
    """Every subset of the axes by which one of the layers pools."""
    return list(dict.fromkeys(axes for layer in layers for axes in layer.poolings))


def _touched(index: Tensor, axes: Axes, old: Directory, new: Directory) -> Tensor:
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


def _members_of(features: Features, touched: Mapping[Axes, Tensor]) -> Features:
    """The features of those members who are met."""
    return tuple(None if f is None else f[touched[(axis,)]] for axis, f in enumerate(features))


def _patched(
    known: Offered,
    more: Offered,
    touched: Mapping[Axes, Tensor],
    old: Directory,
    new: Directory,
) -> Offered:
    """What was offered, among the groups of a larger directory, with some rows replaced."""

    def patch(rows: Tensor, fresh: Tensor, axes: Axes) -> Tensor:
        number, met = new.number(axes), touched[axes]
        if len(met) == number:
            return fresh
        if len(rows) == number and (len(axes) < 2 or old.number(axes) == number):
            return rows.index_copy(0, met, fresh)
        places = old.places_in(new, axes).to(rows.device)
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
    return Offered(on, known.kept)


def _joined(memory: Memory, added: Features | None, observed: ExchangeableArray) -> Features | None:
    """The features of all members, known ones first."""
    nothing = (None,) * observed.order
    known, new = memory.features or nothing, added or nothing
    if len(new) != observed.order:
        raise ValueError(
            f"features must be given for each of {observed.order} axes, but came for {len(new)}"
        )
    if memory.features is None and added is None:
        return None
    return tuple(_stacked(k, n) for k, n in zip(known, new, strict=True))


def _stacked(known: Tensor | None, new: Tensor | None) -> Tensor | None:
    parts = [part for part in (known, new) if part is not None]
    return torch.cat(parts) if parts else None
