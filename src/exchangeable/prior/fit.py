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
    fits = _Fits(_Cells(index, values, shape, side), rank, widest, budget, processes)
    draws = _draw_parts(index, values, fits.biases)
    if not draws:
        return fits.fit_all(), Trust(usual_weights(len(shape), fits.biases.means[0])[0]), ()
    fits.decide_on_times(draws[0].mask)
    holdouts: list[Holdout] = []
    trials: list[Trial] = []
    few: tuple[FewCells, ...] = ()
    for draw in draws:
        last = draw is draws[-1]
        fitted = fits.fit_without(draw.mask, last) if holdouts else fits.decide(draw.mask, last)
        if fits.schedule.warm:
            fitted.compare_all()
        trial, estimates, cells = _try(fitted, fits.cells, draw)
        if not holdouts:
            fits.near_axes = _find_near_axes(trial, estimates)
            estimates = estimates.only_near(fits.near_axes)
            trial = replace(trial, estimates=estimates.columns)
            fitted = fitted.only_near(fits.near_axes)
        holdout = Holdout(draw.mask, fitted, cells, trial.fold, estimates)
        if not few:
            few = _try_few(holdout, fits.cells, draw)
            holdout = replace(holdout, few=few)
        holdouts.append(holdout)
        trials.append(trial)
    trust = _find_trust(trials, few, fits)
    start = holdouts[-1].fitted if fits.schedule.warm else None
    if start is not None and fits.keeps:
        return start, trust, tuple(holdouts)
    return fits.fit_all(start, holdouts[0].fitted), trust, tuple(holdouts)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells of a table, with what is known beside them."""

    index: Tensor  # (E, D)
    values: Tensor  # (E,)
    shape: tuple[int, ...]
    side: SideInformation

    def only(self, mask: Tensor) -> _Cells:
        """Some of the cells."""
        return _Cells(self.index[mask], self.values[mask], self.shape, self.side.take(mask))

    def without_drift(self, drift: Drift | None) -> Tensor:
        """Values less what changes with time."""
        return self.values if drift is None else self.values - drift.at(self.index, self.side.times)

    def fit_drift(self) -> Drift:
        assert self.side.times is not None
        return Drift.fit(self.index, self.values, self.side.times, self.shape)


class _Fits:
    """Fits to a table, to all of its cells or without some.

    What the first held-out cells decide holds for all later fits: how many factors and products
    there are, whether values drift, and the axes along which cells near in time count.
    """

    def __init__(
        self, cells: _Cells, rank: int, widest: int, budget: float, processes: Processes
    ) -> None:
        self.cells = cells
        self.sums = MemberSums.by_axis(cells.index, cells.shape, processes)
        self.biases = BIASES.by_sums(self.sums, cells.values)
        self.schedule = Schedule.of(len(cells.values))
        self.keeps = self.schedule.keeps and is_summed(
            len(cells.values), cells.side, len(cells.shape)
        )
        """Whether the last of the fits without some cells is the result."""
        self.rank = limit_rank(self.sums, rank)
        self.widest = limit_rank(self.sums, max(rank, widest))
        self.most_products, self.products = widest, 0
        self.near_axes: tuple[int, ...] = ()
        self.drift: Drift | None = None
        self.fit = partial(
            fit_closed_form,
            cells.index,
            cells.values,
            side=cells.side,
            comparison_budget=budget,
        )

    def decide_on_times(self, mask: Tensor) -> None:
        """Find out without the cells of a mask whether values drift."""
        if self.cells.side.times is not None:
            self.near_axes = tuple(range(len(self.cells.shape)))
            self.drift = _find_drift(self.cells, mask)

    def decide(self, mask: Tensor, last: bool) -> ClosedForm:
        """Fit without the cells of a mask, with what predicts these best."""
        sums, fit = self._without(mask, last)
        held_out = self.cells.only(mask)
        truth = held_out.without_drift(self.drift)
        fitted, self.rank = fit_widest(fit, self.rank, self.widest, held_out.index, truth)
        complete = all_sums(sums, self.cells.index, mask)
        fitted, self.products = try_products(
            fitted, complete, self._rest(), held_out.index, truth, self.most_products
        )
        return fitted

    def fit_without(self, mask: Tensor, last: bool) -> ClosedForm:
        """Fit without the cells of a mask, with what was decided."""
        if self.drift is not None:
            self.drift = self.cells.only(~mask).fit_drift()
        sums, fit = self._without(mask, last)
        fitted = fit(self.rank)
        if not self.products:
            return fitted
        complete = all_sums(sums, self.cells.index, mask)
        return with_products(fitted, complete, self._rest(), self.products)

    def fit_all(
        self, start: ClosedForm | None = None, products_from: ClosedForm | None = None
    ) -> ClosedForm:
        """Fit to all cells, with what was decided."""
        if self.drift is not None:
            self.drift = self.cells.fit_drift()
        fitted = self.fit(
            self.sums,
            self.rank,
            biases=self.biases,
            drift=self.drift,
            near_axes=self.near_axes,
            start=None if start is None else start.of_pairs,
            sweeps=self.schedule.all if start or not self.schedule.warm else self.schedule.most,
        )
        if self.products and products_from is not None:
            complete = all_sums(self.sums, self.cells.index)
            fitted = with_products(
                fitted, complete, self._rest(), self.products, products_from.fine
            )
        return fitted if start is None else fitted.with_similarities_of(start)

    def _rest(self) -> Tensor:
        return self.cells.without_drift(self.drift)

    def _without(
        self, mask: Tensor, last: bool
    ) -> tuple[list[MemberSums], Callable[[int], ClosedForm]]:
        """Sums without the cells of a mask, and the fit by these."""
        is_result = last and self.keeps  # sums of all cells are not needed again
        sums = [
            (self.sums.pop(0) if is_result else self.sums[axis]).without(mask)
            for axis in range(len(self.cells.shape))
        ]
        fit = partial(
            self.fit,
            sums,
            held_out=mask,
            biases=self.biases.forget_members(),
            drift=self.drift,
            near_axes=self.near_axes,
            sweeps=self.schedule.most,
        )
        return sums, fit


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


def _find_drift(cells: _Cells, mask: Tensor) -> Drift | None:
    """Fit drift without the cells of a mask; None where biases predict these as well without."""
    seen, held_out = cells.only(~mask), cells.only(mask)
    drift = seen.fit_drift()
    if not drift.members:
        return None
    plain, moving = (
        BIASES.posterior_of(seen.index, values, cells.shape)
        for values in (seen.values, seen.without_drift(drift))
    )
    before = (held_out.values - plain.predict_mean(held_out.index)).square()
    after = (held_out.without_drift(drift) - moving.predict_mean(held_out.index)).square()
    return drift if is_gain(before - after) else None


def _find_near_axes(trial: Trial, estimates: Estimates) -> tuple[int, ...]:
    """Find the axes whose members' cells near in time tell something of held-out cells."""
    before = trial.truth - trial.base - estimates.drift - estimates.factors.mean(dim=1)
    near = estimates.nearby @ estimates.nearby.new_tensor(USUAL_NEARBY)  # (H, D)
    gains = before.square()[:, None] - (before[:, None] - near).square()
    return tuple(axis for axis, gain in enumerate(gains.T) if is_gain(gain))


def _try(fitted: ClosedForm, table: _Cells, draw: _Draw) -> tuple[Trial, Estimates, Tensor]:
    """Predict held-out cells, some of them if they are many; also return their positions."""
    late = draw.shares % 1  # uniform in [0, 1)
    some = late <= TARGET_HELD_OUT / max(len(late), 1)
    cells = draw.mask.nonzero().squeeze(1)[some]
    times = None if table.side.times is None else table.side.times[cells]
    estimates = fitted.estimates(table.index[cells], times)
    fold = (FOLDS * ((1000 * draw.shares[some]) % 1)).long()
    return Trial.of(table.values[cells], estimates, fold), estimates, cells


def _try_few(holdout: Holdout, table: _Cells, draw: _Draw) -> tuple[FewCells, ...]:
    """Predict held-out cells of tables that are not large, their members showing few cells."""
    if len(table.values) > MAX_REFITTED_CELLS:
        return ()
    read = HeldOutCells(
        holdout.fitted,
        table.index,
        table.values,
        table.side,
        draw.mask,
        holdout.cells,
        holdout.fold,
        draw.shares_at,
    )
    return tuple(each for axis in range(len(table.shape)) if (each := read.try_few(axis)))


def _find_trust(trials: list[Trial], few: tuple[FewCells, ...], fits: _Fits) -> Trust:
    """Find the trust in each estimate on held-out cells."""
    joined = Trial.joined(trials)
    trust = find_trust(joined, *usual_weights(len(fits.cells.shape), fits.biases.means[0]))
    if not few:
        return trust
    tried = Trial.joined([each.trial(fits.cells.values) for each in few])
    return replace(trust, scarce=find_scarce_trust(trust, joined, tried))
