"""Who answers for the cells of a table: a baseline that was fitted, or a model with its memory.

Both take coordinates and give distributions. A member that is not known has the coordinate
``UNKNOWN``: its cell gets the answer of its other axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.arrays.support import Support
from exchangeable.baselines import BASELINES
from exchangeable.baselines.base import Baseline, FittedBaseline
from exchangeable.errors import InputError
from exchangeable.models.memory import Memory
from exchangeable.models.prior import Prior, fit_prior
from exchangeable.nn.blocks import FactorLayer
from exchangeable.nn.pooling import read_mean
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.training.loop import READ_AT_ONCE
from exchangeable.training.plan import plan_reading
from exchangeable.training.trained_model import MEMBERS, TrainedModel
from exchangeable.values.calibration import UNCALIBRATED, Calibration
from exchangeable.values.codecs import ValueStats, encoder
from exchangeable.values.distributions import Distribution, Normal
from exchangeable.values.scale import Scale

READ_TOGETHER = 2**14
"""Cells whose whole distributions are held at a time: on a scale of 101 levels 50 MB."""


def read_predictions(
    predictor: Predictor, index: Index, *wanted: Callable[[Distribution], Tensor]
) -> list[Floats]:
    """What is wanted of the answers for cells (Q, D), some cells at a time: (Q, ...) each."""
    starts = range(0, max(len(index), 1), READ_TOGETHER)
    parts: list[list[Floats]] = [[] for _ in wanted]
    for start in starts:
        answers = predictor.answer(index[start : start + READ_TOGETHER])
        for part, want in zip(parts, wanted, strict=True):
            part.append(want(answers).double().cpu().numpy())
    return [np.concatenate(part) for part in parts]


def best_cells(
    predictor: Predictor, index: Index, n: int, *wanted: Callable[[Distribution], Tensor]
) -> tuple[Index, list[Floats]]:
    """Positions of the ``n`` cells (Q, D) with the highest means; these, and what is wanted."""
    found: list[Index] = []
    parts: list[list[Floats]] = [[] for _ in range(1 + len(wanted))]
    for start in range(0, max(len(index), 1), READ_TOGETHER):
        answers = predictor.answer(index[start : start + READ_TOGETHER])
        means = answers.mean().double().cpu().numpy()
        own = _highest(means, n)
        some = answers.take(torch.from_numpy(own))  # of all it would take most of the time
        found.append(start + own)
        parts[0].append(means[own])
        for part, want in zip(parts[1:], wanted, strict=True):
            part.append(want(some).double().cpu().numpy())
    told = [np.concatenate(part) for part in parts]
    best = _highest(told[0], n)
    return np.concatenate(found)[best], [part[best] for part in told]


def _highest(means: Floats, n: int) -> Index:
    # Rounded, so that what is equal but for the last bits keeps the order of its labels.
    return np.argsort(-np.round(means, 9), kind="stable")[:n]


class Predictor(Protocol):
    """Answers for any cell of one table."""

    def answer(self, index: Index) -> Distribution:
        """For cells (Q, D), ``UNKNOWN`` where a member is not known."""
        ...

    def updated(self, cells: Cells, changed: Index, *, replaced: bool) -> Predictor:
        """After cells came, at the positions ``changed`` of all cells. No training.

        ``replaced`` says that some of them had a value before.
        """
        ...

    def anew(self, *, replaced: bool) -> bool:
        """Whether ``updated`` reads all cells together, rather than fold new ones in."""
        ...

    def refreshed(self, cells: Cells) -> Predictor:
        """After all cells were read together."""
        ...

    def newcomer(self, axis: int, index: Index, values: Floats) -> Predictor | None:
        """Who answers for one new member, number 0 of its axis, from its cells (E, D) alone.

        None where that takes a look at the other cells too.
        """
        ...

    def factors(self) -> tuple[Floats, ...]:
        """One vector for each member, by axis: (N_d, k)."""
        ...

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """As JSON and as tensors; ``answerer_of_parts`` takes them back."""
        ...


@dataclass(frozen=True, eq=False)
class BaselinePredictor:
    """Answers with the mean and variance that a baseline gives."""

    name: str
    baseline: Baseline
    fitted: FittedBaseline
    scale: Scale
    calibration: Calibration = UNCALIBRATED

    def answer(self, index: Index) -> Distribution:
        mean, variance = self.fitted.predict(index)
        levels = torch.tensor(self.scale.levels, dtype=torch.float64)
        answers = Normal(
            torch.from_numpy(mean),
            torch.from_numpy(np.sqrt(variance)),
            levels if len(levels) else None,
        )
        return self.calibration.apply(answers)

    def updated(self, cells: Cells, changed: Index, *, replaced: bool) -> BaselinePredictor:
        fitted = self.fitted.updated(cells, changed)
        return replace(self, fitted=fitted)

    def anew(self, *, replaced: bool) -> bool:
        return False

    def refreshed(self, cells: Cells) -> BaselinePredictor:
        return replace(self, fitted=self.baseline.fit(cells))

    def newcomer(self, axis: int, index: Index, values: Floats) -> BaselinePredictor | None:
        solve = getattr(self.fitted, "for_new_member", None)
        fitted = None if solve is None else solve(axis, index, values)
        return None if fitted is None else replace(self, fitted=fitted)

    def factors(self) -> tuple[Floats, ...]:
        given = getattr(self.fitted, "factors", None)
        if given is None:
            raise InputError(
                f"factors come from vmf, bmf or a trained model, but this is {self.name}"
            )
        vectors: tuple[Floats, ...] = given()
        if not vectors[0].shape[1]:
            raise InputError(f"{self.name} found no factors in this table: it has biases only")
        return vectors

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        settings = asdict(self.baseline)  # type: ignore[call-overload]
        state = {
            k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in self.fitted.state().items()
        }
        described = {"baseline": self.name, "settings": settings}
        return {**described, "calibration": list(self.calibration.quantiles)}, state


@dataclass(frozen=True, eq=False)
class ModelPredictor:
    """Answers from the memory that a model has of the table.

    Each axis has one member more than the table, one without a cell: it stands for all that
    are not known.
    """

    trained: TrainedModel
    memory: Memory
    reference: ValueStats
    features: FeatureTensors | None
    processes: Processes = ALONE
    limit: int | None = None
    """Bytes that reading may take."""
    calibration: Calibration = UNCALIBRATED

    @classmethod
    def of(
        cls,
        trained: TrainedModel,
        cells: Cells,
        features: FeatureTensors | None = None,
        device: torch.device | None = None,
        *,
        memory: int | None = None,
        processes: Processes = ALONE,
        progress: Progress = SILENT,
    ) -> ModelPredictor:
        """Condition the model on the observed cells, within so many bytes of memory."""
        trained.check(len(cells.shape))
        cells = replace(cells, scale=trained.codec.scale_for(cells.scale))
        trained.check_features(features)
        device = device or next(trained.model.parameters()).device
        trained = replace(trained, model=trained.model.to(device).eval())
        reference = ValueStats.of(cells.values, cells.scale)
        padded = _padded(features, cells.shape, device)
        observed = cells.to_array(_spacious(cells.shape)).to(device)
        plan, sentence = plan_reading(
            trained.model, observed.support.group_index, len(cells), memory
        )
        if plan.keep != "memory" or not plan.pools:
            progress.note(sentence)
        with torch.no_grad():
            known = trained.model.condition(
                observed,
                padded,
                encode=encoder(trained.codec, reference),
                prior=fit_prior(trained.model, observed, reference),
                plan=plan,
                processes=processes,
                progress=progress,
            )
        return cls(trained, known, reference, features, processes, memory)

    def answer(self, index: Index) -> Distribution:
        device = next(self.trained.model.parameters()).device
        spare = np.array(self.memory.shape) - 1
        known = torch.from_numpy(np.where(index < 0, spare, index))
        first, last = self.processes.share(len(index))
        queries = Support(known[first:last].to(device), self.memory.shape)
        with torch.inference_mode():
            outputs = self.trained.model.read(self.memory, queries, READ_AT_ONCE)
        outputs = self.processes.gathered(outputs, len(index))
        answers = self.trained.codec.read(outputs.double().cpu(), self.reference)
        return self.calibration.apply(answers)

    def hidden(self, cells: Cells) -> Iterator[tuple[NDArray[np.bool_], ModelPredictor]]:
        """Which of the cells were left out when factors were tried, and who answers without them.

        That takes no further fit: what was believed without them is known.
        """
        prior = self.memory.prior
        if not isinstance(prior, Prior):
            return
        device = next(self.trained.model.parameters()).device
        observed = cells.to_array(_spacious(cells.shape)).to(device)
        for left in prior.lefts:
            with torch.no_grad():
                memory = self.trained.model.condition(
                    observed.take(~left.out),
                    encode=encoder(self.trained.codec, self.reference),
                    prior=prior.without(left, observed),
                )
            yield left.out.cpu().numpy(), replace(self, memory=memory)

    def updated(self, cells: Cells, changed: Index, *, replaced: bool) -> ModelPredictor:
        device = next(self.trained.model.parameters()).device
        if self.anew(replaced=replaced):
            return self.refreshed(cells)
        added = _encoded(self.trained, cells.take(changed), self.reference, cells.shape)
        prior = self.memory.prior
        if isinstance(prior, Prior):
            every = cells.to_array(_spacious(cells.shape)).to(device)
            prior = prior.updated(every, torch.from_numpy(changed).to(device))
        with torch.no_grad():
            # The spare member of before has no cell, so the first new one can take its place.
            memory = self.trained.model.extend(self.memory, added.to(device), prior=prior)
        return replace(self, memory=memory)

    def anew(self, *, replaced: bool) -> bool:
        # A value cannot be taken out of a pool, nor can features be put before the last ones.
        return replaced or self.features is not None or not self.memory.pools

    def refreshed(self, cells: Cells) -> ModelPredictor:
        device = next(self.trained.model.parameters()).device
        grown = _grown(self.features, cells.shape)
        anew = ModelPredictor.of(
            self.trained, cells, grown, device, memory=self.limit, processes=self.processes
        )
        return replace(anew, calibration=self.calibration)

    def newcomer(self, axis: int, index: Index, values: Floats) -> ModelPredictor | None:
        if self.features is not None or not self.memory.pools:
            return None
        device = next(self.trained.model.parameters()).device
        shape = tuple(1 if a == axis else size for a, size in enumerate(self.memory.shape))
        own = Cells(index, values, shape, self.reference.scale).to_array()
        with torch.inference_mode():
            seen = own.map_values(encoder(self.trained.codec, self.reference)).to(device)
            prior = self.memory.prior
            if isinstance(prior, Prior):
                prior = prior.newcomer(axis, own.to(device))
            memory = self.trained.model.newcomer(self.memory, axis, seen, prior=prior)
        return replace(self, memory=memory)

    def factors(self) -> tuple[Floats, ...]:
        """Of a factorized model; of others, what a member's cells average to at the end."""
        for layer, offered in zip(self.trained.model.layers, self.memory.offered, strict=True):
            if isinstance(layer, FactorLayer):
                return tuple(_numbers(rows[:-1]) for rows, _ in offered.on.values())
        if not self.memory.pools:
            raise InputError("factors need the pools, which memory was too short for: give more")
        states = self.memory.pools[-1].states
        axes = range(len(self.memory.shape))
        if not all((axis,) in states for axis in axes):
            raise InputError("factors are of tables with two axes or more, but this one has one")
        return tuple(_numbers(read_mean(states[(axis,)][0])[:-1]) for axis in axes)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        described, weights = self.trained.parts()
        known = self.features or (None,) * len(self.memory.shape)
        tensors = {f"{MEMBERS}{axis}": f for axis, f in enumerate(known) if f is not None}
        described = {**described, "facts": self.trained.facts}
        described["calibration"] = list(self.calibration.quantiles)
        return described, {**weights, **tensors}


def fit_baseline(
    name: str, cells: Cells, seed: int, progress: Progress = SILENT
) -> BaselinePredictor:
    """A baseline by its name, fitted to the cells."""
    baseline = BASELINES[name]()
    if hasattr(baseline, "seed"):
        baseline = replace(baseline, seed=seed)  # type: ignore[type-var]  # all are dataclasses
    fitted = baseline.fit(cells, progress)
    return BaselinePredictor(name, baseline, fitted, cells.scale)


def predictor_from_parts(
    described: dict[str, Any],
    tensors: dict[str, Tensor],
    cells: Cells,
    device: torch.device,
    memory: int | None = None,
) -> Predictor:
    """What ``parts`` described, able to answer for the same cells again."""
    calibration = Calibration(tuple(described.get("calibration", ())))
    if "baseline" in described:
        name = str(described["baseline"])
        if name not in BASELINES:
            raise InputError(f"a baseline is one of {', '.join(BASELINES)}, but this is {name!r}")
        stored = described["settings"].items()
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in stored}
        baseline = type(BASELINES[name]())(**settings)
        fitted = baseline.kind.from_state(baseline, {k: t.numpy() for k, t in tensors.items()})
        return BaselinePredictor(name, baseline, fitted, cells.scale, calibration)
    given = [tensors.get(f"{MEMBERS}{axis}") for axis in range(len(cells.shape))]
    features = tuple(given) if any(f is not None for f in given) else None
    trained = TrainedModel.of_parts(described, tensors, described.get("facts", {}))
    predictor = ModelPredictor.of(trained, cells, features, device, memory=memory)
    return replace(predictor, calibration=calibration)


def _encoded(
    trained: TrainedModel,
    cells: Cells,
    reference: ValueStats,
    shape: tuple[int, ...] | None = None,
) -> ExchangeableArray:
    """As channels, in an array with a spare member on each axis."""
    array = cells.to_array(_spacious(shape or cells.shape))
    return array.map_values(encoder(trained.codec, reference))


def _spacious(shape: tuple[int, ...]) -> tuple[int, ...]:
    """With a spare member on each axis."""
    return tuple(size + 1 for size in shape)


def _padded(
    features: FeatureTensors | None, shape: tuple[int, ...], device: torch.device
) -> FeatureTensors | None:
    """With the spare member, on the device of the model."""
    spacious = _grown(features, _spacious(shape))
    if spacious is None:
        return None
    return tuple(None if f is None else f.to(device) for f in spacious)


def _grown(features: FeatureTensors | None, shape: tuple[int, ...]) -> FeatureTensors | None:
    """With zeros for members that came later, of whom nothing is known."""
    if features is None:
        return None
    return tuple(
        None if f is None else torch.cat([f, f.new_zeros(size - len(f), f.shape[1])])
        for f, size in zip(features, shape, strict=True)
    )


def _numbers(vectors: Tensor) -> Floats:
    return vectors.detach().double().cpu().numpy()
