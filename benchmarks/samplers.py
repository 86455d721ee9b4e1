"""Draw 100,000 cells of a table of 10 million, with every sampler.

    python benchmarks/samplers.py [--cells 10000000]

Set-up (sorting the cells by each axis) is timed apart; draws are the median of 15.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import torch

from exchangeable import Support
from exchangeable.training.samplers import Conditional, Neighbourhood, RowsColumns, UniformCells


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the samplers.")
    parser.add_argument("--cells", type=int, default=10_000_000)
    cells = parser.parse_args().cells
    rows, columns = 200_000, 50_000
    generator = np.random.default_rng(0)
    keys = np.unique(generator.integers(0, rows * columns, int(cells * 1.01)))[:cells]
    index = torch.from_numpy(np.stack([keys // columns, keys % columns], axis=1))
    support = Support(index, (rows, columns))
    # A tenth of the rows meets a tenth of the columns in a hundredth of the cells.
    tenth = (rows // 10, columns // 10)
    samplers = {
        "uniform": UniformCells(support, 100_000),
        "rows x columns": RowsColumns(support, tenth),
        "conditional": Conditional(support, tenth),
        "neighbourhood": Neighbourhood(support, seeds=100, hops=1, fanout=500),
    }
    results = {}
    for name, sampler in samplers.items():
        started = time.perf_counter()
        drawn = sampler.draw(generator)
        setup = time.perf_counter() - started
        times = []
        for _ in range(15):
            started = time.perf_counter()
            drawn = sampler.draw(generator)
            times.append(time.perf_counter() - started)
        median = statistics.median(times)
        results[name] = {"cells": len(drawn), "milliseconds": 1000 * median}
        print(f"{name:>15}  {len(drawn):8,} cells  {1000 * median:7.1f} ms  (first {setup:.2f} s)")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
