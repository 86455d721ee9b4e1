"""Gaussian posteriors of all members' vectors, fitted by sweeps over the axes.

Every vector has a Gaussian posterior, computed in turn given the others:

    S = (A + tau sum E[f f'])^-1,   m = S tau sum E[f t]

with A the precisions of the prior, one per column and axis, and tau that of the noise. No
step depends on the numbering of members or cells, so relabelling them relabels predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from exchangeable.baselines.base import chunks
from exchangeable.baselines.factorization import (
    MemberSums,
    VectorLayout,
    cell_means,
    cell_variances,
    gram,
    grown_rows,
    moments,
)

MIN_VARIANCE = 1e-6
"""Smallest noise and prior variance, as a share of the values' variance."""


class Equations(NamedTuple):
    """The equations that the vectors of an axis were solved from."""

    grams: Tensor  # (N, F, F)
    moments: Tensor  # (N, F)
    target: Tensor  # (E,)


@dataclass(eq=False)
class Posterior:
    """Posteriors of all vectors, in units of the values' deviation; the last rows are priors."""

    layout: VectorLayout
    mean: float
    noise: float
    means: list[Tensor]  # (N_d + 1, F)
    covariances: list[Tensor]  # (N_d + 1, F, F)
    precisions: list[Tensor]  # (F,)

    @classmethod
    def initial(cls, shape: Sequence[int], like: Tensor) -> Posterior:
        """Start with biases at their prior; noise and biases have half of the variance each."""
        order = len(shape)
        means = [like.new_zeros(size + 1, 1) for size in shape]
        covariances = [like.new_full((size + 1, 1, 1), 0.5 / order) for size in shape]
        precisions = [like.new_full((1,), 2.0 * order) for _ in shape]
        return cls(VectorLayout(order, 0), 0.0, 0.5, means, covariances, precisions)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(table) - 1 for table in self.means)

    def widened(self, rank: int, precision: float) -> Posterior:
        """Return the same biases, with factors that are 0 without variance."""
        layout = VectorLayout(self.layout.order, rank)
        more = (0, layout.width - 1)
        means = [pad(table, more) for table in self.means]
        covariances = [pad(table, (*more, *more)) for table in self.covariances]
        precisions = [pad(row, more, value=precision) for row in self.precisions]
        return Posterior(layout, self.mean, self.noise, means, covariances, precisions)

    def grown(self, shape: Sequence[int]) -> Posterior:
        """Return a copy with members added at the end of the axes, at their prior."""
        rows = [grown_rows(old, new) for old, new in zip(self.shape, shape, strict=True)]
        return Posterior(
            self.layout,
            self.mean,
            self.noise,
            [table[row] for table, row in zip(self.means, rows, strict=True)],
            [table[row] for table, row in zip(self.covariances, rows, strict=True)],
            list(self.precisions),
        )

    def predict(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of cells, noise included: (Q, D) -> (Q,) each; -1 is unknown."""
        axes = range(self.layout.order)
        mean, variance = index.new_empty(2, len(index), dtype=self.means[0].dtype)
        for part in chunks(len(index), 1 << 14):
            cells = index[part]
            mean[part] = self.mean + cell_means(self.layout, cells, self.means, axes)
            variance[part] = self.noise
            variance[part] += cell_variances(self.layout, cells, self.means, self.covariances, axes)
        return mean, variance

    def updated(
        self, index: Tensor, values: Tensor, shape: Sequence[int], changed: Tensor
    ) -> Posterior:
        """Return a copy, solved again for members with changed cells, given all else."""
        posterior = self.grown(shape)
        several = sum(new > old for old, new in zip(self.shape, shape, strict=True)) > 1
        for _ in range(2 if several else 1):
            for axis in range(len(shape)):
                members = index[changed, axis].unique()
                sums, cells = MemberSums.of_members(index, axis, members)
                posterior.solve(sums, values[cells], members)
        return posterior

    def for_new_member(self, axis: int, index: Tensor, values: Tensor) -> Posterior:
        """Replace an axis by one new member, number 0 there, solved from its cells (E, D).

        Nothing else is solved again, and only members that share its cells are read.
        """
        means, covariances = list(self.means), list(self.covariances)
        local = index.clone()
        for other in self.layout.others(axis):
            members, local[:, other] = index[:, other].unique(return_inverse=True)
            means[other], covariances[other] = means[other][members], covariances[other][members]
        means[axis], covariances[axis] = means[axis][[-1, -1]], covariances[axis][[-1, -1]]
        small = replace(self, means=means, covariances=covariances)
        small.solve(MemberSums.of(local, axis, 1), values, torch.arange(1, device=index.device))
        means = [*self.means[:axis], means[axis], *self.means[axis + 1 :]]
        covariances = [*self.covariances[:axis], covariances[axis], *self.covariances[axis + 1 :]]
        return replace(self, means=means, covariances=covariances)

    def solve(self, sums: MemberSums, values: Tensor, members: Tensor) -> Equations:
        """Solve for the vectors of ``members``, with their cells in ``sums``, given other axes."""
        axis = sums.axis
        target = values[sums.permutation] - self.mean
        target -= cell_means(self.layout, sums.index, self.means, self.layout.others(axis))
        grams = gram(self.layout, sums, self.means, self.covariances)
        towards = moments(self.layout, sums, target, self.means, self.covariances)
        covariance = torch.linalg.inv(grams / self.noise + self.precisions[axis].diag())
        self.covariances[axis][members] = covariance
        self.means[axis][members] = (covariance @ towards.unsqueeze(2)).squeeze(2) / self.noise
        return Equations(grams, towards, target)

    def update_prior(self, sums: MemberSums) -> None:
        """Set the prior of an axis to the second moments of its members with cells."""
        axis, has_cells = sums.axis, sums.sizes > 0
        variance = self.covariances[axis][:-1][has_cells].diagonal(dim1=1, dim2=2)
        second = (self.means[axis][:-1][has_cells] ** 2 + variance).mean(dim=0)
        self.precisions[axis] = 1 / second.clamp(min=MIN_VARIANCE)
        empty = pad(~has_cells, (0, 1), value=True)
        self.covariances[axis][empty] = (1 / self.precisions[axis]).diag()

    def update_noise(self, sums: MemberSums, solved: Equations) -> None:
        """Set the mean, and the noise to the expected squared error, after an axis was solved.

        E[(t - f.w)^2] adds up to E[t^2] - 2 E[w].moment + E[w' gram w] over the members.
        """
        others, cells = self.layout.others(sums.axis), len(solved.target)
        m, s = self.means[sums.axis][:-1], self.covariances[sums.axis][:-1]
        second = m[:, :, None] * m[:, None, :] + s
        error = solved.target.square().sum()
        error += (second * solved.grams).sum() - 2 * (m * solved.moments).sum()
        for part in chunks(cells, 1 << 16):
            index = sums.index[part]
            error += cell_variances(self.layout, index, self.means, self.covariances, others).sum()
        shift = float(solved.moments[:, 0].sum() - (solved.grams[:, 0] * m).sum()) / cells
        self.mean += shift
        self.noise = max(float(error) / cells - shift**2, MIN_VARIANCE)


def sweep(posterior: Posterior, sums: Sequence[MemberSums], values: Tensor) -> None:
    """Solve for all members, axis by axis, then for the noise."""
    for axis_sums in sums:
        members = torch.arange(axis_sums.members, device=values.device)
        solved = posterior.solve(axis_sums, values, members)
        posterior.update_prior(axis_sums)
    posterior.update_noise(sums[-1], solved)
