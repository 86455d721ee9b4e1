"""How models are trained: what a run is a function of, saved beside its weights."""

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
    """How a model is trained; saved beside its weights."""

    steps: int = 1000
    """Gradient steps at most."""
    learning_rate: float = 5e-3
    """The highest, reached after the warm-up."""
    schedule: Schedule = "cosine"
    """Whether the learning rate then falls to 0, along half a cosine, or stays."""
    warm_up: float = 0.05
    """Share of the steps in which the learning rate rises."""
    weight_decay: float = 0.01
    """Pull of AdamW towards 0."""
    clip: float = 1.0
    """The largest norm of a gradient; longer ones are cut to it."""
    average: float = 0.99
    """How much of the averaged weights stays at each step."""
    hide: Hide = "mixed"
    """Whether a step hides one share of all cells, a share of its own of each row or of each
    column, or one of these by chance. With nothing hidden, cells are predicted from themselves
    and all others, as the paper's autoencoder does it."""
    hide_least: float = 0.1
    """The smallest share of cells to hide."""
    hide_most: float = 0.6
    """The largest share of cells to hide."""
    hide_scale: HideScale = "even"
    """Whether shares are drawn evenly in between, or so that the logarithm of what is left is:
    then a model for any table sees nearly empty ones as often as full ones."""
    views: int = 8
    """Sets of hidden cells that take turns, of a model with a prior, which is fitted to the other
    cells of each."""
    view_steps: int = 50
    """Steps after which a new set takes the place of the oldest."""
    loss: Loss = "both"
    """Of the distribution, of its mean, or both."""
    squared_weight: float = 2.0
    """What the squared error of the mean counts where both are added."""
    batch: Batch = "full"
    """Which cells a step sees: all, cells at random, those where chosen members meet, or some
    cells with others of their members."""
    batch_cells: int = 20_000
    """About how many cells a step sees, unless it sees all."""
    evaluate_every: int = 25
    """Steps between two looks at the validation cells."""
    judged_shares: tuple[float, ...] = (1.0,)
    """Shares of the observed cells that are shown when validation cells are judged; errors are
    averaged. A model for tables with fewer cells than its own is chosen with fewer, too."""
    patience: int | None = None
    """Looks without improvement after which training stops; none: it goes to the end."""
    seed: int = 0
    """Of every draw: what is hidden, what is dropped, which cells a step sees."""

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
        whole = (
            "steps",
            "views",
            "view_steps",
            "batch_cells",
            "evaluate_every",
            "patience",
            "seed",
        )
        for name in whole:
            number, least = getattr(self, name), 0 if name in ("seed", "steps") else 1
            if number is not None and (not isinstance(number, int) or number < least):
                raise InputError(
                    f"{name} must be a whole number of {least} or more, but is {number}"
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
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be above 0, but is {getattr(self, name)}")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay must be 0 or more, but is {self.weight_decay}")
        for name in ("warm_up", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be in [0, 1), but is {getattr(self, name)}")

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        warm = min(1.0, (step + 1) / max(self.warm_up * self.steps, 1))
        if self.schedule == "constant":
            return self.learning_rate * warm
        return self.learning_rate * warm * (0.5 + 0.5 * math.cos(math.pi * step / self.steps))
