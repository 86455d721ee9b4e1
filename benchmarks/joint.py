"""Tables whose axes are one set, read as one set and as two: errors on hidden cells.

    python benchmarks/joint.py [kiba davis] [--seeds 1] [--only METHOD ...] [--print]

kiba, davis   Similarities of proteins: logarithms of normalised alignment scores, symmetric. A
              quarter of the pairs is shown, each in one direction drawn at random, as a file lists
              them. Error: RMSE on others.

"both directions" means that cells were written twice, as a person would who knows of the symmetry.
Ranks of factorizations are chosen on a tenth of the shown pairs. Each run is kept in
``results/joint.json`` with its commit; ``--print`` prints the table of all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

import exchangeable as ex
from exchangeable.arrays.cells import Cells, Floats, Index
from exchangeable.baselines.gibbs import BayesianFactorization
from exchangeable.baselines.variational import Bias, VariationalFactorization
from exchangeable.data.joint import mirrored

Fit = Callable[[Cells, Index], Floats]
"""Predicts numbers for the cells of an index (Q, 2) from observed ones."""

RESULTS = Path(__file__).parent / "results" / "joint.json"
RANKS = (1, 2, 4, 8, 16, 32)
TABLES = ("kiba", "davis")
SHOWN = 0.25
MAX_TEST = 20_000


def similarities(name: str) -> Floats:
    """Logarithms of alignment scores, normalised so that a protein's own is 0: (N, N)."""
    file = {"kiba": "kiba_target_sim.txt", "davis": "target-target_similarities_WS.txt"}[name]
    scores = np.loadtxt(Path(os.environ["EXCHANGEABLE_DATA"]) / name / file)
    own = np.sqrt(np.diag(scores))
    scores = scores / own / own[:, None]
    return np.asarray(np.log(np.maximum((scores + scores.T) / 2, 1e-3)))


def split(name: str, seed: int) -> tuple[Cells, Index, Floats]:
    """Return the cells that are shown, and others with their values."""
    draws = np.random.default_rng(seed)
    values = similarities(name)
    pairs = draws.permutation(np.stack(np.triu_indices(len(values), 1), axis=1))
    turned = draws.random(len(pairs)) < 0.5
    pairs[turned] = pairs[turned, ::-1]
    found = values[tuple(pairs.T)]
    shown, size = round(SHOWN * len(pairs)), int(pairs.max()) + 1
    cells = Cells(pairs[:shown], found[:shown], (size, size), joint=True)
    return cells, pairs[shown:][:MAX_TEST], found[shown:][:MAX_TEST]


def labelled(index: Index) -> pl.DataFrame:
    return pl.DataFrame({"from": index[:, 0], "to": index[:, 1]})


def by_completer(model: str, *, joint: bool) -> Fit:
    def fit(cells: Cells, test: Index) -> Floats:
        completer = ex.Completer(model, joint=joint, scale="real", units="plain")
        return completer.fit(labelled(cells.index), cells.values).predict(labelled(test))

    return fit


def by_bias(cells: Cells, test: Index) -> Floats:
    return Bias().fit(cells).predict(test)[0]


def at_rank(make: type[VariationalFactorization | BayesianFactorization], rank: int) -> Fit:
    return lambda cells, test: make(rank=rank).fit(cells).predict(test)[0]


def in_both_directions(fit: Fit) -> Fit:
    return lambda cells, test: fit(mirrored(cells), test)


def ranks_of(make: type[VariationalFactorization | BayesianFactorization]) -> list[Fit]:
    return [at_rank(make, rank) for rank in RANKS]


VMF, BMF = ranks_of(VariationalFactorization), ranks_of(BayesianFactorization)
METHODS: dict[str, list[Fit]] = {
    "bias": [by_bias],
    "vmf": VMF,
    "bmf": BMF,
    "residual, trained": [by_completer("residual", joint=False)],
    "pretrained": [by_completer("pretrained", joint=False)],
    "bias, both directions": [in_both_directions(by_bias)],
    "vmf, both directions": [in_both_directions(fit) for fit in VMF],
    "bmf, both directions": [in_both_directions(fit) for fit in BMF],
    "residual, trained, joint": [by_completer("residual", joint=True)],
    "pretrained, joint": [by_completer("pretrained", joint=True)],
}
"""Candidates of each method, of which validation cells choose one."""


def run(name: str, method: str, seed: int) -> float:
    """Return the error of a method on hidden cells."""
    cells, test, truth = split(name, seed)
    candidates = METHODS[method]
    if len(candidates) > 1:
        pair = np.sort(cells.index, axis=1) @ [cells.shape[0], 1]
        hidden = np.isin(pair, np.unique(pair)[::10])
        kept, tried = cells.take(~hidden), cells.take(hidden)
        errors = [error(fit, kept, tried.index, tried.values) for fit in candidates]
        candidates = [candidates[int(np.argmin(errors))]]
    return error(candidates[0], cells, test, truth)


def error(fit: Fit, cells: Cells, test: Index, truth: Floats) -> float:
    return float(np.sqrt(np.square(fit(cells, test) - truth).mean()))


def show(results: dict[str, dict[str, list[float]]]) -> None:
    tables = [name for name in TABLES if name in results]
    print("| | " + " | ".join(tables) + " |\n|---|" + "---|" * len(tables))
    for method in METHODS:
        found = [list(results[name].get(method, {}).values()) for name in tables]
        cells = [f"{np.mean([r['error'] for r in runs]):.4f}" if runs else "–" for runs in found]
        print(f"| {method} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--print", action="store_true")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for name in () if options.print else options.tables:
        for method in options.only or METHODS:
            for seed in range(options.seeds):
                found = {"error": round(run(name, method, seed), 5), "commit": commit}
                results.setdefault(name, {}).setdefault(method, {})[str(seed)] = found
                print(f"{name}, seed {seed}: {method} {found['error']:.4f}", flush=True)
                RESULTS.parent.mkdir(exist_ok=True)
                RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    show(results)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
