"""Products over all axes as the fine factors of a table of three axes.

Dense tables with strong structure are sums of such products, which factors of pairs of axes are
not. They are tried on the held-out cells: where they are better, they are the fine factors, and
those of pairs, which were these, are the coarse ones, so that the trust in each combines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from exchangeable.baselines.polyadic.fit import grow_products, limit_products, weigh_cells
from exchangeable.baselines.posterior import Posterior
from exchangeable.prior.closed_form import ClosedForm
from exchangeable.prior.trust import is_gain
from exchangeable.prior.unseen import settle_empty_members
from exchangeable.runtime.threads import one_thread
from exchangeable.sums.member_sums import MemberSums

MAX_ERROR = 1.5
"""Squared error over that of the factors of pairs, up to which products are fitted to the end:
weights of cells may lower it that far."""


def all_sums(
    sums: Sequence[MemberSums], index: Tensor, held_out: Tensor | None = None
) -> Sequence[MemberSums]:
    """Return sums over all cells (E, 3), but those held out, also where processes have shares.

    Products are fitted by each process alone, all of which have all cells.
    """
    if len(sums) != 3 or sums[0].processes.size == 1:
        return sums
    complete = MemberSums.by_axis(index, [each.members for each in sums])
    return complete if held_out is None else [each.without(held_out) for each in complete]


def try_products(
    fitted: ClosedForm,
    sums: Sequence[MemberSums],
    values: Tensor,
    index: Tensor,
    truth: Tensor,
    most: int,
) -> tuple[ClosedForm, int]:
    """Return models with products over all axes where these are better, and how many these are.

    ``sums`` and ``values`` (E,), without drift, are of the cells that the models were fitted to;
    ``index`` (H, 3) and ``truth`` (H,) of cells that were not.
    """
    most = limit_products(sums, most)
    if not most or not values.any():
        return fitted, 0

    def errors(posterior: Posterior) -> Tensor:
        return (truth - posterior.predict_mean(index)).square()

    def error(posterior: Posterior) -> float:
        return float(errors(posterior).mean())

    before = errors(fitted.fine)
    with one_thread(values.device):
        grown = grow_products(fitted.biases, sums, values, most, error)
        products = grown.layout.products
        if not products or error(grown) > MAX_ERROR * float(before.mean()):
            return fitted, 0
        candidate = _finished(fitted, grown, sums, values)
    return (candidate, products) if is_gain(before - errors(candidate.fine)) else (fitted, 0)


def with_products(
    fitted: ClosedForm,
    sums: Sequence[MemberSums],
    values: Tensor,
    products: int,
    start: Posterior | None = None,
) -> ClosedForm:
    """Return models with so many products; ``start`` was fitted to nearly the same cells."""
    with one_thread(values.device):
        if start is None:
            start = grow_products(fitted.biases, sums, values, products)
        return _finished(fitted, start.grown(fitted.shape), sums, values)


def _finished(
    fitted: ClosedForm, grown: Posterior, sums: Sequence[MemberSums], values: Tensor
) -> ClosedForm:
    """Return models whose fine factors are products, regressed on what pairs are regressed on."""
    regressions = fitted.fine.regressions
    posterior = grown.with_features(
        [each.features for each in regressions], [each.blocks for each in regressions]
    )
    for each in sums:
        posterior.update_prior(each)
    weigh_cells(posterior, sums, values)
    mean = sums[0].over_cells(lambda part: part.take(values)) / len(sums[0])
    for axis in range(len(sums)):
        settle_empty_members(posterior, axis, sums, mean)
    return replace(fitted, fine=posterior, coarse=fitted.fine)
