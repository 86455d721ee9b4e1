"""Positives only: the pretrained ranker beside every single ranker, on four development tables.

    python -m paper.pretrained.positives [--only ml-100k,lastfm-plays]
    python -m paper.pretrained.positives --picture chances.png
    python -m paper.pretrained.positives --new-users

Ratings of 4 and more (7 of 10 on MovieTweetings), or all plays, are positives. A fifth of each
user's items is held out, and all items that a user does not have are ranked. The setting of each
single ranker, and which of them is the best, are chosen on hidden positives of the training part.
A difference is paired over users; z is its mean over its standard error. With --picture instead the
chances of all unseen cells are compared with how many of them were held out. With --new-users whole
users are held out, and ranked from four fifths of their items; beside it the same users are read
together with all others.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from exchangeable.arrays.cells import Floats
from exchangeable.completion.completer import Completer
from exchangeable.data.splits import Split, by_share
from exchangeable.data.table import Table
from exchangeable.datasets import load
from exchangeable.errors import InputError
from exchangeable.evaluation.ranking import judge_ranking, split_positives
from exchangeable.predictors.base import MEAN, read_predictions
from exchangeable.predictors.ranking import RankingPredictor
from exchangeable.ranking.registry import RANKERS
from exchangeable.ranking.single import SingleRanker
from paper.lib.command import run_command

TABLES = {"ml-100k": 4.0, "lastfm-plays": 1.0, "movietweetings": 7.0, "ml-1m": 4.0}
"""The least value of a positive, by table."""
METRICS = ("recall@20", "ndcg@10")
TEST = 0.2
CHANCE_USERS = 400
EDGES = np.geomspace(1e-5, 1, 16)


def positives(name: str) -> Table:
    return load(name).table.at_least(TABLES[name]).in_label_order()


def compare(name: str, seed: int) -> None:
    """Print figures of the pretrained ranker and of all others."""
    table = positives(name)
    split = split_positives(table, {}, "random", TEST, seed)
    gains, figures, seconds, settings = {}, {}, {}, {}
    for model in ("pretrained", *RANKERS):
        completer = Completer(model)
        outcome = judge_ranking(completer, table, split)
        figures[model] = outcome.figures
        seconds[model] = outcome.fit_seconds + outcome.rank_seconds
        ranker = completer.predictor_
        assert isinstance(ranker, RankingPredictor)
        if isinstance(ranker.model, SingleRanker):
            gains[model], settings[model] = ranker.model.gain, ranker.model.setting
    chosen = max(gains, key=lambda model: gains[model])
    users = len(figures[chosen][METRICS[0]])
    print(f"\n{name}: {table.shape[0]:,} x {table.shape[1]:,}, {users:,} users judged")
    print(f"best single ranker on hidden positives: {chosen} {settings[chosen]}")
    print("| | recall@20 | NDCG@10 | z | z | s |\n|---|---|---|---|---|---|")
    for model, own_figures in figures.items():
        means = " | ".join(f"{own_figures[metric].mean():.4f}" for metric in METRICS)
        ahead = " | ".join(_z(figures["pretrained"], own_figures, metric) for metric in METRICS)
        print(f"| {model} {settings.get(model, '')} | {means} | {ahead} | {seconds[model]:.1f} |")


def _z(one: Mapping[str, Floats], other: Mapping[str, Floats], metric: str) -> str:
    away = one[metric] - other[metric]
    error = away.std(ddof=1) / len(away) ** 0.5
    return f"{away.mean() / error:+.1f}" if error else "–"


def chances(name: str, seed: int) -> tuple[Floats, Floats, Floats]:
    """Mean chances, rates of held-out cells and numbers of those, by the size of the chance.

    Every positive is held out with the same probability.
    """
    table = positives(name)
    split = by_share(table, test=TEST, validation=0.0, seed=seed)
    completer = Completer("pretrained").fit_table(table.take(split.train))
    held = table.take(split.test).in_label_order().index
    seen = table.take(split.train).in_label_order().index
    users = np.random.default_rng(seed).permutation(np.unique(seen[:, 0]))[:CHANCE_USERS]
    promised, found = [], []
    for user in users:
        items = np.setdiff1d(np.arange(table.shape[1]), seen[seen[:, 0] == user, 1])
        cells = np.stack([np.full(len(items), user), items], axis=1)
        promised.append(read_predictions(completer.predictor_, cells, MEAN)[0])
        found.append(np.isin(items, held[held[:, 0] == user, 1]))
    chance, hit = np.concatenate(promised), np.concatenate(found)
    place = np.clip(np.searchsorted(EDGES, chance), 1, len(EDGES) - 1)
    ones = np.ones(len(hit))
    sums = [np.bincount(place, w, minlength=len(EDGES)) for w in (chance, hit * ones, ones)]
    some = sums[1] >= 10
    print(
        f"{name}: {chance.sum():.0f} held-out cells expected among unseen ones, {hit.sum()} found"
    )
    for low, c, h, n in zip(EDGES[:-1], *(s[1:] for s in sums), strict=True):
        if n:
            print(f"  from {low:.5f}: chance {c / n:.5f}, found {h / n:.5f} of {n:,.0f}")
    count = sums[1][some].astype(np.float64)
    return sums[0][some] / sums[2][some], count / sums[2][some], count


def draw(path: Path, curves: Mapping[str, tuple[Floats, Floats, Floats]]) -> None:
    """Plot how often cells were held-out positives against their chances."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    panel = figure.subplots()
    panel.plot([1e-4, 1], [1e-4, 1], color="#999999", linewidth=1, label="as predicted")
    for name, (promised, found, count) in curves.items():
        error = 1.96 * found / np.sqrt(count)
        panel.errorbar(promised, found, yerr=error, fmt="o-", markersize=4, linewidth=1, label=name)
    panel.set(
        xscale="log",
        yscale="log",
        xlabel="predicted chance of an unseen cell",
        ylabel="share that was a held-out positive",
    )
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False)
    figure.savefig(path, dpi=110)


def new_users(name: str, seed: int) -> None:
    """Compare users ranked from their own items with the same users read with all others."""
    table = positives(name)
    split = split_positives(table, {}, "new-rows", 0.1, seed)
    together = Split(np.sort(np.concatenate([split.train, split.shown])), split.test)
    print(f"\n{name}, whole new users from 80 % of their items, and read together with all others")
    for model in ("pretrained", "ease", "ials"):
        alone, whole = (judge_ranking(Completer(model), table, s) for s in (split, together))
        for metric in METRICS:
            one, other = (outcome.figures[metric].mean() for outcome in (alone, whole))
            away = f"{100 * (one / other - 1):+.2f} %"
            print(f"{model} {metric}: {one:.4f}, together {other:.4f}, {away}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(TABLES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--new-users", action="store_true")
    given = parser.parse_args()
    names = given.only.split(",")
    if not set(names) <= set(TABLES):
        raise InputError(f"tables are {', '.join(TABLES)}, but {given.only} were named")
    curves = {}
    for name in names:
        if given.new_users:
            new_users(name, given.seed)
            continue
        if given.picture is None:
            compare(name, given.seed)
        else:
            curves[name] = chances(name, given.seed)
    if curves:
        draw(given.picture, curves)


if __name__ == "__main__":
    run_command(main)
