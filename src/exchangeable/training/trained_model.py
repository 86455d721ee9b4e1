"""A trained model as a thing to keep: its weights, its codec, how it came about; saved and loaded.

The folder of a run that is not finished holds the state of its training too, so that it can be
used as it is or gone on with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from exchangeable.arrays.array import FeatureTensors
from exchangeable.errors import InputError
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
"""The fact that says which tables, where these are not one."""
SYNTHETIC = "synthetic tables alone"
ITS_TABLE = "the table that is named above by its fingerprint"

REMOVED_SETTINGS = frozenset({"hidden_share"})
"""Settings in older folders that configurations no longer have; no result depended on them."""

MEMBERS = "members."
"""Begins the names of tensors beside the weights: features of the members of one table."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Weights with all that is needed to use them on any table."""

    config: ModelConfig
    codec: Codec
    model: MemoryModel
    training: TrainingConfig
    name: str
    """What it is called in tables: the recipe's name, or the user's."""
    facts: dict[str, Any]
    """What it was trained on, and how well it did on the validation cells."""

    def check(self, order: int) -> None:
        """Raise unless it can complete tables of this order from a memory."""
        if self.config.order != order:
            raise InputError(
                f"the model was made for tables of {self.config.order} axes, but this one has "
                f"{order}"
            )
        if self.model.literal:
            raise InputError("a model with literal=True answers queries only together")

    def check_features(self, features: FeatureTensors | None) -> None:
        """Raise unless these are as many features of each axis as it was trained with."""
        wanted = self.config.features or (0,) * self.config.order
        came = tuple(0 if f is None else f.shape[1] for f in features or (None,) * len(wanted))
        if came != wanted:
            raise InputError(
                f"the model was trained with {wanted} features of members, by axis, but {came} came"
            )

    def check_feature_names(self, names: Sequence[Sequence[str]]) -> None:
        """Raise unless the model was trained with features of these names, by axis."""
        expected = self.facts.get("features") or []
        if names and not expected:
            raise InputError(
                "the model knows no features of members: residual and factorized are "
                "trained with them"
            )
        listed = [list(axis) for axis in names]
        if listed != expected:
            raise InputError(
                f"the model was trained with features {expected or 'of no member'}, by axis, but "
                f"{listed or 'none'} came"
            )

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """As JSON and as tensors; ``of_parts`` takes them back."""
        kind = next(kind for kind, made in _CONFIGS.items() if isinstance(self.config, made))
        described = {
            "architecture": kind,
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
        """From what ``parts`` gave; anything that does not fit is wrong input."""
        try:
            made = _CONFIGS[described["architecture"]]
            config = made(**_tuples(without_removed(described["model"])))
            model = build(config).eval()
            own = {k: w for k, w in weights.items() if not k.startswith(MEMBERS)}
            model.load_state_dict(own)
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
        """To a folder, in one go; with ``run``, also all that is needed to go on training."""
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
        """From the folder of a model, or of a completer that holds one; on the CPU."""
        stored = checkpoint.load(path)
        described, facts = stored.config, stored.facts
        if described.get("kind") == "completer":
            described = described.get("answerer", {})
            facts = described.get("facts", {})
        if "architecture" not in described:
            raise InputError(f"{path}: a trained model is needed, but this is none")
        return cls.from_parts(described, stored.tensors["model"], facts)

    def with_results(self, run: Run) -> TrainedModel:
        """The same with what a run found in its facts."""
        found: dict[str, Any] = {"steps": run.step, "best step": run.best_step}
        if math.isfinite(run.best_rmse):
            found["validation RMSE"] = run.best_rmse
        return replace(self, facts={**self.facts, **found})

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
            *(_OF_ANY_TABLE if tables == SYNTHETIC else ()),
        ]
        return "\n".join(lines)


_OF_ANY_TABLE = (
    "No real table was trained on, so nobody's data is in the weights, and any scale will do: "
    "levels, real numbers, yes or no. It starts from biases, a variational factorization and what "
    "alike members say, all found in the table itself, and corrects them.",
    "",
    "Good where members have some cells each and tastes that others share: ratings, affinities. "
    "Where hardly anything is known of members it says about what biases say.",
    "",
    "Not good where values have long tails that a logarithm would shorten (take it before), where "
    "time decides, or where only features of members tell something: it knows none. Members that "
    "are chosen because of a value that is not in the table make it as wrong as any other method.",
    "",
)
"""Where a model that was trained on synthetic tables is good, and where it is not."""


def without_removed(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a model's stored settings without those that configurations no longer have."""
    return {name: value for name, value in settings.items() if name not in REMOVED_SETTINGS}


def _tuples(stored: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where configurations have tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
