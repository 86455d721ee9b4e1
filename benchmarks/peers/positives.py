"""Tables of positives, split by user, and the measures of a ranking over all unseen items.

The pairs of user and item are those of four public tables: ratings of 4 and more of ML-100K and
ML-1M, ratings of 7 and more of MovieTweetings, and all plays of Last.fm. The module needs numpy
and nothing else, so that it works in the environment of every peer.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Pairs = NDArray[np.int64]  # (E, 2), user and item
Score = Callable[[NDArray[np.int64]], NDArray[np.floating]]
"""Scores of all items for some users: (B,) -> (B, M)."""
HELD_OUT = 0.2
"""Share of the pairs of each user that is held out, rounded down."""


@dataclass(frozen=True)
class Positives:
    """Pairs to fit, pairs to be ranked, and the size of the table."""

    train: Pairs
    test: Pairs
    shape: tuple[int, int]  # (N, M), users and items


def ml_100k(folder: Path) -> Pairs:
    return at_least(np.loadtxt(folder / "ml-100k" / "u.data", dtype=np.int64), 4)


def ml_1m(folder: Path) -> Pairs:
    with zipfile.ZipFile(folder / "ml-1m" / "ml-1m.zip") as archive:
        name = next(name for name in archive.namelist() if name.endswith("ratings.dat"))
        return at_least(colon_separated(archive.read(name).decode()), 4)


def movietweetings(folder: Path) -> Pairs:
    path = folder / "movietweetings-100k" / "ratings.dat"
    return at_least(colon_separated(path.read_text()), 7)


def lastfm(folder: Path) -> Pairs:
    path = folder / "lastfm-2k" / "user_artists.dat"
    return np.loadtxt(path, dtype=np.int64, skiprows=1)[:, :2]


TABLES: dict[str, Callable[[Path], Pairs]] = {
    "ml-100k": ml_100k,
    "movietweetings": movietweetings,
    "lastfm": lastfm,
    "ml-1m": ml_1m,
}


def colon_separated(text: str) -> NDArray[np.int64]:
    return np.array([line.split("::") for line in text.split()], dtype=np.int64)


def at_least(ratings: NDArray[np.int64], lowest: int) -> Pairs:
    """Keep user and item where the third column is ``lowest`` or more."""
    return ratings[ratings[:, 2] >= lowest, :2]


def load_positives(name: str, seed: int = 0) -> Positives:
    """Read a table from the folder $EXCHANGEABLE_DATA, number its members and split it."""
    labels = TABLES[name](Path(os.environ["EXCHANGEABLE_DATA"]))
    columns = [np.unique(column, return_inverse=True)[1] for column in labels.T]
    train, test = split_by_user(np.stack(columns, axis=1), seed)
    return Positives(train, test, (int(columns[0].max()) + 1, int(columns[1].max()) + 1))


def split_by_user(pairs: Pairs, seed: int) -> tuple[Pairs, Pairs]:
    """Hold out a share of the pairs of each user; users with fewer than five keep all."""
    unique = np.unique(pairs, axis=0)
    shuffled = unique[np.random.default_rng(seed).permutation(len(unique))]
    by_user = shuffled[np.argsort(shuffled[:, 0], kind="stable")]
    users = by_user[:, 0]
    counts = np.bincount(users)
    place = np.arange(len(users)) - (counts.cumsum() - counts)[users]
    held_out = place < np.floor(HELD_OUT * counts)[users]
    return by_user[~held_out], by_user[held_out]


def measure_ranking(score: Score, data: Positives, batch: int = 2048) -> dict[str, float]:
    """Recall@20 and NDCG@10 over all items that a user does not have in ``train``.

    Recall is divided by the number of held-out items, and the ideal of NDCG has as many of them
    as fit into ten places. Users without held-out items are left out. Items of equal scores are
    ranked in a random sequence, drawn once for all users.
    """
    users = np.unique(data.test[:, 0])
    sequence = np.random.default_rng(0).permutation(data.shape[1])
    parts = []
    for start in range(0, len(users), batch):
        chosen = users[start : start + batch]
        scores = np.array(score(chosen), dtype=np.float64)
        scores[membership(data.train, chosen, data.shape[1])] = -np.inf
        ranked = sequence[highest(scores[:, sequence], 20)]
        held_out = membership(data.test, chosen, data.shape[1])
        hits = np.take_along_axis(held_out, ranked, axis=1)
        parts.append(measures_by_user(hits, held_out.sum(axis=1)))
    recall, ndcg = np.concatenate(parts, axis=1).mean(axis=1)
    return {"recall@20": float(recall), "ndcg@10": float(ndcg)}


def membership(pairs: Pairs, users: NDArray[np.int64], items: int) -> NDArray[np.bool_]:
    """Mark the items of some users, who ascend: (B, M)."""
    marked = np.zeros((len(users), items), dtype=bool)
    some = pairs[np.isin(pairs[:, 0], users)]
    marked[np.searchsorted(users, some[:, 0]), some[:, 1]] = True
    return marked


def highest(scores: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Places of the highest scores of each row, best first: (B, M) -> (B, count)."""
    top = np.argpartition(-scores, count, axis=1)[:, :count]
    by_score = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1, kind="stable")
    return np.take_along_axis(top, by_score, axis=1)


def measures_by_user(hits: NDArray[np.bool_], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Recall@20 and NDCG@10 of each user, by hits in rank order and held-out items: (2, B)."""
    discounts = 1 / np.log2(np.arange(2, 12))
    ideal = discounts.cumsum()[np.minimum(sizes, 10) - 1]
    return np.stack([hits[:, :20].sum(axis=1) / sizes, hits[:, :10] @ discounts / ideal])
