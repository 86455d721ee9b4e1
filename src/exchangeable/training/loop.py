"""Training: hide some of the cells, predict them from the others, step; again and again.

What is hidden is drawn anew each step. Weights are averaged as training goes, judged on
validation cells that are never trained on, and the best that were judged are the result. On a
CPU, with as many threads, a run is a function of its seed, and one that was stopped and resumed
ends with the same weights, bit for bit, as one that never was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.support import Support
from exchangeable.errors import Failed, InputError
from exchangeable.models.memory import MemoryModel
from exchangeable.models.prior import Prior, fit_prior
from exchangeable.models.stream import Plan
from exchangeable.runtime.devices import Precision, autocast
from exchangeable.runtime.interruption import Interrupted, clear_about_memory, stoppable
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.random import hashed_uniform
from exchangeable.runtime.threads import threads_for
from exchangeable.training.config import TrainingConfig
from exchangeable.training.cuda_graph import CapturedStep, can_capture
from exchangeable.training.examples import Example, ExampleSource
from exchangeable.training.masking import sampler_of
from exchangeable.training.run import Run, RunProgress, _check_finite
from exchangeable.training.samplers import Full, Sampler
from exchangeable.training.task import Task
from exchangeable.values.codecs import Codec, ValueStats, encoder
from exchangeable.values.losses import loss_of

READ_AT_ONCE = 2**17
"""Cells that are answered together, which bounds the memory that answering takes."""


@dataclass(frozen=True)
class How:
    """How steps are carried out, which has no say in what comes out but for rounding."""

    precision: Precision = "auto"
    plan: Plan | None = None
    """How cells pass through the model where a step over all at once would not fit."""
    processes: Processes = ALONE


def train(
    run: Run,
    codec: Codec,
    task: Task,
    config: TrainingConfig,
    *,
    how: How | None = None,
    report: Callable[[RunProgress], None] | None = None,
    save: Callable[[Run], None] | None = None,
    save_every: float = 60.0,
) -> None:
    """Run to the end, or until Ctrl-C or SIGTERM: then what there is is saved, and that is said.

    The result is ``run.best``: the averaged weights of the step that did best on the validation
    cells, or of the last one where there are none. The weights a run starts with are judged
    too, so that it never ends with worse ones.
    """
    device, how = next(run.model.parameters()).device, how or How()
    _check_hidden(run.model, config, how)
    task = task.to(device)
    sampler = sampler_of(task.observed.support, config)
    turns = ExampleSource(task.observed, task.reference, run.model, config, sampler)
    started, first, saved = time.perf_counter(), run.step, time.perf_counter()
    loss, cells = math.nan, 0
    captured = _captured(run, codec, task, sampler, config, how)
    with (
        stoppable() as asked_to_stop,
        clear_about_memory(),
        threads_for(len(task.observed), device),
    ):
        judged = bool(len(task.validation))
        if report is not None and run.model.prior_rank:  # to be fitted, which takes a while
            report(_progress(run, config, loss, 0, 1.0, 1))
        looks = _looks(run.model, task, config) if judged else []

        def look() -> float:
            seen = [validation_rmse(run.averaged, codec, *one, how) for one in looks]
            return sum(seen) / len(seen)

        if run.step == 0 and judged and not run.history:
            run.judge(look(), loss=0.0)
        while run.step < config.steps and not _given_up(run, config):
            run.views, shown = turns.shown(run.views, run.step, run.draws)
            try:
                loss = take_step(run, codec, task, shown, config, how, captured)
            except Failed:
                if save is not None:
                    save(run)  # the best weights so far are worth keeping
                raise
            run.step += 1
            run.average(config.average)
            cells += len(shown.cells)
            last = run.step == config.steps
            if judged and (run.step % config.evaluate_every == 0 or last):
                run.judge(look(), loss)
            now = time.perf_counter()
            if report is not None:
                report(_progress(run, config, loss, cells, now - started, run.step - first))
            stopping = how.processes.any(asked_to_stop())
            if save is not None and (stopping or now - saved > save_every):
                save(run)
                saved = now
            if stopping:
                raise Interrupted(f"stopped after step {run.step:,} of {config.steps:,}, as asked")
        if not judged:
            run.best.load_state_dict(run.averaged.state_dict())
            run.best_step = run.step


def take_step(
    run: Run,
    codec: Codec,
    task: Task,
    shown: Example,
    config: TrainingConfig,
    how: How,
    captured: CapturedStep | None = None,
) -> float:
    """Predict what is hidden, and move the weights; the loss before that."""
    some, hide, known = shown
    device = some.values.device
    first, last = how.processes.share(len(some))
    mine = hide[first:last].nonzero().squeeze(1)
    truth = some.values[first:last].index_select(0, mine).squeeze(1).float()
    run.model.train()
    if captured is not None:
        writers = hide if config.hide == "nothing" else ~hide
        outputs = captured(writers, run.drops, known).index_select(0, mine)
    elif config.hide == "nothing":
        with autocast(device, how.precision):
            seen = some.map_values(encoder(codec, task.reference))
            outputs = run.model(seen, some.support, task.features, run.drops)
    else:
        with autocast(device, how.precision):
            outputs = run.model.predict_hidden(
                some,
                hide,
                task.features,
                run.drops,
                encode=encoder(codec, task.reference),
                known=known,
                plan=how.plan,
                processes=how.processes,
            )
    answers = codec.read(outputs.float(), task.reference)
    loss = loss_of(answers, truth, task.reference, config.loss, config.squared_weight)
    if how.processes.size > 1:  # the mean over all hidden cells is a mean of the processes' means
        loss = loss * (len(truth) / hide.sum()) if len(truth) else outputs.sum()
    run.optimiser.param_groups[0]["lr"] = config.rate(run.step)
    run.optimiser.zero_grad()
    loss.backward()
    (total,) = how.processes.summed([loss.detach()])
    _check_finite("loss", float(total), run.step)
    _sum_gradients(run.model, how.processes)
    torch.nn.utils.clip_grad_norm_(run.model.parameters(), config.clip)
    run.optimiser.step()
    return float(total)


def _check_hidden(model: MemoryModel, config: TrainingConfig, how: How) -> None:
    if config.hide != "nothing":
        return
    if model.prior_rank:
        raise InputError("a model with a prior learns from hidden cells, but nothing is hidden")
    if how.plan is not None or how.processes.size > 1:
        raise InputError("with nothing hidden a step is over all cells at once, on one process")


def _captured(
    run: Run, codec: Codec, task: Task, sampler: Sampler, config: TrainingConfig, how: How
) -> CapturedStep | None:
    """Steps that are always over the same cells, on a GPU, as a graph."""
    whole = isinstance(sampler, Full) and how.plan is None and how.processes.size == 1
    # With nothing hidden cells that are asked for write, which only the literal form allows.
    whole = whole and (config.hide != "nothing" or run.model.literal)
    if not whole or not can_capture(run.model, task.observed):
        return None
    run.model.train()
    device = task.observed.values.device
    return CapturedStep(
        run.model,
        task.observed,
        task.features,
        encoder(codec, task.reference),
        lambda: autocast(device, how.precision),
    )


def _sum_gradients(model: MemoryModel, processes: Processes) -> None:
    """Each process has the gradient of its own cells' loss."""
    if processes.size > 1:
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        own = [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]
        for weight, total in zip(weights, processes.summed(own), strict=True):
            weight.grad = total


@torch.no_grad()
def answer(
    model: MemoryModel,
    codec: Codec,
    observed: ExchangeableArray,
    queries: Support,
    reference: ValueStats,
    features: FeatureTensors | None = None,
    processes: Processes = ALONE,
    plan: Plan | None = None,
    prior: Prior | None = None,
) -> Tensor:
    """What a model gives out for the queries, observed values as they come: (Q, O)."""
    if model.literal:
        encoded = observed.map_values(encoder(codec, reference))
        return model(encoded, queries, features)
    encode = encoder(codec, reference)
    prior = prior or fit_prior(model, observed, reference)
    memory = model.condition(
        observed, features, encode=encode, prior=prior, plan=plan, processes=processes
    )
    first, last = processes.share(len(queries))
    own = Support(queries.index[first:last], queries.shape)
    return processes.gathered(model.read(memory, own, READ_AT_ONCE), len(queries))


def _looks(
    model: MemoryModel, task: Task, config: TrainingConfig
) -> list[tuple[Task, Prior | None]]:
    """What validation cells are judged with: all observed cells or shares of them, and a prior."""
    looks = []
    places = hashed_uniform(len(task.observed), config.seed, task.observed.values.device)
    for share in config.judged_shares:
        some = task.observed if share == 1 else task.observed.take(places < share)
        looks.append((replace(task, observed=some), fit_prior(model, some, task.reference)))
    return looks


def validation_rmse(
    model: MemoryModel,
    codec: Codec,
    task: Task,
    prior: Prior | None = None,
    how: How | None = None,
) -> float:
    """Of the validation cells, given all the others."""
    how = how or How()
    plan = how.plan and replace(how.plan, together=None)
    outputs = answer(
        model,
        codec,
        task.observed,
        task.validation.support,
        task.reference,
        task.features,
        how.processes,
        plan,
        prior,
    )
    error = codec.read(outputs.double(), task.reference).mean() - task.validation.values.squeeze(1)
    return float(error.square().mean().sqrt())


def _given_up(run: Run, config: TrainingConfig) -> bool:
    return config.patience is not None and run.looks_without_gain >= config.patience


def _progress(
    run: Run, config: TrainingConfig, loss: float, cells: int, seconds: float, steps: int
) -> RunProgress:
    looked = bool(run.history)
    return RunProgress(
        run.step,
        config.steps,
        loss,
        run.history[-1]["validation_rmse"] if looked else None,
        run.best_rmse if looked else None,
        cells / seconds,
        (config.steps - run.step) * seconds / steps,
    )
