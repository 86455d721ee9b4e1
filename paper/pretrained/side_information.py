"""What features of members and times of cells add to the pretrained model, without training.

    python -m paper.pretrained.side_information           # validation cells of ML-100K
    python -m paper.pretrained.side_information --test    # test cells, to be looked at once

Differences to the model without them are paired, on the same cells.
"""

from __future__ import annotations

import argparse
import json
from itertools import product

import numpy as np
import polars as pl

from exchangeable import Completer, metrics
from paper.lib import problems
from paper.lib.command import run_command
from paper.lib.problems import Floats, Index, Problem
from paper.pretrained.development import TESTS
from paper.pretrained.unseen_members import AXES, frames


def predict(
    problem: Problem, model: str, seen: Index, asked: Index, *, features: bool, times: bool
) -> Floats:
    """Means of cells, from those that are seen."""
    completer = Completer(model, device="cpu", scale=problem.scale.kind)
    cells, queries = (
        pl.DataFrame(dict(zip(AXES, problem.index[part].T, strict=True))) for part in (seen, asked)
    )
    at = (
        [problem.times[part] for part in (seen, asked)]
        if times and problem.times is not None
        else [None, None]
    )
    given = frames(problem) if features else None
    completer.fit(cells, problem.values[seen], features=given, times=at[0])
    return completer.predict(queries, at[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test", action="store_true", help="test cells, once")
    parser.add_argument("--tables", nargs="*", default=["ml-100k"], help="ml-100k, ml-1m")
    given = parser.parse_args()
    print("| | RMSE | difference, 95 % |\n|---|---|---|", flush=True)
    results = []
    for name in given.tables:
        problem = problems.load(name)
        seen, hidden, test = problem.parts(TESTS[name], 0)
        if given.test:
            seen, hidden = np.setdiff1d(np.arange(len(problem.values)), test), test
        truth = problem.values[hidden]
        for model in ("bias", "bmf"):
            error = metrics.rmse(
                truth, predict(problem, model, seen, hidden, features=False, times=False)
            )
            print(f"| {name}, {model} | {error:.4f} | |", flush=True)
            results.append({"table": name, "model": model, "rmse": error})
        plain: Floats | None = None
        for features, times in product((False, True), repeat=2):
            means = predict(problem, "pretrained", seen, hidden, features=features, times=times)
            plain = means if plain is None else plain
            paired = metrics.paired_bootstrap(truth, means, plain)
            error = metrics.rmse(truth, means)
            parts = [word for word, used in (("features", features), ("times", times)) if used]
            title = f"{name}, pretrained" + (f" with {' and '.join(parts)}" if parts else "")
            print(
                f"| {title} | {error:.4f} | {paired.low:+.4f} to {paired.high:+.4f} |", flush=True
            )
            results.append({"table": name, "with": parts, "rmse": error})
    print(json.dumps(results))


if __name__ == "__main__":
    run_command(main)
