"""Pooling: how the cells of a group are summarised, and how a cell reads the summary.

A pooling is three pure functions. One *writes* cells into a state with a row per group, one
*merges* two states, and one turns a state into what cells *read*. States of parts of an array
merge to the state of the whole, so cells can be streamed, sharded and added later. The last
part of every state is the count of the group's cells, (G, 1). States are float32 or wider,
whatever the type of the values: half precision cannot count to 100,000.

All parts of a state are sums over cells, except that some begin with a peak: the group's largest
score or value, to which the sums refer. States that are *aligned* to the same peak add up, part
by part.

Cells may be listed, (E, K), or fill a grid, (N_1, ..., N_D, K); each function does both.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from exchangeable.arrays.grid import AnyCells, AnyGroups, Grid, GridGroups
from exchangeable.nn.segments import gather, segment_max, segment_sum

State = tuple[Tensor, ...]
Align = Callable[[State, Tensor], State]


def sum_over(values: Tensor, groups: AnyGroups) -> Tensor:
    """Add up the cells of each group: (E, ...) -> (G, ...). An empty group gives 0."""
    values = _wide(values)
    if isinstance(groups, GridGroups):
        # torch takes an empty list of dimensions to mean all of them.
        return values.sum(dim=groups.pooled, keepdim=True) if groups.pooled else values
    return segment_sum(values, groups)


def max_over(values: Tensor, groups: AnyGroups) -> Tensor:
    """Return the maximum of each group, by channel: (E, K) -> (G, K). Empty gives -inf."""
    values = _wide(values)
    if isinstance(groups, GridGroups):
        if values.numel() == 0:
            return values.new_full((*groups.sizes.shape, values.shape[-1]), -math.inf)
        return values.amax(dim=groups.pooled, keepdim=True) if groups.pooled else values
    return segment_max(values, groups)


def count_over(values: Tensor, groups: AnyGroups) -> Tensor:
    """Count the cells of each group, as a channel beside sums of ``values``: (G, 1)."""
    half = values.dtype in (torch.float16, torch.bfloat16)
    return groups.counts(torch.float32 if half else values.dtype)


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def unpool(pooled: Tensor, groups: AnyGroups) -> Tensor:
    """Give every cell its group's row: (G, ...) -> (E, ...). On a grid, broadcasting does it."""
    if isinstance(groups, GridGroups):
        return pooled
    return gather(pooled, groups)


def unpool_members(members: Tensor, cells: AnyCells, axis: int) -> Tensor:
    """Give every cell the row of its member on ``axis``: (N, ...) -> (E, ...)."""
    if isinstance(cells, Grid):
        ahead, behind = (None,) * axis, (None,) * (cells.order - axis - 1)
        return members[(*ahead, slice(None), *behind)]
    return gather(members, cells.groups((axis,)))


def merge(one: State, other: State, align: Align | None = None) -> State:
    """Return the state of the cells of both; ``align`` is needed where it begins with a peak."""
    if align is not None:
        peak = torch.maximum(one[0], other[0])
        one, other = align(one, peak)[1:], align(other, peak)[1:]
        return (peak, *merge(one, other))
    return tuple(a + b for a, b in zip(one, other, strict=True))


# Sum and mean ----------------------------------------------------------------------------


def write_sum(values: Tensor, groups: AnyGroups) -> State:
    """Write the state (total, count)."""
    return sum_over(values, groups), count_over(values, groups)


def read_sum(state: State) -> Tensor:
    return state[0]


def read_mean(state: State) -> Tensor:
    """Return the average of each group; an empty one gives 0."""
    total, count = state
    return total / count.clamp(min=1)


# Max -------------------------------------------------------------------------------------


def write_max(values: Tensor, groups: AnyGroups) -> State:
    """Write the state (peak, total, ties, count): sum and number of the cells at the peak."""
    peak = max_over(values.detach(), groups)
    largest = (_wide(values) == unpool(peak, groups)).to(peak.dtype)
    total = sum_over(_wide(values) * largest, groups)
    return peak, total, sum_over(largest, groups), count_over(values, groups)


def align_max(state: State, peak: Tensor) -> State:
    old_peak, total, ties, count = state
    stays = (old_peak == peak).to(total.dtype)
    return peak, total * stays, ties * stays, count


def read_max(state: State) -> Tensor:
    """Return the largest value of each group; an empty one gives 0. Ties share the gradient."""
    peak, total, ties, count = state
    mean = total / ties.clamp(min=1)
    # As a mean of equal values it is off by rounding: only its gradient is used.
    return peak.masked_fill(count == 0, 0.0) + (mean - mean.detach())


# Attention -------------------------------------------------------------------------------


def write_attention(values: Tensor, scores: Tensor, groups: AnyGroups) -> State:
    """Write the state (peak, weight, total, count) of a softmax of ``scores`` (E, H) by group.

    Head h weighs the h-th of H equal slices of the channels. Scores enter as exp(score -
    peak), with the group's largest score as its peak, so that nothing overflows.
    """
    # The peak cancels in the end, so no gradient needs to pass through it.
    peak = max_over(scores.detach(), groups)
    # Cells that only read may lie above it; they are in no sum, but must not overflow either.
    weight = (_wide(scores) - unpool(peak, groups)).clamp(max=0.0).exp()
    sliced = values.unflatten(-1, (scores.shape[-1], -1))
    total = sum_over((weight.unsqueeze(-1) * sliced).flatten(-2), groups)
    return peak, sum_over(weight, groups), total, count_over(values, groups)


def align_attention(state: State, peak: Tensor) -> State:
    old_peak, weight, total, count = state
    rescale = (old_peak - peak).exp().masked_fill(count == 0, 0.0)
    return peak, weight * rescale, _by_head(total, rescale), count


def read_attention(state: State) -> Tensor:
    """Return the weighted average of each group; an empty one gives 0."""
    _, weight, total, _ = state
    # The cell at the peak weighs 1, so only an empty group weighs less.
    return (
        total.unflatten(-1, (weight.shape[-1], -1)) / weight.clamp(min=1).unsqueeze(-1)
    ).flatten(-2)


def _by_head(channels: Tensor, factor: Tensor) -> Tensor:
    """Multiply each head's slice of the channels, (G, K), by its factor, (G, H)."""
    return (channels.unflatten(-1, (factor.shape[-1], -1)) * factor.unsqueeze(-1)).flatten(-2)


# Least squares ---------------------------------------------------------------------------


def write_least_squares(features: Tensor, targets: Tensor, groups: AnyGroups) -> State:
    """Write the state (gram, moment, count): sums of f f' and t f, for features f and targets t.

    ``features`` (E, H, F) and ``targets`` (E, H) hold H regressions side by side.
    """
    features, targets = _wide(features), _wide(targets)
    gram = sum_over(features.unsqueeze(-1) * features.unsqueeze(-2), groups)
    moment = sum_over(features * targets.unsqueeze(-1), groups)
    return gram, moment, count_over(targets, groups)


def solve_least_squares(state: State, prior: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return each group's ridge solution w (G, H, F) and posterior covariance C (G, H, F, F).

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
    """Read a cell's prediction f.w and its variance f'Cf, for features f, as channels (E, 2 H)."""
    mean = (features * solution).sum(dim=-1)
    variance = ((features.unsqueeze(-2) @ covariance).squeeze(-2) * features).sum(dim=-1)
    return torch.cat([mean, variance], dim=-1)


# Write and read in one call --------------------------------------------------------------


def pool_sum(values: Tensor, groups: AnyGroups) -> Tensor:
    """Add up the cells of each group: (E, K) -> (G, K). An empty group gives 0."""
    return read_sum(write_sum(values, groups)).to(values.dtype)


def pool_mean(values: Tensor, groups: AnyGroups) -> Tensor:
    """Average the cells of each group: (E, K) -> (G, K). An empty group gives 0.

    >>> from exchangeable import Support
    >>> support = Support.of([(0, 0), (0, 2)], (2, 3))
    >>> pool_mean(torch.tensor([[1.0], [3.0]]), support.groups((0,))).tolist()
    [[2.0], [0.0]]
    """
    return read_mean(write_sum(values, groups)).to(values.dtype)


def pool_max(values: Tensor, groups: AnyGroups) -> Tensor:
    """Return the maximum of each group, by channel: (E, K) -> (G, K). An empty group gives 0."""
    return read_max(write_max(values, groups)).to(values.dtype)


def pool_attention(values: Tensor, scores: Tensor, groups: AnyGroups) -> Tensor:
    """Average each group's cells with softmax(scores) as weights: (E, K), (E, H) -> (G, K)."""
    return read_attention(write_attention(values, scores, groups)).to(values.dtype)


def pool_least_squares(
    features: Tensor, targets: Tensor, groups: AnyGroups, prior: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Regress each group's targets on its features: solution and posterior covariance."""
    return solve_least_squares(write_least_squares(features, targets, groups), prior, noise)
