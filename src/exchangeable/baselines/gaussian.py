"""Rows as draws from one normal distribution, whose mean and covariance are found by EM.

For tables with few columns and many rows, such as measurements of specimens or answers to a
questionnaire: every column is regressed on all others that a row has (Dempster et al. 1977). The
side with fewer members holds the variables, whichever axis that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.baselines.base import State, check_cells, check_queries
from exchangeable.errors import InputError
from exchangeable.runtime.progress import SILENT, Progress

MAX_VARIABLES = 128
MIN_DENSITY = 0.2
"""Share of cells that must be observed for the distribution to be tried by itself."""
_ENTRIES_PER_CHUNK = 2**22
_TINY = 1e-9
_SMALLEST = 1e-300
_ROUNDING = 1e-12


def suits(cells: Cells) -> bool:
    """Whether a table has few variables, several times as many rows, and most of their cells."""
    if cells.order != 2:
        return False
    variables, rows = sorted(cells.shape)
    dense = len(cells) >= MIN_DENSITY * variables * rows
    return dense and 2 <= variables <= MAX_VARIABLES and rows >= 4 * variables


@dataclass(frozen=True, eq=False)
class FittedGaussian:
    """Mean and variance of every cell given the other cells of its row.

    The last row is that of a member without cells, the last column of a variable without any.
    """

    config: Gaussian
    shape: tuple[int, ...]
    means: Floats  # (N + 1, K + 1)
    variances: Floats  # (N + 1, K + 1)
    centre: Floats  # (K,), of the variables
    scale: Floats  # (K,), their units
    covariance: Floats  # (K, K), of variables in these units
    counts: Floats  # (K,), cells of the variables

    def predict(self, index: Index) -> tuple[Floats, Floats]:
        check_queries(index, self.shape)
        row, variable = index.T if _row_axis(self.shape) == 0 else index.T[::-1]
        return self.means[row, variable], self.variances[row, variable]

    def updated(self, cells: Cells, changed: Index) -> FittedGaussian:
        """Condition the rows of changed cells on them; the distribution stays."""
        axis = _row_axis(self.shape)
        rows, variables = cells.shape[axis], len(self.centre)
        # Of a variable without cells, or with equal ones, the distribution says nothing.
        vague = (self.counts == 0) | (self.scale == 0)
        if (
            cells.shape[1 - axis] != variables
            or rows < variables
            or vague[cells.index[changed, 1 - axis]].any()
        ):
            return self.config.fit(cells)
        new = np.union1d(cells.index[changed, axis], np.arange(self.shape[axis], rows))
        own = cells.take(np.isin(cells.index[:, axis], new))
        values, observed = torch.zeros(2, len(new), variables, dtype=torch.float64)
        places = np.searchsorted(new, own.index[:, axis]), own.index[:, 1 - axis]
        centre, scale, covariance = (
            torch.from_numpy(each) for each in (self.centre, self.scale, self.covariance)
        )
        standard = (own.values - self.centre[places[1]]) / np.maximum(
            self.scale[places[1]], _SMALLEST
        )
        values[places], observed[places] = torch.from_numpy(standard), 1.0
        found = _given_others(values, observed.bool(), covariance)
        means, variances = (
            np.insert(each, [len(each) - 1] * (rows - self.shape[axis]), each[-1], axis=0)
            for each in (self.means, self.variances)
        )
        inside = np.ix_(new, np.flatnonzero(self.counts))
        means[inside] = (centre + scale * found[0])[:, self.counts > 0]
        variances[inside] = (scale.square() * found[1])[:, self.counts > 0]
        return replace(self, shape=cells.shape, means=means, variances=variances)

    def state(self) -> State:
        return {"shape": np.array(self.shape)} | {name: getattr(self, name) for name in _STORED}

    @classmethod
    def from_state(cls, config: Gaussian, state: Mapping[str, NDArray[Any]]) -> Self:
        arrays = {name: state[name] for name in _STORED}
        return cls(config, tuple(state["shape"].tolist()), **arrays)


@dataclass(frozen=True)
class Gaussian:
    """One normal distribution of all rows."""

    rounds: int = 60
    tolerance: float = 1e-3
    """Largest change of a covariance of standardised variables at which rounds end."""
    prior_rows: float = 3.0
    """Rows with uncorrelated variables that are added to those of the table."""

    kind: ClassVar[type[FittedGaussian]] = FittedGaussian

    def fit(self, cells: Cells, progress: Progress = SILENT) -> FittedGaussian:
        check_cells("gaussian", cells)
        if cells.order != 2 or min(cells.shape) > MAX_VARIABLES:
            raise InputError(
                f"gaussian needs two axes, one of them with at most {MAX_VARIABLES} members, but "
                f"the shape is {cells.shape}"
            )
        row, variable = cells.index.T if _row_axis(cells.shape) == 0 else cells.index.T[::-1]
        size = (max(cells.shape), min(cells.shape))
        origin = float(cells.values[0])  # differences are exact where all values are equal
        values = torch.zeros(size, dtype=torch.float64)
        observed = torch.zeros(size, dtype=torch.bool)
        values[row, variable] = torch.from_numpy(cells.values - origin)
        observed[row, variable] = True
        centre, scale = _units(values, observed)
        z = torch.where(observed, (values - centre) / scale.clamp(min=_SMALLEST), 0.0)
        middle, covariance = self._estimate(z, observed, progress)
        centre = centre + scale * middle
        means, variances = _given_others(
            torch.where(observed, z - middle, 0.0), observed, covariance
        )
        progress.at(1.0, "predicting all cells from the others")
        square = scale.square()
        some = observed.any(dim=0)
        usual = centre[some].mean()
        away = (square + (centre - usual).square())[some].mean()
        frame = partial(_framed, with_cells=(observed.any(dim=1), some))
        return FittedGaussian(
            self,
            cells.shape,
            origin + frame(centre + scale * means, centre, usual),
            frame(square * variances, square * covariance.diagonal(), away),
            (origin + centre).numpy(),
            scale.numpy(),
            covariance.numpy(),
            observed.sum(dim=0).double().numpy(),
        )

    def _estimate(self, z: Tensor, observed: Tensor, progress: Progress) -> tuple[Tensor, Tensor]:
        """Find means (K,) and covariance (K, K) of standardised variables."""
        rows, variables = z.shape
        middle, start = z.new_zeros(variables), torch.eye(variables, dtype=z.dtype)
        covariance, prior = start, self.prior_rows * start
        for number in range(self.rounds):
            progress.at(number / self.rounds, f"covariance of {variables} variables")
            filled = torch.where(observed, z - middle, 0.0)
            known = torch.zeros_like(start)
            for some, inverse in _inverses(observed, covariance):
                weights = (inverse @ filled[some][:, :, None]).squeeze(2)
                filled[some] = torch.where(observed[some], filled[some], weights @ covariance)
                known += inverse.sum(dim=0)
            moved = filled.mean(dim=0)
            middle, filled = middle + moved, filled - moved
            # What the observed variables leave of each row's covariance is added to its products.
            left = rows * covariance - covariance @ known @ covariance
            before = covariance
            covariance = (filled.T @ filled + left + prior) / (rows + self.prior_rows)
            if float((covariance - before).abs().max()) < self.tolerance:
                break
        return middle, covariance


_STORED = ("means", "variances", "centre", "scale", "covariance", "counts")


def _row_axis(shape: tuple[int, ...]) -> int:
    """Return the axis whose members are rows: the one with more of them."""
    return 0 if shape[1] <= shape[0] else 1


def _units(values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and deviations of the variables: (K,) each, 0 for one without cells."""
    count = observed.sum(dim=0).clamp(min=1)
    centre = values.sum(dim=0) / count
    square = torch.where(observed, values - centre, 0.0).square().sum(dim=0)
    variance = square / count
    rounding = (_ROUNDING * values.abs().amax(dim=0)).square()
    variance = torch.where(variance > rounding, variance, 0.0)
    # A variable with equal values gets one more cell, as far away as in the steadiest other one.
    steadiest = variance[variance > 0].min() if bool((variance > 0).any()) else variance[0]
    return centre, torch.where(variance > 0, variance, steadiest / (count + 1)).sqrt()


def _inverses(observed: Tensor, covariance: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Invert the covariance of each row's observed variables: (B, K, K), 0 elsewhere."""
    size = max(1, _ENTRIES_PER_CHUNK // covariance.numel())
    for start in range(0, len(observed), size):
        some = slice(start, start + size)
        inside = observed[some, :, None] & observed[some, None, :]
        own = torch.where(inside, covariance, 0.0)
        own.diagonal(dim1=1, dim2=2).add_((~observed[some]).to(own))
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(own))
        yield some, torch.where(inside, inverse, 0.0)


def _given_others(z: Tensor, observed: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of every cell given the others of its row: (N, K) each."""
    means, variances = torch.empty_like(z), torch.empty_like(z)
    for some, inverse in _inverses(observed, covariance):
        weights = (inverse @ z[some][:, :, None]).squeeze(2)
        own = inverse.diagonal(dim1=1, dim2=2).clamp(min=_TINY)
        explained = torch.einsum("ij,bjk,ki->bi", covariance, inverse, covariance)
        has = observed[some]
        # An observed cell is left out of its own row, which its part of the inverse tells.
        means[some] = torch.where(has, z[some] - weights / own, weights @ covariance)
        variances[some] = torch.where(has, 1 / own, covariance.diagonal() - explained)
    return means, variances.clamp(min=_TINY)


def _framed(
    cells: Tensor, of_variables: Tensor, usual: Tensor, with_cells: tuple[Tensor, Tensor]
) -> Floats:
    """Add a row for unknown members, and a column for unknown variables, which are usual ones.

    Members and variables without cells are like them.
    """
    rows, variables = with_cells
    framed = usual.expand(len(cells) + 1, cells.shape[1] + 1).clone()
    framed[:-1, :-1] = torch.where(rows[:, None], cells, of_variables)
    framed[-1, :-1] = of_variables
    framed[:, :-1][:, ~variables] = usual
    return framed.numpy()
