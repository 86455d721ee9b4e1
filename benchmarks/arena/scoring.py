"""Scores of answers: the same functions for every method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from benchmarks.arena.problem import Floats, Problem
from benchmarks.peers.positives import measures_by_user

from exchangeable import metrics
from exchangeable.values.distributions import Normal, interval

COVERAGE = 0.8
SURE = 1e-3
"""Chances are kept this far from 0 and 1: one that is sure and wrong would outweigh all."""
BINS = 10


def score(
    problem: Problem, answers: Mapping[str, Floats], deviation: float | None
) -> dict[str, float]:
    """Score the answers to a problem, whose truth is there.

    ``deviation`` is the error on validation cells, of a method that answers with numbers alone: a
    normal distribution with this deviation stands for its certainty.
    """
    if problem.kind == "positives":
        return score_lists(problem, answers["lists"])
    truth = problem.truth
    if not np.isfinite(answers["means"]).all():
        raise ValueError("answers must be numbers, but some are not")
    means = problem.clipped(answers["means"])
    scores = {"rmse": metrics.rmse(truth, means), "mae": metrics.mae(truth, means)}
    if "log_likelihoods" in answers:
        ends = np.stack([answers["low"], answers["high"]], axis=1)
        scores["log_likelihood"] = metrics.log_likelihood(answers["log_likelihoods"])
        scores["coverage"] = metrics.coverage(truth, ends)
    elif deviation is not None:
        scores |= score_normal(problem, means, deviation)
    if problem.kind == "binary":
        scores |= score_chances(truth, means)
    return scores


def score_normal(problem: Problem, means: Floats, deviation: float) -> dict[str, float]:
    """Log-likelihood and coverage of normal distributions around the means."""
    levels = torch.from_numpy(problem.levels) if len(problem.levels) else None
    normal = Normal(
        torch.from_numpy(means), torch.full((len(means),), max(deviation, 1e-9)).double(), levels
    )
    low, high = interval(normal, COVERAGE)
    likelihoods = normal.log_likelihood(torch.from_numpy(problem.truth)).numpy()
    return {
        "log_likelihood": metrics.log_likelihood(likelihoods),
        "coverage": metrics.coverage(problem.truth, torch.stack([low, high], dim=1).numpy()),
    }


def score_chances(truth: Floats, means: Floats) -> dict[str, float]:
    """Log-loss, area under the curve, and the calibration error over bins of equal width."""
    chances = np.clip(means, SURE, 1 - SURE)
    loss = -np.mean(np.where(truth == 1, np.log(chances), np.log1p(-chances)))
    places = np.minimum((chances * BINS).astype(int), BINS - 1)
    gaps = np.bincount(places, chances - truth, BINS)
    found = {"log_loss": float(loss), "calibration": float(np.abs(gaps).sum() / len(truth))}
    if len(np.unique(truth)) == 2:
        found["auc"] = metrics.concordance(truth, chances)
    return found


def score_lists(problem: Problem, lists: Floats) -> dict[str, float]:
    """Recall@20 and NDCG@10 of lists of unseen items, as the comparison of rankers has them."""
    users, rows = np.unique(problem.queries[:, 0], return_inverse=True)
    if lists.shape != (len(users), 20):
        raise ValueError(f"lists must be {(len(users), 20)}, but are {lists.shape}")
    held_out = np.zeros((len(users), problem.shape[1]), dtype=bool)
    held_out[rows, problem.queries[:, 1]] = True
    hits = np.take_along_axis(held_out, np.where(lists < 0, 0, lists), axis=1) & (lists >= 0)
    recall, ndcg = measures_by_user(hits, held_out.sum(axis=1)).mean(axis=1)
    return {"recall@20": float(recall), "ndcg@10": float(ndcg)}


def score_accuracies(problem: Problem, means: Floats) -> dict[str, float]:
    """Mean absolute error of the share of ones of each row: known cells, and answers for others."""
    rows = problem.shape[0]
    known = np.bincount(problem.index[:, 0], problem.values, rows)
    cells = np.bincount(problem.index[:, 0], minlength=rows)
    asked = np.bincount(problem.queries[:, 0], minlength=rows)
    answered, true = (
        (known + np.bincount(problem.queries[:, 0], column, rows)) / np.maximum(cells + asked, 1)
        for column in (np.clip(means, 0, 1), problem.truth)
    )
    here = cells + asked > 0
    plain = known.sum() / max(cells.sum(), 1)
    naive = np.where(cells > 0, known / np.maximum(cells, 1), plain)
    return {
        "accuracy_mae": float(np.abs(answered - true)[here].mean()),
        "accuracy_mae_of_plain_means": float(np.abs(naive - true)[here].mean()),
    }
