"""Training steps captured as CUDA graphs: thousands of small launches become one.

A step over a whole table does the same things every time; only which cells are hidden, which
channels are dropped and the learning rate differ, and these are inputs. Launched one by one, the
small products of a step take longer to start than to run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Generator, Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.models.memory import MemoryModel
from exchangeable.models.paper import PaperModel
from exchangeable.models.prior_channels import append_anchor
from exchangeable.models.stream import Plan, Stream
from exchangeable.nn.pools import LeastSquaresPool
from exchangeable.nn.segments import has_kernels
from exchangeable.training.run import Run
from exchangeable.training.task import Task
from exchangeable.values.codecs import Codec, encoder
from exchangeable.values.losses import loss_of

Autocast = Callable[[], AbstractContextManager[Any]]

_WARM_UPS = 2
"""Steps before the capture: kernels are compiled in the first, and memory is allocated."""


def can_capture(model: MemoryModel, cells: ExchangeableArray) -> bool:
    """Return whether a step on these cells can be captured: on a GPU, without synchronisation."""
    solving = any(isinstance(module, LeastSquaresPool) for module in model.modules())
    small = cells.values.new_zeros(1, 1, dtype=torch.float32)
    return not solving and has_kernels(small)


class CapturedStep:
    """A training step over all cells of one table, for any mask.

    It does what ``take_step`` and ``Run.average`` do, except that the loss is a weighted sum over
    all cells: taking out the hidden ones would wait for their number.
    """

    def __init__(self, run: Run, codec: Codec, task: Task, autocast: Autocast) -> None:
        self.run, self.codec, self.stats, self.autocast = run, codec, task.stats, autocast
        cells, model = task.observed, run.model
        device = cells.values.device
        self.features = task.features_for(model)
        # Encoded once: the values are the same in every step.
        self.start = model.input_channels(encoder(codec, task.stats)(cells.values))
        self.truth, self.support = cells.values.squeeze(1).float(), cells.support
        masks = model.train().draw_dropout(torch.empty(0), torch.Generator())
        self.lengths = [0 if mask is None else len(mask) for mask in masks]
        # The inputs. With a rate of 0 and an average that stays, warming up changes no weight.
        self.hide = torch.arange(len(cells), device=device) % 2 == 1
        self.prior_values = (
            torch.ones(len(cells), model.prior_channels, device=device)
            if model.prior_channels
            else None
        )
        self.numbers = torch.zeros(2 + sum(self.lengths), device=device)
        self.loss = torch.zeros((), device=device)
        self._capture()

    def __call__(
        self, hide: Tensor, generator: Generator | None, prior_values: Tensor | None = None
    ) -> Tensor:
        """Take the next step of the run; return the loss before it, until the one after it."""
        self.hide.copy_(hide)
        if self.prior_values is not None and prior_values is not None:
            self.prior_values.copy_(prior_values)
        drawn = self.run.model.draw_dropout(torch.empty(0), generator)
        masks = [mask for mask in drawn if mask is not None]
        share = 1 - self.run.decay(self.run.step + 1)
        rates = torch.tensor([self.run.config.rate(self.run.step), share])
        # From pinned memory the copy waits for nothing, and nothing waits for it.
        self.numbers.copy_(torch.cat([rates, *masks]).pin_memory(), non_blocking=True)
        self.graph.replay()
        return self.loss

    def _capture(self) -> None:
        # Weights get their gradients on another stream than that of the capture, as intended.
        quiet = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if quiet is not None:
            quiet(False)
        optimiser = self.run.optimiser
        group = optimiser.param_groups[0]
        group["lr"], group["capturable"] = self.numbers[0], True
        before = {
            weight: {name: moment.clone() for name, moment in moments.items()}
            for weight, moments in optimiser.state.items()
        }
        stream = torch.cuda.Stream(self.numbers.device)
        stream.wait_stream(torch.cuda.current_stream(self.numbers.device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self._step()
            for weight, moments in optimiser.state.items():
                for name, moment in moments.items():
                    moment.copy_(before[weight][name]) if weight in before else moment.zero_()
        torch.cuda.current_stream(self.numbers.device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        self.run.optimiser.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph, stream=stream):
            self._step()

    def _step(self) -> None:
        """Take one step of the optimiser, and move the averaged weights."""
        run, config = self.run, self.run.config
        weights: list[Tensor] = list(run.model.parameters())
        run.optimiser.zero_grad(set_to_none=True)
        outputs = append_anchor(self._forward(), self.prior_values)
        predictions = self.codec.read(outputs.float(), self.stats)
        shares = self.hide / self.hide.sum()
        loss = loss_of(
            predictions, self.truth, self.stats, config.loss, config.squared_weight, shares
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, config.clip)
        # A loss that is not finite changes no weight: the run ends when it is read.
        run.optimiser.found_inf = (~loss.detach().isfinite()).float()  # type: ignore[attr-defined]
        run.optimiser.step()
        with torch.no_grad():
            means: list[Tensor] = list(run.averaged.parameters())
            apart = torch._foreach_sub(weights, means)
            torch._foreach_mul_(apart, self.numbers[1])
            torch._foreach_add_(means, apart)
        self.loss.copy_(loss.detach())

    def _forward(self) -> Tensor:
        """Return the model's outputs for all cells: (E, O)."""
        model, dropout = self.run.model, self._dropout()
        writers = self.hide if self.run.config.hide == "nothing" else ~self.hide
        if isinstance(model, PaperModel) and model.literal:
            with self.autocast():
                return model.forward_literal(
                    self.start, self.support, writers, self.features, dropout
                )
        stream = Stream(
            list(model.layers),
            self.support.with_writers(writers),
            self.start,
            lambda values: values,
            prior_values=self.prior_values,
            features=self.features,
            plan=Plan(chunk_cells=max(len(self.support), 1)),
        )
        with self.autocast():
            stream.condition(dropout_masks=dropout, keep_for_backward=True)
            return stream.outputs(all_cells=True)

    def _dropout(self) -> list[Tensor | None]:
        """Return the dropout mask of each layer; None where a layer drops nothing."""
        masks = self.numbers[2:].split(self.lengths)
        return [mask if len(mask) else None for mask in masks]
