"""The state of a training run, which can be saved and restored."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exchangeable.errors import Failed
from exchangeable.models.memory import MemoryModel
from exchangeable.runtime.progress import Progress
from exchangeable.training.config import TrainingConfig


@dataclass(frozen=True)
class RunProgress:
    """Where a run stands."""

    step: int
    steps: int
    loss: float
    """Not a number before the first step."""
    validation: float | None
    """RMSE on the validation cells at the last look."""
    best: float | None
    cells_per_second: float
    seconds_left: float


@dataclass(eq=False)
class Run:
    """All that changes while a model is trained, and all that is needed to go on with it."""

    model: MemoryModel
    averaged: MemoryModel
    best: MemoryModel
    optimiser: torch.optim.AdamW
    draws: np.random.Generator
    drops: torch.Generator
    step: int = 0
    looks_without_gain: int = 0
    best_step: int = 0
    best_rmse: float = math.inf
    history: list[dict[str, float]] = field(default_factory=list)
    """At each look: step, loss, validation RMSE."""
    views: list[int] = field(default_factory=list)
    """What tells the sets of hidden cells that take turns, where there is a prior."""

    @classmethod
    def start(cls, model: MemoryModel, config: TrainingConfig) -> Run:
        """Before the first step."""
        weights = list(model.parameters())
        optimiser = torch.optim.AdamW(
            weights,
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=weights[0].is_cuda,
        )
        return cls(
            model,
            copy.deepcopy(model).eval(),
            copy.deepcopy(model).eval(),
            optimiser,
            np.random.default_rng(config.seed),
            torch.Generator().manual_seed(config.seed),
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """As tensors and as JSON; ``restore`` takes it back."""
        tensors = {"drops": self.drops.get_state()}
        for name in ("model", "averaged", "best"):
            weights = getattr(self, name).state_dict()
            tensors |= {f"{name}.{key}": weight for key, weight in weights.items()}
        for number, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{key}": value for key, value in moments.items()}
        numbers = {name: copy.copy(getattr(self, name)) for name in _COUNTED}
        # JSON has no infinity: before the first look there is no best.
        numbers["best_rmse"] = self.best_rmse if math.isfinite(self.best_rmse) else None
        return tensors, {**numbers, "draws": self.draws.bit_generator.state}

    def restore(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Go back to where ``state`` was taken."""
        for name in ("model", "averaged", "best"):
            getattr(self, name).load_state_dict(_below(tensors, f"{name}."))
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in _below(tensors, "optimiser.").items():
            number, _, part = key.partition(".")
            moments.setdefault(int(number), {})[part] = value
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.drops.set_state(tensors["drops"])
        self.draws.bit_generator.state = numbers["draws"]
        for name in _COUNTED:
            setattr(self, name, numbers[name])
        if numbers["best_rmse"] is None:
            self.best_rmse = math.inf

    def average(self, share: float) -> None:
        """Move the averaged weights towards those of the model; quickly at first."""
        share = min(share, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            means: list[Tensor] = list(self.averaged.parameters())
            weights: list[Tensor] = list(self.model.parameters())
            torch._foreach_lerp_(means, weights, 1 - share)

    def judge(self, rmse: float, loss: float) -> None:
        """Keep the averaged weights if nothing judged before was as good."""
        _check_finite("RMSE on validation cells", rmse, self.step)
        self.history.append({"step": self.step, "loss": loss, "validation_rmse": rmse})
        if rmse < self.best_rmse:
            self.best_rmse, self.best_step, self.looks_without_gain = rmse, self.step, 0
            self.best.load_state_dict(self.averaged.state_dict())
        else:
            self.looks_without_gain += 1


_COUNTED = ("step", "looks_without_gain", "best_step", "best_rmse", "history", "views")


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _check_finite(what: str, number: float, step: int) -> None:
    if not math.isfinite(number):
        raise Failed(f"the {what} is no longer finite after step {step:,}; lower the learning rate")


def reporting(progress: Progress) -> Callable[[RunProgress], None]:
    """Progress of training, in words."""

    def report(now: RunProgress) -> None:
        if math.isnan(now.loss):
            progress.at(now.step / now.steps, "fitting the factorization that cells start from")
            return
        judged = "" if now.validation is None else f", validation RMSE {now.validation:.4f}"
        progress.at(
            now.step / now.steps,
            f"step {now.step:,} of {now.steps:,}, loss {now.loss:.4f}{judged}, "
            f"{now.cells_per_second:,.0f} cells/s, {_clock(now.seconds_left)} left",
        )

    return report


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
