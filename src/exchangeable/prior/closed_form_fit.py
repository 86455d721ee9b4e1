"""The fit of closed-form models to the cells of a table, or to those that were not held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.variational import Bias
from exchangeable.prior.closed_form import ClosedForm
from exchangeable.prior.drift import Drift
from exchangeable.prior.factor_fit import Regressors, Sweeps, fit_factors
from exchangeable.prior.pattern import Pattern
from exchangeable.prior.presence import Presence
from exchangeable.prior.side_information import NO_SIDE_INFORMATION, SideInformation
from exchangeable.prior.summed_similarity import compare_by_sums, is_summed
from exchangeable.prior.unseen import settle_empty_members
from exchangeable.runtime.threads import one_thread, run_all
from exchangeable.sums.member_sums import MemberSums

BIASES = Bias(tolerance=1e-4)


def fit_closed_form(
    index: Tensor,
    values: Tensor,
    sums: Sequence[MemberSums],
    rank: int,
    side: SideInformation = NO_SIDE_INFORMATION,
    comparison_budget: float = math.inf,
    *,
    biases: Posterior,
    held_out: Tensor | None = None,
    drift: Drift | None = None,
    near_axes: tuple[int, ...] = (),
    start: ClosedForm | None = None,
    sweeps: Sweeps,
) -> ClosedForm:
    """Fit to one cell or more of all cells (E, D), whose ``sums`` are given by axis.

    ``held_out`` is a mask (E,) of cells to fit without, which ``sums`` leave out. ``biases`` are
    what those of the models start from, and ``start`` was fitted to nearly the same cells.
    ``drift`` was fitted to these; None where there is none.
    """
    if drift is not None:
        values = values - drift.at(index, side.times)
    shape = tuple(each.members for each in sums)
    with one_thread(values.device):
        fit_biases = partial(BIASES.by_sums, list(sums), values, start=biases.grown(shape))
        tasks: list[Callable[[], Any]] = [fit_biases]
        tasks.append(partial(Pattern.of, sums) if start is None else lambda: start.pattern)
        # Several processes add up their sums in one sequence.
        cells = len(values) if sums[0].processes.size == 1 else 0
        biases, pattern = run_all(tasks, cells, values.device)
        features = [
            Regressors.of(pattern.describe(each), side.given(each.axis, values)) for each in sums
        ]
        starts = None if start is None else (start.fine.grown(shape), start.coarse.grown(shape))
        fine, coarse = fit_factors(
            values, sums, features, rank, sweeps, biases=biases, starts=starts
        )
        mean = sums[0].over_cells(lambda part: part.take(values)) / len(sums[0])
        for posterior in (biases, fine) if coarse is fine else (biases, fine, coarse):
            for axis in range(len(shape)):
                settle_empty_members(posterior, axis, sums, mean)
        summed = is_summed(len(index), side, len(shape))
        if held_out is not None and not summed:
            index, values, side = index[~held_out], values[~held_out], side.take(~held_out)
        fitted = ClosedForm(
            index,
            values,
            shape,
            side,
            comparison_budget,
            biases,
            fine,
            coarse,
            pattern,
            drift,
            near_axes,
            Presence.of_sizes([each.sizes for each in sums]),
        )
        if summed:
            similarities = compare_by_sums(sums, values, fine, comparison_budget)
            fitted = fitted.with_similarities(similarities)
    return fitted
