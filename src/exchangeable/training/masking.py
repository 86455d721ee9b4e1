"""The examples of a table: which cells a step sees, and which of these it hides.

Without a prior both are drawn anew at each step. A prior that had seen the hidden cells would give
them away, and fitting one takes as long as many steps. So with a prior a few mask sets take turns;
it is fitted to the cells that each leaves, and now and then a new set replaces the oldest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.cells import Floats
from exchangeable.arrays.support import Support
from exchangeable.models.memory import MemoryModel
from exchangeable.models.prior_fit import fit_prior
from exchangeable.runtime.devices import autocast
from exchangeable.runtime.random import hashed_uniform
from exchangeable.training.config import TrainingConfig
from exchangeable.training.cuda_graph import CapturedStep, can_capture
from exchangeable.training.execution import Execution
from exchangeable.training.run import Run
from exchangeable.training.samplers import (
    Conditional,
    Full,
    Neighbourhood,
    RowsColumns,
    Sampler,
    UniformCells,
)
from exchangeable.training.task import Task
from exchangeable.training.validation import ValidationSet, validation_rmse, validation_sets
from exchangeable.values.codecs import Codec, ValueStats

_FANOUT = 25
_SURELY_SOME = 64
_TRIED_SAMPLES = 10


class Example(NamedTuple):
    """The cells of one step, some of which are hidden and predicted from the others."""

    cells: ExchangeableArray
    hide: Tensor  # (E,)
    prior_values: Tensor | None
    """Predictions for all cells of a prior that was fitted to those that are not hidden."""
    stats: ValueStats
    features: FeatureTensors | None = None

    def to(self, device: torch.device) -> Example:
        moved = None if self.prior_values is None else self.prior_values.to(device)
        features = self.features
        if features is not None:
            features = tuple(None if f is None else f.to(device) for f in features)
        return Example(self.cells.to(device), self.hide.to(device), moved, self.stats, features)


@dataclass(eq=False)
class ExampleSource:
    """The examples of one table, drawn by a run, and its validation cells."""

    run: Run
    codec: Codec
    task: Task
    mask_sets: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)
    """The hidden cells and prior values of the sets in use, by the keys they are drawn from."""
    captured: CapturedStep | None = field(default=None, init=False)
    keep_last: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.task = self.task.to(self.run.device)
        self.sampler = make_sampler(self.task.observed.support, self.run.config)
        self._validation: list[ValidationSet] = []

    @property
    def cells(self) -> int:
        return len(self.task.observed)

    @property
    def preparation(self) -> str:
        has_prior = self.run.model.prior_rank
        return "fitting the factorization that cells start from" if has_prior else ""

    def prepare(self, execution: Execution) -> None:
        if self._can_capture(execution):
            self.captured = self._capture(execution)
        if len(self.task.validation):
            self._validation = validation_sets(self.run.model, self.task, self.run.config)

    def validate(self, model: MemoryModel, execution: Execution) -> float | None:
        """Return the RMSE on the validation cells, averaged over the shares of cells shown."""
        if not self._validation:
            return None
        errors = [validation_rmse(model, self.codec, *each, execution) for each in self._validation]
        return sum(errors) / len(errors)

    def __iter__(self) -> Iterator[Example]:
        run, observed = self.run, self.task.observed
        while True:
            if not run.model.prior_rank:
                batch = draw_batch(observed, self.sampler, run.draws)
                cells = observed if batch is None else observed.take(batch)
                yield self._example(cells, draw_mask(cells.support, run.config, run.draws), None)
                continue
            hide, prior_values = self._choose_mask_set()
            batch = draw_batch(observed, self.sampler, run.draws, hide)
            if batch is None:
                yield self._example(observed, hide, prior_values)
            else:
                yield self._example(observed.take(batch), hide[batch], prior_values[batch])

    def _example(
        self, cells: ExchangeableArray, hide: Tensor, prior_values: Tensor | None
    ) -> Example:
        features = self.task.features_for(self.run.model)
        return Example(cells, hide, prior_values, self.task.stats, features)

    def _choose_mask_set(self) -> tuple[Tensor, Tensor]:
        """Return one of the mask sets in use, after a new one has joined where it is due."""
        run, config = self.run, self.run.config
        if run.step % config.view_steps == 0 or not run.views:
            run.views = [*run.views, int(run.draws.integers(2**63))][-config.views :]
        key = run.views[int(run.draws.integers(len(run.views)))]
        for old in set(self.mask_sets) - set(run.views):
            del self.mask_sets[old]
        if key not in self.mask_sets:
            self.mask_sets[key] = self._make_mask_set(key)
        return self.mask_sets[key]

    def _make_mask_set(self, key: int) -> tuple[Tensor, Tensor]:
        """Draw hidden cells from a key, and predict all cells by a prior that sees the others."""
        observed = self.task.observed
        mask = draw_mask(observed.support, self.run.config, np.random.default_rng(key))
        side = self.task.side
        seen = observed.take(~mask)
        prior = fit_prior(self.run.model, seen, self.task.stats, side.take(~mask))
        assert prior is not None
        return mask, prior(observed.support.index, side.times)

    def _can_capture(self, execution: Execution) -> bool:
        """Whether all steps are over the same cells at once, on a GPU."""
        whole = isinstance(self.sampler, Full) and execution.plan is None
        # With nothing hidden, queried cells write, which only the literal form allows.
        whole = whole and (self.run.config.hide != "nothing" or self.run.model.literal)
        alone = execution.processes.size == 1
        return whole and alone and can_capture(self.run.model, self.task.observed)

    def _capture(self, execution: Execution) -> CapturedStep:
        return CapturedStep(
            self.run,
            self.codec,
            self.task,
            lambda: autocast(self.run.device, execution.precision),
        )


def draw_mask(support: Support, config: TrainingConfig, generator: np.random.Generator) -> Tensor:
    """Draw which cells to hide and predict: a mask with at least one, (E,)."""
    if config.hide == "nothing":  # all are predicted, from themselves
        return torch.ones(len(support), dtype=torch.bool, device=support.index.device)
    ways = ("flat", "rows", "columns") if config.hide == "mixed" else (config.hide,)
    way, device = ways[int(generator.integers(len(ways)))], support.index.device
    if way == "flat":
        shares: Tensor | float = float(_draw_shares(config, generator, 1)[0])
    else:
        axis = 0 if way == "rows" else support.order - 1
        by_member = _draw_shares(config, generator, support.shape[axis])
        drawn = torch.from_numpy(by_member.astype(np.float32))
        if device.type == "cuda":  # from pinned memory a copy waits for no earlier step
            drawn = drawn.pin_memory()
        shares = drawn.to(device, non_blocking=True)[support.index[:, axis]]
    mask = hashed_uniform(len(support), int(generator.integers(2**63)), device) < shares
    # Looking waits for the device, and in a large table there is always one: with 64 expected, the
    # chance of none is e^-64.
    if len(support) * config.hide_least < _SURELY_SOME and not mask.any():
        mask[int(generator.integers(len(support)))] = True
    return mask


def _draw_shares(config: TrainingConfig, generator: np.random.Generator, count: int) -> Floats:
    """Draw shares of cells to hide: (count,)."""
    least, most = config.hide_least, config.hide_most
    if config.hide_scale == "even":
        return generator.uniform(least, most, count)
    return 1 - np.exp(generator.uniform(np.log(1 - most), np.log(1 - least), count))


def make_sampler(support: Support, config: TrainingConfig) -> Sampler:
    """Make the sampler of a configuration; it draws the same share of the members of each axis."""
    if config.batch == "full" or config.batch_cells >= len(support):
        return Full(support)
    if config.batch == "uniform":
        return UniformCells(support, config.batch_cells)
    if config.batch == "neighbourhood":
        each = 1 + support.order * _FANOUT
        return Neighbourhood(support, max(config.batch_cells // each, 1), fanout=_FANOUT)
    if config.batch == "conditional":
        return _conditional(support, config.batch_cells)
    share = (config.batch_cells / len(support)) ** (1 / support.order)
    return RowsColumns(support, _sizes(support, share))


def _conditional(support: Support, cells: int) -> Conditional:
    """Make the sampler whose samples have about so many cells.

    It draws members by their number of cells, so that samples have far more of them than the
    shares of members say: they are tried.
    """
    low, high, generator = 0.0, 1.0, np.random.default_rng(0)
    for _ in range(_TRIED_SAMPLES):
        share = (low + high) / 2
        drawn = len(Conditional(support, _sizes(support, share)).draw(generator))
        low, high = (share, high) if drawn < cells else (low, share)
    return Conditional(support, _sizes(support, (low + high) / 2))


def _sizes(support: Support, share: float) -> tuple[int, ...]:
    return tuple(max(1, round(share * size)) for size in support.shape)


def draw_batch(
    observed: ExchangeableArray,
    sampler: Sampler,
    generator: np.random.Generator,
    hide: Tensor | None = None,
) -> Tensor | None:
    """Draw a mask of the cells that a step sees, one of ``hide`` among them; None for all."""
    if isinstance(sampler, Full):
        return None
    device = observed.values.device
    while True:  # members drawn at random may have no cell where they meet
        mask = torch.zeros(len(observed), dtype=torch.bool)
        mask[torch.from_numpy(sampler.draw(generator))] = True
        mask = mask.to(device)
        if bool((mask if hide is None else mask & hide).any()):
            return mask
