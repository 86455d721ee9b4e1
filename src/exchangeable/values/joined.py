"""Predicted distributions of several kinds, joined into those of all cells."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from exchangeable.values.distributions import Distribution, Share


@dataclass(frozen=True, eq=False)
class Joined:
    """Distributions of several kinds: positions of cells, each once, with their distributions."""

    parts: tuple[tuple[Tensor, Distribution], ...]

    def take(self, cells: Tensor) -> Joined:
        parts = []
        for positions, part in self.parts:
            inverse = positions.new_full((self._size,), -1)
            inverse[positions] = torch.arange(len(positions))
            kept = (inverse[cells] >= 0).nonzero().squeeze(1)
            parts.append((kept, part.take(inverse[cells[kept]])))
        return Joined(tuple(parts))

    def mean(self) -> Tensor:
        return self._joined([part.mean() for _, part in self.parts])

    def quantile(self, share: Share) -> Tensor:
        shares = torch.as_tensor(share, dtype=torch.float64).expand(self._size)
        return self._joined([part.quantile(shares[cells]) for cells, part in self.parts])

    def rank(self, values: Tensor) -> Tensor:
        return self._joined([part.rank(values[cells]) for cells, part in self.parts])

    def bounds(self) -> tuple[float, float] | None:
        return self.parts[0][1].bounds()

    def probabilities(self) -> Tensor:
        return self._joined([part.probabilities() for _, part in self.parts])

    def log_likelihood(self, values: Tensor) -> Tensor:
        return self._joined([part.log_likelihood(values[cells]) for cells, part in self.parts])

    @property
    def _size(self) -> int:
        return sum(len(cells) for cells, _ in self.parts)

    def _joined(self, columns: list[Tensor]) -> Tensor:
        """Put what each part gives for its cells in their places."""
        result = columns[0].new_empty(self._size, *columns[0].shape[1:])
        for (cells, _), column in zip(self.parts, columns, strict=True):
            result[cells] = column
        return result
