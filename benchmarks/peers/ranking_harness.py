"""Choice of a peer's settings on hidden positives, and its measures on the test pairs.

A runner is a script that calls ``run`` with its ``Ranker``, the name of a table and a number of
threads. A fifth of the training pairs of each user is hidden. The settings with the highest
NDCG@10 on them are fitted to all training pairs, and the test pairs are ranked once. A line of
JSON is printed. The module needs numpy and the peer, and nothing of ours.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
from positives import Positives, Score, load_positives, measure_ranking, split_by_user

Settings = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]


class Train(Protocol):
    """How a library is trained."""

    def __call__(
        self, data: Positives, settings: Settings, rounds: Sequence[int], threads: int
    ) -> Iterator[Score]:
        """Fit to ``data.train``, and yield how items are scored after each of ``rounds``."""
        ...


@dataclass(frozen=True)
class Ranker:
    """A model of a library, and the settings that it is tried with."""

    package: str
    """Name of its distribution."""
    train: Train
    grid: Grid
    """Values of every setting, in ascending order."""
    start: Settings
    """The settings that are tried first."""
    draws: int = 0
    """Number of random settings that are tried before the search by steps."""
    rounds: Sequence[int] = (1,)
    """Numbers of iterations after which a model is measured."""
    patience: int = 2
    """How many of ``rounds`` in a row may bring no higher NDCG@10 before training ends."""
    coupled: tuple[str, ...] = ()
    """Two settings that are moved together too, as the best value of one depends on the other."""


class Trial(NamedTuple):
    """The best NDCG@10 of some settings, and the number of iterations that reached it."""

    ndcg: float
    rounds: int


def run(ranker: Ranker, table: str, threads: int) -> None:
    """Choose, fit, measure and print; ``fit_s`` has the fit to all training pairs only."""
    data = load_positives(table)
    started = time.perf_counter()
    settings, trial, tried = choose_settings(ranker, hide(data), threads)
    chosen = time.perf_counter()
    rounds = [count for count in ranker.rounds if count <= trial.rounds]
    *_, score = ranker.train(data, settings, rounds, threads)
    fitted = time.perf_counter()
    record = {
        "version": version(ranker.package),
        **measure_ranking(score, data),
        "settings": settings | ({"iterations": trial.rounds} if len(ranker.rounds) > 1 else {}),
        "at_the_end_of_its_range": at_ends(ranker, settings, trial),
        "hidden_ndcg@10": trial.ndcg,
        "tried": tried,
        "threads": threads,
        "search_s": chosen - started,
        "fit_s": fitted - chosen,
    }
    print(json.dumps(record), flush=True)


def hide(data: Positives) -> Positives:
    """Take the training pairs alone, and hold a share of them out."""
    return Positives(*split_by_user(data.train, seed=1), data.shape)


def choose_settings(
    ranker: Ranker, data: Positives, threads: int, seconds: float = math.inf
) -> tuple[Settings, Trial, int]:
    """Climb from the best of the first settings, by steps of one setting or of the coupled ones.

    The search ends where no step leads to a higher NDCG@10, or when the seconds are over. Returns
    the settings, their trial and the number of settings tried.
    """
    trials: dict[str, Trial] = {}
    ends = time.perf_counter() + seconds

    def trial(settings: Settings) -> Trial:
        key = json.dumps(settings, sort_keys=True)
        if key not in trials:
            if trials and time.perf_counter() > ends:
                return Trial(-math.inf, ranker.rounds[0])
            trials[key] = try_settings(ranker, data, settings, threads)
        return trials[key]

    best = max([ranker.start, *drawn(ranker)], key=lambda settings: trial(settings).ndcg)
    while (moved := climb(ranker, best, trial)) != best:
        best = moved
    return best, trial(best), len(trials)


def try_settings(ranker: Ranker, data: Positives, settings: Settings, threads: int) -> Trial:
    """Train for as many of ``rounds`` as raise NDCG@10; a model that diverges has 0."""
    best, since = Trial(0.0, ranker.rounds[0]), 0
    scores = ranker.train(data, settings, ranker.rounds, threads)
    for rounds, score in zip(ranker.rounds, scores, strict=False):
        ndcg = measure_ranking(score, data)["ndcg@10"]
        best, since = (Trial(ndcg, rounds), 0) if ndcg > best.ndcg else (best, since + 1)
        if since == ranker.patience:
            break
    return best


def drawn(ranker: Ranker) -> list[Settings]:
    """Draw every setting from its values, with a fixed seed."""
    generator = np.random.default_rng(0)
    return [
        {name: values[generator.integers(len(values))] for name, values in ranker.grid.items()}
        for _ in range(ranker.draws)
    ]


def climb(ranker: Ranker, best: Settings, trial: Callable[[Settings], Trial]) -> Settings:
    """Move each setting in turn, up and down, for as long as NDCG@10 rises."""
    for move in moves(ranker):
        moved = neighbour(ranker.grid, best, move)
        while trial(moved).ndcg > trial(best).ndcg:
            best, moved = moved, neighbour(ranker.grid, moved, move)
    return best


def moves(ranker: Ranker) -> list[dict[str, int]]:
    """Steps of one setting, and of the coupled ones together."""
    single = [{name: step} for name, step in product(ranker.grid, (-1, 1))]
    steps = product((-1, 1), repeat=len(ranker.coupled)) if ranker.coupled else ()
    return single + [dict(zip(ranker.coupled, step, strict=True)) for step in steps]


def neighbour(grid: Grid, settings: Settings, move: Mapping[str, int]) -> Settings:
    """Move settings by steps; at the end of its values a setting stays."""
    places = {name: grid[name].index(settings[name]) + step for name, step in move.items()}
    last = {name: len(grid[name]) - 1 for name in places}
    return settings | {
        name: grid[name][min(max(place, 0), last[name])] for name, place in places.items()
    }


def at_ends(ranker: Ranker, settings: Settings, trial: Trial) -> list[str]:
    """Names of the chosen numbers that are the lowest or the highest of those tried."""
    values = {**ranker.grid, "iterations": ranker.rounds}
    chosen = {**settings, "iterations": trial.rounds}
    ordered = [name for name in values if len(values[name]) > 2]
    return [name for name in ordered if chosen[name] in (values[name][0], values[name][-1])]
