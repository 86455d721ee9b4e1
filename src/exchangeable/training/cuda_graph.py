"""Training steps captured as CUDA graphs: thousands of small launches become two.

A step over a whole table does the same things every time; only which cells are hidden and which
channels are dropped differ, and these are inputs. Launched one by one, the small products of a
step take longer to start than to run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Generator, Tensor, nn

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.models.memory import Encode, MemoryModel
from exchangeable.models.paper import PaperModel
from exchangeable.models.prior_channels import append_anchor
from exchangeable.models.stream import Plan, Stream
from exchangeable.nn.pools import LeastSquaresPool
from exchangeable.nn.segments import has_kernels

Autocast = Callable[[], AbstractContextManager[Any]]


def can_capture(model: MemoryModel, cells: ExchangeableArray) -> bool:
    """Return whether a step on these cells can be captured: on a GPU, without synchronisation."""
    solving = any(isinstance(module, LeastSquaresPool) for module in model.modules())
    small = cells.values.new_zeros(1, 1, dtype=torch.float32)
    return not solving and has_kernels(small)


class CapturedStep:
    """``MemoryModel.predict_hidden`` of one table, for any mask."""

    def __init__(
        self,
        model: MemoryModel,
        cells: ExchangeableArray,
        features: FeatureTensors | None,
        encode: Encode,
        autocast: Autocast,
    ) -> None:
        self.model, self.cells = model, cells
        forward = _WholeTable(model, cells, features, encode, autocast)
        writers = torch.arange(len(cells), device=cells.values.device) % 2 == 0
        prior_values = [self._placeholder()] if model.prior_channels else []
        inputs = (writers, *prior_values, *self._draw_dropout(torch.Generator()))
        # Weights get their gradients on another stream than that of the capture, as intended.
        quiet = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if quiet is not None:
            quiet(False)
        self.graph: Any = torch.cuda.make_graphed_callables(
            forward, inputs, allow_unused_input=True
        )

    def __call__(
        self, writers: Tensor, generator: Generator | None, prior_values: Tensor | None = None
    ) -> Tensor:
        """Return the outputs for all cells, given which of them write: (E, O)."""
        more = [] if prior_values is None else [prior_values]
        outputs: Tensor = self.graph(writers, *more, *self._draw_dropout(generator))
        return append_anchor(outputs, prior_values)

    def _placeholder(self) -> Tensor:
        """Return a placeholder for the prior's channels during capture."""
        return self.cells.values.new_ones(
            len(self.cells), self.model.prior_channels, dtype=torch.float32
        )

    def _draw_dropout(self, generator: Generator | None) -> list[Tensor]:
        """Draw the masks of all layers with dropout, and copy them to the device at once."""
        drawn = self.model.draw_dropout(torch.empty(0), generator)
        masks = [mask for mask in drawn if mask is not None]
        if not masks:
            return []
        sizes = [len(mask) for mask in masks]
        return list(torch.cat(masks).to(self.cells.values.device).split(sizes))


class _WholeTable(nn.Module):
    """The forward pass over all cells, as a function of writers, prior values and dropout."""

    def __init__(
        self,
        model: MemoryModel,
        cells: ExchangeableArray,
        features: FeatureTensors | None,
        encode: Encode,
        autocast: Autocast,
    ) -> None:
        super().__init__()
        self.model = model
        # Encoded once: the values are the same in every step.
        self.start, self.support = model.input_channels(encode(cells.values)), cells.support
        self.features, self.autocast = features, autocast
        masks = model.draw_dropout(torch.empty(0), torch.Generator())
        self.drops = [mask is not None for mask in masks]

    def forward(self, writers: Tensor, *more: Tensor) -> Tensor:
        rest = iter(more)
        prior_values = next(rest) if self.model.prior_channels else None
        dropout = [next(rest) if drops else None for drops in self.drops]
        if isinstance(self.model, PaperModel) and self.model.literal:
            with self.autocast():
                return self.model.forward_literal(
                    self.start, self.support, writers, self.features, dropout
                )
        cells = self.support.with_writers(writers)
        plan = Plan(chunk_cells=max(len(cells), 1))
        stream = Stream(
            list(self.model.layers),
            cells,
            self.start,
            lambda values: values,
            prior_values=prior_values,
            features=self.features,
            plan=plan,
        )
        with self.autocast():
            stream.condition(dropout_masks=dropout, keep_for_backward=True)
            return stream.outputs(all_cells=True)
