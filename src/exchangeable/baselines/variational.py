"""Variational factorization with relevance priors, and the bias model, which is its rank 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.baselines.base import State, check_cells, check_queries, standardised
from exchangeable.baselines.factorization import Layout, Sums, cell_means
from exchangeable.baselines.posterior import Posterior, sweep
from exchangeable.baselines.singular_starts import singular_starts
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.threads import threads_for

START = 0.05
"""Root mean square of the factors at the start: small, so that the priors can switch them off.

With .1 they stay on in sparse tables (Flixster, Douban), with .01 small ones find none.
"""

START_PRECISION = 3.0
"""Of the factors' priors at the start. From 10 on true factors die too, at 1 false ones stay."""


@dataclass(frozen=True, eq=False)
class FittedFactors:
    """Posterior beliefs, and the centre and scale that turn them into values."""

    config: Bias | VariationalFactorization
    posterior: Posterior
    centre: float
    scale: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.posterior.shape

    def predict(self, index: Index) -> tuple[Floats, Floats]:
        check_queries(index, self.shape)
        mean, variance = self.posterior.answers(torch.from_numpy(index))
        return self.centre + self.scale * mean.numpy(), self.scale**2 * variance.numpy()

    def updated(self, cells: Cells, changed: Index) -> FittedFactors:
        """Solve anew for the members with changed cells, given all others and the priors.

        Biases alone are so cheap that they are fitted again, and values that were all equal
        have no scale to keep.
        """
        if self.posterior.layout.width == 1 or self.scale == 0:
            return self.config.fit(cells)
        check_cells("an update", cells)
        y = torch.from_numpy(self._standard(cells.values))
        posterior = self.posterior.updated(
            torch.from_numpy(cells.index), y, cells.shape, torch.from_numpy(changed)
        )
        return FittedFactors(self.config, posterior, self.centre, self.scale)

    def newcomer(self, axis: int, index: Index, values: Floats) -> FittedFactors | None:
        """With one new member of an axis, number 0 there, solved from its own cells (E, D).

        Nothing else is solved again, and of other members only those it meets are looked at.
        None where values were all equal: there is no scale to put new ones on.
        """
        if self.scale == 0:
            return None
        y = torch.from_numpy(self._standard(values))
        posterior = self.posterior.newcomer(axis, torch.from_numpy(index), y)
        return FittedFactors(self.config, posterior, self.centre, self.scale)

    def _standard(self, values: Floats) -> Floats:
        return (values - self.centre) / self.scale

    def factors(self) -> tuple[Floats, ...]:
        """The mean vectors of each axis' members, biases left out: (N_d, rank (D - 1))."""
        return tuple(table[:-1, 1:].clone().numpy() for table in self.posterior.means)

    def state(self) -> State:
        own = self.posterior
        scalars = [self.centre, self.scale, own.mean, own.noise]
        result: State = {"scalars": np.array(scalars), "rank": np.array([own.layout.rank])}
        for axis in range(own.layout.order):
            result[f"means.{axis}"] = own.means[axis].numpy()
            result[f"covariances.{axis}"] = own.covariances[axis].numpy()
            result[f"precisions.{axis}"] = own.precisions[axis].numpy()
        return result

    @classmethod
    def of_state(
        cls, config: Bias | VariationalFactorization, state: Mapping[str, NDArray[Any]]
    ) -> Self:
        centre, scale, mean, noise = state["scalars"].tolist()
        order = sum(name.startswith("means.") for name in state)
        kinds = ("means", "covariances", "precisions")
        tables = [
            [torch.from_numpy(state[f"{kind}.{axis}"]) for axis in range(order)] for kind in kinds
        ]
        layout = Layout(order, int(state["rank"][0]))
        return cls(config, Posterior(layout, mean, noise, *tables), centre, scale)


@dataclass(frozen=True)
class Bias:
    """A mean, and an effect of every member, shrunk by variances that the cells themselves tell."""

    sweeps: int = 100
    """Rounds at most."""
    tolerance: float = 1e-6
    """Stop when the answers move by less, as a share of the values' spread."""

    kind: ClassVar[type[FittedFactors]] = FittedFactors

    def fit(self, cells: Cells, progress: Progress = SILENT) -> FittedFactors:
        check_cells("the bias model", cells)
        standard, centre, scale = standardised(cells.values)
        posterior = self.believed(
            torch.from_numpy(cells.index), torch.from_numpy(standard), cells.shape, progress
        )
        return FittedFactors(self, posterior, centre, scale)

    def believed(
        self,
        index: Tensor,
        values: Tensor,
        shape: tuple[int, ...],
        progress: Progress = SILENT,
        start: Posterior | None = None,
    ) -> Posterior:
        """What is believed after cells (E, D) with standardised values (E,), on any device.

        ``start`` is what was believed after nearly the same cells, which is changed.
        """
        posterior, sums = start or Posterior.before(shape, values), _sums(index, shape)
        with threads_for(len(values), values.device):
            _converge(posterior, sums, values, self.sweeps, self.tolerance, progress)
        return posterior


@dataclass(frozen=True)
class VariationalFactorization:
    """Factorization of every pair of axes, by variational Bayes with relevance priors."""

    rank: int = 12
    """Factors per pair of axes at most; those that explain nothing are switched off."""
    sweeps: int = 30
    """Rounds at most, after those of the biases."""
    tolerance: float = 1e-4
    """Stop when the answers move by less, as a share of the values' spread."""

    kind: ClassVar[type[FittedFactors]] = FittedFactors

    def fit(self, cells: Cells, progress: Progress = SILENT) -> FittedFactors:
        check_cells("variational factorization", cells)
        standard, centre, scale = standardised(cells.values)
        posterior = self.believed(
            torch.from_numpy(cells.index), torch.from_numpy(standard), cells.shape, progress
        )
        return FittedFactors(self, posterior, centre, scale)

    def believed(
        self,
        index: Tensor,
        values: Tensor,
        shape: tuple[int, ...],
        progress: Progress = SILENT,
        biases: Posterior | None = None,
        start: Posterior | None = None,
    ) -> Posterior:
        """What is believed after cells (E, D) with standardised values (E,), on any device.

        ``biases`` are those of the bias model for these cells, where they are known already, and
        ``start`` is what was believed after most of them, which is changed.
        """
        sums = _sums(index, shape)
        with threads_for(len(values), values.device):
            if start is None:
                biases = biases or Bias().believed(index, values, shape)
                start = started(biases, index, values, self.rank if values.any() else 0)
            _converge(start, sums, values, self.sweeps, self.tolerance, progress)
        return start


def started(biases: Posterior, index: Tensor, values: Tensor, rank: int) -> Posterior:
    """Add small factors to the biases, of each pair of axes as many as its residuals have."""
    order, shape = biases.layout.order, biases.shape
    residuals = values - biases.mean - cell_means(biases.layout, index, biases.means, range(order))
    pairs = list(combinations(range(order), 2)) if rank else []
    cells, left_over = index.cpu().numpy(), residuals.cpu().numpy()
    starts = [
        singular_starts(cells[:, d], cells[:, e], left_over, (shape[d], shape[e]), rank)
        for d, e in pairs
    ]
    most = max((left.shape[1] for left, _ in starts), default=0)
    posterior = biases.widened(most, START_PRECISION)
    for (d, e), (left, right) in zip(pairs, starts, strict=True):
        for axis, other, start in ((d, e, left), (e, d, right)):
            first = posterior.layout.block(axis, other).start
            seen = np.count_nonzero(start.any(axis=1))
            columns = slice(first, first + start.shape[1])
            own = torch.from_numpy(START * np.sqrt(seen) * start)
            posterior.means[axis][:-1, columns] = own.to(posterior.means[axis])
    return posterior


def _sums(index: Tensor, shape: tuple[int, ...]) -> list[Sums]:
    return [Sums.of(index, axis, size) for axis, size in enumerate(shape)]


def _converge(
    posterior: Posterior,
    sums: list[Sums],
    values: Tensor,
    sweeps: int,
    tolerance: float,
    progress: Progress,
) -> None:
    """Sweep until the answers for the observed cells no longer move."""
    before = torch.full_like(values, torch.inf)
    for number in range(1, sweeps + 1):
        sweep(posterior, sums, values)
        answers = posterior.mean + cell_means(
            posterior.layout, sums[0].index, posterior.means, range(len(sums))
        )
        moved = float((answers - before).square().mean().sqrt())
        done = moved < tolerance
        progress.at(1.0 if done else number / sweeps, f"sweep {number} of {sweeps}")
        if done:
            return
        before = answers
