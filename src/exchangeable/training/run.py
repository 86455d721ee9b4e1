"""The state of a training run, which can be saved and restored."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exchangeable.errors import Failed
from exchangeable.models.memory import MemoryModel
from exchangeable.training.config import TrainingConfig


@dataclass(eq=False)
class Run:
    """All that changes while a model is trained, and all that is needed to continue."""

    model: MemoryModel
    averaged: MemoryModel
    best: MemoryModel
    optimiser: torch.optim.AdamW
    draws: np.random.Generator
    drops: torch.Generator
    config: TrainingConfig
    step: int = 0
    looks_without_gain: int = 0
    best_step: int = 0
    best_rmse: float = math.inf
    history: list[dict[str, float]] = field(default_factory=list)
    """Step, loss and validation RMSE of each validation."""
    views: list[int] = field(default_factory=list)
    """Keys of the mask sets that take turns, where there is a prior."""

    @classmethod
    def start(cls, model: MemoryModel, config: TrainingConfig) -> Run:
        """Begin a run with the weights of a model."""
        weights = list(model.parameters())
        optimiser = torch.optim.AdamW(
            weights,
            lr=config.learning_rate,
            eps=config.epsilon,
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
            config,
        )

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def share(self) -> float:
        """Share of the steps that are done."""
        return self.step / max(self.config.steps, 1)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the state as tensors and as JSON, for ``restore``."""
        tensors = {"drops": self.drops.get_state()}
        for name in ("model", "averaged", "best"):
            weights = getattr(self, name).state_dict()
            tensors |= {f"{name}.{key}": weight for key, weight in weights.items()}
        for parameter, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{parameter}.{key}": value for key, value in moments.items()}
        numbers = {name: copy.copy(getattr(self, name)) for name in _STORED}
        # JSON has no infinity: before the first validation there is no best.
        numbers["best_rmse"] = self.best_rmse if math.isfinite(self.best_rmse) else None
        return tensors, {**numbers, "draws": self.draws.bit_generator.state}

    def restore(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Go back to where ``state`` was taken."""
        for name in ("model", "averaged", "best"):
            getattr(self, name).load_state_dict(_below(tensors, f"{name}."))
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in _below(tensors, "optimiser.").items():
            parameter, _, part = key.partition(".")
            moments.setdefault(int(parameter), {})[part] = value
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.drops.set_state(tensors["drops"])
        self.draws.bit_generator.state = numbers["draws"]
        for name in _STORED:
            setattr(self, name, numbers[name])
        if numbers["best_rmse"] is None:
            self.best_rmse = math.inf

    def decay(self, step: int) -> float:
        """Return the share that a step keeps of the averaged weights: little at first."""
        return min(self.config.average, (1 + step) / (10 + step))

    def average(self) -> None:
        """Move the averaged weights towards those of the model."""
        with torch.no_grad():
            means: list[Tensor] = list(self.averaged.parameters())
            weights: list[Tensor] = list(self.model.parameters())
            torch._foreach_lerp_(means, weights, 1 - self.decay(self.step))

    def record_validation(self, rmse: float, loss: float) -> None:
        """Add to the history, and keep the averaged weights if none before were as good."""
        check_finite("RMSE on validation cells", rmse, self.step)
        self.history.append({"step": self.step, "loss": loss, "validation_rmse": rmse})
        if rmse < self.best_rmse:
            self.best_rmse, self.best_step, self.looks_without_gain = rmse, self.step, 0
            self.best.load_state_dict(self.averaged.state_dict())
        else:
            self.looks_without_gain += 1

    def keep_last(self) -> None:
        """Make the averaged weights of the last step the result."""
        self.best.load_state_dict(self.averaged.state_dict())
        self.best_step = self.step
        if self.history:
            self.best_rmse = self.history[-1]["validation_rmse"]


_STORED = ("step", "looks_without_gain", "best_step", "best_rmse", "history", "views")


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def check_finite(name: str, value: float, step: int) -> None:
    """Raise ``Failed`` if a loss or an error has diverged."""
    if not math.isfinite(value):
        raise Failed(f"the {name} is no longer finite after step {step:,}; lower the learning rate")
