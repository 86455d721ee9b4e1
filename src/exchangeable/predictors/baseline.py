"""A fitted baseline as a predictor: normal distributions from its means and variances."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.baselines import BASELINES
from exchangeable.baselines.base import Baseline, FittedBaseline
from exchangeable.baselines.rank_choice import CHOOSING, RankChoice, with_rank
from exchangeable.errors import InputError
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.values.calibration import UNCALIBRATED, Calibration
from exchangeable.values.distributions import Distribution, Normal
from exchangeable.values.scale import Scale


@dataclass(frozen=True, eq=False)
class BaselinePredictor:
    """Predicts with the mean and variance that a baseline gives."""

    name: str
    baseline: Baseline
    fitted: FittedBaseline
    scale: Scale
    calibration: Calibration = UNCALIBRATED
    choice: RankChoice | None = None
    """How the rank of a factorization was chosen, if it was."""

    def predict(self, index: Index, times: Floats | None = None) -> Distribution:
        mean, variance = self.fitted.predict(index)
        levels = torch.tensor(self.scale.levels, dtype=torch.float64)
        normal = Normal(
            torch.from_numpy(mean),
            torch.from_numpy(np.sqrt(variance)),
            levels if len(levels) else None,
        )
        return self.calibration.apply(normal)

    def updated(self, cells: Cells, changed: Index, *, known: int) -> BaselinePredictor:
        return replace(self, fitted=self.fitted.updated(cells, changed))

    def needs_refit(self, cells: Cells, changed: Index, *, known: int) -> bool:
        return False

    def refreshed(self, cells: Cells) -> BaselinePredictor:
        return replace(self, fitted=self.baseline.fit(cells))

    def for_new_members(
        self,
        axis: int,
        index: Index,
        values: Floats,
        features: Tensor | None = None,
        *,
        count: int = 1,
    ) -> BaselinePredictor | None:
        solve = getattr(self.fitted, "for_new_members", None)
        fitted = None if solve is None else solve(axis, index, values, count)
        return None if fitted is None else replace(self, fitted=fitted)

    def factors(self) -> tuple[Floats, ...]:
        read = getattr(self.fitted, "factors", None)
        if read is None:
            raise InputError(
                f"factors come from vmf, bmf or a trained model, but this is {self.name}"
            )
        vectors: tuple[Floats, ...] = read()
        if not vectors[0].shape[1]:
            raise InputError(f"{self.name} found no factors in this table: it has biases only")
        return vectors

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        state = {
            name: torch.from_numpy(np.ascontiguousarray(array))
            for name, array in self.fitted.state().items()
        }
        config = {
            "baseline": self.name,
            "settings": asdict(self.baseline),  # type: ignore[call-overload]
            "calibration": list(self.calibration.quantiles),
        }
        return config, state

    @classmethod
    def from_parts(
        cls, config: dict[str, Any], tensors: dict[str, Tensor], cells: Cells
    ) -> BaselinePredictor:
        """Build a predictor from what ``to_parts`` returned, and the cells it was fitted to."""
        name = str(config["baseline"])
        if name not in BASELINES:
            raise InputError(f"a baseline is one of {', '.join(BASELINES)}, but this is {name!r}")
        stored = config["settings"].items()
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in stored}
        baseline = type(BASELINES[name]())(**settings)
        state = {k: tensor.numpy() for k, tensor in tensors.items()}
        fitted = baseline.kind.from_state(baseline, state)
        calibration = Calibration(tuple(config.get("calibration", ())))
        return cls(name, baseline, fitted, cells.scale, calibration)


def fit_baseline(
    name: str, cells: Cells, seed: int, progress: Progress = SILENT
) -> BaselinePredictor:
    """Fit a baseline, by its name, to the cells."""
    baseline: Any = BASELINES[name]()
    if hasattr(baseline, "seed"):
        baseline = replace(baseline, seed=seed)
    choice = None
    if hasattr(baseline, "rank"):
        baseline, choice = with_rank(baseline, cells, progress.part(0, CHOOSING))
        progress = progress.part(CHOOSING, 1)
    fitted = baseline.fit(cells, progress)
    return BaselinePredictor(name, baseline, fitted, cells.scale, choice=choice)
