"""The tables of the experiments as plain arrays, which travel to machines that have only numpy.

    python -m paper.lib.problems            # writes .paper-data/NAME.npz for every table there is

Where such a file lies it is read; otherwise the table comes from ``exchangeable.datasets``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.values.scale import Scale
from paper.lib.command import run_command

Index = NDArray[np.int64]
Floats = NDArray[np.float64]

NAMES = ("ml-100k", "ml-1m", "flixster", "douban", "yahoo-music", "davis", "kiba", "lastfm-tags")
SEEDS = (0, 1, 2)
"""Seeds of the random splits of tables without published ones."""
VALIDATION = 0.05
"""Share of the cells that are not for testing on which choices are made."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A table, and which of its cells are for testing."""

    name: str
    index: Index  # (E, D)
    values: Floats  # (E,)
    shape: tuple[int, ...]
    scale: Scale
    tests: Mapping[str, Index]
    """By the name of the split, the positions of its test cells."""
    features: Mapping[int, Floats] = field(default_factory=dict)
    """By axis, of its members: (N, F)."""
    times: Floats | None = None
    """Times of the cells: (E,)."""

    def parts(self, split: str, seed: int) -> tuple[Index, Index, Index]:
        """Positions of training, validation and test cells; the second are drawn by the seed."""
        test = self.tests[split]
        base = np.setdiff1d(np.arange(len(self.values)), test)
        drawn = np.random.default_rng(seed).permutation(base)
        number = round(VALIDATION * len(base))
        return np.sort(drawn[number:]), np.sort(drawn[:number]), test


def folder() -> Path:
    return Path(os.environ.get("EXCHANGEABLE_PAPER", ".paper-data"))


def load(name: str) -> Problem:
    """From its file, or from the datasets of the package."""
    path = folder() / f"{name}.npz"
    return _read(path) if path.exists() else _made(name)


def _made(name: str) -> Problem:
    from exchangeable.data.feature_columns import similarity_components
    from exchangeable.data.splits import by_share
    from exchangeable.datasets import load as load_dataset

    dataset = load_dataset(name)
    table = dataset.table
    order = np.lexsort(table.index.T[::-1])  # by rows, whatever order the file has
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    published = {s: own for s, own in dataset.splits.items() if not s.startswith("fold")}
    tests = {split: np.sort(place[own.test]) for split, own in published.items()}
    if not tests:
        drawn = {str(seed): by_share(table, test=0.1, validation=0.0, seed=seed) for seed in SEEDS}
        tests = {split: np.sort(place[own.test]) for split, own in drawn.items()}
    features = {axis: own.values.astype(np.float64) for axis, own in dataset.features.items()}
    if name in ("davis", "kiba"):
        features = {axis: similarity_components(own) for axis, own in dataset.graphs.items()}
    times = None if table.times is None else table.times[order]
    cells = table.index[order], table.values[order]
    return Problem(name, *cells, table.shape, table.scale, tests, features, times)


def save(problem: Problem, path: Path) -> None:
    arrays: dict[str, NDArray[Any]] = {
        "index": problem.index.astype(np.int32),
        "values": problem.values,
        "shape": np.array(problem.shape),
        "kind": np.array(problem.scale.kind),
        "levels": np.array(problem.scale.levels, dtype=np.float64),
    }
    arrays |= {f"test.{split}": cells.astype(np.int32) for split, cells in problem.tests.items()}
    arrays |= {f"features.{axis}": own for axis, own in problem.features.items()}
    if problem.times is not None:
        arrays["times"] = problem.times
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def _read(path: Path) -> Problem:
    with np.load(path, allow_pickle=False) as stored:
        named = {name: stored[name] for name in stored.files}

    def below(prefix: str) -> dict[str, NDArray[np.float64]]:
        return {k.removeprefix(prefix): v for k, v in named.items() if k.startswith(prefix)}

    return Problem(
        path.stem,
        named["index"].astype(np.int64),
        named["values"],
        tuple(named["shape"].tolist()),
        Scale(str(named["kind"]), tuple(named["levels"].tolist())),  # type: ignore[arg-type]
        {split: cells.astype(np.int64) for split, cells in below("test.").items()},
        {int(axis): own for axis, own in below("features.").items()},
        named.get("times"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(NAMES), metavar="NAME")
    for name in parser.parse_args().names:
        path = folder() / f"{name}.npz"
        save(_made(name), path)
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    run_command(main)
