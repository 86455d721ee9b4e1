"""Pooling: how the cells of a group are summarised, and how a cell reads the summary.

A pooling is three pure functions. One *writes* cells into a state with a row per group, one
*merges* two states, and one turns a state into what cells *read*. States of parts of an array
merge to the state of the whole, so cells can be streamed, sharded and added later. The last
part of every state is the count of the group's cells, (G, 1). States are float32 or wider,
whatever the type of the values: half precision cannot count to 100,000.

Cells may be listed, (E, K), or fill a grid, (N_1, ..., N_D, K); each function does both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from exchangeable.array import Support
from exchangeable.groups import Axes, Groups, check_axes
from exchangeable.segments import gather, segment_max, segment_sum

State = tuple[Tensor, ...]


@dataclass(frozen=True)
class GridGroups:
    """The groups that the cells of a full grid form on some axes: its slices."""

    shape: tuple[int, ...]
    axes: Axes
    device: torch.device

    @property
    def pooled(self) -> Axes:
        """The axes that are summed over."""
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.axes)

    @cached_property
    def sizes(self) -> Tensor:
        """Cells of each group, in the shape of the grid with pooled axes of length 1."""
        kept = [size if axis in self.axes else 1 for axis, size in enumerate(self.shape)]
        cells = math.prod(self.shape[axis] for axis in self.pooled)
        return torch.full(kept, cells, device=self.device)


@dataclass(frozen=True)
class Grid:
    """All cells of an array: what a ``Support`` is for a full tensor, without any index."""

    shape: tuple[int, ...]
    device: torch.device

    @property
    def order(self) -> int:
        return len(self.shape)

    def groups(self, axes: Axes) -> GridGroups:
        check_axes(axes, self.order)
        return GridGroups(self.shape, axes, self.device)


Cells = Support | Grid
AnyGroups = Groups | GridGroups


def sum_over(values: Tensor, groups: AnyGroups) -> Tensor:
    """Add up the cells of each group: (E, ...) -> (G, ...). An empty group gives 0."""
    values = _wide(values)
    if isinstance(groups, GridGroups):
        # torch takes an empty list of dimensions to mean all of them.
        return values.sum(dim=groups.pooled, keepdim=True) if groups.pooled else values
    return segment_sum(values, groups)


def max_over(values: Tensor, groups: AnyGroups) -> Tensor:
    """The largest cell of each group, channel by channel: (E, K) -> (G, K). Empty gives -inf."""
    values = _wide(values)
    if isinstance(groups, GridGroups):
        if values.numel() == 0:
            return values.new_full((*groups.sizes.shape, values.shape[-1]), -math.inf)
        return values.amax(dim=groups.pooled, keepdim=True) if groups.pooled else values
    return segment_max(values, groups)


def count_over(values: Tensor, groups: AnyGroups) -> Tensor:
    """How many cells each group has, as a channel beside sums of ``values``: (G, 1)."""
    return groups.sizes.to(_wide(values[:0]).dtype).unsqueeze(-1)


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def spread(pooled: Tensor, groups: AnyGroups) -> Tensor:
    """Give every cell its group's row: (G, ...) -> (E, ...). A grid leaves it to broadcasting."""
    if isinstance(groups, GridGroups):
        return pooled
    return gather(pooled, groups)


def spread_members(members: Tensor, cells: Cells, axis: int) -> Tensor:
    """Give every cell the row of its member on ``axis``: (N, ...) -> (E, ...)."""
    if isinstance(cells, Grid):
        ahead, behind = (None,) * axis, (None,) * (cells.order - axis - 1)
        return members[(*ahead, slice(None), *behind)]
    return gather(members, cells.groups((axis,)))


def spread_product(members: Tensor, weight: Tensor, cells: Cells, axis: int) -> Tensor:
    """Give every cell its member's row times a matrix: (N, F), (F, O) -> (E, O)."""
    if isinstance(cells, Support) and len(cells) < len(members):
        return spread_members(members, cells, axis) @ weight
    return spread_members(members @ weight, cells, axis)


def merge_sums(one: State, other: State) -> State:
    """The state of all the cells of two states whose parts are sums."""
    return tuple(a + b for a, b in zip(one, other, strict=True))


# Sum and mean ----------------------------------------------------------------------------


def write_sum(values: Tensor, groups: AnyGroups) -> State:
    """State (total, count)."""
    return sum_over(values, groups), count_over(values, groups)


def read_sum(state: State) -> Tensor:
    return state[0]


def read_mean(state: State) -> Tensor:
    """The average of each group; an empty one gives 0."""
    total, count = state
    return total / count.clamp(min=1)


# Max -------------------------------------------------------------------------------------


def write_max(values: Tensor, groups: AnyGroups) -> State:
    """State (maximum, count), with -inf as the maximum of an empty group."""
    return max_over(values, groups), count_over(values, groups)


def merge_max(one: State, other: State) -> State:
    return torch.maximum(one[0], other[0]), one[1] + other[1]


def read_max(state: State) -> Tensor:
    """The largest value of each group; an empty one gives 0."""
    maximum, count = state
    return maximum.masked_fill(count == 0, 0.0)


# Attention -------------------------------------------------------------------------------


def write_attention(values: Tensor, scores: Tensor, groups: AnyGroups) -> State:
    """State (peak, weight, total, count) of a softmax of ``scores`` (E, H) within each group.

    Head h weighs the h-th of H equal slices of the channels. Scores enter as exp(score -
    peak), with the group's largest score as its peak, so that nothing overflows.
    """
    # The peak cancels in the end, so no gradient needs to pass through it.
    peak = max_over(scores.detach(), groups)
    weight = (_wide(scores) - spread(peak, groups)).exp()
    sliced = values.unflatten(-1, (scores.shape[-1], -1))
    total = sum_over((weight.unsqueeze(-1) * sliced).flatten(-2), groups)
    return peak, sum_over(weight, groups), total, count_over(values, groups)


def merge_attention(one: State, other: State) -> State:
    peak = torch.maximum(one[0], other[0])
    weights, totals = [], []
    for own_peak, weight, total, count in (one, other):
        rescale = (own_peak - peak).exp().masked_fill(count == 0, 0.0)
        weights.append(weight * rescale)
        totals.append(_by_head(total, rescale))
    return peak, weights[0] + weights[1], totals[0] + totals[1], one[3] + other[3]


def read_attention(state: State) -> Tensor:
    """The weighted average of each group; an empty one gives 0."""
    _, weight, total, count = state
    return _by_head(total, 1 / weight.masked_fill(count == 0, 1.0))


def _by_head(channels: Tensor, factor: Tensor) -> Tensor:
    """Multiply each head's slice of the channels, (G, K), by its factor, (G, H)."""
    return (channels.unflatten(-1, (factor.shape[-1], -1)) * factor.unsqueeze(-1)).flatten(-2)


# Least squares ---------------------------------------------------------------------------


def write_least_squares(features: Tensor, targets: Tensor, groups: AnyGroups) -> State:
    """State (gram, moment, count): sum of f f', sum of t f, for features f and targets t.

    ``features`` (E, H, F) and ``targets`` (E, H) hold H regressions side by side.
    """
    features, targets = _wide(features), _wide(targets)
    gram = sum_over(features.unsqueeze(-1) * features.unsqueeze(-2), groups)
    moment = sum_over(features * targets.unsqueeze(-1), groups)
    return gram, moment, count_over(targets, groups)


def solve_least_squares(state: State, prior: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Each group's ridge solution w (G, H, F) and its posterior covariance C (G, H, F, F).

        C = (diag(prior) + noise * gram)^-1,    w = C (noise * moment)

    ``prior`` (H, F) and ``noise`` (H,) are precisions. An empty group gives the prior:
    w = 0 and C = diag(1 / prior). The prior makes the matrix positive definite however few
    cells there are. A gram of large features, rounded to float32, may miss that by more
    than the prior adds, so the diagonal grows by as much as rounding can have taken away.
    """
    gram, moment, _ = state
    rounding = 2 * gram.shape[-1] * torch.finfo(gram.dtype).eps
    gram, moment, prior, noise = (part.double() for part in (gram, moment, prior, noise))
    gram = noise[:, None, None] * gram
    largest = gram.detach().diagonal(dim1=-2, dim2=-1).amax(dim=-1, keepdim=True)
    root = torch.linalg.cholesky(gram + torch.diag_embed(prior + rounding * largest))
    solution = torch.cholesky_solve((noise[:, None] * moment).unsqueeze(-1), root).squeeze(-1)
    wide = state[0].dtype
    return solution.to(wide), torch.cholesky_inverse(root).to(wide)


def read_least_squares(features: Tensor, solution: Tensor, covariance: Tensor) -> Tensor:
    """What a cell with features f reads of its group: f.w and f'Cf, as channels (E, 2 H)."""
    mean = (features * solution).sum(dim=-1)
    variance = ((features.unsqueeze(-2) @ covariance).squeeze(-2) * features).sum(dim=-1)
    return torch.cat([mean, variance], dim=-1)


# In one go -------------------------------------------------------------------------------


def pool_sum(values: Tensor, groups: AnyGroups) -> Tensor:
    """Add up the cells of each group: (E, K) -> (G, K). An empty group gives 0."""
    return read_sum(write_sum(values, groups)).to(values.dtype)


def pool_mean(values: Tensor, groups: AnyGroups) -> Tensor:
    """Average the cells of each group: (E, K) -> (G, K). An empty group gives 0.

    >>> support = Support.of([(0, 0), (0, 2)], (2, 3))
    >>> pool_mean(torch.tensor([[1.0], [3.0]]), support.groups((0,))).tolist()
    [[2.0], [0.0]]
    """
    return read_mean(write_sum(values, groups)).to(values.dtype)


def pool_max(values: Tensor, groups: AnyGroups) -> Tensor:
    """The largest cell of each group, by channel: (E, K) -> (G, K). An empty group gives 0."""
    return read_max(write_max(values, groups)).to(values.dtype)


def pool_attention(values: Tensor, scores: Tensor, groups: AnyGroups) -> Tensor:
    """Average each group's cells with softmax(scores) as weights: (E, K), (E, H) -> (G, K)."""
    return read_attention(write_attention(values, scores, groups)).to(values.dtype)


def pool_least_squares(
    features: Tensor, targets: Tensor, groups: AnyGroups, prior: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Regress each group's targets on its features: solution and posterior covariance."""
    return solve_least_squares(write_least_squares(features, targets, groups), prior, noise)
