"""Effects of a new member's ratings: how much each of them moved the prediction of a cell."""

from __future__ import annotations

from typing import Any

import numpy as np

from exchangeable.arrays.cells import Floats, Index, Mask
from exchangeable.completion.completer import Completer
from exchangeable.completion.ratings import encode_ratings
from exchangeable.completion.recommend import RecommendQuery, encode_features
from exchangeable.predictors.base import MEAN, read_predictions
from exchangeable.runtime.progress import Progress

CELLS_PER_BATCH = 4_000
"""Ratings of the members that are read together, and predictions for them: a batch takes tens of
milliseconds, and none begins once its client has left."""


def effects_of_ratings(
    completer: Completer, query: RecommendQuery, cells: Index, progress: Progress
) -> list[tuple[Any, Floats]]:
    """Predictions of cells (Q, D), less those without each rating in turn: (Q,) for each.

    Members with all ratings but one are new members too, so that many are read at once. Empty where
    the model cannot read a new member alone.
    """
    axis, fitted = int(query.axis), completer.fitted_
    features = None if query.features is None else encode_features(fitted, axis, query.features)
    _, index, values = encode_ratings(completer.table_, query.member, axis, query.ratings)

    def predict(kept: Mask) -> Floats | None:
        """Predict the cells for members with the kept ratings: (B, E) -> (B, Q)."""
        members, ratings = np.nonzero(kept)
        coordinates = index[ratings]
        coordinates[:, axis] = members
        repeated = None if features is None else features.expand(len(kept), -1)
        predictor = completer.predictor_.for_new_members(
            axis, coordinates, values[ratings], repeated, count=len(kept)
        )
        if predictor is None:
            return None
        queries = np.tile(cells, (len(kept), 1))
        queries[:, axis] = np.repeat(np.arange(len(kept)), len(cells))
        return read_predictions(predictor, queries, MEAN)[0].reshape(len(kept), len(cells))

    count = len(index)
    with_all = predict(np.ones((1, count), dtype=bool))
    if with_all is None:
        return []
    size = max(CELLS_PER_BATCH // (count + len(cells)), 1)
    effects = np.empty((count, len(cells)))
    for start in range(0, count, size):
        progress.at(start / count, f"leaving out rating {start + 1} of {count}")
        rows = np.arange(start, min(start + size, count))
        without = predict(np.arange(count) != rows[:, None])
        assert without is not None
        effects[rows] = with_all - without
    return list(zip(query.ratings, effects, strict=True))
