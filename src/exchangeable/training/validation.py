"""Validation: the error of a model on cells that it is not trained on."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.support import Support
from exchangeable.models.memory import MemoryModel
from exchangeable.models.prior_fit import fit_prior
from exchangeable.models.stream import Plan
from exchangeable.prior.prior import Prior
from exchangeable.prior.side_information import NO_SIDE_INFORMATION, SideInformation
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.random import hashed_uniform
from exchangeable.training.config import TrainingConfig
from exchangeable.training.execution import Execution
from exchangeable.training.task import Task, encode_array
from exchangeable.values.codecs import Codec, ValueStats, encoder

CELLS_PER_READ = 2**17
"""Cells that are predicted together, which bounds the memory that reading takes."""

ValidationSet = tuple[Task, Prior | None]
"""A task with all or some of the observed cells, and the prior fitted to these."""


@torch.no_grad()
def predict_cells(
    model: MemoryModel,
    codec: Codec,
    observed: ExchangeableArray,
    queries: Support,
    stats: ValueStats,
    features: FeatureTensors | None = None,
    *,
    side: SideInformation = NO_SIDE_INFORMATION,
    times: Tensor | None = None,
    prior: Prior | None = None,
    plan: Plan | None = None,
    processes: Processes = ALONE,
) -> Tensor:
    """Return a model's outputs for the queries, given observed values as they are: (Q, O).

    ``features`` are read by the layers, ``side`` by the prior; ``times`` (Q,) are of the queries.
    """
    if model.literal:
        return model(encode_array(observed, codec, stats), queries, features)
    encode = encoder(codec, stats)
    prior = prior or fit_prior(model, observed, stats, side)
    memory = model.condition(
        observed,
        features,
        encode=encode,
        prior=None if prior is None else prior.at(side.times),
        plan=plan,
        processes=processes,
    )
    first, last = processes.share(len(queries))
    if prior is not None:
        mine_times = None if times is None else times[first:last]
        memory = replace(memory, prior=prior.at(mine_times))
    mine = Support(queries.index[first:last], queries.shape)
    return processes.all_gather(model.read(memory, mine, CELLS_PER_READ), len(queries))


def validation_sets(model: MemoryModel, task: Task, config: TrainingConfig) -> list[ValidationSet]:
    """Prepare a task for each of the shares of observed cells that validation shows."""
    sets = []
    places = hashed_uniform(len(task.observed), config.seed, task.observed.values.device)
    for share in config.judged_shares:
        chosen = places < (share if share < 1 else torch.inf)
        shown = task.observed if share == 1 else task.observed.take(chosen)
        side = task.side.take(chosen)
        prior = fit_prior(model, shown, task.stats, side)
        sets.append((replace(task, observed=shown, side=side), prior))
    return sets


def validation_rmse(
    model: MemoryModel,
    codec: Codec,
    task: Task,
    prior: Prior | None = None,
    execution: Execution | None = None,
) -> float:
    """Return the RMSE on the validation cells, given the observed ones."""
    execution = execution or Execution()
    outputs = predict_cells(
        model,
        codec,
        task.observed,
        task.validation.support,
        task.stats,
        task.features_for(model),
        side=task.side,
        times=task.validation_times,
        prior=prior,
        plan=execution.plan and replace(execution.plan, chunk_cells=None),
        processes=execution.processes,
    )
    error = codec.read(outputs.double(), task.stats).mean() - task.validation.values.squeeze(1)
    return float(error.square().mean().sqrt())
