"""Variational factorization with relevance priors, and the bias model, which is its rank 0."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.baselines.base import State, check_cells, check_queries, standardise
from exchangeable.baselines.bias_fit import fit_biases
from exchangeable.baselines.factorization import VectorLayout, cell_means
from exchangeable.baselines.polyadic.fit import fit_products, limit_products, weigh_cells
from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.rank_choice import CHOOSING, USUAL_RANK, with_rank
from exchangeable.baselines.singular_vectors import (
    MIN_NARROW_CELLS,
    TOLERANCE,
    PairTable,
    leading_vectors,
)
from exchangeable.baselines.sweeps import converge
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.threads import one_thread
from exchangeable.sums.cell_parts import CellPart, CellValues
from exchangeable.sums.member_sums import MemberSums
from exchangeable.sums.solved_members import SolvedMembers

START = 0.05
"""Root mean square of the initial factors: small, so that the priors can switch them off.

With .1 they stay on in sparse tables (Flixster, Douban), with .01 small tables have none.
"""

START_PRECISION = 3.0
"""Initial precision of the factors' priors. From 10 on true factors die, at 1 false ones stay."""

START_WITH_FEATURES, START_PRECISION_WITH_FEATURES = 0.2, 10.0
"""The same where the priors' means are regressed on features: five sweeps come as far as twenty."""


@dataclass(frozen=True, eq=False)
class FittedFactors:
    """A posterior, with the centre and scale that turn its predictions into values."""

    config: _FactorModel
    posterior: Posterior
    centre: float
    scale: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.posterior.shape

    def predict(self, index: Index) -> tuple[Floats, Floats]:
        check_queries(index, self.shape)
        mean, variance = self.posterior.predict(torch.from_numpy(index))
        return self.centre + self.scale * mean.numpy(), self.scale**2 * variance.numpy()

    def updated(self, cells: Cells, changed: Index) -> FittedFactors:
        """Solve again for the members with changed cells, given all others and the priors.

        Biases alone are so cheap that they are fitted again, and equal values have no scale to
        keep.
        """
        if self.posterior.layout.width == 1 or self.scale == 0:
            return self.config.fit(cells)
        check_cells("an update", cells)
        y = torch.from_numpy(self._standard(cells.values))
        index = torch.from_numpy(cells.index)
        members = SolvedMembers.by_axis(index, torch.from_numpy(changed))
        posterior = self.posterior.updated(index, y, cells.shape, members)
        return FittedFactors(self.config, posterior, self.centre, self.scale)

    def for_new_members(
        self, axis: int, index: Index, values: Floats, count: int = 1
    ) -> FittedFactors | None:
        """Replace an axis by ``count`` new members, each solved from its own of the cells (E, D).

        Nothing else is solved again, and only members that share their cells are read.
        None where all values are equal: there is no scale for new ones.
        """
        if self.scale == 0:
            return None
        y = torch.from_numpy(self._standard(values))
        coordinates = torch.from_numpy(index)
        solved = SolvedMembers.new(coordinates, axis)
        posterior = self.posterior.for_new_members(coordinates, y, solved, count=count)
        return FittedFactors(self.config, posterior, self.centre, self.scale)

    def _standard(self, values: Floats) -> Floats:
        return (values - self.centre) / self.scale

    def factors(self) -> tuple[Floats, ...]:
        """Return the mean vectors of each axis' members, without biases: (N_d, rank (D - 1))."""
        return tuple(table[:-1, 1:].clone().numpy() for table in self.posterior.means)

    def state(self) -> State:
        posterior = self.posterior
        scalars = [self.centre, self.scale, posterior.mean, posterior.noise]
        result: State = {"scalars": np.array(scalars), "rank": np.array([posterior.layout.rank])}
        for axis in range(posterior.layout.order):
            result[f"means.{axis}"] = posterior.means[axis].numpy()
            result[f"covariances.{axis}"] = posterior.covariances[axis].numpy()
            result[f"precisions.{axis}"] = posterior.precisions[axis].numpy()
            if posterior.layout.products:
                result[f"centres.{axis}"] = posterior.centres[axis].numpy()
                result[f"noise_ratios.{axis}"] = posterior.noise_ratios[axis].numpy()
        return result

    @classmethod
    def from_state(cls, config: _FactorModel, state: Mapping[str, NDArray[Any]]) -> Self:
        centre, scale, mean, noise = state["scalars"].tolist()
        order = sum(name.startswith("means.") for name in state)
        kinds = ("means", "covariances", "precisions", "centres", "noise_ratios")
        tables: dict[str, Any] = {
            kind: [torch.from_numpy(state[f"{kind}.{axis}"]) for axis in range(order)]
            for kind in kinds
            if f"{kind}.0" in state
        }
        rank = int(state["rank"][0])
        products = tables["precisions"][0].shape[0] - VectorLayout(order, rank).width
        posterior = Posterior(VectorLayout(order, rank, products), mean, noise, **tables)
        return cls(config, posterior, centre, scale)


class _FactorModel(ABC):
    """A model whose posterior is fitted to standardised values."""

    kind: ClassVar[type[FittedFactors]] = FittedFactors
    title: ClassVar[str]
    """Name of the model in errors."""

    def fit(self, cells: Cells, progress: Progress = SILENT) -> FittedFactors:
        """Fit to observed cells; ``progress`` counts the sweeps."""
        check_cells(self.title, cells)
        standard, centre, scale = standardise(cells.values)
        posterior = self.posterior_of(
            torch.from_numpy(cells.index), torch.from_numpy(standard), cells.shape, progress
        )
        return FittedFactors(self, posterior, centre, scale)

    @abstractmethod
    def posterior_of(
        self,
        index: Tensor,
        values: Tensor,
        shape: tuple[int, ...],
        progress: Progress = SILENT,
        start: Posterior | None = None,
    ) -> Posterior:
        """Fit to cells (E, D) with standardised values (E,), on any device.

        ``start`` is the posterior of nearly the same cells, and is changed in place.
        """


@dataclass(frozen=True)
class Bias(_FactorModel):
    """A mean and an effect of every member, shrunk by variances that are fitted to the cells."""

    sweeps: int = 100
    """Maximum number of sweeps."""
    tolerance: float = 1e-6
    """Stop when predictions change by less, as a share of the values' deviation."""

    title: ClassVar[str] = "the bias model"

    def posterior_of(
        self,
        index: Tensor,
        values: Tensor,
        shape: tuple[int, ...],
        progress: Progress = SILENT,
        start: Posterior | None = None,
    ) -> Posterior:
        return self.by_sums(MemberSums.by_axis(index, shape), values, progress, start)

    def by_sums(
        self,
        sums: list[MemberSums],
        values: Tensor,
        progress: Progress = SILENT,
        start: Posterior | None = None,
    ) -> Posterior:
        """Fit as ``posterior_of`` does, to cells whose sums are ready."""
        shape = [each.members for each in sums]
        posterior = start or Posterior.initial(shape, values.new_empty(0, dtype=torch.float64))
        with one_thread(values.device):
            fit_biases(posterior, sums, values, self.sweeps, self.tolerance, progress)
        return posterior


@dataclass(frozen=True)
class VariationalFactorization(_FactorModel):
    """Factorization of every pair of axes, by variational Bayes with relevance priors.

    Of three axes it is the better of two forms on hidden cells: factors of pairs of axes, or
    products over all three (canonical polyadic), with cells weighted by their members' noise.
    """

    rank: int | None = None
    """Maximum number of factors per pair of axes; those that explain nothing are switched off.
    None: the number that predicts hidden cells best."""
    sweeps: int = 30
    """Maximum number of sweeps, after those of the biases."""
    tolerance: float = 1e-4
    """Stop when predictions change by less, as a share of the values' deviation."""
    products: int = 0
    """Factors that are products over all axes, of tables with three, in place of those of pairs."""

    title: ClassVar[str] = "variational factorization"

    def fit(self, cells: Cells, progress: Progress = SILENT) -> FittedFactors:
        check_cells(self.title, cells)
        if self.rank is not None or self.products:
            return super().fit(cells, progress)
        model, _ = with_rank(self, cells, progress.part(0, CHOOSING))
        return model.fit(cells, progress.part(CHOOSING, 1))

    def trial(self, rank: int) -> VariationalFactorization:
        """Return the model that a rank is tried with."""
        return replace(self, rank=rank)

    def try_products(self, kept: Cells, hidden: Cells) -> tuple[int, float] | None:
        """Return how many products over all axes predict hidden cells best, and their error."""
        standard, centre, scale = standardise(kept.values)
        arrays = kept.index, hidden.index, standard
        index, queries, values = (torch.from_numpy(array) for array in arrays)
        truth = torch.from_numpy((hidden.values - centre) / (scale or 1.0))
        sums = MemberSums.by_axis(index, kept.shape)
        most = limit_products(sums) if scale else 0
        if not most:
            return None

        def error(posterior: Posterior) -> float:
            return float((truth - posterior.predict_mean(queries)).square().mean())

        with one_thread(values.device):
            posterior = fit_products(Bias().by_sums(sums, values), sums, values, most, error)
        count = posterior.layout.products
        return (count, scale * error(posterior) ** 0.5) if count else None

    def posterior_of(
        self,
        index: Tensor,
        values: Tensor,
        shape: tuple[int, ...],
        progress: Progress = SILENT,
        start: Posterior | None = None,
        biases: Posterior | None = None,
    ) -> Posterior:
        """Fit as in the base class; ``biases`` are those of the bias model, if fitted before."""
        sums = MemberSums.by_axis(index, shape)
        with one_thread(values.device):
            if start is None:
                biases = biases or Bias().posterior_of(index, values, shape)
                most = limit_products(sums, self.products) if values.any() else 0
                if most:
                    return fit_products(biases, sums, values, most, progress=progress)
                rank = USUAL_RANK if self.rank is None else self.rank
                start = with_factors(biases, sums, values, rank if values.any() else 0)
            if start.layout.products:
                weigh_cells(start, sums, values)
            else:
                converge(start, sums, values, self.sweeps, self.tolerance, progress)
        return start

    def fit_from(self, biases: FittedFactors, cells: Cells) -> FittedFactors:
        """Fit as ``fit`` does, from the bias model that was fitted to the same cells."""
        values = torch.from_numpy(standardise(cells.values)[0])
        posterior = self.posterior_of(
            torch.from_numpy(cells.index), values, cells.shape, biases=biases.posterior
        )
        return replace(biases, config=self, posterior=posterior)

    def fit_on(
        self, fitted: FittedFactors, cells: Cells, progress: Progress = SILENT
    ) -> FittedFactors:
        """Fit from the vectors of ``fitted``, a fit to nearly the same cells, which is used up."""
        standard, centre, scale = standardise(cells.values)
        posterior = self.posterior_of(
            torch.from_numpy(cells.index),
            torch.from_numpy(standard),
            cells.shape,
            progress,
            start=fitted.posterior,
        )
        return FittedFactors(self, posterior, centre, scale)


def with_factors(
    biases: Posterior,
    sums: Sequence[MemberSums],
    values: Tensor,
    rank: int,
    size: float = START,
    precision: float = START_PRECISION,
) -> Posterior:
    """Add small factors to the biases, for each pair of axes as many as its residuals have."""
    order = biases.layout.order

    @cache
    def residuals(part: CellPart) -> Tensor:
        explained = cell_means(biases.layout, part.index, biases.means, range(order))
        left = part.take(values).to(explained) - biases.mean - explained
        return left.float() if len(sums[0]) >= MIN_NARROW_CELLS else left

    pairs = list(combinations(range(order), 2)) if rank else []
    starts = [_find_starts(sums, pair, residuals, rank) for pair in pairs]
    width = max((left.shape[1] for left, _ in starts), default=0)
    posterior = biases.widened(width, precision)
    for (d, e), (left, right) in zip(pairs, starts, strict=True):
        for axis, other, start in ((d, e, left), (e, d, right)):
            first = posterior.layout.block(axis, other).start
            occupied = int(start.any(dim=1).sum())
            columns = slice(first, first + start.shape[1])
            posterior.means[axis][:-1, columns] = size * occupied**0.5 * start
    return posterior


def _find_starts(
    sums: Sequence[MemberSums], pair: tuple[int, int], residuals: CellValues, rank: int
) -> tuple[Tensor, Tensor]:
    """Find leading singular vectors of the residuals of a pair of axes: (N, K) and (N', K).

    K is ``rank`` at most. Each entry is divided by (n_row n_column)^(1/4), so that busy members do
    not dominate. The signs are those of the third moment. Vectors that share a singular value are
    left out: their rotation would depend on how members are numbered.
    """
    scales = [sums[axis].sizes.clamp(min=1).double() ** -0.25 for axis in pair]
    table = PairTable.of(sums, pair, residuals, scales)
    left, values, right = leading_vectors(table, rank + 1)  # one more shows if the last is tied
    if not len(values):
        return left, right
    tolerance = TOLERANCE * values[0]
    infinite = values.new_full((1,), torch.inf)
    gaps = torch.cat([infinite, values, -infinite]).diff().abs() > tolerance
    distinct = ((values > tolerance) & gaps[:-1] & gaps[1:]).nonzero().squeeze(1)[:rank]
    left, right = left[:, distinct], right[:, distinct]
    sign = torch.where((left**3).sum(dim=0) < 0, -1.0, 1.0).to(left)
    return left * sign, right * sign
