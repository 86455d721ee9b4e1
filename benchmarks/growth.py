"""How time and memory grow with a table: ours beside Surprise, myFM and implicit.

    python benchmarks/growth.py --install --plot docs/pictures/growth.png --out out/growth.jsonl
    python benchmarks/growth.py --device cuda --cells 1e4 1e5 1e6 1e7 1e8

Tables are synthetic: numbers of cells per member are log-normal, members grow with a power of the
cells (``--members`` are those of 10 million cells), and ratings 1 to 5 are biases, ten factors and
noise. A tenth as many cells again are predicted, the same by all. Every run is a process of its
own that starts from arrays in memory; imports are not counted, and memory is the peak of the
process with its imports and the data. ``--install`` puts the peers into an environment of their
own, each with its defaults. On a GPU ours alone is measured, by cells without labels, which needs
torch, numpy and scipy only. A run that takes longer than ``--limit`` seconds is stopped, and the
model is not tried on larger tables. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers.runs import Record, Run, install, measured
from torch import Generator, Tensor

Shape = tuple[int, int]
REFERENCE_CELLS = 10_000_000
"""Cells of the table that ``--members`` describes."""
SPREADS = (1.0, 1.3)
"""Deviations of the logarithms of the numbers of cells of users and items."""
RANK, NOISE = 10, 0.8
MODELS = {
    "pretrained": Run("ours.py", ("pretrained",)),
    "auto": Run("ours.py", ("auto",)),
    "surprise-svd": Run("surprise_svd.py", ("svd",), ("scikit-surprise", "pandas")),
    "myfm": Run("myfm_ids.py", (), ("myfm", "setuptools<81")),
    "implicit-als": Run("implicit_als.py", (), ("implicit", "threadpoolctl")),
}
ON_GPU = ("pretrained", "auto")
NAMES = {
    "pretrained": "ours, pretrained",
    "auto": "ours, auto",
    "surprise-svd": "Surprise SVD",
    "myfm": "myFM",
    "implicit-als": "implicit ALS",
}
COLOURS = {
    "pretrained": "C6",
    "auto": "C4",
    "surprise-svd": "C0",
    "myfm": "C2",
    "implicit-als": "C1",
}


def draw_keys(cells: int, shape: Shape, generator: Generator) -> Tensor:
    """Draw distinct cells of members with heavy tails, row by row: (cells,)."""
    device = generator.device
    ends = [
        (spread * torch.randn(size, generator=generator, device=device)).exp().double().cumsum(0)
        for size, spread in zip(shape, SPREADS, strict=True)
    ]
    keys = torch.empty(0, dtype=torch.int64, device=device)
    while len(keys) < cells:
        count = int(1.5 * (cells - len(keys))) + 1000
        draws = [
            torch.searchsorted(
                sums, sums[-1] * torch.rand(count, generator=generator, device=device)
            )
            for sums in ends
        ]
        more = draws[0].clamp(max=shape[0] - 1) * shape[1] + draws[1].clamp(max=shape[1] - 1)
        keys = torch.cat([keys, more]).unique()
    chosen = torch.randperm(len(keys), generator=generator, device=device)[:cells]
    return keys[chosen.sort().values]


def draw_means(rows: Tensor, columns: Tensor, shape: Shape, generator: Generator) -> Tensor:
    """Draw ratings before noise, from biases and factors of the members: (E,)."""

    def normal(size: int) -> Tensor:
        return torch.randn(size, generator=generator, device=rows.device)

    means = 3.5 + 0.45 * (normal(shape[0])[rows] + normal(shape[1])[columns])
    for _ in range(RANK):
        means += 0.5 / RANK**0.5 * normal(shape[0])[rows] * normal(shape[1])[columns]
    return means


def make_table(cells: int, shape: Shape, device: str) -> dict[str, Any]:
    """Make training cells, a tenth as many to predict, and the error of the noise-free truth."""
    generator = torch.Generator(device).manual_seed(0)
    keys = draw_keys(cells + cells // 10, shape, generator)
    rows, columns = keys // shape[1], keys % shape[1]
    means = draw_means(rows, columns, shape, generator)
    noise = torch.randn(len(keys), generator=generator, device=device)
    values = (means + NOISE * noise).round().clamp(1, 5)
    # 1, and 1 more for every half that the noisy mean exceeds.
    expected = 1 + sum(torch.special.ndtr((means - (level + 0.5)) / NOISE) for level in range(1, 5))
    hidden = torch.zeros(len(keys), dtype=torch.bool, device=device)
    order = torch.randperm(len(keys), generator=generator, device=device)
    hidden[order[: cells // 10]] = True
    columns_by_name = {"users": rows.int(), "items": columns.int(), "values": values.double()}
    arrays = {
        f"{part}_{name}": column[mask].cpu().numpy()
        for part, mask in (("train", ~hidden), ("test", hidden))
        for name, column in columns_by_name.items()
    }
    floor = (expected - values)[hidden].double().square().mean().sqrt()
    return {**arrays, "floor": floor.cpu().numpy()}


def shape_of(cells: int, members: Sequence[int], power: float) -> Shape:
    """Return the members of a table; each axis has ten at least."""
    rows, columns = (max(10, round(size * (cells / REFERENCE_CELLS) ** power)) for size in members)
    return rows, columns


def store_table(cells: int, shape: Shape, device: str, cache: Path) -> tuple[Path, Record]:
    """Store a table as arrays in a file, unless it is there; return the file and facts of it."""
    path = cache / f"{cells}-{shape[0]}x{shape[1]}-{device}.npz"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **make_table(cells, shape, device))
        partial.rename(path)
    with np.load(path) as arrays:
        truth = arrays["test_values"]
        constant = float(np.sqrt(np.mean((arrays["train_values"].mean() - truth) ** 2)))
        floor = float(arrays["floor"])
    facts = {"cells": cells, "users": shape[0], "items": shape[1], "queries": len(truth)}
    return path, {**facts, "constant_rmse": constant, "floor_rmse": floor}


def repeat(run: Run, path: Path, options: argparse.Namespace) -> Record:
    """Measure a run several times: medians of seconds, and the largest memory."""
    records: list[Record] = []
    for _ in range(options.repeats):
        records.append(measured(run, path, options.limit, options.venv))
        if "predict_s" not in records[-1]:
            return records[-1]
    found = dict(records[-1])
    for key in ("fit_s", "predict_s", "cpu_s"):
        found[key] = statistics.median(record[key] for record in records)
    for key in ("peak_mb", "device_mb"):
        if key in found:
            found[key] = max(record[key] for record in records)
    return found


def describe_table(facts: Record) -> str:
    return (
        f"{facts['cells']:,} cells of {facts['users']:,} x {facts['items']:,}, "
        f"{facts['queries']:,} to predict; RMSE of a constant {facts['constant_rmse']:.4f}, "
        f"of the truth without its noise {facts['floor_rmse']:.4f}"
    )


HEAD = f"{'':>20}  {'fit':>10}  {'predict':>10}  {'peak memory':>11}  {'on the GPU':>10}  RMSE"


def describe_run(record: Record) -> str:
    """Time, memory and error in a row; or why there are none."""
    name = NAMES[record["model"]] + (" (GPU)" if record["device"] == "cuda" else "")
    if "predict_s" not in record:
        over = f"more than {record['over']} s" if "over" in record else ""
        return f"{name:>20}  {over or record.get('failed', '-')}"
    error = f"{record['rmse']:.4f}" if "rmse" in record else "-"
    held = f"{record['device_mb']:,.0f} MB" if "device_mb" in record else "-"
    times = f"{record['fit_s']:>8,.2f} s  {record['predict_s']:>8,.2f} s"
    return f"{name:>20}  {times}  {record['peak_mb']:>8,.0f} MB  {held:>10}  {error}"


FOOTNOTE = "The scores of implicit are no ratings, so that they have no RMSE."


def show_stored(paths: Sequence[Path]) -> list[Record]:
    """Print a table for each size of what files hold, and return their records."""
    records = read_records(paths)
    for cells in sorted({record["cells"] for record in records}):
        rows = [record for record in records if record["cells"] == cells]
        print("\n".join(["", describe_table(rows[-1]), HEAD, *map(describe_run, rows)]))
    return records


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw seconds and memory over cells, a line for each model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2)
    for model, device in dict.fromkeys((record["model"], record["device"]) for record in records):
        runs = [r for r in records if (r["model"], r["device"]) == (model, device)]
        runs = sorted((r for r in runs if "predict_s" in r), key=lambda r: r["cells"])
        ours = model in ON_GPU
        style = {
            "color": COLOURS[model],
            "linewidth": 2.5 if ours else 1.2,
            "linestyle": "--" if device == "cuda" else "-",
            "zorder": 3 if ours else 2,
            "label": NAMES[model] + (", on a GPU" if device == "cuda" else ""),
        }
        cells = [r["cells"] for r in runs]
        seconds = [r["fit_s"] + r["predict_s"] for r in runs]
        held = [r.get("device_mb", r["peak_mb"]) / 1024 for r in runs]
        for panel, amounts in zip(panels, (seconds, held), strict=True):
            panel.plot(cells, amounts, marker="o", markersize=3.5, **style)
    for panel, name in zip(panels, ("seconds to fit and predict", "peak memory, GB"), strict=True):
        panel.set(xscale="log", yscale="log", xlabel="cells", ylabel=name)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="#eeeeee")
    panels[0].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--cells", type=float, nargs="+", default=[1e4, 1e5, 1e6, 1e7], help="sizes of tables")
    add("--models", nargs="+", choices=MODELS, help="default: all, on a GPU ours")
    add("--members", type=int, nargs=2, default=[70_000, 10_000], help="users and items of 1e7")
    add("--power", type=float, default=0.5, help="of the cells that members grow with")
    add("--repeats", type=int, default=1, help="medians of so many runs are shown")
    add("--limit", type=int, default=600, help="seconds to fit and predict")
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--install", action="store_true", help="install the peers first")
    add("--venv", type=Path, default=Path(".venv-peers"), help="where to")
    add("--cache", type=Path, default=Path("out/growth"), help="for tables")
    add("--out", type=Path, help="lines of JSON are added to this file")
    add("--show", type=Path, nargs="+", help="run nothing, show and plot what such files hold")
    add("--plot", type=Path, help="draw seconds and memory over cells")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> list[Record]:
    """Measure all models on all tables, smallest first, and print each as it ends."""
    gpu = options.device == "cuda"
    names = options.models or (ON_GPU if gpu else tuple(MODELS))
    runs = {name: MODELS[name] for name in names if not gpu or name in ON_GPU}
    if gpu:
        runs = {name: Run("ours_cells.py", (name, options.device)) for name in runs}
    elif options.install and (why := install_peers(runs, options.venv)):
        print(why)
    records: list[Record] = []
    for cells in sorted(map(int, options.cells)):
        shape = shape_of(cells, options.members, options.power)
        path, facts = store_table(cells, shape, options.device, options.cache)
        print(f"\n{describe_table(facts)}\n{HEAD}", flush=True)
        for name, run in list(runs.items()):
            found = repeat(run, path, options)
            if "over" in found:
                del runs[name]
            machine = f"{platform.machine()}, {os.cpu_count()} cores"
            records.append(
                {**facts, "model": name, "device": options.device, "machine": machine, **found}
            )
            print(describe_run(records[-1]), flush=True)
            keep(records[-1], options.out)
    return records


def install_peers(runs: dict[str, Run], environment: Path) -> str:
    packages = sorted({package for run in runs.values() for package in run.packages})
    return install(environment, packages)


def keep(record: Record, path: Path | None) -> None:
    """Add a line to a file, where there is one."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def read_records(paths: Sequence[Path]) -> list[Record]:
    """Read the last record of each size, model and device."""
    lines = [line for path in paths for line in path.read_text().splitlines()]
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return list({(r["cells"], r["model"], r["device"]): r for r in records}.values())


def main() -> None:
    options = parse_arguments()
    records = show_stored(options.show) if options.show else measure(options)
    if options.plot:
        draw(records, options.plot)
    print(f"\n{FOOTNOTE}\n{json.dumps(records)}")


if __name__ == "__main__":
    main()
