"""Drift: effects of members that change with time, as further biases.

The times of the cells are cut into periods with about as many cells each. A member of an axis has
an effect in every period in which it has cells,

    y = mu + sum_d b_d[n_d] + sum_d c_d[n_d, period] + noise

whose variances are fitted to the cells: this is the bias model of a table with further axes. How
fine the periods of an axis are depends on how many cells are left for each effect. Only the
sequence of the times counts, not their units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.variational import Bias
from exchangeable.runtime.cache import cached_property

MAX_PERIODS = 1024
"""Periods at most; half as many, and half again, where there are too few cells for each effect."""
MIN_PERIODS = 4
MIN_CELLS_PER_EFFECT = 16
"""Cells for each effect. With fewer, effects take what factors explain: with 2 drift did harm on
ML-1M, and with 32 it gained half on ML-100K."""
BIASES = Bias(sweeps=20, tolerance=1e-3)


@dataclass(frozen=True, eq=False)
class MemberDrift:
    """Effects of the members of an axis in periods."""

    axis: int
    edges: Tensor  # (P - 1,), the times between periods
    keys: Tensor  # (K,), ascending: members times periods, where there are cells
    effects: Tensor  # (K + 1,), the last is 0, for all others

    def at(self, index: Tensor, times: Tensor) -> Tensor:
        """Return the effects at cells (Q, D) and times (Q,): (Q,)."""
        return self.effects[_find(self.keys, _key(index[:, self.axis], times, self.edges))]

    def at_time(self, index: Tensor, time: float) -> Tensor:
        """Return the effects at cells (Q, D), all at one time: (Q,)."""
        if time not in self._tables:
            # Members after the last one with an effect have none, and -1 reads the last row.
            last = int(self.keys[-1]) // (len(self.edges) + 2) if len(self.keys) else -1
            members = torch.arange(last + 2, device=self.keys.device)
            times = torch.full_like(members, time, dtype=torch.float64)
            self._tables[time] = self.at(members[:, None].expand(-1, self.axis + 1), times)
        table = self._tables[time]
        return table[index[:, self.axis].clamp(max=len(table) - 1)]

    @cached_property
    def _tables(self) -> dict[float, Tensor]:
        """Effects of all members by time: (N,) each. Most queries are at the latest."""
        return {}


@dataclass(frozen=True, eq=False)
class Drift:
    """Effects of members in periods, on the axes that have cells enough for them."""

    members: tuple[MemberDrift, ...]
    latest: float
    """The time of queries that carry none."""

    @classmethod
    def fit(cls, index: Tensor, values: Tensor, times: Tensor, shape: Sequence[int]) -> Drift:
        """Fit to standardised values (E,) of cells (E, D) at times (E,), NaN where unknown."""
        axes = [each for axis in range(len(shape)) if (each := _divide(index, times, axis))]
        finite = times[times.isfinite()]
        latest = float(finite.max()) if len(finite) else torch.nan
        if not axes:
            return cls((), latest)
        columns = [
            torch.searchsorted(keys, _key(index[:, axis], times, edges))
            for axis, edges, keys in axes
        ]
        extended = torch.cat([index, torch.stack(columns, dim=1)], dim=1)
        sizes = (*shape, *(len(keys) for _, _, keys in axes))
        posterior = BIASES.posterior_of(extended, values, sizes)
        effects = [table[:, 0].clone() for table in posterior.means[len(shape) :]]
        for table in effects:
            table[-1] = 0
        members = [MemberDrift(*each, table) for each, table in zip(axes, effects, strict=True)]
        return cls(tuple(members), latest)

    def at(self, index: Tensor, times: Tensor | None) -> Tensor:
        """Return the sum of the effects at cells (Q, D) and times (Q,), or the latest: (Q,)."""
        total = torch.zeros(len(index), dtype=torch.float64, device=index.device)
        for each in self.members:
            if times is None:
                total += each.at_time(index, self.latest)
            else:
                total += each.at(index, times)
        return total

    def for_new_members(self, axis: int) -> Drift:
        """Return the drift without the effects of an axis, whose members are all new."""
        return replace(self, members=tuple(each for each in self.members if each.axis != axis))


def _divide(index: Tensor, times: Tensor, axis: int) -> tuple[int, Tensor, Tensor] | None:
    """Find the finest periods with cells enough for each effect: the axis, edges and keys."""
    finite = times[times.isfinite()]
    if not len(finite):
        return None
    ascending = finite.sort().values
    periods = MAX_PERIODS
    while periods >= MIN_PERIODS:
        cuts = torch.arange(1, periods, device=times.device) * len(ascending) // periods
        edges = ascending[cuts].unique()
        edges = edges[edges > ascending[0]]
        keys = _key(index[:, axis], times, edges).unique()
        if len(edges) and len(index) >= MIN_CELLS_PER_EFFECT * len(keys):
            return axis, edges, keys
        periods //= 2
    return None


def _key(member: Tensor, times: Tensor, edges: Tensor) -> Tensor:
    """Number members in periods: (Q,); cells without a time have a period of their own."""
    period = torch.searchsorted(edges, times.contiguous(), right=True)
    period = torch.where(times.isnan(), len(edges) + 1, period)
    return torch.where(member < 0, UNKNOWN, member * (len(edges) + 2) + period)


def _find(keys: Tensor, wanted: Tensor) -> Tensor:
    """Return the position of each key, that of the last effect if it is not there: (Q,)."""
    at = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return torch.where(keys[at] == wanted, at, len(keys))
