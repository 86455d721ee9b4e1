"""The questions that a fitted table answers: predictions, recommendations, likeness."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exchangeable.arrays.cells import Cells, Floats
from exchangeable.completion.estimator import Estimator, available_if
from exchangeable.completion.explain import explain
from exchangeable.completion.factors import member_factors, similar_members
from exchangeable.completion.fit import Fitted
from exchangeable.completion.inputs import (
    check_number,
    check_shares,
    check_stranger,
    column_of_members,
    encode_cell,
    encode_queries,
    encode_times,
    find_axis,
    is_many,
)
from exchangeable.completion.recommend import RecommendQuery, recommend, recommend_to_many
from exchangeable.completion.suggest import Goal, suggest
from exchangeable.completion.update import refresh_is_due
from exchangeable.data.frames import native_frame
from exchangeable.data.options import Duplicates
from exchangeable.data.table import Table
from exchangeable.errors import InputError, InputWarning
from exchangeable.predictors.base import (
    MEAN,
    PROBABILITIES,
    Predictor,
    Statistic,
    interval_ends,
    quantile,
    read_predictions,
    sample_predictions,
)
from exchangeable.runtime.progress import user_progress
from exchangeable.runtime.random import check_seed


class Answers(Estimator):
    """Base of a completer: everything that can be asked once it is fitted."""

    fitted_: Fitted
    """The fitted state; the other attributes read it."""
    duplicates: Duplicates
    verbose: bool

    def predict(self, X: Any, times: Any = None) -> Floats:
        """Predict the expected value of each cell: (Q,).

        A cell of a member that is not in the table is predicted from its other axes, and a warning
        names such labels. ``times`` are those of the cells, where the table has any; without them
        they are the latest.
        """
        return self._read(X, times, MEAN)[0]

    def _read(self, X: Any, times: Any, *statistics: Statistic) -> list[Floats]:
        fitted = self.fitted_
        index, at = encode_queries(fitted.table, X), encode_times(fitted.table, X, times)
        return read_predictions(fitted.predictor, index, *statistics, times=at)

    def predict_interval(self, X: Any, coverage: float = 0.8, times: Any = None) -> Floats:
        """Predict an interval that holds each cell with a probability of ``coverage``: (Q, 2).

        It holds the prediction itself as well.
        """
        if not isinstance(coverage, int | float | np.floating) or not 0 < coverage < 1:
            raise InputError(f"coverage must be between 0 and 1, but is {coverage}")
        return np.stack(self._read(X, times, *interval_ends(coverage)), axis=1)

    def predict_quantiles(
        self, X: Any, shares: Sequence[float] = (0.1, 0.5, 0.9), times: Any = None
    ) -> Floats:
        """Predict the values below which the shares of the probability lie: (Q, K).

        ``shares`` are K numbers between 0 and 1. Cells are predicted once for all of them.
        """
        asked = check_shares(shares)
        columns = np.stack(self._read(X, times, *map(quantile, asked)), axis=1)
        ascending = np.argsort(asked)
        # Quantiles are found by iteration, so those of nearly equal shares may differ by rounding.
        columns[:, ascending] = np.maximum.accumulate(columns[:, ascending], axis=1)
        return columns

    def sample(self, X: Any, n: int = 1, seed: int = 0, times: Any = None) -> Floats:
        """Draw values of each cell from its predicted distribution: (n, Q).

        Draws are independent of one another, those of two cells of the same member too. On a scale
        with levels they are levels, by the probabilities of ``predict_proba``; else real numbers,
        by the calibrated quantiles of ``predict_quantiles``.
        """
        check_number(n)
        table, generator = self.fitted_.table, np.random.default_rng(check_seed(seed))
        index, at = encode_queries(table, X), encode_times(table, X, times)
        uniform = generator.random((n, len(index))).clip(min=np.finfo(np.float64).tiny)
        return sample_predictions(self.predictor_, index, self.levels_, uniform, at)

    @available_if(
        lambda self: "fitted_" not in vars(self) or bool(self.levels_),
        "predict_proba needs values on a scale with levels, but these are real numbers; "
        "predict_interval, predict_quantiles and sample show how uncertain they are",
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

        A list or array of members gets a list each, with their labels in the first column. Known
        ones need no ``ratings``; new ones have them in a frame with a column for their axis too, or
        as a mapping from each to its own, and each is answered as if it had come alone.
        One that is not known and has neither ``ratings`` nor ``features`` gets the list of somebody
        unknown, with a warning.
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
            columns = recommend(self.fitted_, query).columns(table)
            is_described = ratings is not None or features is not None
            check_stranger(table, find_axis(table, axis), member, is_described=is_described)
            return native_frame(columns, frame)
        members = column_of_members("member", member)
        found = recommend_to_many(self.fitted_, members, query)
        return native_frame(found.columns(table, members), frame)

    def explain(self, cell: Any, n: int | None = None, *, axis: int | str = 0) -> Any:
        """Return the observed cells of a member that moved the prediction of a cell, and how far.

        ``cell`` has a label for each axis, and the member is the one on ``axis``. The effect of a
        cell is the prediction of ``predict``, less the one without that cell: the largest come
        first, ``n`` of them or all. The model reads the table again without each cell; nothing is
        trained, chosen or calibrated again. If that takes too long, the member alone is read
        again, as a new one with the same cells would be, and a warning says so. If ``cell`` itself
        is observed, it is left out of its own explanation.
        """
        if n is not None:
            check_number(n)
        table, number = self.fitted_.table, find_axis(self.fitted_.table, axis)
        progress = user_progress(bool(self.verbose))
        explanation = explain(self.fitted_, encode_cell(table, cell, number), number, progress)
        if explanation.note:
            warnings.warn(explanation.note, InputWarning, stacklevel=2)
        return native_frame(explanation.columns(table, n), _frame_kind(table))

    def suggest(self, n: int = 10, *, goal: Goal = "error", among: Any = None) -> Any:
        """Return ``n`` unobserved cells of a matrix to measure next, chosen together.

        With the goal ``"error"`` they are those that lower the error of all other cells the most:
        ``gain`` is the expected fall of their summed variance, given the cells listed before. With
        ``"best"`` they are likely to be among the highest: ``chance`` is that of a value as high
        as the top 1 % of those observed. ``among`` are the cells that may be chosen, as
        ``predict`` takes them. Members without cells count if the table has them: cells without a
        value name them.
        """
        table = self.fitted_.table
        columns = suggest(self.fitted_, n, goal, among).columns(table)
        return native_frame(columns, _frame_kind(table))

    def similar(self, member: Any, n: int = 10, *, axis: int | str = 0) -> Any:
        """Return the ``n`` members that are most like a known one, with their cosines.

        Members are compared by their vectors (``factors``).
        """
        table = self.fitted_.table
        columns = similar_members(self.fitted_, member, n, find_axis(table, axis))
        return native_frame(columns, _frame_kind(table))

    def factors(self, axis: int | str = 0) -> Any:
        """Return one vector for each member of an axis, in a frame with its labels."""
        table = self.fitted_.table
        columns = member_factors(self.fitted_, find_axis(table, axis))
        return native_frame(columns, _frame_kind(table))

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
