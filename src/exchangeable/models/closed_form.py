"""Closed-form models of a table, from which the prior is made.

Biases, two factorizations whose members' priors are regressed on the pattern of cells and on given
features, drift where cells have times, and similarities of members by what the factors leave. The
second factorization is coarse: of half the rank. Both weigh cells by the noise of their members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from exchangeable.baselines.drift import Drift
from exchangeable.baselines.factorization import MemberSums
from exchangeable.baselines.pattern import Pattern
from exchangeable.baselines.posterior import Posterior, sweep
from exchangeable.baselines.regression import Block
from exchangeable.baselines.similarity import NewMemberSimilarity, Similarity
from exchangeable.baselines.variational import (
    START_PRECISION_WITH_FEATURES,
    START_WITH_FEATURES,
    Bias,
    with_factors,
)
from exchangeable.models.estimates import Estimates
from exchangeable.models.side_information import NO_SIDE_INFORMATION, SideInformation
from exchangeable.runtime.threads import MIN_SWEPT_CELLS, threads_for

BIASES = Bias(tolerance=1e-4)

PATTERN_START, GIVEN_START = 0.01, 0.001
"""Sums of squares that the weights of the pattern and of given features have at least. With .1 for
both, features of noise do harm; with .001 for both, Douban's pattern is switched off."""

MIN_CELLS_PER_FACTOR = 5
"""Cells that members have on average for each factor. With fewer, false factors stay on, which
move with every cell that comes."""


@dataclass(frozen=True)
class Sweeps:
    """Sweeps with the same noise everywhere, and then with that of the members."""

    even: int
    uneven: int


@dataclass(frozen=True)
class Schedule:
    """Sweeps over most cells, to find the trust, and then over all of them."""

    most: Sweeps
    all: Sweeps
    warm: bool
    """Whether the fit to all cells starts from that to most. In a small table factors would depend
    on which cells were held out."""
    keep_similarities: bool = False
    """Whether similarities found with most cells serve all: where nearly no cells were held out."""

    @classmethod
    def of(cls, cells: int) -> Schedule:
        """Return the schedule for a table with this number of cells."""
        if cells <= 50_000:
            return cls(Sweeps(12, 6), Sweeps(12, 6), warm=False)
        if cells <= 500_000:
            return cls(Sweeps(8, 4), Sweeps(2, 2), warm=True)
        return cls(Sweeps(4, 2), Sweeps(0, 2), warm=True, keep_similarities=True)


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """Models fitted to the same cells, in units of the values' deviation."""

    index: Tensor  # (E, D)
    values: Tensor  # (E,), without drift
    shape: tuple[int, ...]
    side: SideInformation
    comparison_budget: float
    biases: Posterior
    fine: Posterior
    coarse: Posterior
    pattern: Pattern | None = None
    drift: Drift | None = None

    @classmethod
    def empty(cls, shape: tuple[int, ...], index: Tensor, values: Tensor) -> ClosedForm:
        """Models of a table without cells."""
        initial = Posterior.initial(shape, values)
        return cls(index, values, shape, NO_SIDE_INFORMATION, math.inf, initial, initial, initial)

    @classmethod
    def fit(
        cls,
        index: Tensor,
        values: Tensor,
        shape: tuple[int, ...],
        rank: int,
        side: SideInformation = NO_SIDE_INFORMATION,
        comparison_budget: float = math.inf,
        *,
        biases: Posterior,
        drift: Drift | None = None,
        start: ClosedForm | None = None,
        sweeps: Sweeps,
    ) -> ClosedForm:
        """Fit to one cell or more; ``start`` was fitted to nearly the same cells.

        ``biases`` are what those of the models start from. ``drift`` was fitted to these cells;
        None where there is none.
        """
        if drift is not None:
            values = values - drift.at(index, side.times)
        with threads_for(len(values), values.device, MIN_SWEPT_CELLS):
            biases = BIASES.posterior_of(index, values, shape, start=biases.grown(shape))
            sums = [MemberSums.of(index, axis, size) for axis, size in enumerate(shape)]
            pattern = Pattern.of(sums) if start is None else start.pattern
            assert pattern is not None
            features, blocks = [], []
            for each in sums:
                table, parts = _features(pattern.describe(each), side.given(each.axis, values))
                features.append(table)
                blocks.append(parts)
            rank = limit_rank(index, rank) if values.any() else 0
            if start is None:
                fine = with_factors(
                    biases,
                    index,
                    values,
                    rank,
                    START_WITH_FEATURES,
                    START_PRECISION_WITH_FEATURES,
                )
                starts = [fine, fine.narrowed((fine.layout.rank + 1) // 2)]
            else:
                starts = [start.fine.grown(shape), start.coarse.grown(shape)]
            fine, coarse = (each.with_features(features, blocks) for each in starts)
            if coarse.layout == fine.layout:
                coarse = fine
            for posterior in (fine, coarse) if coarse is not fine else (fine,):
                _sweep(posterior, sums, index, values, sweeps, warm=start is not None)
            biases = biases.grown(shape)
            for posterior in (biases, fine, coarse) if coarse is not fine else (biases, fine):
                for each in sums:
                    posterior.settle_empty_members(each, values)
        return cls(
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
        )

    @cached_property
    def similarities(self) -> tuple[Similarity, ...] | tuple[NewMemberSimilarity, ...]:
        """Similarities of the members of each axis, by what the factors leave."""
        residuals = (self.values - self.fine.predict_mean(self.index)).float()
        return tuple(
            Similarity(
                self.index, residuals, self.shape, axis, comparison_budget=self.comparison_budget
            )
            for axis in range(len(self.shape))
        )

    def with_similarities_of(self, other: ClosedForm) -> ClosedForm:
        """Return these models with the similarities of others, by nearly the same cells."""
        return self._with_similarities(other.similarities)

    def compare_all(self) -> ClosedForm:
        """Compute the similarities of all members now, not of those that are asked for."""
        for each in self._known_similarities:
            each.compare_all()
        return self

    def _with_similarities(
        self, similarities: tuple[Similarity, ...] | tuple[NewMemberSimilarity, ...]
    ) -> ClosedForm:
        fitted = replace(self)
        vars(fitted)["similarities"] = similarities
        return fitted

    def estimates(self, index: Tensor, times: Tensor | None = None) -> Estimates:
        """Estimate cells (Q, D) at times (Q,), or the latest, by all models."""
        base, base_variance = self.biases.predict(index)
        fine, fine_variance = self.fine.predict(index)
        # Biases do not know what features say of members without cells.
        cold = self._is_cold(index)
        base, base_variance = (
            torch.where(cold, by_features, plain)
            for by_features, plain in ((fine, base), (fine_variance, base_variance))
        )
        factors = torch.stack([fine - base, self.coarse.predict_mean(index) - base], dim=1)
        drift = torch.zeros_like(base) if self.drift is None else self.drift.at(index, times)
        return Estimates(
            base,
            drift,
            factors,
            torch.stack([base_variance, fine_variance], dim=1),
            torch.stack([axis.estimate(index) for axis in self.similarities], dim=1),
        )

    def _is_cold(self, index: Tensor) -> Tensor:
        """Whether a member of each cell has given features and no cells: (Q, D) -> (Q,)."""
        cold = torch.zeros(len(index), dtype=torch.bool, device=index.device)
        for axis, size in enumerate(self.shape):
            if self.pattern is not None and self.side.given(axis, self.values) is not None:
                sizes = pad(self.index[:, axis].bincount(minlength=size), (0, 1))
                cold |= sizes[index[:, axis]] == 0
        return cold

    def for_new_member(
        self, axis: int, index: Tensor, values: Tensor, side: SideInformation
    ) -> ClosedForm:
        """Return the models for one new member of an axis, number 0 there, from its cells.

        ``side`` has the times of its cells and its own features.
        """
        assert self.pattern is not None
        if self.drift is not None:
            values = values - self.drift.at(_as_unknown(index, axis), side.times)
        place = self.pattern.describe(MemberSums.of(index, axis, 1))
        features = self._with_given(place, axis, side)
        fitted = replace(
            self,
            index=index,
            values=values,
            side=side,
            biases=self.biases.for_new_member(axis, index, values),
            fine=self.fine.for_new_member(axis, index, values, features),
            coarse=self.coarse.for_new_member(axis, index, values, features),
            drift=None if self.drift is None else self.drift.for_new_member(axis),
        )
        residuals = (values - fitted.fine.predict_mean(index)).float()
        similarities = tuple(
            each.for_new_member(axis, index, residuals) for each in self._known_similarities
        )
        return fitted._with_similarities(similarities)

    @property
    def _known_similarities(self) -> tuple[Similarity, ...]:
        assert all(isinstance(each, Similarity) for each in self.similarities), (
            "the prior of a new member cannot be changed"
        )
        return self.similarities  # type: ignore[return-value]

    def updated(
        self,
        index: Tensor,
        values: Tensor,
        shape: tuple[int, ...],
        side: SideInformation,
        changed: Tensor,
    ) -> ClosedForm:
        """Return the models after cells at the positions ``changed`` came: their members anew.

        ``index`` (E, D), ``values`` (E,) and ``side`` are those of all cells and members.
        """
        assert self.pattern is not None
        if self.drift is not None:
            values = values - self.drift.at(index, side.times)
        features = [
            self._updated_features(index, changed, axis, size, side)
            for axis, size in enumerate(shape)
        ]
        return ClosedForm(
            index,
            values,
            shape,
            side,
            self.comparison_budget,
            self.biases.updated(index, values, shape, changed),
            self.fine.updated(index, values, shape, changed, features),
            self.coarse.updated(index, values, shape, changed, features),
            self.pattern,
            self.drift,
        )

    def _updated_features(
        self, index: Tensor, changed: Tensor, axis: int, size: int, side: SideInformation
    ) -> Tensor:
        """Return the features of all members: changed and new ones are described again."""
        before = self.fine.regressions[axis].features
        features = torch.cat(
            [before[:-1], before.new_zeros(size + 2 - len(before), before.shape[1])]
        )
        members = index[changed, axis].unique()
        described = self.pattern.describe(MemberSums.of_members(index, axis, members)[0])  # type: ignore[union-attr]
        width = described.shape[1]
        features[members, :width] = described
        given = side.given(axis, features)
        if given is not None:
            features[:-1, width:] = given
        return features

    def _with_given(self, places: Tensor, axis: int, side: SideInformation) -> Tensor:
        """Append given features to places (N, K); zeros for members without any."""
        width = self.fine.regressions[axis].features.shape[1] - places.shape[1]
        given = side.given(axis, places)
        return torch.cat(
            [places, places.new_zeros(len(places), width) if given is None else given], dim=1
        )


def limit_rank(index: Tensor, rank: int) -> int:
    """Limit the rank: a member has a vector for each other axis, all to be found from its cells."""
    members = sum(len(column.unique()) for column in index.T)
    cells, others = index.numel() / members, max(index.shape[1] - 1, 1)
    return min(rank, max(1, round(cells / others / MIN_CELLS_PER_FACTOR)))


def _features(places: Tensor, given: Tensor | None) -> tuple[Tensor, list[Block]]:
    """Join places (N, K) and given features (N, P), with a last row for an unknown member."""
    blocks = [Block(places.shape[1], PATTERN_START, uncertain=False)]
    if given is not None and given.shape[1]:
        blocks.append(Block(given.shape[1], GIVEN_START, uncertain=True))
        places = torch.cat([places, given], dim=1)
    return pad(places, (0, 0, 0, 1)), blocks


def _sweep(
    posterior: Posterior,
    sums: Sequence[MemberSums],
    index: Tensor,
    values: Tensor,
    sweeps: Sweeps,
    *,
    warm: bool,
) -> None:
    """Fit a posterior by sweeps; a warm one starts with the regression on its features."""
    if warm:
        for each in sums:
            posterior.update_prior(each)
    for _ in range(sweeps.even):
        sweep(posterior, sums, values)
    posterior.fit_noise_ratios(index, values)
    weights = posterior.cell_weights(index)
    assert weights is not None
    weighted = [each.weighted(weights) for each in sums]
    for _ in range(sweeps.uneven):
        sweep(posterior, weighted, values)


def _as_unknown(index: Tensor, axis: int) -> Tensor:
    """Return cells with an unknown member on an axis."""
    unknown = index.clone()
    unknown[:, axis] = -1
    return unknown
