"""Closed-form models of a table, from which the prior is made.

Biases, two factorizations whose members' priors are regressed on the pattern of cells and on given
features, similarities of members by what the factors leave, and, where cells have times, drift and
what is left of cells near in time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.similarity import Similarity
from exchangeable.prior.drift import Drift
from exchangeable.prior.estimates import Estimates
from exchangeable.prior.later_cells import (
    Similarities,
    similarities_without_later_cells,
    update_similarities,
)
from exchangeable.prior.nearby import Nearby, UpdatedNearby, estimate_nearby, update_nearby
from exchangeable.prior.new_members import NewMembersSimilarity
from exchangeable.prior.pattern import Pattern
from exchangeable.prior.presence import Presence, count_cells, judge_members
from exchangeable.prior.side_information import NO_SIDE_INFORMATION, SideInformation
from exchangeable.prior.summed_similarity import compare_by_sums, is_summed
from exchangeable.prior.unseen import without_own_cells
from exchangeable.runtime.cache import cached_property
from exchangeable.sums.member_sums import MemberSums
from exchangeable.sums.solved_members import SolvedMembers


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
    near_axes: tuple[int, ...] = ()
    """Axes whose members' cells are estimated from those near in time."""
    presence: tuple[Presence, ...] = ()
    """Which members have cells, by axis."""

    @classmethod
    def empty(cls, shape: tuple[int, ...], index: Tensor, values: Tensor) -> ClosedForm:
        """Models of a table without cells."""
        initial = Posterior.initial(shape, values)
        return cls(index, values, shape, NO_SIDE_INFORMATION, math.inf, initial, initial, initial)

    @cached_property
    def residuals(self) -> Tensor:
        """What the fine factors leave of the values: (E,)."""
        return self.residuals_at(slice(None))

    def residuals_at(self, cells: Tensor | slice) -> Tensor:
        """What the fine factors leave of some cells, by position: (C,)."""
        mean = self.fine.predict_mean(self.index[cells])
        return self.values[cells].to(mean) - mean

    @cached_property
    def nearby(self) -> tuple[Nearby | UpdatedNearby | None, ...]:
        """The cells of each axis's members in the sequence of their times."""
        times = self.side.times
        return tuple(
            Nearby.of(self.index, self.residuals, times, self.shape, axis)
            if times is not None and axis in self.near_axes
            else None
            for axis in range(len(self.shape))
        )

    @property
    def of_pairs(self) -> ClosedForm:
        """The same models with factors of pairs of axes alone."""
        return replace(self, fine=self.coarse) if self.fine.layout.products else self

    def only_near(self, axes: tuple[int, ...]) -> ClosedForm:
        """Return these models with cells near in time of some axes only."""
        kept = tuple(each if axis in axes else None for axis, each in enumerate(self.nearby))
        return self.with_similarities(self.similarities, nearby=kept, near_axes=axes)

    @cached_property
    def similarities(self) -> Similarities:
        """Similarities of the members of each axis, by what the factors leave."""
        if self.is_summed:
            sums = MemberSums.by_axis(self.index, self.shape)
            return compare_by_sums(sums, self.values, self.fine, self.comparison_budget)
        residuals = self.residuals.float()
        return tuple(
            Similarity(
                self.index, residuals, self.shape, axis, comparison_budget=self.comparison_budget
            )
            for axis in range(len(self.shape))
        )

    def with_similarities_of(self, other: ClosedForm) -> ClosedForm:
        """Return these models with members compared as by others, of nearly the same cells."""
        residuals = self.residuals.float()
        similarities = (each.with_cells(self.index, residuals) for each in other.known_similarities)
        fitted = self.with_similarities(tuple(similarities))
        vars(fitted)["residuals"] = self.residuals
        return fitted

    def compare_all(self) -> None:
        """Compute the similarities of all members now, not of those that are asked for."""
        if not self.is_summed:
            for each in self.known_similarities:
                each.compare_all()

    def with_similarities(
        self,
        similarities: Similarities,
        nearby: tuple[Nearby | UpdatedNearby | None, ...] | None = None,
        **changed: Any,
    ) -> ClosedForm:
        """Return a copy for which similarities, and what is nearby, are not computed again."""
        fitted = replace(self, **changed)
        vars(fitted)["similarities"] = similarities
        if nearby is not None:
            vars(fitted)["nearby"] = nearby
        return fitted

    def estimates(self, index: Tensor, times: Tensor | None = None) -> Estimates:
        """Estimate cells (Q, D) at times (Q,), or the latest, by all models."""
        return replace(self.mean_estimates(index, times), variances=self.variances(index))

    def variances(self, index: Tensor) -> Tensor:
        """Return the variances of cells by biases and by the fine factors: (Q, 2)."""
        base, fine = (each.predict_variance(index) for each in (self.biases, self.fine))
        _, by_features = judge_members(self.presence, self._described, index)
        if by_features is not None:
            base = torch.where(by_features, fine, base)
        return torch.stack([base, fine], dim=1)

    @property
    def is_summed(self) -> bool:
        """Whether members were compared by sums over all cells."""
        return is_summed(len(self.index), self.side, len(self.shape))

    @property
    def _described(self) -> list[bool]:
        """Which axes have features."""
        return [self.side.given(a, self.values) is not None for a in range(len(self.shape))]

    def mean_estimates(self, index: Tensor, times: Tensor | None = None) -> Estimates:
        """Estimate cells as ``estimates`` does, without variances."""
        base, fine = (each.predict_mean(index) for each in (self.biases, self.fine))
        believed, by_features = judge_members(self.presence, self._described, index)
        # Biases do not know what features say of members without cells, and factors know nothing
        # of newcomers without either: products of average vectors are no better than biases.
        if by_features is not None:
            base = torch.where(by_features, fine, base)
        factors = torch.stack([fine - base, self.coarse.predict_mean(index) - base], dim=1)
        factors *= believed[:, None]
        nothing = base.new_zeros(1).expand(len(base))
        return Estimates(
            base,
            nothing if self.drift is None else self.drift.at(index, times),
            factors,
            base.new_empty(len(base), 0),
            torch.stack([axis.estimate(index) for axis in self.similarities], dim=1),
            estimate_nearby(self.nearby, index, times),
            count_cells(self.presence, index),
        )

    def estimates_of_unseen(
        self, index: Tensor, axes: Sequence[int], times: Tensor | None = None
    ) -> Estimates:
        """Estimate cells (Q, D) as if their members of some axes had no cells, only features.

        The last member of each axis has neither.
        """
        unseen = index.clone()
        unseen[:, [*axes]] = index.new_tensor(self.shape)[[*axes]] - 1
        estimates = self.estimates(unseen, times)
        described = [axis for axis in axes if self.side.given(axis, self.values) is not None]
        if not described:
            return estimates
        fine, coarse = self.fine, self.coarse
        for axis in described:
            members = index[:, axis].unique()
            unseen[:, axis] = index[:, axis]
            fine, coarse = (without_own_cells(each, axis, members) for each in (fine, coarse))
        base, variance = fine.predict(unseen)
        factors = torch.stack([torch.zeros_like(base), coarse.predict_mean(unseen) - base], dim=1)
        variances = torch.stack([variance, variance], dim=1)
        return replace(estimates, base=base, factors=factors, variances=variances)

    def for_new_members(
        self, axis: int, index: Tensor, values: Tensor, side: SideInformation, *, count: int = 1
    ) -> ClosedForm:
        """Return the models for ``count`` new members of an axis, each from its own cells alone.

        ``side`` has the times of their cells and their own features.
        """
        assert self.pattern is not None
        drift = None if self.drift is None else self.drift.for_new_members(axis)
        if drift is not None:
            values = values - drift.at(index, side.times)
        solved = SolvedMembers.new(index, axis)
        every = solved.sums if solved.sums.members == count else MemberSums.of(index, axis, count)
        features = self._with_given(self.pattern.describe(every), axis, side)
        cells = index, values, solved
        presence = list(self.presence)
        presence[axis] = presence[axis].for_new_members(index[:, axis], count)
        fitted = replace(
            self,
            index=index,
            values=values,
            side=side,
            biases=self.biases.for_new_members(*cells, count=count),
            fine=self.fine.for_new_members(*cells, features, count=count),
            coarse=self.coarse.for_new_members(*cells, features, count=count),
            drift=drift,
            presence=tuple(presence),
        )
        similarities = tuple(
            NewMembersSimilarity(each, axis, index, fitted.residuals.float(), count)
            for each in similarities_without_later_cells(self.similarities)
        )
        nearby = [
            None if each is None or at == axis else each.of_new_members()
            for at, each in enumerate(self.nearby)
        ]
        if side.times is not None and axis in self.near_axes:
            shape = (*self.shape[:axis], count, *self.shape[axis + 1 :])
            nearby[axis] = Nearby.of(index, fitted.residuals, side.times, shape, axis)
        return fitted.with_similarities(similarities, tuple(nearby))

    @property
    def known_similarities(self) -> tuple[Similarity, ...]:
        """Similarities of a whole table, not of a new member."""
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

        ``index`` (E, D), ``values`` (E,) and ``side`` are those of all cells and members: first
        those of before, some with other values, then new ones.
        """
        assert self.pattern is not None
        values = self._updated_values(index, values, side, changed)
        members = SolvedMembers.by_axis(index, changed)
        features = [
            self._updated_features(each, size, side)
            for each, size in zip(members, shape, strict=True)
        ]
        fitted = ClosedForm(
            index,
            values,
            shape,
            side,
            self.comparison_budget,
            self.biases.updated(index, values, shape, members),
            self.fine.updated(index, values, shape, members, features),
            self.coarse.updated(index, values, shape, members, features),
            self.pattern,
            self.drift,
            self.near_axes,
            Presence.by_axis(index, shape),
        )
        if side.times is not None:
            cells = index, fitted.residuals_at, side.times, shape
            vars(fitted)["nearby"] = tuple(
                None if each is None else update_nearby(each, *cells, members[each.axis])
                for each in self.nearby
            )
        replaced = changed[changed < len(self.values)]
        kept = update_similarities(
            self.similarities, index, fitted.residuals_at, shape, members, replaced
        )
        return (
            fitted if kept is None else fitted.with_similarities(kept, vars(fitted).get("nearby"))
        )

    def _updated_values(
        self, index: Tensor, values: Tensor, side: SideInformation, changed: Tensor
    ) -> Tensor:
        """Return the values of all cells without drift; only those that changed are computed."""
        if self.drift is None:
            return values
        times = None if side.times is None else side.times[changed]
        new = values[changed] - self.drift.at(index[changed], times).to(values)
        added = len(values) - len(self.values)
        return torch.cat([self.values, values.new_empty(added)]).index_copy_(0, changed, new)

    def _updated_features(self, changed: SolvedMembers, size: int, side: SideInformation) -> Tensor:
        """Return the features of all members: changed and new ones are described again."""
        assert self.pattern is not None
        axis, members = changed.sums.axis, changed.members
        before = self.fine.regressions[axis].features
        added = before.new_zeros(size + 2 - len(before), before.shape[1])
        features = torch.cat([before[:-1], added])
        described = self.pattern.describe(changed.sums)
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
