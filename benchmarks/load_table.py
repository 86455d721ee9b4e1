"""Load and index 10 million rows of CSV with string labels, beside polars.read_csv alone.

    python benchmarks/load_table.py [--rows 10000000]

Each load runs in a process of its own, so that peak memory is its own. The two take turns,
and the medians of seven turns are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ONE_LOAD = """
import re, sys, time
import polars as pl
from exchangeable import Table

def peak():  # of this process alone; ru_maxrss would inherit the parent's
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) / 1024

before, started = peak(), time.perf_counter()
result = pl.read_csv(sys.argv[2]) if sys.argv[1] == "polars" else Table.read(sys.argv[2])
print(len(result), time.perf_counter() - started, peak() - before)
"""


def write_table(path: Path, rows: int) -> None:
    """Distinct cells of 200,000 users and 50,000 films, users and films in random order."""
    import numpy as np
    import polars as pl

    generator = np.random.default_rng(0)
    cells = np.unique(generator.integers(0, 200_000 * 50_000, int(rows * 1.01)))
    cells = generator.permutation(cells)[:rows]
    frame = pl.DataFrame({"user": cells // 50_000, "film": cells % 50_000})
    frame.select(
        pl.format("user-{}", "user").alias("user"),
        pl.format("film {}", "film").alias("film"),
        pl.Series("rating", generator.integers(1, 6, rows)),
    ).write_csv(path)


def measure(kind: str, path: Path) -> tuple[float, float]:
    command = [sys.executable, "-c", ONE_LOAD, kind, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, seconds, megabytes = map(float, done.stdout.split())
    return seconds, megabytes


def main() -> None:
    parser = argparse.ArgumentParser(description="Load a large CSV.")
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write_table(path, rows)
        kinds = ("polars", "exchangeable")
        measure("polars", path)  # so that the file is in memory for both
        runs = [{kind: measure(kind, path) for kind in kinds} for _ in range(7)]
    results = {
        kind: tuple(statistics.median(run[kind][part] for run in runs) for part in (0, 1))
        for kind in kinds
    }
    for kind, (seconds, megabytes) in results.items():
        print(f"{kind:>14}  {seconds:6.2f} s  {megabytes:8.0f} MB above what import takes")
    ratios = [
        ours / theirs
        for ours, theirs in zip(results["exchangeable"], results["polars"], strict=True)
    ]
    print(f"ratios: {ratios[0]:.2f} in time, {ratios[1]:.2f} in memory (at most 3 each)")
    print(json.dumps({"rows": rows, "time_ratio": ratios[0], "memory_ratio": ratios[1]}))


if __name__ == "__main__":
    main()
