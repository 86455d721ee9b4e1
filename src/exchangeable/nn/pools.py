"""Poolings as modules: the learned part of each, around the pure functions of ``pooling``.

Every ``Pool`` writes cells into a state and summarises a state as one row per group. A cell
reads its group's row, except in least squares, where the reading depends on the cell's own
features too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar, get_args

import torch
from torch import Generator, Tensor, nn

from exchangeable.arrays.grid import AnyGroups
from exchangeable.nn import pooling
from exchangeable.nn.pooling import State, unpool

if TYPE_CHECKING:
    from exchangeable.kernels import Sums, Weights

M = TypeVar("M", bound=nn.Module)
Pooling = Literal["mean", "sum", "max", "attention", "least_squares"]


def uniform(shape: tuple[int, ...], fan_in: int, generator: Generator | None) -> nn.Parameter:
    """Draw weights between plus and minus 1 / sqrt(fan_in)."""
    bound = max(fan_in, 1) ** -0.5
    device = torch.get_default_device()  # a generator may be on another device than the weights
    weights = torch.empty(shape, device=device if generator is None else generator.device)
    return nn.Parameter(weights.uniform_(-bound, bound, generator=generator).to(device))


class Modules(nn.ModuleList, Generic[M]):
    """A ``ModuleList`` with the type of its modules."""

    def __iter__(self) -> Iterator[M]:
        return super().__iter__()  # type: ignore[return-value]

    def __getitem__(self, number: int) -> M:  # type: ignore[override]
        return super().__getitem__(number)  # type: ignore[return-value]


class Pool(nn.Module):
    """One way of summarising groups of cells."""

    channels: int
    """Number of channels that a cell reads."""
    per_cell = False
    """Whether cells of one group may read different values."""
    has_peak = False
    """Whether a state begins with a peak, to which its other parts refer."""
    neutral: tuple[float, ...] = (0.0, 0.0)
    """The value of each part of the state for a group without cells."""

    def write(self, values: Tensor, groups: AnyGroups) -> State:
        """Write the state of each group's cells: (E, K) -> parts of shape (G, ...)."""
        return pooling.write_sum(values, groups)

    def state_size(self, in_channels: int) -> int:
        """Return how many numbers the state of one group holds."""
        return in_channels + 1

    def align(self, state: State, peak: Tensor) -> State:
        """Refer the sums of a state to another peak, no lower than its own."""
        raise NotImplementedError(f"states of {type(self).__name__} have no peak")

    def summarise(self, state: State) -> Tensor:
        """Summarise each group in one row: (G, R)."""
        raise NotImplementedError

    def read(self, summary: Tensor, values: Tensor) -> Tensor:
        """Read a cell's channels from its group's row and its values: (E, R), (E, K) -> (E, C)."""
        return summary


class SumPool(Pool):
    """The sum of the group's cells."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def summarise(self, state: State) -> Tensor:
        return pooling.read_sum(state)


class MeanPool(SumPool):
    """The average of the group's cells, 0 when there are none."""

    def summarise(self, state: State) -> Tensor:
        return pooling.read_mean(state)


class MaxPool(SumPool):
    """The largest value of each channel in the group, 0 when it is empty."""

    has_peak = True
    neutral = (-math.inf, 0.0, 0.0, 0.0)

    def write(self, values: Tensor, groups: AnyGroups) -> State:
        return pooling.write_max(values, groups)

    def state_size(self, in_channels: int) -> int:
        return 3 * in_channels + 1

    def align(self, state: State, peak: Tensor) -> State:
        return pooling.align_max(state, peak)

    def summarise(self, state: State) -> Tensor:
        return pooling.read_max(state)


class CountPool(Pool):
    """The number of the group's cells, n, as log(1 + n) / 10 and 1 / (1 + n).

    A mean hides how many cells were averaged, and without it no layer can shrink. The
    tenth brings counts up to a hundred million into the range of other channels.
    """

    channels = 2
    neutral = (0.0,)

    def write(self, values: Tensor, groups: AnyGroups) -> State:
        return (pooling.count_over(values, groups),)

    def state_size(self, in_channels: int) -> int:
        return 1

    def summarise(self, state: State) -> Tensor:
        (count,) = state
        return torch.cat([count.log1p() / 10, 1 / (1 + count)], dim=-1)


class AttentionPool(Pool):
    """An average of the group's cells weighted by a softmax of learned scores, head by head."""

    has_peak = True
    neutral = (-math.inf, 0.0, 0.0, 0.0)

    def __init__(self, channels: int, heads: int, generator: Generator | None = None) -> None:
        super().__init__()
        if heads < 1 or channels % heads:
            raise ValueError(f"heads must divide the {channels} channels, but are {heads}")
        self.channels = channels
        self.scores = uniform((channels, heads), channels, generator)

    def write(self, values: Tensor, groups: AnyGroups) -> State:
        return self.write_scored(values, values @ self.scores, groups)

    def write_scored(self, values: Tensor, scores: Tensor, groups: AnyGroups) -> State:
        """Write cells whose scores were computed before: (E, K), (E, H)."""
        return pooling.write_attention(values, scores, groups)

    def state_size(self, in_channels: int) -> int:
        return in_channels + 2 * self.scores.shape[1] + 1

    def align(self, state: State, peak: Tensor) -> State:
        return pooling.align_attention(state, peak)

    def summarise(self, state: State) -> Tensor:
        return pooling.read_attention(state)


class LeastSquaresPool(Pool):
    """Each group regresses a learned target of its cells on learned features of them.

    A cell with features f reads f.w and f'Cf, the regression's prediction for it and the
    variance of that: one of each per head. Regressing rows and columns in turn is what
    Bayesian matrix factorization does.
    """

    per_cell = True
    neutral = (0.0, 0.0, 0.0)

    def __init__(
        self, channels: int, heads: int, rank: int, generator: Generator | None = None
    ) -> None:
        super().__init__()
        if heads < 1 or rank < 1:
            raise ValueError(f"heads and rank must be 1 or more, but are {heads} and {rank}")
        self.channels = 2 * heads
        self.heads, self.rank = heads, rank
        self.features = uniform((channels, heads * rank), channels, generator)
        self.targets = uniform((channels, heads), channels, generator)
        self.log_prior = nn.Parameter(torch.zeros(heads, rank))
        self.log_noise = nn.Parameter(torch.zeros(heads))

    def write(self, values: Tensor, groups: AnyGroups) -> State:
        return pooling.write_least_squares(self._features(values), values @ self.targets, groups)

    def state_size(self, in_channels: int) -> int:
        return self.heads * self.rank * (2 * self.rank + 2)

    def summarise(self, state: State) -> Tensor:
        # Beyond e^-16 and e^16 a precision amounts to none, or to certainty.
        prior, noise = (log.clamp(-16, 16).exp() for log in (self.log_prior, self.log_noise))
        solution, covariance = pooling.solve_least_squares(state, prior, noise)
        return torch.cat([solution.flatten(-2), covariance.flatten(-3)], dim=-1)

    def read(self, summary: Tensor, values: Tensor) -> Tensor:
        size = self.heads * self.rank
        solution, covariance = summary.split([size, size * self.rank], dim=-1)
        return pooling.read_least_squares(
            self._features(values),
            solution.unflatten(-1, (self.heads, self.rank)),
            covariance.unflatten(-1, (self.heads, self.rank, self.rank)),
        )

    def _features(self, values: Tensor) -> Tensor:
        return (values @ self.features).unflatten(-1, (self.heads, self.rank))


def make_pool(
    kind: Pooling, channels: int, *, heads: int, rank: int, generator: Generator | None = None
) -> Pool:
    """Make the pool that a configuration names."""
    match kind:
        case "mean":
            return MeanPool(channels)
        case "sum":
            return SumPool(channels)
        case "max":
            return MaxPool(channels)
        case "attention":
            return AttentionPool(channels, heads, generator)
        case "least_squares":
            return LeastSquaresPool(channels, heads, rank, generator)
    raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, but is {kind!r}")


class GroupReadout(NamedTuple):
    """What cells read from the groups on some axes."""

    rows: Tensor | None  # (G, O), already multiplied: that costs a row per group, not per cell
    per_cell: tuple[Tensor, ...]  # (G, R) each, of pools that each cell reads in its own way


class PooledTerm(nn.Module):
    """One term of a layer: pool the cells that agree on some axes, multiply, spread again."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        pooling: Sequence[Pooling],
        *,
        counts: bool,
        heads: int,
        rank: int,
        fan_in: int,
        generator: Generator | None,
        further: Sequence[Pool] = (),
    ) -> None:
        super().__init__()
        pools = [
            make_pool(kind, in_channels, heads=heads, rank=rank, generator=generator)
            for kind in pooling
        ]
        self.pools = Modules[Pool]([*pools, *([CountPool()] if counts else []), *further])
        self.weights = nn.ParameterList(
            [uniform((pool.channels, out_channels), fan_in, generator) for pool in self.pools]
        )

    def readout(
        self, states: tuple[State, ...], dtype: torch.dtype, rows: Tensor | None = None
    ) -> GroupReadout:
        """Prepare what cells read, from the states of the pools.

        ``rows`` are the rows of the groups where ``rows_fused`` has computed them.
        """
        terms = list(zip(self.pools, states, self.weights, strict=True))
        per_cell = tuple(
            pool.summarise(state).to(dtype) for pool, state, _ in terms if pool.per_cell
        )
        per_group = [term for term in terms if not term[0].per_cell]
        if not per_group:
            return GroupReadout(None, per_cell)
        if rows is not None:
            return GroupReadout(rows, per_cell)
        summary = torch.cat(
            [pool.summarise(state).to(dtype) for pool, state, _ in per_group], dim=-1
        )
        # Groups are few: one product in full precision is cheaper than several in half.
        narrow = torch.is_autocast_enabled(summary.device.type)
        with torch.autocast(summary.device.type, enabled=False) if narrow else nullcontext():
            rows = summary @ torch.cat([weight for *_, weight in per_group])
        return GroupReadout(rows, per_cell)

    def read_per_cell(
        self, readout: GroupReadout, values: Tensor, groups: AnyGroups
    ) -> Tensor | None:
        """Read the pools whose reading depends on the cell itself: (E, O), None without any."""
        if not readout.per_cell:
            return None
        total = None
        weights = [w for pool, w in zip(self.pools, self.weights, strict=True) if pool.per_cell]
        pools = [pool for pool in self.pools if pool.per_cell]
        for pool, summary, weight in zip(pools, readout.per_cell, weights, strict=True):
            more = pool.read(unpool(summary, groups), values) @ weight
            total = more if total is None else total + more
        return total


def rows_fused(
    terms: Sequence[PooledTerm], states: Sequence[tuple[State, ...]]
) -> list[Tensor] | None:
    """Multiply the summaries of several terms by their weights, in one kernel on a GPU.

    None where there is none: it takes means, attention and counts, the same of all terms.
    """
    if not states or not states[0][0][-1].is_cuda:
        return None
    from exchangeable.kernels import can_summarise, summarise_all

    pairs = []
    for term, each in zip(terms, states, strict=True):
        pair = _sums_and_weights(term, each)
        if pair is None or not can_summarise(*pair):
            return None
        pairs.append(pair)
    return summarise_all([sums for sums, _ in pairs], [weights for _, weights in pairs])


def _sums_and_weights(term: PooledTerm, states: tuple[State, ...]) -> tuple[Sums, Weights] | None:
    """Return the sums and the weights of a term for the kernel; None if others are there too."""
    from exchangeable.kernels import Sums, Weights

    per_group = [
        each for each in zip(term.pools, states, term.weights, strict=True) if not each[0].per_cell
    ]
    by_kind = {type(pool): (state, weight) for pool, state, weight in per_group}
    known = set(by_kind) <= {MeanPool, AttentionPool, CountPool}
    if not by_kind or len(by_kind) < len(per_group) or not known:
        return None
    (total, _), mean = by_kind.get(MeanPool, ((None, None), None))
    (_, weight, weighted, _), attention = by_kind.get(AttentionPool, ((None,) * 4, None))
    _, counts = by_kind.get(CountPool, ((), None))
    sums = Sums(per_group[0][1][-1], total, weight, weighted)
    return sums, Weights(mean, attention, counts)
