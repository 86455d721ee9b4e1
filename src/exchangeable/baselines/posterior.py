"""What is believed of every member's vector, and how it is found: sweeps over the axes.

Every vector has a Gaussian posterior of its own, found in turn given the others:

    S = (A + tau sum E[f f'])^-1,   m = S tau sum E[f t]

with A the precisions of the prior, one per column and axis, and tau that of the noise. No
step looks at the order of members or cells, so relabelling them relabels the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exchangeable.baselines.base import Floats, Index, chunks
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

    grams: Floats  # (N, F, F)
    moments: Floats  # (N, F)
    target: Floats  # (E,)


@dataclass(eq=False)
class Posterior:
    """Beliefs about every vector, in units of the values' spread; the last rows are priors."""

    layout: Layout
    mean: float
    noise: float
    means: list[Floats]  # (N_d + 1, F)
    covariances: list[Floats]  # (N_d + 1, F, F)
    precisions: list[Floats]  # (F,)

    @classmethod
    def before(cls, shape: Sequence[int]) -> Posterior:
        """Nothing known of any bias; noise and biases share the variance by halves."""
        order = len(shape)
        means = [np.zeros((size + 1, 1)) for size in shape]
        covariances = [np.full((size + 1, 1, 1), 0.5 / order) for size in shape]
        precisions = [np.full(1, 2.0 * order) for _ in shape]
        return cls(Layout(order, 0), 0.0, 0.5, means, covariances, precisions)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(table) - 1 for table in self.means)

    def widened(self, rank: int, precision: float) -> Posterior:
        """The same biases, with factors that are zero, and known to be."""
        layout = Layout(self.layout.order, rank)
        more = (0, layout.width - 1)
        means = [np.pad(table, ((0, 0), more)) for table in self.means]
        covariances = [np.pad(table, ((0, 0), more, more)) for table in self.covariances]
        precisions = [np.pad(own, more, constant_values=precision) for own in self.precisions]
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

    def solve(self, sums: Sums, values: Floats, members: Index) -> Equations:
        """Find the vectors of ``members``, whose cells ``sums`` holds, given the other axes."""
        axis = sums.axis
        target = values[sums.order] - self.mean
        target -= cell_means(self.layout, sums.index, self.means, self.layout.others(axis))
        grams = gram(self.layout, sums, self.means, self.covariances)
        towards = moments(self.layout, sums, target, self.means, self.covariances)
        covariance = np.linalg.inv(grams / self.noise + np.diag(self.precisions[axis]))
        self.covariances[axis][members] = covariance
        self.means[axis][members] = np.einsum("nkl,nl->nk", covariance, towards) / self.noise
        return Equations(grams, towards, target)

    def expect(self, sums: Sums) -> None:
        """Let the prior of an axis follow the vectors of its members that have cells."""
        axis, seen = sums.axis, np.flatnonzero(sums.sizes)
        variance = self.covariances[axis][seen].diagonal(axis1=1, axis2=2)
        second = (self.means[axis][seen] ** 2 + variance).mean(axis=0)
        self.precisions[axis] = 1 / np.maximum(second, LEAST)
        empty = np.append(sums.sizes == 0, True)
        self.covariances[axis][empty] = np.diag(1 / self.precisions[axis])

    def judge(self, sums: Sums, solved: Equations) -> None:
        """Set the mean, and the noise to the expected squared error, after an axis was solved.

        E[(t - f.w)^2] adds up to E[t^2] - 2 E[w].moment + E[w' gram w] over the members.
        """
        others, number = self.layout.others(sums.axis), len(solved.target)
        m, s = self.means[sums.axis][:-1], self.covariances[sums.axis][:-1]
        second = m[:, :, None] * m[:, None, :] + s
        error = np.sum(solved.target**2)
        error += np.sum(second * solved.grams) - 2 * np.sum(m * solved.moments)
        for part in chunks(number, 1 << 16):
            cells = sums.index[part]
            error += cell_variances(self.layout, cells, self.means, self.covariances, others).sum()
        shift = float(np.sum(solved.moments[:, 0]) - np.sum(solved.grams[:, 0] * m)) / number
        self.mean += shift
        self.noise = max(float(error) / number - shift**2, LEAST)


def sweep(posterior: Posterior, sums: Sequence[Sums], values: Floats) -> None:
    """Solve for all members of one axis after the other, then for the noise."""
    for of_axis in sums:
        solved = posterior.solve(of_axis, values, np.arange(of_axis.members))
        posterior.expect(of_axis)
    posterior.judge(sums[-1], solved)
