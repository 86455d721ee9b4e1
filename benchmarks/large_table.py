"""Tables of Netflix's shape through ``exchangeable complete``, on the CPU: seconds and memory.

    python benchmarks/large_table.py --cells 1000000 10000000 100000000 --memory 4GB
    python benchmarks/large_table.py --model pretrained --cells 100000000 --memory 10GB

The table is synthetic: 480,189 x 17,770 members, ratings 1 to 5, a hundredth of the rows without a
value, which is what the command fills in. Without ``--model`` it has 8 x 64 channels with attention
pooling and random weights: neither changes what is computed. Files are made once, in ``--folder``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

from exchangeable import ResidualConfig, TrainedModel, TrainingConfig
from exchangeable.models.configs import build
from exchangeable.values.codecs import codec_for
from exchangeable.values.scale import Scale

ROWS, COLUMNS = 480_189, 17_770
BLOCK = 2_000_000


def make_table(path: Path, cells: int) -> None:
    """Distinct cells, in order, a block of rows of the table at a time."""
    generator = np.random.default_rng(0)
    activity = generator.exponential(size=ROWS)
    activity *= cells / activity.sum()
    popularity = np.cumsum(generator.exponential(size=COLUMNS) ** 1.5)
    popularity /= popularity[-1]
    parts, number, first = [], 0, 0
    folder = path.with_suffix(".parts")
    folder.mkdir(parents=True, exist_ok=True)
    ends = np.searchsorted(np.cumsum(activity), np.arange(BLOCK, cells + BLOCK, BLOCK))
    for end in np.minimum(ends, ROWS):
        # Drawn more often than needed, since cells that come again count once.
        users = np.repeat(np.arange(first, end), generator.poisson(1.06 * activity[first:end]))
        films = np.searchsorted(popularity, generator.random(len(users))).clip(max=COLUMNS - 1)
        keys = np.unique(users * COLUMNS + films)
        ratings = generator.integers(1, 6, len(keys)).astype(np.float32)
        ratings[generator.random(len(keys)) < 0.01] = np.nan
        frame = pl.DataFrame(
            {
                "user": (keys // COLUMNS).astype(np.int32),
                "film": (keys % COLUMNS).astype(np.int32),
                "rating": pl.Series(ratings).fill_nan(None),
            }
        )
        part = folder / f"{number:05d}.parquet"
        frame.write_parquet(part)
        parts.append(part)
        number, first = number + 1, end
    pl.scan_parquet(parts).sink_parquet(path, row_group_size=BLOCK)
    for part in parts:
        part.unlink()
    folder.rmdir()


def make_model(path: Path) -> None:
    codec = codec_for(Scale("levels", (1.0, 2.0, 3.0, 4.0, 5.0)))
    config = ResidualConfig(codec.in_channels, codec.out_channels)
    model = build(config).eval()
    TrainedModel(config, codec, model, TrainingConfig(), "random", {}).save(path)


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds, and the most memory in GB, of a command."""
    started = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - started, used.ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--model", help="pretrained, auto, or a model's folder")
    parser.add_argument("--folder", type=Path, default=Path("out/large"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    model = given.model or str(given.folder / "random-8x64")
    if not given.model and not Path(model).exists():
        make_model(Path(model))
    before, results = None, []
    for cells in given.cells:
        path = given.folder / f"{cells}.parquet"
        if not path.exists():
            make_table(path, cells)
        out = given.folder / f"{cells}.completed.parquet"
        command = [sys.executable, "-m", "exchangeable", "complete", str(path), "--out", str(out)]
        command += ["--model", model, "--memory", given.memory, "--device", "cpu", "--force"]
        seconds, gigabytes = measure(command)
        grown = "" if before is None else f", {seconds / before:.1f} times the one before"
        print(f"{cells:>13,} cells  {seconds:7.0f} s  {gigabytes:6.2f} GB{grown}", flush=True)
        results.append({"cells": cells, "seconds": seconds, "peak_gb": gigabytes})
        before = seconds
    print(json.dumps(results))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
