"""Members as if they had no cells: what features say of them that were learned without them.

Weights of features are a ridge solution, so the weights without one member follow from those with
it: with h = a x'Hx the share that a member has in its own prediction, and r what the prediction
leaves of its vector,

    B_-n = B - a H x r / (1 - h),    H_-n = H + a H x x' H / (1 - h)
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from exchangeable.baselines.posterior import Posterior

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
