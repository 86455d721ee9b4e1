"""What each of several processes predicts with the shipped model, for ``test_shared_prior``."""

import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import save_file
from tests.support.forks import fork

from exchangeable.arrays.cells import Cells
from exchangeable.completion.select import candidates_for, compare_models
from exchangeable.predictors.base import MEAN, quantile, read_predictions
from exchangeable.predictors.model import ModelPredictor
from exchangeable.pretraining.bundled import bundled_model
from exchangeable.prior import factor_fit, summed_similarity
from exchangeable.prior.factor_fit import Schedule, Sweeps
from exchangeable.runtime.processes import join_processes
from exchangeable.runtime.progress import SILENT
from exchangeable.sums import cell_parts, member_sums
from exchangeable.values.scale import Scale

SHAPES = {2: (60, 45), 3: (14, 12, 9)}


def table(order, cells=900):
    """Ratings of members, the last of each axis without any."""
    rng, shape = np.random.default_rng(order), SHAPES[order]
    keys = np.sort(rng.permutation(np.prod([size - 1 for size in shape]))[:cells])
    index = np.stack(np.unravel_index(keys, [size - 1 for size in shape]), axis=1)
    vectors = [rng.normal(size=(size, 2)) for size in shape]
    products = np.prod([v[c] for v, c in zip(vectors, index.T, strict=True)], axis=0)
    values = np.clip(np.round(3 + products.sum(axis=1) + 0.4 * rng.normal(size=cells)), 1, 5)
    return Cells.of(index, values, shape, Scale("levels", (1.0, 2.0, 3.0, 4.0, 5.0)))


def as_if_large():
    """Settings with which a small table is fitted as a large one is."""
    stack = ExitStack()
    schedule = Schedule(Sweeps(8, 4), Sweeps(0, 0), warm=True, keeps=True)
    for owner, name, value in (
        (member_sums, "MIN_PARTED_CELLS", 0),
        (cell_parts, "PART_CELLS", 100),
        (summed_similarity, "MIN_SUMMED_CELLS", 0),
        (factor_fit.Schedule, "of", lambda cells: schedule),
    ):
        stack.enter_context(patch.object(owner, name, value))
    return stack


def predicted(processes, order, memory=None, note=lambda sentence: None):
    """Means and quantiles of cells, and the errors of the models that ``auto`` compares."""
    cells = table(order)
    trained, progress = bundled_model(order), replace(SILENT, note=note)
    model = ModelPredictor.of(trained, cells, processes=processes, memory=memory, progress=progress)
    comparison = compare_models(model, cells, candidates_for(cells))
    model = comparison.calibrate(model)
    queries = np.argwhere(np.ones([min(size, 20) for size in cells.shape]))
    queries = np.concatenate([queries, [[size - 1 for size in cells.shape]], [[-1] * order]])
    mean, high = read_predictions(model, queries, MEAN, quantile(0.9))
    return {
        "mean": torch.from_numpy(mean),
        "high": torch.from_numpy(high),
        "errors": torch.tensor(list(comparison.rmse.values()), dtype=torch.float64),
    }


def computed(processes):
    """Predictions of small tables, as they are and as if they were large."""
    found = {f"{order}.{k}": v for order in SHAPES for k, v in predicted(processes, order).items()}
    with as_if_large():
        more = predicted(processes, 2)
    return found | {f"large.{k}": v for k, v in more.items()}


def job(folder, size, _rank):
    """What each process of a job writes to the folder."""
    torch.set_num_threads(1)
    with join_processes() as processes:
        assert processes.size == size, processes
        save_file(computed(processes), folder / f"{size}.{processes.rank}.safetensors")


if __name__ == "__main__":
    codes = fork(2, partial(job, Path(sys.argv[1]), 2))
    assert not any(codes), codes
