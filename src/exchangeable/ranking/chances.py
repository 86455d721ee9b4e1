"""Chances: how likely it is that an unseen cell is a positive that was hidden.

A fifth of each user's items is thought to be hidden, so a user with n of them seen has n / 4 more
to find. These are shared out by a softmax of its scores. Hidden positives of the table tell how
often such shares come true, and chances are set right by that: at the table's own rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

HIDDEN = 0.2
"""Share of the items of a user that are hidden, where some are."""

MORE = HIDDEN / (1 - HIDDEN)
"""Items to find for each one that a user has."""
MAX_SHARE = 0.5
"""Share of a user's unseen items that it may have to find."""
STEP = 0.4
"""Width of the groups of shares that are compared with what was hidden, in logarithms, at least."""
HITS_PER_GROUP = 50
PRIOR_HITS = 1.0
"""Hits that came as often as expected, which each group has beside its own."""
_TINY = 1e-30
_MAX_LOG = -1e-6


@dataclass(frozen=True)
class Chances:
    """The logarithms of shares, ascending, and of the chances they come to."""

    shares: tuple[float, ...] = (0.0,)
    chances: tuple[float, ...] = (0.0,)

    @classmethod
    def fit(cls, shares: Tensor, hits: Tensor) -> Chances:
        """Compare shares of cells (Q,) with whether they were hidden positives (Q,)."""
        if not len(shares):
            return cls()
        shares = shares.double().clamp(min=_TINY)
        steps = (shares.log() / STEP).floor().long()
        lowest = int(steps.min())
        mass, hit, place = (
            (steps - lowest).bincount(weights=weights.double())
            for weights in (shares, hits, shares * shares.log())
        )
        x, y = [], []
        for some in _groups(mass.tolist()):
            expected, middle = mass[some].sum(), place[some].sum() / mass[some].sum()
            ratio = (hit[some].sum() + PRIOR_HITS) / (expected + PRIOR_HITS)
            x.append(float(middle))
            y.append(float(middle + ratio.log()))
        chances = torch.tensor(y, dtype=torch.float64).cummax(0).values.clamp(max=_MAX_LOG)
        return cls(tuple(x), tuple(chances.tolist()))

    def of(self, shares: Tensor) -> Tensor:
        """Return the chances of cells with these shares."""
        x, y = torch.tensor(self.shares).to(shares), torch.tensor(self.chances).to(shares)
        at = shares.clamp(min=_TINY).log()
        place = torch.searchsorted(x, at.contiguous()).clamp(1, max(1, len(x) - 1))
        high = place.clamp(max=len(x) - 1)
        part = ((at - x[place - 1]) / (x[high] - x[place - 1]).clamp(min=1e-9)).clamp(0, 1)
        # Below, the ratio of chance and share stays as it is at the end; above, that of odds does.
        below, above = (at - x[0]).clamp(max=0), (at - x[-1]).clamp(min=0)
        inside = (torch.lerp(y[place - 1], y[high], part) + below).clamp(max=_MAX_LOG)
        return torch.sigmoid(inside - torch.log(-torch.expm1(inside)) + above)


def _groups(mass: list[float]) -> list[slice]:
    """Join neighbouring steps until so many hits are expected in each group."""
    groups, start, total = [], 0, 0.0
    for end, own in enumerate(mass, start=1):
        total += own
        if total >= HITS_PER_GROUP:
            groups.append(slice(start, end))
            start, total = end, 0.0
    if start < len(mass):  # too few: they join those before
        groups[-1:] = [slice(groups[-1].start if groups else 0, len(mass))]
    return groups


def shares_of(scores: Tensor, counts: Tensor) -> Tensor:
    """Share out what users with so many items (B,) have to find, by scores (M, B)."""
    unseen = (scores > -torch.inf).sum(dim=0)
    more = torch.minimum(MORE * counts, MAX_SHARE * unseen)
    return scores.softmax(dim=0).nan_to_num() * more
