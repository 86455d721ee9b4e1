"""Conditioning: observed cells become a memory of pools, and any cell is answered from it.

    condition   observed cells -> the pools of every layer
    read        memory + queried cells -> answers, in chunks of any size
    extend      memory + the cells of new members -> memory; nothing old is recomputed

Observed cells write and queried cells only read, so an answer depends on no other query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from exchangeable.array import ExchangeableArray, Support
from exchangeable.groups import Directory
from exchangeable.layers import Features, Layer
from exchangeable.pools import Modules

_ON_A_GPU = 2**23
_TOGETHER = 2**14
"""Cells that pass through a layer together when nothing has to be kept for a gradient."""


@dataclass(frozen=True, eq=False)
class Memory:
    """All that a model needs to keep of a table: the pools of its layers, and no cell."""

    directory: Directory
    pools: tuple[Any, ...]
    features: Features | None = None

    def __repr__(self) -> str:
        sizes = " x ".join(f"{size:,}" for size in self.shape)
        return f"Memory({sizes}, pools of {len(self.pools)} layers)"

    @property
    def shape(self) -> tuple[int, ...]:
        """How many members each axis has."""
        return self.directory.shape


class MemoryModel(nn.Module):
    """A stack of layers that is conditioned on observed cells and then answers any cell.

    A queried cell starts from zeros at layer ``first_read``, where its own values first
    matter, and passes through the layers as observed cells do, except that it never writes.
    """

    layers: Modules[Layer[Any]]
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
    ) -> Memory:
        """Run the observed cells through the model and keep the pools of every layer.

        ``features`` holds, for each axis, its members' features. In training ``generator``
        draws the channels to drop; the memory keeps them, and all that is read of it loses
        the same ones.
        """
        cells = observed.support
        values = self._start(observed, cells, features)
        parts = [(cells, values)]
        if not torch.is_grad_enabled() and not self.training:
            parts = _parted(cells, values)
        pools = [self._written(0, parts, generator)]
        for number, layer in enumerate(list(self.layers)[:-1]):  # the last answers queries only
            features_here = _first(number, features)
            for place, (some, own) in enumerate(parts):
                parts[place] = some, layer.read(own, some, pools[-1], features_here)
            pools.append(self._written(number + 1, parts, generator))
        return Memory(cells.directory, tuple(pools), features)

    def _written(
        self, number: int, parts: list[tuple[Support, Tensor]], generator: Generator | None
    ) -> Any:
        """The pools that a layer's cells write, part after part."""
        layer, pools = self.layers[number], None
        for some, own in parts:
            written = layer.write(own, some, generator)
            pools = written if pools is None else layer.merge(pools, written)
        return pools

    def read(self, memory: Memory, queries: Support, chunk_size: int | None = None) -> Tensor:
        """Answer the queried cells, ``chunk_size`` at a time: (Q, O).

        A cell may be asked more than once, and may be one that was observed.
        """
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be 1 or more, but is {chunk_size}")
        self._check_memory(memory)
        self._check_asked(queries, memory.shape)
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
        A memory does not know its cells: one that was observed before must not come again.
        """
        self._check_grown(observed, memory)
        directory = memory.directory.extended(observed.support.index, observed.shape)
        everyone = _joined(memory, features, observed)
        cells, pools = observed.support.numbered_by(directory), []
        values = self._start(observed, cells, everyone)
        for number, (layer, old) in enumerate(zip(self.layers, memory.pools, strict=True)):
            known = layer.moved(old, memory.directory, directory)
            pools.append(layer.merge(known, layer.write(values, cells)))
            if number < len(self.layers) - 1:
                values = layer.read(values, cells, pools[-1], _first(number, everyone))
        return Memory(directory, tuple(pools), everyone)

    def newcomer(
        self,
        memory: Memory,
        axis: int,
        observed: ExchangeableArray,
        features: Features | None = None,
    ) -> Memory:
        """A memory for one new member of ``axis``, number 0 there, from its own cells alone.

        It answers for that member as ``extend`` would, but nothing of the others on its axis
        is copied, however many they are.
        """
        directory = memory.directory.without(axis)
        known = None
        if memory.features is not None:
            known = tuple(
                f[:0] if a == axis and f is not None else f for a, f in enumerate(memory.features)
            )
        if observed.shape != directory.shape:
            raise ValueError(
                f"the cells of a new member of axis {axis} must come in an array of shape "
                f"{directory.shape}, but come in one of shape {observed.shape}"
            )
        pools = [
            layer.without(own, directory, axis)
            for layer, own in zip(self.layers, memory.pools, strict=True)
        ]
        return self.extend(Memory(directory, tuple(pools), known), observed, features)

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

    def _read_chunk(self, memory: Memory, index: Tensor) -> Tensor:
        cells = Support(index, memory.shape, memory.directory)
        weight = next(self.parameters())
        values = weight.new_zeros(len(index), self.layers[self.first_read].in_channels)
        steps = list(enumerate(zip(self.layers, memory.pools, strict=True)))
        for number, (layer, pools) in steps[self.first_read :]:
            values = layer.read(values, cells, pools, _first(number, memory.features))
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
        if len(memory.pools) != len(self.layers):
            raise ValueError(
                f"the memory must come from a model of {len(self.layers)} layers as this one, "
                f"but holds the pools of {len(memory.pools)}"
            )

    def _check_grown(self, observed: ExchangeableArray, memory: Memory) -> None:
        self._check_memory(memory)
        sizes = zip(observed.shape, memory.shape, strict=False)
        if observed.order != len(memory.shape) or any(new < known for new, known in sizes):
            raise ValueError(
                f"new cells must come in an array at least as large as the known one of shape "
                f"{memory.shape}, but come in one of shape {observed.shape}"
            )


def _parted(cells: Support, values: Tensor) -> list[tuple[Support, Tensor]]:
    """Cells in parts that stay in the cache, but are no fewer than the groups they write to.

    A GPU wants them all at once, as far as its memory goes.
    """
    size = _ON_A_GPU if cells.index.is_cuda else max(_TOGETHER, 2 * sum(cells.shape))
    pairs = zip(cells.index.split(size), values.split(size), strict=True)
    return [(Support(index, cells.shape, cells.directory), own) for index, own in pairs]


def _first(number: int, features: Features | None) -> Features | None:
    """Features of members enter at the first layer only."""
    return features if number == 0 else None


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
