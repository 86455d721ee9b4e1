"""Settings of training: together with the data they determine the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from exchangeable.errors import InputError
from exchangeable.values.losses import Loss

Hide = Literal["flat", "rows", "columns", "mixed", "nothing"]
HideScale = Literal["even", "log"]
Schedule = Literal["cosine", "constant"]
Batch = Literal["full", "uniform", "conditional", "rows-columns", "neighbourhood"]


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of a training run; saved beside its weights."""

    steps: int = 1000
    """Maximum number of gradient steps."""
    learning_rate: float = 5e-3
    """Highest learning rate, reached after the warm-up."""
    schedule: Schedule = "cosine"
    """Whether the learning rate then falls to 0, along half a cosine, or stays constant."""
    warm_up: float = 0.05
    """Share of the steps during which the learning rate rises."""
    weight_decay: float = 0.01
    """Weight decay of AdamW."""
    epsilon: float = 1e-8
    """Number that Adam adds to the root of the squared gradients' average."""
    clip: float = 1.0
    """Largest norm of the gradient; longer gradients are scaled down to it."""
    average: float = 0.99
    """Decay of the averaged weights: the share of them that each step keeps."""
    hide: Hide = "mixed"
    """Whether a step hides one share of all cells, a different share of each row or of each column,
    or one of these at random. With nothing hidden, cells are predicted from themselves and all
    others, as in the paper's autoencoder."""
    hide_least: float = 0.1
    """Smallest share of cells to hide."""
    hide_most: float = 0.6
    """Largest share of cells to hide."""
    hide_scale: HideScale = "even"
    """Whether the hidden share is uniform in between, or the logarithm of the share that is left:
    then nearly empty tables come up as often as full ones."""
    views: int = 8
    """Number of mask sets that take turns where a model has a prior, which is fitted to the cells
    that each set leaves."""
    view_steps: int = 50
    """Steps after which a new mask set replaces the oldest."""
    loss: Loss = "both"
    """Whether the loss is of the distribution, of its mean, or both."""
    squared_weight: float = 2.0
    """Weight of the squared error of the mean where both are added."""
    batch: Batch = "full"
    """Which cells a step sees: all, random cells, those where sampled members meet, or random cells
    and others that share a member with them."""
    batch_cells: int = 20_000
    """Approximate number of cells that a step sees, unless it sees all."""
    evaluate_every: int = 25
    """Steps between two validations."""
    judged_shares: tuple[float, ...] = (1.0,)
    """Shares of the observed cells that the model sees in validation; the errors are averaged. For
    use on sparser tables than the one trained on, weights should be chosen with fewer cells too."""
    patience: int | None = None
    """Validations without improvement after which training stops; none: it never stops early."""
    seed: int = 0
    """Seed of all random draws: weights, hidden cells, dropout and batches."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "judged_shares", tuple(self.judged_shares))  # JSON has lists
        choices = {
            "hide": Hide,
            "hide_scale": HideScale,
            "loss": Loss,
            "batch": Batch,
            "schedule": Schedule,
        }
        for name, kinds in choices.items():
            if getattr(self, name) not in get_args(kinds):
                raise InputError(
                    f"{name} must be one of {', '.join(get_args(kinds))}, but is "
                    f"{getattr(self, name)!r}"
                )
        integers = ("views", "view_steps", "batch_cells", "evaluate_every", "patience")
        for name in ("steps", *integers, "seed"):
            value, least = getattr(self, name), 1 if name in integers else 0
            if value is not None and (not isinstance(value, int) or value < least):
                raise InputError(
                    f"{name} must be a whole number of {least} or more, but is {value}"
                )
        if not 0 < self.hide_least <= self.hide_most < 1:
            raise InputError(
                f"hide_least and hide_most must ascend within 0 and 1, but are "
                f"{self.hide_least} and {self.hide_most}"
            )
        if not self.judged_shares or not all(0 < share <= 1 for share in self.judged_shares):
            raise InputError(
                f"judged_shares must be one or more above 0 and up to 1, but are "
                f"{self.judged_shares}"
            )
        for name in ("learning_rate", "epsilon", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be above 0, but is {getattr(self, name)}")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay must be 0 or more, but is {self.weight_decay}")
        for name in ("warm_up", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be in [0, 1), but is {getattr(self, name)}")

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        warm = min(1.0, (step + 1) / max(self.warm_up * self.steps, 1))
        if self.schedule == "constant":
            return self.learning_rate * warm
        return self.learning_rate * warm * (0.5 + 0.5 * math.cos(math.pi * step / self.steps))
