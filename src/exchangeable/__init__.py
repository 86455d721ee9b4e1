"""Permutation-equivariant deep models for tables of interactions between sets.

After "Deep Models of Interactions Across Sets" (Hartford, Graham, Leyton-Brown and
Ravanbakhsh, ICML 2018): observed cells write to pools, and any cell reads its own.
"""

from typing import TYPE_CHECKING, Any

from exchangeable.array import ExchangeableArray, Support
from exchangeable.blocks import ChannelDropout, ExchangeableBlock, FactorLayer
from exchangeable.configs import FactorizedConfig, ResidualConfig, SelfSupervisedConfig
from exchangeable.joint import JointlyExchangeableLinear
from exchangeable.layers import ExchangeableLinear
from exchangeable.memory import Memory, MemoryModel
from exchangeable.models import FactorizedAutoencoder, ResidualModel, SelfSupervisedModel

if TYPE_CHECKING:
    from exchangeable.table import Table

__version__ = "0.1.0"

__all__ = [
    "ChannelDropout",
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
]


def __getattr__(name: str) -> Any:
    """Tables need polars, which layers and models do not: it is imported when it is asked for."""
    if name == "Table":
        from exchangeable.table import Table

        return Table
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
