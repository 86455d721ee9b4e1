"""The methods that are compared: the paper's models, as printed and released; ours; yardsticks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from exchangeable.baselines import BASELINES
from exchangeable.errors import InputError
from exchangeable.models.configs import (
    FactorizedConfig,
    ModelConfig,
    ResidualConfig,
    SelfSupervisedConfig,
)
from exchangeable.models.memory import MemoryModel
from exchangeable.training.config import TrainingConfig
from exchangeable.training.recipes import (
    FINETUNING,
    PAPER_AUTOENCODER_TRAINING,
    PAPER_TRAINING,
    RELEASED_AUTOENCODER_TRAINING,
)
from exchangeable.values.codecs import Codec, codec_for
from paper.lib.problems import Problem


@dataclass(frozen=True)
class Deep:
    """A model, what it makes of values, and how it is trained."""

    config: ModelConfig
    codec: Codec
    training: TrainingConfig
    start: MemoryModel | None = None
    """Weights that it starts from; none: drawn by the seed."""
    side: bool = False
    """Whether it takes features of members and times of cells, where a table has any."""


YARDSTICKS: Mapping[str, str] = {
    "mean": "mean of all",
    "bias": "empirical-Bayes bias",
    "vmf": "variational MF",
    "bmf": "Bayesian MF",
    "item-knn": "item neighbours",
    "user-knn": "user neighbours",
}


def is_baseline(method: str) -> bool:
    return method in BASELINES


def deep(method: str, problem: Problem, seed: int, **changed: Any) -> Deep:
    """A method for a problem; ``changed`` replaces settings of model and training by name."""
    if method not in METHODS:
        known = ", ".join([*METHODS, *BASELINES])
        raise InputError(f"a method is one of {known}, but this is {method!r}")
    return changed_in(METHODS[method](problem), method, **changed, seed=seed)


def changed_in(made: Deep, method: str, **changed: Any) -> Deep:
    """With settings of model and training replaced, by name."""
    for name, value in changed.items():
        part = next((p for p in ("training", "config") if hasattr(getattr(made, p), name)), None)
        if part is None:
            raise InputError(f"{method} has no setting {name!r}")
        try:
            own = replace(getattr(made, part), **{name: value})
        except ValueError as wrong:  # a configuration says what is wrong with it
            raise InputError(f"{method} with {name}={value!r}: {wrong}") from wrong
        made = replace(made, **{part: own})
    return made


def _codec(problem: Problem) -> Codec:
    return codec_for(problem.scale)


MANY = 500_000
"""Cells of a large table."""

# As the paper has them -------------------------------------------------------------------


def self_supervised(problem: Problem, *, released: bool = False, elementwise: bool = True) -> Deep:
    codec = _codec(problem)
    of = SelfSupervisedConfig.released if released else SelfSupervisedConfig.paper
    config = replace(of(codec.out_channels), in_channels=codec.in_channels, elementwise=elementwise)
    training = replace(PAPER_TRAINING, steps=_steps(problem))
    if _is_large(problem) and (released or not elementwise):
        training = _sampled(training, cells=110_000)  # of 800 users and 800 films
    return Deep(config, codec, training)


def self_supervised_sampled(problem: Problem) -> Deep:
    """A step sees a sample, as the paper's had to on ML-1M; answers are from all cells."""
    made = self_supervised(problem)
    training = replace(
        made.training, batch="conditional", batch_cells=100_000, steps=3000, evaluate_every=150
    )
    return replace(made, training=training)


def factorized(problem: Problem, *, released: bool = False, elementwise: bool = True) -> Deep:
    codec = _codec(problem)
    of = FactorizedConfig.released if released else FactorizedConfig.paper
    config = replace(of(codec.out_channels), in_channels=codec.in_channels, elementwise=elementwise)
    training = replace(PAPER_AUTOENCODER_TRAINING, steps=_steps(problem))
    if released:
        training = RELEASED_AUTOENCODER_TRAINING
        if not _is_large(problem) and problem.name != "ml-100k":  # as large a share as of ML-100K
            training = replace(training, batch_cells=max(round(0.2 * len(problem.values)), 1000))
    if _is_large(problem) and (released or not elementwise):
        training = _sampled(training, cells=160_000)  # of 800 users and 1,300 films
    return Deep(config, codec, training)


def _sampled(training: TrainingConfig, cells: int) -> TrainingConfig:
    """Return training in conditional samples, as the paper did on ML-1M."""
    return replace(
        training,
        batch="conditional",
        batch_cells=cells,
        steps=8000,
        evaluate_every=200,
        patience=None,
    )


def factorized_hiding(problem: Problem) -> Deep:
    """With a map per side, and trained to predict hidden cells, as the self-supervised model is."""
    made = factorized(problem)
    assert isinstance(made.config, FactorizedConfig)
    config = replace(made.config, maps=True)
    training = replace(
        made.training, hide="rows", hide_least=0.05, hide_most=0.5, average=0.98, steps=8000
    )
    if _is_large(problem):  # too many to be learned by heart, and slow to learn at all
        training = replace(
            training, learning_rate=2e-3, weight_decay=0.1, schedule="cosine", steps=9000
        )
    return replace(made, config=config, training=training)


def _is_large(problem: Problem) -> bool:
    return len(problem.values) >= MANY


def _steps(problem: Problem) -> int:
    return 4000 if _is_large(problem) else 12_000


# Ours ------------------------------------------------------------------------------------

WIDTH = {"ml-100k": 64, "ml-1m": 64, "davis": 64, "kiba": 64}
"""Channels of our model by table; 32 for others."""
DEPTH = {"ml-100k": 8, "ml-1m": 8}
"""Likewise; 4 for others, which have mean pooling alone."""
STEPS = {"ml-100k": 1000, "ml-1m": 1600, "davis": 600, "kiba": 600}
"""Likewise; 300 for others."""


def ours(problem: Problem) -> Deep:
    """The residual model with gated units, which starts from closed-form methods."""
    return _ours(problem, prior=20)


def ours_without_prior(problem: Problem) -> Deep:
    made = _ours(problem, prior=0)
    return replace(made, training=replace(made.training, steps=3 * made.training.steps))


def ours_with_features(problem: Problem) -> Deep:
    return replace(_ours(problem, prior=20), side=True)


def finetuned(problem: Problem) -> Deep:
    """The model in the package, after gradient steps on the table."""
    # It needs safetensors, which tables can be printed without.
    from exchangeable.pretraining.bundled import bundled_model

    trained = bundled_model(len(problem.shape))
    return Deep(trained.config, trained.codec, FINETUNING, trained.model)


def finetuned_with_features(problem: Problem) -> Deep:
    """The same with features of members and times of cells."""
    return replace(finetuned(problem), side=True)


def _ours(problem: Problem, *, prior: int) -> Deep:
    codec, order = _codec(problem), len(problem.shape)
    channels = codec.in_channels, codec.out_channels
    deep = DEPTH.get(problem.name, 4) > 4
    config = ResidualConfig(
        *channels,
        order=order,
        width=WIDTH.get(problem.name, 32),
        depth=DEPTH.get(problem.name, 4),
        pooling=("mean", "attention") if deep else ("mean",),
        activation="gated",
        dropout=0.1,
        prior=prior,
    )
    steps = STEPS.get(problem.name, 300)
    training = TrainingConfig(
        steps=steps,
        learning_rate=5e-3 if deep else 1e-2,
        # Ratings are noisier than measurements, and learned by heart within a thousand steps.
        weight_decay=1.0 if problem.scale.levels else 0.3,
        average=0.995 if deep else 0.97,
        hide_least=0.05,
        hide_most=0.4,
        evaluate_every=50,
        views=16,
        view_steps=steps // 25,
    )
    return Deep(config, codec, training)


METHODS: Mapping[str, Callable[[Problem], Deep]] = {
    "self-supervised-text": partial(self_supervised, elementwise=False),
    "self-supervised-elements": self_supervised,
    "self-supervised-released": partial(self_supervised, released=True),
    "self-supervised-sampled": self_supervised_sampled,
    "factorized-text": partial(factorized, elementwise=False),
    "factorized-elements": factorized,
    "factorized-released": partial(factorized, released=True),
    "factorized-hiding": factorized_hiding,
    "ours": ours,
    "ours-without-prior": ours_without_prior,
    "ours-with-features": ours_with_features,
    "finetuned": finetuned,
    "finetuned-with-features": finetuned_with_features,
}
