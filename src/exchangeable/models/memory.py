"""Conditioning: observed cells become a memory of pools, from which any cell is predicted.

    condition        observed cells -> the pools of every layer
    read             memory + queried cells -> outputs, in chunks of any size
    extend           memory + new cells -> memory; cells observed before are not run again
    for_new_members  memory + the cells of new members -> memory to read these from, each alone
    predict_hidden   cells, some of which are hidden -> outputs for these, given the others
Observed cells write and queried cells only read, so a prediction depends on no other query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from torch import Generator, Tensor, nn

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.groups import GroupIndex
from exchangeable.arrays.support import Support
from exchangeable.models import checks
from exchangeable.models.extend import (
    append_features,
    extend_pools,
    new_members_group_index,
    read_new_members,
    replace_features,
)
from exchangeable.models.prior_channels import (
    PriorFunction,
    PriorValues,
    append_anchor,
    append_prior,
    check_prior_values,
    observed_prior_values,
)
from exchangeable.models.stream import Plan, Stream
from exchangeable.models.stream_backward import differentiable_outputs
from exchangeable.nn.layers import Layer
from exchangeable.nn.pools import Modules
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress

Encode = Callable[[Tensor], Tensor]
"""Makes the channels of cells from their values: (E, 1) -> (E, K)."""


@dataclass(frozen=True, eq=False)
class Memory:
    """All that a model keeps of a table: the pools of its layers, and no cell."""

    group_index: GroupIndex
    pools: tuple[Any, ...]
    """The pools of every layer; empty where the memory is only to be read."""
    readouts: tuple[Any, ...]
    """What cells read from the pools of every layer."""
    features: FeatureTensors | None = None
    prior: PriorFunction | None = None

    def __repr__(self) -> str:
        sizes = " x ".join(f"{size:,}" for size in self.shape)
        return f"Memory({sizes}, pools of {len(self.readouts)} layers)"

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of members, by axis."""
        return self.group_index.shape


class MemoryModel(nn.Module):
    """A stack of layers that is conditioned on observed cells and then predicts any cell.

    A queried cell starts from zeros at layer ``first_read``, where its own values first
    matter, and passes through the layers as observed cells do, except that it never writes.
    """

    layers: Modules[Layer[Any, Any]]
    first_read = 0
    prior_rank = 0
    """Rank of the factorization that cells start from; 0: none. Outputs carry its mean and
    deviation too."""
    comparison_budget = 0
    """Budget of the prior's neighbour comparison, table entries times compared members."""
    prior_reads_features = False
    """Whether features of members are read by the prior alone, and not by the layers."""
    prior_channels = 0
    """Channels that the prior gives for every cell, observed or not."""

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    @property
    def literal(self) -> bool:
        """Whether queries are pooled too, so that they cannot be predicted from a memory."""
        return False

    def grouped(self, cells: Support) -> Support:
        """Return the cells of a table with the groups that the layers pool by."""
        return cells.joint if self.layers[0].joint else cells

    def draw_dropout(self, like: Tensor, generator: Generator | None) -> list[Tensor | None]:
        """Draw the dropout mask of each layer; None where a layer drops nothing."""
        return [layer.draw_dropout(like, generator) for layer in self.layers]

    def condition(
        self,
        observed: ExchangeableArray,
        features: FeatureTensors | None = None,
        generator: Generator | None = None,
        *,
        encode: Encode | None = None,
        prior: PriorFunction | None = None,
        plan: Plan | None = None,
        processes: Processes = ALONE,
        progress: Progress = SILENT,
    ) -> Memory:
        """Run the observed cells through the model and keep the pools of every layer.

        ``features`` holds, for each axis, its members' features. In training ``generator``
        draws the channels to drop; the memory keeps the masks, and all that is read from it
        loses the same channels. ``encode`` makes channels of the values, a chunk of cells at a
        time, and ``prior`` adds its own. ``plan`` sets the size of chunks, ``processes`` share
        the work, and ``progress`` is reported to.
        """
        if torch.is_grad_enabled():
            if plan is not None or processes.size > 1:
                raise ValueError(
                    "a memory with gradients is of all cells at once: condition in parts under "
                    "torch.no_grad(), or train with predict_hidden"
                )
            plan = Plan(chunk_cells=max(len(observed), 1))
        index, in_parts = observed.support.index, processes.size > 1
        prior_values = observed_prior_values(prior, index, self.prior_channels, in_parts=in_parts)
        cells = self.grouped(observed.support)
        stream = self._stream(
            observed, cells, features, encode, prior_values, plan, processes, progress
        )
        stream.condition(generator)
        return Memory(
            cells.group_index, tuple(stream.pools), tuple(stream.readouts), features, prior
        )

    def predict_hidden(
        self,
        cells: ExchangeableArray,
        hidden: Tensor,
        features: FeatureTensors | None = None,
        generator: Generator | None = None,
        *,
        encode: Encode | None = None,
        prior_values: Tensor | None = None,
        plan: Plan | None = None,
        processes: Processes = ALONE,
    ) -> Tensor:
        """Predict the cells of the mask ``hidden``, given the values of the others: (Q, O).

        The outputs are those of ``forward`` on the two parts, but the cells are sorted once,
        however often others are hidden. With a ``plan``, activations are not kept for the
        backward pass, which is exact all the same. Each of several processes returns the
        outputs for its own share of the cells. ``prior_values`` (E, K) are the channels of all
        cells from a prior that was fitted without the hidden ones.
        """
        if self.literal:
            return self._predict_hidden_literal(
                cells, hidden, features, generator, encode, processes
            )
        support = self.grouped(cells.support).with_writers(~hidden)
        if plan is None and processes.size == 1:
            whole = Plan(chunk_cells=max(len(cells), 1))
            stream = self._stream(cells, support, features, encode, prior_values, whole, processes)
            stream.condition(generator, keep_for_backward=True)
            outputs = stream.outputs()
        else:
            stream = self._stream(cells, support, features, encode, prior_values, plan, processes)
            outputs = differentiable_outputs(stream, list(self.parameters()), generator)
        if prior_values is None:
            return outputs
        first, last = processes.share(len(cells))
        return append_anchor(outputs, prior_values[first:last][hidden[first:last]])

    def _predict_hidden_literal(
        self,
        cells: ExchangeableArray,
        hidden: Tensor,
        features: FeatureTensors | None,
        generator: Generator | None,
        encode: Encode | None,
        processes: Processes,
    ) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no literal form")

    def _stream(
        self,
        observed: ExchangeableArray,
        cells: Support,
        features: FeatureTensors | None,
        encode: Encode | None,
        prior_values: PriorValues | None,
        plan: Plan | None,
        processes: Processes,
        progress: Progress = SILENT,
    ) -> Stream:
        def start(values: Tensor) -> Tensor:
            return self.input_channels(values if encode is None else encode(values))

        first = start(observed.values[:1])
        if callable(prior_values):  # whose channels are checked as they come
            first = append_prior(first, first.new_zeros(len(first), self.prior_channels))
        else:
            check_prior_values(prior_values, len(cells), self.prior_channels)
            first = append_prior(first, None if prior_values is None else prior_values[:1])
        self.layers[0].check(first, cells)
        self.layers[0].check_features(features, cells.shape)
        return Stream(
            list(self.layers),
            cells,
            observed.values,
            start,
            prior_values=prior_values,
            features=features,
            plan=plan or Plan(),
            processes=processes,
            progress=progress,
        )

    def read(self, memory: Memory, queries: Support, chunk_size: int | None = None) -> Tensor:
        """Predict the queried cells, ``chunk_size`` at a time: (Q, O).

        A cell may be queried more than once, and may be one that was observed.
        """
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be 1 or more, but is {chunk_size}")
        checks.check_memory(memory.readouts, self.layers)
        checks.check_queries(queries, memory.shape, self.device)
        cells = queries.indexed_by(memory.group_index)
        # The prior is computed once: for many cells it takes little longer than for a few.
        prior_values = None if memory.prior is None else memory.prior(cells.index)
        size = chunk_size or max(len(queries), 1)
        prior_chunks = repeat(None) if prior_values is None else prior_values.split(size)
        chunks = zip(cells.split(size), prior_chunks, strict=False)
        return torch.cat([self._read_chunk(memory, *chunk) for chunk in chunks])

    def _read_chunk(self, memory: Memory, cells: Support, prior_values: Tensor | None) -> Tensor:
        weight = next(self.parameters())
        channels = self.layers[self.first_read].in_channels - self.prior_channels
        values = append_prior(weight.new_zeros(len(cells), channels), prior_values)
        steps = list(zip(self.layers, memory.readouts, strict=True))
        for layer, readout in steps[self.first_read :]:
            values = layer.read(values, cells, readout)
        return append_anchor(values, prior_values)

    def extend(
        self,
        memory: Memory,
        observed: ExchangeableArray,
        features: FeatureTensors | None = None,
        *,
        prior: PriorFunction | None = None,
    ) -> Memory:
        """Add new members, or new cells of known ones, from the new cells alone.

        ``observed`` holds the new cells in an array of the new shape; new members come after
        the known ones on each axis, and ``features`` are those of the new members. The new
        cells read the old pools with themselves added, so that a column with a cell or two
        is treated as in training. Cells observed before are not run again: what new cells
        would have changed in them is left out. Members added in one call see one another.
        A memory holds no cells, so one that was observed before must not come again.
        ``prior`` takes the place of the memory's.
        """
        checks.check_memory(memory.readouts, self.layers)
        if not memory.pools:
            raise ValueError("the memory was made to be read only: it cannot be extended")
        checks.check_extension(observed, memory.shape)
        group_index = memory.group_index.extended(observed.support.index, observed.shape)
        all_features = append_features(memory.features, features, observed.order)
        cells = observed.support.indexed_by(group_index)
        values = self.start_cells(observed, cells, all_features, prior)
        pools, readouts = extend_pools(
            list(self.layers),
            memory.pools,
            memory.readouts,
            memory.group_index,
            cells,
            values,
            all_features,
        )
        return Memory(group_index, pools, readouts, all_features, prior)

    def for_new_members(
        self,
        memory: Memory,
        axis: int,
        observed: ExchangeableArray,
        features: FeatureTensors | None = None,
        *,
        prior: PriorFunction | None = None,
    ) -> Memory:
        """Return a memory for new members of ``axis``, each from its own cells alone.

        ``observed`` has as many members on that axis as are new. All pools but theirs stay as they
        are, and nothing is copied, however large they are: their cells read the pools of the other
        axes, to which ``extend`` would add them. So new members do not see one another. ``prior``
        is one that includes them.
        """
        checks.check_new_members(observed, axis, memory.shape, joint=self.layers[0].joint)
        checks.check_memory(memory.readouts, self.layers)
        group_index = new_members_group_index(memory.group_index, axis, observed.support)
        all_features = replace_features(memory.features, axis, features)
        cells = observed.support.indexed_by(group_index)
        values = self.start_cells(observed, cells, all_features, prior)
        readouts = read_new_members(
            list(self.layers), memory.readouts, axis, cells, values, all_features
        )
        return Memory(group_index, (), readouts, all_features, prior)

    def forward(
        self,
        observed: ExchangeableArray,
        queries: Support,
        features: FeatureTensors | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        """Predict ``queries`` given the observed cells, in one pass: (Q, O)."""
        return self.read(self.condition(observed, features, generator), queries)

    def input_channels(self, values: Tensor) -> Tensor:
        """Return the channels with which observed values (E, K) enter the first layer."""
        return values

    def start_cells(
        self,
        observed: ExchangeableArray,
        cells: Support,
        features: FeatureTensors | None,
        prior: PriorFunction | None,
    ) -> Tensor:
        """Return the values of new cells before the first layer, checked."""
        prior_values = None if prior is None else prior(cells.index)
        check_prior_values(prior_values, len(cells), self.prior_channels)
        values = append_prior(self.input_channels(observed.values), prior_values)
        self.layers[0].check(values, cells)
        self.layers[0].check_features(features, cells.shape)
        return values
