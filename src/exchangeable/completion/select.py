"""Who answers where nobody was chosen: the pretrained model, unless a simpler one does better.

Some of the cells are hidden, and all candidates predict them from the others. So there is an
estimate of the error before any truth is known, and nobody gets answers that are worse than biases
without hearing of it. Which cells are hidden depends on what is in the table alone, not on how its
members are called or in which order its cells come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller

import numpy as np
import torch
from numpy.typing import NDArray

from exchangeable import metrics
from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.baselines.base import standardise
from exchangeable.completion.predictors import (
    READ_TOGETHER,
    ModelPredictor,
    Predictor,
    fit_baseline,
    read_predictions,
)
from exchangeable.models.prior import BIASES, pseudo_random_shares
from exchangeable.pretraining import bundled
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.values.calibration import UNCALIBRATED, Calibration

SIMPLER = ("bias", "vmf")
"""What the pretrained model is compared with."""

PARTS = 10
"""One of these parts of the cells is hidden at a time."""
HIDDEN = 500
"""Cells to be hidden in all, if a few parts have as many."""
MOST_PARTS = 4
MOST_HIDDEN = 0.5
"""Of the cells: where most fall into one part, since they are alike, it is left out."""
LEAST = 50
"""Cells that a table must have for a comparison that says anything."""
MOST = 200_000
"""Cells of a table that is tried as a whole; of larger ones, as many members as have so many. These
say less of how sure answers for the whole may be, so that intervals stay as they are."""
MOST_ON_LEVELS = 50_000
"""The same of values on levels, where a model that nothing else is tried beside is not tried
either: there intervals of a pretrained one are right from the start (79 to 82 % for 80 %)."""


@dataclass(frozen=True)
class Trial:
    """How far off candidates were, on the same hidden cells."""

    hidden: int
    rmse: dict[str, float]
    coverage: float
    """Share of the hidden values that lay within the 80 % intervals of the best, before these were
    set right."""
    calibration: Calibration
    """Of the best."""

    @classmethod
    def of(cls, values: Floats, means: dict[str, Floats], ranks: dict[str, Floats]) -> Trial:
        """From hidden values, what candidates answered, and where in the answers values lay."""
        rmse = {name: metrics.rmse(values, column) for name, column in means.items()}
        own = ranks[min(rmse, key=lambda name: rmse[name])]
        coverage = float(((own >= 0.1) & (own <= 0.9)).mean())
        return cls(len(values), rmse, coverage, Calibration.fit(own))

    @property
    def best(self) -> str:
        """The pretrained model, unless one is better."""
        return min(self.rmse, key=lambda name: self.rmse[name])

    def __str__(self) -> str:
        best = self.best
        others = ", ".join(f"{n} {e:.4g}" for n, e in self.rmse.items() if n != best)
        told = (
            f"on {self.hidden:,} cells that were hidden, RMSE {self.rmse[best]:.4g}"
            f"{others and f' ({others})'}; {100 * self.coverage:.0f} % of them within its 80 % "
            f"intervals"
        )
        if self.calibration != UNCALIBRATED:
            told += ", now calibrated on them"
        if best == bundled.NAME:
            return f"model {best}: {told}"
        return f"model {best}, which does better here than the pretrained one: {told}"


def tried(
    cells: Cells,
    seed: int,
    device: torch.device,
    progress: Progress = SILENT,
    memory: int | None = None,
) -> Trial | None:
    """Fit all candidates to most cells, and see how they predict the others.

    None where the cells are too few, or too much alike to tell some from the others.
    """
    if len(cells) < LEAST:
        return None
    progress.at(0.0, "choosing cells to hide")
    whole, cells = cells, _some(cells)
    part = _parts(cells)
    trained = bundled.shipped(len(cells.shape))
    candidates: dict[str, Callable[[Cells], Predictor]] = {
        bundled.NAME: partial(ModelPredictor.of, trained, device=device, memory=memory),
        **{name: partial(fit_baseline, name, seed=seed) for name in SIMPLER},
    }
    parts = min(-(-HIDDEN * PARTS // len(cells)), MOST_PARTS)
    truth: list[Floats] = []
    found: dict[str, list[tuple[Floats, Floats]]] = {name: [] for name in candidates}
    for number in range(parts):
        hidden = part == number
        if not 0 < hidden.mean() < MOST_HIDDEN:
            continue
        truth.append(cells.values[hidden])
        for at, (name, candidate) in enumerate(candidates.items()):
            share = (number + at / len(candidates)) / parts
            progress.at(share, f"trying {name} on {hidden.sum():,} hidden cells")
            predictor = candidate(cells.take(~hidden))
            found[name].append(
                predict_and_rank(predictor, cells.index[hidden], cells.values[hidden])
            )
    if not truth:
        return None
    means, ranks = (
        {name: np.concatenate([one[at] for one in own]) for name, own in found.items()}
        for at in (0, 1)
    )
    trial = Trial.of(np.concatenate(truth), means, ranks)
    return trial if cells is whole else replace(trial, calibration=UNCALIBRATED)


def backtest(model: ModelPredictor, cells: Cells) -> Trial | None:
    """How a model that has read all cells does on those that its factors were tried on.

    None where there are none, or where that would take long: comparing members is most of it.
    """
    if len(cells) > (MOST_ON_LEVELS if cells.scale.levels else MOST):
        return None
    truth, means, ranks = [], [], []
    for hidden, predictor in model.hidden(cells):
        mean, rank = predict_and_rank(predictor, cells.index[hidden], cells.values[hidden])
        truth.append(cells.values[hidden])
        means.append(mean)
        ranks.append(rank)
    if not truth:
        return None
    name = bundled.NAME
    return Trial.of(
        np.concatenate(truth), {name: np.concatenate(means)}, {name: np.concatenate(ranks)}
    )


def predict_and_rank(predictor: Predictor, index: Index, values: Floats) -> tuple[Floats, Floats]:
    """What is answered for cells, and where in the answers their values lie."""
    means, ranks = [], []
    for start in range(0, len(index), READ_TOGETHER):
        some = slice(start, start + READ_TOGETHER)
        rank = methodcaller("rank", torch.from_numpy(values[some]))
        mean, place = read_predictions(predictor, index[some], methodcaller("mean"), rank)
        means.append(mean)
        ranks.append(place)
    return np.concatenate(means), np.concatenate(ranks)


def _parts(cells: Cells) -> NDArray[np.int64]:
    """The part that each cell belongs to."""
    index = torch.from_numpy(cells.index)
    values = torch.from_numpy(standardise(cells.values)[0])
    with torch.no_grad():
        biases = BIASES.posterior_of(index, values, cells.shape)
        drawn = pseudo_random_shares(values - biases.predict(index)[0]).numpy()
    return (PARTS * drawn).astype(np.int64)


def _some(cells: Cells) -> Cells:
    """All cells, or those of some members of the longest axis where they are too many.

    Late digits of what a member's cells sum up to, each weighed by how many others there are
    of its members on other axes, tell whether it is among them.
    """
    if len(cells) <= MOST:
        return cells
    axis = int(np.argmax(cells.shape))
    weighed = standardise(cells.values)[0] + np.pi
    for other in range(len(cells.shape)):
        if other != axis:
            own = cells.index[:, other]
            weighed = weighed * np.sqrt(np.bincount(own)[own])
    sums = np.bincount(cells.index[:, axis], weights=weighed, minlength=cells.shape[axis])
    some = ((1e3 * sums) % 1)[cells.index[:, axis]] < MOST / len(cells)
    return cells.take(some) if some.sum() >= LEAST else cells
