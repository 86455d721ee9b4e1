"""Predicted distributions of the values of cells: means, quantiles, ranks and probabilities.

Every class holds the distributions of Q cells. Quantiles are real numbers, for scales with levels
too: those of the latent distribution of real numbers, or, without one, with each level's
probability spread evenly over the values that are nearest to it. The latter intervals hold too
much, since a level is inside or outside as a whole: 87 % of ratings on five levels for 80 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from exchangeable.errors import InputError

_TINY = 1e-12  # smallest probability, so that its logarithm is finite, and smallest deviation
_MAX_STEPS = 60
_SHARE_TOLERANCE = 1e-8  # relative error of the share below a quantile, before the last step
_MEAN_TOLERANCE = 1e-3  # error of a mean, in hundredths of the scale
_ROOT_2_PI = math.sqrt(2 * math.pi)

MAX_FEW = 1 << 12
"""Cells up to which a search goes on with all of them until the last is found."""


Share = float | Tensor
"""A share of the probability, or one for each cell (Q,)."""


class Distribution(Protocol):
    """The predicted distributions of Q cells."""

    def take(self, cells: Tensor) -> Self:
        """Select cells by position."""
        ...

    def mean(self) -> Tensor:
        """Mean of each cell: (Q,)."""
        ...

    def quantile(self, share: Share) -> Tensor:
        """The value below which ``share`` of the probability lies: (Q,)."""
        ...

    def rank(self, values: Tensor) -> Tensor:
        """The share of the probability that lies below a value of each cell: (Q,) -> (Q,)."""
        ...

    def bounds(self) -> tuple[float, float] | None:
        """The lowest and the highest level, for scales with levels."""
        ...

    def probabilities(self) -> Tensor:
        """Probability of each level, for scales with levels: (Q, L)."""
        ...

    def log_likelihood(self, values: Tensor) -> Tensor:
        """Log probability of a level, or log density of a real number: (Q,) -> (Q,)."""
        ...


@dataclass(frozen=True, eq=False)
class OnLevels:
    """A probability for each of L levels.

    >>> levels, shares = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[0.25, 0.5, 0.25]])
    >>> prediction = OnLevels(levels, shares.log())
    >>> prediction.mean().tolist(), prediction.quantile(0.5).tolist()
    ([2.0], [2.0])
    """

    levels: Tensor  # (L,), ascending
    log_probabilities: Tensor  # (Q, L)
    latent: LogisticMixture | None = None
    """Distribution of real numbers that was cut into levels, if there is one."""

    def take(self, cells: Tensor) -> OnLevels:
        latent = None if self.latent is None else self.latent.take(cells)
        return OnLevels(self.levels, self.log_probabilities[cells], latent)

    def mean(self) -> Tensor:
        return self.probabilities() @ self.levels

    def probabilities(self) -> Tensor:
        return self.log_probabilities.exp()

    def bounds(self) -> tuple[float, float]:
        return float(self.levels[0]), float(self.levels[-1])

    def quantile(self, share: Share) -> Tensor:
        ends = self.bounds()
        if self.latent is not None:
            return self.latent.quantile(share).clamp(*ends)
        edges = level_edges(self.levels)
        below = self.probabilities().cumsum(dim=1)  # (Q, L)
        target = torch.as_tensor(share, dtype=below.dtype).expand(len(below))[:, None].contiguous()
        at = torch.searchsorted(below, target).clamp(max=len(self.levels) - 1)
        mass = self.probabilities().gather(1, at).clamp(min=_TINY)
        within = ((target - below.gather(1, at)) / mass + 1).clamp(0, 1).squeeze(1)
        at = at.squeeze(1)
        value = edges[at] + within * (edges[at + 1] - edges[at])
        return value.clamp(*ends)

    def rank(self, values: Tensor) -> Tensor:
        if self.latent is not None:
            return self.latent.rank(values)
        edges, at = level_edges(self.levels), nearest_level(values, self.levels)
        probabilities = self.probabilities()
        within = ((values - edges[at]) / (edges[at + 1] - edges[at])).clamp(0, 1)
        mass = probabilities.gather(1, at[:, None]).squeeze(1)
        below = probabilities.cumsum(dim=1).gather(1, at[:, None]).squeeze(1)
        return below - (1 - within) * mass

    def log_likelihood(self, values: Tensor) -> Tensor:
        at = nearest_level(values, self.levels)
        return self.log_probabilities.gather(1, at[:, None]).squeeze(1)


@dataclass(frozen=True, eq=False)
class Normal:
    """A normal distribution for each cell; on a scale with levels, clipped to their range."""

    location: Tensor  # (Q,)
    deviation: Tensor  # (Q,)
    levels: Tensor | None = None  # (L,), ascending

    def take(self, cells: Tensor) -> Normal:
        return Normal(self.location[cells], self.deviation[cells], self.levels)

    def mean(self) -> Tensor:
        return self._inside(self.location)

    def bounds(self) -> tuple[float, float] | None:
        return None if self.levels is None else (float(self.levels[0]), float(self.levels[-1]))

    def probabilities(self) -> Tensor:
        return self.on_levels().probabilities()

    def quantile(self, share: Share) -> Tensor:
        away = torch.special.ndtri(torch.as_tensor(share, dtype=self.location.dtype))
        return self._inside(self.location + self.deviation * away)

    def rank(self, values: Tensor) -> Tensor:
        return torch.special.ndtr((values - self.location) / self.deviation.clamp(min=_TINY))

    def log_likelihood(self, values: Tensor) -> Tensor:
        if self.levels is not None:
            return self.on_levels().log_likelihood(values)
        away = (values - self.location) / self.deviation.clamp(min=_TINY)
        constant = 0.5 * math.log(2 * math.pi)
        return -0.5 * away**2 - self.deviation.clamp(min=_TINY).log() - constant

    def on_levels(self) -> OnLevels:
        """Give each level the probability of the values that are nearest to it."""
        if self.levels is None:
            raise InputError("probabilities need a scale with levels, but the values are real")
        inner = inner_edges(self.levels)
        spread = self.deviation.clamp(min=_TINY)[:, None]
        below = torch.special.ndtr((inner - self.location[:, None]) / spread)
        return OnLevels(self.levels, log_level_probabilities(below))

    def _inside(self, values: Tensor) -> Tensor:
        if self.levels is None:
            return values
        return values.clamp(float(self.levels[0]), float(self.levels[-1]))


def interval(distribution: Distribution, coverage: float) -> tuple[Tensor, Tensor]:
    """The ends of intervals that hold each cell with this probability: (Q,) each.

    Between tails of equal share; but where an end of the scale has more than half of the
    probability no tail can be cut off there, so the other tail is as large as both. The mean is
    always inside: that of a skewed distribution may be beyond a quantile.
    """
    low, high = _between_tails(distribution, coverage)
    mean = distribution.mean()
    return torch.minimum(low, mean), torch.maximum(high, mean)


def _between_tails(distribution: Distribution, coverage: float) -> tuple[Tensor, Tensor]:
    tail, bounds = (1 - coverage) / 2, distribution.bounds()
    every = torch.arange(len(distribution.mean()))
    if bounds is None:
        low, high = _quantiles(distribution, [(every, tail), (every, 1 - tail)])
        return low, high
    probabilities = distribution.probabilities()
    # Intervals between levels hold less than the mean of all, so only these are shortened.
    start, end = ((column > 0.5).nonzero().squeeze(1) for column in probabilities[:, [0, -1]].T)
    wanted = [(every, tail), (every, 1 - tail), (start, coverage), (end, 1 - coverage)]
    low, high, start_high, end_low = _quantiles(distribution, wanted)
    end_low = torch.where(high[end] >= bounds[1], end_low, low[end])
    high[start] = torch.where(low[start] <= bounds[0], start_high, high[start])
    low[end] = end_low
    return low, high


def _quantiles(distribution: Distribution, wanted: list[tuple[Tensor, float]]) -> list[Tensor]:
    """Return quantiles of some cells each, by positions and share, found in one search."""
    sizes = [len(cells) for cells, _ in wanted]
    shares = torch.tensor([share for _, share in wanted], dtype=torch.float64)
    cells = torch.cat([cells for cells, _ in wanted])
    return list(
        distribution.take(cells)
        .quantile(shares.repeat_interleave(torch.tensor(sizes)))
        .split_with_sizes(sizes)
    )


def location_for_mean(mean: Tensor, deviation: Tensor, levels: Tensor) -> Tensor:
    """Find the location at which a ``Normal`` on levels has the given mean: (Q,).

    Near an end of the scale the part beyond it is cut off, so the location lies further out.
    Means within a hundredth of an end are moved inwards.
    """
    first, last = levels[[0, -1]].tolist()
    gap = (last - first) / 100
    target = mean.clamp(first + gap, last - gap)
    inner, gaps = inner_edges(levels), levels.diff()
    low, high = first - 5 * deviation, last + 5 * deviation
    width, at, aim = deviation.clamp(min=_TINY)[:, None], target, last - target
    before = torch.full_like(target, math.inf)  # errors of the step before
    location, left = target.clone(), None  # positions that are still computed, None: all
    for _ in range(_MAX_STEPS):
        apart = (inner - at[:, None]).div_(width)  # (Q, L - 1)
        away = torch.addmv(aim, torch.special.ndtr(apart), gaps, alpha=-1)
        under = away < 0
        low, high = torch.where(under, at, low), torch.where(under, high, at)
        # Newton's step; where the curve is a staircase it diverges or crawls, so bisect there.
        slope = torch.mv(apart.square_().mul_(-0.5).exp_().div_(width), gaps)
        newton = torch.addcdiv(at, away, slope, value=-_ROOT_2_PI)
        away.abs_()
        useful = (newton > low) & (newton < high) & (2 * away < before)
        step = torch.where(useful, newton, torch.lerp(low, high, 0.5))
        off = away > _MEAN_TOLERANCE * gap
        at, before = torch.where(off, step, at), away
        remaining = int(off.count_nonzero())
        if remaining and (len(off) <= MAX_FEW or 2 * remaining > len(off)):
            continue
        # Few cells take many steps, and the others are not computed with them.
        location = at if left is None else location.index_copy_(0, left, at)
        if not remaining:
            return location
        kept = off.nonzero().squeeze(1)
        left = kept if left is None else left[kept]
        at, low, high, aim, width, before = (x[kept] for x in (at, low, high, aim, width, before))
    return at if left is None else location.index_copy_(0, left, at)


@dataclass(frozen=True, eq=False)
class LogisticMixture:
    """A mixture of C logistic distributions of real numbers for each cell."""

    log_weights: Tensor  # (Q, C)
    locations: Tensor  # (Q, C)
    scales: Tensor  # (Q, C)

    def take(self, cells: Tensor) -> LogisticMixture:
        return LogisticMixture(self.log_weights[cells], self.locations[cells], self.scales[cells])

    def mean(self) -> Tensor:
        return (self.log_weights.exp() * self.locations).sum(dim=1)

    def below(self, values: Tensor) -> Tensor:
        """Probability below each of ``values``: (Q, V) -> (Q, V)."""
        away = (values.unsqueeze(-1) - self.locations.unsqueeze(1)) / self.scales.unsqueeze(1)
        return (self.log_weights.exp().unsqueeze(1) * away.sigmoid()).sum(dim=-1)

    def on_levels(self, levels: Tensor) -> OnLevels:
        """Give each level the probability of the values that are nearest to it."""
        inner = inner_edges(levels).expand(len(self.locations), -1)
        return OnLevels(levels, log_level_probabilities(self.below(inner)), self)

    def bounds(self) -> None:
        return None

    def probabilities(self) -> Tensor:
        raise InputError("probabilities need a scale with levels, but the values are real")

    def quantile(self, share: Share) -> Tensor:
        # The quantile of the mixture lies between the outer quantiles of its components.
        weights = self.log_weights.exp()
        share = torch.as_tensor(share, dtype=weights.dtype, device=weights.device)
        bounds = self.locations + self.scales * share.logit().unsqueeze(-1)
        low, high = bounds.aminmax(dim=1)
        close = _SHARE_TOLERANCE * torch.minimum(share, 1 - share)
        close = close.clamp(min=4 * torch.finfo(weights.dtype).eps)
        value, before = (weights * bounds).sum(dim=1), torch.full_like(low, torch.inf)
        steepness, target = 1 / self.scales, share.logit()
        for _ in range(_MAX_STEPS):
            below = (value[:, None] - self.locations).mul_(steepness).sigmoid_()
            parts = weights * below
            total = parts.sum(dim=1)
            off = total - share
            under = off < 0
            low, high = torch.where(under, value, low), torch.where(under, high, value)
            # Newton's step for the logits, which are nearly straight, or bisection where it leaves
            # the bounds or the last step gained little.
            density = parts.sub_(parts * below).mul_(steepness).sum(dim=1)
            step = value - (total.logit() - target) * total * (1 - total) / density
            size = off.abs_()
            near = size < close
            good = (step >= low) & (step <= high) & (near | (size < before / 2))
            value, before = torch.where(good, step, (low + high) / 2), size
            if bool(near.all()):
                break
        return value

    def rank(self, values: Tensor) -> Tensor:
        return self.below(values[:, None]).squeeze(1)

    def log_likelihood(self, values: Tensor) -> Tensor:
        away = (values[:, None] - self.locations) / self.scales
        density = torch.nn.functional.logsigmoid(away) + torch.nn.functional.logsigmoid(-away)
        return (self.log_weights + density - self.scales.log()).logsumexp(dim=1)


def level_edges(levels: Tensor) -> Tensor:
    """Bounds between the values nearest to each level, ends included: (L,) -> (L + 1,)."""
    if len(levels) == 1:
        return torch.stack([levels[0] - 0.5, levels[0] + 0.5])
    middle = inner_edges(levels)
    first, last = 2 * levels[:1] - middle[:1], 2 * levels[-1:] - middle[-1:]
    return torch.cat([first, middle, last])


def inner_edges(levels: Tensor) -> Tensor:
    """Bounds between the values nearest to each level, without ends: (L,) -> (L - 1,)."""
    return (levels[1:] + levels[:-1]) / 2


def nearest_level(values: Tensor, levels: Tensor) -> Tensor:
    """Position of the level that is nearest to each value: (Q,) -> (Q,)."""
    if len(levels) == 1:
        return torch.zeros(len(values), dtype=torch.int64, device=values.device)
    return torch.searchsorted(inner_edges(levels), values.contiguous())


def log_level_probabilities(below: Tensor) -> Tensor:
    """Log probability of each level, from that below each inner edge: (Q, L - 1) -> (Q, L)."""
    zero, one = torch.zeros_like(below[:, :1]), torch.ones_like(below[:, :1])
    if not below.shape[1]:
        return below.new_zeros(len(below), 1)
    masses = torch.cat([below, one], dim=1) - torch.cat([zero, below], dim=1)
    masses = masses.clamp(min=_TINY if below.dtype == torch.float64 else 1e-7)
    return (masses / masses.sum(dim=1, keepdim=True)).log()
