"""Flixster, Douban and YahooMusic by models trained on ML-100K alone (the paper's third table).

    python -m paper.transfer --device cuda --seeds 3

Netflix has a row where its files are: EXCHANGEABLE_DATA=FOLDER python -m paper.transfer --netflix
"""

from __future__ import annotations

import sys
from argparse import Namespace

import numpy as np
import torch

from paper import abroad, blocks, problems, runs
from paper.plainly import plainly
from paper.show import Column, Row, arguments, printed

METHODS = ("factorized-released-abroad", "ours-abroad")
NETFLIX = Column("Netflix", "netflix", ("probe",))


def ensure(problem: str, method: str, seed: int, given: Namespace) -> None:
    """Answer the test cells of one table, unless that was done before."""
    out, device = given.out, given.device
    table = problems.load(problem)
    split = next(iter(table.tests))
    if runs.place_of(problem, split, method, seed, out).exists() and not given.again:
        return
    model, made, told = abroad.trained(
        method.removesuffix("-abroad"), seed, device, **given.changed
    )
    test = table.tests[split]
    seen = np.setdiff1d(np.arange(len(table.values)), test)
    answers = abroad.answers(model, made, table, seen, test, device)
    found = {
        "problem": problem,
        "split": split,
        "method": method,
        "seed": seed,
        **runs.scores(answers, torch.from_numpy(table.values[test])),
        **told,
        **runs.circumstances(device),
    }
    runs.keep(found, out)
    print(f"{problem} {method} seed {seed}: RMSE {found['rmse']:.4f}", flush=True)


def main() -> None:
    netflix = "--netflix" in sys.argv
    if netflix:
        sys.argv.remove("--netflix")
    given = arguments(__doc__ or "")
    columns = [*blocks.COLUMNS, *([NETFLIX] if netflix else [])]
    for method in METHODS if not given.print else ():
        for seed in range(given.seeds if method == "ours-abroad" else 1):
            for column in columns:
                if not given.only or method in given.only:
                    ensure(column.problem, method, seed, given)
    rows = [
        *blocks.ROWS,
        Row(
            "factorized, trained on ML-100K only, binned",
            [0.987, 0.766, 23.3, 0.918],
            "factorized-released-abroad",
        ),
        Row("**ours**, trained on ML-100K only", [], "ours-abroad"),
    ]
    print()
    print(
        printed(
            "Trained on each, and on ML-100K only; RMSE", columns, rows, runs.results(given.out)
        )
    )


if __name__ == "__main__":
    plainly(main)
