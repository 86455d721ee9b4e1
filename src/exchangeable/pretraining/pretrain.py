"""Pretraining: train a model on synthetic tables alone, one table in each step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from exchangeable.models.configs import build
from exchangeable.models.memory import MemoryModel
from exchangeable.pretraining.curriculum import Curriculum
from exchangeable.pretraining.lessons import VALIDATE, draw_lessons, schedule
from exchangeable.runtime.devices import autocast
from exchangeable.training.cuda_graph import CapturedStep
from exchangeable.training.execution import Execution
from exchangeable.training.masking import Example
from exchangeable.training.run import Run
from exchangeable.training.train_model import finish_run, resume_run
from exchangeable.training.trained_model import SYNTHETIC, TRAINED_ON, TrainedModel
from exchangeable.values.codecs import Codec, ScaleFree, encoder

MIN_RMSE = 1e-9
"""Lower bound of an error, so that errors can be divided and their logarithms taken."""


def pretrain(curriculum: Curriculum, execution: Execution) -> TrainedModel:
    """Pretrain a model in the execution's folder, or resume the run that is there."""
    config, training = curriculum.model, curriculum.training
    run = Run.start(build(config, training.seed).to(execution.device), training)
    facts = _describe(curriculum)
    trained = TrainedModel(config, ScaleFree(), run.best, training, "pretrained", facts)
    finished = resume_run(trained, run, execution)
    if finished is not None:
        return finished
    return finish_run(trained, run, LessonSource(run, curriculum, execution.workers), execution)


@dataclass(eq=False)
class LessonSource:
    """The lessons of a curriculum, as examples of a run."""

    run: Run
    curriculum: Curriculum
    workers: int
    codec: Codec = field(default_factory=ScaleFree, init=False)
    captured: CapturedStep | None = field(default=None, init=False)
    # On tables that it is never trained on, the model improves to the end.
    keep_last: bool = field(default=True, init=False)
    preparation: str = field(default="drawing the validation tables", init=False)
    validation: list[Example] = field(default_factory=list, init=False)

    @property
    def cells(self) -> int:
        return self.curriculum.cells

    def prepare(self, execution: Execution) -> None:
        lessons = draw_lessons(self.curriculum, VALIDATE, 0, self.curriculum.judged, self.workers)
        self.validation = [lesson.to(self.run.device) for lesson in lessons]

    def __iter__(self) -> Iterator[Example]:
        for lesson in schedule(self.curriculum, self.run.step, self.workers):
            yield lesson.to(self.run.device)

    def validate(self, model: MemoryModel, execution: Execution) -> float:
        """Return the RMSE relative to that of the prior, its geometric mean over all tables."""
        total = 0.0
        for lesson in self.validation:
            total += math.log(relative_error(model, lesson))
        return math.exp(total / len(self.validation))


@torch.no_grad()
def relative_error(model: MemoryModel, example: Example) -> float:
    """Return the RMSE on the hidden cells over that of the prior's predictions."""
    codec, stats = ScaleFree(), example.stats
    truth = example.cells.values[example.hide].squeeze(1).double()
    with autocast(truth.device, "auto"):
        outputs = model.predict_hidden(
            example.cells,
            example.hide,
            encode=encoder(codec, stats),
            prior_values=example.prior_values,
        )
    # The last two channels are the prior's; the others correct them.
    uncorrected = torch.cat([torch.zeros_like(outputs[:, :-2]), outputs[:, -2:]], dim=1)
    errors, prior_errors = (
        codec.read(part.double(), stats).mean() - truth for part in (outputs, uncorrected)
    )
    return _rmse(errors) / _rmse(prior_errors)


def _rmse(errors: Tensor) -> float:
    return max(float(errors.square().mean().sqrt()), MIN_RMSE)


def _describe(curriculum: Curriculum) -> dict[str, Any]:
    settings = json.loads(json.dumps(asdict(curriculum)))  # as it is when read back
    return {TRAINED_ON: SYNTHETIC, "curriculum": settings}
