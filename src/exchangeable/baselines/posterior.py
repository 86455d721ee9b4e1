"""Gaussian posteriors of all members' vectors, fitted by sweeps over the axes.

Every vector has a Gaussian posterior, computed in turn given the others:

    S = (A + tau sum E[f f'])^-1,   m = S (A x B + tau sum E[f t])

with A the precisions of the prior, one per column and axis, x B its mean, which is 0 without
features x of the members, and tau the precision of the noise. No step depends on the numbering of
members or cells, so relabelling them relabels predictions. The noise of a cell may depend on its
members: it is the common variance times a ratio for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from exchangeable.baselines.base import chunks
from exchangeable.baselines.factorization import VectorLayout, cell_means, cell_variances, grown
from exchangeable.baselines.feature_sums import feature_sums, gram, moments
from exchangeable.baselines.kept_rows import KeptRows
from exchangeable.baselines.regression import Block, Regression
from exchangeable.runtime.threads import run_all
from exchangeable.sums.cell_parts import CellPart, CellValues
from exchangeable.sums.member_sums import MemberSums
from exchangeable.sums.solved_members import SolvedMembers

MIN_VARIANCE = 1e-6
"""Smallest noise and prior variance, as a share of the values' variance."""


RESIDUAL_START = 0.01
"""Sum of squares that vectors have at least about their regression on features."""

MEMBERS_PER_SOLUTION = {"cpu": 1 << 12, "cuda": 1 << 17}
"""Members whose vectors are solved at a time, by the device."""

MIN_PARALLEL_NUMBERS = 1 << 20
"""Entries of the members' covariances from which on they are solved on all cores."""


class Explained(NamedTuple):
    """How far the vectors of an axis explain what they were solved from, over all members."""

    squares: float
    """Sum of E[w' gram w] - 2 E[w].moment."""
    shift: float
    """Sum of what is left of the targets."""


@dataclass(eq=False)
class Posterior:
    """Posteriors of all vectors, in units of the values' deviation; the last rows are priors."""

    layout: VectorLayout
    mean: float
    noise: float
    means: list[Tensor]  # (N_d + 1, F)
    covariances: list[Tensor]  # (N_d + 1, F, F)
    precisions: list[Tensor]  # (F,)
    regressions: list[Regression] = field(default_factory=list)
    """Regressions of the vectors on features of the members, by axis; none without features."""
    noise_ratios: list[Tensor] = field(default_factory=list)
    """Variance of each member's noise over the common one, (N_d + 1,) by axis; none where even."""
    centres: list[Tensor] = field(default_factory=list)
    """Means of the priors beside the regressions, (F,) by axis; none where they are 0."""
    _kept: list[KeptRows] = field(default_factory=list, init=False, repr=False)
    """Rows of variances, by axis."""

    def __post_init__(self) -> None:
        self._kept = [KeptRows() for _ in self.means]

    @classmethod
    def initial(cls, shape: Sequence[int], like: Tensor) -> Posterior:
        """Start with biases at their prior; noise and biases have half of the variance each."""
        order = len(shape)
        means = [like.new_zeros(size + 1, 1) for size in shape]
        covariances = [like.new_full((size + 1, 1, 1), 0.5 / order) for size in shape]
        precisions = [like.new_full((1,), 2.0 * order) for _ in shape]
        return cls(VectorLayout(order, 0), 0.0, 0.5, means, covariances, precisions)

    def forget_members(self) -> Posterior:
        """Return the same priors and noise, with the vectors of all members at their prior."""
        return replace(
            self,
            means=[torch.zeros_like(table) for table in self.means],
            covariances=[
                (1 / precision).diag().expand_as(table).clone()
                for precision, table in zip(self.precisions, self.covariances, strict=True)
            ],
        )

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

    def with_features(
        self, features: Sequence[Tensor], blocks: Sequence[Sequence[Block]]
    ) -> Posterior:
        """Return the same vectors, to be regressed on features (N_d + 1, P) of the members."""
        width, pairs = self.layout.width, zip(features, blocks, strict=True)
        return replace(self, regressions=[Regression.initial(x, b, width) for x, b in pairs])

    def grown(self, shape: Sequence[int], features: Sequence[Tensor] = ()) -> Posterior:
        """Return a copy with members added at the end of the axes, at their prior.

        ``features`` (N_d + 1, P) are those of all members, where the posterior has any.
        """
        posterior = replace(
            self,
            means=[grown(*pair) for pair in zip(self.means, shape, strict=True)],
            covariances=[grown(*pair) for pair in zip(self.covariances, shape, strict=True)],
            precisions=list(self.precisions),
            regressions=[replace(regression) for regression in self.regressions],
            noise_ratios=[grown(*pair) for pair in zip(self.noise_ratios, shape, strict=False)],
        )
        for axis, x in enumerate(features if self.regressions else ()):
            regression = replace(self.regressions[axis], features=x)
            posterior.regressions[axis] = regression
            added = slice(self.shape[axis], -1)
            posterior.means[axis][added] += regression.given_means()[added]
        return posterior

    def prior_means(self, axis: int, members: Tensor) -> Tensor | float:
        """Return the prior means of the vectors of members: (M, F), or 0."""
        centre = self.centres[axis] if self.centres else 0.0
        if not self.regressions:
            return centre
        regression = self.regressions[axis]
        return regression.features[members] @ regression.weights + centre

    def predict(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of cells, noise included: (Q, D) -> (Q,) each; -1 is unknown."""
        return self.predict_mean(index), self.predict_variance(index)

    def predict_variance(self, index: Tensor) -> Tensor:
        """Variance of cells alone, noise included: (Q, D) -> (Q,)."""
        axes = range(self.layout.order)
        tables = self.means, self.covariances
        kept_rows = partial(self._kept_rows, queries=len(index))
        variance = cell_variances(self.layout, index, *tables, axes, kept_rows)
        return variance.add_(self.noise * self.noise_ratio(index))

    def _kept_rows(self, axis: int, other: int, queries: int) -> Tensor | None:
        """Return the rows of variances of an axis for an other one, if they are kept."""
        tables = self.means[axis], self.covariances[axis]
        return self._kept[axis].of(self.layout, axis, other, tables, queries)

    def predict_mean(self, index: Tensor) -> Tensor:
        """Mean of cells alone: (Q, D) -> (Q,)."""
        return self.mean + cell_means(self.layout, index, self.means, range(self.layout.order))

    def noise_ratio(self, index: Tensor) -> Tensor | float:
        """Return the variance of the noise of cells (Q, D) over the common one: (Q,), or 1."""
        ratio: Tensor | float = 1.0
        for axis, ratios in enumerate(self.noise_ratios):
            ratio = ratio * ratios[index[:, axis]]
        return ratio

    @property
    def member_weights(self) -> list[Tensor]:
        """Weights of members by their noise, by axis, whose products cells have; none if even."""
        return [1 / ratios for ratios in self.noise_ratios]

    def updated(
        self,
        index: Tensor,
        values: Tensor,
        shape: Sequence[int],
        changed: Sequence[SolvedMembers],
        features: Sequence[Tensor] = (),
    ) -> Posterior:
        """Return a copy, solved again for members of every axis with changed cells, given all else.

        ``index`` (E, D) and ``values`` (E,) are those of all cells.
        """
        posterior = self.grown(shape, features)
        several = sum(new > old for old, new in zip(self.shape, shape, strict=True)) > 1
        for _ in range(2 if several else 1):
            for members, sums, cells in changed:
                weights = posterior.member_weights
                if weights:
                    weights[sums.axis] = weights[sums.axis][members]
                    sums = sums.weighted(weights)
                posterior.solve(sums, values[cells], members)
        return posterior

    def for_new_members(
        self,
        index: Tensor,
        values: Tensor,
        solved: SolvedMembers,
        features: Tensor | None = None,
        *,
        count: int = 1,
    ) -> Posterior:
        """Replace an axis by ``count`` new members, each solved from its own of the cells (E, D).

        ``solved`` are those that have cells. Nothing else is solved again, and only members that
        share their cells are read. ``features`` (B, P) are their own, where the posterior has any.
        """
        axis = solved.sums.axis
        means, covariances = list(self.means), list(self.covariances)
        regressions, ratios = [*self.regressions], [*self.noise_ratios]
        means[axis], covariances[axis] = (
            table[-1:].repeat(count + 1, *[1] * (table.ndim - 1))
            for table in (means[axis], covariances[axis])
        )
        if ratios:
            ratios[axis] = ratios[axis][-1:].repeat(count + 1)
        if features is not None and regressions:
            described = torch.cat([features, regressions[axis].features[-1:]])
            regressions[axis] = replace(regressions[axis], features=described)
            means[axis][:-1] += regressions[axis].given_means()[:-1]
        found = replace(
            self,
            means=means,
            covariances=covariances,
            regressions=regressions,
            noise_ratios=ratios,
        )
        if len(index):  # members without cells stay at their prior
            sums, weights = solved.sums, found.member_weights
            if weights:
                weights[axis] = weights[axis][solved.members]
                sums = sums.weighted(weights)
            found.solve(sums, values, solved.members)
        # The other axes are as they were, and so are their rows of variances.
        for other in self.layout.others(axis):
            found._kept[other] = self._kept[other]
        return found

    def solve(self, sums: MemberSums, values: Tensor, members: Tensor) -> Explained:
        """Solve for the vectors of ``members``, with their cells in ``sums``, given other axes."""
        axis = sums.axis
        sums, means, covariances = self._own_rows(sums)
        target = self._target(axis, values, means)
        features = feature_sums(self.layout, sums, means, covariances)
        towards = moments(self.layout, sums, target, means, covariances, features)

        def solve_some(part: slice) -> Tensor:
            some, t = members[part], towards[part].to(self.means[axis])
            grams = gram(self.layout, axis, features, part).to(t)
            precision = grams / self.noise + self.precisions[axis].diag()
            # Biases alone, which small tables are fitted to mostly, need no decomposition.
            covariance = torch.linalg.inv(precision) if self.layout.width > 1 else 1 / precision
            pull = t / self.noise + self.precisions[axis] * self.prior_means(axis, some)
            m = (covariance @ pull.unsqueeze(2)).squeeze(2)
            self.covariances[axis][some], self.means[axis][some] = covariance, m
            left = (grams @ m.unsqueeze(2)).squeeze(2) - t
            squares = (covariance * grams).sum() + (m * (left - t)).sum()
            return torch.stack([squares, -left[:, 0].sum()])

        parts = chunks(max(len(members), 1), MEMBERS_PER_SOLUTION[values.device.type])
        tasks = [partial(solve_some, part) for part in parts]
        numbers = len(members) * self.layout.width**2
        cells = len(sums) if numbers >= MIN_PARALLEL_NUMBERS else 0
        explained = torch.stack(run_all(tasks, cells, values.device)).sum(dim=0)
        return Explained(*explained.tolist())

    def _own_rows(self, sums: MemberSums) -> tuple[MemberSums, list[Tensor], list[Tensor]]:
        """Return sums, means and covariances with a row for each cell, where cells are few.

        Sums read whole tables of the other axes, which a few members share little of.
        """
        means, covariances = list(self.means), list(self.covariances)
        for other in self.layout.others(sums.axis) if self.layout.width > 1 else ():
            if len(sums) < len(means[other]) and len(sums.parts) == 1:
                sums, cells = sums.with_own_rows(other)
                means[other], covariances[other] = means[other][cells], covariances[other][cells]
        return sums, means, covariances

    def _target(self, axis: int, values: Tensor, means: Sequence[Tensor]) -> CellValues:
        """Give cells what an axis is to explain of their values (E,), beside other axes."""
        others = self.layout.others(axis)

        def target(part: CellPart) -> Tensor:
            known = cell_means(self.layout, part.index, means, others)
            return part.take(values).to(known) - self.mean - known

        return target

    def update_prior(self, sums: MemberSums) -> None:
        """Set the prior of an axis to the second moments of its members with cells.

        With features these are moments about the regression on them.
        """
        axis, members = sums.axis, sums.with_cells
        means = self.means[axis][members]
        if self.centres:
            means = means - self._update_centre(axis, members)
        variance = self.covariances[axis].diagonal(dim1=1, dim2=2)[members]
        if not self.regressions:
            second = (means**2 + variance).mean(dim=0)
        else:
            regression = self.regressions[axis]
            uncertain = regression.update(means, self.precisions[axis], members)
            away = means - regression.means()[members]
            total = (away**2 + variance).sum(dim=0) + uncertain
            second = (total + RESIDUAL_START) / (len(members) + 1)
        self.precisions[axis] = 1 / second.clamp(min=MIN_VARIANCE)
        self.covariances[axis][sums.without_cells] = (1 / self.precisions[axis]).diag()

    def _update_centre(self, axis: int, members: Tensor) -> Tensor:
        """Set the centre of an axis to what regressions leave of the vectors on average."""
        left = self.means[axis][members]
        if self.regressions:
            left = left - self.regressions[axis].means()[members]
        centre = left.mean(dim=0)
        centre[0] = 0  # the mean is what biases have in common
        self.centres[axis] = centre
        self.means[axis][-1] = centre
        return centre

    def update_noise(self, sums: MemberSums, values: Tensor, solved: Explained) -> None:
        """Set the mean, and the noise to the expected squared error, after an axis was solved.

        E[(t - f.w)^2] adds up to E[t^2] - 2 E[w].moment + E[w' gram w] over the members.
        """
        others = self.layout.others(sums.axis)
        target = self._target(sums.axis, values, self.means)

        def square(part: CellPart) -> Tensor:
            index, tables = part.index, (self.means, self.covariances)
            return target(part).square() + cell_variances(self.layout, index, *tables, others)

        error, total = sums.over_cells(square) + solved.squares, float(sums.total_weights.sum())
        shift = solved.shift / total
        self.mean += shift
        self.noise = max((error - total * shift**2) / len(sums), MIN_VARIANCE)
