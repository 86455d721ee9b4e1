"""exchangeable without labels: cells as numbers on a device, by what ``Completer.fit`` does.

It needs torch, numpy and scipy, and no library of tables, so that it runs on machines of GPUs.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from harness import Cells, Floats, Labels, run, tell

from exchangeable.arrays.cells import Cells as TableCells
from exchangeable.arrays.cells import Index
from exchangeable.completion.select import candidates_for, compare_models
from exchangeable.predictors.base import MEAN, Predictor, read_predictions
from exchangeable.predictors.baseline import fit_baseline
from exchangeable.predictors.model import ModelPredictor
from exchangeable.pretraining.bundled import NAME, bundled_model
from exchangeable.values.scale import Scale


class OursOnDevice:
    """The pretrained model, calibrated; ``auto`` compares it with simpler models."""

    package = "exchangeable"
    refits = False
    predictor: Predictor

    def __init__(self, name: str, device: str) -> None:
        self.name, self.device = name, torch.device(device)

    def fit(self, train: Cells) -> None:
        index = to_index(train)
        shape = tuple(int(column.max()) + 1 for column in index.T)
        values = torch.from_numpy(train.values).to(self.device).unique()
        scale = Scale("levels", tuple(values.tolist()))
        cells = TableCells(index, train.values, shape, scale)
        model = ModelPredictor.of(bundled_model(2), cells, device=self.device)
        others = candidates_for(cells) if self.name == "auto" else ()
        self.predictor = model
        comparison = compare_models(model, cells, others)
        if comparison is not None and comparison.best != NAME:
            self.predictor = fit_baseline(comparison.best, cells, seed=0)
        elif comparison is not None:
            self.predictor = comparison.calibrate(model)
        self.shape = shape
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def predict(self, test: Cells) -> Floats:
        index = to_index(test)
        (means,) = read_predictions(self.predictor, np.where(index < self.shape, index, -1), MEAN)
        return means

    def serve(self, items: Labels, values: Floats) -> object:
        raise NotImplementedError("new users are served by ours.py")


def to_index(cells: Cells) -> Index:
    """Labels are numbers from 0 on, so that they are coordinates: (E, 2)."""
    return np.stack([cells.users, cells.items], axis=1).astype(np.int64)


def warm_up(peer: OursOnDevice) -> None:
    """Load modules and compile kernels, which is not to be counted."""
    rng = np.random.default_rng(0)
    keys = rng.permutation(100 * 80)[:2000]
    cells = Cells(keys // 80, keys % 80, rng.integers(1, 6, 2000).astype(float))
    peer.fit(cells)
    peer.predict(cells)


if __name__ == "__main__":
    peer = OursOnDevice(sys.argv[3], sys.argv[4])
    warm_up(peer)
    if peer.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    run(peer)
    if peer.device.type == "cuda":
        tell(device_mb=torch.cuda.max_memory_allocated() / 2**20)
