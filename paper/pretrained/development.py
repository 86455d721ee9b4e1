"""The model in the package on tables that it never saw, beside biases and factorizations.

    python -m paper.pretrained.development          # development tables, which choices are made by
    python -m paper.pretrained.development --test   # test cells, to be looked at once

Nothing is trained and nothing is chosen: every table is read once and its hidden cells are
predicted. The difference to the variational factorization is tested on the same cells.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exchangeable import Completer, metrics
from exchangeable.completion.inputs import encode_queries
from exchangeable.runtime.files import whole_file
from exchangeable.values.distributions import Distribution
from paper.lib import problems, runs
from paper.lib.command import run_command
from paper.lib.problems import Floats, Index, Problem

OTHERS = {"bias": "bias", "vmf": "variational MF", "bmf": "Bayesian MF"}
TESTS = {
    "ml-100k": "u1",
    "ml-1m": "0",
    "flixster": "published",
    "douban": "published",
    "yahoo-music": "published",
}
TITLES = {
    "ml-100k": "ML-100K",
    "ml-1m": "ML-1M",
    "flixster": "Flixster",
    "douban": "Douban",
    "yahoo-music": "YahooMusic",
    "davis": "Davis",
    "kiba": "KIBA",
    "movietweetings": "MovieTweetings",
    "lastfm-plays": "Last.fm plays",
}
"""What tables are called in print, in the sequence in which they are printed."""
RESULTS = Path(__file__).parent / "results"
SHARES = (0.3, 0.1, 0.03)
"""Shares of ML-100K's cells that are shown, to measure accuracy on sparse tables."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A table, which of its cells are seen, and which are to be answered."""

    name: str
    problem: Problem
    seen: Index
    hidden: Index


def tests() -> Iterator[Asked]:
    for name, split in TESTS.items():
        problem = problems.load(name)
        hidden = problem.tests[split]
        yield Asked(name, problem, np.setdiff1d(np.arange(len(problem.values)), hidden), hidden)


def development() -> Iterator[Asked]:
    """Yield the development tables; no test cell is shown or predicted."""
    problem = problems.load("ml-100k")
    seen, hidden, _ = problem.parts("u1", 0)
    yield Asked("ml-100k", problem, seen, hidden)
    for share in SHARES:
        some = np.random.default_rng(5).random(len(seen)) < share
        yield Asked(f"ml-100k, {share:.0%} shown", problem, seen[some], hidden)
    for name in ("davis", "kiba"):
        problem = problems.load(name)
        seen, hidden, _ = problem.parts("test", 0)
        yield Asked(name, problem, seen, hidden)
        base = np.sort(np.concatenate([seen, hidden]))
        out = np.random.default_rng(1).random(len(base)) < 0.7
        yield Asked(f"{name}, 30% shown", problem, base[~out], base[out])
    for name in ("movietweetings", "lastfm-plays"):
        problem = _whole(name)
        out = np.random.default_rng(2).random(len(problem.values)) < 0.1
        yield Asked(name, problem, np.flatnonzero(~out), np.flatnonzero(out))


def _whole(name: str) -> Problem:
    from exchangeable.datasets import load

    table = load(name).table
    return Problem(name, table.index, table.values, table.shape, table.scale, {})


def judged(asked: Asked, stored: dict[str, Any] | None = None) -> dict[str, Any]:
    """All methods on one table; ``stored`` has those that are not run again."""
    truth = asked.problem.values[asked.hidden]
    found: dict[str, Any] = {"table": asked.name, "seen": len(asked.seen), "hidden": len(truth)}
    means: dict[str, Floats] = {}
    for name in (*OTHERS, "pretrained"):
        if stored is not None and name in ("bias", "bmf"):
            found[name] = stored[name]
            continue
        started = time.perf_counter()
        answers = predictions_of(name, asked)
        means[name] = answers.mean().numpy()
        seconds = time.perf_counter() - started
        found[name] = {**runs.scores(answers, torch.from_numpy(truth)), "seconds": seconds}
    paired = metrics.paired_bootstrap(truth, means["pretrained"], means["vmf"])
    found["against vmf"] = [paired.low, paired.high]
    return {**found, **runs.environment_facts("cpu")}


def predictions_of(name: str, asked: Asked) -> Distribution:
    """Predict the hidden cells by the model of this name."""
    problem = asked.problem
    completer = Completer(name, device="cpu", scale=problem.scale.kind)
    completer.fit(problem.index[asked.seen], problem.values[asked.seen])
    return completer.predictor_.predict(
        encode_queries(completer.table_, problem.index[asked.hidden])
    )


def place_in_print(found: dict[str, Any]) -> tuple[int, int]:
    """The sequence of ``TITLES``; of one table the one with most cells first."""
    name = found["table"].partition(",")[0]
    return [*TITLES, name].index(name), -found["seen"]


def line(found: dict[str, Any]) -> str:
    name, comma, shown = found["table"].partition(",")
    rmse = {name: found[name]["rmse"] for name in (*OTHERS, "pretrained")}
    digits = 2 if rmse["bias"] > 10 else 4
    low, high = found["against vmf"]
    own, bias = found["pretrained"], found["bias"]
    worst = rmse["pretrained"] / min(rmse["bias"], rmse["vmf"]) - 1
    cells = [
        TITLES.get(name, name) + comma + shown,
        f"{found['seen']:,}",
        *(f"{error:.{digits}f}" for error in rmse.values()),
        f"{low:+.{digits}f} to {high:+.{digits}f}",
        f"{worst:+.2%}",
        f"{own['coverage']:.1%}",
        f"{own['log_likelihood'] - bias['log_likelihood']:+.3f}",
        f"{own['seconds']:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| | cells seen | " + " | ".join(OTHERS.values()) + " | **pretrained** | "
    "difference to variational MF, 95 % | against the better of bias and variational MF | "
    "within 80 % intervals | log-likelihood over bias | seconds |\n" + "|---" * 11 + "|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test", action="store_true", help="test cells, once")
    parser.add_argument("--only", nargs="*", help="tables, by name")
    parser.add_argument("--print", action="store_true", help="run nothing")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--again", action="store_true", help="keep stored runs of bias and Bayesian MF"
    )
    given = parser.parse_args()
    which: Callable[[], Iterator[Asked]] = tests if given.test else development
    kind = "test" if given.test else "development"
    print(HEAD, flush=True)
    if given.print:
        kept = [json.loads(place.read_text()) for place in given.out.glob(f"{kind}.*.json")]
        print("\n".join(map(line, sorted(kept, key=place_in_print))))
        return
    for asked in which():
        if given.only and asked.name not in given.only:
            continue
        place = given.out / f"{kind}.{asked.name.replace(', ', '.').replace(' ', '-')}.json"
        stored = json.loads(place.read_text()) if given.again and place.exists() else None
        found = judged(asked, stored)
        _keep(found, place)
        print(line(found), flush=True)


def _keep(found: dict[str, Any], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(place) as target:
        target.write_text(runs.to_json_lines(found))


if __name__ == "__main__":
    run_command(main)
