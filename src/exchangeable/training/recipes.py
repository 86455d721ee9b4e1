"""Recipes: models that are trained by name, with settings that do well on real tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from exchangeable.errors import InputError
from exchangeable.models.configs import (
    FactorizedConfig,
    ModelConfig,
    ResidualConfig,
    build,
)
from exchangeable.runtime.interruption import explain_out_of_memory
from exchangeable.runtime.phrases import did_you_mean
from exchangeable.training.config import TrainingConfig
from exchangeable.values.codecs import Codec


@dataclass(frozen=True)
class Recipe:
    """A model configuration and training settings."""

    model: Callable[[Codec, int, tuple[int, ...]], ModelConfig]
    """Makes a configuration from a codec, an order and the number of features of each axis."""
    training: TrainingConfig


def _residual(codec: Codec, order: int, features: tuple[int, ...]) -> ModelConfig:
    return ResidualConfig(
        codec.in_channels,
        codec.out_channels,
        order,
        width=32,
        depth=4,
        pooling=("mean",),
        activation="gated",
        dropout=0.1,
        prior=16,  # which reads the features: blocks would learn those of single members by heart
    )


def _factorized(codec: Codec, order: int, features: tuple[int, ...]) -> ModelConfig:
    return FactorizedConfig(
        codec.in_channels,
        codec.out_channels,
        order,
        encoder=(64, 64, 32),
        maps=True,
        decoder=(64, 64),
        dropout=0.15,
        features=features,
    )


# Chosen on validation cells of ML-100K to train in minutes on a CPU (docs/lab-notes/2026-11-15.md).
RECIPES: Mapping[str, Recipe] = {
    "residual": Recipe(
        _residual,
        TrainingConfig(
            steps=300,
            learning_rate=1e-2,
            weight_decay=0.3,
            average=0.97,
            hide_least=0.05,
            hide_most=0.4,
            views=12,
            view_steps=15,
        ),
    ),
    "factorized": Recipe(
        _factorized, TrainingConfig(steps=2400, learning_rate=1e-2, weight_decay=0.1)
    ),
}


FINETUNING = replace(
    RECIPES["residual"].training,
    steps=1000,
    learning_rate=3e-3,
    weight_decay=1.0,
    view_steps=40,
    patience=8,
)
"""Settings of finetuning a trained model on another table. ML-100K and Davis are learned by heart
after 200 steps; ML-1M and KIBA still gain after 700 (docs/lab-notes/2026-11-17.md)."""


def find_recipe(name: str) -> Recipe:
    """Return the recipe of this name."""
    check_renamed(name)
    if name not in RECIPES:
        raise InputError(
            f"a recipe is one of {', '.join(RECIPES)}, but this is {name!r}"
            f"{did_you_mean(name, RECIPES)}"
        )
    return RECIPES[name]


FORMER_NAMES: Mapping[str, str] = {"self-supervised": "residual"}
"""Names that recipes had before, which saved models may bear."""


def check_renamed(name: str) -> None:
    """Raise if a recipe had this name before."""
    if name in FORMER_NAMES:
        raise InputError(
            f"the recipe {name!r} is called {FORMER_NAMES[name]!r} now: the former name is that "
            f"of the paper's model alone"
        )


def resize(config: ModelConfig, width: int | None = None, depth: int | None = None) -> ModelConfig:
    """Replace the width and depth of a configuration where they are given."""
    if width is None and depth is None:
        return config
    if isinstance(config, FactorizedConfig):
        raise InputError("width and depth are of the residual recipe, but this is another")
    width = config.width if width is None else width
    depth = config.depth if depth is None else depth
    try:
        resized = replace(config, width=width, depth=depth)
        with explain_out_of_memory():
            build(resized)  # some sizes do not go together, which only the layers can check
    except ValueError as error:
        raise InputError(str(error)) from None
    return resized
