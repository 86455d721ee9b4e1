"""Models side by side: each fitted to the same cells, evaluated on the same hidden ones.

The empirical-Bayes bias and Bayesian matrix factorization are in every comparison, since a figure
says little without them.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exchangeable import metrics
from exchangeable._version import __version__
from exchangeable.arrays.cells import Floats, Index
from exchangeable.baselines import BASELINES
from exchangeable.completion.completer import Completer
from exchangeable.completion.fit import check_model, is_ranked
from exchangeable.completion.update import update
from exchangeable.data.negatives import draw_negatives_among, observed_cells
from exchangeable.data.splits import Split, split_by_name
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import recode_cells
from exchangeable.errors import InputError
from exchangeable.predictors.base import interval_ends, score_predictions
from exchangeable.predictors.literal import TrainedPredictor
from exchangeable.predictors.units import unwrapped
from exchangeable.pretraining.bundled import NAME
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.training.recipes import RECIPES
from exchangeable.training.task import facts_of

if TYPE_CHECKING:
    from exchangeable.datasets.source import Dataset

YARDSTICKS = ("bias", "bmf")
"""Models that are in every comparison."""
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
    """Predictions and scores of one model with one seed."""

    model: str
    seed: int
    metrics: dict[str, float]
    fit_seconds: float
    predict_seconds: float
    queries: Index  # (Q, D), codes of the table that the model was fitted to
    predictions: Floats  # (Q,)
    truth: Floats  # (Q,)
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Outcomes of all models and seeds on one table and split."""

    name: str
    split: str
    outcomes: tuple[Outcome, ...]
    settings: dict[str, Any]
    """The arguments of ``evaluate``."""

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(outcome.model for outcome in self.outcomes))

    def spread(self, model: str, metric: str) -> metrics.Spread | None:
        """Mean and deviation of a metric over the seeds; None where it is not defined."""
        values = [o.metrics[metric] for o in self._of(model) if metric in o.metrics]
        return metrics.over_seeds(values) if values else None

    def best(self) -> str:
        """Return the model with the smallest mean RMSE."""
        return min(
            self.models, key=lambda model: np.mean([o.metrics["rmse"] for o in self._of(model)])
        )

    def against_best(self, model: str) -> metrics.Paired | None:
        """Compare with the best model by a paired bootstrap, on the cells of the first seed."""
        if model == self.best():
            return None
        one, other = self._of(model)[0], self._of(self.best())[0]
        return metrics.paired_bootstrap(one.truth, one.predictions, other.predictions)

    def seconds(self, model: str) -> float:
        return float(np.mean([o.fit_seconds + o.predict_seconds for o in self._of(model)]))

    def to_json(self) -> dict[str, Any]:
        """Return all figures with their settings, as JSON."""
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
    models: Sequence[str] = ("auto", "vmf"),
    seeds: Sequence[int] = (0,),
    test: float = 0.1,
    device: str = "auto",
    steps: int | None = None,
    features: Mapping[str, Any] | None = None,
    sample_cells: int | None = None,
    name: str = "table",
    progress: Progress = SILENT,
) -> Evaluation:
    """Fit every model with every seed to the training cells of a split; evaluate on its test cells.

    ``split`` is ``random``, ``new-rows``, ``new-columns``, ``new-both``, ``time``, or one that
    comes with a dataset. A model that chooses among its own training steps does so on validation
    cells that it takes from its training cells. ``features`` are those of ``Completer.fit``, for
    the models that read some, and ``sample_cells`` its own, for those that are trained.
    """
    table = data if isinstance(data, Table) else data.table
    published: Mapping[str, Split] = {} if isinstance(data, Table) else data.splits
    if is_ranked(table, "auto"):
        raise InputError(
            "lists of positives are compared by evaluate_ranking: errors on drawn cells say little"
        )
    if split not in published:  # a published split names cells by position
        table = table.in_label_order()
    outcomes = []
    for seed, runs in plan_runs(models, YARDSTICKS, seeds, progress):
        parts = split_by_name(table, published, split, test, seed)
        for model, part in runs:
            training = None
            if steps is not None and model in RECIPES:
                training = replace(RECIPES[model].training, steps=steps, seed=seed)
            completer = Completer(model, seed=seed, device=device, training=training)
            if model not in BASELINES and model not in ("auto", NAME):
                completer.set_params(sample_cells=sample_cells)
            given = None if model in BASELINES else features
            outcomes.append(judge(completer, table, parts, part, given))
    settings = {"test": test, "steps": steps, "device": device, "seeds": list(seeds)}
    return Evaluation(name, split, tuple(outcomes), settings)


def plan_runs(
    models: Sequence[str], yardsticks: Sequence[str], seeds: Sequence[int], progress: Progress
) -> Iterator[tuple[int, list[tuple[str, Progress]]]]:
    """Check all models first; then yield each seed with the models and their parts of progress."""
    if not models or not seeds:
        raise InputError("a model and a seed or more are needed, but there is none")
    compared = list(dict.fromkeys([*models, *yardsticks]))
    for model in compared:
        check_model(model)  # before an hour goes into the first of them
    step = 1 / (len(compared) * len(seeds))
    for number, seed in enumerate(seeds):
        starts = [(number * len(compared) + place) * step for place in range(len(compared))]
        yield (
            seed,
            [
                (model, progress.part(start, start + step, f"{model}, seed {seed}"))
                for model, start in zip(compared, starts, strict=True)
            ],
        )


def judge(
    completer: Completer,
    table: Table,
    split: Split,
    progress: Progress = SILENT,
    features: Mapping[str, Any] | None = None,
) -> Outcome:
    """Fit to training and validation cells, update with the shown ones, predict the test cells."""
    start = time.perf_counter()
    training = table.take(np.concatenate([split.train, split.validation]))
    completer.fit_table(training, features=features, progress=progress)
    if len(split.shown):
        completer.fitted_ = update(completer.fitted_, table.take(split.shown))
    fit_end = time.perf_counter()
    queries, truth = held_out_cells(table, split, completer.seed, completer.table_)
    low_end, high_end = interval_ends(0.8)
    means, low, high, log_likelihoods = score_predictions(
        completer.predictor_,
        queries,
        truth,
        lambda distribution, _: distribution.mean(),
        lambda distribution, _: low_end(distribution),
        lambda distribution, _: high_end(distribution),
        lambda distribution, values: distribution.log_likelihood(values),
    )
    predict_end = time.perf_counter()
    intervals = np.stack([low, high], axis=1)
    return Outcome(
        str(completer.model),
        completer.seed,
        # Lists of drawn cells would say little about lists of all.
        scores(
            truth,
            means,
            intervals,
            log_likelihoods,
            None if table.scale.kind == "positives" else queries[:, 0],
        ),
        fit_end - start,
        predict_end - fit_end,
        queries,
        means,
        truth,
        (*completer.notes_, *warn_if_seen(completer, table)),
    )


def warn_if_seen(completer: Completer, table: Table) -> tuple[str, ...]:
    """Return a warning if a model was trained on the whole table before, test cells included."""
    predictor = unwrapped(completer.predictor_)
    if not isinstance(predictor, TrainedPredictor):
        return ()
    whole, _ = observed_cells(table.in_label_order(), completer.seed)
    if predictor.trained.facts.get("data") != facts_of(whole)["data"]:
        return ()
    return (f"{completer.model} was trained on the very cells that it is tested on",)


def scores(
    truth: Floats, means: Floats, intervals: Floats, log_likelihoods: Floats, rows: Index | None
) -> dict[str, float]:
    """Compute every metric that is defined on these cells; of lists only with their ``rows``."""
    computed = {
        "rmse": metrics.rmse(truth, means),
        "mae": metrics.mae(truth, means),
        "log_likelihood": metrics.log_likelihood(log_likelihoods),
        "coverage": metrics.coverage(truth, intervals),
    }
    ranked: dict[str, Callable[[], float]] = {
        "concordance": lambda: metrics.concordance(truth, means),
    }
    if rows is not None:
        ranked["ndcg"] = lambda: metrics.ndcg(truth, means, rows)
        if set(np.unique(truth)) <= {0.0, 1.0}:
            ranked["recall"] = lambda: metrics.recall(truth == 1, means, rows)
    for name, measure in ranked.items():
        try:
            computed[name] = measure()
        except InputError:  # all true values are equal, say: there is no ranking to compare with
            continue
    return computed


def held_out_cells(table: Table, split: Split, seed: int, fitted: Table) -> tuple[Index, Floats]:
    """Return the test cells and their values; of positives, with as many others as zeros.

    Cells are codes of the ``fitted`` table, which may have further members. The zeros are drawn
    among members of test cells, so that they differ from these in nothing else.
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
    return recode_cells(index.T, ordered.vocabularies, fitted.vocabularies), values


def picture(evaluation: Evaluation, path: Path) -> None:
    """Plot the RMSE of every model with its deviation over seeds, best on top."""
    from exchangeable.evaluation.plots import bars

    spreads = {model: evaluation.spread(model, "rmse") for model in evaluation.models}
    defined = {model: spread for model, spread in spreads.items() if spread is not None}
    ranked = sorted(defined, key=lambda model: defined[model].mean)
    bars(
        path,
        {model: (defined[model].mean, defined[model].deviation or 0.0) for model in ranked},
        title=f"{evaluation.name}, split {evaluation.split}",
        label="RMSE on hidden cells (grey: yardsticks)",
        marked=YARDSTICKS,
    )


def _run_to_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "seed": outcome.seed,
        **outcome.metrics,
        "fit_seconds": outcome.fit_seconds,
        "answer_seconds": outcome.predict_seconds,
        "notes": list(outcome.notes),
    }
