"""The backward pass of a stream, exact: from the last layer to the first, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Generator, Tensor

from exchangeable.arrays.support import Support
from exchangeable.models.scratch import ActivationStore
from exchangeable.models.stream import Stream, features_at
from exchangeable.nn import pool_states
from exchangeable.nn.layers import Layer


def differentiable_outputs(
    stream: Stream, parameters: Sequence[Tensor], generator: Generator | None = None
) -> Tensor:
    """Condition a stream and return its outputs for cells that only read, with gradients."""
    outputs: Tensor = _StreamOutputs.apply(  # type: ignore[no-untyped-call]
        stream, generator, *parameters
    )
    return outputs


class _StreamOutputs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, stream: Stream, generator: Generator | None, *parameters: Tensor
    ) -> Tensor:
        ctx.stream, ctx.parameters = stream, parameters
        ctx.with_gradients = _gradients_in_same_precision(stream.values)
        stream.condition(generator, keep_for_backward=True)
        return stream.outputs()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        with ctx.with_gradients():
            gradients = _Backward(ctx.stream, ctx.parameters).run(gradient)
        return None, None, *gradients


class _Backward:
    """The gradients of the parameters of a stream's layers.

    A chunk's new values depend on the readouts, and these on the pools of all chunks: so each
    layer goes through the chunks twice, once for what was read and once for what was written.
    """

    def __init__(self, stream: Stream, parameters: Sequence[Tensor]) -> None:
        self.stream, self.parameters = stream, parameters
        self.gradients: dict[int, Tensor] = {}
        plan = stream.plan
        # Gradients of the activations before a layer.
        self.above = ActivationStore(plan.activations, len(stream.bounds), plan.folder)

    def run(self, gradient: Tensor) -> list[Tensor | None]:
        """Return the gradient of each parameter, from the cells of this process."""
        stream, chunks = self.stream, range(len(self.stream.bounds))
        outer = _split_by_chunk(gradient, [stream.cells_in(chunk) for chunk in chunks])
        for level in reversed(range(len(stream.layers))):
            layer = stream.layers[level]
            weights = [w for w in self.parameters if w.requires_grad and _belongs_to(w, layer)]
            written = self._through_readout(level, outer, weights)
            outer = []  # from here on the gradients are in self.above
            if level > 0 or weights:
                self._through_pools(level, written, weights)
        return [self.gradients.get(id(weight)) for weight in self.parameters]

    def _through_readout(
        self, level: int, outer: list[Tensor], weights: list[Tensor]
    ) -> list[Tensor]:
        """Pass gradients from a layer's outputs to its inputs; return those of the pools' sums."""
        stream, layer = self.stream, self.stream.layers[level]
        poolings, total = layer.poolings, stream.pools[level]
        sums = [part.detach().requires_grad_() for part in pool_states.sums(poolings, total)]
        leaves = pool_states.with_sums(poolings, total, sums)
        readout = layer.readout(leaves, features_at(level, stream.features))
        rows = [row for row in tensors_in(readout) if row.requires_grad]
        copies = [row.detach().requires_grad_() for row in rows]
        copied = _replace_tensors(readout, dict(zip(map(id, rows), copies, strict=True)))
        row_gradients = [torch.zeros_like(row) for row in rows]
        for chunk in range(len(stream.bounds)):
            below = self._below(level, chunk)
            y = layer.read(below, stream.cells_in(chunk), copied)
            inputs = ([below] if level > 0 else []) + copies + weights
            above = outer[chunk] if outer else self.above.get(level + 1, chunk).to(y.device)
            gradients = _gradients([y], inputs, [above.to(y.dtype)])
            if level > 0:
                self.above.put(level, chunk, _or_zeros(gradients[0], below))
                self.above.drop(level + 1, chunk)
                gradients = gradients[1:]
            for row_gradient, more in zip(row_gradients, gradients, strict=False):
                if more is not None:
                    row_gradient.add_(more)
            self._add(weights, gradients[len(copies) :])
        gradients = _gradients(rows, sums + weights, row_gradients)
        self._add(weights, gradients[len(sums) :])
        pairs = zip(gradients[: len(sums)], sums, strict=True)
        return stream.processes.all_sum([_or_zeros(gradient, like) for gradient, like in pairs])

    def _through_pools(self, level: int, written: list[Tensor], weights: list[Tensor]) -> None:
        """Pass the gradients of pools on to the cells that wrote them."""
        stream, layer = self.stream, self.stream.layers[level]
        poolings = layer.poolings
        for chunk in range(len(stream.bounds)):
            below = self._below(level, chunk)
            cells = stream.cells_in(chunk)
            _, pools = layer.pool_cells(below, cells, features_at(level, stream.features))
            shares = pool_states.align(poolings, pools, stream.pools[level], cells)
            local = pool_states.slice_groups(poolings, written, cells)
            pairs = zip(pool_states.sums(poolings, shares), local, strict=True)
            pairs_with_gradient = [(share, g) for share, g in pairs if share.requires_grad]
            if not pairs_with_gradient:
                continue
            outputs, above = zip(*pairs_with_gradient, strict=True)
            gradients = _gradients(outputs, ([below] if level > 0 else []) + weights, above)
            if level > 0:
                read = self.above.get(level, chunk).to(below.device)
                self.above.put(level, chunk, read + _or_zeros(gradients[0], below))
                gradients = gradients[1:]
            self._add(weights, gradients)

    def _below(self, level: int, chunk: int) -> Tensor:
        """Return a chunk's activations before a layer, as a leaf of autograd."""
        with torch.no_grad():
            below = self.stream.activations(level, chunk)
        return below.detach().requires_grad_(level > 0)

    def _add(self, weights: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        for weight, gradient in zip(weights, gradients, strict=True):
            if gradient is not None:
                total = self.gradients.get(id(weight))
                self.gradients[id(weight)] = gradient if total is None else total + gradient


def _split_by_chunk(gradient: Tensor, chunks: Sequence[Support]) -> list[Tensor]:
    """Split a gradient of the cells that only read into one of all cells for each chunk."""
    sizes = [len(c) if c.writers is None else int((~c.writers).sum()) for c in chunks]
    split = []
    for chunk, of_readers in zip(chunks, gradient.split(sizes), strict=True):
        if chunk.writers is None:
            split.append(of_readers)
        else:
            of_all = of_readers.new_zeros(len(chunk), of_readers.shape[1])
            of_all[~chunk.writers] = of_readers
            split.append(of_all)
    return split


def _gradients(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], gradients: Sequence[Tensor]
) -> list[Tensor | None]:
    if not outputs or not inputs:
        return [None] * len(inputs)
    return list(torch.autograd.grad(outputs, inputs, gradients, allow_unused=True))


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def _belongs_to(weight: Tensor, layer: Layer[Any, Any]) -> bool:
    return any(weight is parameter for parameter in layer.parameters())


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """Yield all tensors in nested tuples and mappings."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        for branch in tree.values():
            yield from tensors_in(branch)
    elif isinstance(tree, tuple):
        for branch in tree:
            yield from tensors_in(branch)


def _replace_tensors(tree: Any, others: dict[int, Tensor]) -> Any:
    """Copy nested tuples and mappings with some tensors replaced, by their ids."""
    if isinstance(tree, Tensor):
        return others.get(id(tree), tree)
    if isinstance(tree, dict):
        return {key: _replace_tensors(branch, others) for key, branch in tree.items()}
    if isinstance(tree, tuple):
        branches = [_replace_tensors(branch, others) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)
    return tree


def _gradients_in_same_precision(values: Tensor) -> Callable[[], AbstractContextManager[Any]]:
    """Return a context that computes gradients in the precision of the forward pass."""
    device = values.device.type
    is_narrow = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if is_narrow else None

    @contextmanager
    def context() -> Iterator[None]:
        precision = torch.autocast(device, dtype=dtype) if is_narrow else nullcontext()
        with torch.enable_grad(), precision:
            yield

    return context
