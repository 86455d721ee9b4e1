"""Fit to positives, the best 20 of all users, and one new user: seconds on this machine.

    python benchmarks/positives.py [ml-100k ml-1m lastfm-plays gowalla]

Tables come from the data folder. Gowalla is its training part; peak memory is printed as well.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import numpy as np

from exchangeable import Completer
from exchangeable.datasets import load

LEAST = {"ml-100k": 4.0, "ml-1m": 4.0, "lastfm-plays": 1.0, "movietweetings": 7.0}
NEWCOMERS = 50


def measure(name: str) -> dict[str, float | str]:
    dataset = load(name)
    if name in LEAST:
        table = dataset.table.at_least(LEAST[name])
    else:
        (split,) = dataset.splits.values()
        table = dataset.table.take(split.train)
    start = time.perf_counter()
    completer = Completer("pretrained").fit_table(table)
    fitted = time.perf_counter()
    ordered = completer.table_
    users = ordered.vocabularies[0].labels.gather(np.unique(ordered.index[:, 0]))
    lists = completer.recommend(users, 20)
    listed = time.perf_counter()
    items = ordered.vocabularies[1]
    own = [
        items.decode(ordered.index[ordered.index[:, 0] == code, 1])
        for code in np.unique(ordered.index[:, 0])[:NEWCOMERS]
    ]
    seconds = []
    for ratings in own:
        before = time.perf_counter()
        completer.recommend("a newcomer" if items.labels.dtype == str else -1, 20, ratings=ratings)
        seconds.append(time.perf_counter() - before)
    return {
        "table": name,
        "fit_seconds": round(fitted - start, 2),
        "list_seconds": round(listed - fitted, 2),
        "lists": len(lists) // 20,
        "new_user_ms": round(1e3 * float(np.median(seconds)), 1),
        "memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }


if __name__ == "__main__":
    for table in sys.argv[1:] or ["ml-100k", "lastfm-plays", "ml-1m"]:
        print(json.dumps(measure(table)), flush=True)
