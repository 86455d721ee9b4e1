"""Cells that the prior held out, predicted by what has read none of them: to compare models on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from exchangeable.arrays.cells import Cells, Floats, Index, Mask
from exchangeable.models.memory_plan import plan_reading
from exchangeable.predictors.correction import HeldOutTerms, describe_cells
from exchangeable.predictors.model import ModelPredictor
from exchangeable.predictors.spare_members import with_spare
from exchangeable.prior.estimates import Estimates
from exchangeable.prior.few_cells import FewCells
from exchangeable.prior.fit import Holdout
from exchangeable.prior.presence import find_unseen
from exchangeable.prior.prior import Prior
from exchangeable.prior.trust import FOLDS
from exchangeable.runtime.threads import one_thread
from exchangeable.values.calibration import UNCALIBRATED
from exchangeable.values.codecs import ValueStats, encoder
from exchangeable.values.distributions import Distribution


class Reading(NamedTuple):
    """Cells as the model alone predicts them."""

    predictions: Distribution
    terms: Tensor  # (Q, T), for the correction
    seen: Tensor  # (Q,) bool, cells all of whose members have others
    scarcity: Tensor  # (Q, D), of the members

    def left(self, values: Floats, fold: Tensor, stats: ValueStats) -> HeldOutTerms:
        """Return what the model leaves of the values (Q,) of cells whose members have others."""
        left = (torch.from_numpy(values) - self.predictions.mean()) / stats.deviation
        every = HeldOutTerms(self.terms, left, fold, self.scarcity)
        return HeldOutTerms(*(each[self.seen] for each in every))


class FewReading(NamedTuple):
    """Cells as the model alone predicts them where their members show few others."""

    cells: Index  # (Q,), positions
    fold: Tensor  # (Q,)
    reading: Reading

    def left(self, values: Floats, stats: ValueStats) -> HeldOutTerms:
        """Return what the model leaves of these among the values (E,) of all cells."""
        return self.reading.left(values[self.cells], self.fold, stats)


class HeldOutReading(NamedTuple):
    """Cells of a holdout as the model alone predicts them."""

    folds: list[Reading]
    few: list[FewReading]


class HeldOut(NamedTuple):
    """Cells that the prior held out, with folds of some of them to compare models on."""

    mask: Mask  # (E,)
    folds: list[Index]
    """Positions of the cells of each fold."""
    read: Callable[[], HeldOutReading]
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
) -> HeldOutReading:
    """Predict the cells of each fold by what has read none of them."""
    predictor = _without(model, prior, holdout, cells) if reread else model
    predictor = replace(predictor, calibration=UNCALIBRATED, correction=None)
    index = torch.from_numpy(cells.index).to(model.device)[holdout.cells]
    with torch.inference_mode(), one_thread(model.device):
        folds = []
        for fold in range(FOLDS):
            mask, without = holdout.fold == fold, prior.without(holdout, fold)
            reader, estimates = replace(predictor, prior=without), holdout.estimates.take(mask)
            channels = without.channels_of(estimates, index[mask])
            folds.append(_describe(reader, index[mask], channels, estimates))
        extends = reread and model.can_extend and not cells.joint
        few = [_read_few(predictor, prior, each, cells) for each in holdout.few if extends]
    return HeldOutReading(folds, few)


def _describe(
    reader: ModelPredictor, index: Tensor, channels: Tensor, estimates: Estimates
) -> Reading:
    """Predict cells (Q, D) from the channels (Q, K) that the prior has for them."""
    assert reader.prior is not None
    predictions = reader.predict_from(index, channels)
    terms = describe_cells(predictions, channels, reader.stats)
    unseen = find_unseen(reader.prior.fitted.presence, index).any(dim=1)
    scarcity = reader.prior.trust.scarcity(estimates.counts)
    return Reading(predictions, terms, ~unseen.cpu(), scarcity.cpu())


def _read_few(predictor: ModelPredictor, prior: Prior, few: FewCells, cells: Cells) -> FewReading:
    """Predict cells of members that show few others, as if these were new."""
    network, fitted, stats = predictor.trained.model, few.fitted, predictor.stats
    shape = list(predictor.memory.shape)
    shape[few.axis] = few.count
    values = cells.values[few.shown.cpu().numpy()]
    shown = Cells(fitted.index.cpu().numpy(), values, tuple(shape), stats.scale).to_array()
    own = prior.of_few(few)
    memory = network.for_new_members(
        predictor.memory,
        few.axis,
        shown.map_values(encoder(predictor.trained.codec, stats)).to(predictor.device),
        prior=own.at(fitted.side.times),
    )
    channels = own.channels_of(few.estimates, few.index)
    for fold in range(FOLDS):
        mask = few.fold == fold
        crossed = prior.of_few(few, fold)
        channels[mask] = crossed.channels_of(few.estimates.take(mask), few.index[mask])
    reader = replace(predictor, memory=memory, prior=own)
    reading = _describe(reader, few.index, channels, few.estimates)
    return FewReading(few.cells.cpu().numpy(), few.fold.cpu(), reading)


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
