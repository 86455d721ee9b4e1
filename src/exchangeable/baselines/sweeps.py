"""Sweeps: all vectors in turn, the noise, and the noise of each member."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from exchangeable.baselines.posterior import Posterior
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.threads import run_all
from exchangeable.sums.cell_parts import CellPart
from exchangeable.sums.member_sums import MemberSums

NOISE_ROUNDS = 2
"""Rounds over the axes in which the noise of members is found."""

NOISE_PRIOR_CELLS = 50
"""Cells that it takes to move half of the way to a member's own noise. With 20 Flixster loses."""


def sweep(posterior: Posterior, sums: Sequence[MemberSums], values: Tensor) -> None:
    """Solve for all members, axis by axis, then for the noise."""
    for axis_sums in sums:
        members = torch.arange(axis_sums.members, device=values.device)
        solved = posterior.solve(axis_sums, values, members)
        posterior.update_prior(axis_sums)
    posterior.update_noise(sums[-1], values, solved)


def converge(
    posterior: Posterior,
    sums: list[MemberSums],
    values: Tensor,
    sweeps: int,
    tolerance: float,
    progress: Progress = SILENT,
) -> None:
    """Sweep until the predictions of the observed cells no longer change."""
    before: list[Tensor] | None = None
    for count in range(1, sweeps + 1):
        sweep(posterior, sums, values)
        predictions = [posterior.predict_mean(part.index) for part in sums[0].parts]
        change = math.inf if before is None else _difference(predictions, before, sums[0])
        done = not sums[0].processes.any(change >= tolerance)
        progress.at(1.0 if done else count / sweeps, f"sweep {count} of {sweeps}")
        if done:
            return
        before = predictions


def _difference(one: Sequence[Tensor], other: Sequence[Tensor], sums: MemberSums) -> float:
    """Return the root of the mean square by which predictions of the cells, by part, differ."""
    squares = [(a - b).square().sum() for a, b in zip(one, other, strict=True)]
    return math.sqrt(float(sums.processes.all_sum([torch.stack(squares).sum()])[0]) / len(sums))


def fit_noise_ratios(posterior: Posterior, sums: MemberSums, values: Tensor) -> None:
    """Fit the noise of each member's cells to the expected squared errors of all cells.

    ``sums`` are those of the first axis, and every cell counts the same.
    """

    def square_error(part: CellPart) -> Tensor:
        index = part.index
        mean, variance = posterior.predict(index)
        error = (part.take(values).to(mean) - mean).square_().add_(variance)
        error.sub_(posterior.noise * posterior.noise_ratio(index))
        return error.to(values.dtype)  # one for each cell waits until all are there

    tasks = [partial(square_error, part) for part in sums.parts]
    errors = run_all(tasks, len(sums), values.device)
    add_up = sums.processes.all_sum
    total = add_up([torch.stack([error.double().sum() for error in errors]).sum()])[0]
    mean = (total / len(sums)).clamp(min=torch.finfo(total.dtype).tiny)
    ratios = [total.new_ones(size + 1) for size in posterior.shape]
    sizes = [total.new_zeros(len(each)) for each in ratios]
    for part in sums.parts:
        for axis, size in enumerate(sizes):
            size += part.column(axis).bincount(minlength=len(size))
    sizes = add_up(sizes)
    for _ in range(NOISE_ROUNDS):
        for axis, size in enumerate(sizes):
            found = torch.zeros_like(size)
            for part, error in zip(sums.parts, errors, strict=True):
                relative = error.double() / mean
                for other in posterior.layout.others(axis):
                    relative /= ratios[other][part.column(other)]
                found.index_add_(0, part.column(axis), relative)
            (found,) = add_up([found])
            ratios[axis] = (found + NOISE_PRIOR_CELLS) / (size + NOISE_PRIOR_CELLS)
    posterior.noise_ratios = ratios
