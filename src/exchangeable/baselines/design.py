"""Experimental design: which cells of a matrix say most about the others, under a posterior.

A cell is y = mu + e . z + f . w up to a product of deviations, with w the vector of its row, z that
of its column, f = [1, u_column] and e = [1, u_row]. Were it measured, with the variance s of the
measurement, the covariances S of w and T of z would become

    S - S f f' S / s,   T - T e e' T / s,   s = f' S f + e' T e + tr(S T) + noise

whatever its value: so a batch is chosen before any of it is known, each cell given those before.
Unlike the variational update this counts the uncertainty of the other side, and a cell of two
members that are both unknown teaches little of either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse
from scipy.special import ndtr, ndtri

from exchangeable.arrays.cells import Floats, Index, Mask
from exchangeable.baselines.posterior import Posterior

TIE = 1e-9
"""Scores that differ by less of themselves are equal; the first cell of them is chosen."""
MIN_CHANCE = 1e-9
"""Chances nearer to 0 or 1 are taken for this one, so that their normal quantiles are finite."""


@dataclass(frozen=True, eq=False)
class Members:
    """What other axes' vectors are multiplied with, [1, u], and the covariances of [b, u]."""

    features: Floats  # (N, F)
    covariances: Floats  # (N, F, F)

    @classmethod
    def of(cls, posterior: Posterior, axis: int, members: Index) -> Members:
        """Copy some members of an axis of a posterior of order 2."""
        features = posterior.means[axis].cpu().numpy()[members]
        features[:, 0] = 1.0
        return cls(features, posterior.covariances[axis].cpu().numpy()[members])

    @property
    def width(self) -> int:
        return self.features.shape[1]

    def squares(self) -> Floats:
        """Return f f' of each member, with all entries in a row: (N, F F)."""
        f = self.features
        return (f[:, :, None] * f[:, None]).reshape(len(f), self.width**2)

    def second_moments(self, members: Index | slice = slice(None)) -> Floats:
        """Return E[f f'] of members, with all entries in a row: (M, F F)."""
        f = self.features[members]
        second = f[:, :, None] * f[:, None]
        second[:, 1:, 1:] += self.covariances[members][:, 1:, 1:]  # the 1 of [1, u] is certain
        return second.reshape(len(f), self.width**2)

    def flat_covariances(self) -> Floats:
        """Return the covariances with all entries in a row, (N, F F), without a copy."""
        return self.covariances.reshape(len(self.covariances), self.width**2)


class Design:
    """Variances of the cells of a matrix, as more and more of them are measured."""

    def __init__(self, rows: Members, columns: Members, noise: Floats) -> None:
        """Start from posterior covariances, which change in place; ``noise`` (R, C) is by cell."""
        self.rows, self.columns, self.noise = rows, columns, noise
        self.squares = rows.squares(), columns.squares()
        self.variance = noise + rows.flat_covariances() @ columns.second_moments().T  # (R, C)
        self.variance += self.squares[0] @ columns.flat_covariances().T

    def measure(self, row: int, column: int) -> None:
        """Change the covariances as if a cell were measured, and the variances of its lines."""
        rows, columns, variance = self.rows, self.columns, self.variance[row, column]
        towards_row = rows.covariances[row] @ columns.features[column]
        towards_column = columns.covariances[column] @ rows.features[row]
        rows.covariances[row] -= np.outer(towards_row, towards_row) / variance
        columns.covariances[column] -= np.outer(towards_column, towards_column) / variance
        self.variance[row] = (
            self.noise[row]
            + columns.second_moments() @ rows.covariances[row].ravel()
            + columns.flat_covariances() @ self.squares[0][row]
        )
        self.variance[:, column] = (
            self.noise[:, column]
            + rows.second_moments() @ columns.covariances[column].ravel()
            + rows.flat_covariances() @ self.squares[1][column]
        )


class Score(Protocol):
    """What cells are chosen by; it follows what a design has measured."""

    def all(self) -> Floats:
        """Return the score of each cell: (R, C)."""
        ...

    def lines(self, row: int, column: int) -> tuple[Floats, Floats]:
        """Return the scores of a row (C,) and a column (R,), one cell of which was measured."""
        ...


class VarianceReduction:
    """How far measuring a cell lowers the summed variance of target cells in its row and column.

    It is (f' A f + e' B e) / s with A = S (sum E[f f']) S over the targets of the row, and B
    likewise over those of the column.
    """

    def __init__(self, design: Design, by_row: Floats, by_column: Floats) -> None:
        """Take sums of E[f f'] over the targets of rows (R, F F) and of columns (C, F F)."""
        self.design = design
        width = design.rows.width
        self.targets = tuple(each.reshape(len(each), width, width) for each in (by_row, by_column))
        self.falls = tuple(
            _sandwiched(members.covariances, targets)
            for members, targets in zip((design.rows, design.columns), self.targets, strict=True)
        )  # A (R, F F) and B (C, F F)

    def all(self) -> Floats:
        (of_rows, of_columns), (rows, columns) = self.falls, self.design.squares
        reduction: Floats = of_rows @ columns.T
        reduction += rows @ of_columns.T
        reduction /= self.design.variance
        return reduction

    def lines(self, row: int, column: int) -> tuple[Floats, Floats]:
        design, (of_rows, of_columns) = self.design, self.falls
        for members, targets, falls, at in zip(
            (design.rows, design.columns), self.targets, self.falls, (row, column), strict=True
        ):
            one = slice(at, at + 1)
            falls[one] = _sandwiched(members.covariances[one], targets[one])
        rows, columns = design.squares
        along_row = columns @ of_rows[row] + of_columns @ rows[row]
        along_column = rows @ of_columns[column] + of_rows @ columns[column]
        return along_row / design.variance[row], along_column / design.variance[:, column]


class Exceedance:
    """The chance that a cell is at least as high as a threshold, given what was measured.

    Measured cells narrow the distributions of others in their row and column about the same means,
    so that a batch does not list a member again and again because it is uncertain. Narrowing makes
    what is likely likelier, too, but that does not count: else a batch would gather there.
    """

    def __init__(self, design: Design, chances: Floats) -> None:
        """Start from predicted chances (R, C)."""
        self.design, self.before = design, design.variance.copy()
        self.quantiles = ndtri(chances.clip(MIN_CHANCE, 1 - MIN_CHANCE))

    def all(self) -> Floats:
        chances: Floats = ndtr(self.quantiles)
        return chances

    def lines(self, row: int, column: int) -> tuple[Floats, Floats]:
        return self._along(np.s_[row, :]), self._along(np.s_[:, column])

    def _along(self, line: tuple[int | slice, int | slice]) -> Floats:
        narrowed = self.quantiles[line] * np.sqrt(self.before[line] / self.design.variance[line])
        chances: Floats = ndtr(np.minimum(narrowed, self.quantiles[line]))
        return chances


def choose_cells(design: Design, score: Score, allowed: Mask, n: int) -> tuple[Index, Floats]:
    """Choose ``n`` of the ``allowed`` cells (R, C) one after the other: (n, 2), and their scores.

    Each has the highest score, given that those before it are measured. Fewer come where fewer
    are allowed.
    """
    allowed, scores = allowed.copy(), score.all()
    scores[~allowed] = -np.inf
    n = min(n, int(allowed.sum()))
    cells, chosen = np.empty((n, 2), dtype=np.int64), np.empty(n)
    for number in range(n):
        best = scores.max()
        place = int((scores >= best - TIE * abs(best)).argmax())
        row, column = divmod(place, scores.shape[1])
        cells[number], chosen[number] = (row, column), scores[row, column]
        allowed[row, column] = False
        design.measure(row, column)
        along_row, along_column = score.lines(row, column)
        scores[row] = np.where(allowed[row], along_row, -np.inf)
        scores[:, column] = np.where(allowed[:, column], along_column, -np.inf)
    return cells, chosen


def sum_over_unobserved(observed: Index, shape: tuple[int, int], tables: Floats) -> Floats:
    """Sum rows of a table (M, K) over the unobserved cells of each row of a matrix: (N, K)."""
    ones = np.ones(len(observed))
    matrix = sparse.csr_array((ones, (observed[:, 0], observed[:, 1])), shape=shape)
    total: Floats = tables.sum(axis=0) - matrix @ tables
    return total


def _sandwiched(covariances: Floats, targets: Floats) -> Floats:
    """Return S G S of each member, with all entries in a row: (N, F F)."""
    return (covariances @ targets @ covariances).reshape(len(targets), targets.shape[1] ** 2)
