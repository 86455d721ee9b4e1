"""The models inside the package, pretrained on synthetic tables: one for tables of each order."""

from __future__ import annotations

from pathlib import Path

from exchangeable.errors import InputError
from exchangeable.runtime import checkpoint
from exchangeable.training.trained_model import TrainedModel

NAME = "pretrained"
PLACE = Path(__file__).parent / "weights"


def orders() -> tuple[int, ...]:
    """Of the tables that there are models for."""
    return tuple(order for order in range(1, 10) if checkpoint.exists(_folder(order)))


def shipped(order: int) -> TrainedModel:
    """The model for tables of so many axes."""
    if order not in orders():
        known = " or ".join(map(str, orders())) or "no number of"
        raise InputError(
            f"the pretrained models are for tables of {known} axes, but this one has {order}: "
            f"vmf takes any"
        )
    return TrainedModel.load(_folder(order))


def _folder(order: int) -> Path:
    return PLACE / f"order-{order}"
