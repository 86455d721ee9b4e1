"""The width of the factorizations: more factors than usual where held-out cells ask for them.

Dense tables with strong structure may have more factors than the usual number, and then all else is
read from what these leave. Whether they do shows in the fits that are made anyway: the fine
factorization is far better than the coarse one, of half the rank, and none of its factors died.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from torch import Tensor

from exchangeable.baselines.posterior import Posterior
from exchangeable.prior.closed_form import ClosedForm
from exchangeable.prior.trust import is_gain

MIN_GAIN = 0.2
"""Share of the squared error by which twice as many factors must be better. What less would gain
similarities and the network find too: the pretrained model was no better for it on three tables."""

MIN_STRENGTH = 1e-3
"""Variance of a factor's products, as a share of the noise, from which on it is alive."""


def fit_widest(
    fit: Callable[[int], ClosedForm],
    rank: int,
    widest: int,
    index: Tensor,
    values: Tensor,
) -> tuple[ClosedForm, int]:
    """Fit with ``rank`` factors, and twice as many for as long as it helps much; return the rank.

    ``index`` (H, D) and ``values`` (H,), without drift, are cells that ``fit`` does not see.
    """
    fitted = fit(rank)
    while rank < widest and is_full(fitted.fine):
        fine, coarse = (_errors(each, index, values) for each in (fitted.fine, fitted.coarse))
        if not _is_much(coarse, fine):
            break
        wider = fit(min(2 * rank, widest))
        if not _is_much(fine, _errors(wider.fine, index, values)):
            break
        fitted, rank = wider, min(2 * rank, widest)
    return fitted, rank


def is_full(posterior: Posterior) -> bool:
    """Whether all factors of a pair of axes are alive, so that there may be more."""
    layout = posterior.layout
    strengths = []
    for d, e in combinations(range(layout.order), 2):
        one, other = (
            posterior.means[axis][:-1, layout.block(axis, partner)].square().mean(dim=0)
            for axis, partner in ((d, e), (e, d))
        )
        strengths.append(one * other)
    if not layout.rank or not strengths:
        return False
    return any(bool((each > MIN_STRENGTH * posterior.noise).all()) for each in strengths)


def _errors(posterior: Posterior, index: Tensor, values: Tensor) -> Tensor:
    return (values - posterior.predict_mean(index)).square()


def _is_much(before: Tensor, after: Tensor) -> bool:
    gain = before - after
    return is_gain(gain) and float(gain.mean()) > MIN_GAIN * float(before.mean())
