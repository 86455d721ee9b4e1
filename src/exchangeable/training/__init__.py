"""Training: settings, samplers and masks, the loop, and trained models that are saved and loaded.

``train_model`` trains a model or a recipe on a ``task`` and resumes runs; ``loop`` takes the steps
of a ``run`` over the examples of ``masking``; ``execution`` holds device, memory and folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from exchangeable.runtime.lazy import attach

if TYPE_CHECKING:
    from exchangeable.training import samplers as samplers
    from exchangeable.training.config import TrainingConfig as TrainingConfig
    from exchangeable.training.execution import Execution as Execution
    from exchangeable.training.recipes import FINETUNING as FINETUNING
    from exchangeable.training.recipes import RECIPES as RECIPES
    from exchangeable.training.task import Task as Task
    from exchangeable.training.task import ValidationSplit as ValidationSplit
    from exchangeable.training.trained_model import TrainedModel as TrainedModel

__getattr__, __dir__ = attach(
    __name__,
    {
        "config": ("TrainingConfig",),
        "execution": ("Execution",),
        "recipes": ("FINETUNING", "RECIPES"),
        "task": ("Task", "ValidationSplit"),
        "trained_model": ("TrainedModel",),
    },
    ("samplers",),
)
