"""Seconds until a first result: import, the command's help, five cells, a CSV of 100 rows.

    python benchmarks/first_prediction.py [--times 5]

Each is a process of its own, from its start to its end, as somebody who types it would wait; the
median of five, after one that is not counted and brings files into memory.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIVE_CELLS = """
import exchangeable as ex
cells = [("ann", "Heat"), ("ann", "Alien"), ("bob", "Heat"), ("bob", "Big"), ("cleo", "Alien")]
completer = ex.Completer().fit(cells, [5, 4, 2, 1, 5])
completer.predict([("bob", "Alien"), ("cleo", "Heat")])
"""


def write_table(path: Path, rows: int = 100) -> None:
    """Ratings of 20 users and 15 films, a tenth of them without a value."""
    generator = random.Random(0)
    cells = [(user, film) for user in range(20) for film in range(15)]
    lines = ["user,film,rating"]
    for place, (user, film) in enumerate(generator.sample(cells, rows)):
        rating = "" if place % 10 == 0 else str(generator.randint(1, 5))
        lines.append(f"user {user},film {film},{rating}")
    path.write_text("\n".join(lines) + "\n")


def measure(command: list[str], folder: Path, times: int) -> list[float]:
    """Wall seconds of each run of a command; none where it fails, which is printed."""
    seconds = []
    for _ in range(1 + times):
        started = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        seconds.append(time.perf_counter() - started)
        if done.returncode:
            print(f"{' '.join(command[1:])} ended with {done.returncode}: {done.stderr.strip()}")
            return []
    return seconds[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args().times
    python, command = sys.executable, [sys.executable, "-m", "exchangeable"]
    results = {}
    with tempfile.TemporaryDirectory() as place:
        write_table(Path(place, "ratings.csv"))
        for name, words in {
            "import exchangeable": [python, "-c", "import exchangeable"],
            "exchangeable --help": [*command, "--help"],
            "exchangeable --version": [*command, "--version"],
            "Completer on 5 cells": [python, "-c", FIVE_CELLS],
            "exchangeable complete, 100 rows": [*command, "complete", "ratings.csv", "--force"],
        }.items():
            seconds = measure(words, Path(place), times)
            if seconds:
                results[name] = statistics.median(seconds)
                spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
                print(f"{name:>32}  {results[name]:6.2f} s  ({spread})", flush=True)
    print(json.dumps(results))
    sys.exit(0 if len(results) == 5 else 1)


if __name__ == "__main__":
    main()
