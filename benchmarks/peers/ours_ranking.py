"""The pretrained ranker on the splits of the ranking peers.

    EXCHANGEABLE_DATA=... python benchmarks/peers/ours_ranking.py [ml-100k lastfm ...]

It runs in this package's own environment, has no settings to choose, and prints the same figures.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from numpy.typing import NDArray
from positives import TABLES, Positives, load_positives, measure_ranking

from exchangeable.completion.completer import Completer
from exchangeable.predictors.ranking import RankingPredictor
from exchangeable.ranking.stack import users_per_block


def measure(data: Positives) -> dict[str, float]:
    start = time.perf_counter()
    completer = Completer("pretrained").fit(data.train)
    fitted = time.perf_counter()
    ranker, table = completer.predictor_, completer.table_
    assert isinstance(ranker, RankingPredictor)
    users, items = (vocabulary.labels.to_numpy() for vocabulary in table.vocabularies)

    def score(chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Score all items; those without a training pair come last."""
        scores = np.full((len(chosen), data.shape[1]), -1e30)
        places = np.searchsorted(users, chosen)
        size = users_per_block(ranker.positives)
        for first in range(0, len(chosen), size):
            block = ranker.scores(ranker.rows(places[first : first + size]))[: len(items)]
            scores[first : first + size, items] = block.T.double().numpy()
        return scores

    figures = measure_ranking(score, data)
    seconds = {"fit_s": fitted - start, "rank_s": time.perf_counter() - fitted}
    return {**figures, **seconds}


if __name__ == "__main__":
    for name in sys.argv[1:] or TABLES:
        print(name, json.dumps(measure(load_positives(name))), flush=True)
