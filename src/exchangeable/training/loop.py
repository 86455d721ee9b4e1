"""The training loop: hide some of the cells, predict them from the others, take a step; repeat.

Weights are averaged as training goes and validated on cells that are never trained on; the best
that were validated are the result. On a CPU, with as many threads, a run is a function of its
seed, and one that was stopped and resumed ends with the same weights, bit for bit, as one that
was not. Training on a table and pretraining on synthetic tables differ only in their examples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from exchangeable.errors import Failed, InputError
from exchangeable.models.memory import MemoryModel
from exchangeable.runtime.devices import autocast
from exchangeable.runtime.interruption import Interrupted, explain_out_of_memory, stoppable
from exchangeable.runtime.processes import Processes
from exchangeable.runtime.threads import threads_for_training
from exchangeable.training.cuda_graph import CapturedStep
from exchangeable.training.execution import Execution
from exchangeable.training.losses import Losses
from exchangeable.training.masking import Example
from exchangeable.training.run import Run, check_finite
from exchangeable.training.task import encode_array
from exchangeable.values.codecs import Codec, encoder
from exchangeable.values.losses import loss_of


class Examples(Protocol):
    """The examples of a run, and the validation of its weights."""

    codec: Codec
    captured: CapturedStep | None
    """The step as a CUDA graph, where every one is over the same cells."""
    keep_last: bool
    """Whether the result is the last weights and not the best that were validated."""

    @property
    def cells(self) -> int:
        """Number of cells of the largest example."""
        ...

    @property
    def preparation(self) -> str:
        """Text to show while ``prepare`` takes long; empty where it is quick."""
        ...

    def prepare(self, execution: Execution) -> None:
        """Do what must be done once, before the first step."""
        ...

    def __iter__(self) -> Iterator[Example]:
        """Yield the examples of all steps from the run's next one on."""
        ...

    def validate(self, model: MemoryModel, execution: Execution) -> float | None:
        """Return the validation error of a model; none where there is nothing to validate on."""
        ...


def train(
    run: Run,
    examples: Examples,
    execution: Execution,
    *,
    save: Callable[[Run], None] | None = None,
) -> None:
    """Train to the end, or until Ctrl-C or SIGTERM: then save and raise ``Interrupted``.

    The result is ``run.best``: the averaged weights of the step with the lowest validation error,
    or of the last step where there is no validation. The weights a run starts with are validated
    too, so that it never ends with worse ones.
    """
    config, processes = run.config, execution.processes
    _check_hidden(run, execution)
    with (
        stoppable() as stop_requested,
        explain_out_of_memory(),
        threads_for_training(examples.cells, run.device),
    ):
        if examples.preparation:
            execution.progress.at(run.share, examples.preparation)
        examples.prepare(execution)
        started = saved = time.perf_counter()
        first_step, cells = run.step, 0
        losses = Losses(late=examples.captured is not None)
        if run.step == 0 and not run.history:
            _validate(run, examples, execution, loss=0.0)
        remaining = iter(examples)
        while run.step < config.steps and not _out_of_patience(run):
            example = next(remaining)
            validating = (run.step + 1) % config.evaluate_every == 0
            validating = validating or run.step + 1 == config.steps
            try:
                loss = take_step(run, example, examples.codec, execution, examples.captured)
                losses.add(run.step, loss)
                run.step += 1
                if examples.captured is None:  # a captured step averages too
                    run.average()
                if validating:
                    losses.wait()
            except Failed:
                if save is not None:
                    save(run)  # the best weights so far are worth keeping
                raise
            cells += len(example.cells)
            if validating:
                _validate(run, examples, execution, losses.last)
            now = time.perf_counter()
            text = _describe_step(run, losses.last, cells, now - started, run.step - first_step)
            execution.progress.at(run.share, text)
            stopping = processes.any(stop_requested() or now - started > execution.seconds)
            if save is not None and (stopping or now - saved > execution.save_every):
                save(run)
                saved = now
            if stopping:
                raise Interrupted(f"stopped after step {run.step:,} of {config.steps:,}, as asked")
        if examples.keep_last or not run.history:
            run.keep_last()


def take_step(
    run: Run,
    example: Example,
    codec: Codec,
    execution: Execution,
    captured: CapturedStep | None = None,
) -> Tensor:
    """Predict the hidden cells of an example and update the weights; return the loss before."""
    if captured is not None:
        return captured(example.hide, run.drops, example.prior_values)
    config, processes = run.config, execution.processes
    cells, hide, stats = example.cells, example.hide, example.stats
    first, last = processes.share(len(cells))
    hidden = hide[first:last].nonzero().squeeze(1)
    truth = cells.values[first:last].index_select(0, hidden).squeeze(1).float()
    run.model.train()
    outputs = _predict_hidden(run, example, codec, execution)
    predictions = codec.read(outputs.float(), stats)
    loss = loss_of(predictions, truth, stats, config.loss, config.squared_weight)
    if processes.size > 1:  # the mean over all hidden cells is a mean of the processes' means
        loss = loss * (len(truth) / hide.sum()) if len(truth) else outputs.sum()
    run.optimiser.param_groups[0]["lr"] = config.rate(run.step)
    run.optimiser.zero_grad()
    loss.backward()
    (total,) = processes.all_sum([loss.detach()])
    check_finite("loss", float(total), run.step)
    _sum_gradients(run.model, processes)
    torch.nn.utils.clip_grad_norm_(run.model.parameters(), config.clip)
    run.optimiser.step()
    return total


def _predict_hidden(
    run: Run,
    example: Example,
    codec: Codec,
    execution: Execution,
) -> Tensor:
    """Return the model's outputs for the hidden cells of this process: (Q, O)."""
    cells, hide, prior_values, stats, features = example
    with autocast(cells.values.device, execution.precision):
        if run.config.hide == "nothing":
            channels = encode_array(cells, codec, stats)
            return run.model(channels, cells.support, features, run.drops)
        return run.model.predict_hidden(
            cells,
            hide,
            features,
            run.drops,
            encode=encoder(codec, stats),
            prior_values=prior_values,
            plan=execution.plan,
            processes=execution.processes,
        )


def _check_hidden(run: Run, execution: Execution) -> None:
    if run.config.hide != "nothing":
        return
    if run.model.prior_rank:
        raise InputError("a model with a prior learns from hidden cells, but nothing is hidden")
    if execution.plan is not None or execution.processes.size > 1:
        raise InputError("with nothing hidden a step is over all cells at once, on one process")


def _validate(run: Run, examples: Examples, execution: Execution, loss: float) -> None:
    error = examples.validate(run.averaged, execution)
    if error is not None:
        run.record_validation(error, loss)


def _sum_gradients(model: MemoryModel, processes: Processes) -> None:
    """Sum the gradients over all processes: each has that of its own cells' loss."""
    if processes.size > 1:
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]
        for weight, total in zip(weights, processes.all_sum(gradients), strict=True):
            weight.grad = total


def _out_of_patience(run: Run) -> bool:
    patience = run.config.patience
    return patience is not None and run.looks_without_gain >= patience


def _describe_step(run: Run, loss: float, cells: int, seconds: float, steps: int) -> str:
    """Describe the last step in a line, with the speed of those since the start."""
    validation = (
        f", validation RMSE {run.history[-1]['validation_rmse']:.4f}" if run.history else ""
    )
    minutes, rest = divmod(round((run.config.steps - run.step) * seconds / steps), 60)
    return (
        f"step {run.step:,} of {run.config.steps:,}, loss {loss:.4f}{validation}, "
        f"{cells / seconds:,.0f} cells/s, {minutes}:{rest:02d} left"
    )
