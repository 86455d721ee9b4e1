"""Fit a labelled table: choose a model, train it if it is a recipe, and let it read the cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.baselines import BASELINES
from exchangeable.completion.select import (
    calibrate_on_validation,
    candidates_for,
    compare_models,
)
from exchangeable.data.features import TableFeatures, with_described_members
from exchangeable.data.joint import mirrored, share_features
from exchangeable.data.negatives import observed_cells, ranked_cells
from exchangeable.data.table import Table
from exchangeable.errors import InputError, option
from exchangeable.predictors.base import Predictor
from exchangeable.predictors.baseline import fit_baseline
from exchangeable.predictors.literal import predictor_of
from exchangeable.predictors.model import ModelPredictor
from exchangeable.predictors.ranking import RankingPredictor
from exchangeable.predictors.symmetry import compare_symmetry, reads_axes_apart
from exchangeable.predictors.units import UnitsPredictor, find_units, in_units
from exchangeable.pretraining import bundled
from exchangeable.ranking.ranker import PretrainedRanker
from exchangeable.ranking.registry import RANKERS
from exchangeable.ranking.single import SingleRanker
from exchangeable.runtime import checkpoint
from exchangeable.runtime.cache import cached_property
from exchangeable.runtime.phrases import did_you_mean, format_count
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.training.config import TrainingConfig
from exchangeable.training.execution import Execution
from exchangeable.training.recipes import RECIPES
from exchangeable.training.task import ValidationSplit
from exchangeable.training.train_model import train_recipe
from exchangeable.training.trained_model import TRAINED_ON, TrainedModel
from exchangeable.values.calibration import UNCALIBRATED
from exchangeable.values.scale import Scale
from exchangeable.values.units import Units, UnitsKind

MAX_VALUE = 1e100
"""Squares of larger values, and sums of these, would overflow."""
UNIT_MODELS = (
    *("auto", bundled.NAME, "bias", "vmf", "bmf", "gaussian"),
    *("item-knn", "user-knn", "knn"),
)
"""Models whose units are found by themselves."""
PLAIN_MODELS = ("mean", "row-mean", "column-mean")
"""Models that no units are found for: real numbers are read as they came."""
HOW_FITTED = (
    f"model {bundled.NAME}: biases, a factorization and similar members were fitted to the cells "
    f"in closed form, and a network that was trained on synthetic tables weighs them"
)
"""What ``fit`` does with the pretrained model."""
FALLBACK_MODEL = "vmf"
"""The model for ``auto`` on tables of orders without bundled weights."""


@dataclass(frozen=True, eq=False)
class FitRequest:
    """Everything a fit depends on."""

    table: Table
    model: str = "auto"
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    validation: float = 0.05
    training: TrainingConfig | None = None
    features: Mapping[str, Any] | None = None
    units: str | None = None
    """Units that values are read in: plain, log or those of an axis; None: what suits them."""
    memory: int | None = None
    """Bytes that may be taken; None: most of what is free."""
    sample_cells: int | None = None
    """Cells of the samples that a trained model reads the table in; None: all at once."""
    processes: Processes = ALONE
    """The processes that share the cells."""
    progress: Progress = SILENT


@dataclass(frozen=True, eq=False)
class Fitted:
    """A table, its cells as numbers, and the predictor that was fitted to them."""

    table: Table
    cells: Cells
    predictor: Predictor
    notes: tuple[str, ...]
    """Sentences on the table that was read, and on which model was chosen and why."""
    name: str
    """The model that predicts; never ``auto``."""
    cells_since_refresh: int = 0
    """Cells that came since all of them were read together."""
    features: TableFeatures = field(default_factory=TableFeatures)
    """Features of the members."""
    mirrored: bool = False
    """Whether the cells of a joint table were read in both directions."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Fitted:
        """Return itself: nothing in it changes, and torch cannot copy sparse matrices deeply."""
        return self

    def cells_of_members(self, axis: int, codes: Index) -> Index:
        """Return the observed cells of members (B,), with places among these on their axis.

        A stranger has none.
        """
        permutation, starts = self._rows_by_member(axis)
        known = np.where(codes < 0, 0, codes)
        sizes = np.where(codes < 0, 0, starts[known + 1] - starts[known])
        ends = np.cumsum(sizes)
        rows = np.repeat(starts[known] - ends + sizes, sizes) + np.arange(sizes.sum())
        cells = self.table.index[permutation[rows]]
        cells[:, axis] = np.repeat(np.arange(len(codes)), sizes)
        return cells[~np.isnan(self.table.values[permutation[rows]])]

    def _rows_by_member(self, axis: int) -> tuple[Index, Index]:
        """Return the rows of the table sorted by member, and where each member's begin: kept."""
        if axis not in self.sorted_rows:
            member, size = self.table.index[:, axis], self.table.shape[axis]
            starts = np.concatenate([[0], np.bincount(member, minlength=size).cumsum()])
            self.sorted_rows[axis] = np.argsort(member, kind="stable"), starts
        return self.sorted_rows[axis]

    @cached_property
    def sorted_rows(self) -> dict[int, tuple[Index, Index]]:
        """Rows sorted by member, and where each member's begin, by the axes that were needed."""
        return {}

    @cached_property
    def exposure(self) -> RankingPredictor:
        """Chances that cells come to be observed, whatever their values: fitted when first used."""
        if self.table.order != 2 or self.table.scale.kind == "positives":
            raise InputError(
                f"exposure counts beside the values of a table of two axes, but this one has "
                f"{self.table.order} and {self.table.scale}"
            )
        ones = replace(self.cells, values=np.ones(len(self.cells)))
        return RankingPredictor.fit(bundled.NAME, ones, torch.device("cpu"))


def fit(request: FitRequest) -> Fitted:
    """Fit the chosen model to the table."""
    request = replace(request, features=share_features(request.table, request.features))
    table = with_described_members(request.table, request.features).in_label_order()
    if len(table) == 0:
        raise InputError("cells with a value are needed, but the table has none")
    check_size(table.values)
    if is_ranked(table, request.model):
        return _fit_ranking(request, table)
    if request.model in RANKERS:
        advice = f"; {option('scale', 'positives')} takes every cell as one"
        raise InputError(
            f"{request.model} ranks positives of two axes, but this table has {table.order} and "
            f"{table.scale}{advice if table.order == 2 else ''}"
        )
    cells, notes = observed_cells(table, request.seed)
    members = TableFeatures.of(table, request.features)
    if request.units is None and request.model in PLAIN_MODELS and cells.scale.kind == "real":
        request = replace(request, units="plain")
    units = _find_units(request, table, cells)
    symmetry = None
    if table.joint and reads_axes_apart(request.model):
        symmetry = compare_symmetry(in_units(units, cells))
    if symmetry is not None:
        notes = (*notes, str(symmetry))
        cells = mirrored(cells) if symmetry.helps else cells
        units = _find_units(request, table, cells)
    read = in_units(units, cells)
    predictor, name, scale, reasons = _fit_model(request, read, members)
    notes = (*notes, *members.found, *reasons)
    if units.kind != "plain":
        notes = (*notes, units.describe(table.axes))
    if not units.changes_nothing:
        predictor = UnitsPredictor.of(units, request.units is not None, cells, predictor)
    cells, is_mirrored = replace(cells, scale=scale), symmetry is not None and symmetry.helps
    return Fitted(table, cells, predictor, notes, name, features=members, mirrored=is_mirrored)


def _find_units(request: FitRequest, table: Table, cells: Cells) -> Units:
    """Return the units that were asked for, or those that suit the values and the model."""
    asked, choices = request.units, ("plain", "log", *table.axes)
    if asked is not None and asked not in choices:
        hint = did_you_mean(asked, choices)
        raise InputError(f"units must be one of {', '.join(choices)}, but are {asked!r}{hint}")
    if asked is None:
        suited = cells.scale.kind == "real" and _reads_any_units(request.model)
        return find_units(None, cells) if suited else Units()
    if cells.scale.kind != "real":
        raise InputError(
            f"units are chosen for real numbers, but these are {cells.scale}; with "
            f"{option('scale', 'real')} they are read as such"
        )
    if asked in ("plain", "log"):
        return find_units((cast(UnitsKind, asked), 0), cells)
    return find_units(("own", table.axes.index(asked)), cells)


def _reads_any_units(model: str) -> bool:
    """Whether units may be found for a model: one that was trained from nothing has its own."""
    if model in UNIT_MODELS or not checkpoint.exists(model):
        return model in UNIT_MODELS
    return str(TrainedModel.load(model).facts.get(TRAINED_ON, "")).startswith("synthetic")


def _fit_model(
    request: FitRequest, cells: Cells, members: TableFeatures
) -> tuple[Predictor, str, Scale, tuple[str, ...]]:
    """Fit the chosen model to cells: the predictor, its name, the scale it reads, and notes."""
    name, notes = _choose_model(request)
    calibration = UNCALIBRATED
    if request.sample_cells is not None and (name == bundled.NAME or name in BASELINES):
        raise InputError(f"samples are read by models that were trained, but this is {name}")
    if name in BASELINES:
        if request.features:
            raise InputError(f"features need a model that is trained, but this is {name}")
        predictor = fit_baseline(name, cells, request.seed, request.progress.part(0, 1, name))
        if predictor.choice is not None:
            notes = (*notes, f"model {name} has {predictor.choice}")
        return predictor, name, cells.scale, notes
    condition = partial(
        predictor_of,
        device=request.device,
        memory=request.memory,
        processes=request.processes,
        sample_cells=request.sample_cells,
    )
    if name in RECIPES:
        split = ValidationSplit(request.validation, request.seed)
        execution = Execution(
            request.device,
            memory=request.memory,
            processes=request.processes,
            progress=request.progress,
        )
        trained = train_recipe(
            name, cells, split, execution, members=members, training=request.training
        )
        features = members.to_tensors(centred=trained.prior_reads_features)
        calibration = calibrate_on_validation(
            split, cells, partial(condition, trained, features=features)
        )
        notes = (*notes, describe_training(trained))
    else:
        check_model(name)
        pretrained = name == bundled.NAME
        trained = bundled.bundled_model(cells.order) if pretrained else TrainedModel.load(name)
        trained.check_feature_names(members.names)
        features = members.to_tensors(centred=trained.prior_reads_features)
        cells = replace(cells, scale=trained.codec.scale_for(cells.scale))
    further: list[str] = []
    model = condition(
        trained, cells, features, progress=replace(request.progress, note=further.append)
    )
    if name != bundled.NAME:
        model = replace(model, calibration=calibration)
        return model, name, cells.scale, (*notes, *further)
    # Simpler models do not read features.
    compares = request.model == "auto" and not members.axes
    others = candidates_for(cells) if compares else ()
    assert isinstance(model, ModelPredictor)  # bundled models are not literal
    comparison = compare_models(model, cells, others, request.progress)
    if comparison is None or (compares and not others):
        reason = "cells are too few, or too much alike, to hide some and try others"
        notes = (*notes, f"model {name}: {reason}")
    if comparison is None:
        return model, name, cells.scale, (*notes, HOW_FITTED, *further)
    if comparison.best != name:
        name = comparison.best
        baseline = comparison.fit_best(cells, request.seed, request.progress.part(0, 1, name))
        return baseline, name, cells.scale, (*notes, str(comparison))
    model = comparison.calibrate(model)
    return model, name, cells.scale, (*notes, HOW_FITTED, str(comparison), *further)


def is_ranked(table: Table, model: str) -> bool:
    """Whether a ranker of positives reads the table, rather than a model of values."""
    ranks = model in ("auto", bundled.NAME) or model in RANKERS
    return ranks and table.scale.kind == "positives" and table.order == 2


def _fit_ranking(request: FitRequest, table: Table) -> Fitted:
    """Rank positives: by the pretrained ranker, or for ``auto`` by one that clearly does better."""
    if request.features:
        raise InputError("features are read where cells have values, but these are positives")
    cells = ranked_cells(table)
    name = bundled.NAME if request.model == "auto" else request.model
    request.progress.at(0.0, f"reading {format_count(len(cells), 'positive')}")
    predictor = RankingPredictor.fit(name, cells, request.device)
    notes = []
    if isinstance(predictor.model, PretrainedRanker):
        backtest = predictor.model.backtest
        if backtest is None:
            notes.append(f"model {name}: positives are too few to hide some and try others")
        else:
            better = backtest.better
            if request.model == "auto" and better is not None:
                request.progress.at(0.8, f"reading with {better}")
                predictor = RankingPredictor.fit(better, cells, request.device)
                name = better
            notes.append(f"model {name}: {backtest}")
    elif isinstance(predictor.model, SingleRanker) and predictor.model.setting:
        notes.append(f"model {name} {predictor.model.setting}, the best on hidden positives")
    return Fitted(table, cells, predictor, (*table.found, *notes), name)


def check_size(values: Floats) -> None:
    """Raise if values, one of them a number at least, are too large to be squared and summed."""
    if max(float(np.nanmax(values)), -float(np.nanmin(values))) > MAX_VALUE:
        raise InputError(f"values must be at most {MAX_VALUE:g} in size: divide them by something")


def _choose_model(request: FitRequest) -> tuple[str, tuple[str, ...]]:
    """Choose the requested model, or for ``auto`` the pretrained one of the order; and say why."""
    if request.model != "auto":
        return request.model, ()
    order = request.table.order
    if order in bundled.bundled_orders():
        return bundled.NAME, ()
    axes = "1 axis" if order == 1 else f"{order} axes"
    return FALLBACK_MODEL, (f"model {FALLBACK_MODEL}: none is pretrained for tables of {axes}",)


def describe_training(trained: TrainedModel) -> str:
    """Say in a sentence how long a model was trained, and its validation error."""
    facts = trained.facts
    rmse = f", validation RMSE {facts['validation RMSE']:.4f}" if "validation RMSE" in facts else ""
    steps = format_count(facts["steps"], "step")
    return f"trained for {steps}, best at {facts['best step']:,}{rmse}"


def check_model(name: str) -> None:
    """Raise unless there is a model of this name, or in this folder."""
    names = ["auto", bundled.NAME, *BASELINES, *RANKERS, *RECIPES]
    if name not in names and "/" not in name and not checkpoint.exists(name):
        raise InputError(
            f"model must be one of {', '.join(names)}, or a saved model's folder, but is {name!r}"
            f"{did_you_mean(name, names)}"
        )
