"""The estimator that people use: fit it to a table, and ask it for any cell.

Labels go in and labels come out. Inside, members are numbered in the order of their labels, so
that the same table gives the same answers in whatever order its rows come.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from exchangeable.arrays.cells import UNKNOWN, Cells, Floats, Index
from exchangeable.completion import fit as fits
from exchangeable.completion import recommend as recommends
from exchangeable.completion import update as updates
from exchangeable.completion.inputs import checked_input
from exchangeable.completion.predictors import (
    ModelPredictor,
    Predictor,
    best_cells,
    read_predictions,
)
from exchangeable.completion.recommend import keys_of
from exchangeable.completion.storage import load_completer, save_completer
from exchangeable.data.frames import frame_of, native_frame
from exchangeable.data.options import Duplicates
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of, missing_labels
from exchangeable.errors import InputError
from exchangeable.runtime.devices import find_device, parse_size
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.random import check_seed
from exchangeable.training.config import TrainingConfig
from exchangeable.training.recipes import FINETUNING
from exchangeable.training.task import ValidationSplit
from exchangeable.values.scale import Kind


class Completer(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Completes a table of interactions: any cell, with how sure it is.

    ``model`` is ``"pretrained"``, which is part of the package and learns nothing from the table
    but reads it, a baseline's name (``mean``, ``bias``, ``vmf``, ``bmf``, ``knn`` ...),
    ``"residual"`` or ``"factorized"``, which train in ``fit``, or the folder of a trained
    model. ``"auto"`` is the pretrained one, unless biases or factors do better on some cells that
    are hidden for that; ``notes_`` tells how well. ``memory`` limits what models may take to read
    a table, as in ``"4GB"``.

    >>> cells = [("ann", "Heat"), ("ann", "Alien"), ("bob", "Heat"), ("bob", "Big")]
    >>> completer = Completer().fit(cells, [5, 4, 2, 1])
    >>> completer.predict([("bob", "Alien"), ("cleo", "Heat")]).shape
    (2,)
    """

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
        progress: Progress = SILENT,
    ) -> Self:
        """Read the observed cells; only models that are trained take gradient steps.

        ``X`` has a column of labels for each axis and ``y`` the values; without ``y`` a frame
        has a column of values too, or every row is a 1. ``features`` are frames about members,
        by the name of their axis, for models that are trained.
        """
        cells, values = checked_input(X, y)
        table = Table.of(cells, values, scale=self.scale, duplicates=self.duplicates)
        return self.fit_table(table, features=features, progress=progress)

    def fit_table(
        self,
        table: Table,
        *,
        features: Mapping[str, Any] | None = None,
        progress: Progress = SILENT,
        processes: Processes = ALONE,
    ) -> Self:
        """Read a table that was made before, say from a file; several processes may share it."""
        if not isinstance(self.model, str | Path):
            raise InputError(f"model must be a name or a path, but is {self.model!r}")
        if not isinstance(self.training, TrainingConfig | None):
            raise InputError(f"training must be a TrainingConfig, but is {self.training!r}")
        given = fits.FitRequest(
            table.in_label_order(),
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
        self._take(fits.fit(given))
        return self

    def predict(self, X: Any) -> Floats:
        """The expected value of each cell: (Q,). A member never seen gets what others get."""
        check_is_fitted(self)
        return read_predictions(self.predictor_, self._asked(X), methodcaller("mean"))[0]

    def predict_interval(self, X: Any, coverage: float = 0.8) -> Floats:
        """Between which values each cell lies with a chance of ``coverage``: (Q, 2)."""
        if not isinstance(coverage, int | float | np.floating) or not 0 < coverage < 1:
            raise InputError(f"coverage must be between 0 and 1, but is {coverage}")
        check_is_fitted(self)
        tail = (1 - coverage) / 2
        ends = [methodcaller("quantile", share) for share in (tail, 1 - tail)]
        return np.stack(read_predictions(self.predictor_, self._asked(X), *ends), axis=1)

    @available_if(lambda self: not hasattr(self, "cells_") or bool(self.levels_))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """The probability of each level of the scale, in the order of ``levels_``: (Q, L).

        Only where values have levels, so that real numbers have no such method.
        """
        check_is_fitted(self)
        return read_predictions(self.predictor_, self._asked(X), methodcaller("probabilities"))[0]

    @property
    def levels_(self) -> tuple[float, ...]:
        """The levels of the scale, ascending; none where values are real numbers."""
        check_is_fitted(self)
        return self.cells_.scale.levels

    def recommend(
        self,
        member: Any,
        n: int = 10,
        *,
        axis: int | str = 0,
        ratings: Any = None,
        given: Mapping[str, Any] | None = None,
    ) -> Any:
        """The ``n`` best unseen cells of a member, best first, with an 80 % interval.

        ``ratings`` are cells of the member that are taken into account and not kept: a mapping
        from labels to values, or a frame. So a new member can be answered at once. With more
        than two axes the best combinations are listed; ``given`` fixes members of other axes.
        """
        check_is_fitted(self)
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
            raise InputError(f"n must be a whole number of 1 or more, but is {n!r}")
        if missing_labels(column_of("member", [member]))[0]:
            raise InputError(f"the member must have a label, but is {member!r}")
        place = self._axis(axis)
        code = int(self.table_.vocabularies[place].encode(column_of("member", [member]))[0])
        if ratings is None:
            seen = self.table_.index[self.table_.is_observed]
            return self._best(n, place, code, given or {}, self.predictor_, seen)
        cells, own, values = recommends.cells_of(self.table_, member, place, ratings)
        # Only a new member's own cells are computed, and nothing of its axis is copied.
        if code == UNKNOWN and self.table_.scale.kind != "positives":
            self.cells_.scale.check(values)
            recommends.check_distinct(self.table_, own, place)
            predictor = self.predictor_.newcomer(place, own, values)
            if predictor is not None:
                return self._best(n, place, 0, given or {}, predictor, own)
        other = type(self)(**self.get_params())
        other._take(updates.updated(self._fitted(), self._small_table(cells, values)))
        return other.recommend(member, n, axis=place, given=given)

    def _best(
        self,
        n: int,
        place: int,
        code: int,
        given: Mapping[str, Any],
        predictor: Predictor,
        known: Index,
    ) -> Any:
        """The best cells of a member, without those that are ``known``, as a frame."""
        table = self.table_
        cells = recommends.candidates(table, place, code, given)
        if code != UNKNOWN:
            cells = cells[~np.isin(keys_of(cells, table.shape), keys_of(known, table.shape))]
        best, found = best_cells(predictor, cells, n, *_ENDS)
        columns = {
            axis: table.vocabularies[a].decode(cells[best, a])
            for a, axis in enumerate(table.axes)
            if a != place
        }
        named = zip(table.prediction_columns, found, strict=True)
        columns |= {name: pl.Series(name, column) for name, column in named}
        return native_frame(columns, table.native)

    def update(self, X: Any, y: Any = None) -> Self:
        """Take in new cells, of known or new members; a cell seen before gets its new value.

        Nothing is trained. New members are answered from their own cells, and so much of the
        old ones as deep models keep is not computed again: ``refresh``, or saving and loading,
        gives slightly other answers. ``refresh_due_`` says when it is time for that.
        """
        check_is_fitted(self)
        fitted = updates.updated(self._fitted(), self._small_table(X, y))
        self._take(fitted)
        return self

    def refresh(self) -> Self:
        """Read all cells together, those that were folded in by ``update`` too."""
        check_is_fitted(self)
        self._take(updates.refreshed(self._fitted()))
        return self

    @property
    def refresh_due_(self) -> bool:
        """Whether ``update`` folded in so many cells that ``refresh`` would tell."""
        check_is_fitted(self)
        return updates.refresh_is_due(self._fitted())

    def factors(self, axis: int | str = 0) -> Any:
        """One vector for each member of an axis, in a frame with its labels."""
        check_is_fitted(self)
        place = self._axis(axis)
        vectors = self.predictor_.factors()[place]
        vocabulary = self.table_.vocabularies[place]
        columns = {self.table_.axes[place]: vocabulary.decode(np.arange(len(vocabulary)))}
        for number, column in enumerate(vectors.T, start=1):
            columns[f"factor {number}"] = pl.Series(column)
        return native_frame(columns, self.table_.native)

    def finetune(
        self,
        *,
        steps: int | None = None,
        training: TrainingConfig | None = None,
        progress: Progress = SILENT,
    ) -> Self:
        """Gradient steps on this table from where the model stands, as far as they help.

        What helps is judged on validation cells, so it does not get worse on those.
        """
        check_is_fitted(self)
        if not isinstance(self.predictor_, ModelPredictor):
            raise InputError(f"finetuning needs a trained model, but this is {self.model_name_}")
        seed = check_seed(self.seed)
        usual = replace(FINETUNING, seed=seed)
        chosen = training or (usual if steps is None else replace(usual, steps=steps))
        split = ValidationSplit(self.validation, seed)
        self._take(fits.finetuned(self._fitted(), chosen, split, progress))
        return self

    def save(self, path: str | Path) -> None:
        """To a folder, in one go: the model, the table's cells and its labels."""
        check_is_fitted(self)
        params = {**self.get_params(), "model": str(self.model), "seed": check_seed(self.seed)}
        save_completer(path, params, self._fitted())

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Self:
        """From a folder, after every byte was verified; a model reads the cells anew."""
        params, fitted = load_completer(path, find_device(device))
        completer = cls(**params, device=device)
        completer._take(fitted)
        return completer

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.required = False
        # Labels of cells never seen say nothing, so there is little to be learned from numbers.
        tags.regressor_tags.poor_score = True
        tags.non_deterministic = False
        return tags

    def _fitted(self) -> fits.Fitted:
        return fits.Fitted(
            self.table_,
            self.cells_,
            self.predictor_,
            self.notes_,
            self.model_name_,
            self.folded_,
        )

    def _take(self, fitted: fits.Fitted) -> None:
        self.table_: Table = fitted.table
        self.cells_: Cells = fitted.cells
        self.predictor_: Predictor = fitted.predictor
        self.notes_: tuple[str, ...] = fitted.notes
        self.model_name_: str = fitted.name
        self.folded_: int = fitted.folded
        self.n_features_in_ = fitted.table.order

    def _asked(self, X: Any) -> Index:
        X, _ = checked_input(X, None)
        frame, _ = frame_of(X)
        table = self.table_
        if not set(table.axes) <= set(frame.columns) and len(frame.columns) != table.order:
            raise InputError(
                f"X has {len(frame.columns)} features, but Completer is expecting {table.order} "
                f"features as input: a column for each axis ({', '.join(table.axes)})"
            )
        asked = table.label_columns(frame)
        for column in asked:
            missing = missing_labels(frame[column])
            if missing.any():
                raise InputError(
                    f"every cell must have a label in {column!r}, but that of row "
                    f"{int(missing.argmax()) + 1} is missing (NaN or null)"
                )
        cells = table.cells(frame)
        for column, vocabulary, codes in zip(asked, table.vocabularies, cells.T, strict=True):
            known, came = vocabulary.labels.dtype, frame[column].dtype
            if known.is_integer() and came == pl.String and (codes == UNKNOWN).all():
                warnings.warn(
                    f"no label of {column!r} is known: they are texts, but those of the table are "
                    f"whole numbers",
                    stacklevel=3,
                )
        return cells

    def _axis(self, axis: int | str) -> int:
        names = self.table_.axes
        if axis in names:
            return names.index(str(axis))
        if isinstance(axis, int) and not isinstance(axis, bool) and 0 <= axis < len(names):
            return axis
        raise InputError(
            f"axis must be one of {', '.join(names)}, or 0 to {len(names) - 1}, but is {axis!r}"
        )

    def _small_table(self, X: Any, y: Any) -> Table:
        """Further cells as a table of its own, with the columns of the first one."""
        frame, _ = frame_of(X)
        known = self.table_
        axes = list(known.label_columns(frame))
        named = axes == list(known.axes)
        if y is not None and not named and len(frame.columns) != known.order:
            raise InputError(
                f"X has {len(frame.columns)} features, but Completer is expecting {known.order} "
                f"features as input: a column for each axis ({', '.join(known.axes)})"
            )
        value = known.value_name if y is None and known.value_name in frame.columns else None
        table = Table.of(X, y, axes=axes, value=value, duplicates=self.duplicates)
        if table.value_name is None and known.scale.kind != "positives":
            raise InputError("new cells must have values, but neither y nor a column of X has them")
        return table


_ENDS = (methodcaller("quantile", 0.1), methodcaller("quantile", 0.9))
