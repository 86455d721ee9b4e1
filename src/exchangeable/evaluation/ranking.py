"""Rankers side by side: each fitted to the same positives, its lists compared with hidden ones.

Every item that a user does not have in training is a candidate, and equal scores are put in a
random sequence. No candidates are sampled: figures of sampled ones say little about lists.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from exchangeable import metrics as statistics
from exchangeable._version import __version__
from exchangeable.arrays.cells import Floats, Index, Mask
from exchangeable.completion.completer import Completer
from exchangeable.completion.update import update
from exchangeable.data.splits import Split, by_time, new_members, share_of_each
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.evaluation.comparison import plan_runs
from exchangeable.evaluation.ranking_metrics import RankingMetric, longest
from exchangeable.predictors.base import MEAN, Predictor, read_predictions
from exchangeable.predictors.ranking import RankingPredictor
from exchangeable.ranking.stack import users_per_block
from exchangeable.runtime.progress import SILENT, Progress

if TYPE_CHECKING:
    from exchangeable.datasets.source import Dataset

YARDSTICKS = ("popularity", "ease", "ials")
"""Rankers that are in every comparison, each with the setting that is best on hidden positives."""
METRICS = (RankingMetric("recall", 20), RankingMetric("ndcg", 10))
SHOWN = 0.8
"""Share of the items of a new user that it is ranked by."""
_CELLS_PER_BLOCK = 2**20


@dataclass(frozen=True, eq=False)
class RankingOutcome:
    """Figures of one model with one seed, for each user."""

    model: str
    seed: int
    users: Index  # (U,)
    figures: dict[str, Floats]  # by metric, (U,)
    fit_seconds: float
    rank_seconds: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PairedDifference:
    """Mean difference of two models' figures over the same users, with its 95 % interval."""

    difference: float
    low: float | None
    high: float | None
    """None for a single user."""

    @classmethod
    def of(cls, away: Floats) -> PairedDifference:
        """Take the differences of users (U,)."""
        mean = float(away.mean())
        if len(away) < 2:
            return cls(mean, None, None)
        error = 1.96 * float(away.std(ddof=1)) / len(away) ** 0.5
        return cls(mean, mean - error, mean + error)


@dataclass(frozen=True, eq=False)
class RankingEvaluation:
    """Outcomes of all models and seeds on one table and split."""

    name: str
    split: str
    metrics: tuple[RankingMetric, ...]
    outcomes: tuple[RankingOutcome, ...]
    settings: dict[str, Any]

    @property
    def models(self) -> list[str]:
        """Names of the models, best first by the last of the metrics."""
        names = list(dict.fromkeys(outcome.model for outcome in self.outcomes))
        last = str(self.metrics[-1])
        return sorted(names, key=lambda name: -self.spread(name, last).mean)

    def spread(self, model: str, metric: str) -> statistics.Spread:
        """Mean and deviation of a metric over the seeds."""
        means = [float(o.figures[metric].mean()) for o in self._of(model)]
        return statistics.over_seeds(means)

    def against_best(self, model: str, metric: str) -> PairedDifference | None:
        """The model's figures less those of the best: of each user the mean over the seeds."""
        best = self.models[0]
        if model == best:
            return None
        one, other = (
            np.concatenate([o.figures[metric] for o in self._of(name)]) for name in (model, best)
        )
        users = np.concatenate([o.users for o in self._of(model)])
        _, number, times = np.unique(users, return_inverse=True, return_counts=True)
        return PairedDifference.of(np.bincount(number, one - other) / times)

    def seconds(self, model: str) -> float:
        return float(np.mean([o.fit_seconds + o.rank_seconds for o in self._of(model)]))

    def to_json(self) -> dict[str, Any]:
        """Return all figures with their settings, as JSON."""
        rows = []
        for model in self.models:
            figures: dict[str, Any] = {}
            for metric in map(str, self.metrics):
                paired = self.against_best(model, metric)
                spread = self.spread(model, metric)
                figures[metric] = {
                    "mean": spread.mean,
                    "deviation": spread.deviation,
                    "against_best": None if paired is None else vars(paired),
                }
            runs = [
                {
                    "seed": o.seed,
                    "users": len(next(iter(o.figures.values()))),
                    "fit_seconds": o.fit_seconds,
                    "rank_seconds": o.rank_seconds,
                    "notes": list(o.notes),
                }
                for o in self._of(model)
            ]
            rows.append({"model": model, **figures, "seconds": self.seconds(model), "runs": runs})
        return {
            "data": self.name,
            "split": self.split,
            **self.settings,
            "best": self.models[0],
            "models": rows,
            "versions": {"exchangeable": __version__, "python": platform.python_version()},
        }

    def _of(self, model: str) -> list[RankingOutcome]:
        return [outcome for outcome in self.outcomes if outcome.model == model]


def evaluate_ranking(
    data: Dataset | Table,
    *,
    split: str = "random",
    models: Sequence[str] = ("pretrained",),
    seeds: Sequence[int] = (0,),
    test: float = 0.2,
    metrics: Sequence[RankingMetric] = METRICS,
    device: str = "auto",
    name: str = "table",
    progress: Progress = SILENT,
) -> RankingEvaluation:
    """Fit every model to the training positives of a split; rank all other items of each user.

    ``split`` is ``random``, which holds out a share of each user's items, ``time``, the latest of
    all, ``new-rows``, whole users of whose items 80 % are shown, or one of a dataset.
    """
    table = data if isinstance(data, Table) else data.table
    published: Mapping[str, Split] = {} if isinstance(data, Table) else data.splits
    if table.order != 2 or table.scale.kind != "positives":
        raise InputError(
            f"lists are evaluated on positives of two axes, but this table has {table.order} and "
            f"{table.scale}; Table.at_least makes positives of values"
        )
    if split not in published:  # a published split names cells by position
        table = table.in_label_order()
    outcomes = []
    for seed, runs in plan_runs(models, YARDSTICKS, seeds, progress):
        parts = split_positives(table, published, split, test, seed)
        for model, part in runs:
            completer = Completer(model, seed=seed, device=device)
            outcomes.append(judge_ranking(completer, table, parts, metrics, part))
    settings = {"test": test, "device": device, "seeds": list(seeds)}
    return RankingEvaluation(name, split, tuple(metrics), tuple(outcomes), settings)


def split_positives(
    table: Table, published: Mapping[str, Split], name: str, test: float, seed: int
) -> Split:
    """Return a published split, or hold out items of each user, the latest, or whole users."""
    if name in published:
        return published[name]
    if name == "random":
        split = share_of_each(table, test=test, seed=seed)
    elif name == "time":
        split = by_time(table, test=test)
    elif name == "new-rows":
        split = new_members(table, (0,), members=test, shown=SHOWN, seed=seed)
    else:
        names = ", ".join([*published, "random", "time", "new-rows"])
        raise InputError(f"split must be one of {names}, but is {name!r}")
    if not len(split.test) or not len(split.train):
        raise InputError(f"split {name!r} leaves nothing to train on or to test: {split}")
    return split


def judge_ranking(
    completer: Completer,
    table: Table,
    split: Split,
    metrics: Sequence[RankingMetric] = METRICS,
    progress: Progress = SILENT,
) -> RankingOutcome:
    """Fit to training cells, update with the shown ones, and rank what users do not have."""
    start = time.perf_counter()
    training = table.take(np.concatenate([split.train, split.validation]))
    completer.fit_table(training, progress=progress)
    if len(split.shown):
        completer.fitted_ = update(completer.fitted_, table.take(split.shown))
    fitted = time.perf_counter()
    wanted = table.take(split.test).in_label_order().index
    observed = np.concatenate([split.train, split.validation, split.shown])
    seen = table.take(observed).in_label_order().index
    hits, counts = _hits(
        completer.predictor_, seen, wanted, table.shape, longest(metrics), completer.seed, progress
    )
    figures = {str(metric): metric.of(hits, counts) for metric in metrics}
    ranked = time.perf_counter()
    return RankingOutcome(
        str(completer.model),
        completer.seed,
        np.unique(wanted[:, 0]),
        figures,
        fitted - start,
        ranked - fitted,
        completer.notes_,
    )


def picture(evaluation: RankingEvaluation, path: Path) -> None:
    """Plot the last metric of every model with its deviation over seeds, best on top."""
    from exchangeable.evaluation.plots import bars

    metric = str(evaluation.metrics[-1])
    spreads = {model: evaluation.spread(model, metric) for model in evaluation.models}
    bars(
        path,
        {model: (spread.mean, spread.deviation or 0.0) for model, spread in spreads.items()},
        title=f"{evaluation.name}, split {evaluation.split}",
        label=f"{metric} of hidden items among all unseen ones (grey: yardsticks)",
        marked=YARDSTICKS,
    )


def _hits(
    predictor: Predictor,
    seen: Index,
    wanted: Index,
    shape: tuple[int, ...],
    places: int,
    seed: int,
    progress: Progress,
) -> tuple[Floats, Floats]:
    """Rank the unseen items of all users with held-out ones; return hits (U, K) and counts (U,)."""
    users = np.unique(wanted[:, 0])
    generator = np.random.default_rng([seed, 2])
    hits, counts = [], []
    for done, block, scores in _score_blocks(predictor, users, shape):
        progress.at(done, f"ranking {shape[1]:,} items for {len(users):,} users")
        held, own = (_dense(cells, block, shape[1]) for cells in (wanted, seen))
        scores[own & ~held] = -np.inf
        turn = generator.permutation(shape[1])  # equal scores come in a random sequence
        mixed = torch.from_numpy(scores[:, turn])
        top = turn[mixed.topk(min(places, shape[1]), dim=1, sorted=True).indices.numpy()]
        found = np.take_along_axis(held, top, axis=1).astype(np.float64)
        listed = np.isfinite(np.take_along_axis(scores, top, axis=1))
        hits.append(found * listed)
        counts.append(held.sum(axis=1).astype(np.float64))
    return np.concatenate(hits), np.concatenate(counts)


def _score_blocks(
    predictor: Predictor, users: Index, shape: tuple[int, ...]
) -> Iterator[tuple[float, Index, Floats]]:
    """Score all items for blocks of users: the share done, the users and scores (B, M)."""
    size = max(1, _CELLS_PER_BLOCK // shape[1])
    if isinstance(predictor, RankingPredictor):
        size = users_per_block(predictor.positives)
    for start in range(0, len(users), size):
        block = users[start : start + size]
        if isinstance(predictor, RankingPredictor):
            scores = predictor.scores(predictor.rows(block))[: shape[1]].T.double().cpu().numpy()
        else:
            cells = np.stack(np.meshgrid(block, np.arange(shape[1]), indexing="ij"), axis=2)
            scores = read_predictions(predictor, cells.reshape(-1, 2), MEAN)[0]
            scores = scores.reshape(len(block), shape[1])
        yield start / len(users), block, scores.copy()


def _dense(cells: Index, users: Index, items: int) -> Mask:
    """Return which items users of a block have: (B, M). Cells and users ascend."""
    block = cells[slice(*np.searchsorted(cells[:, 0], [users[0], users[-1] + 1]))]
    place = np.searchsorted(users, block[:, 0])
    inside = users[place] == block[:, 0]
    found = np.zeros((len(users), items), dtype=bool)
    found[place[inside], block[inside, 1]] = True
    return found
