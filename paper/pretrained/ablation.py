"""What the pretrained model gains from the pattern of cells, features and times, untrained on them.

    python -m paper.pretrained.ablation           # validation cells
    python -m paper.pretrained.ablation --test    # test cells, which no choice is made by

Each row adds to the one before it. Differences to that are paired, on the same cells. In the last
row features are noise; its difference is to the row without features. The prior alone is the closed
form that the network starts from, at the same cells.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import polars as pl
import torch
from torch import Tensor

from exchangeable import Completer, metrics
from exchangeable.completion.inputs import encode_queries
from exchangeable.predictors.model import ModelPredictor
from exchangeable.predictors.units import unwrapped
from exchangeable.prior.pattern import Pattern
from exchangeable.sums.member_sums import MemberSums
from paper.lib import problems
from paper.lib.command import run_command
from paper.lib.problems import Floats, Index, Problem
from paper.pretrained.development import TESTS, TITLES
from paper.pretrained.unseen_members import AXES, frames

SPLITS = {**TESTS, "davis": "test", "kiba": "test"}
TABLES = ("ml-100k", "ml-1m", "davis", "kiba")


NOISE_COLUMNS = 20


@dataclass(frozen=True)
class Stage:
    """What a row lets the model read."""

    title: str
    pattern: bool = True
    features: Literal["none", "given", "noise"] = "none"
    times: bool = False


VALUES = Stage("values only", pattern=False)
PATTERN = Stage("and the pattern of cells")
FEATURES = Stage("and features", features="given")
NOISE = Stage("features of noise", features="noise")


def stages(problem: Problem) -> Iterator[tuple[Stage, Stage | None]]:
    """Yield stages, each with the one that it is compared with."""
    yield VALUES, None
    yield PATTERN, VALUES
    if problem.features:
        yield FEATURES, PATTERN
    if problem.times is not None:
        yield Stage("and times", features="given", times=True), FEATURES
    yield NOISE, PATTERN


def frames_of(problem: Problem, stage: Stage) -> dict[str, pl.DataFrame] | None:
    """The features that a stage reads."""
    if stage.features == "none":
        return None
    if stage.features == "given":
        return frames(problem)
    generator = np.random.default_rng(0)
    drawn = {
        axis: generator.normal(size=(size, NOISE_COLUMNS))
        for axis, size in enumerate(problem.shape)
    }
    return frames(replace(problem, name="noise", features=drawn))


@contextmanager
def without_pattern(hide: bool) -> Iterator[None]:
    """Give all members the same place in the pattern of cells."""

    def describe(_: Pattern, sums: MemberSums) -> Tensor:
        return torch.zeros(sums.members, 1, dtype=torch.float64)

    if not hide:
        yield
        return
    with patch.object(Pattern, "describe", describe):
        yield


def predict(
    problem: Problem, stage: Stage, seen: Index, asked: Index
) -> tuple[Floats, Floats, Floats]:
    """Means of the prior alone and of the model, and the ends of its 80 % intervals."""
    cells, queries = (
        pl.DataFrame(dict(zip(AXES, problem.index[part].T, strict=True))) for part in (seen, asked)
    )
    at = (
        [problem.times[part] for part in (seen, asked)]
        if stage.times and problem.times is not None
        else [None, None]
    )
    completer = Completer("pretrained", device="cpu", scale=problem.scale.kind)
    with without_pattern(not stage.pattern):
        completer.fit(
            cells,
            problem.values[seen],
            features=frames_of(problem, stage),
            times=at[0],
        )
        means, ends = (
            completer.predict(queries, at[1]),
            completer.predict_interval(queries, times=at[1]),
        )
    predictor = unwrapped(completer.predictor_)
    assert isinstance(predictor, ModelPredictor)
    assert predictor.prior is not None
    index = torch.from_numpy(encode_queries(completer.table_, queries))
    times = None if at[1] is None else torch.from_numpy(at[1])
    closed, _ = predictor.prior.predict(index, times)
    stats = predictor.stats
    return (stats.mean + stats.deviation * closed).numpy(), means, ends


def judge(name: str, split: str, *, test: bool) -> Iterator[dict[str, Any]]:
    """Yield one row after the other."""
    problem = problems.load(name)
    seen, hidden, asked = problem.parts(split, 0)
    if test:
        seen, hidden = np.setdiff1d(np.arange(len(problem.values)), asked), asked
    truth, answers = problem.values[hidden], dict[Stage, Floats]()
    title = TITLES[name] + ("" if split == SPLITS[name] else f" {split}")
    for model in ("bias", "bmf"):
        completer = Completer(model, device="cpu", scale=problem.scale.kind)
        means = completer.fit(problem.index[seen], problem.values[seen]).predict(
            problem.index[hidden]
        )
        yield {"table": title, "row": model, "rmse": metrics.rmse(truth, means)}
    for stage, before in stages(problem):
        closed, means, ends = predict(problem, stage, seen, hidden)
        row = {
            "table": title,
            "row": stage.title,
            "rmse": metrics.rmse(truth, means),
            "prior": metrics.rmse(truth, closed),
            "coverage": float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()),
        }
        if before is not None:
            paired = metrics.paired_bootstrap(truth, means, answers[before])
            row["difference"] = [paired.low, paired.high]
        answers[stage] = means
        yield row


def line(found: dict[str, Any]) -> str:
    low, high = found.get("difference", (None, None))
    cells = [
        found["table"],
        found["row"],
        f"{found['prior']:.4f}" if "prior" in found else "",
        f"{found['rmse']:.4f} ({found['rmse'] ** 2:.4f})",
        "" if low is None else f"{low:+.4f} to {high:+.4f}",
        f"{found['coverage']:.1%}" if "coverage" in found else "",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test", action="store_true", help="test cells")
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=TABLES)
    parser.add_argument("--split", nargs="*", help="splits of a table, such as u2 u3")
    given = parser.parse_args()
    titles = ["", "", "prior alone", "RMSE (MSE)", "difference, 95 %", "within 80 % intervals"]
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|", flush=True)
    results = []
    for name in given.tables:
        for split in given.split or [SPLITS[name]]:
            for row in judge(name, split, test=given.test):
                results.append(row)
                print(line(row), flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    run_command(main)
