"""Lists of a table of ratings, by how far the chance to be observed counts beside the rating.

    python -m paper.pretrained.exposure [--table ml-100k] [--users 400]

A fifth of each user's ratings is held out. Lists are made by ``recommend`` of the pretrained model;
printed are how many held-out ratings of --least and more they hold, and the mean of all held-out
ratings that they hold.
"""

from __future__ import annotations

import argparse

import numpy as np
import polars as pl

from exchangeable.completion.completer import Completer
from exchangeable.data.splits import share_of_each
from exchangeable.datasets import load
from exchangeable.evaluation.ranking_metrics import RankingMetric
from paper.lib.command import run_command

EXPOSURES = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
METRICS = (RankingMetric("recall", 20), RankingMetric("ndcg", 10))


def compare(name: str, least: float, users: int, seed: int) -> None:
    """Print metrics of lists by exposure."""
    table = load(name).table.in_label_order()
    split = share_of_each(table, test=0.2, seed=seed)
    training = table.take(np.concatenate([split.train, split.validation]))
    completer = Completer("pretrained").fit_table(training)
    held = table.take(split.test)
    rows = held.frame(held.index).with_columns(value=pl.Series(held.values))
    user, item = table.axes
    good = rows.filter(pl.col("value") >= least)
    drawn = np.random.default_rng(seed).permutation(good[user].unique().sort().to_numpy())[:users]
    counts = np.array([good.filter(pl.col(user) == label).height for label in drawn], np.float64)
    print("| exposure | " + " | ".join(str(metric) for metric in METRICS) + " | mean rating |")
    print("|---|---|---|---|")
    for exposure in EXPOSURES:
        hits, ratings = np.zeros((len(drawn), 20)), []
        for place, label in enumerate(drawn.tolist()):
            listed = pl.DataFrame(completer.recommend(label, 20, exposure=exposure))[item]
            own = rows.filter(pl.col(user) == label)
            wanted = own.filter(pl.col("value") >= least)[item]
            hits[place, : len(listed)] = listed.is_in(wanted.implode()).to_numpy()
            ratings.extend(own.filter(pl.col(item).is_in(listed.implode()))["value"])
        figures = " | ".join(f"{metric.of(hits, counts).mean():.4f}" for metric in METRICS)
        print(f"| {exposure:g} | {figures} | {np.mean(ratings):.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", default="ml-100k")
    parser.add_argument("--least", type=float, default=4.0)
    parser.add_argument("--users", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    compare(given.table, given.least, given.users, given.seed)


if __name__ == "__main__":
    run_command(main)
