"""Side information: what a table says beside the values of its cells."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exchangeable.arrays.array import FeatureTensors


@dataclass(frozen=True, eq=False)
class SideInformation:
    """Times of the observed cells, and features of the members."""

    times: Tensor | None = None  # (E,), NaN where a cell has none
    features: FeatureTensors | None = None  # (N_d, P_d) by axis, None where an axis has none

    def take(self, cells: Tensor) -> SideInformation:
        """Select cells by position or by mask; features stay."""
        return self if self.times is None else replace(self, times=self.times[cells])

    def of_members(self, axis: int, members: Tensor) -> SideInformation:
        """Select members (M,) of an axis; times and other features stay."""
        if self.features is None or self.features[axis] is None:
            return self
        features = list(self.features)
        features[axis] = self.features[axis][members]  # type: ignore[index]
        return replace(self, features=tuple(features))

    def given(self, axis: int, like: Tensor) -> Tensor | None:
        """Return the features of an axis's members, with the type of ``like``: (N, P), or None."""
        features = None if self.features is None else self.features[axis]
        return None if features is None or not features.shape[1] else features.to(like)

    def to(self, device: torch.device) -> SideInformation:
        times = None if self.times is None else self.times.to(device)
        if self.features is None:
            return SideInformation(times)
        features = tuple(None if f is None else f.to(device) for f in self.features)
        return SideInformation(times, features)


NO_SIDE_INFORMATION = SideInformation()
