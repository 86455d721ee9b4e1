"""The estimator: fit it to a table, and predict any cell of it.

Labels go in and labels come out. Inside, members are numbered by their sorted labels, so
that the same table gives the same predictions in whatever sequence its rows come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from exchangeable.arrays.cells import Cells, Floats
from exchangeable.completion.estimator import Estimator, available_if
from exchangeable.completion.factors import member_factors, similar_members
from exchangeable.completion.finetune import finetune
from exchangeable.completion.fit import FitRequest, Fitted, fit
from exchangeable.completion.inputs import check_input, encode_queries, encode_times, find_axis
from exchangeable.completion.model_predictor import ModelPredictor
from exchangeable.completion.predictor import (
    MEAN,
    PROBABILITIES,
    Predictor,
    Statistic,
    interval_ends,
    read_predictions,
)
from exchangeable.completion.recommend import (
    RecommendQuery,
    is_many,
    recommend,
    recommend_to_many,
)
from exchangeable.completion.storage import load_completer, save_completer
from exchangeable.completion.update import read_new_cells, refresh, refresh_is_due, update
from exchangeable.data.frames import native_frame
from exchangeable.data.options import Duplicates
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of
from exchangeable.errors import InputError
from exchangeable.runtime.devices import find_device, parse_size
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.random import check_seed
from exchangeable.training.config import TrainingConfig
from exchangeable.training.recipes import FINETUNING
from exchangeable.training.task import ValidationSplit
from exchangeable.values.scale import Kind


class Completer(Estimator):
    """Completes a table of interactions: predicts any cell, with its uncertainty.

    ``model`` is ``"pretrained"``, which is part of the package and reads the table without
    training, a baseline's name (``mean``, ``bias``, ``vmf``, ``bmf``, ``knn`` ...),
    ``"residual"`` or ``"factorized"``, which train in ``fit``, or the folder of a trained
    model. ``"auto"`` is the pretrained one, unless biases or factors do better on cells that are
    hidden for the comparison; ``notes_`` has the errors of all. ``memory`` limits what models may
    take to read a table, as in ``"4GB"``.

    >>> cells = [("ann", "Heat"), ("ann", "Alien"), ("bob", "Heat"), ("bob", "Big")]
    >>> completer = Completer().fit(cells, [5, 4, 2, 1])
    >>> completer.predict([("bob", "Alien"), ("cleo", "Heat")]).shape
    (2,)
    """

    fitted_: Fitted
    """The fitted state; the other attributes read it."""

    def __init__(
        self,
        model: str | Path = "auto",
        *,
        seed: int = 0,
        device: str = "auto",
        scale: Kind | None = None,
        duplicates: Duplicates = "error",
        validation: float = 0.05,
        training: TrainingConfig | None = None,
        memory: str | float | None = None,
    ) -> None:
        self.model = model
        self.seed = seed
        self.device = device
        self.scale = scale
        self.duplicates = duplicates
        self.validation = validation
        self.training = training
        self.memory = memory

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        features: Mapping[str, Any] | None = None,
        times: Any = None,
        progress: Progress = SILENT,
    ) -> Self:
        """Read the observed cells; only models that are trained take gradient steps.

        ``X`` has a column of labels for each axis and ``y`` the values; without ``y`` a frame
        has a column of values too, or every row is a 1. ``features`` are frames about members,
        by the name of their axis: labels first, then numbers, dates, categories or lists of them
        ("Action|Comedy"); a frame whose columns are named by the labels holds similarities.
        Members that only have features can be predicted too. ``times`` are numbers or dates, one
        per row; a frame may have them as a column.
        """
        cells, values = check_input(X, y)
        table = Table.of(cells, values, scale=self.scale, duplicates=self.duplicates, times=times)
        return self.fit_table(table, features=features, progress=progress)

    def fit_table(
        self,
        table: Table,
        *,
        features: Mapping[str, Any] | None = None,
        progress: Progress = SILENT,
        processes: Processes = ALONE,
    ) -> Self:
        """Read a table that was built before, say from a file; several processes may share it."""
        if not isinstance(self.model, str | Path):
            raise InputError(f"model must be a name or a path, but is {self.model!r}")
        if not isinstance(self.training, TrainingConfig | None):
            raise InputError(f"training must be a TrainingConfig, but is {self.training!r}")
        request = FitRequest(
            table,
            model=str(self.model),
            seed=check_seed(self.seed),
            device=find_device(self.device),
            validation=self.validation,
            training=self.training,
            features=features,
            memory=parse_size(self.memory),
            processes=processes,
            progress=progress,
        )
        self.fitted_ = fit(request)
        return self

    def predict(self, X: Any, times: Any = None) -> Floats:
        """Predict the expected value of each cell: (Q,).

        A cell of a member that is not in the table is predicted from its other axes. ``times`` are
        those of the cells, where the table has any; without them they are the latest.
        """
        return self._read(X, times, MEAN)[0]

    def _read(self, X: Any, times: Any, *statistics: Statistic) -> list[Floats]:
        fitted = self.fitted_
        index, at = encode_queries(fitted.table, X), encode_times(fitted.table, X, times)
        return read_predictions(fitted.predictor, index, *statistics, times=at)

    def predict_interval(self, X: Any, coverage: float = 0.8, times: Any = None) -> Floats:
        """Predict an interval that holds each cell with a probability of ``coverage``: (Q, 2)."""
        if not isinstance(coverage, int | float | np.floating) or not 0 < coverage < 1:
            raise InputError(f"coverage must be between 0 and 1, but is {coverage}")
        return np.stack(self._read(X, times, *interval_ends(coverage)), axis=1)

    @available_if(
        lambda self: "fitted_" not in vars(self) or bool(self.levels_),
        "values on a scale with levels are needed, but these are real numbers",
    )
    def predict_proba(self, X: Any, times: Any = None) -> Floats:
        """Predict the probability of each level of the scale, as sorted in ``levels_``: (Q, L).

        Only values on a scale with levels have this method; real numbers have none.
        """
        return self._read(X, times, PROBABILITIES)[0]

    def recommend(
        self,
        member: Any,
        n: int = 10,
        *,
        axis: int | str = 0,
        ratings: Any = None,
        given: Mapping[str, Any] | None = None,
        features: Mapping[str, Any] | None = None,
        among: Any = None,
        exclude: Any = None,
        include_seen: bool = False,
        exposure: float = 0.0,
    ) -> Any:
        """Return the ``n`` best unseen cells of a member, best first, with an 80 % interval.

        A list or array of known members gets a list each, with their labels in the first column.
        ``ratings`` are cells of the member that are taken into account and not kept: a mapping
        from labels to values, a frame, or of positives a list of labels. So a new member gets
        recommendations at once. With more than two axes the best combinations are listed;
        ``given`` fixes members of other axes.
        ``features`` are those of a new member, by their columns, where the table has any.
        ``among`` are the labels that may be listed, ``exclude`` those that may not, of the other
        axis or as a mapping by axis. With ``include_seen`` cells of the table are listed too.
        With ``exposure`` the chance that a cell comes to be observed counts beside its value: so
        many deviations of the table's values for a chance e times as high. 0.5 lists what members
        are likely to choose and to like, 0 the highest values however unlikely.
        """
        table, frame = self.fitted_.table, _frame_kind(self.fitted_.table)
        query = RecommendQuery(
            member,
            n,
            axis,
            ratings,
            given or {},
            self.duplicates,
            features,
            among,
            exclude,
            include_seen,
            exposure,
        )
        if not is_many(member):
            return native_frame(recommend(self.fitted_, query).columns(table), frame)
        members = column_of("member", member)
        found = recommend_to_many(self.fitted_, members, query)
        return native_frame(found.columns(table, members), frame)

    def similar(self, member: Any, n: int = 10, *, axis: int | str = 0) -> Any:
        """Return the ``n`` members that are most like a known one, with their cosines.

        Members are compared by their vectors (``factors``).
        """
        table = self.fitted_.table
        columns = similar_members(self.fitted_, member, n, find_axis(table, axis))
        return native_frame(columns, _frame_kind(table))

    def update(
        self,
        X: Any,
        y: Any = None,
        *,
        features: Mapping[str, Any] | None = None,
        times: Any = None,
    ) -> Self:
        """Take in new cells, of known or new members; a cell seen before gets its new value.

        Nothing is trained. New members are predicted from their own cells. The memory that deep
        models have of other members is not computed again, so ``refresh``, or saving and loading,
        gives slightly other predictions; ``refresh_due_`` says when it is time for that.
        ``features`` and ``times`` are as in ``fit``, for the new members and cells.
        """
        fitted = self.fitted_
        added = read_new_cells(fitted.table, X, y, self.duplicates, times)
        self.fitted_ = update(fitted, added, features)
        return self

    def refresh(self) -> Self:
        """Read all cells together, those that were folded in by ``update`` too."""
        self.fitted_ = refresh(self.fitted_)
        return self

    def factors(self, axis: int | str = 0) -> Any:
        """Return one vector for each member of an axis, in a frame with its labels."""
        table = self.fitted_.table
        columns = member_factors(self.fitted_, find_axis(table, axis))
        return native_frame(columns, _frame_kind(table))

    def finetune(
        self,
        *,
        steps: int | None = None,
        training: TrainingConfig | None = None,
        progress: Progress = SILENT,
    ) -> Self:
        """Take gradient steps on this table from the model's present weights, while they help.

        Validation cells decide what helps, so the error on those does not grow.
        """
        fitted = self.fitted_
        if not isinstance(fitted.predictor, ModelPredictor):
            raise InputError(
                f"finetuning needs a trained model of values (pretrained, residual, factorized or "
                f"that of a folder), but this is {fitted.name} of {fitted.table.scale}"
            )
        seed = check_seed(self.seed)
        usual = replace(FINETUNING, seed=seed)
        chosen = training or (usual if steps is None else replace(usual, steps=steps))
        split = ValidationSplit(self.validation, seed)
        self.fitted_ = finetune(fitted, chosen, split, progress)
        return self

    def save(self, path: str | Path) -> None:
        """Save to a folder, in one go: the model, the table's cells and its labels."""
        fitted = self.fitted_
        params = {**self.get_params(), "model": str(self.model), "seed": check_seed(self.seed)}
        save_completer(path, params, fitted)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Self:
        """Load from a folder, after every byte was verified; a model reads the cells anew."""
        params, fitted = load_completer(path, find_device(device))
        completer = cls(**params, device=device)
        completer.fitted_ = fitted
        return completer

    @property
    def table_(self) -> Table:
        """The table, with labels."""
        return self.fitted_.table

    @property
    def cells_(self) -> Cells:
        """The cells that were read, as numbers; where negatives were drawn they are among them."""
        return self.fitted_.cells

    @property
    def predictor_(self) -> Predictor:
        return self.fitted_.predictor

    @property
    def notes_(self) -> tuple[str, ...]:
        """Sentences on the table that was read, and on which model was chosen and why."""
        return self.fitted_.notes

    @property
    def model_name_(self) -> str:
        """The model that predicts; never ``auto``."""
        return self.fitted_.name

    @property
    def levels_(self) -> tuple[float, ...]:
        """The levels of the scale, ascending; none where values are real numbers."""
        return self.fitted_.cells.scale.levels

    @property
    def refresh_due_(self) -> bool:
        """Whether ``update`` folded in so many cells that ``refresh`` would matter."""
        return refresh_is_due(self.fitted_)

    @property
    def n_features_in_(self) -> int:
        return self.fitted_.table.order


def _frame_kind(table: Table) -> str:
    """The kind of frame the table came from; polars for arrays, which have no column names."""
    return "polars" if table.native == "numpy" else table.native
