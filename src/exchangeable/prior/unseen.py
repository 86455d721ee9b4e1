"""Members without cells: their prior, and what others would be without theirs.

What features say of a member is learned without it. Weights of features are a ridge solution, so
the weights without one member follow from those with it: with h = a x'Hx the share that a member
has in its own prediction, and r what the prediction leaves of its vector,

    B_-n = B - a H x r / (1 - h),    H_-n = H + a H x x' H / (1 - h)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from exchangeable.baselines.factorization import mean_over_cells
from exchangeable.baselines.posterior import Posterior
from exchangeable.sums.member_sums import MemberSums

NEW_MEMBERS = 0.03
"""Share of queries that are expected to be of members that newly come. With .06 cells of
MovieTweetings hidden one by one are predicted .15 % worse, with .015 its hidden films too low."""

MAX_OWN_SHARE = 0.99
"""Share that a member has in its own prediction at most: a feature may be of one member only."""


def without_own_cells(posterior: Posterior, axis: int, members: Tensor) -> Posterior:
    """Return a posterior with the vectors of ``members`` (M,) as if they had no cells.

    They are that of the last member, which has neither cells nor features, shifted by what their
    own features say.
    """
    means, covariances = list(posterior.means), list(posterior.covariances)
    shifts, variances = _shifts(posterior, axis, members)
    centre, spread = means[axis][-2], covariances[axis][-2]
    means[axis], covariances[axis] = means[axis].clone(), covariances[axis].clone()
    means[axis][members] = centre + shifts
    covariances[axis][members] = spread + torch.diag_embed(variances)
    ratios = list(posterior.noise_ratios)
    if ratios:
        ratios[axis] = ratios[axis].index_fill(0, members, float(ratios[axis][-2]))
    return replace(posterior, means=means, covariances=covariances, noise_ratios=ratios)


def _shifts(posterior: Posterior, axis: int, members: Tensor) -> tuple[Tensor, Tensor]:
    """What features say of vectors, learned without their member, and its variance: (M, F) each."""
    regression, a = posterior.regressions[axis], posterior.precisions[axis]
    x, given = regression.features[members], regression.given_columns
    covariances = regression.covariances  # (F, P, P)
    left = torch.einsum("mp,fpq->mfq", x, covariances)  # x'H
    own = (a * torch.einsum("mfq,mq->mf", left, x)).clamp(max=MAX_OWN_SHARE)
    shared = torch.einsum("mfq,mq->mf", left[:, :, given], x[:, given])
    residual = posterior.means[axis][members] - x @ regression.weights
    shifts = x[:, given] @ regression.weights[given] - a * shared * residual / (1 - own)
    return shifts, regression.variances(members) + a * shared.square() / (1 - own)


def settle_empty_members(
    posterior: Posterior, axis: int, by_axis: Sequence[MemberSums], mean: float
) -> None:
    """Give members without cells their prior: a member drawn by its cells, or an average one.

    One that newly comes is as likely to be any as it will have cells, and on average it will
    have the values that others have, whose ``mean`` is given: of what is observed, members choose
    what suits them, which products of average vectors do not show. Given features shift the mean,
    and the uncertainty of their weights counts.
    """
    sums = by_axis[axis]
    sizes = sums.sizes
    share = (sizes / sizes.sum()).to(posterior.means[axis])
    heavy = share_of_newcomers(sizes)
    means, spread = posterior.means[axis][:-1], posterior.covariances[axis][:-1]
    known = posterior.regressions[axis].given_means() if posterior.regressions else None
    away = means if known is None else means - known[:-1]
    centre = heavy * (share @ away)
    tables = list(posterior.means)
    tables[axis] = centre.expand_as(means) if known is None else centre + known[:-1]
    expected = mean_over_cells(posterior.layout, by_axis, tables)
    centre[0] += heavy * (mean - posterior.mean - expected)
    second = share @ ((away - centre) ** 2 + spread.diagonal(dim1=1, dim2=2))
    empty = sums.without_cells
    posterior.means[axis][empty] = centre if known is None else centre + known[empty]
    variance = second.expand(len(empty), -1)
    if known is not None:
        variance = variance + posterior.regressions[axis].variances(empty)
    posterior.covariances[axis][empty] = torch.diag_embed(variance)


def share_of_newcomers(sizes: Tensor) -> float:
    """Return how likely a member without cells is one that newly comes, not a light one.

    ``sizes`` (N,) are the cells of each member. Where many have a single one (Good and Turing),
    there are many more who could have had one, too.
    """
    light = float((sizes == 1).sum() / sizes.sum())
    return NEW_MEMBERS / (light + NEW_MEMBERS)
