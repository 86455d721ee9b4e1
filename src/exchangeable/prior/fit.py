"""The fit of a prior: closed-form models, tried on cells that they were not fitted to."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from exchangeable.prior.closed_form import BIASES, ClosedForm
from exchangeable.prior.drift import Drift
from exchangeable.prior.estimates import USUAL_NEARBY, Estimates, usual_weights
from exchangeable.prior.factor_fit import Schedule
from exchangeable.prior.side_information import SideInformation
from exchangeable.prior.trust import FOLDS, Trial, Trust, find_trust, is_gain, pseudo_random_shares

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


def fit_models(
    index: Tensor,
    values: Tensor,
    shape: tuple[int, ...],
    rank: int,
    budget: float,
    side: SideInformation,
) -> tuple[ClosedForm, Trust, tuple[Holdout, ...]]:
    """Fit all models, to most cells first, to find the trust in each."""
    biases = BIASES.posterior_of(index, values, shape)
    divisions = max(MIN_PARTS, math.ceil(len(values) / MAX_PART))
    shares = divisions * pseudo_random_shares(values - biases.predict_mean(index))
    parts = min(math.ceil(TARGET_HELD_OUT / len(values) * divisions), MAX_HOLDOUTS)
    masks = [shares.long() == part for part in range(parts)]
    masks = [mask for mask in masks if mask.any() and not mask.all()]
    schedule = Schedule.of(len(values))
    fit = partial(ClosedForm.fit, shape=shape, rank=rank, comparison_budget=budget)
    drift = _find_drift(index, values, shape, side, masks[0]) if masks else None
    with_drift = drift is not None
    near_axes = tuple(range(len(shape))) if masks and side.times is not None else ()
    holdouts: list[Holdout] = []
    trials: list[Trial] = []
    for mask in masks:
        seen = index[~mask], values[~mask]
        if with_drift and holdouts:
            drift = _fit_drift(*seen, shape, side.take(~mask))
        fitted = fit(
            *seen,
            side=side.take(~mask),
            biases=biases.forget_members(),
            drift=drift,
            near_axes=near_axes,
            sweeps=schedule.most,
        )
        if schedule.warm:
            fitted.compare_all()
        trial, estimates, cells = _try(fitted, index, values, side, mask, shares)
        if not holdouts:
            near_axes = _find_near_axes(trial, estimates)
            estimates = estimates.only_near(near_axes)
            trial = replace(trial, estimates=estimates.columns)
            fitted = fitted.only_near(near_axes)
        holdouts.append(Holdout(mask, fitted, cells, trial.fold, estimates))
        trials.append(trial)
    start = holdouts[-1].fitted if holdouts and schedule.warm else None
    fitted = fit(
        index,
        values,
        side=side,
        biases=biases,
        drift=_fit_drift(index, values, shape, side) if with_drift else None,
        near_axes=near_axes,
        start=start,
        sweeps=schedule.all if start or not schedule.warm else schedule.most,
    )
    if start is not None:
        fitted = fitted.with_similarities_of(start)
    usual = usual_weights(len(shape), values)
    trust = find_trust(Trial.joined(trials), *usual) if trials else Trust(usual[0])
    return fitted, trust, tuple(holdouts)


def _fit_drift(
    index: Tensor, values: Tensor, shape: tuple[int, ...], side: SideInformation
) -> Drift:
    assert side.times is not None
    return Drift.fit(index, values, side.times, shape)


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
    fitted: ClosedForm,
    index: Tensor,
    values: Tensor,
    side: SideInformation,
    mask: Tensor,
    shares: Tensor,
) -> tuple[Trial, Estimates, Tensor]:
    """Predict held-out cells, some of them if they are many; also return their positions."""
    late = shares[mask] % 1  # uniform in [0, 1)
    cells = mask.nonzero().squeeze(1)[late <= TARGET_HELD_OUT / max(len(late), 1)]
    times = None if side.times is None else side.times[cells]
    estimates = fitted.estimates(index[cells], times)
    fold = (FOLDS * ((1000 * shares[cells]) % 1)).long()
    trial = Trial(values[cells], estimates.base, estimates.columns, estimates.variances, fold)
    return trial, estimates, cells
