"""Permutation-equivariant deep models for tables of interactions between sets.

After "Deep Models of Interactions Across Sets" (Hartford, Graham, Leyton-Brown and
Ravanbakhsh, ICML 2018): observed cells write to pools, and any cell reads its own.
"""

from exchangeable.array import ExchangeableArray, Support
from exchangeable.blocks import ChannelDropout, ExchangeableBlock, FactorLayer
from exchangeable.configs import FactorizedConfig, ResidualConfig, SelfSupervisedConfig
from exchangeable.joint import JointlyExchangeableLinear
from exchangeable.layers import ExchangeableLinear
from exchangeable.memory import Memory, MemoryModel
from exchangeable.models import FactorizedAutoencoder, ResidualModel, SelfSupervisedModel

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
]
