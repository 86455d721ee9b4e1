"""Full batches against samples of 20,000 cells on ML-100K (the paper's figure on sampling).

    python -m paper.figures.sampling --device cuda

The model is the self-supervised one, as released; only which cells a step sees differs.
"""

from __future__ import annotations

from paper.lib import runs
from paper.lib.command import run_command
from paper.lib.tables import Column, Row, format_table, parse_arguments

MODEL = "self-supervised-released"
CELLS = 20_000
TRAINING = {"batch_cells": CELLS, "steps": 30_000, "evaluate_every": 100, "patience": 40}
BATCHES = {
    "full": "all cells",
    "conditional": "conditional, as in the paper",
    "rows-columns": "rows × columns, every cell with the same probability",
    "uniform": "uniform",
}


def label_of(batch: str) -> str:
    """Return the name of the runs that see such batches."""
    return MODEL if batch == "full" else f"{MODEL}-{batch}"


def main() -> None:
    given = parse_arguments(__doc__ or "")
    wanted = [b for b in BATCHES if not given.only or label_of(b) in given.only]
    for batch in () if given.print else wanted:
        for seed in range(given.seeds):
            sampled = {} if batch == "full" else {"batch": batch, **TRAINING}
            found = runs.ensure(
                "ml-100k", "u1", MODEL, seed, given.device, again=given.again, folder=given.out,
                label=label_of(batch), **{**sampled, **given.changed},
            )  # fmt: skip
            print(f"{batch} seed {seed}: RMSE {found['rmse']:.4f}", flush=True)
    rows = [Row(title, [], label_of(batch)) for batch, title in BATCHES.items()]
    rows += [Row("empirical-Bayes bias", [], "bias"), Row("Bayesian MF", [], "bmf")]
    columns = [
        Column("test", "ml-100k", ("u1",)),
        Column("validation", "ml-100k", ("u1",), 4, "validation"),
    ]
    print()
    title, stored = "Which cells a step sees, ML-100K u1, RMSE", runs.results(given.out)
    print(format_table(title, columns, rows, stored, any_commit=given.any_commit))


if __name__ == "__main__":
    run_command(main)
