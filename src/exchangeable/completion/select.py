"""Choose the model for ``model="auto"``: hide cells, compare candidates on them, keep the best.

All candidates predict the hidden cells from the others. So the error is estimated before any truth
is known, and a prediction that is worse than biases does not go unnoticed. Which cells are hidden
depends on the contents of the table alone, not on the labels of its members or the sequence of its
cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from exchangeable import metrics
from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.baselines import gaussian
from exchangeable.baselines.base import standardise
from exchangeable.baselines.variational import Bias, VariationalFactorization
from exchangeable.models.closed_form import BIASES
from exchangeable.models.prior import pseudo_random_shares
from exchangeable.predictors.base import Predictor, score_predictions
from exchangeable.predictors.baseline import BaselinePredictor, fit_baseline
from exchangeable.predictors.model import ModelPredictor
from exchangeable.pretraining import bundled
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.values.calibration import UNCALIBRATED, Calibration

CANDIDATES = (bundled.NAME, "bias", "vmf")
"""Models that are compared; of equal errors the first wins."""
WIDE = "gaussian"
"""A model that is compared too where one axis has few members, such as measured quantities."""

FOLDS = 10
"""Each cell is in one of these folds; one fold is hidden at a time."""
TARGET_HIDDEN = 500
"""Cells to hide in all, if few enough folds have as many."""
MAX_FOLDS = 4
MAX_HIDDEN_SHARE = 0.5
"""A fold with more of the cells, since they are alike, is left out."""
MIN_CELLS = 50
"""Smaller tables are not compared on: too few cells would be hidden."""
MAX_CELLS = 200_000
"""Larger tables are compared on as many members as have so many cells. These say less about the
uncertainty in the whole table, so that intervals stay uncalibrated."""
MAX_CELLS_ON_LEVELS = 50_000
"""``backtest`` does not read larger tables with levels again."""


@dataclass(frozen=True)
class Comparison:
    """Errors of the candidates on the same hidden cells."""

    hidden: int
    rmse: dict[str, float]
    coverage: float
    """Share of the hidden values within the 80 % intervals of the best, before calibration."""
    calibration: Calibration
    """Calibration of the best."""

    @classmethod
    def of(cls, values: Floats, means: dict[str, Floats], ranks: dict[str, Floats]) -> Comparison:
        """Compare predicted means with hidden values, whose ranks in the predictions are given."""
        rmse = {name: metrics.rmse(values, column) for name, column in means.items()}
        best = ranks[min(rmse, key=lambda name: rmse[name])]
        coverage = float(((best >= 0.1) & (best <= 0.9)).mean())
        return cls(len(values), rmse, coverage, Calibration.fit(best))

    @property
    def best(self) -> str:
        """The model with the smallest error; of equal ones the pretrained model."""
        return min(self.rmse, key=lambda name: self.rmse[name])

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


def compare_models(
    cells: Cells,
    device: torch.device,
    progress: Progress = SILENT,
    memory: int | None = None,
) -> Comparison | None:
    """Fit all candidates to most cells, and compare their predictions of the others.

    None where the cells are too few, or too much alike to be assigned to folds.
    """
    if len(cells) < MIN_CELLS:
        return None
    progress.at(0.0, "choosing cells to hide")
    whole, cells = cells, _limit_cells(cells)
    fold = _assign_folds(cells)
    trained = bundled.bundled_model(len(cells.shape))
    condition = partial(ModelPredictor.of, trained, device=device, memory=memory)
    folds = min(-(-TARGET_HIDDEN * FOLDS // len(cells)), MAX_FOLDS)
    candidates = (*CANDIDATES, WIDE) if gaussian.suits(whole) else CANDIDATES
    truth: list[Floats] = []
    means: dict[str, list[Floats]] = {name: [] for name in candidates}
    ranks: dict[str, list[Floats]] = {name: [] for name in candidates}
    for number in range(folds):
        hidden = fold == number
        if not 0 < hidden.mean() < MAX_HIDDEN_SHARE:
            continue
        truth.append(cells.values[hidden])
        text = f"comparing {', '.join(candidates)} on {hidden.sum():,} hidden cells"
        progress.at(number / folds, text)
        fitted = _fit_candidates(candidates, cells.take(~hidden), condition)
        for at, (name, predictor) in enumerate(fitted):
            progress.at((number + (at + 1) / len(candidates)) / folds, text)
            mean, rank = predict_and_rank(predictor, cells.take(hidden))
            means[name].append(mean)
            ranks[name].append(rank)
    if not truth:
        return None
    comparison = Comparison.of(np.concatenate(truth), _joined(means), _joined(ranks))
    return comparison if cells is whole else replace(comparison, calibration=UNCALIBRATED)


def _fit_candidates(
    names: Sequence[str], cells: Cells, condition: Callable[[Cells], Predictor]
) -> Iterator[tuple[str, Predictor]]:
    """Fit the candidates one after the other; the biases that vmf starts from are fitted once."""
    yield bundled.NAME, condition(cells)
    bias, factorization = Bias(), VariationalFactorization()
    biases = bias.fit(cells)
    yield "bias", BaselinePredictor("bias", bias, biases, cells.scale)
    factors = factorization.fit_from(biases, cells)
    yield "vmf", BaselinePredictor("vmf", factorization, factors, cells.scale)
    if WIDE in names:
        yield WIDE, fit_baseline(WIDE, cells, seed=0)


def backtest(model: ModelPredictor, cells: Cells) -> Comparison | None:
    """Predict the cells that the model's prior was validated on, without having read them.

    None where there are none. Of large tables only the prior is one that has not read them.
    """
    truth, means, ranks = [], [], []
    reread = len(cells) <= (MAX_CELLS_ON_LEVELS if cells.scale.levels else MAX_CELLS)
    for hidden, predictor in model.holdouts(cells, reread=reread):
        mean, rank = predict_and_rank(predictor, cells.take(hidden))
        truth.append(cells.values[hidden])
        means.append(mean)
        ranks.append(rank)
    if not truth:
        return None
    name = bundled.NAME
    return Comparison.of(np.concatenate(truth), _joined({name: means}), _joined({name: ranks}))


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


def _joined(columns: dict[str, list[Floats]]) -> dict[str, Floats]:
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def _assign_folds(cells: Cells) -> Index:
    """Assign each cell to one of ``FOLDS`` folds, by late digits of what biases leave of it."""
    index = torch.from_numpy(cells.index)
    values = torch.from_numpy(standardise(cells.values)[0])
    with torch.no_grad():
        biases = BIASES.posterior_of(index, values, cells.shape)
        shares = pseudo_random_shares(values - biases.predict(index)[0]).numpy()
    return (FOLDS * shares).astype(np.int64)


def _limit_cells(cells: Cells) -> Cells:
    """Keep all cells, or about ``MAX_CELLS``, those of some members of the longest axis.

    Members are drawn by late digits of the weighted sum of their cells. A cell weighs the more,
    the more cells its members on other axes have.
    """
    if len(cells) <= MAX_CELLS:
        return cells
    axis = int(np.argmax(cells.shape))
    weighted = standardise(cells.values)[0] + np.pi
    for other in range(len(cells.shape)):
        if other != axis:
            members = cells.index[:, other]
            weighted = weighted * np.sqrt(np.bincount(members)[members])
    sums = np.bincount(cells.index[:, axis], weights=weighted, minlength=cells.shape[axis])
    chosen = ((1e3 * sums) % 1)[cells.index[:, axis]] < MAX_CELLS / len(cells)
    return cells.take(chosen) if chosen.sum() >= MIN_CELLS else cells
