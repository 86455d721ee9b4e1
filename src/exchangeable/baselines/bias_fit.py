"""The fit of biases alone, from sums over cells that are computed once.

The sweeps are those of any posterior, but biases are solved from numbers of cells and sums of
values by member, and sums of the other axes' biases over each member's cells. So a sweep has no
pass over the values of cells: 31 sweeps over 90,000 cells take .05 s in place of .5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from exchangeable.baselines.posterior import MIN_VARIANCE, Posterior
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.sums.cell_parts import CellPart
from exchangeable.sums.member_sums import MemberSums


def fit_biases(
    posterior: Posterior,
    sums: Sequence[MemberSums],
    values: Tensor,
    sweeps: int,
    tolerance: float,
    progress: Progress = SILENT,
) -> None:
    """Sweep a posterior of biases alone until its predictions of the cells no longer change."""
    cells = CellSums.of(sums, values)
    for count in range(1, sweeps + 1):
        before, biases = posterior.mean, [means[:-1, 0].clone() for means in posterior.means]
        _sweep(posterior, cells)
        moved = [means[:-1, 0] - bias for means, bias in zip(posterior.means, biases, strict=True)]
        change = math.sqrt(max(cells.square_of(posterior.mean - before, moved), 0.0) / cells.count)
        done = not sums[0].processes.any(count == 1 or change >= tolerance)
        progress.at(1.0 if done else count / sweeps, f"sweep {count} of {sweeps}")
        if done:
            return


@dataclass(frozen=True, eq=False)
class CellSums:
    """Sums over the values of the cells, by member and over all."""

    sums: Sequence[MemberSums]
    sizes: list[Tensor]  # (N_d,), numbers of cells
    totals: list[Tensor]  # (N_d,), of values
    square: float
    """Sum of the squares of all values."""

    @classmethod
    def of(cls, sums: Sequence[MemberSums], values: Tensor) -> CellSums:
        def take(part: CellPart) -> Tensor:
            return part.take(values).double()

        return cls(
            sums,
            [each.sizes.double() for each in sums],
            [each.of_cells(take) for each in sums],
            sums[0].over_cells(lambda part: take(part).square()),
        )

    @property
    def count(self) -> int:
        return len(self.sums[0])

    def across(self, axis: int, biases: Sequence[Tensor]) -> Tensor:
        """Sum the biases (N_d,) of all other axes over the cells of each member: (N,)."""
        total = torch.zeros_like(self.totals[axis])
        for other, bias in enumerate(biases):
            if other != axis:
                total += self.sums[axis].over(other, bias[:, None]).squeeze(1)
        return total

    def square_of(self, mean: float, biases: Sequence[Tensor]) -> float:
        """Sum the squares of the mean and the biases of the first axes, over all cells."""
        square = self.count * mean**2
        for sizes, bias in zip(self.sizes, biases, strict=False):
            square += float(sizes @ (bias.square() + 2 * mean * bias))
        for first, second in combinations(range(len(biases)), 2):
            across = self.sums[first].over(second, biases[second][:, None]).squeeze(1)
            square += 2 * float(biases[first] @ across)
        return square


def _sweep(posterior: Posterior, cells: CellSums) -> None:
    """Solve for the biases of each axis and their prior, and then for the mean and the noise."""
    biases = [means[:-1, 0] for means in posterior.means]  # views, as are variances
    variances = [covariances[:-1, 0, 0] for covariances in posterior.covariances]
    for axis, (bias, variance) in enumerate(zip(biases, variances, strict=True)):
        sizes, sums = cells.sizes[axis], cells.sums[axis]
        target = cells.totals[axis] - posterior.mean * sizes - cells.across(axis, biases)
        torch.reciprocal(sizes / posterior.noise + posterior.precisions[axis], out=variance)
        torch.mul(target / posterior.noise, variance, out=bias)
        second = (bias.square() + variance)[sums.with_cells].mean(dim=0, keepdim=True)
        left = target - sizes * bias
        spread = float(sizes @ variance)
        posterior.precisions[axis] = 1 / second.clamp(min=MIN_VARIANCE)
        posterior.covariances[axis][sums.without_cells] = (1 / posterior.precisions[axis]).diag()
    # What the other axes leave of the values, of which the last axis explains a part.
    others = range(len(biases) - 1)
    explained = sum(float(biases[other] @ cells.totals[other]) for other in others)
    explained += posterior.mean * float(cells.totals[0].sum())
    error = cells.square - 2 * explained + cells.square_of(posterior.mean, biases[:-1])
    error += sum(float(cells.sizes[other] @ variances[other]) for other in others)
    error += spread - float(bias @ (target + left))
    shift = float(left.sum()) / cells.count
    posterior.mean += shift
    posterior.noise = max((error - cells.count * shift**2) / cells.count, MIN_VARIANCE)
