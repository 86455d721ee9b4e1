"""Recipes: models that are trained by name, with settings that do well on real tables.

The paper's two models come in three forms each. By their plain names they are sized for a CPU, and
queried cells do not write. As ``-text`` and ``-released`` they are the paper's, as printed and as
in the code that its authors released: literal ones, whose queried cells are in the pools, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from exchangeable.errors import InputError
from exchangeable.models.configs import (
    FactorizedConfig,
    ModelConfig,
    ResidualConfig,
    SelfSupervisedConfig,
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
        pools_features=any(features),
    )


def _self_supervised(codec: Codec, order: int, features: tuple[int, ...]) -> ModelConfig:
    return SelfSupervisedConfig(
        codec.in_channels,
        codec.out_channels,
        order,
        width=64,
        depth=5,
        activation="relu",
        residual=True,
        dropout=0.1,
        features=features,
        pools_features=any(features),
    )


def _literal(
    form: Callable[[int, int], ModelConfig], codec: Codec, order: int, features: tuple[int, ...]
) -> ModelConfig:
    """Return a form of the paper for any values, of which some have no levels."""
    config = form(codec.out_channels, order)
    assert isinstance(config, SelfSupervisedConfig | FactorizedConfig)
    sized = replace(config, in_channels=codec.in_channels, features=features)
    return replace(sized, pools_features=any(features))


# Of the text only the architecture, the share of masked ratings and the loss are known. The rest is
# that of the released code, Adam with 5e-4 and no schedule, but for two things. For the
# self-supervised model it adds 1e-5 of the squared weights to the loss, whose gradient Adam scales
# up with all others: a decay of 1, apart from the gradient, does about the same. And it judges the
# weights of that model as they are; here they are averaged over some fifty steps, which takes the
# noise of dropout away. Training ends when nothing has improved for a while.
PAPER_TRAINING = TrainingConfig(
    steps=12_000,
    patience=20,
    learning_rate=5e-4,
    schedule="constant",
    warm_up=0.0,
    weight_decay=1.0,
    clip=100.0,
    average=0.98,
    hide="flat",
    hide_least=0.15,
    hide_most=0.15,
    loss="cross-entropy",
    evaluate_every=50,
)
"""Training of the paper's self-supervised model."""

PAPER_AUTOENCODER_TRAINING = replace(PAPER_TRAINING, hide="nothing", average=0.9)
"""Training of the paper's factorized autoencoder, which reconstructs the cells that it sees."""

RELEASED_AUTOENCODER_TRAINING = replace(
    PAPER_AUTOENCODER_TRAINING,
    steps=30_000,
    patience=40,
    weight_decay=0.0,
    epsilon=1e-6,
    batch="conditional",
    batch_cells=16_500,
    evaluate_every=150,
)
"""Training of the autoencoder in the released code: where 300 drawn users and 300 drawn films meet,
ML-100K has about 16,500 cells. Its penalty on weights, 1e-10, comes to none."""

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
    "self-supervised": Recipe(
        _self_supervised, TrainingConfig(steps=1000, learning_rate=3e-3, weight_decay=0.1)
    ),
    "self-supervised-text": Recipe(partial(_literal, SelfSupervisedConfig.paper), PAPER_TRAINING),
    "self-supervised-released": Recipe(
        partial(_literal, SelfSupervisedConfig.released), PAPER_TRAINING
    ),
    "factorized": Recipe(
        _factorized, TrainingConfig(steps=2400, learning_rate=1e-2, weight_decay=0.1)
    ),
    "factorized-text": Recipe(
        partial(_literal, FactorizedConfig.paper), PAPER_AUTOENCODER_TRAINING
    ),
    "factorized-released": Recipe(
        partial(_literal, FactorizedConfig.released), RELEASED_AUTOENCODER_TRAINING
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
    if name not in RECIPES:
        raise InputError(
            f"a recipe is one of {', '.join(RECIPES)}, but this is {name!r}"
            f"{did_you_mean(name, RECIPES)}"
        )
    return RECIPES[name]


def resize(config: ModelConfig, width: int | None = None, depth: int | None = None) -> ModelConfig:
    """Replace the width and depth of a configuration where they are given."""
    if width is None and depth is None:
        return config
    if isinstance(config, FactorizedConfig):
        raise InputError(
            "width and depth are of the residual and self-supervised recipes, but this is another"
        )
    width = config.width if width is None else width
    depth = config.depth if depth is None else depth
    try:
        resized = replace(config, width=width, depth=depth)
        with explain_out_of_memory():
            build(resized)  # some sizes do not go together, which only the layers can check
    except ValueError as error:
        raise InputError(str(error)) from None
    return resized
