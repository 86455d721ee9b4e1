"""scikit-surprise: SVD or SVD++ by stochastic gradients, one thread. A new user means a refit."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from harness import Cells, Floats, Labels, best, run
from surprise import SVD, Dataset, Reader, SVDpp


class Surprise:
    """Its defaults, unless settings are given: 100 factors for SVD, 20 for SVD++, 20 epochs."""

    package = "scikit-surprise"
    refits = True

    def __init__(self, kind: type, **settings: float) -> None:
        self.model = kind(random_state=0, **settings)

    def fit(self, train: Cells) -> None:
        frame = pd.DataFrame(train._asdict())
        scale = (train.values.min(), train.values.max())
        data = Dataset.load_from_df(frame, Reader(rating_scale=scale))
        self.model.fit(data.build_full_trainset())

    def predict(self, test: Cells) -> Floats:
        cells = zip(*(column.tolist() for column in test), strict=True)
        return np.array([answer.est for answer in self.model.test(cells)])

    def serve(self, items: Labels, values: Floats) -> object:
        """Score a known user, as the new one will be after the refit."""
        known = self.model.trainset
        user = known.to_raw_uid(0)
        every = [known.to_raw_iid(item) for item in known.all_items()]
        return best(np.array([self.model.predict(user, item).est for item in every]))


if __name__ == "__main__":
    run(Surprise({"svd": SVD, "svdpp": SVDpp}[sys.argv[3]]))
