"""One run of a method of this package: python -m benchmarks.arena.ours METHOD FOLDER BUDGET.

The folder has the problem and, in a file that is opened when all is fitted, the truth. A line of
JSON is printed, and the answers are written beside the problem.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from benchmarks.arena.problem import Floats, Index, Mask, Problem
from benchmarks.arena.rasch import Rasch
from benchmarks.arena.search import Choice, Settings, choose, validation_error
from benchmarks.peers.harness import peak

from exchangeable import Completer
from exchangeable._version import __version__
from exchangeable.arrays.cells import Cells
from exchangeable.baselines import gaussian
from exchangeable.baselines.base import Baseline
from exchangeable.baselines.gaussian import Gaussian
from exchangeable.baselines.gibbs import BayesianFactorization
from exchangeable.baselines.means import MemberMean
from exchangeable.baselines.neighbours import Neighbours
from exchangeable.baselines.variational import Bias, VariationalFactorization
from exchangeable.data.table import Table
from exchangeable.predictors.base import Predictor, interval_ends, score_predictions
from exchangeable.predictors.baseline import BaselinePredictor
from exchangeable.predictors.ranking import RankingPredictor
from exchangeable.predictors.units import UnitsPredictor, find_units, in_units
from exchangeable.values.scale import Kind, Scale
from exchangeable.values.units import Units

RANKS = (12, 4, 2, 8, 1, 24, 40)
"""Ranks of factorizations, the usual one first."""
PRODUCTS = (16, 32, 64, 8)
"""Products over all axes, which the variational factorization of three axes may have instead."""
Fit = Callable[[Settings, Cells], Predictor]
PLACES = 20
"""Length of the lists of items."""


def scale_of(problem: Problem) -> Scale:
    kinds: dict[str, Kind] = {
        kind: kind
        for kind in ("levels", "real", "binary", "positives")  # type: ignore[misc]
    }
    return Scale(kinds[problem.kind], tuple(problem.levels.tolist()))


def cells_of(problem: Problem, read: Mask | slice = slice(None)) -> Cells:
    """The cells that may be read, or some of them."""
    return Cells(problem.index[read], problem.values[read], problem.shape, scale_of(problem))


def table_of(problem: Problem) -> Table:
    """A table of all members, named by their numbers."""
    labels = {f"axis {axis}": pl.Series(np.arange(n)) for axis, n in enumerate(problem.shape)}
    return Table.of_cells(labels, problem.index, problem.values, scale=scale_of(problem))


def frames_of(problem: Problem) -> dict[str, pl.DataFrame] | None:
    """Features as frames; a square block is of similarities, whose columns are the members."""
    frames = {}
    for axis, block in problem.features.items():
        square = block.shape[0] == block.shape[1]
        names = [str(n) if square else f"feature {n}" for n in range(block.shape[1])]
        columns = dict(zip(names, block.T, strict=True))
        frames[f"axis {axis}"] = pl.DataFrame({f"axis {axis}": np.arange(len(block)), **columns})
    return frames or None


def fit_completer(name: str, problem: Problem) -> tuple[Predictor, list[str]]:
    """Fit the estimator as it comes, which chooses for itself, on all cells that may be read."""
    completer = Completer("pretrained" if name == "finetuned" else name, device="cpu")
    completer.fit_table(table_of(problem), features=frames_of(problem))
    if name == "finetuned":
        completer.finetune()
    assert completer.table_.shape == problem.shape
    return completer.predictor_, list(completer.notes_)


def with_units(baseline: Baseline, name: str, cells: Cells) -> Predictor:
    """Fit a baseline to values in the units that suit them, as ``Completer`` does."""
    units = find_units(None, cells) if cells.scale.kind == "real" else Units()
    read = in_units(units, cells)
    predictor = BaselinePredictor(name, baseline, baseline.fit(read), cells.scale)
    if units.changes_nothing:
        return predictor
    return UnitsPredictor.of(units, False, cells, predictor)


def fit_plain(name: str, baseline: Baseline, cells: Cells) -> Predictor:
    return BaselinePredictor(name, baseline, baseline.fit(cells), cells.scale)


class RaschPredictor:
    """The Rasch model as the answers of a run."""

    def __init__(self, settings: Settings, cells: Cells) -> None:
        self.model = Rasch.fit(cells.index, cells.values, cells.shape, settings["deviation"])

    def means(self, index: Index) -> Floats:
        return self.model.predict(index)


def fit_gaussian(settings: Settings, cells: Cells) -> Predictor:
    if not gaussian.suits(cells):
        raise ValueError("a Gaussian needs a dense table of few variables")
    return with_units(Gaussian(), "gaussian", cells)


TUNED: dict[str, tuple[Sequence[Settings], Callable[[Settings, Cells], Any]]] = {
    "means": (
        [{"axis": axis} for axis in (None, 0, -1)],
        lambda s, cells: fit_plain("mean", MemberMean(**s), cells),
    ),
    "bias": ([{}], lambda s, cells: with_units(Bias(), "bias", cells)),
    "vmf": (
        [{"rank": rank} for rank in RANKS],
        lambda s, cells: with_units(VariationalFactorization(**s), "vmf", cells),
    ),
    "bmf": (
        [{"rank": rank} for rank in RANKS],
        lambda s, cells: with_units(BayesianFactorization(**s), "bmf", cells),
    ),
    "gaussian": ([{}], fit_gaussian),
    "neighbours": (
        [{"axis": axis, "by": by} for by in ("values", "presence") for axis in (-1, 0)],
        lambda s, cells: with_units(Neighbours(**s), "knn", cells),
    ),
    "rasch": ([{"deviation": d} for d in (1.0, 0.5, 2.0, 0.25, 4.0)], RaschPredictor),
}


def fit_tuned(name: str, problem: Problem, budget: float) -> tuple[Any, Choice]:
    """Choose settings on the validation cells, then fit to all cells that may be read."""
    grid, fit = TUNED[name]
    if name == "vmf" and problem.order == 3:
        grid = [*grid[:1], *({"rank": 0, "products": count} for count in PRODUCTS), *grid[1:]]

    def error(settings: Settings) -> float:
        return validation_error(
            problem, lambda read, index: means_of(fit(settings, cells_of(problem, read)), index)
        )

    choice = choose(grid, error, budget)
    return fit(choice.settings, cells_of(problem)), choice


def means_of(predictor: Any, index: Index) -> Floats:
    if isinstance(predictor, RaschPredictor):
        return predictor.means(index)
    (means,) = score_predictions(
        predictor, index, np.zeros(len(index)), lambda distribution, _: distribution.mean()
    )
    return means


def answer(predictor: Any, problem: Problem, truth: Callable[[], Floats]) -> dict[str, Floats]:
    """Answer the queries; the truth is read for the probability that it was given."""
    if isinstance(predictor, RaschPredictor):
        return {"means": predictor.means(problem.queries)}
    if isinstance(predictor, RankingPredictor):
        users = np.unique(problem.queries[:, 0])
        items = np.arange(problem.shape[1])
        return {"lists": np.concatenate([top for top, _ in predictor.best(users, PLACES, items)])}
    low_end, high_end = interval_ends(0.8)
    means, low, high, densities = score_predictions(
        predictor,
        problem.queries,
        truth(),
        lambda distribution, _: distribution.mean(),
        lambda distribution, _: low_end(distribution),
        lambda distribution, _: high_end(distribution),
        lambda distribution, values: distribution.log_likelihood(values),
    )
    return {"means": means, "low": low, "high": high, "log_likelihoods": densities}


def run(method: str, folder: Path, budget: float) -> dict[str, Any]:
    problem = Problem.read(folder / "problem.npz")
    before = peak()
    started = time.perf_counter()
    facts: dict[str, Any] = {"version": __version__, "torch": torch.__version__}
    if method in TUNED:
        predictor, choice = fit_tuned(method, problem, budget)
        facts |= {
            "settings": choice.settings,
            "validation_rmse": choice.error,
            "tried": choice.tried,
            "of": choice.of,
            "search_s": choice.seconds,
        }
        fitted = time.perf_counter()
        facts["fit_s"] = fitted - started - choice.seconds
    else:
        predictor, notes = fit_completer(method, problem)
        fitted = time.perf_counter()
        facts |= {"settings": {}, "notes": notes, "fit_s": fitted - started}
    answers = answer(predictor, problem, lambda: np.load(folder / "truth.npy"))
    facts |= {"predict_s": time.perf_counter() - fitted, "before_mb": before, "peak_mb": peak()}
    np.savez(folder / "answers.npz", **answers)
    return facts


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))), flush=True)
