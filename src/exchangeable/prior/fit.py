"""The fit of a prior: closed-form models, tried on cells that they were not fitted to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from exchangeable.baselines.base import chunks
from exchangeable.baselines.posterior import Posterior
from exchangeable.prior.closed_form import ClosedForm
from exchangeable.prior.closed_form_fit import BIASES, fit_closed_form
from exchangeable.prior.drift import Drift
from exchangeable.prior.estimates import USUAL_NEARBY, Estimates, usual_weights
from exchangeable.prior.factor_fit import MAX_REFITTED_CELLS, Schedule, limit_rank
from exchangeable.prior.few_cells import FewCells, HeldOutCells
from exchangeable.prior.products import all_sums, try_products, with_products
from exchangeable.prior.side_information import SideInformation
from exchangeable.prior.summed_similarity import is_summed
from exchangeable.prior.trust import (
    FOLDS,
    Trial,
    Trust,
    find_scarce_trust,
    find_trust,
    is_gain,
)
from exchangeable.prior.width import fit_widest
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.random import CellShares, residual_hashes
from exchangeable.sums.member_sums import MemberSums

MIN_PARTS = 10
"""Parts of the cells at least: trust is found on one or more that models were not fitted to."""

MAX_PART = 8000
"""Cells of a part at most."""

TARGET_HELD_OUT = 6000
"""Cells on which trust is found, if there are enough parts; of larger parts only as many count."""

MAX_HOLDOUTS = 3
"""Parts that models are tried on; each takes as long as the fit."""


@dataclass(frozen=True, eq=False)
class Holdout:
    """Cells that were held out when trust was found, and the models without them."""

    mask: Tensor  # (E,) bool
    fitted: ClosedForm
    cells: Tensor  # (H,), positions of those that trust was found on
    fold: Tensor  # (H,), of these
    estimates: Estimates
    """What the models estimate of these."""
    few: tuple[FewCells, ...] = ()
    """Cells of these whose members were shown with few of their cells, by axis."""


CELLS_PER_DRAW = 1 << 22
"""Cells at a time, of which some are drawn to be held out."""


def fit_models(
    index: Tensor,
    values: Tensor,
    shape: tuple[int, ...],
    rank: int,
    budget: float,
    side: SideInformation,
    processes: Processes = ALONE,
    widest: int = 0,
) -> tuple[ClosedForm, Trust, tuple[Holdout, ...]]:
    """Fit all models, to most cells first, to find the trust in each.

    They have ``rank`` factors, and up to ``widest`` where these are much better.
    """
    sums = MemberSums.by_axis(index, shape, processes)
    biases = BIASES.by_sums(sums, values)
    draws = _draw_parts(index, values, biases)
    masks = [draw.mask for draw in draws]
    schedule = Schedule.of(len(values))
    fit = partial(fit_closed_form, index, values, side=side, comparison_budget=budget)
    keeps = schedule.keeps and is_summed(len(values), side, len(shape))
    drift = _find_drift(index, values, shape, side, masks[0]) if masks else None
    with_drift = drift is not None
    most, products = widest, 0
    rank, widest = (limit_rank(sums, each) for each in (rank, max(rank, widest)))
    near_axes = tuple(range(len(shape))) if masks and side.times is not None else ()
    holdouts: list[Holdout] = []
    trials: list[Trial] = []
    few: tuple[FewCells, ...] = ()
    for draw in draws:
        if with_drift and holdouts:
            seen = index[~draw.mask], values[~draw.mask]
            drift = _fit_drift(*seen, shape, side.take(~draw.mask))
        last = keeps and draw is draws[-1]  # sums over all cells are not needed again
        others = [
            (sums.pop(0) if last else sums[axis]).without(draw.mask) for axis in range(len(shape))
        ]
        fit_others = partial(
            fit,
            others,
            held_out=draw.mask,
            biases=biases.forget_members(),
            drift=drift,
            near_axes=near_axes,
            sweeps=schedule.most,
        )
        if holdouts:
            fitted = fit_others(rank)
            if products:
                rest = _without_drift(index, values, drift, side)
                fitted = with_products(fitted, all_sums(others, index, draw.mask), rest, products)
        else:
            times = None if side.times is None else side.times[draw.mask]
            cells, truth = index[draw.mask], values[draw.mask]
            moved = truth if drift is None else truth - drift.at(cells, times)
            fitted, rank = fit_widest(fit_others, rank, widest, cells, moved)
            rest = _without_drift(index, values, drift, side)
            complete = all_sums(others, index, draw.mask)
            fitted, products = try_products(fitted, complete, rest, cells, moved, most)
        if schedule.warm:
            fitted.compare_all()
        trial, estimates, cells = _try(fitted, index, values, side, draw)
        if not holdouts:
            near_axes = _find_near_axes(trial, estimates)
            estimates = estimates.only_near(near_axes)
            trial = replace(trial, estimates=estimates.columns)
            fitted = fitted.only_near(near_axes)
        holdouts.append(Holdout(draw.mask, fitted, cells, trial.fold, estimates))
        trials.append(trial)
        if not few and len(values) <= MAX_REFITTED_CELLS:
            read = HeldOutCells(
                fitted, index, values, side, draw.mask, cells, trial.fold, draw.shares_at
            )
            few = tuple(each for axis in range(len(shape)) if (each := read.try_few(axis)))
            holdouts[-1] = replace(holdouts[-1], few=few)
    usual = usual_weights(len(shape), biases.means[0])
    trust = find_trust(Trial.joined(trials), *usual) if trials else Trust(usual[0])
    if few:
        tried = Trial.joined([each.trial(values) for each in few])
        scarce = find_scarce_trust(trust, Trial.joined(trials), tried)
        trust = replace(trust, scarce=scarce)
    start = holdouts[-1].fitted if holdouts and schedule.warm else None
    if start is not None and keeps:
        return start, trust, tuple(holdouts)
    drift = _fit_drift(index, values, shape, side) if with_drift else None
    fitted = fit(
        sums,
        rank,
        biases=biases,
        drift=drift,
        near_axes=near_axes,
        start=None if start is None else start.of_pairs,
        sweeps=schedule.all if start or not schedule.warm else schedule.most,
    )
    if products:
        rest = _without_drift(index, values, drift, side)
        complete = all_sums(sums, index)
        fitted = with_products(fitted, complete, rest, products, holdouts[0].fitted.fine)
    if start is not None:
        fitted = fitted.with_similarities_of(start)
    return fitted, trust, tuple(holdouts)


class _Draw(NamedTuple):
    """Cells drawn to be held out."""

    mask: Tensor  # (E,) bool
    shares: Tensor  # (H,), pseudo-random, of these cells
    shares_at: Callable[[Tensor], Tensor]
    """Gives pseudo-random numbers in [0, 1) of cells by position."""


def _draw_parts(index: Tensor, values: Tensor, biases: Posterior) -> list[_Draw]:
    """Draw the parts of the cells that models are tried on, by what biases leave of them."""

    def residuals(part: slice | Tensor) -> Tensor:
        mean = biases.predict_mean(index[part])
        return values[part].to(mean) - mean

    cells = len(values)
    divisions = max(MIN_PARTS, math.ceil(cells / MAX_PART))
    parts = min(math.ceil(TARGET_HELD_OUT / cells * divisions), MAX_HOLDOUTS)
    blocks = list(chunks(cells, CELLS_PER_DRAW))
    total = sum(float(residuals(block).square().sum()) for block in blocks)
    root = math.sqrt(total / cells)
    drawing = CellShares(biases.shape, index.device)
    for block in blocks:
        drawing.add(index[block], residual_hashes(residuals(block), root))

    def shares_at(part: slice | Tensor) -> Tensor:
        return drawing.of(index[part], residual_hashes(residuals(part), root))

    masks = [torch.zeros(cells, dtype=torch.bool, device=index.device) for _ in range(parts)]
    drawn: list[list[Tensor]] = [[] for _ in range(parts)]
    for block in blocks:
        shares = divisions * shares_at(block)
        for part, mask in enumerate(masks):
            chosen = shares.long() == part
            mask[block] = chosen
            drawn[part].append(shares[chosen])
    pairs = zip(masks, drawn, strict=True)
    draws = [_Draw(mask, torch.cat(each), shares_at) for mask, each in pairs]
    return [draw for draw in draws if draw.mask.any() and not draw.mask.all()]


def _fit_drift(
    index: Tensor, values: Tensor, shape: tuple[int, ...], side: SideInformation
) -> Drift:
    assert side.times is not None
    return Drift.fit(index, values, side.times, shape)


def _without_drift(
    index: Tensor, values: Tensor, drift: Drift | None, side: SideInformation
) -> Tensor:
    return values if drift is None else values - drift.at(index, side.times)


def _find_drift(
    index: Tensor, values: Tensor, shape: tuple[int, ...], side: SideInformation, mask: Tensor
) -> Drift | None:
    """Fit drift without the cells of a mask; None where biases predict these as well without."""
    if side.times is None:
        return None
    drift = _fit_drift(index[~mask], values[~mask], shape, side.take(~mask))
    if not drift.members:
        return None
    effects = drift.at(index, side.times)
    plain, moving = (
        BIASES.posterior_of(index[~mask], rest[~mask], shape) for rest in (values, values - effects)
    )
    cells, truth = index[mask], values[mask]
    before = (truth - plain.predict_mean(cells)).square()
    after = (truth - effects[mask] - moving.predict_mean(cells)).square()
    return drift if is_gain(before - after) else None


def _find_near_axes(trial: Trial, estimates: Estimates) -> tuple[int, ...]:
    """Find the axes whose members' cells near in time tell something of held-out cells."""
    before = trial.truth - trial.base - estimates.drift - estimates.factors.mean(dim=1)
    near = estimates.nearby @ estimates.nearby.new_tensor(USUAL_NEARBY)  # (H, D)
    gains = before.square()[:, None] - (before[:, None] - near).square()
    return tuple(axis for axis, gain in enumerate(gains.T) if is_gain(gain))


def _try(
    fitted: ClosedForm, index: Tensor, values: Tensor, side: SideInformation, draw: _Draw
) -> tuple[Trial, Estimates, Tensor]:
    """Predict held-out cells, some of them if they are many; also return their positions."""
    late = draw.shares % 1  # uniform in [0, 1)
    some = late <= TARGET_HELD_OUT / max(len(late), 1)
    cells = draw.mask.nonzero().squeeze(1)[some]
    times = None if side.times is None else side.times[cells]
    estimates = fitted.estimates(index[cells], times)
    fold = (FOLDS * ((1000 * draw.shares[some]) % 1)).long()
    return Trial.of(values[cells], estimates, fold), estimates, cells
