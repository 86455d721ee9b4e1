"""The estimator: fit it to a table, and predict any cell of it.

Labels go in and labels come out. Inside, members are numbered by their sorted labels, so
that the same table gives the same predictions in whatever sequence its rows come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from exchangeable.completion.answers import Answers
from exchangeable.completion.finetune import finetune
from exchangeable.completion.fit import FitRequest, fit
from exchangeable.completion.forget import (
    frames_of_features,
    table_without_cells,
    table_without_members,
)
from exchangeable.completion.inputs import (
    check_input,
    check_sample_cells,
    encode_members,
    find_axis,
)
from exchangeable.completion.storage import load_completer, save_completer
from exchangeable.completion.update import read_new_cells, refresh, update
from exchangeable.data.options import Duplicates
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.predictors.model import ModelPredictor
from exchangeable.predictors.units import unwrapped
from exchangeable.runtime.devices import find_device, parse_size
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import Progress, user_progress
from exchangeable.runtime.random import check_seed
from exchangeable.training.config import TrainingConfig
from exchangeable.training.recipes import FINETUNING
from exchangeable.training.task import ValidationSplit
from exchangeable.values.scale import Kind


class Completer(Answers):
    """Completes a table of interactions: predicts any cell, with its uncertainty.

    ``model`` is ``"pretrained"``, a baseline's name (``mean``, ``bias``, ``vmf``, ``bmf``,
    ``knn`` ...), ``"residual"`` or one of the paper's, ``"self-supervised"`` or ``"factorized"``,
    which train in ``fit``, or the folder of a trained model. The pretrained model takes no gradient
    step: ``fit`` computes biases, factorizations and similar members of the table in closed form,
    and a network that learned on synthetic tables how far to believe each reads all cells once.
    ``"auto"`` is it, unless biases or factors do better on cells that are hidden for the
    comparison; ``notes_`` has the errors of all. ``memory`` limits what models may take to read a
    table, as in ``"4GB"``. With ``sample_cells`` a model that was trained reads it in random
    samples of about so many cells, until every queried cell was drawn. ``units`` are those that
    real numbers are read in: ``"plain"``, ``"log"``, or the name of an axis whose members are
    different quantities; by default what suits the values, and ``notes_`` says so. The axes of a
    ``joint`` table are one set of members, as in a graph: they share their labels, and a cell may
    be of a member with itself. With ``verbose`` progress and notes are printed on standard error;
    without it the logger ``exchangeable`` has them, at DEBUG and INFO.

    >>> cells = [("ann", "Heat"), ("ann", "Alien"), ("bob", "Heat"), ("bob", "Big")]
    >>> completer = Completer().fit(cells, [5, 4, 2, 1])
    >>> completer.predict([("bob", "Alien"), ("ann", "Big")]).shape
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
        sample_cells: int | None = None,
        units: str | None = None,
        joint: bool = False,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.seed = seed
        self.device = device
        self.scale = scale
        self.duplicates = duplicates
        self.validation = validation
        self.training = training
        self.memory = memory
        self.sample_cells = sample_cells
        self.units = units
        self.joint = joint
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        features: Mapping[str, Any] | None = None,
        times: Any = None,
        axes: Sequence[str | int] | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Read the observed cells; only models that are trained take gradient steps.

        ``X`` has a column of labels for each axis and ``y`` the values; without ``y`` a frame
        has a column of values too, or every row is a 1. ``features`` are frames about members,
        by the name of their axis: labels first, then numbers, dates, categories or lists of them
        ("Action|Comedy"); a frame whose columns are named by the labels holds similarities.
        Members that only have features can be predicted too. ``times`` are numbers or dates, one
        per row; a frame may have them as a column. ``axes`` names the label columns of a frame,
        where more than two are meant.
        """
        cells, values = check_input(X, y)
        options: dict[str, Any] = {
            "scale": self.scale,
            "duplicates": self.duplicates,
            "joint": bool(self.joint),
        }
        table = Table.of(cells, values, axes=axes, times=times, **options)
        return self.fit_table(table, features=features, progress=progress)

    def fit_table(
        self,
        table: Table,
        *,
        features: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
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
            units=table.units if self.units is None else self.units,
            memory=parse_size(self.memory),
            sample_cells=check_sample_cells(self.sample_cells),
            processes=processes,
            progress=user_progress(bool(self.verbose)) if progress is None else progress,
        )
        self.fitted_ = fit(request)
        if progress is None:  # who passes one shows the notes as well
            self._show_notes(self.fitted_.notes)
        return self

    def _show_notes(self, notes: tuple[str, ...]) -> None:
        show = user_progress(bool(self.verbose)).note
        for note in notes:
            show(note)

    def update(
        self,
        X: Any,
        y: Any = None,
        *,
        features: Mapping[str, Any] | None = None,
        times: Any = None,
    ) -> Self:
        """Take in new cells, of known or new members; a cell seen before gets its new value.

        No gradient step is taken. New members are solved in closed form from their own cells. The
        memory that deep models have of other members is not computed again, so ``refresh`` gives
        slightly other predictions; ``refresh_due_`` says when it is time for that. ``features`` and
        ``times`` are as in ``fit``, for the new members and cells.
        """
        fitted = self.fitted_
        added = read_new_cells(fitted.table, X, y, self.duplicates, times)
        self.fitted_ = update(fitted, added, features)
        return self

    def refresh(self) -> Self:
        """Read all cells together, those that were folded in by ``update`` too."""
        self.fitted_ = refresh(self.fitted_)
        return self

    def forget(self, member: Any, axis: int | str = 0) -> Self:
        """Forget a member or a list of them: their labels, cells and features.

        The rest of the table is fitted again at once, as if they had never come: whatever was
        fitted depends on all cells. So models that are trained in ``fit`` are trained again,
        ``auto`` chooses again, and what ``finetune`` gained is lost. Members of other axes that
        have neither cells nor features any more are forgotten too.
        """
        fitted = self.fitted_
        number = find_axis(fitted.table, axis)
        codes = encode_members(fitted.table, number, member)
        left = table_without_members(fitted.table, number, codes)
        return self.fit_table(left, features=frames_of_features(fitted, left, number))

    def forget_cells(self, X: Any) -> Self:
        """Forget observed cells, and members that have neither cells nor features any more.

        The rest of the table is fitted again at once, as in ``forget``.
        """
        fitted = self.fitted_
        left = table_without_cells(fitted.table, fitted.table.positions(X))
        return self.fit_table(left, features=frames_of_features(fitted, left, None))

    def finetune(
        self,
        *,
        steps: int | None = None,
        training: TrainingConfig | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Take gradient steps on this table from the model's present weights, while they help.

        Validation cells decide what helps, so the error on those does not grow.
        """
        fitted = self.fitted_
        if not isinstance(unwrapped(fitted.predictor), ModelPredictor):
            raise InputError(
                f"finetuning needs a trained model of values (pretrained, residual, factorized or "
                f"that of a folder, but no literal one), but this is {fitted.name} of "
                f"{fitted.table.scale}"
            )
        seed = check_seed(self.seed)
        usual = replace(FINETUNING, seed=seed)
        chosen = training or (usual if steps is None else replace(usual, steps=steps))
        split = ValidationSplit(self.validation, seed)
        shown = user_progress(bool(self.verbose)) if progress is None else progress
        self.fitted_ = finetune(fitted, chosen, split, shown)
        if progress is None:
            self._show_notes(self.fitted_.notes[len(fitted.notes) :])
        return self

    def save(self, path: str | Path) -> None:
        """Save to a folder, in one go: the model, the table's cells and its labels."""
        fitted = self.fitted_
        params = {**self.get_params(), "model": str(self.model), "seed": check_seed(self.seed)}
        save_completer(path, params, fitted)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Self:
        """Load from a folder, with all that the model has read, after every byte was verified."""
        params, fitted = load_completer(path, find_device(device))
        completer = cls(**params, device=device)
        completer.fitted_ = fitted
        return completer
