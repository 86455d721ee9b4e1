"""What is believed of every member's vector, and how it is found: sweeps over the axes.

Every vector has a Gaussian posterior of its own, found in turn given the others:

    S = (A + tau sum E[f f'])^-1,   m = S tau sum E[f t]

with A the precisions of the prior, one per column and axis, and tau that of the noise. No
step looks at the order of members or cells, so relabelling them relabels the answers.
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
    Layout,
    Sums,
    cell_means,
    cell_variances,
    gram,
    moments,
    rows_of,
)

LEAST = 1e-6
"""Of the values' variance: less noise is not believed, nor is a smaller prior variance."""


class Equations(NamedTuple):
    """What the vectors of an axis were found from."""

    grams: Tensor  # (N, F, F)
    moments: Tensor  # (N, F)
    target: Tensor  # (E,)


@dataclass(eq=False)
class Posterior:
    """Beliefs about every vector, in units of the values' spread; the last rows are priors."""

    layout: Layout
    mean: float
    noise: float
    means: list[Tensor]  # (N_d + 1, F)
    covariances: list[Tensor]  # (N_d + 1, F, F)
    precisions: list[Tensor]  # (F,)

    @classmethod
    def before(cls, shape: Sequence[int], like: Tensor) -> Posterior:
        """Nothing known of any bias; noise and biases share the variance by halves."""
        order = len(shape)
        means = [like.new_zeros(size + 1, 1) for size in shape]
        covariances = [like.new_full((size + 1, 1, 1), 0.5 / order) for size in shape]
        precisions = [like.new_full((1,), 2.0 * order) for _ in shape]
        return cls(Layout(order, 0), 0.0, 0.5, means, covariances, precisions)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(table) - 1 for table in self.means)

    def widened(self, rank: int, precision: float) -> Posterior:
        """The same biases, with factors that are zero, and known to be."""
        layout = Layout(self.layout.order, rank)
        more = (0, layout.width - 1)
        means = [pad(table, more) for table in self.means]
        covariances = [pad(table, (*more, *more)) for table in self.covariances]
        precisions = [pad(own, more, value=precision) for own in self.precisions]
        return Posterior(layout, self.mean, self.noise, means, covariances, precisions)

    def grown(self, shape: Sequence[int]) -> Posterior:
        """A copy with members added at the end of the axes, of whom the prior is believed."""
        rows = [rows_of(old, new) for old, new in zip(self.shape, shape, strict=True)]
        return Posterior(
            self.layout,
            self.mean,
            self.noise,
            [table[own] for table, own in zip(self.means, rows, strict=True)],
            [table[own] for table, own in zip(self.covariances, rows, strict=True)],
            list(self.precisions),
        )

    def answers(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of cells, noise included: (Q, D) -> (Q,) each; -1 is nobody known."""
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
        """Solved anew for the members with changed cells, given all others and the priors."""
        posterior = self.grown(shape)
        several = sum(new > old for old, new in zip(self.shape, shape, strict=True)) > 1
        for _ in range(2 if several else 1):
            for axis in range(len(shape)):
                members = index[changed, axis].unique()
                sums, cells = Sums.of_some(index, axis, members)
                posterior.solve(sums, values[cells], members)
        return posterior

    def newcomer(self, axis: int, index: Tensor, values: Tensor) -> Posterior:
        """With one new member of an axis, number 0 there, solved from its own cells (E, D).

        Nothing else is solved again, and of other members only those it meets are looked at.
        """
        means, covariances = list(self.means), list(self.covariances)
        near = index.clone()
        for other in self.layout.others(axis):
            met, near[:, other] = index[:, other].unique(return_inverse=True)
            means[other], covariances[other] = means[other][met], covariances[other][met]
        means[axis], covariances[axis] = means[axis][[-1, -1]], covariances[axis][[-1, -1]]
        some = replace(self, means=means, covariances=covariances)
        some.solve(Sums.of(near, axis, 1), values, torch.arange(1, device=index.device))
        means = [*self.means[:axis], means[axis], *self.means[axis + 1 :]]
        covariances = [*self.covariances[:axis], covariances[axis], *self.covariances[axis + 1 :]]
        return replace(self, means=means, covariances=covariances)

    def solve(self, sums: Sums, values: Tensor, members: Tensor) -> Equations:
        """Find the vectors of ``members``, whose cells ``sums`` holds, given the other axes."""
        axis = sums.axis
        target = values[sums.order] - self.mean
        target -= cell_means(self.layout, sums.index, self.means, self.layout.others(axis))
        grams = gram(self.layout, sums, self.means, self.covariances)
        towards = moments(self.layout, sums, target, self.means, self.covariances)
        covariance = torch.linalg.inv(grams / self.noise + self.precisions[axis].diag())
        self.covariances[axis][members] = covariance
        self.means[axis][members] = (covariance @ towards.unsqueeze(2)).squeeze(2) / self.noise
        return Equations(grams, towards, target)

    def expect(self, sums: Sums) -> None:
        """Let the prior of an axis follow the vectors of its members that have cells."""
        axis, seen = sums.axis, sums.sizes > 0
        variance = self.covariances[axis][:-1][seen].diagonal(dim1=1, dim2=2)
        second = (self.means[axis][:-1][seen] ** 2 + variance).mean(dim=0)
        self.precisions[axis] = 1 / second.clamp(min=LEAST)
        empty = pad(~seen, (0, 1), value=True)
        self.covariances[axis][empty] = (1 / self.precisions[axis]).diag()

    def judge(self, sums: Sums, solved: Equations) -> None:
        """Set the mean, and the noise to the expected squared error, after an axis was solved.

        E[(t - f.w)^2] adds up to E[t^2] - 2 E[w].moment + E[w' gram w] over the members.
        """
        others, number = self.layout.others(sums.axis), len(solved.target)
        m, s = self.means[sums.axis][:-1], self.covariances[sums.axis][:-1]
        second = m[:, :, None] * m[:, None, :] + s
        error = solved.target.square().sum()
        error += (second * solved.grams).sum() - 2 * (m * solved.moments).sum()
        for part in chunks(number, 1 << 16):
            cells = sums.index[part]
            error += cell_variances(self.layout, cells, self.means, self.covariances, others).sum()
        shift = float(solved.moments[:, 0].sum() - (solved.grams[:, 0] * m).sum()) / number
        self.mean += shift
        self.noise = max(float(error) / number - shift**2, LEAST)


def sweep(posterior: Posterior, sums: Sequence[Sums], values: Tensor) -> None:
    """Solve for all members of one axis after the other, then for the noise."""
    for of_axis in sums:
        solved = posterior.solve(
            of_axis, values, torch.arange(of_axis.members, device=values.device)
        )
        posterior.expect(of_axis)
    posterior.judge(sums[-1], solved)
