"""Cells sorted by group and cut into chunks, each the work of one program of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

CELLS_PER_CHUNK = 256
"""Fewer make more partial results, more leave multiprocessors idle."""
CHUNKS_PER_BUNDLE = 64
MAX_CHUNKS_PER_GROUP = 512
"""One program adds up the chunks of a group. Larger groups have longer chunks."""


@dataclass(frozen=True, eq=False)
class Runs:
    """A grouping of cells, sorted once so that every kernel finds the cells of a group together.

    Chunk c holds the cells ``permutation[chunk_starts[c] : chunk_starts[c + 1]]``, all of one
    group, and group g the chunks from ``group_chunks[g]`` up to ``group_chunks[g + 1]``. An
    empty group has no chunk.

    >>> runs = Runs.of(torch.tensor([2, 0, 2]), 3)
    >>> runs.permutation.tolist(), runs.chunk_starts.tolist(), runs.group_chunks.tolist()
    ([1, 0, 2], [0, 1, 3], [0, 1, 1, 2])
    """

    ids: Tensor  # (E,) int32
    number: int
    permutation: Tensor  # (E,) int32
    is_sorted: bool
    """Whether ``permutation`` is the identity, so that nothing need be looked up in it."""
    chunk_starts: Tensor  # (C + 1,) int32
    group_chunks: Tensor  # (G + 1,) int32
    max_chunks: int
    """The largest number of chunks of one group."""
    bundles: Tensor  # (B + 1,) int32
    """The first chunk of every bundle: sums over all cells are made of these, in two steps."""
    all_bundles: Tensor  # (2,) int32
    """The bounds 0 and B."""

    @property
    def chunks(self) -> int:
        return len(self.chunk_starts) - 1

    def count(self, writers: Tensor) -> Tensor:
        """Count the cells of a mask in each group: (E,) -> (G,)."""
        chosen = writers if self.is_sorted else writers.index_select(0, self.permutation)
        before = functional.pad(chosen.cumsum(0), (1, 0))
        starts = self.chunk_starts.index_select(0, self.group_chunks)
        return before.index_select(0, starts).diff()

    @classmethod
    def of(cls, ids: Tensor, number: int) -> Runs:
        """Sort the cells of groups ``ids``, each below ``number``. Synchronizes with the device."""
        cells, device = len(ids), ids.device
        is_sorted = number == 1 or bool((ids[1:] >= ids[:-1]).all())
        permutation = torch.arange(cells, device=device) if is_sorted else ids.argsort(stable=True)
        sizes = ids.bincount(minlength=number)
        lengths = ((sizes + MAX_CHUNKS_PER_GROUP - 1) // MAX_CHUNKS_PER_GROUP).clamp(
            min=CELLS_PER_CHUNK
        )
        chunks = (sizes + lengths - 1) // lengths
        group_chunks = torch.cat([chunks.new_zeros(1), chunks.cumsum(0)])
        group = torch.arange(number, device=device).repeat_interleave(chunks)  # (C,)
        within = torch.arange(len(group), device=device) - group_chunks[group]
        starts = (sizes.cumsum(0) - sizes)[group] + within * lengths[group]
        first = torch.arange(0, len(group) + CHUNKS_PER_BUNDLE, CHUNKS_PER_BUNDLE, device=device)
        bundles = first.clamp(max=len(group)).int()
        return cls(
            ids=ids.int(),
            number=number,
            permutation=permutation.int(),
            is_sorted=is_sorted,
            chunk_starts=torch.cat([starts, starts.new_full((1,), cells)]).int(),
            group_chunks=group_chunks.int(),
            max_chunks=int(chunks.max()) if number else 0,
            bundles=bundles,
            all_bundles=torch.tensor([0, len(bundles) - 1], dtype=torch.int32, device=device),
        )
