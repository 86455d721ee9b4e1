"""Flixster, Douban and YahooMusic by models trained on ML-100K alone (the paper's third table).

    python -m paper.tables.transfer --device cuda --seeds 3

With --netflix there is a row for Netflix, whose files must be in the folder EXCHANGEABLE_DATA.
"""

from __future__ import annotations

import sys
from argparse import Namespace

import numpy as np
import torch

from paper.lib import problems, runs, transferred
from paper.lib.command import run_command
from paper.lib.tables import Column, Row, format_table, parse_arguments
from paper.tables import flixster_douban_yahoo

METHODS = ("factorized-released-transferred", "ours-transferred")
NETFLIX = Column("Netflix", "netflix", ("probe",))


def ensure(problem: str, method: str, seed: int, given: Namespace) -> None:
    """Answer the test cells of one table, unless that was done before."""
    out, device = given.out, given.device
    table = problems.load(problem)
    split = next(iter(table.tests))
    if runs.place_of(problem, split, method, seed, out).exists() and not given.again:
        return
    model, made, told = transferred.trained(
        method.removesuffix("-transferred"), seed, device, **given.changed
    )
    test = table.tests[split]
    seen = np.setdiff1d(np.arange(len(table.values)), test)
    answers = transferred.answers(model, made, table, seen, test, device)
    found = {
        "problem": problem,
        "split": split,
        "method": method,
        "seed": seed,
        **runs.scores(answers, torch.from_numpy(table.values[test])),
        **told,
        **runs.environment_facts(device),
    }
    runs.keep(found, out)
    print(f"{problem} {method} seed {seed}: RMSE {found['rmse']:.4f}", flush=True)


def main() -> None:
    netflix = "--netflix" in sys.argv
    if netflix:
        sys.argv.remove("--netflix")
    given = parse_arguments(__doc__ or "")
    columns = [*flixster_douban_yahoo.COLUMNS, *([NETFLIX] if netflix else [])]
    for method in METHODS if not given.print else ():
        for seed in range(given.seeds if method == "ours-transferred" else 1):
            for column in columns:
                if not given.only or method in given.only:
                    ensure(column.problem, method, seed, given)
    rows = [
        *flixster_douban_yahoo.ROWS,
        Row(
            "factorized, trained on ML-100K only, binned",
            [0.987, 0.766, 23.3, 0.918],
            "factorized-released-transferred",
        ),
        Row("**ours**, trained on ML-100K only", [], "ours-transferred"),
    ]
    print()
    title = "Trained on each, and on ML-100K only; RMSE"
    found = runs.results(given.out)
    print(format_table(title, columns, rows, found, any_commit=given.any_commit))


if __name__ == "__main__":
    run_command(main)
