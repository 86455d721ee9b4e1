"""What is answered for a cell: a distribution, with its mean, quantiles and probabilities.

Every kind works on Q cells at once. Quantiles are real numbers, for scales with levels too: those
of the distribution of real numbers that is behind the levels, or, where none is, with a level's
probability spread evenly over the values that are nearest to it. The latter holds too much, since
levels are within an interval or without as a whole: 87 % of ratings on five levels for 80 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from exchangeable.errors import InputError

_LEAST = 1e-12  # of a probability, so that its logarithm is finite
_MOST_STEPS = 60
_CLOSE_SHARE = 1e-8  # of the probability below a quantile, before the last step
_CLOSE = 1e-3  # of a hundredth of the scale, when a mean is that which was wanted
_ROOT = math.sqrt(2 * math.pi)


class Distribution(Protocol):
    """Answers for Q cells."""

    def take(self, cells: Tensor) -> Self:
        """For some of the cells, by their positions."""
        ...

    def mean(self) -> Tensor:
        """(Q,)"""
        ...

    def quantile(self, share: float) -> Tensor:
        """The value below which ``share`` of the probability lies: (Q,)."""
        ...

    def rank(self, values: Tensor) -> Tensor:
        """The share of the probability that lies below a value of each cell: (Q,) -> (Q,)."""
        ...

    def probabilities(self) -> Tensor:
        """Of each level, for scales that have them: (Q, L)."""
        ...

    def log_likelihood(self, values: Tensor) -> Tensor:
        """Log probability of a level, or log density of a real number: (Q,) -> (Q,)."""
        ...


@dataclass(frozen=True, eq=False)
class OnLevels:
    """A probability for each of L levels.

    >>> answer = OnLevels(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[0.25, 0.5, 0.25]]).log())
    >>> answer.mean().tolist(), answer.quantile(0.5).tolist()
    ([2.0], [2.0])
    """

    levels: Tensor  # (L,), ascending
    log_probabilities: Tensor  # (Q, L)
    behind: LogisticMixture | None = None

    def take(self, cells: Tensor) -> OnLevels:
        behind = None if self.behind is None else self.behind.take(cells)
        return OnLevels(self.levels, self.log_probabilities[cells], behind)

    def mean(self) -> Tensor:
        return self.probabilities() @ self.levels

    def probabilities(self) -> Tensor:
        return self.log_probabilities.exp()

    def quantile(self, share: float) -> Tensor:
        ends = float(self.levels[0]), float(self.levels[-1])
        if self.behind is not None:
            return self.behind.quantile(share).clamp(*ends)
        edges = edges_of(self.levels)
        below = self.probabilities().cumsum(dim=1)  # (Q, L)
        wanted = torch.full_like(below[:, :1], share)
        at = torch.searchsorted(below, wanted).clamp(max=len(self.levels) - 1)
        mass = self.probabilities().gather(1, at).clamp(min=_LEAST)
        within = ((wanted - below.gather(1, at)) / mass + 1).clamp(0, 1).squeeze(1)
        at = at.squeeze(1)
        value = edges[at] + within * (edges[at + 1] - edges[at])
        return value.clamp(*ends)

    def rank(self, values: Tensor) -> Tensor:
        if self.behind is not None:
            return self.behind.rank(values)
        edges, at = edges_of(self.levels), nearest_level(values, self.levels)
        own = self.probabilities()
        within = ((values - edges[at]) / (edges[at + 1] - edges[at])).clamp(0, 1)
        here = own.gather(1, at[:, None]).squeeze(1)
        return own.cumsum(dim=1).gather(1, at[:, None]).squeeze(1) - (1 - within) * here

    def log_likelihood(self, values: Tensor) -> Tensor:
        at = nearest_level(values, self.levels)
        return self.log_probabilities.gather(1, at[:, None]).squeeze(1)


@dataclass(frozen=True, eq=False)
class Normal:
    """A mean and a deviation, within the ends of the levels where a scale has them."""

    location: Tensor  # (Q,)
    deviation: Tensor  # (Q,)
    levels: Tensor | None = None  # (L,), ascending

    def take(self, cells: Tensor) -> Normal:
        return Normal(self.location[cells], self.deviation[cells], self.levels)

    def mean(self) -> Tensor:
        return self._inside(self.location)

    def probabilities(self) -> Tensor:
        return self.on_levels().probabilities()

    def quantile(self, share: float) -> Tensor:
        away = torch.special.ndtri(self.location.new_tensor(share))
        return self._inside(self.location + self.deviation * away)

    def rank(self, values: Tensor) -> Tensor:
        return torch.special.ndtr((values - self.location) / self.deviation.clamp(min=_LEAST))

    def log_likelihood(self, values: Tensor) -> Tensor:
        if self.levels is not None:
            return self.on_levels().log_likelihood(values)
        away = (values - self.location) / self.deviation.clamp(min=_LEAST)
        constant = 0.5 * math.log(2 * math.pi)
        return -0.5 * away**2 - self.deviation.clamp(min=_LEAST).log() - constant

    def on_levels(self) -> OnLevels:
        if self.levels is None:
            raise InputError("probabilities need a scale with levels, but the values are real")
        inner = edges_of(self.levels)[1:-1]
        spread = self.deviation.clamp(min=_LEAST)[:, None]
        below = torch.special.ndtr((inner - self.location[:, None]) / spread)
        return OnLevels(self.levels, log_level_probabilities(below))

    def _inside(self, values: Tensor) -> Tensor:
        if self.levels is None:
            return values
        return values.clamp(float(self.levels[0]), float(self.levels[-1]))


def placed(mean: Tensor, deviation: Tensor, levels: Tensor) -> Tensor:
    """Where a Normal must be for its mean on levels to be a given one, if that can be: (Q,).

    Near an end of the scale what would lie beyond it is missing, so it has to be further out.
    """
    gap = (levels[-1] - levels[0]) / 100
    wanted = mean.clamp(levels[0] + gap, levels[-1] - gap)
    low, high = levels[0] - 5 * deviation, levels[-1] + 5 * deviation
    spread, found = deviation.clamp(min=_LEAST), wanted.clone()
    inner, gaps = edges_of(levels)[1:-1], levels.diff()
    left = torch.arange(len(mean), device=mean.device)  # those whose place is not found yet
    for number in range(_MOST_STEPS):
        at, width = found[left], spread[left]
        apart = (inner - at[:, None]) / width[:, None]
        away = levels[-1] - torch.special.ndtr(apart) @ gaps - wanted[left]
        low[left] = torch.where(away < 0, at, low[left])
        high[left] = torch.where(away < 0, high[left], at)
        # Newton's step; where the curve is a staircase it leads astray, so halve now and then.
        step = at - away / ((-0.5 * apart**2).exp() @ gaps / (width * _ROOT)).clamp(min=_LEAST)
        inside = (step > low[left]) & (step < high[left]) & (number % 3 < 2)
        step = torch.where(inside, step, (low[left] + high[left]) / 2)
        off = away.abs() > _CLOSE * gap
        left = left[off]
        if not len(left):
            break
        found[left] = step[off]
    return found


@dataclass(frozen=True, eq=False)
class LogisticMixture:
    """A mixture of C logistic distributions for each cell, of real numbers."""

    log_weights: Tensor  # (Q, C)
    locations: Tensor  # (Q, C)
    scales: Tensor  # (Q, C)

    def take(self, cells: Tensor) -> LogisticMixture:
        return LogisticMixture(self.log_weights[cells], self.locations[cells], self.scales[cells])

    def mean(self) -> Tensor:
        return (self.log_weights.exp() * self.locations).sum(dim=1)

    def below(self, values: Tensor) -> Tensor:
        """The probability of less than each of ``values`` (Q, V): (Q, V)."""
        away = (values.unsqueeze(-1) - self.locations.unsqueeze(1)) / self.scales.unsqueeze(1)
        return (self.log_weights.exp().unsqueeze(1) * away.sigmoid()).sum(dim=-1)

    def on_levels(self, levels: Tensor) -> OnLevels:
        """The probability of the values that are nearest to each level."""
        inner = edges_of(levels)[1:-1].expand(len(self.locations), -1)
        return OnLevels(levels, log_level_probabilities(self.below(inner)), self)

    def probabilities(self) -> Tensor:
        raise InputError("probabilities need a scale with levels, but the values are real")

    def quantile(self, share: float) -> Tensor:
        # Each component's own quantile; that of the mixture lies between the outer two.
        own = self.locations + self.scales * math.log(share / (1 - share))
        low, high = own.amin(dim=1), own.amax(dim=1)
        weights = self.log_weights.exp()
        close = max(_CLOSE_SHARE * min(share, 1 - share), 4 * torch.finfo(weights.dtype).eps)
        found, before = (weights * own).sum(dim=1), torch.full_like(low, torch.inf)
        for _ in range(_MOST_STEPS):
            below = ((found[:, None] - self.locations) / self.scales).sigmoid()
            off = (weights * below).sum(dim=1) - share
            low, high = torch.where(off < 0, found, low), torch.where(off < 0, high, found)
            near = off.abs() < close
            # Newton's step, or the middle where it leads out or the last one did little good.
            step = found - off / (weights * below * (1 - below) / self.scales).sum(dim=1)
            good = (step >= low) & (step <= high) & (near | (off.abs() < before / 2))
            found, before = torch.where(good, step, (low + high) / 2), off.abs()
            if bool(near.all()):
                break
        return found

    def rank(self, values: Tensor) -> Tensor:
        return self.below(values[:, None]).squeeze(1)

    def log_likelihood(self, values: Tensor) -> Tensor:
        away = (values[:, None] - self.locations) / self.scales
        density = torch.nn.functional.logsigmoid(away) + torch.nn.functional.logsigmoid(-away)
        return (self.log_weights + density - self.scales.log()).logsumexp(dim=1)


def edges_of(levels: Tensor) -> Tensor:
    """Where the values nearest to each level begin and end: (L,) -> (L + 1,)."""
    if len(levels) == 1:
        return torch.stack([levels[0] - 0.5, levels[0] + 0.5])
    middle = (levels[1:] + levels[:-1]) / 2
    first, last = 2 * levels[:1] - middle[:1], 2 * levels[-1:] - middle[-1:]
    return torch.cat([first, middle, last])


def nearest_level(values: Tensor, levels: Tensor) -> Tensor:
    """Which level each value is nearest to: (Q,) -> (Q,)."""
    if len(levels) == 1:
        return torch.zeros(len(values), dtype=torch.int64, device=values.device)
    return torch.searchsorted(edges_of(levels)[1:-1].contiguous(), values.contiguous())


def log_level_probabilities(below: Tensor) -> Tensor:
    """Log probability between ascending cuts, (Q, L - 1) of probabilities below: (Q, L)."""
    zero, one = torch.zeros_like(below[:, :1]), torch.ones_like(below[:, :1])
    if not below.shape[1]:
        return below.new_zeros(len(below), 1)
    masses = torch.cat([below, one], dim=1) - torch.cat([zero, below], dim=1)
    masses = masses.clamp(min=_LEAST if below.dtype == torch.float64 else 1e-7)
    return (masses / masses.sum(dim=1, keepdim=True)).log()
