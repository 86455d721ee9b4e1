"""Members that were never seen: all cells of a fifth of them are hidden, five times.

    python -m paper.pretrained.unseen_members              # without features
    python -m paper.pretrained.unseen_members --features   # from features of the members

No gradient step is taken and nothing is chosen here. An unseen member is predicted from the members
of the other axis, and from its features where there are any. No test cell of a published split is
used.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable import Completer, metrics
from exchangeable.datasets.source import roots
from exchangeable.values.scale import Scale
from paper.lib import problems
from paper.lib.command import run_command
from paper.lib.problems import Floats, Index, Problem

PARTS = 5
AXES = ("row", "column")


@dataclass(frozen=True, eq=False)
class Trial:
    """A table, and the axis whose members are hidden; None for members of both axes at once."""

    problem: Problem
    axis: int | None

    @property
    def title(self) -> str:
        axis = "both axes" if self.axis is None else f"{AXES[self.axis]}s"
        return f"{self.problem.name}, {axis}"


def trials(*, features: bool) -> Iterator[Trial]:
    for name in ("ml-100k", "davis", "kiba") if features else ("ml-100k", "davis"):
        problem = without_test(problems.load(name))
        for axis in (0, 1, *((None,) if features else ())):
            if not features or axis is None or axis in problem.features:
                yield Trial(problem, axis)
    if not features:
        for problem in (movietweetings(), insteval()):
            yield from (Trial(problem, axis) for axis in (0, 1))


def without_test(problem: Problem) -> Problem:
    """The cells that are not for testing, as a table of their own."""
    test = problem.tests[next(iter(problem.tests))]
    base = np.setdiff1d(np.arange(len(problem.values)), test)
    return Problem(
        problem.name,
        problem.index[base],
        problem.values[base],
        problem.shape,
        problem.scale,
        {},
        problem.features,
    )


def movietweetings() -> Problem:
    from exchangeable.datasets import load

    table = load("movietweetings").table
    return Problem("movietweetings", table.index, table.values, table.shape, table.scale, {})


def insteval() -> Problem:
    """Students' ratings of lecturers."""
    paths = [root / "insteval" / "insteval.csv.gz" for root in roots()]
    frame = pl.read_csv(next(path for path in paths if path.exists()))
    columns = [frame[name].rank("dense").to_numpy().astype(np.int64) - 1 for name in ("s", "d")]
    index = np.stack(columns, axis=1)
    _, first = np.unique(index, axis=0, return_index=True)
    index, values = index[first], frame["y"].to_numpy().astype(np.float64)[first]
    shape = int(index[:, 0].max()) + 1, int(index[:, 1].max()) + 1
    return Problem("insteval", index, values, shape, Scale.of(values), {})


def frames(problem: Problem) -> dict[str, pl.DataFrame]:
    """The features of a table, or similarities of its members, as users give them."""
    if problem.name in ("davis", "kiba"):
        from exchangeable.datasets import load

        return {
            AXES[axis]: pl.DataFrame(
                {AXES[axis]: np.arange(len(own))}
                | {str(member): own[:, member] for member in range(len(own))}
            )
            for axis, own in load(problem.name).graphs.items()
        }
    return {
        AXES[axis]: pl.DataFrame(
            {AXES[axis]: np.arange(len(own))}
            | {f"feature {column}": own[:, column] for column in range(own.shape[1])}
        )
        for axis, own in problem.features.items()
    }


def predict(
    problem: Problem, model: str, seen: Index, asked: Index, *, features: bool
) -> tuple[Floats, Floats]:
    """Means of cells, and the ends of their 80 % intervals."""
    completer = Completer(model, device="cpu", scale=problem.scale.kind)
    cells = pl.DataFrame(dict(zip(AXES, problem.index[seen].T, strict=True)))
    given = frames(problem) if features else None
    completer.fit(cells, problem.values[seen], features=given)
    queries = pl.DataFrame(dict(zip(AXES, problem.index[asked].T, strict=True)))
    return completer.predict(queries), completer.predict_interval(queries)


def judge(trial: Trial, *, features: bool) -> dict[str, Any]:
    """Hide a fifth of the members at a time, and predict all their cells."""
    problem, rng = trial.problem, np.random.default_rng(0)
    parts = [rng.integers(PARTS, size=size) for size in problem.shape]
    truth: list[Floats] = []
    means: dict[str, list[Floats]] = {"bias": [], "without": [], "pretrained": []}
    inside: list[NDArray[np.bool_]] = []
    for part in range(PARTS):
        hidden = [parts[axis][problem.index[:, axis]] == part for axis in (0, 1)]
        gone = hidden[0] | hidden[1] if trial.axis is None else hidden[trial.axis]
        asks = hidden[0] & hidden[1] if trial.axis is None else gone
        seen, asked = np.flatnonzero(~gone), np.flatnonzero(asks)
        truth.append(problem.values[asked])
        means["bias"].append(predict(problem, "bias", seen, asked, features=False)[0])
        plain, ends = predict(problem, "pretrained", seen, asked, features=False)
        means["without"].append(plain)
        if features:
            plain, ends = predict(problem, "pretrained", seen, asked, features=True)
        means["pretrained"].append(plain)
        inside.append((ends[:, 0] <= truth[-1]) & (truth[-1] <= ends[:, 1]))
    values = np.concatenate(truth)
    joined = {name: np.concatenate(columns) for name, columns in means.items()}
    deviation = float(problem.values.std())
    return {
        "table": trial.title,
        "cells": len(values),
        **{name: metrics.rmse(values, column) for name, column in joined.items()},
        "mean": float(np.sqrt(np.mean((values - problem.values.mean()) ** 2))),
        "off": float((joined["pretrained"].mean() - values.mean()) / deviation),
        "coverage": float(np.concatenate(inside).mean()),
    }


def line(found: dict[str, Any], *, features: bool) -> str:
    rmse = [found["mean"], found["bias"], found["without"]]
    rmse += [found["pretrained"]] if features else []
    cells = [
        found["table"],
        f"{found['cells']:,}",
        *(f"{error:.4f} ({error**2:.3f})" for error in rmse),
        f"{found['off']:+.3f}",
        f"{found['coverage']:.1%}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", action="store_true", help="predict from features")
    parser.add_argument("--only", nargs="*", help="tables, by name")
    given = parser.parse_args()
    models = ["mean of all", "bias", "pretrained", *(["with features"] if given.features else [])]
    titles = ["", "cells", *models, "mean answer off, in deviations", "within 80 % intervals"]
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|", flush=True)
    results = []
    for trial in trials(features=given.features):
        if not given.only or trial.problem.name in given.only:
            results.append(judge(trial, features=given.features))
            print(line(results[-1], features=given.features), flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    run_command(main)
