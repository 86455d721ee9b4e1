"""Pretraining: a model learns from synthetic tables alone.

A step is about one table. Other processes draw it, hide some of its cells and find what closed-form
methods say of all from those that are left; the model learns to say more. That takes them longer
than a step, so tables are kept for a while, and come again, turned so that any of their axes may be
the first. Which tables come is told by the seed, however many processes draw them.
"""

from __future__ import annotations

import json
import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.support import Support
from exchangeable.errors import InputError
from exchangeable.models.configs import ResidualConfig, build
from exchangeable.models.memory import ANCHOR, KNOWN_OF_AN_AXIS, MemoryModel
from exchangeable.models.prior import Prior
from exchangeable.pretraining.synthetic import draw
from exchangeable.runtime import checkpoint
from exchangeable.runtime.devices import autocast
from exchangeable.runtime.interruption import Interrupted, clear_about_memory, stoppable
from exchangeable.runtime.threads import threads_for
from exchangeable.training.config import TrainingConfig
from exchangeable.training.examples import Example
from exchangeable.training.loop import How, take_step
from exchangeable.training.masking import hidden
from exchangeable.training.run import Run, RunProgress
from exchangeable.training.task import Task
from exchangeable.training.trained_model import SYNTHETIC, TRAINED_ON, TrainedModel
from exchangeable.values.codecs import ScaleFree, ValueStats, encoder
from exchangeable.values.scale import Scale

AHEAD = 4
"""Tables per process that are drawn before they are needed."""

LEARNED, JUDGED, AGAIN = 0, 1, 2
"""What is drawn, beside the seed: tables to learn from, to be judged by, and which come again."""


@dataclass(frozen=True)
class Curriculum:
    """What a model is pretrained with: weights are a function of this."""

    model: ResidualConfig
    training: TrainingConfig
    cells: int = 12_000
    """Of a table, at most."""
    visits: int = 10
    """Steps for each new table: one is about it, the others about some that are kept."""
    kept: int = 1500
    """Tables that may come again."""
    judged: int = 100
    """Tables that the model is judged by, and never learns from."""

    def __post_init__(self) -> None:
        for name in _OWN:
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, but is {getattr(self, name)}")


_OWN = ("cells", "visits", "kept", "judged")


def curriculum(*, seed: int = 0, **changed: Any) -> Curriculum:
    """One that does well on real tables; ``changed`` are settings of it by name."""
    codec = ScaleFree()
    model = ResidualConfig(
        codec.in_channels,
        codec.out_channels,
        width=32,
        depth=4,
        pooling=("mean",),
        activation="gated",
        dropout=0.0,
        prior=12,
        compared=24_000_000_000,
    )
    training = TrainingConfig(
        steps=80_000,
        learning_rate=1e-3,
        warm_up=0.02,
        weight_decay=0.1,
        average=0.999,
        loss="relative",
        squared_weight=1.0,
        hide_least=0.1,
        hide_most=0.5,
        evaluate_every=2000,
        seed=seed,
    )
    plan = Curriculum(model, training)
    try:
        for name, value in changed.items():
            plan = _changed(plan, name, value)
    except ValueError as wrong:  # a configuration says what is wrong with it
        raise InputError(str(wrong)) from wrong
    return plan


def _changed(plan: Curriculum, name: str, value: Any) -> Curriculum:
    """With one setting of it, of its model or of how that is trained, replaced."""
    if name in _OWN:
        return replace(plan, **{name: value})
    for part in ("model", "training"):
        own = getattr(plan, part)
        if hasattr(own, name):
            return replace(plan, **{part: replace(own, **{name: value})})
    raise InputError(f"a curriculum has no setting {name!r}")


class Lesson(NamedTuple):
    """A table, some of whose cells are hidden, and what is known of all from the others."""

    shown: Example
    reference: ValueStats

    def to(self, device: torch.device) -> Lesson:
        cells, hide, known = self.shown
        assert known is not None
        return self._replace(shown=Example(cells.to(device), hide.to(device), known.to(device)))

    def turned(self, by: int) -> Lesson:
        """The same table with another axis first, the others after it in turn."""
        cells, hide, known = self.shown
        assert known is not None
        order = cells.order
        axes = [(by + axis) % order for axis in range(order)]
        said = known[:, ANCHOR:].unflatten(1, (order, KNOWN_OF_AN_AXIS))[:, axes].flatten(1)
        support = Support(cells.support.index[:, axes], tuple(cells.shape[a] for a in axes))
        turned = ExchangeableArray.unchecked(support, cells.values)
        return self._replace(
            shown=Example(turned, hide, torch.cat([known[:, :ANCHOR], said], dim=1))
        )


# Lessons ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackedLesson:
    """A lesson as arrays, which pass from one process to another."""

    index: NDArray[np.int32]
    values: NDArray[np.float64]
    shape: tuple[int, ...]
    hide: NDArray[np.bool_]
    known: NDArray[np.float32]
    scale: Scale

    def lesson(self) -> Lesson:
        support = Support(torch.from_numpy(self.index).long(), self.shape)
        cells = ExchangeableArray.unchecked(support, torch.from_numpy(self.values)[:, None])
        shown = Example(cells, torch.from_numpy(self.hide), torch.from_numpy(self.known))
        return Lesson(shown, ValueStats.of(self.values[~self.hide], self.scale))


def prepared(plan: Curriculum, stream: int, number: int) -> PackedLesson:
    """One table of a stream: drawn, partly hidden, and what a prior says of it."""
    seed = [plan.training.seed, stream, number]
    table = draw(seed, plan.model.order, plan.cells)
    support = Support(torch.from_numpy(table.index), table.shape)
    cells = ExchangeableArray.unchecked(support, torch.from_numpy(table.values)[:, None])
    hide = hidden(support, plan.training, np.random.default_rng([*seed, 1]))
    if hide.all():  # something must be seen
        hide[0] = False
    reference = ValueStats.of(table.values[~hide.numpy()], table.scale)
    prior = Prior.of(cells.take(~hide), reference, plan.model.prior, plan.model.compared)
    index, known = table.index.astype(np.int32), prior(support.index).numpy()
    return PackedLesson(index, table.values, table.shape, hide.numpy(), known, table.scale)


def lessons(plan: Curriculum, stream: int, first: int, last: int, workers: int) -> Iterator[Lesson]:
    """Those of a stream from one number to another, in order."""
    if not workers:
        yield from (prepared(plan, stream, number).lesson() for number in range(first, last))
        return
    waiting: deque[Future[PackedLesson]] = deque()
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_work)
    try:
        for number in range(first, last):
            waiting.append(pool.submit(prepared, plan, stream, number))
            if len(waiting) > AHEAD * workers:
                yield waiting.popleft().result().lesson()
        while waiting:
            yield waiting.popleft().result().lesson()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def course(plan: Curriculum, step: int, workers: int) -> Iterator[Lesson]:
    """The lessons of all steps from this one on: new tables, and kept ones from any side."""
    visits, steps = plan.visits, plan.training.steps
    newest = step // visits
    first = max(0, newest + 1 - plan.kept)
    kept: deque[Lesson] = deque(maxlen=plan.kept)
    drawn = lessons(plan, LEARNED, first, -(-steps // visits), workers)
    for number, lesson in enumerate(drawn, start=first):
        kept.append(lesson)
        while number >= newest and step < min((number + 1) * visits, steps):
            generator = np.random.default_rng([plan.training.seed, AGAIN, step])
            back = int(generator.integers(len(kept))) if step % visits else 0
            yield kept[-1 - back].turned(int(generator.integers(plan.model.order)))
            step += 1


def _work() -> None:
    """One thread each; who stops the whole stops the first process, which ends the others."""
    torch.set_num_threads(1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


# Learning --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Circumstances:
    """How pretraining is carried out, which has no say in what comes out but for rounding."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    workers: int = 0
    """Processes that draw tables beside the one that learns; 0: it draws them itself."""
    save_every: float = 60.0
    """Seconds between two savings."""
    seconds: float = math.inf
    """After which it stops, saved, to be gone on with."""
    report: Callable[[RunProgress], None] | None = None


def pretrain(plan: Curriculum, folder: str | Path, how: Circumstances) -> TrainedModel:
    """Learn to the end, or go on where the folder stands."""
    codec = ScaleFree()
    run = Run.start(build(plan.model, plan.training.seed).to(how.device), plan.training)
    trained = TrainedModel(plan.model, codec, run.best, plan.training, "pretrained", _facts(plan))
    if checkpoint.exists(folder):
        before = checkpoint.load(folder)
        if before.facts.get("curriculum") != trained.facts["curriculum"]:
            raise InputError(f"{folder}: the model there was begun with other settings")
        if "run" not in before.config:
            return TrainedModel.load(folder)
        run.restore(before.tensors["training"], before.config["run"])

    def save() -> None:
        trained.told(run).save(folder, run=run)

    with stoppable() as asked_to_stop, clear_about_memory(), threads_for(plan.cells, how.device):
        _learn(run, plan, how, save, asked_to_stop)
    finished = trained.told(run)
    finished.save(folder)
    return finished


def _learn(
    run: Run,
    plan: Curriculum,
    how: Circumstances,
    save: Callable[[], None],
    asked_to_stop: Callable[[], bool],
) -> None:
    config, codec, device = plan.training, ScaleFree(), how.device
    if how.report is not None:  # tables to be judged by come first, which takes a while
        how.report(RunProgress(run.step, config.steps, math.nan, None, None, 0.0, math.nan))
    judges = [one.to(device) for one in lessons(plan, JUDGED, 0, plan.judged, how.workers)]
    started = saved = time.perf_counter()
    first, cells = run.step, 0
    if run.step == 0 and not run.history:
        run.judge(_judged(run, judges), loss=0.0)
    for lesson in course(plan, run.step, how.workers):
        shown, reference = lesson.to(device)
        task = Task(shown.cells, shown.cells, reference)
        loss = take_step(run, codec, task, shown, config, How())
        run.step += 1
        run.average(config.average)
        cells += len(shown.cells)
        if run.step % config.evaluate_every == 0 or run.step == config.steps:
            run.judge(_judged(run, judges), loss)
        now = time.perf_counter()
        if how.report is not None:
            taken = (now - started) / (run.step - first)
            last = run.history[-1]["validation_rmse"] if run.history else None
            left = (config.steps - run.step) * taken
            how.report(
                RunProgress(
                    run.step, config.steps, loss, last, run.best_rmse,
                    cells / (now - started), left,
                )
            )  # fmt: skip
        stopping = asked_to_stop() or now - started > how.seconds
        if stopping or now - saved > how.save_every:
            save()
            saved = now
        if stopping:
            raise Interrupted(f"stopped after step {run.step:,} of {config.steps:,}, saved")
    # Judged by tables that it never learns from, it gets better to the end: the last weights it is.
    run.best.load_state_dict(run.averaged.state_dict())
    run.best_step, run.best_rmse = run.step, run.history[-1]["validation_rmse"]


def _judged(run: Run, judges: list[Lesson]) -> float:
    """RMSE on hidden cells as a share of that of the prior, the geometric mean over tables."""
    total = 0.0
    for shown, reference in judges:
        total += math.log(error_of(run.averaged, shown, reference))
    return math.exp(total / len(judges))


@torch.no_grad()
def error_of(model: MemoryModel, shown: Example, reference: ValueStats) -> float:
    """RMSE of the hidden cells, over that of the prior's own answers."""
    codec, known = ScaleFree(), shown.known
    assert known is not None
    truth = shown.cells.values[shown.hide].squeeze(1).double()
    with autocast(truth.device, "auto"):
        encode = encoder(codec, reference)
        outputs = model.predict_hidden(shown.cells, shown.hide, encode=encode, known=known)
    none = torch.cat([torch.zeros_like(outputs[:, :-2]), outputs[:, -2:]], dim=1)
    mine, before = (codec.read(part.double(), reference).mean() - truth for part in (outputs, none))
    return _size(mine) / _size(before)


def _size(errors: Tensor) -> float:
    return max(float(errors.square().mean().sqrt()), 1e-9)


def _facts(plan: Curriculum) -> dict[str, Any]:
    told = json.loads(json.dumps(asdict(plan)))
    return {TRAINED_ON: SYNTHETIC, "curriculum": told}
