"""Tags of Last.fm: cells with tags that were not given, counts of tags, and trees on counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from exchangeable.values.scale import Scale
from paper.lib.problems import Floats, Index, Problem

AGAINST = 100
"""Tags that each held-out one is ranked among."""
BINARY = Scale("binary", (0.0, 1.0))


def asked(problem: Problem, positives: Index, known: Index, seed: int) -> Index:
    """Each positive, and behind it the same with tags not known as given: (P, 1 + AGAINST, 3)."""
    generator = np.random.default_rng([seed, 1])
    tags = other_tags(problem, positives, np.union1d(known, positives), AGAINST, generator)
    cells = np.repeat(problem.index[positives][:, None], 1 + AGAINST, axis=1)
    cells[:, 1:, 2] = tags
    return cells


def other_tags(
    problem: Problem, positives: Index, known: Index, number: int, generator: np.random.Generator
) -> Index:
    """Tags of which it is not known that the user of a positive gave them to its artist: (P, n)."""
    seen = np.ravel_multi_index(tuple(problem.index[known].T), problem.shape)
    cells = np.repeat(problem.index[positives], number, axis=0)
    wrong = np.ones(len(cells), bool)
    while wrong.any():
        cells[wrong, 2] = generator.integers(problem.shape[2], size=int(wrong.sum()))
        wrong = np.isin(np.ravel_multi_index(tuple(cells.T), problem.shape), seen)
    return cells[:, 2].reshape(len(positives), number)


def with_negatives(problem: Problem, positives: Index, known: Index, seed: int) -> Problem:
    """The positives as ones, and for each of them a zero with a tag that is not known as given.

    A held-out tag may come up as a zero, as it does where nobody knows what is held out.
    """
    generator = np.random.default_rng([seed, 2])
    others = problem.index[positives].copy()
    others[:, 2] = other_tags(problem, positives, known, 1, generator)[:, 0]
    cells = np.concatenate([problem.index[positives], others])
    values = np.repeat([1.0, 0.0], len(positives))
    _, first = np.unique(np.ravel_multi_index(tuple(cells.T), problem.shape), return_index=True)
    return replace(problem, index=cells[first], values=values[first], scale=BINARY, tests={})


def share_behind(scores: Floats) -> Floats:
    """The share of the others that come behind the first, ties by halves: (P, 1 + N) -> (P,)."""
    first, others = scores[:, :1], scores[:, 1:]
    return ((first > others) + 0.5 * (first == others)).mean(axis=1)


def tally(known: Index, cells: Index, axes: tuple[int, ...], shape: tuple[int, ...]) -> Floats:
    """How many of the known cells agree with each cell on some axes: (E, D), (Q, D) -> (Q,)."""
    sizes = [shape[axis] for axis in axes]
    found, counts = np.unique(np.ravel_multi_index(known[:, axes].T, sizes), return_counts=True)
    wanted = np.ravel_multi_index(cells[:, axes].T, sizes)
    place = np.searchsorted(found, wanted).clip(max=len(found) - 1)
    return np.where(found[place] == wanted, counts[place], 0).astype(np.float64)


def popularity(problem: Problem, known: Index, cells: Index) -> Floats:
    return tally(problem.index[known], cells, (2,), problem.shape)


def pair_counts(problem: Problem, known: Index, cells: Index, axis: int) -> Floats:
    """How often the user or the artist has the tag; where that is equal, how often anyone has."""
    own = tally(problem.index[known], cells, (axis, 2), problem.shape)
    return own + popularity(problem, known, cells) / len(known)


COUNTED = ((0, 2), (1, 2), (2,), (0, 1), (0,), (1,))
"""Axes on which cells agree that are counted: user and tag, artist and tag, tag, and so on."""
NEGATIVES = 3
"""Cells with tags that were not given, beside each positive that trees are trained on."""
LEAVES, RATES = (4, 8, 15, 31), (0.05, 0.1)
"""Settings of the trees that are tried."""


def trees(problem: Problem, known: Index, validation: Index, cells: Index, seed: int) -> Trees:
    """Scores by boosted trees on counts; their settings are the best on validation cells.

    A positive that trees are trained on is left out of its own counts and of those of the cells
    that it is compared with, as one that is asked for is: else its smaller counts give it away.
    """
    held = asked(problem, validation, known, seed).reshape(-1, 3)
    features = count_features(problem, known, held)
    areas: dict[str, float] = {}
    for leaves in LEAVES:
        for rate in RATES:
            model = _fit_trees(problem, known, seed, leaves, rate)
            scores = model.decision_function(features).reshape(len(validation), -1)
            areas[f"{leaves} leaves, rate {rate}"] = float(share_behind(scores).mean())
    best = list(areas).index(max(areas, key=lambda setting: areas[setting]))
    base = np.sort(np.concatenate([known, validation]))
    model = _fit_trees(problem, base, seed, LEAVES[best // len(RATES)], RATES[best % len(RATES)])
    scores = model.decision_function(count_features(problem, base, cells))
    return Trees(scores, {"settings": list(areas)[best], "validation_auc": areas})


class Trees(NamedTuple):
    """Scores of cells, and how the settings were chosen."""

    scores: Floats
    told: dict[str, Any]


def count_features(
    problem: Problem, known: Index, cells: Index, left_out: Index | None = None
) -> Floats:
    """Logarithms of counts: (Q, 6). ``left_out`` has a known cell for each that is not counted."""
    counts = np.stack(
        [tally(problem.index[known], cells, axes, problem.shape) for axes in COUNTED], axis=1
    )
    if left_out is not None:
        same = cells == left_out
        counts -= np.stack([same[:, axes].all(axis=1) for axes in COUNTED], axis=1)
    return np.log1p(counts)


def _fit_trees(problem: Problem, known: Index, seed: int, leaves: int, rate: float) -> Any:
    # Other methods do without it, so that they run where it is not installed.
    from sklearn.ensemble import HistGradientBoostingClassifier

    generator = np.random.default_rng([seed, 3])
    others = np.repeat(problem.index[known], NEGATIVES, axis=0)
    others[:, 2] = other_tags(problem, known, known, NEGATIVES, generator).flatten()
    cells = np.concatenate([problem.index[known], others])
    truth = np.repeat([1.0, 0.0], [len(known), len(others)])
    model = HistGradientBoostingClassifier(
        learning_rate=rate, max_leaf_nodes=leaves, max_iter=300, early_stopping=False,
        random_state=seed,
    )  # fmt: skip
    left_out = np.concatenate(
        [problem.index[known], np.repeat(problem.index[known], NEGATIVES, axis=0)]
    )
    return model.fit(count_features(problem, known, cells, left_out), truth)
