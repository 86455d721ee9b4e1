"""Models: stacks of layers that are conditioned on observed cells and then predict any cell.

``memory`` has the base of all models, ``residual`` and ``paper`` the models, ``configs`` their
configurations, and ``prior`` the closed-form start. ``stream`` runs tables in chunks, as ``plan``
decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from exchangeable.runtime.lazy import attach

if TYPE_CHECKING:
    from exchangeable.models.configs import FactorizedConfig as FactorizedConfig
    from exchangeable.models.configs import ModelConfig as ModelConfig
    from exchangeable.models.configs import ResidualConfig as ResidualConfig
    from exchangeable.models.configs import SelfSupervisedConfig as SelfSupervisedConfig
    from exchangeable.models.configs import build as build
    from exchangeable.models.memory import Memory as Memory
    from exchangeable.models.memory import MemoryModel as MemoryModel
    from exchangeable.models.paper import FactorizedAutoencoder as FactorizedAutoencoder
    from exchangeable.models.paper import SelfSupervisedModel as SelfSupervisedModel
    from exchangeable.models.residual import ResidualModel as ResidualModel
    from exchangeable.models.stream import Plan as Plan

__getattr__, __dir__ = attach(
    __name__,
    {
        "configs": (
            *("FactorizedConfig", "ModelConfig", "ResidualConfig", "SelfSupervisedConfig"),
            "build",
        ),
        "memory": ("Memory", "MemoryModel"),
        "paper": ("FactorizedAutoencoder", "SelfSupervisedModel"),
        "residual": ("ResidualModel",),
        "stream": ("Plan",),
    },
)
