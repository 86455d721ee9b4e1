"""New users of a table of positives, by how many of their items are shown: NDCG@10.

    python benchmarks/few_items.py [ml-100k film-club]

A fifth of the users is left out of the fit. Those of them with 20 items or more are ranked from
some of their items, drawn with the seed; all others of theirs are to be found among all items.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import torch

from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.datasets import load
from exchangeable.predictors.ranking import RankingPredictor

LEAST = 4.0
MODELS = ("pretrained", "popularity", "ease", "ials")
SHOWN = (0, 1, 2, 3, 5, 10)
MIN_ITEMS, MAX_USERS, PLACES = 20, 150, 10


def main() -> None:
    for name in sys.argv[1:] or ["ml-100k"]:
        print(json.dumps({"table": name, **measure(name)}), flush=True)


def measure(name: str, seed: int = 0) -> dict[str, list[float]]:
    """NDCG@10 of each model, by the number of items shown."""
    table = load(name).table.at_least(LEAST)
    generator = np.random.default_rng(seed)
    is_new = (generator.random(table.shape[0]) < 0.2)[table.index[:, 0]]
    known = table.index[~is_new]
    own = [table.index[table.index[:, 0] == user, 1] for user in np.unique(table.index[is_new, 0])]
    items = [generator.permutation(each) for each in own if len(each) >= MIN_ITEMS][:MAX_USERS]
    cells = Cells(known, np.ones(len(known)), table.shape)
    print(f"{name}: {len(items)} new users; items shown: {', '.join(map(str, SHOWN))}")
    found = {}
    for model in MODELS:
        fitted = RankingPredictor.fit(model, cells, torch.device("cpu"))
        found[model] = [
            float(np.mean([gain(fitted, each[:shown], each[shown:]) for each in items]))
            for shown in SHOWN
        ]
        print(f"{model:>12}  " + "  ".join(f"{value:.4f}" for value in found[model]), flush=True)
    return found


def gain(fitted: RankingPredictor, shown: Index, wanted: Index) -> Floats:
    """NDCG@10 of one user's list."""
    index = np.stack([np.zeros_like(shown), shown], axis=1)
    user = fitted.for_new_members(0, index, np.ones(len(shown)))
    assert user is not None
    top, _ = next(user.best(np.array([0]), PLACES, np.arange(fitted.shape[1])))
    discounts = 1 / np.log2(np.arange(2, PLACES + 2))
    best = discounts[: min(PLACES, len(wanted))].sum()
    return (np.isin(top[0], wanted) * discounts).sum() / best


if __name__ == "__main__":
    main()
