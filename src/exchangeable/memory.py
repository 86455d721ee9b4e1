"""Conditioning: observed cells become a memory of pools, and any cell is answered from it.

    condition   observed cells -> the pools of every layer
    read        memory + queried cells -> answers, in chunks of any size
    extend      memory + the cells of new members -> memory; nothing old is recomputed

Observed cells write and queried cells only read, so an answer depends on no other query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from exchangeable.array import ExchangeableArray, Support
from exchangeable.groups import Directory
from exchangeable.layers import Features, Layer, Pools
from exchangeable.pools import Modules


@dataclass(frozen=True, eq=False)
class Memory:
    """All that a model needs to keep of a table: the pools of its layers, and no cell."""

    directory: Directory
    pools: tuple[Pools, ...]
    features: Features | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """How many members each axis has."""
        return self.directory.shape


class MemoryModel(nn.Module):
    """A stack of layers that is conditioned on observed cells and then answers any cell.

    A queried cell starts from zeros at layer ``first_read``, where its own values first
    matter, and passes through the layers as observed cells do, except that it never writes.
    """

    layers: Modules[Layer]
    first_read = 0

    def condition(
        self,
        observed: ExchangeableArray,
        features: Features | None = None,
        generator: Generator | None = None,
    ) -> Memory:
        """Run the observed cells through the model and keep the pools of every layer.

        ``features`` holds, for each axis, its members' features. In training ``generator``
        draws the channels to drop, and queries read later lose the same ones.
        """
        values, pools = self._start(observed, observed.support), []
        for number, layer in enumerate(self.layers):
            pools.append(layer.write(values, observed.support, generator))
            values = layer.read(values, observed.support, pools[-1], _first(number, features))
        return Memory(observed.support.directory, tuple(pools), features)

    def read(self, memory: Memory, queries: Support, chunk_size: int | None = None) -> Tensor:
        """Answer the queried cells, ``chunk_size`` at a time: (Q, O).

        A cell may be asked more than once, and may be one that was observed.
        """
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be 1 or more, but is {chunk_size}")
        self._check_within(queries, memory)
        chunks = queries.index.split(chunk_size or max(len(queries), 1))
        return torch.cat([self._read_chunk(memory, index) for index in chunks])

    def extend(
        self, memory: Memory, observed: ExchangeableArray, features: Features | None = None
    ) -> Memory:
        """Add new members, or new cells of known ones, from the new cells alone.

        ``observed`` holds the new cells in an array of the new shape; new members come after
        the known ones on each axis, and ``features`` are those of the new members. The new
        cells read the old pools with themselves added, so that a column with a cell or two
        is treated as in training. Cells observed before are not run again: what new cells
        would have changed in them is left out. Members added in one call see one another.
        """
        self._check_grown(observed, memory)
        directory = memory.directory.extended(observed.support.index, observed.shape)
        everyone = _joined(memory, features, observed)
        cells = observed.support.numbered_by(directory)
        nobody = cells.take(torch.zeros(len(cells), dtype=torch.bool, device=cells.index.device))
        values, pools = self._start(observed, cells), []
        for number, (layer, old) in enumerate(zip(self.layers, memory.pools, strict=True)):
            empty = layer.write(values[:0], nobody)
            moved = _moved(old, memory.directory, into=empty, later=directory)
            pools.append(layer.merge(moved, layer.write(values, cells)))
            values = layer.read(values, cells, pools[-1], _first(number, everyone))
        return Memory(directory, tuple(pools), everyone)

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

    def _start(self, observed: ExchangeableArray, cells: Support) -> Tensor:
        values = self.observe(observed.values)
        self.layers[0].check(values, cells)
        return values

    def _read_chunk(self, memory: Memory, index: Tensor) -> Tensor:
        cells = Support(index, memory.shape, memory.directory)
        weight = next(self.parameters())
        values = weight.new_zeros(len(index), self.layers[self.first_read].in_channels)
        steps = list(enumerate(zip(self.layers, memory.pools, strict=True)))
        for number, (layer, pools) in steps[self.first_read :]:
            values = layer.read(values, cells, pools, _first(number, memory.features))
        return values

    def _check_within(self, queries: Support, memory: Memory) -> None:
        sizes = zip(queries.shape, memory.shape, strict=False)
        if queries.order != len(memory.shape) or any(asked > known for asked, known in sizes):
            raise ValueError(
                f"queries must be cells of the table of shape {memory.shape} that was read, but "
                f"are of one of shape {queries.shape}; extend the memory with new members first"
            )
        home = next(self.parameters()).device
        if queries.index.device != home:
            raise ValueError(
                f"queries must be on {home}, as the model is, but are on {queries.index.device}"
            )

    def _check_grown(self, observed: ExchangeableArray, memory: Memory) -> None:
        sizes = zip(observed.shape, memory.shape, strict=False)
        if observed.order != len(memory.shape) or any(new < known for new, known in sizes):
            raise ValueError(
                f"new cells must come in an array at least as large as the known one of shape "
                f"{memory.shape}, but come in one of shape {observed.shape}"
            )


def _first(number: int, features: Features | None) -> Features | None:
    """Features of members enter at the first layer only."""
    return features if number == 0 else None


def _moved(pools: Pools, old: Directory, *, into: Pools, later: Directory) -> Pools:
    """The old groups' states at the places they have among the later, otherwise empty ones."""
    states = {}
    for axes, empties in into.states.items():
        places = old.places_in(later, axes)
        states[axes] = tuple(
            tuple(
                empty.index_copy(0, places.to(empty.device), part[: len(places)])
                for empty, part in zip(state, known, strict=True)
            )
            for state, known in zip(empties, pools.states[axes], strict=True)
        )
    return Pools(states, pools.kept)


def _joined(memory: Memory, added: Features | None, observed: ExchangeableArray) -> Features | None:
    """The features of all members, known ones first."""
    if memory.features is None and added is None:
        return None
    known = memory.features or (None,) * observed.order
    new = added or (None,) * observed.order
    return tuple(_stacked(k, n) for k, n in zip(known, new, strict=True))


def _stacked(known: Tensor | None, new: Tensor | None) -> Tensor | None:
    parts: Sequence[Tensor] = [part for part in (known, new) if part is not None]
    return torch.cat(list(parts)) if parts else None
