"""Models side by side: each fitted to the same cells, judged on the same hidden ones.

The empirical-Bayes bias and Bayesian matrix factorization stand in every table, since a figure
says little without them.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from exchangeable import metrics
from exchangeable._version import __version__
from exchangeable.arrays.cells import Floats
from exchangeable.completion.completer import Completer
from exchangeable.completion.fit import check_model
from exchangeable.completion.predictors import READ_TOGETHER, ModelPredictor, read_predictions
from exchangeable.completion.update import updated
from exchangeable.data.negatives import draw_negatives_among, observed_cells
from exchangeable.data.splits import Split, split_by_name
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.training.recipes import RECIPES
from exchangeable.training.task import facts_of

if TYPE_CHECKING:
    from exchangeable.datasets.source import Dataset

YARDSTICKS = ("bias", "bmf")
"""Every table of accuracies has these rows."""
METRICS = {
    "rmse": "RMSE",
    "mae": "MAE",
    "log_likelihood": "log-likelihood",
    "coverage": "in 80 %",
    "concordance": "concordance",
    "ndcg": "NDCG@10",
    "recall": "recall@10",
}


@dataclass(frozen=True, eq=False)
class Outcome:
    """How one model did with one seed."""

    model: str
    seed: int
    metrics: dict[str, float]
    fit_seconds: float
    answer_seconds: float
    asked: NDArray[np.int64]  # (Q, D)
    answers: Floats  # (Q,)
    truth: Floats  # (Q,)
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Outcomes of all models and seeds on one table and split."""

    name: str
    split: str
    outcomes: tuple[Outcome, ...]
    settings: dict[str, Any]
    """What else they came about with."""

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(outcome.model for outcome in self.outcomes))

    def spread(self, model: str, metric: str) -> metrics.Spread | None:
        """A metric over the seeds; None where it is not defined on these cells."""
        values = [o.metrics[metric] for o in self._of(model) if metric in o.metrics]
        return metrics.over_seeds(values) if values else None

    def best(self) -> str:
        """The model of the smallest mean RMSE."""
        return min(
            self.models, key=lambda model: np.mean([o.metrics["rmse"] for o in self._of(model)])
        )

    def against_best(self, model: str) -> metrics.Paired | None:
        """A paired bootstrap with the best model, on the cells of the first seed."""
        if model == self.best():
            return None
        one, other = self._of(model)[0], self._of(self.best())[0]
        return metrics.paired_bootstrap(one.truth, one.answers, other.answers)

    def seconds(self, model: str) -> float:
        return float(np.mean([o.fit_seconds + o.answer_seconds for o in self._of(model)]))

    def to_json(self) -> dict[str, Any]:
        """All figures, and what they came from."""
        rows = []
        for model in self.models:
            paired = self.against_best(model)
            rows.append(
                {
                    "model": model,
                    **{
                        metric: asdict(spread)
                        for metric in METRICS
                        if (spread := self.spread(model, metric)) is not None
                    },
                    "seconds": self.seconds(model),
                    "against_best": None if paired is None else asdict(paired),
                    "runs": [_run_to_json(outcome) for outcome in self._of(model)],
                }
            )
        return {
            "data": self.name,
            "split": self.split,
            **self.settings,
            "best": self.best(),
            "models": rows,
            "versions": {"exchangeable": __version__, "python": platform.python_version()},
        }

    def _of(self, model: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.model == model]


def evaluate(
    data: Dataset | Table,
    *,
    split: str = "random",
    models: Sequence[str] = ("vmf",),
    seeds: Sequence[int] = (0,),
    test: float = 0.1,
    device: str = "auto",
    steps: int | None = None,
    name: str = "table",
    progress: Progress = SILENT,
) -> Evaluation:
    """Fit every model with every seed to what a split shows, and judge it on what it hides.

    ``split`` is ``random``, ``new-rows``, ``new-columns``, ``new-both``, ``time``, or one that
    comes with a dataset. A model that chooses among its own steps does so on cells that it
    hides itself among those it is shown.
    """
    table = data if isinstance(data, Table) else data.table
    published: Mapping[str, Split] = {} if isinstance(data, Table) else data.splits
    if split not in published:  # whose cells are named by their places
        table = table.in_label_order()
    if not models or not seeds:
        raise InputError("a model and a seed or more are needed, but there is none")
    wanted = list(dict.fromkeys([*models, *YARDSTICKS]))
    for model in wanted:
        check_model(model)  # before an hour goes into the first of them
    outcomes = []
    for number, seed in enumerate(seeds):
        parts = split_by_name(table, published, split, test, seed)
        for place, model in enumerate(wanted):
            done = (number * len(wanted) + place) / (len(wanted) * len(seeds))
            step = 1 / (len(wanted) * len(seeds))
            told = progress.part(done, done + step, f"{model}, seed {seed}")
            training = None
            if steps is not None and model in RECIPES:
                training = replace(RECIPES[model].training, steps=steps, seed=seed)
            completer = Completer(model, seed=seed, device=device, training=training)
            outcomes.append(judge(completer, table, parts, told))
    settings = {"test": test, "steps": steps, "device": device, "seeds": list(seeds)}
    return Evaluation(name, split, tuple(outcomes), settings)


def judge(
    completer: Completer,
    table: Table,
    split: Split,
    progress: Progress = SILENT,
    features: Mapping[str, Any] | None = None,
) -> Outcome:
    """Fit to the cells for training and validation, read those shown, ask for the test cells."""
    seen = np.concatenate([split.train, split.validation])
    started = time.perf_counter()
    completer.fit_table(table.take(seen), features=features, progress=progress)
    if len(split.shown):
        completer._take(updated(completer._fitted(), table.take(split.shown)))
    fitted = time.perf_counter()
    asked, truth = asked_cells(table, split, completer.seed)
    (means,) = read_predictions(completer.predictor_, asked, methodcaller("mean"))
    done = time.perf_counter()
    low, high = read_predictions(
        completer.predictor_, asked, methodcaller("quantile", 0.1), methodcaller("quantile", 0.9)
    )
    intervals = np.stack([low, high], axis=1)
    surprise = log_likelihoods(completer, asked, truth)
    return Outcome(
        str(completer.model),
        completer.seed,
        scores(truth, means, intervals, surprise, asked[:, 0]),
        fitted - started,
        done - fitted,
        asked,
        means,
        truth,
        (*completer.notes_, *seen_before(completer, table)),
    )


def seen_before(completer: Completer, table: Table) -> tuple[str, ...]:
    """A warning, if a model from a folder was trained on the whole table, test cells included."""
    if not isinstance(completer.predictor_, ModelPredictor):
        return ()
    whole, _ = observed_cells(table.in_label_order(), completer.seed)
    if completer.predictor_.trained.facts.get("data") != facts_of(whole)["data"]:
        return ()
    return (f"{completer.model} was trained on the very cells that it is tested on",)


def log_likelihoods(completer: Completer, asked: NDArray[np.int64], truth: Floats) -> Floats:
    """Of the true values of the asked cells: (Q,)."""
    parts = [
        completer.predictor_.answer(asked[start : start + READ_TOGETHER])
        .log_likelihood(torch.from_numpy(truth[start : start + READ_TOGETHER]))
        .numpy()
        for start in range(0, len(truth), READ_TOGETHER)
    ]
    return np.concatenate(parts)


def scores(
    truth: Floats, means: Floats, intervals: Floats, surprise: Floats, rows: NDArray[np.int64]
) -> dict[str, float]:
    """Every metric that is defined on these cells."""
    found = {
        "rmse": metrics.rmse(truth, means),
        "mae": metrics.mae(truth, means),
        "log_likelihood": metrics.log_likelihood(surprise),
        "coverage": metrics.coverage(truth, intervals),
    }
    ranked: dict[str, Callable[[], float]] = {
        "concordance": lambda: metrics.concordance(truth, means),
        "ndcg": lambda: metrics.ndcg(truth, means, rows),
    }
    if set(np.unique(truth)) <= {0.0, 1.0}:
        ranked["recall"] = lambda: metrics.recall(truth == 1, means, rows)
    for name, measure in ranked.items():
        try:
            found[name] = measure()
        except InputError:  # all truth is equal, say: there is no order to be right about
            continue
    return found


def asked_cells(table: Table, split: Split, seed: int) -> tuple[NDArray[np.int64], Floats]:
    """The test cells and their values; where all are positives, as many others as zeros.

    The zeros are drawn where members of test cells meet, so that they differ from these in
    nothing else.
    """
    ordered = table.take(split.test).in_label_order()
    index, values = ordered.index, ordered.values
    if table.scale.kind == "positives":
        everything = table.take(np.arange(len(table))).in_label_order().index
        members = [np.unique(index[:, axis]) for axis in range(table.order)]
        draws = np.random.default_rng([seed, 1])
        zeros = draw_negatives_among(members, everything, table.shape, len(index), draws)
        index = np.concatenate([index, zeros])
        values = np.concatenate([np.ones(len(values)), np.zeros(len(zeros))])
    return index, values


def picture(evaluation: Evaluation, path: Path) -> None:
    """RMSE of every model with its deviation over seeds, best on top."""
    from exchangeable.evaluation.plots import bars

    spreads = {model: evaluation.spread(model, "rmse") for model in evaluation.models}
    known = {model: spread for model, spread in spreads.items() if spread is not None}
    ordered = sorted(known, key=lambda model: known[model].mean)
    bars(
        path,
        {model: (known[model].mean, known[model].deviation or 0.0) for model in ordered},
        title=f"{evaluation.name}, split {evaluation.split}",
        label="RMSE on hidden cells (grey: yardsticks)",
        marked=YARDSTICKS,
    )


def _run_to_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "seed": outcome.seed,
        **outcome.metrics,
        "fit_seconds": outcome.fit_seconds,
        "answer_seconds": outcome.answer_seconds,
        "notes": list(outcome.notes),
    }
