"""The models in the package, pretrained on synthetic tables: one for each order of table, and a
ranker for positives.
"""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path

from exchangeable.errors import InputError
from exchangeable.ranking.network import RankingNetwork, load_network
from exchangeable.runtime import checkpoint
from exchangeable.training.trained_model import TrainedModel

NAME = "pretrained"
"""The name by which users choose a bundled model."""
WEIGHTS = Path(__file__).parent / "weights"


@cache
def bundled_orders() -> tuple[int, ...]:
    """Return the orders (numbers of axes) with bundled weights."""
    folders = [folder for folder in WEIGHTS.glob("order-*") if checkpoint.exists(folder)]
    return tuple(sorted(int(folder.name.removeprefix("order-")) for folder in folders))


def bundled_model(order: int) -> TrainedModel:
    """Return a copy of the model for tables of an order; its weights are read and verified once."""
    if order not in bundled_orders():
        orders = " or ".join(map(str, bundled_orders())) or "no number of"
        raise InputError(
            f"the pretrained models are for tables of {orders} axes, but this one has {order}: "
            f"vmf takes any"
        )
    # Callers may move the model to a device or train it, which must not reach other callers.
    return copy.deepcopy(_load(order))


@cache
def _load(order: int) -> TrainedModel:
    return TrainedModel.load(WEIGHTS / f"order-{order}")


def bundled_ranker() -> RankingNetwork:
    """Return a copy of the ranker of positives."""
    return copy.deepcopy(_load_ranker())


@cache
def _load_ranker() -> RankingNetwork:
    return load_network(WEIGHTS / "positives")
