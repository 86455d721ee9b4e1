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
from itertools import repeat
from typing import Any

import torch
from torch import Generator, Tensor, nn

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.groups import Axes, GroupIndex, locate
from exchangeable.arrays.support import Support
from exchangeable.models.extend import all_axes, all_features, members_of, patched, touched_by
from exchangeable.models.stream import Plan, Stream, answered
from exchangeable.nn import pool_states
from exchangeable.nn.layers import Layer, LayerReadout
from exchangeable.nn.pool_states import Pools
from exchangeable.nn.pools import Modules
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress

Encode = Callable[[Tensor], Tensor]
Known = Callable[[Tensor], Tensor]
"""What is known of cells before any of them is read: (Q, D) -> (Q, K)."""
ANCHOR = 2
"""The first two channels that are known, a mean and a deviation: answers are relative to them."""
KNOWN_OF_AN_AXIS = 4
"""Further channels that are known, of each axis: what members that are alike say."""


@dataclass(frozen=True, eq=False)
class Memory:
    """All that a model needs to keep of a table: the pools of its layers, and no cell."""

    group_index: GroupIndex
    pools: tuple[Any, ...]
    """Of every layer; none where nothing is to be added any more."""
    offered: tuple[Any, ...]
    """What the pools of every layer offer to cells."""
    features: FeatureTensors | None = None
    prior: Known | None = None

    def __repr__(self) -> str:
        sizes = " x ".join(f"{size:,}" for size in self.shape)
        return f"Memory({sizes}, pools of {len(self.offered)} layers)"

    @property
    def shape(self) -> tuple[int, ...]:
        """How many members each axis has."""
        return self.group_index.shape


class MemoryModel(nn.Module):
    """A stack of layers that is conditioned on observed cells and then answers any cell.

    A queried cell starts from zeros at layer ``first_read``, where its own values first
    matter, and passes through the layers as observed cells do, except that it never writes.
    """

    layers: Modules[Layer[Any, Any]]
    first_read = 0
    prior_rank = 0
    """Of the factorization that cells begin with; answers carry its mean and deviation too."""
    prior_compared = 0
    """Entries of the table times members who speak of those they are alike, at most."""
    known_channels = 0
    """Channels that are known of every cell, whether observed or not."""

    @property
    def literal(self) -> bool:
        """Whether queries are pooled too, so that they cannot be answered from a memory."""
        return False

    def draw(self, like: Tensor, generator: Generator | None) -> list[Tensor | None]:
        """In training, what dropout leaves at each layer that has it."""
        return [layer.draw(like, generator) for layer in self.layers]

    def condition(
        self,
        observed: ExchangeableArray,
        features: FeatureTensors | None = None,
        generator: Generator | None = None,
        *,
        encode: Encode | None = None,
        prior: Known | None = None,
        plan: Plan | None = None,
        processes: Processes = ALONE,
        progress: Progress = SILENT,
    ) -> Memory:
        """Run the observed cells through the model and keep the pools of every layer.

        ``features`` holds, for each axis, its members' features. In training ``generator``
        draws the channels to drop; the memory keeps them, and all that is read of it loses
        the same ones. ``encode`` makes the channels of cells of their values, some cells at a
        time, and ``prior`` tells what else is known of them; ``plan`` says how many come at a
        time, ``processes`` which processes share the work, and ``progress`` is shown how far it is.
        """
        if torch.is_grad_enabled():
            if plan is not None or processes.size > 1:
                raise ValueError(
                    "a memory with gradients is of all cells at once: condition in parts under "
                    "torch.no_grad(), or train with rebuild"
                )
            plan = Plan(together=max(len(observed), 1))
        known = None if prior is None else prior(observed.support.index)
        stream = self._stream(
            observed, observed.support, features, encode, known, plan, processes, progress
        )
        stream.condition(generator)
        group_index = observed.support.group_index
        return Memory(group_index, tuple(stream.pools), tuple(stream.offered), features, prior)

    def predict_hidden(
        self,
        cells: ExchangeableArray,
        hidden: Tensor,
        features: FeatureTensors | None = None,
        generator: Generator | None = None,
        *,
        encode: Encode | None = None,
        known: Tensor | None = None,
        plan: Plan | None = None,
        processes: Processes = ALONE,
    ) -> Tensor:
        """Answer the cells of a mask, given the values of the others: (Q, O).

        The answers are those of ``forward`` on the two parts, but the cells are sorted once,
        however often others are hidden. With a ``plan``, activations are not kept for the
        backward pass, which is exact all the same. Of several processes each gives the
        answers for its own share of the cells. ``known`` is what a prior says of all cells that
        has seen none of the hidden ones, (E, K).
        """
        support = cells.support.with_writers(~hidden)
        if plan is None and processes.size == 1:
            whole = Plan(together=max(len(cells), 1))
            stream = self._stream(cells, support, features, encode, known, whole, processes)
            stream.condition(generator, through=True)
            outputs = stream.answers()
        else:
            stream = self._stream(cells, support, features, encode, known, plan, processes)
            outputs = answered(stream, list(self.parameters()), generator)
        first, last = processes.share(len(cells))
        return anchored(outputs, None if known is None else known[first:last][hidden[first:last]])

    def _stream(
        self,
        observed: ExchangeableArray,
        cells: Support,
        features: FeatureTensors | None,
        encode: Encode | None,
        known: Tensor | None,
        plan: Plan | None,
        processes: Processes,
        progress: Progress = SILENT,
    ) -> Stream:
        def start(values: Tensor) -> Tensor:
            return self.observe(values if encode is None else encode(values))

        self._check_known(known, len(cells))
        first = start(observed.values[:1])
        self.layers[0].check(beside(first, None if known is None else known[:1]), cells)
        self.layers[0].check_features(features, cells.shape)
        return Stream(
            list(self.layers),
            cells,
            observed.values,
            start,
            known=known,
            features=features,
            plan=plan or Plan(),
            processes=processes,
            progress=progress,
        )

    def read(self, memory: Memory, queries: Support, chunk_size: int | None = None) -> Tensor:
        """Answer the queried cells, ``chunk_size`` at a time: (Q, O).

        A cell may be asked more than once, and may be one that was observed.
        """
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be 1 or more, but is {chunk_size}")
        self._check_memory(memory)
        self._check_asked(queries, memory.shape)
        cells = queries.indexed_by(memory.group_index)
        # A prior is asked once: what it says of many cells takes little longer than of a few.
        known = None if memory.prior is None else memory.prior(cells.index)
        size = chunk_size or max(len(queries), 1)
        known_chunks = repeat(None) if known is None else known.split(size)
        chunks = zip(cells.split(size), known_chunks, strict=False)
        return torch.cat([self._read_chunk(memory, *chunk) for chunk in chunks])

    def extend(
        self,
        memory: Memory,
        observed: ExchangeableArray,
        features: FeatureTensors | None = None,
        *,
        prior: Known | None = None,
    ) -> Memory:
        """Add new members, or new cells of known ones, from the new cells alone.

        ``observed`` holds the new cells in an array of the new shape; new members come after
        the known ones on each axis, and ``features`` are those of the new members. The new
        cells read the old pools with themselves added, so that a column with a cell or two
        is treated as in training. Cells observed before are not run again: what new cells
        would have changed in them is left out. Members added in one call see one another.
        A memory does not know its cells: one that was observed before must not come again.
        ``prior`` takes the place of the one that it had.
        """
        self._check_grown(observed, memory)
        group_index = memory.group_index.extended(observed.support.index, observed.shape)
        everyone = all_features(memory.features, features, observed.order)
        touched = {
            axes: touched_by(observed.support.index, axes, memory.group_index, group_index)
            for axes in all_axes(self.layers)
        }
        found = {
            axes: locate(memory.group_index.positions_in(group_index, axes).to(own.device), own)
            for axes, own in touched.items()
        }
        pools, offered = [], []
        for layer, old, known, (rows, more) in zip(
            self.layers,
            memory.pools,
            memory.offered,
            self._overlay(memory, observed, group_index, touched, found, everyone, prior),
            strict=True,
        ):
            grown = pool_states.moved(layer.poolings, old, memory.group_index, group_index)
            pools.append(pool_states.replaced(layer.poolings, grown, rows, touched))
            offered.append(patched(known, more, touched, memory.group_index, group_index))
        return Memory(group_index, tuple(pools), tuple(offered), everyone, prior)

    def _overlay(
        self,
        memory: Memory,
        observed: ExchangeableArray,
        group_index: GroupIndex,
        touched: Mapping[Axes, Tensor],
        found: Mapping[Axes, Tensor],
        features: FeatureTensors | None,
        prior: Known | None,
    ) -> list[tuple[Pools, LayerReadout]]:
        """For each layer, the groups that new cells meet, with these added: pools and offers.

        ``touched`` are these groups, and ``found`` where each was among the known ones.
        """
        cells = observed.support.indexed_by(group_index)
        near = cells.restricted_to(touched)
        values = self._start(observed, cells, features, prior)
        some = None if features is None else members_of(features, touched)
        given = []
        for number, (layer, old) in enumerate(zip(self.layers, memory.pools, strict=True)):
            pools = pool_states.joined(layer.poolings, old, found, layer.pooled(values, near)[1])
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
        features: FeatureTensors | None = None,
        *,
        prior: Known | None = None,
    ) -> Memory:
        """A memory for one new member of ``axis``, number 0 there, from its own cells alone.

        All pools but its own stay as they are, and nothing is copied, however large they are:
        its cells read what is there of the other axes, to which ``extend`` would add them.
        ``prior`` is one that knows the member.
        """
        alone = memory.group_index.with_single_member(axis)
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
        group_index, offered = GroupIndex(alone.shape, keys), []
        cells = observed.support.indexed_by(group_index)
        values = self._start(observed, cells, everyone, prior)
        for number, (layer, known) in enumerate(zip(self.layers, memory.offered, strict=True)):
            own = {axes: pools for axes, pools in layer.poolings.items() if axis in axes}
            _, pools = pool_states.written(own, values, cells)
            fresh = layer.offered(pools, everyone if number == 0 else None)
            offered.append(known._replace(on={**known.on, **fresh.on}))
            if number < len(self.layers) - 1:
                values = layer.read(values, cells, offered[-1])
        return Memory(group_index, (), tuple(offered), everyone, prior)

    def forward(
        self,
        observed: ExchangeableArray,
        queries: Support,
        features: FeatureTensors | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        """Answer ``queries`` given the observed cells, in one pass: (Q, O)."""
        return self.read(self.condition(observed, features, generator), queries)

    def observe(self, values: Tensor) -> Tensor:
        """The channels with which observed values (E, K) enter the first layer."""
        return values

    def _start(
        self,
        observed: ExchangeableArray,
        cells: Support,
        features: FeatureTensors | None,
        prior: Known | None,
    ) -> Tensor:
        known = None if prior is None else prior(cells.index)
        self._check_known(known, len(cells))
        values = beside(self.observe(observed.values), known)
        self.layers[0].check(values, cells)
        self.layers[0].check_features(features, cells.shape)
        return values

    def _read_chunk(self, memory: Memory, cells: Support, known: Tensor | None) -> Tensor:
        weight = next(self.parameters())
        channels = self.layers[self.first_read].in_channels - self.known_channels
        values = beside(weight.new_zeros(len(cells), channels), known)
        steps = list(zip(self.layers, memory.offered, strict=True))
        for layer, offered in steps[self.first_read :]:
            values = layer.read(values, cells, offered)
        return anchored(values, known)

    def _check_known(self, known: Tensor | None, cells: int) -> None:
        wanted = (cells, self.known_channels) if self.known_channels else None
        came = None if known is None else tuple(known.shape)
        if came != wanted:
            raise ValueError(
                f"what a prior says of cells must have shape {wanted}, but has shape {came}"
            )

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


def beside(values: Tensor, known: Tensor | None) -> Tensor:
    """Values of cells with what is known of them as last channels."""
    return values if known is None else torch.cat([values, known.to(values)], dim=1)


def anchored(outputs: Tensor, known: Tensor | None) -> Tensor:
    """What a model gives out for cells with what it is relative to as last channels."""
    return outputs if known is None else beside(outputs, known[:, :ANCHOR])


def prior_channels(order: int) -> int:
    """How many channels a prior has that tells of cells of a table with some axes."""
    return ANCHOR + KNOWN_OF_AN_AXIS * order
