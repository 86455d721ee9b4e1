"""exchangeable: a baseline by its name, or a trained model's folder."""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
from harness import Cells, Floats, Labels, run

from exchangeable import Completer

NEWCOMER = -1
"""No label in the data is negative."""


class Ours:
    """The completer as it comes."""

    package = "exchangeable"
    refits = False

    def __init__(self, model: str) -> None:
        self.model = Completer(model, device="cpu")

    def fit(self, train: Cells) -> None:
        self.model.fit(pl.DataFrame({"user": train.users, "item": train.items}), train.values)

    def predict(self, test: Cells) -> Floats:
        return self.model.predict(pl.DataFrame({"user": test.users, "item": test.items}))

    def serve(self, items: Labels, values: Floats) -> object:
        own = dict(zip(items.tolist(), values.tolist(), strict=True))
        return self.model.recommend(NEWCOMER, n=10, ratings=own)


def warm_up(model: str) -> None:
    """Fit a small table, since modules are loaded when first used: no peer's are counted."""
    labels = np.arange(200)
    peer, cells = Ours(model), Cells(labels // 20, labels % 20, 1.0 + labels % 5)
    peer.fit(cells)
    peer.predict(cells)


if __name__ == "__main__":
    warm_up(sys.argv[3])
    run(Ours(sys.argv[3]))
