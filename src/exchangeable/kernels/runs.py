"""Cells sorted by group and cut into chunks: the work that one program of a kernel does."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 256
"""Cells of a chunk at most. Fewer make more partial results, more leave multiprocessors idle."""
BUNDLE = 64
"""Chunks of a bundle."""
PARTS = 512
"""Chunks of one group at most: one program adds them up. Larger groups have longer chunks."""


@dataclass(frozen=True, eq=False)
class Runs:
    """A grouping of cells, sorted once so that every kernel finds the cells of a group together.

    Chunk c holds the cells ``order[chunk_starts[c] : chunk_starts[c + 1]]``, all of one group,
    and group g the chunks from ``group_chunks[g]`` up to ``group_chunks[g + 1]``. An empty
    group has no chunk.

    >>> runs = Runs.of(torch.tensor([2, 0, 2]), 3)
    >>> runs.order.tolist(), runs.chunk_starts.tolist(), runs.group_chunks.tolist()
    ([1, 0, 2], [0, 1, 3], [0, 1, 1, 2])
    """

    ids: Tensor  # (E,) int32
    number: int
    order: Tensor  # (E,) int32
    is_sorted: bool
    """Whether ``order`` only counts, so that nothing need be looked up in it."""
    chunk_starts: Tensor  # (C + 1,) int32
    group_chunks: Tensor  # (G + 1,) int32
    most: int
    """The most chunks of one group."""
    bundles: Tensor  # (B + 1,) int32
    """The first chunk of every bundle: what all cells come to is made of these, in two steps."""
    all_bundles: Tensor  # (2,) int32
    """From 0 to B."""

    @property
    def chunks(self) -> int:
        return len(self.chunk_starts) - 1

    @classmethod
    def of(cls, ids: Tensor, number: int) -> Runs:
        """Sort the cells of groups ``ids``, each below ``number``. Waits for the device."""
        cells, device = len(ids), ids.device
        is_sorted = number == 1 or bool((ids[1:] >= ids[:-1]).all())
        order = torch.arange(cells, device=device) if is_sorted else ids.argsort(stable=True)
        sizes = ids.bincount(minlength=number)
        lengths = ((sizes + PARTS - 1) // PARTS).clamp(min=CHUNK)
        chunks = (sizes + lengths - 1) // lengths
        group_chunks = torch.cat([chunks.new_zeros(1), chunks.cumsum(0)])
        group = torch.arange(number, device=device).repeat_interleave(chunks)  # (C,)
        within = torch.arange(len(group), device=device) - group_chunks[group]
        starts = (sizes.cumsum(0) - sizes)[group] + within * lengths[group]
        every = torch.arange(0, len(group) + BUNDLE, BUNDLE, device=device)
        bundles = every.clamp(max=len(group)).int()
        return cls(
            ids=ids.int(),
            number=number,
            order=order.int(),
            is_sorted=is_sorted,
            chunk_starts=torch.cat([starts, starts.new_full((1,), cells)]).int(),
            group_chunks=group_chunks.int(),
            most=int(chunks.max()) if number else 0,
            bundles=bundles,
            all_bundles=torch.tensor([0, len(bundles) - 1], dtype=torch.int32, device=device),
        )
