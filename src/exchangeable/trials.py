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

from exchangeable import metrics, shipped
from exchangeable.answering import Answerer, Cells, ModelAnswerer, fitted_baseline, read_off
from exchangeable.baselines.base import standardised
from exchangeable.prior import BIASES, lots

SIMPLER = ("bias", "vmf")
"""What the pretrained model is compared with."""

PARTS = 10
"""One of these parts of the cells is hidden at a time."""
HIDDEN = 200
"""Cells to be hidden in all, if a few parts have as many."""
MOST_PARTS = 3
MOST_HIDDEN = 0.5
"""Of the cells: where most fall into one part, since they are alike, it is left out."""
LEAST = 50
"""Cells that a table must have for a comparison that says anything."""
MOST = 200_000
"""Cells of a table that is tried as a whole; of larger ones, as many members as have so many."""


@dataclass(frozen=True)
class Trial:
    """How far off candidates were, on the same hidden cells."""

    hidden: int
    rmse: dict[str, float]
    coverage: float
    """Share of the hidden values that lay within the 80 % intervals of the best."""

    @property
    def best(self) -> str:
        """The pretrained model, unless one is better."""
        return min(self.rmse, key=lambda name: self.rmse[name])

    def __str__(self) -> str:
        best = self.best
        others = ", ".join(f"{n} {e:.4g}" for n, e in self.rmse.items() if n != best)
        told = (
            f"on {self.hidden:,} cells that were hidden, RMSE {self.rmse[best]:.4g} ({others}); "
            f"{self.coverage:.0%} of them within its 80 % interval"
        )
        if best == shipped.NAME:
            return f"model {best}: {told}"
        return f"model {best}, which does better here than the pretrained one: {told}"


def tried(
    cells: Cells,
    seed: int,
    device: torch.device,
    watch: Callable[[str, float], None] = lambda what, share: None,
    memory: int | None = None,
) -> Trial | None:
    """Fit all candidates to most cells, and see how they predict the others.

    None where the cells are too few, or too much alike to tell some from the others.
    """
    if len(cells) < LEAST:
        return None
    watch("choosing cells to hide", 0.0)
    cells, part = _parted(cells)
    trained = shipped.shipped(len(cells.shape))
    candidates: dict[str, Callable[[Cells], Answerer]] = {
        shipped.NAME: partial(ModelAnswerer.of, trained, device=device, memory=memory),
        **{name: partial(fitted_baseline, name, seed=seed) for name in SIMPLER},
    }
    parts = min(-(-HIDDEN * PARTS // len(cells)), MOST_PARTS)
    truth: list[NDArray[np.float64]] = []
    found: dict[str, list[list[NDArray[np.float64]]]] = {name: [] for name in candidates}
    for number in range(parts):
        hidden = part == number
        if not 0 < hidden.mean() < MOST_HIDDEN:
            continue
        truth.append(cells.values[hidden])
        for at, (name, candidate) in enumerate(candidates.items()):
            share = (number + at / len(candidates)) / parts
            watch(f"trying {name} on {hidden.sum():,} hidden cells", share)
            answerer = candidate(cells.take(~hidden))
            found[name].append(read_off(answerer, cells.index[hidden], *_WANTED))
    if not truth:
        return None
    values = np.concatenate(truth)
    told = {
        name: [np.concatenate(c) for c in zip(*own, strict=True)] for name, own in found.items()
    }
    rmse = {name: metrics.rmse(values, columns[0]) for name, columns in told.items()}
    trial = Trial(len(values), rmse, np.nan)
    ends = np.stack(told[trial.best][1:], axis=1)
    return replace(trial, coverage=metrics.coverage(values, ends))


_WANTED = (methodcaller("mean"), methodcaller("quantile", 0.1), methodcaller("quantile", 0.9))


def _parted(cells: Cells) -> tuple[Cells, NDArray[np.int64]]:
    """All cells, or those of some members where they are too many; and the part of each."""
    index = torch.from_numpy(cells.index)
    values = torch.from_numpy(standardised(cells.values)[0])
    with torch.no_grad():
        biases = BIASES.believed(index, values, cells.shape)
        drawn = lots(values - biases.answers(index)[0]).numpy()
    if len(cells) > MOST:
        axis = int(np.argmax(cells.shape))
        # Of a member later digits of what its cells drew: the first ones tell their parts.
        sums = np.bincount(cells.index[:, axis], weights=drawn, minlength=cells.shape[axis])
        own = (1e3 * sums) % 1
        some = own[cells.index[:, axis]] < MOST / len(cells)
        if some.any():
            cells, drawn = cells.take(some), drawn[some]
    return cells, (PARTS * drawn).astype(np.int64)
