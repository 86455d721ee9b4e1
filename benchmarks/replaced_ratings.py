"""Ratings that change one by one, folded in, beside a fit of the table as it is at the end.

    python benchmarks/replaced_ratings.py [--table ml-100k] [--ratings 200]

A tenth of the ratings is held out. Some of the others are wrong at first, and are corrected by one
call of ``update`` each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import polars as pl

from exchangeable import Completer
from exchangeable.data.table import Table
from exchangeable.datasets import load


def corrected(name: str, count: int, seed: int = 0) -> dict[str, float]:
    """Fit with wrong ratings, correct them one by one, and compare with a fit of all."""
    table, draws = load(name).table, np.random.default_rng(seed)
    order = draws.permutation(len(table))
    held, known = order[: len(order) // 10], np.sort(order[len(order) // 10 :])
    changed = draws.choice(len(known), count, replace=False)
    levels = np.array(table.scale.levels)
    wrong = table.values[known].copy()
    wrong[changed] = draws.choice(levels, count)

    def fit(values: np.ndarray) -> Completer:
        frame = pl.DataFrame(table.frame(table.index[known])).select(table.axes)
        times = None if table.times is None else table.times[known]
        return Completer("pretrained").fit_table(Table.of(frame, values, times=times))

    asked = pl.DataFrame(table.frame(table.index[held])).select(table.axes)
    truth = table.values[held]
    met = np.isin(table.index[held, 0], table.index[known[changed], 0]) | np.isin(
        table.index[held, 1], table.index[known[changed], 1]
    )
    folded = fit(wrong)
    before, seconds = folded.predict(asked), []
    for row in known[changed]:
        cell = pl.DataFrame(table.frame(table.index[[row]])).select(table.axes)
        started = time.perf_counter()
        times = None if table.times is None else table.times[[row]]
        folded.update(cell, table.values[[row]], times=times)
        seconds.append(time.perf_counter() - started)
    after, anew = folded.predict(asked), fit(table.values[known]).predict(asked)

    def error(one: np.ndarray, other: np.ndarray) -> float:
        return round(float(np.sqrt(np.mean((one - other) ** 2))), 5)

    return {
        "ratings": count,
        "rmse_with_wrong_ratings": error(before, truth),
        "rmse_folded": error(after, truth),
        "rmse_fitted_anew": error(anew, truth),
        "from_anew_with_wrong_ratings": error(before[met], anew[met]),
        "from_anew_folded": error(after[met], anew[met]),
        "median_ms": round(1000 * statistics.median(seconds), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", default="ml-100k")
    parser.add_argument("--ratings", type=int, default=200)
    given = parser.parse_args()
    found = corrected(given.table, given.ratings)
    print(f"{given.ratings} ratings of {given.table}, corrected one by one")
    for name in ("with_wrong_ratings", "folded", "fitted_anew"):
        print(
            f"  {name.replace('_', ' '):<20} RMSE of held-out ratings {found[f'rmse_{name}']:.5f}"
        )
    print(
        f"  predictions for members that are met differ from those fitted anew by "
        f"{found['from_anew_with_wrong_ratings']:.4f} before and {found['from_anew_folded']:.4f} "
        f"after; a change takes {found['median_ms']:.0f} ms"
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
