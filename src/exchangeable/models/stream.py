"""Cells pass through a model some at a time, and what comes out is what all at once give.

Pools are sums over cells, so the pools of a layer are added up part by part; once they are
complete, every part goes on to the next layer. What has to be kept of the cells between two
layers is held in memory, or in a file, or computed again from the pools. Gradients are exact as
well: the backward pass goes from layer to layer, and in each from part to part.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.arrays.support import Support
from exchangeable.errors import Failed
from exchangeable.nn import pool_states
from exchangeable.nn.layers import Layer
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress

Keep = Literal["memory", "scratch", "recompute"]
T = TypeVar("T")

_ON_A_GPU = 2**23
_TOGETHER = 2**14
_REMEMBERED = 2**25
"""Cells whose parts are sorted once and not once per layer; sorted, a cell takes 50 bytes."""


@dataclass(frozen=True)
class Plan:
    """How cells pass through a model."""

    together: int | None = None
    """Cells at a time; none: as many as stay in the cache, or all of them on a GPU."""
    keep: Keep = "memory"
    """Where the cells wait between two layers: ``recompute`` is nowhere, which takes longer."""
    folder: Path | None = None
    """Where a scratch file is put; none: where temporary files go."""
    pools: bool = True
    """Whether pools are kept once what they offer is known: without, no cell can be added."""


class Stream:
    """The cells of a table on their way through the layers of a model."""

    def __init__(
        self,
        layers: Sequence[Layer[Any, Any]],
        cells: Support,
        values: Tensor,
        start: Callable[[Tensor], Tensor],
        *,
        known: Tensor | None = None,
        features: FeatureTensors | None = None,
        plan: Plan = Plan(),  # noqa: B008  # it is frozen
        processes: Processes = ALONE,
        progress: Progress = SILENT,
    ) -> None:
        self.layers, self.cells, self.values, self.start = layers, cells, values, start
        self.known = known
        self.features, self.plan, self.processes, self.progress = (
            features,
            plan,
            processes,
            progress,
        )
        first, last = processes.share(len(cells))
        size = plan.together or _together(cells)
        starts = range(first, max(last, first + 1), size)
        self.bounds = [(start, min(start + size, last)) for start in starts]
        self.pools: list[Any] = []
        self.offered: list[Any] = []
        self.waiting = _Waiting(plan, len(self.bounds))

    def part(self, number: int) -> Support:
        """Some of the cells."""
        return self.cells.part(*self.bounds[number], remember=len(self.cells) <= _REMEMBERED)

    def condition(
        self,
        generator: Generator | None = None,
        *,
        kept: Sequence[Tensor | None] | None = None,
        through: bool = False,
    ) -> None:
        """Work out the pools of all layers, and what they offer.

        ``kept`` are the channels that dropout leaves, where they were drawn before. With
        ``through``, what the cells are at every layer stays for a backward pass.
        """
        for level, layer in enumerate(self.layers):
            whole = None
            for number in range(len(self.bounds)):
                cells = self.part(number)
                own, part = layer.pooled(self._arrived(level, number), cells)
                self._wait(level, number, own, through=through)
                share = (level + (number + 1) / len(self.bounds)) / len(self.layers)
                self.progress.at(share, f"reading {len(self.cells):,} cells")
                if len(self.bounds) == 1 and self.processes.size == 1:
                    whole = part
                    continue
                if whole is None:
                    whole = pool_states.empty(layer.poolings, part, self.cells.group_index)
                pool_states.take_in(layer.poolings, whole, part, cells)
            assert whole is not None
            whole = _exchanged(layer, whole, self.processes)
            drawn = layer.draw(own, generator) if kept is None else kept[level]
            whole = whole._replace(kept=drawn)
            if self.plan.pools or through:
                self.pools.append(whole)
            self.offered.append(layer.offered(whole, _first(level, self.features)))

    def answers(self, *, everyone: bool = False) -> Tensor:
        """What the last layer gives for cells that only read, or for all: (Q, O)."""
        last = len(self.layers) - 1
        given = []
        for number in range(len(self.bounds)):
            cells = self.part(number)
            y = self.layers[last].read(self.at(last, number), cells, self.offered[last])
            given.append(y if everyone or cells.writers is None else y[~cells.writers])
        return torch.cat(given)

    def _arrived(self, level: int, number: int) -> Tensor:
        """What some cells are when they come to a layer for the first time."""
        if level == 0 or self.plan.keep == "recompute":
            return self.at(level, number)
        cells, before = self.part(number), self.at(level - 1, number)
        return self.layers[level - 1].read(before, cells, self.offered[level - 1])

    def _wait(self, level: int, number: int, own: Tensor, *, through: bool) -> None:
        """Put cells where they wait for the next layer, and for a backward pass."""
        first = level == 0 and not own.requires_grad  # what comes in is quickly made again
        if self.plan.keep == "recompute" or first:
            return
        if level < len(self.layers) - 1 or through:
            self.waiting.put(level, number, own)
        if not through:
            self.waiting.forget(level - 1, number)

    def at(self, level: int, number: int) -> Tensor:
        """What some cells are at a layer they came to before."""
        if self.waiting.has(level, number):
            return self.waiting.get(level, number).to(self.values.device)
        own, cells = self._started(number), self.part(number)
        for before in range(level):
            own = self.layers[before].read(own, cells, self.offered[before])
        return own

    def _started(self, number: int) -> Tensor:
        first, last = self.bounds[number]
        own = self.start(self.values[first:last])
        writers = self.part(number).writers
        if writers is not None:
            own = own * writers.unsqueeze(1).to(own.dtype)
        if self.known is None:
            return own
        # Of hidden cells nothing may be seen, but what is known of all cells.
        return torch.cat([own, self.known[first:last].to(own.dtype)], dim=1)


def answered(
    stream: Stream, parameters: Sequence[Tensor], generator: Generator | None = None
) -> Tensor:
    """What a stream's last layer gives for the cells that only read, with exact gradients."""
    gave: Tensor = _Answered.apply(stream, generator, *parameters)  # type: ignore[no-untyped-call]
    return gave


class _Answered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, stream: Stream, generator: Generator | None, *parameters: Tensor
    ) -> Tensor:
        ctx.stream, ctx.parameters, ctx.narrow = stream, parameters, _narrowing(stream.values)
        stream.condition(generator, through=True)
        return stream.answers()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        with ctx.narrow():
            found = _Backward(ctx.stream, ctx.parameters).run(gradient)
        return None, None, *found


class _Backward:
    """The backward pass of a stream: from the last layer to the first, part by part.

    A part's new values depend on what the pools offer, and the pools on all parts: so each layer
    goes through the parts twice, once for what was read and once for what was written.
    """

    def __init__(self, stream: Stream, parameters: Sequence[Tensor]) -> None:
        self.stream, self.parameters = stream, parameters
        self.gradients: dict[int, Tensor] = {}
        self.above = _Waiting(stream.plan, len(stream.bounds))

    def run(self, gradient: Tensor) -> list[Tensor | None]:
        """The gradient of each parameter, of the cells of this process."""
        stream, parts = self.stream, range(len(self.stream.bounds))
        outer = _by_part(gradient, [stream.part(number) for number in parts])
        for level in reversed(range(len(stream.layers))):
            layer, whole = stream.layers[level], stream.pools[level]
            own = [w for w in self.parameters if w.requires_grad and _is_of(w, layer)]
            poolings = layer.poolings
            sums = [part.detach().requires_grad_() for part in pool_states.sums(poolings, whole)]
            leaves = pool_states.with_sums(poolings, whole, sums)
            offered = layer.offered(leaves, _first(level, stream.features))
            flat = [row for row in tensors_in(offered) if row.requires_grad]
            copies = [row.detach().requires_grad_() for row in flat]
            read = _replaced(offered, dict(zip(map(id, flat), copies, strict=True)))
            totals = [torch.zeros_like(row) for row in flat]
            for number in parts:
                below = self._below(level, number)
                y = layer.read(below, stream.part(number), read)
                wanted = ([below] if level > 0 else []) + copies + own
                given = outer[number] if outer else self.above.get(level + 1, number).to(y.device)
                found = _gradients([y], wanted, [given.to(y.dtype)])
                if level > 0:
                    self.above.put(level, number, _or_zeros(found[0], below))
                    self.above.forget(level + 1, number)
                    found = found[1:]
                for total, more in zip(totals, found, strict=False):
                    if more is not None:
                        total.add_(more)
                self._note(own, found[len(copies) :])
            outer = []
            found = _gradients(flat, sums + own, totals)
            self._note(own, found[len(sums) :])
            written = [_or_zeros(f, s) for f, s in zip(found[: len(sums)], sums, strict=True)]
            written = stream.processes.summed(written)
            if level > 0 or own:
                self._through_pools(level, written, own)
        return [self.gradients.get(id(weight)) for weight in self.parameters]

    def _through_pools(self, level: int, written: list[Tensor], own: list[Tensor]) -> None:
        """On from the gradients of pools to the cells that wrote them."""
        stream, layer = self.stream, self.stream.layers[level]
        poolings = layer.poolings
        for number in range(len(stream.bounds)):
            below = self._below(level, number)
            cells = stream.part(number)
            _, part = layer.pooled(below, cells)
            shares = pool_states.aligned(poolings, part, stream.pools[level], cells)
            near = pool_states.windows(poolings, written, cells)
            pairs = zip(pool_states.sums(poolings, shares), near, strict=True)
            some = [(share, g) for share, g in pairs if share.requires_grad]
            if not some:
                continue
            wanted = ([below] if level > 0 else []) + own
            found = _gradients([share for share, _ in some], wanted, [g for _, g in some])
            if level > 0:
                known = self.above.get(level, number).to(below.device)
                self.above.put(level, number, known + _or_zeros(found[0], below))
                found = found[1:]
            self._note(own, found)

    def _below(self, level: int, number: int) -> Tensor:
        """What some cells were when they came to a layer."""
        with torch.no_grad():
            below = self.stream.at(level, number)
        return below.detach().requires_grad_(level > 0)

    def _note(self, weights: Sequence[Tensor], found: Sequence[Tensor | None]) -> None:
        for weight, gradient in zip(weights, found, strict=True):
            if gradient is not None:
                known = self.gradients.get(id(weight))
                self.gradients[id(weight)] = gradient if known is None else known + gradient


@dataclass
class _Waiting:
    """What cells are between two layers, in memory or in a file for each layer."""

    plan: Plan
    parts: int
    held: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    files: dict[int, IO[bytes]] = field(default_factory=dict)
    places: dict[tuple[int, int], tuple[int, torch.Size, torch.dtype]] = field(default_factory=dict)

    def put(self, level: int, number: int, own: Tensor) -> None:
        if self.plan.keep != "scratch":
            self.held[level, number] = own
            return
        if level not in self.files:
            folder = self.plan.folder
            # Closed when nobody will ask again; it has no name, so it never outlives the process.
            self.files[level] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        # As bytes: numpy knows no bfloat16.
        content = own.detach().cpu().contiguous().view(torch.uint8).numpy()
        file = self.files[level]
        known = self.places.get((level, number))
        start = file.seek(0, 2) if known is None else known[0]
        if known is None and content.size:
            self._reserve(file, start, content.size)
        self.places[level, number] = start, own.shape, own.dtype
        if content.size:
            mapped = np.memmap(file, np.uint8, "r+", start, content.shape)
            mapped[:] = content

    def _reserve(self, file: IO[bytes], start: int, size: int) -> None:
        """Take the room before it is mapped: writing to a full disk by memory ends the process."""
        try:
            os.posix_fallocate(file.fileno(), start, size)
        except OSError as error:
            folder = self.plan.folder or tempfile.gettempdir()
            raise Failed(
                f"no room for the scratch file in {folder} ({error.strerror}): set TMPDIR to a "
                f"folder that has some"
            ) from None

    def has(self, level: int, number: int) -> bool:
        return (level, number) in self.held or (level, number) in self.places

    def get(self, level: int, number: int) -> Tensor:
        if self.plan.keep != "scratch":
            return self.held[level, number]
        start, shape, dtype = self.places[level, number]
        size = shape.numel() * dtype.itemsize
        if not size:
            return torch.empty(shape, dtype=dtype)
        # A copy, so that what is mapped is let go of at once and never adds up.
        content = np.array(np.memmap(self.files[level], np.uint8, "r", start, (size,)))
        return torch.from_numpy(content).view(dtype).view(shape)

    def __del__(self) -> None:
        for file in self.files.values():
            file.close()

    def forget(self, level: int, number: int) -> None:
        """Let go of what nobody will ask for again."""
        self.held.pop((level, number), None)
        if self.places.pop((level, number), None) is None:
            return
        if level in self.files and number == self.parts - 1:
            self.files.pop(level).close()


def _exchanged(layer: Layer[Any, Any], pools: T, processes: Processes) -> T:
    """The pools of the cells of all processes."""
    if processes.size == 1:
        return pools
    poolings = layer.poolings
    peaks = processes.largest(pool_states.peaks(poolings, pools))  # type: ignore[arg-type]
    lifted = pool_states.raised(poolings, pools, peaks)  # type: ignore[arg-type]
    total = processes.summed(pool_states.sums(poolings, lifted))
    return pool_states.with_sums(poolings, lifted, total)  # type: ignore[return-value]


def _together(cells: Support) -> int:
    """Cells that stay in the cache, but are no fewer than the groups they meet.

    A GPU wants them all at once, as far as its memory goes.
    """
    if cells.index.is_cuda:
        return _ON_A_GPU
    # Cells in order of their first axis meet few of its members at a time.
    return max(_TOGETHER, 4 * sum(cells.shape[1:]))


def _by_part(gradient: Tensor, parts: Sequence[Support]) -> list[Tensor]:
    """A gradient of the cells that only read, as one of all cells, part by part."""
    sizes = [len(p) if p.writers is None else int((~p.writers).sum()) for p in parts]
    given = []
    for part, own in zip(parts, gradient.split(sizes), strict=True):
        if part.writers is None:
            given.append(own)
        else:
            spacious = own.new_zeros(len(part), own.shape[1])
            spacious[~part.writers] = own
            given.append(spacious)
    return given


def _gradients(
    outputs: Sequence[Tensor], wanted: Sequence[Tensor], given: Sequence[Tensor]
) -> list[Tensor | None]:
    if not outputs or not wanted:
        return [None] * len(wanted)
    return list(torch.autograd.grad(outputs, wanted, given, allow_unused=True))


def _or_zeros(found: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if found is None else found


def _is_of(weight: Tensor, layer: Layer[Any, Any]) -> bool:
    return any(weight is own for own in layer.parameters())


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples and mappings."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        for branch in tree.values():
            yield from tensors_in(branch)
    elif isinstance(tree, tuple):
        for branch in tree:
            yield from tensors_in(branch)


def _replaced(tree: Any, others: dict[int, Tensor]) -> Any:
    """The same with other tensors in the places of some."""
    if isinstance(tree, Tensor):
        return others.get(id(tree), tree)
    if isinstance(tree, dict):
        return {key: _replaced(branch, others) for key, branch in tree.items()}
    if isinstance(tree, tuple):
        branches = [_replaced(branch, others) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)
    return tree


def _first(level: int, features: FeatureTensors | None) -> FeatureTensors | None:
    """Features of members enter at the first layer only."""
    return features if level == 0 else None


def _narrowing(values: Tensor) -> Callable[[], AbstractContextManager[Any]]:
    """Gradients, in the precision of the forward pass."""
    device = values.device.type
    narrow = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if narrow else None

    @contextmanager
    def again() -> Iterator[None]:
        inner = torch.autocast(device, dtype=dtype) if narrow else nullcontext()
        with torch.enable_grad(), inner:
            yield

    return again
