"""Suggestions: the unobserved cells of a matrix that are worth measuring next, as a batch.

Factors, with the covariances of their posterior, tell how far measuring a cell lowers the variance
of the others in its row and column. The model that predicts tells how uncertain each cell is: by
so much deviations of the factors are stretched at that cell. A batch is chosen cell by cell, as if
those before had been measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
import torch
from torch import Tensor

from exchangeable.arrays.cells import Floats, Index, Mask
from exchangeable.baselines.design import (
    Design,
    Exceedance,
    Members,
    VarianceReduction,
    choose_cells,
    sum_over_unobserved,
)
from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.variational import FittedFactors, VariationalFactorization
from exchangeable.completion.fit import Fitted
from exchangeable.completion.inputs import check_number, encode_queries
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.predictors.base import (
    COVERAGE,
    MEAN,
    Statistic,
    interval_ends,
    read_predictions,
)
from exchangeable.predictors.baseline import BaselinePredictor
from exchangeable.predictors.model import ModelPredictor
from exchangeable.predictors.units import UnitsPredictor, in_units
from exchangeable.runtime.phrases import did_you_mean
from exchangeable.values.distributions import Distribution

Goal = Literal["error", "best"]

MAX_COMPARED = 25_000_000
"""Most cells of the rows and columns that are compared: their arrays take about 0.6 GB."""
MAX_READ = 2_000_000
"""Most cells that the model predicts to compare them. In larger tables the factors alone tell how
uncertain cells are; reading 1.5 million cells takes 15 s on one core."""
TOP_SHARE = 0.01
"""The goal ``best`` looks for cells as high as this share of those observed. On Davis 5 % found
.68 of the highest cells where 1 % found .71, and 0.1 % .62."""
MIN_STRETCH = 1e-9
"""Smallest factor that deviations are stretched by: noise is divided by it."""
REASONS: dict[Goal, str] = {"error": "gain", "best": "chance"}
"""Columns that say why a cell was chosen."""


@dataclass(frozen=True, eq=False)
class Suggestions:
    """Cells in the sequence in which they were chosen."""

    goal: Goal
    cells: Index  # (n, 2)
    scores: Floats  # (n,)
    mean: Floats  # (n,)
    low: Floats  # (n,)
    high: Floats  # (n,)

    def columns(self, table: Table) -> dict[str, pl.Series]:
        """Return labels, predictions with 80 % intervals, and the reason, as columns."""
        labels = {
            axis: table.vocabularies[number].decode(self.cells[:, number])
            for number, axis in enumerate(table.axes)
        }
        reason = REASONS[self.goal]
        names = table.prediction_columns([reason])
        reason = reason if reason not in (*table.axes, names[0]) else f"expected {reason}"
        figures = zip((*names, reason), (self.mean, self.low, self.high, self.scores), strict=True)
        return labels | {name: pl.Series(name, column) for name, column in figures}


def suggest(fitted: Fitted, n: int = 10, goal: Goal = "error", among: Any = None) -> Suggestions:
    """Choose ``n`` unobserved cells of a matrix, or of those ``among`` them, to measure next."""
    check_number(n)
    check_goal(goal)
    check_matrix(fitted.table)
    candidates = CandidateCells.of(fitted.table, among)
    choose = _lower_error if goal == "error" else _find_best
    cells, scores = choose(_in_read_units(fitted), candidates, n)
    statistics = MEAN, *interval_ends(COVERAGE)
    mean, low, high = read_predictions(fitted.predictor, cells, *statistics)
    return Suggestions(goal, cells, scores, mean, low, high)


def _in_read_units(fitted: Fitted) -> Fitted:
    """Return the table in the units that its values are read in, where variances compare."""
    predictor = fitted.predictor
    if not isinstance(predictor, UnitsPredictor):
        return fitted
    cells = in_units(predictor.units, fitted.cells)
    return replace(fitted, cells=cells, predictor=predictor.inner)


def check_goal(goal: Any) -> Goal:
    """Return a goal, or raise if there is none of this name."""
    for known in get_args(Goal):
        if goal == known:
            return known
    raise InputError(
        f"goal must be one of {', '.join(get_args(Goal))}, but is {goal!r}"
        f"{did_you_mean(str(goal), get_args(Goal))}"
    )


def check_matrix(table: Table) -> None:
    """Raise unless a table has two axes and values."""
    if table.order != 2 or table.scale.kind == "positives":
        axes = "1 axis" if table.order == 1 else f"{table.order} axes"
        raise InputError(
            f"suggest needs a table of 2 axes with values, but this one has {axes} and "
            f"{table.scale}"
        )


@dataclass(frozen=True, eq=False)
class CandidateCells:
    """Cells that may be chosen, within the rows and columns that have any."""

    rows: Index  # (R,)
    columns: Index  # (C,)
    allowed: Mask  # (R, C)

    @classmethod
    def of(cls, table: Table, among: Any) -> CandidateCells:
        """Take all unobserved cells of a table, or those ``among`` given ones."""
        observed = table.index[table.is_observed]
        if among is None:
            rows, columns = (np.arange(size) for size in table.shape)
            _check_compared(len(rows), len(columns))
            allowed = np.ones(table.shape, dtype=np.bool_)
            allowed[observed[:, 0], observed[:, 1]] = False
            if table.leaves_out_diagonal:
                np.fill_diagonal(allowed, False)
            return cls(rows, columns, allowed)
        index = encode_queries(table, among, known=True)
        (rows, row), (columns, column) = (np.unique(c, return_inverse=True) for c in index.T)
        _check_compared(len(rows), len(columns))
        allowed = np.zeros((len(rows), len(columns)), dtype=np.bool_)
        allowed[row, column] = True
        within = np.isin(observed[:, 0], rows) & np.isin(observed[:, 1], columns)
        seen = observed[within]
        places = np.searchsorted(rows, seen[:, 0]), np.searchsorted(columns, seen[:, 1])
        allowed[places] = False
        return cls(rows, columns, allowed)

    @property
    def cells(self) -> Index:
        """The cells that may be chosen, as numbers in the table: (Q, 2)."""
        row, column = np.nonzero(self.allowed)
        return np.stack([self.rows[row], self.columns[column]], axis=1)

    def in_table(self, places: Index) -> Index:
        """Return the numbers in the table of cells (n, 2) among these rows and columns."""
        return np.stack([self.rows[places[:, 0]], self.columns[places[:, 1]]], axis=1)


def _check_compared(rows: int, columns: int) -> None:
    if rows * columns > MAX_COMPARED:
        raise InputError(
            f"at most {MAX_COMPARED:,} cells can be compared, but {rows:,} rows and {columns:,} "
            f"columns have {rows * columns:,}; choose some with among"
        )


def _lower_error(fitted: Fitted, candidates: CandidateCells, n: int) -> tuple[Index, Floats]:
    """Choose cells that lower the summed variance of all unobserved cells the most."""
    posterior, unit = _posterior_of(fitted)
    rows, columns = (np.arange(size) for size in fitted.table.shape)
    by_row, by_column = (
        Members.of(posterior, axis, each).second_moments()
        for axis, each in enumerate((rows, columns))
    )
    observed, shape = fitted.table.index[fitted.table.is_observed], (len(rows), len(columns))
    kept = candidates.rows, candidates.columns
    if len(rows) * len(columns) > MAX_READ:
        sums = (
            sum_over_unobserved(observed, shape, by_column),
            sum_over_unobserved(observed[:, ::-1], shape[::-1], by_row),
        )
        design = _design_of(posterior, *kept)
    else:
        unobserved = np.ones(shape, dtype=np.bool_)
        unobserved[observed[:, 0], observed[:, 1]] = False
        stretch = _find_stretch(fitted, unobserved, _design_of(posterior, rows, columns), unit)
        weights = np.where(unobserved, stretch**2, 0.0)
        sums = weights @ by_column, weights.T @ by_row
        stretched = stretch[np.ix_(*kept)] if _is_linked(fitted) else 1.0
        design = _design_of(posterior, *kept, stretched)
    score = VarianceReduction(design, sums[0][kept[0]], sums[1][kept[1]])
    places, gains = choose_cells(design, score, candidates.allowed, n)
    return candidates.in_table(places), unit**2 * gains


def _find_stretch(fitted: Fitted, unobserved: Mask, design: Design, unit: float) -> Floats:
    """Return by how much deviations of the factors are stretched at each cell: (N, M).

    It makes the variance s of the factors, noise included, the variance v that the model predicts.
    Noise is stretched like everything else, d^2 s = v. But where values are 0 or 1 it follows from
    the mean: the variance p (1 - p) is also the slope of p by its log odds, so that
    d noise + d^2 (s - noise) = v. Observed cells have 1.
    """
    stretch = np.ones(unobserved.shape)
    row, column = np.nonzero(unobserved)
    index = np.stack([row, column], axis=1)
    (predicted,) = read_predictions(fitted.predictor, index, _variance(fitted))
    predicted = predicted / unit**2
    of_factors, of_noise = design.variance[unobserved], design.noise[unobserved]
    if _is_linked(fitted):
        known = of_factors - of_noise
        root = np.sqrt(of_noise**2 + 4 * known * predicted)
        stretch[unobserved] = 2 * predicted / (of_noise + root)
    else:
        stretch[unobserved] = np.sqrt(predicted / of_factors)
    return stretch.clip(min=MIN_STRETCH)


def _is_linked(fitted: Fitted) -> bool:
    """Whether the noise of cells follows from their means."""
    return fitted.table.scale.kind == "binary"


def _find_best(fitted: Fitted, candidates: CandidateCells, n: int) -> tuple[Index, Floats]:
    """Choose cells that are likely to be among the highest."""
    index = candidates.cells
    if len(index) > MAX_READ:
        raise InputError(
            f"goal 'best' compares at most {MAX_READ:,} cells, but there are {len(index):,}; "
            f"choose some with among"
        )
    design = _design_of(_posterior_of(fitted)[0], candidates.rows, candidates.columns)
    chances = np.zeros(candidates.allowed.shape)
    threshold = float(np.quantile(fitted.cells.values, 1 - TOP_SHARE))
    (reading,) = read_predictions(fitted.predictor, index, _chance_of(fitted, threshold))
    chances[candidates.allowed] = reading
    places, scores = choose_cells(design, Exceedance(design, chances), candidates.allowed, n)
    return candidates.in_table(places), scores


def _posterior_of(fitted: Fitted) -> tuple[Posterior, float]:
    """Return factors of the table with their covariances, and their unit of values.

    They are those that the predictor has; where it has none, factors are fitted.
    """
    predictor = fitted.predictor
    if isinstance(predictor, ModelPredictor) and predictor.prior is not None:
        return predictor.prior.fitted.fine, float(predictor.stats.deviation)
    if isinstance(predictor, BaselinePredictor) and isinstance(predictor.fitted, FittedFactors):
        factors = predictor.fitted
    else:
        factors = VariationalFactorization().fit(fitted.cells)
    return factors.posterior, factors.scale or 1.0  # of equal values it is 0


def _design_of(
    posterior: Posterior, rows: Index, columns: Index, stretch: Floats | float = 1.0
) -> Design:
    """Return the design of some rows and columns, with their noise divided by ``stretch``."""
    noise = np.full((len(rows), len(columns)), posterior.noise)
    if posterior.noise_ratios:
        by_row, by_column = (ratios.cpu().numpy() for ratios in posterior.noise_ratios)
        noise *= by_row[rows, None] * by_column[columns]
    members = Members.of(posterior, 0, rows), Members.of(posterior, 1, columns)
    return Design(*members, noise / stretch)


def _variance(fitted: Fitted) -> Statistic:
    """Variances of predictions: of levels by their probabilities, or by the interval of 80 %."""
    levels = torch.tensor(fitted.cells.scale.levels, dtype=torch.float64)
    if len(levels):

        def of_levels(distribution: Distribution) -> Tensor:
            shares = distribution.probabilities().double()
            return shares @ levels.square() - (shares @ levels).square()

        return of_levels
    low, high = interval_ends(COVERAGE)
    width = 2 * float(torch.special.ndtri(torch.tensor((1 + COVERAGE) / 2)))
    return lambda distribution: ((high(distribution) - low(distribution)) / width).square()


def _chance_of(fitted: Fitted, threshold: float) -> Statistic:
    """Chances that cells are at least as high as a threshold."""
    levels = torch.tensor(fitted.cells.scale.levels, dtype=torch.float64)
    if len(levels):
        reached = (levels >= threshold).double()
        return lambda distribution: distribution.probabilities().double() @ reached

    def of_numbers(distribution: Distribution) -> Tensor:
        at = torch.full_like(distribution.mean(), threshold)
        return 1 - distribution.rank(at)

    return of_numbers
