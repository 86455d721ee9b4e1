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

Narrow = Callable[[], AbstractContextManager[Any]]


def can_capture(model: MemoryModel, cells: ExchangeableArray) -> bool:
    """Whether a step on these cells can be captured: on a GPU, by kernels that never wait."""
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
        narrow: Narrow,
    ) -> None:
        self.model, self.cells = model, cells
        whole = _Whole(model, cells, features, encode, narrow)
        writers = torch.arange(len(cells), device=cells.values.device) % 2 == 0
        known = [] if not model.prior_channels else [self._known()]
        given = (writers, *known, *self._drawn(torch.Generator()))
        # Weights get their gradients on another stream than that of the capture, and that is meant.
        quiet = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if quiet is not None:
            quiet(False)
        self.graph: Any = torch.cuda.make_graphed_callables(whole, given, allow_unused_input=True)

    def __call__(
        self, writers: Tensor, generator: Generator | None, known: Tensor | None = None
    ) -> Tensor:
        """Answers for all cells, given those that write, and what is known: (E, O)."""
        more = [] if known is None else [known]
        outputs: Tensor = self.graph(writers, *more, *self._drawn(generator))
        return append_anchor(outputs, known)

    def _known(self) -> Tensor:
        """In the place of what is known of the cells."""
        return self.cells.values.new_ones(
            len(self.cells), self.model.prior_channels, dtype=torch.float32
        )

    def _drawn(self, generator: Generator | None) -> list[Tensor]:
        """What dropout leaves at each layer that has it, brought to the device in one go."""
        drawn = self.model.draw_dropout(torch.empty(0), generator)
        kept = [part for part in drawn if part is not None]
        if not kept:
            return []
        sizes = [len(part) for part in kept]
        return list(torch.cat(kept).to(self.cells.values.device).split(sizes))


class _Whole(nn.Module):
    """All cells through all layers, as a function of who writes, what is known, what is dropped."""

    def __init__(
        self,
        model: MemoryModel,
        cells: ExchangeableArray,
        features: FeatureTensors | None,
        encode: Encode,
        narrow: Narrow,
    ) -> None:
        super().__init__()
        self.model = model
        # Encoded once: nothing of it changes from step to step.
        self.start, self.support = model.input_channels(encode(cells.values)), cells.support
        self.features, self.narrow = features, narrow
        masks = model.draw_dropout(torch.empty(0), torch.Generator())
        self.drops = [mask is not None for mask in masks]

    def forward(self, writers: Tensor, *more: Tensor) -> Tensor:
        given = iter(more)
        known = next(given) if self.model.prior_channels else None
        dropping = [next(given) if drops else None for drops in self.drops]
        if isinstance(self.model, PaperModel) and self.model.literal:
            with self.narrow():
                return self.model.forward_literal(
                    self.start, self.support, writers, self.features, dropping
                )
        cells = self.support.with_writers(writers)
        plan = Plan(chunk_cells=max(len(cells), 1))
        stream = Stream(
            list(self.model.layers),
            cells,
            self.start,
            lambda values: values,
            prior_values=known,
            features=self.features,
            plan=plan,
        )
        with self.narrow():
            stream.condition(dropout_masks=dropping, keep_for_backward=True)
            return stream.outputs(all_cells=True)
