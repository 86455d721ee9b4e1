"""Last.fm, user x artist x tag: which tag does a user give to an artist? Order 3, positives only.

    python -m paper.tables.lastfm --device cuda

A tenth of the tags given is held out. Each is ranked among 100 tags that the user did not give to
the artist, drawn at random. A method's AUC is how often the true one comes before another, its
recall@10 how often it is among the first ten, and its NDCG the mean of 1 / log2(1 + place); the
differences in AUC are tested on the same cells.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from exchangeable.models.configs import ResidualConfig
from exchangeable.training.config import TrainingConfig
from exchangeable.values.codecs import OneHot
from paper.lib import problems, provenance, runs
from paper.lib.command import run_command
from paper.lib.methods import Deep, changed_in
from paper.lib.problems import Floats, Index, Problem
from paper.lib.tables import parse_arguments
from paper.lib.tags import (
    AGAINST,
    BINARY,
    asked,
    pair_counts,
    popularity,
    share_behind,
    trees,
    with_negatives,
)

NAME = "lastfm-tags"
TITLES = {
    "popularity": "how often a tag is given",
    "artist-tag": "how often it is given to the artist",
    "user-tag": "how often the user gives it",
    "trees": "boosted trees on six counts",
    "cp": "CP factorization",
    "bias": "empirical-Bayes bias",
    "vmf": "variational MF of pairs",
    "bmf": "Bayesian MF of pairs",
    "ours-order-3": "**ours**, order 3",
}
OURS = "ours-order-3"
BATCH = 16_384
"""Cells of a step of the CP factorization."""


# Methods: from positives to scores of cells ----------------------------------------------


def cp(
    data: Problem, validation: Problem, cells: Index, seed: int, rank: int = 64, steps: int = 1000
) -> Floats:
    """Logistic CP factorization with biases, by Adam; the decay that does best on validation."""
    best: tuple[float, list[torch.Tensor]] = (np.inf, [])
    for decay in (1e-6, 1e-5, 1e-4):
        found = _fit_cp(data, validation, seed, rank, steps, decay)
        best = min(best, found, key=lambda one: one[0])
    with torch.no_grad():
        return _cp_scores(best[1], torch.from_numpy(cells)).double().numpy()


def _fit_cp(
    data: Problem, validation: Problem, seed: int, rank: int, steps: int, decay: float
) -> tuple[float, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    tables = [
        (0.1 * torch.randn(size, rank + 1, generator=generator)).requires_grad_()
        for size in data.shape
    ]
    optimiser = torch.optim.Adam(tables, lr=0.02)
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    index, truth = torch.from_numpy(data.index), torch.from_numpy(data.values).float()
    there, held = torch.from_numpy(validation.index), torch.from_numpy(validation.values).float()
    best: tuple[float, list[torch.Tensor]] = (np.inf, [])
    for step in range(steps):
        some = torch.randint(len(index), (BATCH,), generator=generator)
        loss = loss_of(_cp_scores(tables, index[some]), truth[some])
        loss = loss + decay * sum((table**2).sum() for table in tables)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 49:
            with torch.no_grad():
                judged = float(loss_of(_cp_scores(tables, there), held))
            if judged < best[0]:
                best = judged, [table.detach().clone() for table in tables]
    return best


def _cp_scores(tables: list[torch.Tensor], cells: torch.Tensor) -> torch.Tensor:
    rows = [table[cells[:, axis]] for axis, table in enumerate(tables)]
    biases = sum(row[:, 0] for row in rows)
    return biases + torch.stack([row[:, 1:] for row in rows]).prod(dim=0).sum(dim=1)


def ours(seed: int, **changed: Any) -> Deep:
    codec = OneHot(2, BINARY.levels)
    config = ResidualConfig(2, 2, 3, width=32, depth=5, activation="gated", dropout=0.1, prior=12)
    training = TrainingConfig(
        steps=1500, learning_rate=5e-3, weight_decay=0.3, average=0.99, loss="cross-entropy",
        hide_most=0.5, evaluate_every=50, views=8, view_steps=100, seed=seed,
    )  # fmt: skip
    return changed_in(Deep(config, codec, training), "ours-order-3", **changed)


# What they come to -----------------------------------------------------------------------


def scored(method: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """AUC and recall of one method, and its share of tags that come behind, by positive."""
    started = time.perf_counter()
    problem = problems.load(NAME)
    known, validation, test = problem.parts("0", seed)
    base = np.sort(np.concatenate([known, validation]))
    cells = asked(problem, test, np.arange(len(problem.index)), seed)
    flat = cells.reshape(-1, 3)
    told: dict[str, Any] = {}
    if method == "popularity":
        scores = popularity(problem, base, flat)
    elif method in ("artist-tag", "user-tag"):
        scores = pair_counts(problem, base, flat, ("user-tag", "artist-tag").index(method))
    elif method == "trees":
        scores, told = trees(problem, known, validation, flat, seed)
    elif method == "cp":
        seen, held = (with_negatives(problem, own, base, seed) for own in (known, validation))
        scores = cp(seen, held, flat, seed)
    elif method in ("bias", "vmf", "bmf"):
        asking, every, places = _with_asked(with_negatives(problem, base, base, seed), flat)
        fitted = runs.fitted_baseline(asking, method, every, seed)
        scores = fitted.predict(asking.index[places]).mean().numpy()
        told = runs.baseline_summary(fitted)
    else:
        scores, told = _ours_scores(problem, known, validation, flat, seed, given)
    behind = share_behind(scores.reshape(cells.shape[:2]))
    return {
        "problem": NAME, "split": "0", "method": method, "seed": seed,
        "auc": float(behind.mean()),
        "recall": float((behind * AGAINST > AGAINST - 10).mean()),
        "behind": [round(float(b), 4) for b in behind],
        **told,
        "seconds": time.perf_counter() - started,
        **runs.environment_facts(given.device),
    }  # fmt: skip


def _ours_scores(
    problem: Problem,
    known: Index,
    validation: Index,
    flat: Index,
    seed: int,
    given: argparse.Namespace,
) -> tuple[Floats, dict[str, Any]]:
    made = ours(seed, **given.changed)
    positives = np.concatenate([known, validation])
    data = with_negatives(problem, positives, positives, seed)
    keys = np.ravel_multi_index(tuple(problem.index[validation].T), problem.shape)
    held = np.isin(np.ravel_multi_index(tuple(data.index.T), problem.shape), keys)
    train_cells, judged = np.flatnonzero(~held), np.flatnonzero(held)
    negatives = np.flatnonzero(data.values == 0)
    half = np.random.default_rng(seed).choice(negatives, len(judged), replace=False)
    judged = np.union1d(judged, half)
    state = runs.fit(data, made, np.setdiff1d(train_cells, half), judged, given.device)
    asking, every, places = _with_asked(data, flat)
    answers = runs.predictions_of(state.best, made, asking, every, places, given.device)
    return answers.mean().numpy(), runs.training_summary(state, made)


def _with_asked(data: Problem, cells: Index) -> tuple[Problem, Index, Index]:
    """Append the queried cells; return the positions of the table's cells and of the queries."""
    index = np.concatenate([data.index, cells])
    values = np.append(data.values, np.zeros(len(cells)))
    own, further = np.split(np.arange(len(index)), [len(data.index)])
    return replace(data, index=index, values=values), own, further


def ndcg(behind: Floats) -> float:
    """NDCG of lists with one true tag each, from the share of others that come behind it."""
    place = 1 + (1 - behind) * AGAINST
    return float((1 / np.log2(1 + place)).mean())


def paired(one: Floats, other: Floats, seed: int = 0) -> tuple[float, float]:
    """95 % interval of the mean difference, by bootstrap over the held-out tags."""
    difference = one - other
    generator = np.random.default_rng(seed)
    means = [
        difference[generator.integers(len(difference), size=len(difference))].mean()
        for _ in range(1000)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    given = parse_arguments(__doc__ or "")
    for seed in range(0 if given.print else given.seeds):
        for method in [m for m in TITLES if not given.only or m in given.only]:
            place = runs.place_of(NAME, "0", method, seed, given.out)
            if not place.exists() or given.again:
                found = scored(method, seed, given)
                runs.keep(found, given.out)
                print(
                    f"{method}: AUC {found['auc']:.4f}, recall@10 {found['recall']:.4f}", flush=True
                )
    kept = {
        one["method"]: one for one in runs.results(given.out)
        if (one["problem"], one["seed"]) == (NAME, 0)
    }  # fmt: skip
    rows = {TITLES[m]: [(provenance.kind_of(m), kept[m])] for m in TITLES if m in kept}
    told = provenance.check_one_code(rows, given.any_commit)
    print("\n| | AUC | recall@10 | NDCG | ours better by (95 %) | commit |\n|" + "---|" * 6)
    for method, title in TITLES.items():
        if method not in kept:
            print(f"| {title} |" + " – |" * 5)
            continue
        gap = "–"
        if OURS in kept and method != OURS:
            mine, theirs = (np.array(kept[m]["behind"]) for m in (OURS, method))
            low, high = paired(mine, theirs)
            gap = f"{low:+.4f} to {high:+.4f}"
        own = kept[method]
        figures = own["auc"], own["recall"], ndcg(np.array(own["behind"]))
        cells = [*(f"{figure:.4f}" for figure in figures), gap, provenance.commits_of([own])]
        print(f"| {title} | " + " | ".join(cells) + " |")
    print(f"\n{told}")


if __name__ == "__main__":
    run_command(main)
