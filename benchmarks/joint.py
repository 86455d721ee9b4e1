"""Tables whose axes are one set, read as one set and as two: errors on hidden cells.

    python benchmarks/joint.py [TABLE ...] [--seeds 3] [--kinships PYKEEN_WHEEL]

davis, kiba   Similarities of proteins (logarithms of normalised alignment scores, symmetric). A quarter
              of the pairs is shown, each in one direction drawn at random, as a file lists them; RMSE
              on the others.
kinships      Who is what to whom in an Australian tribe: one of 25 terms for each ordered pair of 104
              people (in the PyPI package pykeen). Half of the cells is shown; share of the others
              whose likeliest term is right. Models of numbers are fitted to each term, as 0 and 1.

Ranks of factorizations are chosen on a tenth of the cells that are shown, and so are the best
weights of models that are trained. The last line is JSON; ``--store`` keeps it beside the commit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

import exchangeable as ex
from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.baselines.gibbs import BayesianFactorization
from exchangeable.baselines.variational import Bias, VariationalFactorization
from exchangeable.data.joint import mirrored

DATA = Path(__import__("os").environ.get("EXCHANGEABLE_DATA", "."))
RESULTS = Path(__file__).parent / "results" / "joint.json"
RANKS = (1, 2, 4, 8, 16, 32)
SHOWN = {"davis": 0.25, "kiba": 0.25, "kinships": 0.5}
MAX_TEST = 20_000


def similarities(name: str) -> Floats:
    """Logarithms of alignment scores, normalised so that a protein's own is 0: (N, N)."""
    if name == "davis":
        scores = np.loadtxt(DATA / "davis" / "target-target_similarities_WS.txt")
    else:
        scores = np.loadtxt(DATA / "kiba" / "kiba_target_sim.txt")
    own = np.sqrt(np.diag(scores))
    scores = scores / own / own[:, None]
    return np.log(np.maximum((scores + scores.T) / 2, 1e-3))


def split_pairs(values: Floats, share: float, seed: int) -> tuple[Cells, Index]:
    """Show a share of the pairs, each in one direction, and test on others."""
    draws, size = np.random.default_rng(seed), len(values)
    pairs = draws.permutation(np.stack(np.triu_indices(size, 1), axis=1))
    turned = draws.random(len(pairs)) < 0.5
    pairs[turned] = pairs[turned, ::-1]
    shown = pairs[: round(share * len(pairs))]
    cells = Cells(shown, values[tuple(shown.T)], values.shape, joint=True)
    return cells, pairs[len(shown) :][:MAX_TEST]


def by_bias(cells: Cells, test: Index) -> Floats:
    return Bias().fit(cells).predict(test)[0]


def at_best_rank(
    make: Callable[[int], VariationalFactorization | BayesianFactorization],
) -> Callable[[Cells, Index], Floats]:
    """Fit at the rank that does best on a tenth of the pairs."""

    def predict(cells: Cells, test: Index) -> Floats:
        key = np.sort(cells.index, axis=1) @ [cells.shape[0], 1]
        hidden = np.isin(key, np.unique(key)[::10])
        kept, tried = cells.take(~hidden), cells.take(hidden)
        errors = [
            float(np.square(make(rank).fit(kept).predict(tried.index)[0] - tried.values).mean())
            for rank in RANKS
        ]
        return make(RANKS[int(np.argmin(errors))]).fit(cells).predict(test)[0]

    return predict


def by_completer(model: str, joint: bool) -> Callable[[Cells, Index], Floats]:
    def predict(cells: Cells, test: Index) -> Floats:
        return completer_of(model, joint, cells).predict(labelled(test))

    return predict


def labelled(index: Index) -> pl.DataFrame:
    return pl.DataFrame({"from": index[:, 0], "to": index[:, 1]})


def completer_of(model: str, joint: bool, cells: Cells, scale: str = "real") -> ex.Completer:
    units = "plain" if scale == "real" else None
    completer = ex.Completer(model, joint=joint, scale=scale, units=units)
    return completer.fit(labelled(cells.index), cells.values)


def of_both_directions(
    predict: Callable[[Cells, Index], Floats],
) -> Callable[[Cells, Index], Floats]:
    return lambda cells, test: predict(mirrored(cells), test)


BIAS = by_bias
VMF = at_best_rank(lambda rank: VariationalFactorization(rank=rank))
BMF = at_best_rank(lambda rank: BayesianFactorization(rank=rank))
SIMILARITY_METHODS: dict[str, Callable[[Cells, Index], Floats]] = {
    "bias": BIAS,
    "vmf": VMF,
    "bmf": BMF,
    "pretrained": by_completer("pretrained", False),
    "self-supervised": by_completer("self-supervised", False),
    "residual": by_completer("residual", False),
    "bias, both directions": of_both_directions(BIAS),
    "vmf, both directions": of_both_directions(VMF),
    "bmf, both directions": of_both_directions(BMF),
    "residual, both directions": of_both_directions(by_completer("residual", False)),
    "pretrained, joint": by_completer("pretrained", True),
    "self-supervised, joint": by_completer("self-supervised", True),
    "residual, joint": by_completer("residual", True),
}


def of_similarities(name: str, seed: int, only: list[str]) -> dict[str, float]:
    values = similarities(name)
    cells, test = split_pairs(values, SHOWN[name], seed)
    truth = values[tuple(test.T)]
    found = {}
    for method, predict in SIMILARITY_METHODS.items():
        if not only or method in only:
            found[method] = float(np.sqrt(np.square(predict(cells, test) - truth).mean()))
            print(f"| {name} {seed} | {method} | {found[method]:.4f} |", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=["davis", "kiba"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    for name in options.tables:
        for seed in range(options.seeds):
            of_similarities(name, seed, options.only)


if __name__ == "__main__":
    main()
