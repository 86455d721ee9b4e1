"""The prior: closed-form predictions for every cell that a model may start from.

Deep layers average well, but solve slowly: what variational factorization finds in a few sweeps
takes them thousands of training steps, and no layer compares members with each other. So a model
can take, for each observed or queried cell, the mean and the deviation of closed-form models, which
its outputs are relative to, and the estimates of these models beside them. The prior is a
function of the observed cells and of what is known beside them, and relabelling relabels it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.cells import Index
from exchangeable.baselines.base import chunks
from exchangeable.prior.closed_form import ClosedForm
from exchangeable.prior.estimates import Estimates, usual_weights
from exchangeable.prior.few_cells import FewCells
from exchangeable.prior.fit import TARGET_HELD_OUT, Holdout, fit_models
from exchangeable.prior.side_information import NO_SIDE_INFORMATION, SideInformation
from exchangeable.prior.trust import Trust
from exchangeable.runtime.cache import cached_property
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.random import residual_hashes
from exchangeable.runtime.threads import run_all
from exchangeable.values.codecs import ValueStats
from exchangeable.values.distributions import location_for_mean

CELLS_PER_ESTIMATE = 1 << 20
"""Cells whose channels are computed at a time; each takes some hundred bytes meanwhile."""

MIN_NARROW_CELLS = 1 << 24
"""Cells from which on their values are kept with seven digits."""

CELLS_PER_LOCATION = {"cpu": 1 << 16, "cuda": 1 << 21}
"""Cells whose locations on a bounded scale are computed at a time, by the device."""


@dataclass(frozen=True, eq=False)
class Prior:
    """Closed-form models of a table, and the trust in each."""

    stats: ValueStats
    fitted: ClosedForm
    trust: Trust
    holdouts: tuple[Holdout, ...] = ()
    """The trials that ``trust`` was found on."""
    later: Tensor | None = None
    """Lowest and highest of the values since cells came later: (2,)."""
    own_ends: tuple[int, Tensor] | None = None
    """Axis of new members, and lowest and highest of the values of each: (B, 2)."""
    joint: bool = False
    """Whether the channels of a cell (i, j) are followed by those of (j, i): the closed-form models
    read both axes apart, also where they are one set."""

    @classmethod
    def of(
        cls,
        observed: ExchangeableArray,
        stats: ValueStats,
        rank: int,
        comparison_budget: float = math.inf,
        side: SideInformation = NO_SIDE_INFORMATION,
        processes: Processes = ALONE,
        widest: int = 0,
    ) -> Prior:
        """Fit to observed values (E, 1); ``rank`` factors at most, fewer where cells are few.

        There are up to ``widest`` where these predict held-out cells much better.

        ``comparison_budget`` limits table entries times compared members. Every process has all
        cells, and computes its share of the sums over them.
        """
        values, index = _standardise(observed, stats), observed.support.index
        if not len(values):
            usual, _ = usual_weights(len(observed.shape), values)
            return cls(stats, ClosedForm.empty(observed.shape, index, values), Trust(usual))
        with torch.no_grad():
            fit = fit_models(
                index, values, observed.shape, rank, comparison_budget, side, processes, widest
            )
        return cls(stats, *fit)

    def without(self, holdout: Holdout, fold: int | None = None) -> Prior:
        """Return the prior that was fitted without the cells of a holdout.

        With a ``fold`` of these the trust is that found without it, too.
        """
        trust = self.trust if fold is None else self.trust.without_fold(fold)
        return Prior(self.stats, holdout.fitted, trust, joint=self.joint)

    def of_few(self, few: FewCells, fold: int | None = None) -> Prior:
        """Return the prior of members that show few cells, which held-out cells were tried with.

        With a ``fold`` of these the trust is that found without it.
        """
        trust = self.trust if fold is None else self.trust.without_fold(fold)
        return Prior(self.stats, few.fitted, trust, joint=self.joint)

    def at(self, times: Tensor | None) -> TimedPrior:
        """Return the prior of cells at given times (Q,)."""
        return TimedPrior(self, times)

    def __call__(self, index: Tensor, times: Tensor | None = None) -> Tensor:
        """Return the channels of cells, in units of the values' spread: (Q, D) -> (Q, K)."""
        tasks = [
            partial(self._channels_at, index[part], None if times is None else times[part])
            for part in chunks(max(len(index), 1), CELLS_PER_ESTIMATE)
        ]
        return torch.cat(run_all(tasks, len(index), index.device))

    def _channels_at(self, index: Tensor, times: Tensor | None) -> Tensor:
        own = self._channels(self.fitted.estimates(index, times), index)
        if not self.joint:
            return own
        mirror = index.flip(1)
        return _with_mirrored(own, self._channels(self.fitted.estimates(mirror, times), mirror))

    def estimate_means(self, index: Tensor) -> tuple[Tensor, Estimates]:
        """Return the means of cells (Q, D) at the latest time, and the estimates they are made of.

        These are without variances, which ``channels_of`` adds for the cells that are read.
        """
        estimates = self.fitted.mean_estimates(index)
        return self._mean(estimates, index), estimates

    def channels_of(self, estimates: Estimates, index: Tensor) -> Tensor:
        """Return the channels of cells (Q, D) that were estimated before: (Q, K)."""
        if not estimates.variances.shape[1]:
            estimates = replace(estimates, variances=self.fitted.variances(index))
        return self._channels(estimates, index)

    def _channels(self, estimates: Estimates, index: Tensor) -> Tensor:
        mean = self._mean(estimates, index)
        deviation = self.trust.variance(estimates.variances).sqrt()
        channels = [self._locate(mean, deviation), deviation, estimates.base - mean]
        channels += [estimates.base - mean + column for column in estimates.factors.T]
        shared = torch.stack(channels, dim=1).float()
        return torch.cat([shared, estimates.similar.flatten(1).float()], dim=1)

    def of_unseen(self, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Predict observed cells as if their members on some axes had no cells.

        Return the positions of the cells, held-out ones where there are any, and their channels.
        """
        every, times = self.fitted, self.fitted.side.times
        trials = [(holdout.mask.nonzero().squeeze(1), holdout.fitted) for holdout in self.holdouts]
        trials = trials or [(torch.arange(len(every.values), device=every.index.device), every)]
        positions, channels = [], []
        for cells, fitted in trials:
            hashes = residual_hashes(every.residuals_at(cells))
            some = cells[hashes.argsort(stable=True)[:TARGET_HELD_OUT]]
            at = None if times is None else times[some]
            index = every.index[some]
            positions.append(some)
            estimates = fitted.estimates_of_unseen(index, axes, at)
            own = self._channels(estimates, index)
            if self.joint:
                mirror, others = index.flip(1), [1 - axis for axis in axes]
                estimates = fitted.estimates_of_unseen(mirror, others, at)
                own = _with_mirrored(own, self._channels(estimates, mirror))
            channels.append(own)
        return torch.cat(positions), torch.cat(channels)

    def predict(self, index: Tensor, times: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Predict mean and variance of cells, noise included."""
        estimates = self.fitted.estimates(index, times)
        return self._mean(estimates, index), self.trust.variance(estimates.variances)

    def _mean(self, estimates: Estimates, index: Tensor) -> Tensor:
        mean = self.trust.mean(estimates)
        # Products of factors may lie far outside of all that was observed.
        low, high = self._range.to(mean.device)
        if self.later is not None:
            low, high = torch.minimum(low, self.later[0]), torch.maximum(high, self.later[1])
        if self.own_ends is not None:
            axis, ends = self.own_ends
            own = ends[index[:, axis]]
            low, high = torch.minimum(low, own[:, 0]), torch.maximum(high, own[:, 1])
        return mean.clamp(low, high)

    @cached_property
    def _range(self) -> Tensor:
        """Lowest and highest of the values that all were fitted to: (2,)."""
        knots = self.stats.knots
        return self.stats.standardise(torch.tensor([knots[0], knots[-1]], dtype=torch.float64))

    def _locate(self, mean: Tensor, deviation: Tensor) -> Tensor:
        """Return the locations that give these means if the model adds nothing."""
        levels = self.stats.standardise(self.stats.levels(mean))
        if len(levels) < 2:
            return mean
        size = CELLS_PER_LOCATION[mean.device.type]
        parts = zip(mean.split(size), deviation.split(size), strict=True)
        return torch.cat([location_for_mean(*part, levels) for part in parts])

    def for_new_members(
        self, axis: int, observed: ExchangeableArray, side: SideInformation = NO_SIDE_INFORMATION
    ) -> Prior:
        """Return the prior for new members of an axis, each from its own cells alone.

        ``observed`` has as many members on that axis as are new.
        """
        values, index = _standardise(observed, self.stats), observed.support.index
        count = observed.shape[axis]
        fitted = self.fitted.for_new_members(axis, index, values, side, count=count)
        ends = values.new_tensor([math.inf, -math.inf]).repeat(count, 1)
        for column, reduce in enumerate(("amin", "amax")):
            ends[:, column].scatter_reduce_(0, index[:, axis], values, reduce)
        return Prior(self.stats, fitted, self.trust, own_ends=(axis, ends))

    def updated(
        self,
        observed: ExchangeableArray,
        changed: Tensor,
        side: SideInformation = NO_SIDE_INFORMATION,
    ) -> Prior:
        """Return the prior after cells at the positions ``changed`` came; refit their members.

        ``side`` has the times of all cells and the features of all members.
        """
        values, index = _standardise(observed, self.stats), observed.support.index
        fitted = self.fitted.updated(index, values, observed.shape, side, changed)
        return Prior(self.stats, fitted, self.trust, self.holdouts, _ends(values), joint=self.joint)


def _with_mirrored(own: Tensor, mirrored: Tensor) -> Tensor:
    """Append the channels of the mirrored cells, the first of them relative to the cells' own."""
    difference = mirrored[:, :1] - own[:, :1]
    return torch.cat([own, difference, mirrored[:, 1:]], dim=1)


def _ends(values: Tensor) -> Tensor | None:
    """Return the lowest and the highest of some values, if there are any: (2,)."""
    return torch.stack([values.min(), values.max()]) if len(values) else None


@dataclass(frozen=True, eq=False)
class TimedPrior:
    """A prior of cells at given times, in the sequence in which the cells come."""

    prior: Prior
    times: Tensor | None  # (Q,)

    def __call__(self, index: Tensor) -> Tensor:
        return self.prior(index, self.times)

    def part(self, cells: slice) -> TimedPrior:
        """Return the prior of some of these cells."""
        return replace(self, times=None if self.times is None else self.times[cells])

    def take(self, positions: Index) -> TimedPrior:
        """Return the prior of the cells at some positions among these."""
        if self.times is None:
            return self
        return replace(self, times=self.times[torch.from_numpy(positions).to(self.times.device)])


def _standardise(observed: ExchangeableArray, stats: ValueStats) -> Tensor:
    """Return the values (E,) in deviations, of large tables with seven digits."""
    values = observed.values.squeeze(1)
    narrow = len(values) >= MIN_NARROW_CELLS
    if not narrow:
        return stats.standardise(values.double())
    return torch.cat([stats.standardise(part).float() for part in values.split(CELLS_PER_ESTIMATE)])
