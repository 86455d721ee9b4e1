"""The model in the package on tables that it was not trained on, beside biases and factorizations.

    python -m paper.pretrained.development          # development tables, which choices are made by
    python -m paper.pretrained.development --test   # test cells, which no choice is made by

No gradient step is taken: ``fit`` computes closed-form estimates of every table, and the hidden
cells are predicted. Ranks of the factorizations are chosen on cells that are hidden once more. The
difference to the variational factorization is tested on the same cells.
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
from paper.lib import problems, provenance, runs
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
    """All methods on one table; ``stored`` has the yardsticks that are not run again."""
    truth = asked.problem.values[asked.hidden]
    found: dict[str, Any] = {"table": asked.name, "seen": len(asked.seen), "hidden": len(truth)}
    means: dict[str, Floats] = {}
    for name in (*OTHERS, "pretrained"):
        if stored is not None and name in ("bias", "bmf"):
            # Its own code, or that of the file where all of it was run at once.
            made_by = {key: stored[key] for key in ("commit", "code") if key in stored}
            found[name] = {**made_by, **stored[name]}
            continue
        started = time.perf_counter()
        completer = fitted_to(name, asked)
        answers = answers_of(completer, asked)
        means[name] = answers.mean().numpy()
        seconds = time.perf_counter() - started
        found[name] = {
            **runs.scores(answers, torch.from_numpy(truth)),
            "seconds": seconds,
            "notes": list(completer.notes_),
            **runs.environment_facts("cpu"),
        }
    paired = metrics.paired_bootstrap(truth, means["pretrained"], means["vmf"])
    return {**found, "against vmf": [paired.low, paired.high]}


def fitted_to(name: str, asked: Asked) -> Completer:
    """Fit the model of this name to the cells that are seen."""
    problem = asked.problem
    completer = Completer(name, device="cpu", scale=problem.scale.kind)
    return completer.fit(problem.index[asked.seen], problem.values[asked.seen])


def answers_of(completer: Completer, asked: Asked) -> Distribution:
    """Predict the hidden cells."""
    queries = encode_queries(completer.table_, asked.problem.index[asked.hidden])
    return completer.predictor_.predict(queries)


def predictions_of(name: str, asked: Asked) -> Distribution:
    """Predict the hidden cells by the model of this name."""
    return answers_of(fitted_to(name, asked), asked)


def methods_of(found: dict[str, Any]) -> list[tuple[str, provenance.Run]]:
    """The methods of a stored table, with their kinds and the code that made them."""
    made_by: dict[str, Any] = {key: found[key] for key in ("commit", "code") if key in found}
    return [
        (provenance.kind_of(name), {**made_by, **found[name]}) for name in (*OTHERS, "pretrained")
    ]


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
    behind = rmse["pretrained"] / min(rmse[other] for other in OTHERS) - 1
    cells = [
        TITLES.get(name, name) + comma + shown,
        f"{found['seen']:,}",
        *(f"{error:.{digits}f}" for error in rmse.values()),
        f"{low:+.{digits}f} to {high:+.{digits}f}",
        f"{behind:+.2%}",
        f"{own['coverage']:.1%}",
        f"{own['log_likelihood'] - bias['log_likelihood']:+.3f}",
        f"{own['seconds']:.1f}",
        provenance.commits_of([run for _, run in methods_of(found)]),
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| | cells seen | " + " | ".join(OTHERS.values()) + " | **pretrained** | "
    "difference to variational MF, 95 % | against the best of the three | "
    "within 80 % intervals | log-likelihood over bias | seconds | commit |\n" + "|---" * 12 + "|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test", action="store_true", help="test cells")
    parser.add_argument("--only", nargs="*", help="tables, by name")
    parser.add_argument("--print", action="store_true", help="run nothing")
    parser.add_argument("--any-commit", action="store_true", help="print runs of different code")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--again", action="store_true", help="keep stored runs of bias and Bayesian MF"
    )
    given = parser.parse_args()
    which: Callable[[], Iterator[Asked]] = tests if given.test else development
    kind = "test" if given.test else "development"
    if given.print:
        kept = [json.loads(place.read_text()) for place in given.out.glob(f"{kind}.*.json")]
        rows = {found["table"]: methods_of(found) for found in sorted(kept, key=place_in_print)}
        told = provenance.check_one_code(rows, given.any_commit)
        print("\n".join([HEAD, *map(line, sorted(kept, key=place_in_print)), "", told]))
        return
    print(HEAD, flush=True)
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
