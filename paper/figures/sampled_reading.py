"""Reading a table in samples at test time against reading all cells together, ML-100K u1.

    python -m paper.figures.sampled_reading

The factorized model is the released one that was trained on ML-100K (``paper.lib.transferred``).
Cells are drawn until every test cell was, and a test cell's outputs are averaged.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from exchangeable.arrays.support import Support
from exchangeable.training.covering import predict_in_samples
from paper.lib import problems, runs, transferred
from paper.lib.command import run_command
from paper.lib.tables import parse_arguments

METHOD = "factorized-released"
CELLS = (100_000, 50_000, 20_000, 10_000)
"""Cells of a sample; the first is all there are."""


def main() -> None:
    given = parse_arguments(__doc__ or "")
    label = f"{METHOD}-read-in-samples"
    for cells in () if given.print else CELLS:
        path = runs.place_of("ml-100k", f"u1-{cells}", label, 0, given.out)
        if not path.exists() or given.again:
            runs.keep(run(cells, label, given.device), given.out)
    print("\n| cells of a sample | RMSE | seconds |\n|---|---|---|")
    for cells in CELLS:
        for one in runs.results(given.out):
            if (one["method"], one["split"]) == (label, f"u1-{cells}"):
                print(f"| {cells:,} | {one['rmse']:.4f} | {one['seconds']:.0f} |")


def run(cells: int, label: str, device: str) -> dict[str, object]:
    """Predict the test cells of u1 in samples of so many cells."""
    model, made, _ = transferred.trained(METHOD, 0, device)
    problem, place = problems.load("ml-100k"), torch.device(device)
    train, validation, test = problem.parts("u1", 0)
    seen = np.sort(np.concatenate([train, validation]))
    stats, observed = runs.stats_of(problem, seen), runs.array_of(problem, seen).to(place)
    queries = Support(torch.from_numpy(problem.index[test]).to(place), problem.shape)
    started = time.perf_counter()
    outputs = predict_in_samples(
        model.eval(), made.codec, observed, queries, stats, cells=cells, seed=0
    )
    seconds = time.perf_counter() - started
    answers = made.codec.read(outputs.double().cpu(), stats)
    return {
        "problem": "ml-100k",
        "split": f"u1-{cells}",
        "method": label,
        "seed": 0,
        **runs.scores(answers, torch.from_numpy(problem.values[test])),
        "seconds": seconds,
        **runs.environment_facts(device),
    }


if __name__ == "__main__":
    run_command(main)
