"""The ranker of positives on a large table: seconds, memory, and the lists of all users.

    python benchmarks/ranking.py FOLDER [--device cuda] [--channels]

FOLDER has train.npz and test.npz with arrays row and column, as the published splits of Gowalla and
Yelp2018 are stored in the data folder. With --channels each ranker that the model is made of is
judged alone, too, which takes longer. It needs nothing but torch and numpy.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from exchangeable.pretraining.bundled import bundled_ranker
from exchangeable.ranking.channels import CHANNEL_RANKERS
from exchangeable.ranking.positives import Positives, Rows
from exchangeable.ranking.ranker import fit_pretrained
from exchangeable.ranking.stack import stack_scores, users_per_block

PLACES = 20


def read(folder: Path, device: torch.device) -> tuple[Positives, Positives]:
    """Read positives to fit to and to judge by."""
    parts = []
    for name in ("train", "test"):
        with np.load(folder / f"{name}.npz") as arrays:
            pairs = np.stack([arrays["row"], arrays["column"]], axis=1).astype(np.int64)
        parts.append(torch.from_numpy(pairs).to(device))
    users, items = (int(max(part[:, axis].max() for part in parts)) + 1 for axis in (0, 1))
    train, test = (Positives.of(part, (users, items)) for part in parts)
    return train, test


def judge(top: Tensor, wanted: Rows) -> dict[str, Tensor]:
    """Recall and NDCG of the first places (B, PLACES) of users that have items to find."""
    hits, counts = wanted.seen.T.gather(1, top).double(), wanted.counts.double()
    discounts = 1 / torch.arange(2, PLACES + 2, device=top.device).double().log2()
    best = discounts.cumsum(0)[counts.clamp(1, PLACES).long() - 1]
    some = counts > 0
    figures = {"recall@20": hits.sum(1) / counts.clamp(min=1), "ndcg@20": hits @ discounts / best}
    return {name: figure[some] for name, figure in figures.items()}


@torch.no_grad()
def lists(
    score: Callable[[Rows], list[Tensor]], train: Positives, test: Positives
) -> list[dict[str, float]]:
    """Mean figures of lists of all users, for each kind of scores (M, B)."""
    found: list[list[dict[str, Tensor]]] = []
    for users in torch.arange(train.shape[0], device=train.per_user.device).split(
        users_per_block(train)
    ):
        wanted = test.rows(users)
        tops = [scores.T.topk(PLACES, dim=1).indices for scores in score(train.rows(users))]
        found.append([judge(top, wanted) for top in tops])
    return [
        {name: float(torch.cat([one[name] for one in kind]).mean()) for name in kind[0]}
        for kind in zip(*found, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--channels", action="store_true")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    train, test = read(arguments.folder, device)
    network = bundled_ranker().to(device)
    start = time.perf_counter()
    model = fit_pretrained(network, train)
    fitted = time.perf_counter()
    (own,) = lists(lambda rows: [model.score(rows)], train, test)
    ranked = time.perf_counter()
    facts = {
        "users": train.shape[0],
        "items": train.shape[1],
        "positives": int(train.per_user.sum()),
        "fit_seconds": round(fitted - start, 1),
        "rank_seconds": round(ranked - fitted, 1),
        "memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "trust": model.trust,
        **own,
    }
    print(json.dumps(facts), flush=True)
    if arguments.channels:

        def alone(rows: Rows) -> list[Tensor]:
            deviations = model.channels.deviations(rows)
            stack = stack_scores(deviations, model.facts.weights, rows)
            return [stack, *(each.masked_fill(rows.seen, -torch.inf) for each in deviations)]

        names = ["stack", *CHANNEL_RANKERS]
        for name, figures in zip(names, lists(alone, train, test), strict=True):
            print(f"{name:28s} {figures['recall@20']:.4f} {figures['ndcg@20']:.4f}", flush=True)


if __name__ == "__main__":
    main()
