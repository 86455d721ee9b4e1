"""Cells that the prior held out, predicted by what has read none of them: to compare models on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from exchangeable.arrays.cells import Cells, Index, Mask
from exchangeable.models.memory_plan import plan_reading
from exchangeable.predictors.correction import describe_cells
from exchangeable.predictors.model import ModelPredictor
from exchangeable.predictors.spare_members import with_spare
from exchangeable.prior.fit import Holdout
from exchangeable.prior.presence import find_unseen
from exchangeable.prior.prior import Prior
from exchangeable.prior.trust import FOLDS
from exchangeable.runtime.threads import one_thread
from exchangeable.values.calibration import UNCALIBRATED
from exchangeable.values.codecs import encoder
from exchangeable.values.distributions import Distribution


class Reading(NamedTuple):
    """Cells as the model alone predicts them."""

    predictions: Distribution
    terms: Tensor  # (Q, T), for the correction
    seen: Tensor  # (Q,) bool, cells all of whose members have others


class HeldOut(NamedTuple):
    """Cells that the prior held out, with folds of some of them to compare models on."""

    mask: Mask  # (E,)
    folds: list[Index]
    """Positions of the cells of each fold."""
    read: Callable[[], list[Reading]]
    """Predicts the cells of each fold by what has read none of them."""


def find_held_out(model: ModelPredictor, cells: Cells, *, reread: bool = True) -> list[HeldOut]:
    """Return the cells that the prior held out, where it has held out some.

    What reads them takes no further fit: the prior keeps what it was without them. Without
    ``reread`` the pools are those of all cells: in a large table a cell is one of many in its
    pools, and to read it again takes long.
    """
    prior = model.prior
    if prior is None:
        return []
    return [
        HeldOut(
            each.mask.cpu().numpy(),
            [each.cells[each.fold == fold].cpu().numpy() for fold in range(FOLDS)],
            partial(_read, model, prior, each, cells, reread=reread),
        )
        for each in (prior.holdouts if reread else prior.holdouts[:1])
    ]


def _read(
    model: ModelPredictor, prior: Prior, holdout: Holdout, cells: Cells, *, reread: bool
) -> list[Reading]:
    """Predict the cells of each fold by what has read none of them."""
    predictor = _without(model, prior, holdout, cells) if reread else model
    predictor = replace(predictor, calibration=UNCALIBRATED, correction=None)
    index = torch.from_numpy(cells.index).to(model.device)[holdout.cells]
    found = []
    for fold in range(FOLDS):
        mask, without = holdout.fold == fold, prior.without(holdout, fold)
        with torch.inference_mode(), one_thread(model.device):
            channels = without.channels_of(holdout.estimates.take(mask), index[mask])
            reader = replace(predictor, prior=without)
            predictions = reader.predict_from(index[mask], channels)
            terms = describe_cells(predictions, channels, model.stats)
            unseen = find_unseen(without.fitted.presence, index[mask])
            found.append(Reading(predictions, terms, ~unseen.any(dim=1).cpu()))
    return found


def _without(model: ModelPredictor, prior: Prior, holdout: Holdout, cells: Cells) -> ModelPredictor:
    """Read all cells but those of a holdout."""
    without = prior.without(holdout)
    observed = cells.to_array(with_spare(cells.shape)).to(model.device).take(~holdout.mask)
    groups, network = observed.support.group_index, model.trained.model
    plan, _ = plan_reading(network, groups, len(observed), model.memory_limit)
    with torch.no_grad(), one_thread(model.device):
        memory = network.condition(
            observed,
            encode=encoder(model.trained.codec, model.stats),
            prior=without.at(holdout.fitted.side.times),
            plan=plan,
            processes=model.processes,
        )
    return replace(model, memory=memory, prior=without)
