"""Bayesian factorization by Gibbs sampling (Salakhutdinov and Mnih, 2008), with biases.

The vectors of an axis are Gaussian with a mean and a full precision of their own, those are
Normal-Wishart, and the precision of the noise is Gamma. All are drawn in turn, and predictions
are averages over the draws after burn-in. Members without cells do not influence the priors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN, Cells, Floats, Index, Mask
from exchangeable.baselines.base import (
    State,
    check_cells,
    check_queries,
    chunks,
    hide_empty_members,
    members_with_cells,
    standardise,
)
from exchangeable.baselines.factorization import VectorLayout, cell_means
from exchangeable.baselines.feature_sums import feature_sums, gram, moments
from exchangeable.baselines.rank_choice import CHOOSING, with_rank
from exchangeable.errors import InputError
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.threads import one_thread
from exchangeable.sums.cell_parts import CellPart
from exchangeable.sums.member_sums import MemberSums
from exchangeable.sums.solved_members import SolvedMembers

Singles = NDArray[np.float32]

PRIOR_MEMBERS = 2.0
"""Weight of the prior of an axis' mean, in members, as in the paper."""


@dataclass(frozen=True, eq=False)
class FittedSamples:
    """S draws from the posterior, in units of the values' deviation."""

    config: BayesianFactorization
    layout: VectorLayout
    centre: float
    scale: float
    noises: Floats  # (S,), variances
    vectors: tuple[Singles, ...]  # (S, N_d + 1, F); the last is the mean of the prior
    precisions: tuple[Floats, ...]  # (S, F, F) of the prior
    has_cells: tuple[Mask, ...]  # (N_d,), members with cells

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(mask) for mask in self.has_cells)

    def predict(self, index: Index) -> tuple[Floats, Floats]:
        """Mean over the draws, and variance over them plus that of the noise.

        An unknown member, or one without cells, is at the mean of its prior; the prior's
        covariance adds to the variance.
        """
        check_queries(index, self.shape)
        index = hide_empty_members(index, self.has_cells)
        mean, variance = np.empty(len(index)), np.empty(len(index))
        covariances = [_inverse(precisions) for precisions in self.precisions]
        for part in chunks(len(index)):
            # A row per cell: rounding of sums along columns would depend on their number.
            draws = np.stack([self._draw(index[part], s) for s in range(len(self.noises))], axis=1)
            mean[part], variance[part] = draws.mean(axis=1), draws.var(axis=1)
            variance[part] += self.noises.mean() + self._unknown_variance(index[part], covariances)
        return self.centre + self.scale * mean, self.scale**2 * variance

    def _draw(self, index: Index, s: int) -> Floats:
        """Predict cells by draw ``s``: (Q, D) -> (Q,)."""
        vectors = [torch.from_numpy(draws[s]).double() for draws in self.vectors]
        axes = range(len(self.shape))
        return cell_means(self.layout, torch.from_numpy(index), vectors, axes).numpy()

    def _unknown_variance(self, index: Index, covariances: Sequence[Floats]) -> Floats:
        """Variance due to unknown members: f' C f for each, and tr(C C') for two."""
        result, unknown = np.zeros(len(index)), index == UNKNOWN
        for s in range(len(self.noises) if unknown.any() else 0):
            for axis in np.flatnonzero(unknown.any(axis=0)).tolist():
                cells = index[unknown[:, axis]]
                f = np.ones((len(cells), self.layout.width))
                for other in self.layout.others(axis):
                    partner = self.vectors[other][s][cells[:, other]]
                    f[:, self.layout.block(axis, other)] = partner[
                        :, self.layout.block(other, axis)
                    ]
                spread = np.einsum("ek,kl,el->e", f, covariances[axis][s], f)
                result[unknown[:, axis]] += spread
            for d, e in combinations(range(len(self.shape)), 2):
                here, there = self.layout.block(d, e), self.layout.block(e, d)
                shared = covariances[d][s][here, here] * covariances[e][s][there, there]
                result[unknown[:, d] & unknown[:, e]] += shared.sum()
        return result / len(self.noises)

    def updated(self, cells: Cells, changed: Index) -> FittedSamples:
        """Draw again for the members with changed cells, in every stored draw, given the others."""
        if self.scale == 0:
            return self.config.fit(cells)
        check_cells("an update", cells)
        index, values, shape = cells.index, cells.values, cells.shape
        generator = np.random.default_rng([self.config.seed, len(values)])
        y = torch.from_numpy((values - self.centre) / self.scale)
        several = sum(new > old for old, new in zip(self.shape, shape, strict=True)) > 1
        members = SolvedMembers.by_axis(torch.from_numpy(index), torch.from_numpy(changed))
        vectors = tuple(
            np.concatenate([draws, draws[:, -1:].repeat(new - old, axis=1)], axis=1)
            for draws, old, new in zip(self.vectors, self.shape, shape, strict=True)
        )
        for s in range(len(self.noises)):
            tables = [torch.from_numpy(draws[s].astype(np.float64)) for draws in vectors]
            for axis in [*range(len(shape))] * (2 if several else 1):
                prior = tables[axis][-1].numpy(), self.precisions[axis][s]
                numbers, sums, positions = members[axis]
                tables[axis][numbers] = draw_vectors(
                    self.layout, sums, y[positions], tables, prior, self.noises[s], generator
                )
            for draws, table in zip(vectors, tables, strict=True):
                draws[s] = table.numpy()
        return replace(self, vectors=vectors, has_cells=members_with_cells(index, shape))

    def factors(self) -> tuple[Floats, ...]:
        """Return the vectors of the last draw, without biases; an average would mix rotations."""
        return tuple(draws[-1, :-1, 1:].astype(np.float64) for draws in self.vectors)

    def state(self) -> State:
        result: State = {
            "scalars": np.array([self.centre, self.scale]),
            "rank": np.array([self.layout.rank]),
            "noises": self.noises,
        }
        for axis in range(self.layout.order):
            result[f"vectors.{axis}"] = self.vectors[axis]
            result[f"precisions.{axis}"] = self.precisions[axis]
            result[f"seen.{axis}"] = self.has_cells[axis]
        return result

    @classmethod
    def from_state(cls, config: BayesianFactorization, state: Mapping[str, NDArray[Any]]) -> Self:
        order = sum(name.startswith("seen.") for name in state)
        kinds = ("vectors", "precisions", "seen")
        tables = [tuple(state[f"{kind}.{axis}"] for axis in range(order)) for kind in kinds]
        layout = VectorLayout(order, int(state["rank"][0]))
        centre, scale = state["scalars"].tolist()
        return cls(config, layout, centre, scale, state["noises"], *tables)


@dataclass(frozen=True)
class BayesianFactorization:
    """Factorization of every pair of axes, averaged over draws from its posterior."""

    rank: int | None = None
    """Factors per pair of axes; None: the number that predicts hidden cells best."""
    sweeps: int = 150
    """Number of sweeps, each of which draws everything."""
    burn_in: int = 50
    """First sweeps, which still depend on the start and are discarded."""
    seed: int = 0
    """Seed of all draws."""

    kind: ClassVar[type[FittedSamples]] = FittedSamples

    def __post_init__(self) -> None:
        if not 0 <= self.burn_in < self.sweeps:
            raise InputError(
                f"burn_in must be from 0 to below sweeps={self.sweeps}, but is {self.burn_in}"
            )

    def trial(self, rank: int) -> BayesianFactorization:
        """Return the model that a rank is tried with: half of the sweeps tell ranks apart."""
        return replace(self, rank=rank, sweeps=(self.sweeps + 1) // 2, burn_in=self.burn_in // 2)

    def try_products(self, kept: Cells, hidden: Cells) -> None:
        """Return nothing: factors are of pairs of axes."""

    def fit(self, cells: Cells, progress: Progress = SILENT) -> FittedSamples:
        """Fit to observed cells; ``progress`` counts the sweeps."""
        check_cells("Bayesian factorization", cells)
        if self.rank is None:
            model, _ = with_rank(self, cells, progress.part(0, CHOOSING))
            return model.fit(cells, progress.part(CHOOSING, 1))
        index, values, shape = cells.index, cells.values, cells.shape
        standard, centre, scale = standardise(values)
        y, coordinates = torch.from_numpy(standard), torch.from_numpy(index)
        layout, generator = VectorLayout(len(shape), self.rank), np.random.default_rng(self.seed)
        sums = [MemberSums.of(coordinates, axis, size) for axis, size in enumerate(shape)]
        masks, samples, noise = members_with_cells(index, shape), self.sweeps - self.burn_in, 0.5
        sizes = [(size + 1, layout.width) for size in shape]
        tables = [torch.from_numpy(0.1 * generator.standard_normal(size)) for size in sizes]
        vectors = tuple(np.empty((samples, *size), np.float32) for size in sizes)
        precisions = tuple(np.empty((samples, layout.width, layout.width)) for _ in shape)
        noises = np.empty(samples)
        with one_thread(y.device):
            for s in range(-self.burn_in, samples):
                for axis, axis_sums in enumerate(sums):
                    observed = tables[axis][:-1].numpy()[masks[axis]]
                    prior = draw_hyperparameters(observed, generator)
                    tables[axis][:-1] = draw_vectors(
                        layout, axis_sums, y, tables, prior, noise, generator
                    )
                    tables[axis][-1] = torch.from_numpy(prior[0])
                    if s >= 0:
                        precisions[axis][s] = prior[1]
                noise = draw_noise(
                    y - cell_means(layout, coordinates, tables, range(len(shape))), generator
                )
                if s >= 0:
                    noises[s] = noise
                    for draws, table in zip(vectors, tables, strict=True):
                        draws[s] = table.numpy()
                done = s + self.burn_in + 1
                progress.at(done / self.sweeps, f"sweep {done} of {self.sweeps}")
        return FittedSamples(self, layout, centre, scale, noises, vectors, precisions, masks)


def _inverse(precisions: Floats) -> Floats:
    return np.linalg.inv(precisions).astype(np.float64)


def draw_hyperparameters(vectors: Floats, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw mean (F,) and precision (F, F) of vectors (N, F) from their Normal-Wishart posterior.

    The precision is Wishart by Bartlett's decomposition, with F degrees of freedom and the
    identity as its prior.
    """
    members, width = vectors.shape
    centre = vectors.mean(axis=0)
    around = vectors - centre
    inverse = np.eye(width) + around.T @ around
    inverse += PRIOR_MEMBERS * members / (PRIOR_MEMBERS + members) * np.outer(centre, centre)
    triangle = np.tril(generator.standard_normal((width, width)), -1)
    degrees = width + members - np.arange(width)
    triangle[np.diag_indices(width)] = np.sqrt(generator.chisquare(degrees))
    root = np.linalg.cholesky(np.linalg.inv(inverse)) @ triangle
    precision = root @ root.T
    noise = np.linalg.solve(root.T, generator.standard_normal(width))
    mean = members * centre / (PRIOR_MEMBERS + members)
    return mean + noise / np.sqrt(PRIOR_MEMBERS + members), precision


def draw_vectors(
    layout: VectorLayout,
    sums: MemberSums,
    values: Tensor,
    tables: Sequence[Tensor],
    prior: tuple[Floats, Floats],
    noise: float,
    generator: np.random.Generator,
) -> Tensor:
    """Draw the vectors (N, F) of an axis from their posterior given the other axes."""

    def target(part: CellPart) -> Tensor:
        explained = cell_means(layout, part.index, tables, layout.others(sums.axis))
        return part.take(values) - explained

    mean, precision = (torch.from_numpy(part) for part in prior)
    towards = moments(layout, sums, target, tables) / noise + precision @ mean
    grams = gram(layout, sums.axis, feature_sums(layout, sums, tables), slice(None))
    root = torch.linalg.cholesky(grams / noise + precision)
    whitened = torch.linalg.solve_triangular(root, towards.unsqueeze(2), upper=False)
    whitened += torch.from_numpy(generator.standard_normal(towards.shape)).unsqueeze(2)
    return torch.linalg.solve_triangular(root.mT, whitened, upper=True).squeeze(2)


def draw_noise(errors: Tensor, generator: np.random.Generator) -> float:
    """Draw the variance of the noise; the prior of its precision is Gamma(1, 1/100)."""
    return float((0.01 + float(errors.square().sum()) / 2) / generator.gamma(1 + len(errors) / 2))
