"""LensKit: biased matrix factorization by alternating least squares, all cores."""

from __future__ import annotations

import numpy as np
import pandas as pd
from harness import Cells, Floats, Labels, best, run
from lenskit.als import BiasedMFScorer
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.training import TrainingOptions


class LensKit:
    """Its defaults, unless settings are given: 50 factors, 10 epochs, regularization 0.1.

    The scorer is asked directly, a user at a time. Its pipelines and batches would do the same
    with more around it.
    """

    package = "lenskit"
    refits = False

    def __init__(self, **settings: float) -> None:
        self.model = BiasedMFScorer(**settings)

    def fit(self, train: Cells) -> None:
        users, items, ratings = train
        frame = pd.DataFrame({"user_id": users, "item_id": items, "rating": ratings})
        self.model.train(from_interactions_df(frame), TrainingOptions(rng=0))
        self.items = ItemList(item_ids=self.model.items.ids(), vocabulary=self.model.items)

    def predict(self, test: Cells) -> Floats:
        answers = np.empty(len(test.values))
        order = np.argsort(test.users, kind="stable")
        users, starts = np.unique(test.users[order], return_index=True)
        for user, places in zip(users, np.split(order, starts[1:]), strict=True):
            asked = ItemList(item_ids=test.items[places])
            scores = self.model(int(user), asked).scores()
            if np.isnan(scores).any():  # a member without training cells: what its fallback says
                biases, _ = self.model.bias.compute_for_items(asked, int(user))
                scores = np.where(np.isnan(scores), biases, scores)
            answers[places] = scores
        return answers

    def serve(self, items: Labels, values: Floats) -> object:
        query = RecQuery(history_items=ItemList(item_ids=items, rating=values))
        return best(self.model(query, self.items).scores())


if __name__ == "__main__":
    run(LensKit())
