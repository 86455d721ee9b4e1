"""A trained model: weights, codec, settings and facts about its training; saved and loaded.

The folder of an unfinished run also holds the state of its training: it can be loaded as a model,
or resumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.errors import InputError, option
from exchangeable.models.configs import (
    FactorizedConfig,
    ModelConfig,
    ResidualConfig,
    SelfSupervisedConfig,
    build,
)
from exchangeable.models.memory import MemoryModel
from exchangeable.runtime import checkpoint
from exchangeable.training.config import TrainingConfig
from exchangeable.training.run import Run
from exchangeable.values.codecs import Codec, codec_from_json, codec_to_json

_CONFIGS: dict[str, type[ModelConfig]] = {
    "self-supervised": SelfSupervisedConfig,
    "factorized": FactorizedConfig,
    "residual": ResidualConfig,
}

TRAINED_ON = "trained on"
"""The fact that describes the tables, where there are others than the one trained on last."""
SYNTHETIC = "synthetic tables alone"
ITS_TABLE = "the table that is named above by its fingerprint"

REMOVED_SETTINGS = frozenset({"hidden_share"})
"""Settings in older folders that configurations no longer have; no result depended on them."""

MEMBERS = "members."
"""Prefix of tensors beside the weights: features of the members of one table."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Weights, and all that is needed to use them on a table."""

    config: ModelConfig
    codec: Codec
    model: MemoryModel
    training: TrainingConfig
    name: str
    """Name in tables of results: that of the recipe, or the user's."""
    facts: dict[str, Any]
    """Record of the data that the model was trained on, and its validation error."""

    def check(self, order: int, *, joint: bool) -> None:
        """Raise unless the model can complete tables of this order from a memory."""
        self.check_order(order, joint=joint)
        if self.model.literal:
            raise InputError("a model with literal=True predicts queries only together")

    def check_order(self, order: int, *, joint: bool) -> None:
        """Raise unless the model was made for tables of this order.

        One of joint tables reads no others; the axes of a joint table may be read as two sets.
        """
        if self.config.joint and not joint:
            raise InputError(
                "the model was made for joint tables, whose axes are one set, but the axes of this "
                f"one are two: {option('joint', True)} reads them as one"
            )
        if self.config.order != order:
            raise InputError(
                f"the model was made for tables of {self.config.order} axes, but this one has "
                f"{order}"
            )

    @property
    def prior_reads_features(self) -> bool:
        """Whether the prior reads features of members, so that any may come, or none."""
        return self.model.prior_reads_features

    def check_features(self, features: FeatureTensors | None) -> None:
        """Raise unless each axis has as many features as the model was trained with."""
        if self.prior_reads_features:
            return
        expected = self.config.features or (0,) * self.config.order
        sizes = tuple(0 if f is None else f.shape[1] for f in features or (None,) * len(expected))
        if sizes != expected:
            raise InputError(
                f"the model was trained with {expected} features of members, by axis, but {sizes} "
                f"came"
            )

    def check_feature_names(self, names: Sequence[Sequence[str]]) -> None:
        """Raise unless the model was trained with features of these names, by axis."""
        if self.prior_reads_features:
            return
        expected = self.facts.get("features") or []
        if names and not expected:
            raise InputError("the model takes no features of members: it was trained without any")
        listed = [list(axis) for axis in names]
        if listed != expected:
            raise InputError(
                f"the model was trained with features {expected or 'of no member'}, by axis, but "
                f"{listed or 'none'} came"
            )

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return a JSON description and tensors, for ``from_parts``."""
        architecture = next(key for key, cls in _CONFIGS.items() if isinstance(self.config, cls))
        described = {
            "architecture": architecture,
            "model": asdict(self.config),
            "codec": codec_to_json(self.codec),
            "training": asdict(self.training),
            "name": self.name,
        }
        return described, self.model.state_dict()

    @classmethod
    def from_parts(
        cls, described: dict[str, Any], weights: dict[str, Tensor], facts: dict[str, Any]
    ) -> TrainedModel:
        """Rebuild a model from its parts; raise ``InputError`` if they do not fit together."""
        try:
            config_class = _CONFIGS[described["architecture"]]
            config = config_class(**_tuples(without_removed(described["model"])))
            model = build(config).eval()
            _check_prior(model, weights)
            model.load_state_dict({k: w for k, w in weights.items() if not k.startswith(MEMBERS)})
            return cls(
                config,
                codec_from_json(described["codec"]),
                model,
                TrainingConfig(**described["training"]),
                str(described["name"]),
                facts,
            )
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"the model cannot be rebuilt from its configuration: {reason}"
            ) from None

    def save(self, path: str | Path, *, run: Run | None = None) -> None:
        """Write to a folder, atomically; with ``run``, also all that is needed to resume it."""
        described, weights = self.to_parts()
        tensors = {"model": weights}
        if run is not None:
            tensors["training"], numbers = run.state()
            described["run"] = numbers
        checkpoint.save(
            path, {"kind": "model", **described}, tensors, card=self._card(), facts=self.facts
        )

    @classmethod
    def load(cls, path: str | Path) -> TrainedModel:
        """Load from the folder of a model, or of a completer that holds one; onto the CPU."""
        stored = checkpoint.load(path)
        described, facts = stored.config, stored.facts
        if described.get("kind") == "completer":
            described = described.get("answerer", {})
            facts = described.get("facts", {})
        if "architecture" not in described:
            raise InputError(f"{path}: a trained model is needed, but this is none")
        return cls.from_parts(described, stored.tensors["model"], facts)

    def with_results(self, run: Run) -> TrainedModel:
        """Return the same model with the results of a run among its facts."""
        results: dict[str, Any] = {"steps": run.step, "best step": run.best_step}
        if math.isfinite(run.best_rmse):
            results["validation RMSE"] = run.best_rmse
        return replace(self, facts={**self.facts, **results})

    def _card(self) -> str:
        size = sum(weight.numel() for weight in self.model.parameters())
        tables = self.facts.get(TRAINED_ON, ITS_TABLE)
        lines = [
            f"# {self.name}",
            "",
            f"An exchangeable model of {size:,} weights for tables of {self.config.order} axes, "
            f"with {codec_to_json(self.codec)['encoding']} values. "
            "Load it with `exchangeable.Completer(model=PATH)`.",
            "",
            *[f"- {name}: {value}" for name, value in self.facts.items()],
            "",
            f"It was trained to predict hidden cells of {tables}; "
            "on other tables it may do worse than a bias per member: measure it.",
            "",
            *(_SYNTHETIC_CARD if tables == SYNTHETIC else ()),
        ]
        return "\n".join(lines)


def _check_prior(model: MemoryModel, weights: dict[str, Tensor]) -> None:
    """Raise if a model starts from a prior with other channels than the present one has."""
    expected = model.state_dict()
    other = [
        name for name in expected if name in weights and expected[name].shape != weights[name].shape
    ]
    if model.prior_rank and other and all(name.startswith("layers.0.") for name in other):
        raise InputError(
            "the model starts from the prior of an earlier version, which this one no longer "
            "computes: fit or train it again"
        )


_SYNTHETIC_CARD = (
    "No real table was trained on, so there is no personal data in the weights, and any scale "
    "will do: levels, real numbers, yes or no. The model starts from closed-form models, all "
    "computed from the table itself, and corrects them: biases, factorizations that also read "
    "which cells exist and features of members, drift where cells have times, and the values of "
    "similar members.",
    "",
    "Good where members have some cells each and tastes that others share: ratings, affinities. "
    "For members with hardly any cells its predictions are about those of biases, or of features.",
    "",
    "Not good where values have long tails that a logarithm would shorten (take it before). "
    "Members that are chosen because of a value that is not in the table make it as wrong as any "
    "other method.",
    "",
)
"""Strengths and limits of a model that was trained on synthetic tables."""


def without_removed(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a model's stored settings without those that configurations no longer have."""
    return {name: value for name, value in settings.items() if name not in REMOVED_SETTINGS}


def _tuples(stored: dict[str, Any]) -> dict[str, Any]:
    """Turn the lists of JSON back into the tuples of configurations."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
