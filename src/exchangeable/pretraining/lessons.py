"""Lessons: synthetic tables as examples, drawn ahead of training by other processes.

To draw a table, hide some of its cells and fit a prior to the others takes longer than a step on
it. So tables are kept for a while and used again, rotated so that any of their axes may come
first. Which tables come depends on the seed alone, not on the number of processes.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.support import Support
from exchangeable.models.prior_channels import CHANNELS_PER_AXIS, SHARED_CHANNELS
from exchangeable.pretraining.curriculum import Curriculum
from exchangeable.pretraining.synthetic import SyntheticTable, draw_table
from exchangeable.prior.prior import Prior
from exchangeable.prior.side_information import SideInformation
from exchangeable.training.masking import Example, draw_mask
from exchangeable.values.codecs import ValueStats
from exchangeable.values.scale import Scale

LESSONS_AHEAD = 4
"""Lessons per worker that are drawn before they are needed."""

WITH_HIDDEN_MEMBERS, HIDDEN_MEMBERS = 0.3, (0.03, 0.3)
"""Share of the lessons in which all cells of some members are hidden, and bounds of their share."""

TRAIN, VALIDATE, REPLAY = 0, 1, 2
"""Streams of random numbers beside the seed: lessons to train on, to validate on, and the order
in which earlier ones are used again."""


@dataclass(frozen=True)
class PackedLesson:
    """A lesson as numpy arrays, which can be sent between processes."""

    index: NDArray[np.int32]
    values: NDArray[np.float64]
    shape: tuple[int, ...]
    hide: NDArray[np.bool_]
    prior_values: NDArray[np.float32]
    scale: Scale

    def to_example(self) -> Example:
        support = Support(torch.from_numpy(self.index).long(), self.shape)
        return Example(
            ExchangeableArray.unchecked(support, torch.from_numpy(self.values)[:, None]),
            torch.from_numpy(self.hide),
            torch.from_numpy(self.prior_values),
            ValueStats.of(self.values[~self.hide], self.scale),
        )


def prepare_lesson(curriculum: Curriculum, stream: int, number: int) -> PackedLesson:
    """Draw a table of a stream, hide some of its cells and fit a prior to the others."""
    seed = [curriculum.training.seed, stream, number]
    table = draw_table(seed, curriculum.model.order, curriculum.cells)
    support = Support(torch.from_numpy(table.index), table.shape)
    cells = ExchangeableArray.unchecked(support, torch.from_numpy(table.values)[:, None])
    rng = np.random.default_rng([*seed, 1])
    hide = draw_mask(support, curriculum.training, rng)
    if rng.random() < WITH_HIDDEN_MEMBERS:
        hide |= _draw_hidden_members(support, rng)
    if hide.all():  # something must be observed
        hide[0] = False
    stats = ValueStats.of(table.values[~hide.numpy()], table.scale)
    config, side = curriculum.model, _side_information(table)
    seen = side.take(~hide)
    prior = Prior.of(cells.take(~hide), stats, config.prior, config.compared, seen)
    index, prior_values = table.index.astype(np.int32), prior(support.index, side.times).numpy()
    return PackedLesson(index, table.values, table.shape, hide.numpy(), prior_values, table.scale)


def _draw_hidden_members(support: Support, rng: np.random.Generator) -> Tensor:
    """Draw members of one axis whose cells are all hidden: a mask (E,)."""
    axis = int(rng.integers(support.order))
    members = rng.random(support.shape[axis]) < rng.uniform(*HIDDEN_MEMBERS)
    return torch.from_numpy(members)[support.index[:, axis]]


def _side_information(table: SyntheticTable) -> SideInformation:
    times = None if table.times is None else torch.from_numpy(table.times)
    features = tuple(None if f is None else torch.from_numpy(f) for f in table.features)
    return SideInformation(times, features if any(f is not None for f in features) else None)


def draw_lessons(
    curriculum: Curriculum, stream: int, first: int, last: int, workers: int
) -> Iterator[Example]:
    """Yield the lessons of a stream from number ``first`` to before ``last``, in order."""
    if not workers:
        for number in range(first, last):
            yield prepare_lesson(curriculum, stream, number).to_example()
        return
    pending: deque[Future[PackedLesson]] = deque()
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_start_worker)
    try:
        for number in range(first, last):
            pending.append(pool.submit(prepare_lesson, curriculum, stream, number))
            if len(pending) > LESSONS_AHEAD * workers:
                yield pending.popleft().result().to_example()
        while pending:
            yield pending.popleft().result().to_example()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def schedule(curriculum: Curriculum, step: int, workers: int) -> Iterator[Example]:
    """Yield the lessons of all steps from ``step`` on: new tables, and earlier ones rotated."""
    visits, steps = curriculum.visits, curriculum.training.steps
    newest = step // visits
    first = max(0, newest + 1 - curriculum.kept)
    kept: deque[Example] = deque(maxlen=curriculum.kept)
    new_lessons = draw_lessons(curriculum, TRAIN, first, -(-steps // visits), workers)
    for number, lesson in enumerate(new_lessons, start=first):
        kept.append(lesson)
        while number >= newest and step < min((number + 1) * visits, steps):
            generator = np.random.default_rng([curriculum.training.seed, REPLAY, step])
            back = int(generator.integers(len(kept))) if step % visits else 0
            yield rotate_axes(kept[-1 - back], int(generator.integers(curriculum.model.order)))
            step += 1


def rotate_axes(example: Example, by: int) -> Example:
    """Return the same table with another axis first and the others after it in turn."""
    cells, prior_values = example.cells, example.prior_values
    assert prior_values is not None
    order = cells.order
    axes = [(by + axis) % order for axis in range(order)]
    shared, others = prior_values[:, :SHARED_CHANNELS], prior_values[:, SHARED_CHANNELS:]
    by_axis = others.unflatten(1, (order, CHANNELS_PER_AXIS))[:, axes].flatten(1)
    support = Support(cells.support.index[:, axes], tuple(cells.shape[a] for a in axes))
    return example._replace(
        cells=ExchangeableArray.unchecked(support, cells.values),
        prior_values=torch.cat([shared, by_axis], dim=1),
    )


def _start_worker() -> None:
    """Use one thread, and leave signals to the training process, which ends its workers."""
    torch.set_num_threads(1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
