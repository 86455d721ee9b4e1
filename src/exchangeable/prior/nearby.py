"""Nearby cells: what is left of a member's cells that are near in time to another.

People are in a mood, sit down together, or rate a page of a list at once. The estimate of a cell is
the mean of the residuals of the same member's cells at the same time, and of those in a window of
its sequence, shrunk towards 0 where these are few. Only the sequence of the times counts, not their
units. A cell never contributes to its own estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.unfolding import Combinations
from exchangeable.sums.solved_members import SolvedMembers

CHANNELS = 2
"""Estimates for each axis: by cells at the same time, and by those in the window."""

WINDOW = 8
"""Cells before, and as many after; all that share the time of the first or the last count."""

SAME_DOUBT, WINDOW_DOUBT = 2.0, 4.0
"""Cells at which a mean is shrunk by half."""


MAX_UPDATED_SHARE = 0.125
"""Share of the cells up to which those of members with later cells are sorted beside the others:
sorting the million of ML-1M takes .2 s."""


@dataclass(frozen=True, eq=False)
class Nearby:
    """The cells of each member of an axis in the sequence of their times."""

    axis: int
    times: Tensor  # (U,), ascending
    keys: Tensor  # (E,), ascending: members, and the ranks of the times within them
    totals: Tensor  # (E + 1,), sums of the residuals before each
    cells: Combinations
    positions: Tensor  # (E,), where each of the cells stands
    latest: float
    """The time of queries that carry none."""
    asks_known: bool = True
    """Whether queried cells may be among these; of a new member none is."""

    @classmethod
    def of(
        cls, index: Tensor, residuals: Tensor, times: Tensor, shape: Sequence[int], axis: int
    ) -> Nearby:
        """Sort cells (E, D) with residuals (E,) by their times (E,); those without one are left."""
        known = times.isfinite()
        index, residuals, times = index[known], residuals[known].double(), times[known]
        ascending = times.unique()
        keys = index[:, axis] * (len(ascending) + 1) + torch.searchsorted(ascending, times)
        # Of cells with equal keys all count or none: their sequence has no effect.
        keys, permutation = keys.sort()
        totals = pad(residuals[permutation].cumsum(0), (1, 0))
        cells, numbers = Combinations.of(index, range(len(shape)), shape)
        positions = torch.empty_like(permutation)
        positions[numbers[permutation]] = torch.arange(len(keys), device=keys.device)
        latest = float(ascending[-1]) if len(ascending) else torch.nan
        return cls(axis, ascending, keys, totals, cells, positions, latest)

    def estimate(self, index: Tensor, times: Tensor | None = None) -> Tensor:
        """Estimate cells (Q, D) at times (Q,), or the latest: (Q, 2)."""
        if times is None:
            times = torch.full_like(index[:, 0], self.latest, dtype=torch.float64)
        if not len(self.keys):
            return self.totals.new_zeros(len(index), CHANNELS)
        count, member, times = len(self.times) + 1, index[:, self.axis], times.contiguous()
        first = member * count + torch.searchsorted(self.times, times)
        end = member * count + torch.searchsorted(self.times, times, right=True)
        same = self._find(first), self._find(end)
        member_cells = self._find(member * count), self._find((member + 1) * count)
        window = self._widen(same, member_cells)
        own = self._own_positions(index)
        usable = (member != UNKNOWN) & times.isfinite()
        estimates = [
            self._mean(span, own, doubt)
            for span, doubt in ((same, SAME_DOUBT), (window, WINDOW_DOUBT))
        ]
        return torch.stack(estimates, dim=1) * usable[:, None]

    def of_new_members(self) -> Nearby:
        """Return the same for queries that are never among these cells."""
        return replace(self, asks_known=False)

    def _find(self, key: Tensor) -> Tensor:
        """Return how many cells are before a key."""
        return torch.searchsorted(self.keys, key)

    def _widen(
        self, span: tuple[Tensor, Tensor], limits: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Widen spans to both sides, by whole groups of equal times, within the member's cells."""
        last = len(self.keys) - 1
        start = torch.maximum(span[0] - WINDOW, limits[0])
        end = torch.minimum(span[1] + WINDOW, limits[1])
        before = self._find(self.keys[start.clamp(0, last)])
        after = torch.searchsorted(self.keys, self.keys[(end - 1).clamp(0, last)], right=True)
        # A member without cells has empty limits, and keys of others beside them.
        return torch.maximum(before, limits[0]), torch.minimum(after, limits[1])

    def _own_positions(self, index: Tensor) -> Tensor:
        """Return where the cells (Q, D) themselves stand; -1 for those that are not observed."""
        if not self.asks_known:
            return torch.full_like(index[:, 0], UNKNOWN)
        number = self.cells.find(index)
        return torch.where(number == UNKNOWN, UNKNOWN, self.positions[number])

    def _mean(self, span: tuple[Tensor, Tensor], own: Tensor, doubt: float) -> Tensor:
        first, end = span
        end = torch.maximum(first, end)
        inside = (own >= first) & (own < end)
        total = self.totals[end] - self.totals[first]
        total = total - inside * (self.totals[own + 1] - self.totals[own.clamp(min=0)])
        return total / (end - first - inside.long() + doubt)


@dataclass(frozen=True, eq=False)
class UpdatedNearby:
    """Cells as they were before some came, beside those of the members with later cells."""

    before: Nearby
    cells: Tensor  # (L,), positions of the cells of members with later ones, among all
    table: Nearby
    """These cells."""
    is_updated: Tensor  # (N,) bool, which members have later cells

    @property
    def axis(self) -> int:
        return self.before.axis

    def estimate(self, index: Tensor, times: Tensor | None = None) -> Tensor:
        """Estimate cells as ``Nearby.estimate`` does: (Q, 2)."""
        if times is None:
            times = torch.full_like(index[:, 0], self.table.latest, dtype=torch.float64)
        member = index[:, self.axis]
        updated = self.is_updated[member] & (member != UNKNOWN)
        result = self.before.totals.new_empty(len(index), CHANNELS)
        for some, nearby in ((updated, self.table), (~updated, self.before)):
            queries = some.nonzero().squeeze(1)
            if len(queries):
                result[queries] = nearby.estimate(index[queries], times[queries])
        return result

    def of_new_members(self) -> UpdatedNearby:
        """Return the same for queries that are never among these cells."""
        before, table = (each.of_new_members() for each in (self.before, self.table))
        return replace(self, before=before, table=table)


def update_nearby(
    nearby: Nearby | UpdatedNearby,
    index: Tensor,
    residuals: Callable[[Tensor], Tensor],
    times: Tensor,
    shape: Sequence[int],
    changed: SolvedMembers,
) -> Nearby | UpdatedNearby:
    """Sort the cells of the ``changed`` members of an axis again; ``index`` has all (E, D).

    ``residuals`` gives those of cells by their positions. All cells are sorted where members with
    later ones have many of them.
    """
    axis, is_updated = nearby.axis, index.new_zeros(shape[nearby.axis], dtype=torch.bool)
    before, cells, is_changed = nearby, changed.cells, is_updated.clone()
    is_changed[changed.members] = True
    if isinstance(nearby, UpdatedNearby):
        before = nearby.before
        is_updated[: len(nearby.is_updated)] = nearby.is_updated
        kept = nearby.cells[~is_changed[index[nearby.cells, axis]]]
        cells = torch.cat([kept, changed.cells])
    if len(cells) > MAX_UPDATED_SHARE * len(index):
        every = torch.arange(len(index), device=index.device)
        return Nearby.of(index, residuals(every), times, shape, axis)
    assert isinstance(before, Nearby)
    table = Nearby.of(index[cells], residuals(cells), times[cells], shape, axis)
    finite = times[times.isfinite()]
    latest = float(finite.max()) if len(finite) else torch.nan
    return UpdatedNearby(before, cells, replace(table, latest=latest), is_updated | is_changed)


def estimate_nearby(
    nearby: Sequence[Nearby | UpdatedNearby | None], index: Tensor, times: Tensor | None
) -> Tensor:
    """Estimate cells (Q, D) by those near in time of each axis, 0 where None: (Q, D, 2)."""
    nothing = torch.zeros(1, 1, dtype=torch.float64, device=index.device)
    nothing = nothing.expand(len(index), CHANNELS)
    if all(each is None for each in nearby):
        return nothing[:, None].expand(-1, len(nearby), -1)
    estimates = [nothing if each is None else each.estimate(index, times) for each in nearby]
    return torch.stack(estimates, dim=1)
