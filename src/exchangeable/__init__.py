"""Permutation-equivariant deep models for tables of interactions between sets.

After "Deep Models of Interactions Across Sets" (Hartford, Graham, Leyton-Brown and
Ravanbakhsh, ICML 2018): observed cells write to pools, and any cell reads its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exchangeable.arrays.array import ExchangeableArray, Support
    from exchangeable.completion.completer import Completer
    from exchangeable.completion.fill import complete
    from exchangeable.data.table import Table
    from exchangeable.models.configs import FactorizedConfig, ResidualConfig, SelfSupervisedConfig
    from exchangeable.models.memory import Memory, MemoryModel
    from exchangeable.models.models import FactorizedAutoencoder, ResidualModel, SelfSupervisedModel
    from exchangeable.nn.blocks import ChannelDropout, ExchangeableBlock, FactorLayer
    from exchangeable.nn.joint import JointlyExchangeableLinear
    from exchangeable.nn.layers import ExchangeableLinear
    from exchangeable.training.config import TrainingConfig
    from exchangeable.training.trained_model import TrainedModel

__version__ = "0.1.0"

__all__ = [
    "ChannelDropout",
    "Completer",
    "ExchangeableArray",
    "ExchangeableBlock",
    "ExchangeableLinear",
    "FactorLayer",
    "FactorizedAutoencoder",
    "FactorizedConfig",
    "JointlyExchangeableLinear",
    "Memory",
    "MemoryModel",
    "ResidualConfig",
    "ResidualModel",
    "SelfSupervisedConfig",
    "SelfSupervisedModel",
    "Support",
    "Table",
    "TrainedModel",
    "TrainingConfig",
    "complete",
]

_HOMES = {
    "completion.fill": ("complete",),
    "arrays.array": ("ExchangeableArray", "Support"),
    "nn.blocks": ("ChannelDropout", "ExchangeableBlock", "FactorLayer"),
    "completion.completer": ("Completer",),
    "models.configs": ("FactorizedConfig", "ResidualConfig", "SelfSupervisedConfig"),
    "nn.joint": ("JointlyExchangeableLinear",),
    "nn.layers": ("ExchangeableLinear",),
    "models.memory": ("Memory", "MemoryModel"),
    "models.models": ("FactorizedAutoencoder", "ResidualModel", "SelfSupervisedModel"),
    "data.table": ("Table",),
    "training.trained_model": ("TrainedModel",),
    "training.config": ("TrainingConfig",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name's module when the name is asked for.

    Models need torch and tables need polars; the command needs neither to say how it is used.
    """
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
