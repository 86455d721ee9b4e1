"""A forward pass over a table in chunks of cells, equal to one over all cells at once.

Pools are sums over cells, so the pools of a layer are added up chunk by chunk; once they are
complete, every chunk goes on to the next layer. Activations between two layers are kept in
memory, in a scratch file, or computed again from the pools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.support import Support
from exchangeable.models.prior_channels import PriorValues
from exchangeable.models.scratch import ActivationStore, Storage
from exchangeable.nn import pool_states
from exchangeable.nn.layers import Layer
from exchangeable.runtime.devices import release_memory
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.threads import run_all

T = TypeVar("T")

CHUNKS_AT_A_TIME = 4
"""Chunks of cells that pass through a layer at a time, on several cores; what they write to pools
waits until all are done."""

GPU_CHUNK_CELLS = 2**23
MIN_CHUNK_CELLS = 2**14
MAX_SORTED_CELLS = 2**25
"""Largest table whose chunks are sorted once, not once per layer; sorted, a cell takes 50 bytes."""


@dataclass(frozen=True)
class Plan:
    """How the cells of a table pass through a model."""

    chunk_cells: int | None = None
    """Cells per chunk; None: as many as stay in the cache, or all of them on a GPU."""
    activations: Storage = "memory"
    """Storage of activations between two layers; ``recompute`` stores none and takes longer."""
    prior: Storage = "memory"
    """Storage of a prior's channels until the first layer was read."""
    folder: Path | None = None
    """Folder of the scratch files; None: the one of temporary files."""
    keep_pools: bool = True
    """Whether pools are kept once they were read out; without them no cell can be added."""


class Stream:
    """One forward pass of the cells of a table through the layers of a model."""

    def __init__(
        self,
        layers: Sequence[Layer[Any, Any]],
        cells: Support,
        values: Tensor,
        start: Callable[[Tensor], Tensor],
        *,
        prior_values: PriorValues | None = None,
        features: FeatureTensors | None = None,
        plan: Plan = Plan(),  # noqa: B008  # it is frozen
        processes: Processes = ALONE,
        progress: Progress = SILENT,
    ) -> None:
        """Prepare a pass of ``cells``; ``start`` turns their ``values`` into input channels.

        ``prior_values`` are further channels of all cells (E, K), or a function that computes those
        of a slice of the cells.
        """
        self.layers, self.cells, self.values, self.start = layers, cells, values, start
        self.prior_values, self.features = prior_values, features
        self.plan, self.processes, self.progress = plan, processes, progress
        first, last = processes.share(len(cells))
        size = plan.chunk_cells or _default_chunk_cells(cells)
        starts = range(first, max(last, first + 1), size)
        self.bounds = [(start, min(start + size, last)) for start in starts]
        self.pools: list[Any] = []
        self.readouts: list[Any] = []
        self.store = ActivationStore(plan.activations, len(self.bounds), plan.folder)
        self.prior_store = ActivationStore(plan.prior, len(self.bounds), plan.folder)

    def cells_in(self, chunk: int) -> Support:
        """Return the cells of one chunk."""
        return self.cells.part(*self.bounds[chunk], remember=len(self.cells) <= MAX_SORTED_CELLS)

    def condition(
        self,
        generator: Generator | None = None,
        *,
        dropout_masks: Sequence[Tensor | None] | None = None,
        keep_for_backward: bool = False,
    ) -> None:
        """Compute the pools and the readouts of all layers.

        ``dropout_masks`` are used where they were drawn before. With ``keep_for_backward`` the
        activations at every layer stay.
        """
        many = len(self.bounds) > CHUNKS_AT_A_TIME and not self.values.is_cuda
        if many and self.plan.activations == "memory" and not keep_for_backward:
            self.store.reused = self.prior_store.reused = self._reserve()
        for level, layer in enumerate(self.layers):
            if many:  # what threads freed at the layer before has gaps between what is kept
                release_memory(self.values.device)
            total = None
            for chunk, (values, pools) in enumerate(self._pool_chunks(level)):
                self._keep(level, chunk, values, for_backward=keep_for_backward)
                share = (level + (chunk + 1) / len(self.bounds)) / len(self.layers)
                self.progress.at(share, f"reading {len(self.cells):,} cells")
                if len(self.bounds) == 1 and self.processes.size == 1:
                    total = pools
                    continue
                if total is None:
                    total = pool_states.empty(layer.poolings, pools, self.cells.group_index)
                pool_states.accumulate(layer.poolings, total, pools, self.cells_in(chunk))
            assert total is not None
            total = _sum_over_processes(layer, total, self.processes)
            if dropout_masks is None:
                mask = layer.draw_dropout(values, generator)
            else:
                mask = dropout_masks[level]
            total = total._replace(dropout_mask=mask)
            if self.plan.keep_pools or keep_for_backward:
                self.pools.append(total)
            self.readouts.append(layer.readout(total, features_at(level, self.features)))

    def _reserve(self) -> list[Tensor]:
        """Reserve memory for the activations of each chunk at any layer."""
        width = max(layer.in_channels for layer in self.layers)
        sizes = [width * (last - first) for first, last in self.bounds]
        return list(torch.empty(sum(sizes)).split(sizes))

    def _pool_chunks(self, level: int) -> Iterator[tuple[Tensor, Any]]:
        """Yield the values of each chunk at a layer, and their pools; some chunks at a time."""
        tasks = [partial(self._pool_chunk, level, chunk) for chunk in range(len(self.bounds))]
        for first in range(0, len(tasks), CHUNKS_AT_A_TIME):
            some = tasks[first : first + CHUNKS_AT_A_TIME]
            yield from run_all(some, len(self.cells), self.cells.index.device)

    def _pool_chunk(self, level: int, chunk: int) -> tuple[Tensor, Any]:
        values = self._enter(level, chunk)
        features = features_at(level, self.features)
        return self.layers[level].pool_cells(values, self.cells_in(chunk), features)

    def outputs(self, *, all_cells: bool = False) -> Tensor:
        """Return the last layer's outputs for cells that only read, or for all: (Q, O)."""
        last = len(self.layers) - 1
        outputs = []
        for chunk in range(len(self.bounds)):
            cells = self.cells_in(chunk)
            y = self.layers[last].read(self.activations(last, chunk), cells, self.readouts[last])
            outputs.append(y if all_cells or cells.writers is None else y[~cells.writers])
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def activations(self, level: int, chunk: int) -> Tensor:
        """Return a chunk's activations before a layer that it has entered."""
        if self.store.has(level, chunk):
            return self.store.get(level, chunk).to(self.values.device)
        values, cells = self._inputs(chunk), self.cells_in(chunk)
        for before in range(level):
            values = self.layers[before].read(values, cells, self.readouts[before])
        return values

    def _enter(self, level: int, chunk: int) -> Tensor:
        """Compute a chunk's activations when it enters a layer for the first time."""
        if level == 0 or self.plan.activations == "recompute":
            return self.activations(level, chunk)
        cells, before = self.cells_in(chunk), self.activations(level - 1, chunk)
        return self.layers[level - 1].read(before, cells, self.readouts[level - 1])

    def _keep(self, level: int, chunk: int, values: Tensor, *, for_backward: bool) -> None:
        """Store a chunk's activations for the next layer, and for a backward pass."""
        if level == 0 and callable(self.prior_values) and self.plan.prior != "recompute":
            own = self.start(self.values[:1]).shape[1]
            self.prior_store.put(0, chunk, values[:, own:].clone())
        is_input = level == 0 and not values.requires_grad  # inputs are quickly made again
        if self.plan.activations == "recompute" or is_input:
            return
        if level < len(self.layers) - 1 or for_backward:
            self.store.put(level, chunk, values)
        if not for_backward:
            self.store.drop(level - 1, chunk)
            if level > 0:
                self.prior_store.drop(0, chunk)

    def _inputs(self, chunk: int) -> Tensor:
        first, last = self.bounds[chunk]
        values = self.start(self.values[first:last])
        writers = self.cells_in(chunk).writers
        if writers is not None:
            values = values * writers.unsqueeze(1).to(values.dtype)
        if self.prior_values is None:
            return values
        # Values of hidden cells must not be visible, but the prior is known of all cells.
        return torch.cat([values, self._prior_of(chunk).to(values)], dim=1)

    def _prior_of(self, chunk: int) -> Tensor:
        """Return the prior's channels of a chunk."""
        cells = slice(*self.bounds[chunk])
        if isinstance(self.prior_values, Tensor):
            return self.prior_values[cells]
        assert self.prior_values is not None
        if self.prior_store.has(0, chunk):
            return self.prior_store.get(0, chunk)
        return self.prior_values(cells)


def _sum_over_processes(layer: Layer[Any, Any], pools: T, processes: Processes) -> T:
    """Return the pools of the cells of all processes."""
    if processes.size == 1:
        return pools
    poolings = layer.poolings
    peaks = processes.all_max(pool_states.peaks(poolings, pools))  # type: ignore[arg-type]
    raised = pool_states.raise_peaks(poolings, pools, peaks)  # type: ignore[arg-type]
    sums = processes.all_sum(pool_states.sums(poolings, raised))
    return pool_states.with_sums(poolings, raised, sums)  # type: ignore[return-value]


def _default_chunk_cells(cells: Support) -> int:
    """Return a number of cells that stay in the cache, but no fewer than the groups they meet.

    On a GPU all cells at once are fastest, as far as its memory goes.
    """
    if cells.index.is_cuda:
        return GPU_CHUNK_CELLS
    # Cells in order of their first axis meet few of its members at a time.
    return max(MIN_CHUNK_CELLS, 4 * sum(cells.shape[1:]))


def features_at(level: int, features: FeatureTensors | None) -> FeatureTensors | None:
    """Return the features that a layer takes: features of members enter at the first one only."""
    return features if level == 0 else None
