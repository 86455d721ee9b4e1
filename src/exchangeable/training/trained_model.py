"""A trained model as a thing to keep: its weights, its codec, how it came about; saved and loaded.

The folder of a run that is not finished holds the state of its training too, so that it can be
used as it is or gone on with.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from exchangeable.errors import InputError
from exchangeable.models.configs import FactorizedConfig, ResidualConfig, SelfSupervisedConfig
from exchangeable.models.memory import MemoryModel
from exchangeable.nn.layers import Features
from exchangeable.runtime import checkpoint
from exchangeable.runtime.devices import Precision
from exchangeable.runtime.interruption import Interrupted
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.training.config import TrainingConfig
from exchangeable.training.loop import How, Run, RunProgress, Task, train
from exchangeable.training.plan import plan_step
from exchangeable.training.recipes import ModelConfig, build
from exchangeable.values.codecs import Codec, codec_of_json, codec_to_json

_CONFIGS: dict[str, type[ModelConfig]] = {
    "self-supervised": SelfSupervisedConfig,
    "factorized": FactorizedConfig,
    "residual": ResidualConfig,
}

TRAINED_ON = "trained on"
"""The fact that says which tables, where these are not one."""
SYNTHETIC = "synthetic tables alone"
ITS_TABLE = "the table that is named above by its fingerprint"

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

    def check_features(self, features: Features | None) -> None:
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
                "the model knows no features of members: self-supervised and factorized are "
                "trained with them"
            )
        listed = [list(axis) for axis in names]
        if listed != expected:
            raise InputError(
                f"the model was trained with features {expected or 'of no member'}, by axis, but "
                f"{listed or 'none'} came"
            )

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
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
    def of_parts(
        cls, described: dict[str, Any], weights: dict[str, Tensor], facts: dict[str, Any]
    ) -> TrainedModel:
        """From what ``parts`` gave; anything that does not fit is wrong input."""
        try:
            made = _CONFIGS[described["architecture"]]
            config = made(**_tuples(described["model"]))
            model = build(config).eval()
            own = {k: w for k, w in weights.items() if not k.startswith(MEMBERS)}
            model.load_state_dict(own)
            return cls(
                config,
                codec_of_json(described["codec"]),
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
        described, weights = self.parts()
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
        return cls.of_parts(described, stored.tensors["model"], facts)

    def told(self, run: Run) -> TrainedModel:
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


@dataclass(frozen=True)
class Execution:
    """How a run is carried out. Only device and precision have a say in what comes out."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: Precision = "auto"
    folder: Path | None = None
    """Where the run is saved at intervals and at the end."""
    save_every: float = 60.0
    """Seconds between two savings."""
    memory: int | None = None
    """Bytes that may be taken; none: most of what is free."""
    processes: Processes = ALONE
    """Which processes share the cells; the first of them saves."""
    report: Callable[[RunProgress], None] | None = None
    say: Callable[[str], None] = lambda sentence: None
    """What there is to be told, in sentences."""


def train_model(
    config: ModelConfig,
    codec: Codec,
    task: Task,
    training: TrainingConfig,
    *,
    name: str,
    facts: dict[str, Any],
    execution: Execution,
    start: TrainedModel | None = None,
    resume: bool = False,
) -> TrainedModel:
    """Train from random weights, or from those of ``start``, or go on where a folder stands."""
    facts = {**facts, "task": fingerprint_of(task), "precision": execution.precision}
    model = build(config, training.seed) if start is None else copy.deepcopy(start.model)
    run = Run.start(model.to(execution.device), training)
    trained = TrainedModel(config, codec, run.best, training, name, facts)
    if resume:
        before = _standing(trained, execution)
        _check_together(before, execution.processes)
        if isinstance(before, TrainedModel):
            return before
        if before is not None:
            run.restore(*before)
    cells = len(task.observed)
    seen = cells if training.batch == "full" else min(cells, training.batch_cells)
    plan, sentence = plan_step(
        run.model,
        codec,
        task.to(execution.device),
        seen,
        execution.memory,
        execution.precision,
    )
    execution.say(sentence)

    def save(unfinished: Run) -> None:
        assert execution.folder is not None
        trained.told(unfinished).save(execution.folder, run=unfinished)

    try:
        train(
            run,
            codec,
            task,
            training,
            how=How(execution.precision, plan, execution.processes),
            report=execution.report,
            save=None if execution.folder is None or not execution.processes.first else save,
            save_every=execution.save_every,
        )
    except Interrupted as stopped:
        kept = "nothing was saved" if execution.folder is None else f"saved in {execution.folder}"
        raise Interrupted(f"{stopped}; {kept}") from None
    finished = trained.told(run)
    if execution.folder is not None and execution.processes.first:
        finished.save(execution.folder)
    return finished


def _standing(
    wanted: TrainedModel, execution: Execution
) -> TrainedModel | tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Where the run in a folder stands: finished, somewhere, or not there."""
    folder = execution.folder
    if folder is None:
        raise InputError("a run is resumed from its folder, but none was given")
    if not checkpoint.exists(folder):
        execution.say(f"there is no run in {folder} yet: this is its start")
        return None
    stored = checkpoint.load(folder)
    described, _ = wanted.parts()
    for part in described:
        # What was saved went through JSON, where tuples are lists.
        if stored.config.get(part) != json.loads(json.dumps(described[part])):
            raise InputError(
                f"{folder}: a run can be resumed with the settings it was started with, but its "
                f"{part} differs"
            )
    for part, told in {"data": "cells", "task": "validation cells or features"}.items():
        if stored.facts.get(part) != wanted.facts.get(part):
            raise InputError(f"{folder}: the run was started with other {told} than these")
    if stored.facts.get("precision") != wanted.facts["precision"]:
        raise InputError(f"{folder}: the run was started in another precision")
    if "run" not in stored.config:
        execution.say(f"the run in {folder} is finished already")
        return TrainedModel.load(folder)
    execution.say(f"going on in {folder} after step {stored.config['run']['step']:,}")
    return stored.tensors["training"], stored.config["run"]


def _check_together(
    before: TrainedModel | tuple[dict[str, Tensor], dict[str, Any]] | None, processes: Processes
) -> None:
    """Raise unless all processes found the same run, or none: they would wait for each other."""
    if isinstance(before, TrainedModel):
        step = -2.0
    else:
        step = -1.0 if before is None else float(before[1]["step"])
    here = torch.tensor([step, -step])
    (most,) = processes.largest([here.to(processes.home)])
    if float(most[0]) != -float(most[1]):
        raise InputError("every process must see the same folder to resume, but they differ")


def fingerprint_of(task: Task) -> str:
    """Of all that is trained on and judged by."""
    parts = [task.observed, task.validation]
    tensors = [t for part in parts for t in (part.support.index, part.values)]
    tensors += [f for f in task.features or () if f is not None]
    return checkpoint.fingerprint(*[tensor.cpu().numpy() for tensor in tensors])


def _tuples(stored: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where configurations have tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
