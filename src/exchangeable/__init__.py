"""Permutation-equivariant deep models for tables of interactions between sets.

After "Deep Models of Interactions Across Sets" (Hartford, Graham, Leyton-Brown and
Ravanbakhsh, ICML 2018): observed cells write to pools, and any cell reads its own.

The names and rooms below are public; everything else may change without notice.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from exchangeable._version import __version__ as __version__
from exchangeable.runtime.lazy import attach

# Threads that wait for others sleep, rather than keep the others from the cores: on a machine with
# other work, fits took five times as long. torch reads this when it is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

if TYPE_CHECKING:
    from exchangeable import baselines as baselines
    from exchangeable import data as data
    from exchangeable import datasets as datasets
    from exchangeable import errors as errors
    from exchangeable import evaluation as evaluation
    from exchangeable import metrics as metrics
    from exchangeable import models as models
    from exchangeable import nn as nn
    from exchangeable import testing as testing
    from exchangeable import training as training
    from exchangeable.arrays.array import ExchangeableArray as ExchangeableArray
    from exchangeable.arrays.support import Support as Support
    from exchangeable.completion.completer import Completer as Completer
    from exchangeable.completion.fill import complete as complete
    from exchangeable.completion.imputer import Imputer as Imputer
    from exchangeable.data.table import Table as Table
    from exchangeable.models.configs import FactorizedConfig as FactorizedConfig
    from exchangeable.models.configs import ResidualConfig as ResidualConfig
    from exchangeable.models.configs import SelfSupervisedConfig as SelfSupervisedConfig
    from exchangeable.models.memory import Memory as Memory
    from exchangeable.models.memory import MemoryModel as MemoryModel
    from exchangeable.models.paper import FactorizedAutoencoder as FactorizedAutoencoder
    from exchangeable.models.paper import SelfSupervisedModel as SelfSupervisedModel
    from exchangeable.models.residual import ResidualModel as ResidualModel
    from exchangeable.nn.blocks import ChannelDropout as ChannelDropout
    from exchangeable.nn.blocks import ExchangeableBlock as ExchangeableBlock
    from exchangeable.nn.blocks import FactorLayer as FactorLayer
    from exchangeable.nn.joint import JointlyExchangeableLinear as JointlyExchangeableLinear
    from exchangeable.nn.layers import ExchangeableLinear as ExchangeableLinear
    from exchangeable.training.config import TrainingConfig as TrainingConfig
    from exchangeable.training.trained_model import TrainedModel as TrainedModel

_ROOMS = (
    *("baselines", "data", "datasets", "errors", "evaluation"),
    *("metrics", "models", "nn", "testing", "training"),
)
_NAMES = {
    "arrays.array": ("ExchangeableArray",),
    "arrays.support": ("Support",),
    "completion.completer": ("Completer",),
    "completion.imputer": ("Imputer",),
    "completion.fill": ("complete",),
    "data.table": ("Table",),
    "models.configs": ("FactorizedConfig", "ResidualConfig", "SelfSupervisedConfig"),
    "models.memory": ("Memory", "MemoryModel"),
    "models.paper": ("FactorizedAutoencoder", "SelfSupervisedModel"),
    "models.residual": ("ResidualModel",),
    "nn.blocks": ("ChannelDropout", "ExchangeableBlock", "FactorLayer"),
    "nn.joint": ("JointlyExchangeableLinear",),
    "nn.layers": ("ExchangeableLinear",),
    "training.config": ("TrainingConfig",),
    "training.trained_model": ("TrainedModel",),
}

__all__ = [*_ROOMS, *(name for names in _NAMES.values() for name in names)]
__getattr__, __dir__ = attach(__name__, _NAMES, _ROOMS)
