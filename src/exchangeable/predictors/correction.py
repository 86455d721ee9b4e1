"""A linear correction of a model's means, fitted in closed form to held-out cells of the table.

What the model learned beforehand suits most tables, and a table's own held-out cells tell how far
it suits this one. So what the model leaves of their values is regressed on terms of each cell: a
polynomial of its mean, how far the network moved the prior, and the prior's estimates with their
certainties. Ridge draws all coefficients to 0, the model as it is. Its strength is the one that
predicts folds of the cells best, and of the correction a share is taken, as large as these folds
say for sure.

Cells of members with few cells are unlike those that it was fitted to. So it fades with the root
of the scarcity g of the members (``prior.trust``), as errors do: 1 - f sqrt(g) of it is left, with
f found on held-out cells whose members were shown with few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from exchangeable.models.prior_channels import CHANNELS_PER_AXIS, SHARED_CHANNELS
from exchangeable.prior.trust import FAR_OFF, FOLDS, SHARE_DEVIATION
from exchangeable.values.codecs import ValueStats
from exchangeable.values.distributions import Distribution, LogisticMixture, Normal, OnLevels
from exchangeable.values.joined import Joined
from exchangeable.values.shift import shift_means

STRENGTHS = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0)
"""Strengths of the ridge that are tried, in variances of the terms."""

MORE_CELLS = 10
"""Strength that is added, in cells, so that few of them do not decide."""

MIN_CELLS = 300
"""Held-out cells with fewer of which nothing is corrected: on all smaller tables that were tried
these gained nothing."""

LEAST_SPREAD = 1e-6
"""Root mean square from which on a term counts: others are constants of the table."""


@dataclass(frozen=True)
class Correction:
    """Coefficients of the terms of a cell, and the range of each among the held-out cells."""

    coefficients: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    fading: float = 0.0
    """Share of it that is left out where a member has one cell."""

    def changes(self, terms: Tensor, scarcity: Tensor) -> Tensor:
        """Return how far the means of cells with these terms (Q, T) are moved, in deviations.

        Terms outside the range of the held-out cells count as its ends. ``scarcity`` (Q, D) is that
        of the members.
        """
        ends = terms.new_tensor(self.low), terms.new_tensor(self.high)
        left = 1 - self.fading * scarcity.amax(dim=1).sqrt()
        return left * (terms.clamp(*ends) @ terms.new_tensor(self.coefficients))

    def apply(
        self, predictions: Distribution, channels: Tensor, scarcity: Tensor, stats: ValueStats
    ) -> Distribution:
        """Correct predictions of cells for which the prior has these channels (Q, K)."""
        changes = self.changes(describe_cells(predictions, channels, stats), scarcity)
        return correct(predictions, changes, stats)

    def to_json(self) -> dict[str, Any]:
        ranges = {name: list(getattr(self, name)) for name in ("coefficients", "low", "high")}
        return {**ranges, "fading": self.fading}

    @classmethod
    def from_json(cls, stored: Any) -> Self | None:
        """Return what ``to_json`` gave; None for None."""
        if stored is None:
            return None
        coefficients, low, high = (
            tuple(map(float, stored[name])) for name in ("coefficients", "low", "high")
        )
        return cls(coefficients, low, high, float(stored.get("fading", 0.0)))


def correct(predictions: Distribution, changes: Tensor, stats: ValueStats) -> Distribution:
    """Move means by ``changes`` (Q,) in deviations, but not out of the range of the table."""
    mean = (predictions.mean() - stats.mean) / stats.deviation
    ends = stats.standardise(mean.new_tensor([stats.knots[0], stats.knots[-1]]))
    low, high = torch.minimum(mean, ends[0]), torch.maximum(mean, ends[1])
    inside = torch.minimum(torch.maximum(mean + changes, low), high)
    return shift_means(predictions, (inside - mean) * stats.deviation)


def describe_cells(predictions: Distribution, channels: Tensor, stats: ValueStats) -> Tensor:
    """Return the terms of cells (Q, T), in deviations of the values.

    ``channels`` (Q, K) are those of the prior, which the predictions were made from.
    """
    channels = channels.to("cpu", torch.float64)
    if isinstance(predictions, Joined):
        rows = [describe_cells(part, channels[at], stats) for at, part in predictions.parts]
        places = torch.cat([at for at, _ in predictions.parts])
        return torch.cat(rows)[places.argsort()]
    location, deviation, base, fine, coarse = channels[:, :SHARED_CHANNELS].unbind(dim=1)
    mean = (predictions.mean() - stats.mean) / stats.deviation
    columns = [torch.ones_like(mean), mean, mean.square(), mean**3]
    if isinstance(predictions, OnLevels):
        before = Normal(location, deviation, stats.standardise(stats.levels(mean)))
        columns.append(before.on_levels().mean() - mean)
        latent = predictions.latent
    else:
        latent = predictions if isinstance(predictions, LogisticMixture) else None
    if latent is not None:
        columns.append((latent.mean() - stats.mean) / stats.deviation - location)
    fine, coarse = fine - base, coarse - base
    columns += [fine, coarse, fine * deviation, (fine - coarse).abs() * fine.sign()]
    axes = channels[:, SHARED_CHANNELS:].unflatten(1, (-1, CHANNELS_PER_AXIS))
    similar, certainty = axes[:, :, 0::2].flatten(1), axes[:, :, 1::2].flatten(1)
    return torch.cat([torch.stack(columns, dim=1), similar, similar * certainty], dim=1)


class HeldOutTerms(NamedTuple):
    """Held-out cells, as the model predicts them."""

    terms: Tensor  # (H, T)
    left: Tensor  # (H,), what the model leaves of their values, in deviations
    fold: Tensor  # (H,)
    scarcity: Tensor  # (H, D), of their members

    @classmethod
    def joined(cls, parts: Sequence[HeldOutTerms]) -> HeldOutTerms:
        return cls(*(torch.cat(each) for each in zip(*parts, strict=True)))


def fit_correction(
    cells: HeldOutTerms, few: HeldOutTerms | None = None
) -> tuple[Correction | None, Tensor]:
    """Fit to what the model leaves of held-out cells; of ``few`` the members showed few cells.

    Also return the changes of the first cells' means (H,), those of a fold from what fits the
    others. None, and no changes, where the folds do not gain.
    """
    terms, left = cells.terms, cells.left
    nothing = None, torch.zeros_like(left)
    spread = terms.square().mean(dim=0).sqrt() if len(terms) else terms.new_zeros(terms.shape[1])
    used = spread > LEAST_SPREAD
    if len(terms) < MIN_CELLS or not used.any():
        return nothing
    scaled = terms[:, used] / spread[used]
    solved = _solve_folds(scaled, left, cells.fold)  # (FOLDS, S, T)
    crossed = _predict_folds(scaled, solved, cells.fold)  # (S, H)
    errors = (left - crossed).square().mean(dim=1)
    best = int(errors.argmin())
    if not bool(errors[best] < left.square().mean()):
        return nothing
    changes = crossed[best]
    share = _sure_share(changes, left)
    if share <= 0:
        return nothing
    coefficients = torch.zeros_like(spread)
    coefficients[used] = share * _ridge(scaled, left)[best] / spread[used]
    low, high = terms.amin(dim=0), terms.amax(dim=0)
    correction = Correction(tuple(coefficients.tolist()), tuple(low.tolist()), tuple(high.tolist()))
    changes = share * changes
    if few is None:
        return correction, changes
    inside = few.terms.clamp(low, high)[:, used] / spread[used]
    of_few = share * _predict_folds(inside, solved, few.fold)[best]
    scarcity = cells.scarcity.amax(dim=1).sqrt()
    fading = _fading(
        torch.cat([changes, of_few]),
        torch.cat([left, few.left]),
        torch.cat([scarcity, few.scarcity.amax(dim=1).sqrt()]),
    )
    return replace(correction, fading=fading), (1 - fading * scarcity) * changes


def _solve_folds(terms: Tensor, left: Tensor, fold: Tensor) -> Tensor:
    """Return the coefficients without each fold, with each strength: (FOLDS, S, T)."""
    return torch.stack([_ridge(terms[fold != each], left[fold != each]) for each in range(FOLDS)])


def _predict_folds(terms: Tensor, solved: Tensor, fold: Tensor) -> Tensor:
    """Predict each fold by what fits the others, with each strength: (S, H)."""
    crossed = terms.new_zeros(len(STRENGTHS), len(terms))
    for number in range(FOLDS):
        mask = fold == number
        crossed[:, mask] = solved[number] @ terms[mask].T
    return crossed


def _fading(changes: Tensor, left: Tensor, scarcity: Tensor) -> float:
    """Return the share of changes (H,) that is left out at scarcity 1.

    By least squares, drawn to all by as much as these may be in error.
    """
    faded = scarcity * changes
    size = faded.square().sum().clamp(min=1e-12)
    rest = changes - left
    share = float(faded @ rest / size)
    error = float(faded.square() @ (rest - share * faded).square() / size**2)
    certainty = SHARE_DEVIATION**2 / (SHARE_DEVIATION**2 + error)
    return min(max(1 + certainty * (share - 1), 0.0), 1.0)


def _ridge(terms: Tensor, left: Tensor) -> Tensor:
    """Return the coefficients with each strength: (S, T); cells far off count less."""
    size = (left.square().mean() if len(left) else left.new_ones(())).sqrt().clamp(min=1e-9)
    weighted = terms.T * (FAR_OFF * size / left.abs().clamp(min=1e-9)).clamp(max=1)
    strengths = terms.new_tensor(STRENGTHS) * len(terms) + MORE_CELLS
    unit = torch.eye(terms.shape[1], dtype=terms.dtype)
    grams = weighted @ terms + strengths[:, None, None] * unit
    return torch.linalg.solve(grams, (weighted @ left).expand(len(strengths), -1))


def _sure_share(changes: Tensor, left: Tensor) -> float:
    """Return the share of the changes that least squares take, less its standard error."""
    size = changes.square().sum().clamp(min=1e-12)
    share = float(changes @ left / size)
    error = float(changes.square() @ (left - share * changes).square() / size**2) ** 0.5
    return min(max(share - error, 0.0), 1.0)
