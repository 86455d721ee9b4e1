"""Choose the model for ``model="auto"``: compare candidates on cells that were held out.

The pretrained model holds cells out to find the trust in its closed-form estimates, and keeps what
it is without them. The other candidates are fitted to the same remaining cells. So the error is
estimated before any truth is known, and a prediction that is worse than biases does not go
unnoticed. Which cells are held out depends on the contents of the table alone, not on the labels of
its members or the sequence of its cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exchangeable import metrics
from exchangeable.arrays.cells import Cells, Floats, Mask
from exchangeable.baselines import gaussian
from exchangeable.baselines.base import chunks
from exchangeable.baselines.rank_choice import USUAL_RANK, with_rank
from exchangeable.baselines.variational import Bias, FittedFactors, VariationalFactorization
from exchangeable.predictors.base import Predictor, score_predictions, to_numpy
from exchangeable.predictors.baseline import BaselinePredictor, fit_baseline
from exchangeable.predictors.correction import (
    Correction,
    HeldOutTerms,
    correct,
    fit_correction,
)
from exchangeable.predictors.holdouts import FewReading, Reading, find_held_out
from exchangeable.predictors.model import ModelPredictor
from exchangeable.pretraining import bundled
from exchangeable.prior.closed_form_fit import BIASES
from exchangeable.prior.trust import FOLDS, is_gain
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.threads import run_all
from exchangeable.training.task import ValidationSplit
from exchangeable.values.calibration import UNCALIBRATED, Calibration
from exchangeable.values.distributions import Distribution

OTHERS = ("bias", "vmf")
"""Models that the pretrained one is compared with; it wins unless one is clearly better."""
WIDE = "gaussian"
"""A model that is compared too where one axis has few members, such as measured quantities."""

MIN_LEADS = {"bias": 1.0, "vmf": 1.0, WIDE: 0.0}
"""Standard errors by which squared errors of another model must be smaller. The pretrained one has
seen what biases and factors find: on sparse tables these were up to .8 smaller by chance, and
worse on further cells. What the Gaussian finds is its own: ahead by .4 to .9, it was 3 to 14 %
better on further cells of four small tables."""

MIN_CELLS = 50
"""Smaller tables are not compared on: too few cells would be held out."""
MAX_CELLS = 200_000
"""Larger tables are not read again without the held-out cells, only their prior is without them."""
MAX_CELLS_ON_LEVELS = 50_000
"""The same of tables with levels, where intervals depend less on it."""
MIN_POOL = 100
"""Cells of the smallest pool of a usual cell, with fewer of which large tables are read again all
the same: a pool of a few tells the value of each."""
CELLS_PER_COUNT = 1 << 20
"""Cells whose pools are looked up at a time."""
MAX_FITTED_CELLS = 1 << 22
"""Cells up to which others are fitted. Of more the prior's own biases are compared alone: a second
factorization would take as long as all else, and memory for every cell."""
MAX_SWEPT_CELLS = 50_000
"""Cells up to which the factorization is compared after all of its sweeps."""
MAX_RANKED_MEMBERS = 1000
"""Members up to which its rank is chosen on cells that are hidden again, and is the usual one else:
high ranks help dense tables, and take long where members are many."""
SWEEPS, FURTHER_SWEEPS = 6, 8
"""Sweeps of the factorization in larger tables, where its error on ML-1M is .2 % above that after
30, and further ones over all cells if it is chosen: .07 % then, in a quarter of the time."""


@dataclass(frozen=True)
class Comparison:
    """Errors of the candidates on the same hidden cells."""

    hidden: int
    best: str
    """The pretrained model, or the best of those that are better by more than chance."""
    rmse: dict[str, float]
    coverage: float
    """Share of the hidden values within the 80 % intervals of the best, before calibration."""
    calibration: Calibration
    """Calibration of the best."""
    factors: FittedFactors | None = None
    """The factorization that was compared, of a large table."""
    correction: Correction | None = None
    """Correction of the pretrained model's means; its error is after it."""

    @classmethod
    def of(
        cls,
        values: Floats,
        means: dict[str, Floats],
        ranks: dict[str, Floats],
        factors: FittedFactors | None = None,
        correction: Correction | None = None,
    ) -> Comparison:
        """Compare predicted means with hidden values, whose ranks in the predictions are given."""
        rmse = {name: metrics.rmse(values, column) for name, column in means.items()}
        squares = {n: torch.from_numpy((column - values) ** 2) for n, column in means.items()}
        gains = {name: squares[bundled.NAME] - errors for name, errors in squares.items()}
        better = [n for n, gain in gains.items() if n in MIN_LEADS and is_gain(gain, MIN_LEADS[n])]
        best = min((bundled.NAME, *better), key=lambda name: rmse[name])
        own = ranks[best]
        coverage = float(((own >= 0.1) & (own <= 0.9)).mean())
        return cls(len(values), best, rmse, coverage, Calibration.fit(own), factors, correction)

    def calibrate(self, model: ModelPredictor) -> ModelPredictor:
        """Return the pretrained model with what the held-out cells say of it."""
        return replace(model, calibration=self.calibration, correction=self.correction)

    def fit_best(self, cells: Cells, seed: int, progress: Progress = SILENT) -> BaselinePredictor:
        """Fit the best of the other models to all cells; a factorization from the compared one."""
        name = self.best
        if name == "vmf" and self.factors is not None:
            factorization = VariationalFactorization(USUAL_RANK, FURTHER_SWEEPS)
            fitted = factorization.fit_on(self.factors, cells, progress)
            baseline = VariationalFactorization(USUAL_RANK)
            predictor = BaselinePredictor(name, baseline, fitted, cells.scale)
        else:
            predictor = fit_baseline(name, cells, seed, progress)
        return replace(predictor, calibration=self.calibration)

    def __str__(self) -> str:
        best = self.best
        others = ", ".join(f"{n} {e:.4g}" for n, e in self.rmse.items() if n != best)
        sentence = (
            f"on {self.hidden:,} cells that were hidden, RMSE {self.rmse[best]:.4g}"
            f"{others and f' ({others})'}; {100 * self.coverage:.0f} % of them within its 80 % "
            f"intervals"
        )
        if self.calibration != UNCALIBRATED:
            sentence += ", now calibrated on them"
        if best == bundled.NAME:
            return f"model {best}: {sentence}"
        return f"model {best}, which does better here than the pretrained one: {sentence}"


def candidates_for(cells: Cells) -> tuple[str, ...]:
    """Return the models that the pretrained one is compared with on a table."""
    if len(cells) < MIN_CELLS:
        return ()
    others = OTHERS if len(cells) <= MAX_FITTED_CELLS else OTHERS[:1]
    return (*others, WIDE) if gaussian.suits(cells) else others


def compare_models(
    model: ModelPredictor,
    cells: Cells,
    others: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Comparison | None:
    """Compare the pretrained model with others on the cells that its prior held out.

    None where there are none.
    """
    names = (bundled.NAME, *others)
    truth: list[Floats] = []
    means: dict[str, list[Floats]] = {name: [] for name in names}
    ranks: dict[str, list[Floats]] = {name: [] for name in names}
    factors: FittedFactors | None = None
    readings: list[Reading] = []
    few: list[FewReading] = []
    folds: list[Floats] = []  # values of the cells of each reading

    def judge(name: str, found: tuple[Floats, Floats]) -> None:
        means[name].append(found[0])
        ranks[name].append(found[1])

    small = len(cells) <= (MAX_CELLS_ON_LEVELS if cells.scale.levels else MAX_CELLS)
    reread = small or _smallest_pool(cells) < MIN_POOL
    for number, held_out in enumerate(find_held_out(model, cells, reread=reread)):
        count = int(held_out.mask.sum())
        progress.at(0.0, f"comparing {', '.join(names)} on {count:,} held-out cells")
        tried = cells.take(np.concatenate(held_out.folds))
        if not len(tried):
            continue
        truth.append(tried.values)
        own = _own_biases(model, number, cells)
        predict_others = partial(_predict_by_others, others, cells, held_out.mask, own, tried)
        tasks: list[Callable[[], Any]] = [held_out.read, predict_others]
        # Alone, what reads has all cores.
        found, by_others = run_all(tasks, len(cells) if others else 0, model.device)
        readings += found.folds
        few += found.few
        folds += [cells.values[positions] for positions in held_out.folds]
        for name, fitted, predictions in by_others:
            judge(name, predictions)
            if name == "vmf" and len(cells) > MAX_SWEPT_CELLS:
                factors = fitted.fitted
    if not truth:
        return None
    # Pools of all cells have read the values, so they do not tell what is to be corrected.
    corrects = reread and not cells.joint
    of_few = [each.left(cells.values, model.stats) for each in few]
    correction, changes = None, None
    if corrects:
        correction, changes = _find_correction(model, readings, folds, of_few)
    for number, (reading, values) in enumerate(zip(readings, folds, strict=True)):
        if len(values):
            predictions = reading.predictions
            if changes is not None:
                predictions = correct(predictions, changes[number], model.stats)
            judge(bundled.NAME, rank_values(predictions, values))
    found_by = _joined(means), _joined(ranks)
    return Comparison.of(np.concatenate(truth), *found_by, factors, correction)


def _find_correction(
    model: ModelPredictor,
    readings: Sequence[Reading],
    folds: Sequence[Floats],
    few: Sequence[HeldOutTerms],
) -> tuple[Correction | None, list[Tensor] | None]:
    """Fit the correction of the model to the held-out cells, whose values are given by reading.

    Also return the changes of the cells of each reading, by what is fitted without their fold.
    """
    by_reading = [
        reading.left(values, torch.full((len(values),), number % FOLDS), model.stats)
        for number, (reading, values) in enumerate(zip(readings, folds, strict=True))
    ]
    correction, changes = fit_correction(
        HeldOutTerms.joined(by_reading), HeldOutTerms.joined(few) if few else None
    )
    if correction is None:
        return None, None
    seen = torch.cat([reading.seen for reading in readings])
    every = changes.new_zeros(len(seen))
    every[seen] = changes
    return correction, list(every.split([len(values) for values in folds]))


def _smallest_pool(cells: Cells) -> int:
    """Return the median over cells of the number of cells of its lightest member."""
    by_axis = [np.bincount(column) for column in cells.index.T]
    largest = min(int(pools.max()) for pools in by_axis)
    counts = np.zeros(largest + 1, dtype=np.int64)  # cells by the size of their smallest pool
    for part in chunks(len(cells), CELLS_PER_COUNT):
        sizes = (pools[column] for pools, column in zip(by_axis, cells.index[part].T, strict=True))
        smallest = np.bincount(reduce(np.minimum, sizes))
        counts[: len(smallest)] += smallest
    return int(np.searchsorted(counts.cumsum(), len(cells) / 2))


def _own_biases(model: ModelPredictor, number: int, cells: Cells) -> BaselinePredictor | None:
    """Return the biases of a holdout of the prior of a large table; None of others."""
    if len(cells) <= MAX_FITTED_CELLS or model.prior is None:
        return None
    fitted, stats = model.prior.holdouts[number].fitted, model.stats
    if fitted.drift is not None:  # biases are of what it leaves
        return None
    posterior = replace(
        fitted.biases,
        means=[table.cpu() for table in fitted.biases.means],
        covariances=[table.cpu() for table in fitted.biases.covariances],
    )
    biases = FittedFactors(BIASES, posterior, stats.mean, stats.deviation)
    return BaselinePredictor("bias", BIASES, biases, cells.scale)


def _fit_others(
    names: Sequence[str], cells: Cells, held_out: Mask, own_biases: BaselinePredictor | None
) -> Iterator[tuple[str, BaselinePredictor]]:
    """Fit models to the cells that are not held out, one after the other.

    The biases that vmf starts from are fitted once, or not at all where they are given.
    """
    if own_biases is not None and "bias" in names:
        yield "bias", own_biases
        names = [name for name in names if name != "bias"]
    if not names:
        return
    cells = cells.take(~held_out)
    bias, factorization = Bias(), VariationalFactorization(USUAL_RANK)
    if len(cells) > MAX_SWEPT_CELLS:
        bias, factorization = BIASES, VariationalFactorization(USUAL_RANK, SWEEPS)
    elif sum(cells.shape) <= MAX_RANKED_MEMBERS:
        factorization, _ = with_rank(VariationalFactorization(), cells)
    biases = bias.fit(cells)
    if "bias" in names:
        yield "bias", BaselinePredictor("bias", bias, biases, cells.scale)
    if "vmf" in names:
        factors = factorization.fit_from(biases, cells)
        yield "vmf", BaselinePredictor("vmf", factorization, factors, cells.scale)
    if WIDE in names:
        yield WIDE, fit_baseline(WIDE, cells, seed=0)


def _predict_by_others(
    names: Sequence[str],
    cells: Cells,
    held_out: Mask,
    own_biases: BaselinePredictor | None,
    tried: Cells,
) -> list[tuple[str, BaselinePredictor, tuple[Floats, Floats]]]:
    """Fit models without the held-out cells: means of some, and ranks of their values, by model."""
    fits = _fit_others(names, cells, held_out, own_biases)
    return [(name, fitted, predict_and_rank(fitted, tried)) for name, fitted in fits]


def rank_values(distribution: Distribution, values: Floats) -> tuple[Floats, Floats]:
    """Means of distributions, and the ranks of values in them: (Q,) each."""
    truth = torch.from_numpy(values)
    return to_numpy(distribution.mean()), to_numpy(distribution.rank(truth))


def predict_and_rank(predictor: Predictor, cells: Cells) -> tuple[Floats, Floats]:
    """Predicted means of cells, and the ranks of their values in the predictions."""
    means, ranks = score_predictions(
        predictor,
        cells.index,
        cells.values,
        lambda distribution, _: distribution.mean(),
        lambda distribution, truth: distribution.rank(truth),
        times=cells.times,
    )
    return means, ranks


def calibrate_on_validation(
    split: ValidationSplit, cells: Cells, condition: Callable[[Cells], Predictor]
) -> Calibration:
    """Calibrate a model that was trained here on the cells held out for validation."""
    training, validation = split.of(cells)
    if not len(validation):
        return UNCALIBRATED
    predictor = condition(training)
    return Calibration.fit(predict_and_rank(predictor, validation)[1])


def _joined(columns: dict[str, list[Floats]]) -> dict[str, Floats]:
    return {name: np.concatenate(parts) for name, parts in columns.items()}
