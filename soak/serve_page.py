"""Do a task with the page, and count its steps and seconds.

    python soak/serve_page.py [--times 5]

The task: upload a wide CSV file, find its five least certain cells, download the completed table.
The seconds are those of a script, which reads nothing: a person needs some more at each step.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.browser import browser, complete_file, opened
from tests.support.service import served

MAX_SECONDS = 60.0


def wide_file(path: Path, rows: int = 200, columns: int = 40) -> None:
    """Write a table with a structure, a third of it missing."""
    generator = np.random.default_rng(0)
    level = generator.normal(size=(rows, 2)) @ generator.normal(size=(2, columns))
    values = np.round(3 + level + 0.3 * generator.normal(size=(rows, columns))).clip(1, 5)
    values[generator.random((rows, columns)) < 1 / 3] = np.nan
    frame = {f"question {n}": values[:, n] for n in range(columns)}
    labels = [f"person {n}" for n in range(rows)]
    pl.DataFrame({"person": labels, **frame}).fill_nan(None).write_csv(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    arguments = parser.parse_args()
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers.csv"
        wide_file(path)
        with served(Path(folder)) as service, browser() as started:
            for _ in range(arguments.times):
                with opened(started, service) as page:
                    begun = time.perf_counter()
                    least, file, steps = complete_file(page, path)
                    assert pl.read_csv(file).null_count().sum_horizontal().item() == 0
                    seconds.append(round(time.perf_counter() - begun, 2))
        for line in least:
            print("  ".join(line[:2]), " ".join(line[2].split()))
    ok = max(seconds) < MAX_SECONDS
    print(json.dumps({"steps": steps, "seconds": seconds, "median": float(np.median(seconds))}))
    sys.exit(not ok)


if __name__ == "__main__":
    main()
