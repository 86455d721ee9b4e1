"""Peers side by side: scikit-surprise, LensKit and implicit beside ours, on three tables.

    EXCHANGEABLE_DATA=... python benchmarks/peers/comparison.py --install --out out/peers.jsonl
    python benchmarks/peers/comparison.py --peers ours-vmf,lenskit --data ml-100k --model FOLDER

``--install`` puts the peers into an environment of their own, with the versions of
requirements.txt. Every run is a process of its own. Times start from arrays in memory and
count what a library builds of them; CPU is what all threads used in that time, and says more where
others use the machine. Memory is the peak of the process, imports and data included.
Every library has the settings that it comes with: nothing is tuned, of theirs or of ours. A run
may take ``--limit`` seconds to fit and answer, and as many again to serve. Nothing runs in
parallel, but a library may use all cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from runs import Record, Run, install, measured
from scipy.special import ndtr

from exchangeable.data.splits import split_by_name
from exchangeable.datasets import load

Arrays = dict[str, NDArray[Any]]


RUNS = {
    "ours-bias": Run("ours.py", ("bias",)),
    "ours-vmf": Run("ours.py", ("vmf",)),
    "ours-bmf": Run("ours.py", ("bmf",)),
    "surprise-svd": Run("surprise_svd.py", ("svd",), ("scikit-surprise", "pandas")),
    "surprise-svd++": Run("surprise_svd.py", ("svdpp",), ("scikit-surprise", "pandas")),
    "lenskit": Run("lenskit_als.py", (), ("lenskit",)),
    "implicit": Run("implicit_als.py", (), ("implicit", "threadpoolctl")),
}


def movielens(name: str, split: str) -> Arrays:
    """A dataset with its own labels; seed 0 where the split is drawn, as in ``evaluate``."""
    dataset = load(name)
    table = dataset.table if split in dataset.splits else dataset.table.in_label_order()
    parts = split_by_name(table, dataset.splits, split, test=0.1, seed=0)
    labels = [v.decode(table.index[:, a]).to_numpy() for a, v in enumerate(table.vocabularies)]
    columns = dict(zip(("users", "items", "values"), [*labels, table.values], strict=True))
    seen = np.concatenate([parts.train, parts.validation])
    train = {f"train_{key}": column[seen] for key, column in columns.items()}
    return train | {f"test_{key}": column[parts.test] for key, column in columns.items()}


def synthetic(users: int = 100_000, items: int = 20_000, rank: int = 10) -> Arrays:
    """Biases, ten factors and noise, as whole numbers 1-5: 10 million cells and a million to test.

    How many cells members have is log-normal, with deviation 1 for users and 1.3 for items.
    """
    generator = np.random.default_rng(0)
    rows, columns = (
        np.cumsum(generator.lognormal(0, spread, size))
        for size, spread in ((users, 1.0), (items, 1.3))
    )
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < 11_000_000:
        row, column = (
            np.searchsorted(sums, generator.random(4_000_000) * sums[-1])
            for sums in (rows, columns)
        )
        keys = np.union1d(keys, row * items + column)
    keys = generator.permutation(keys)[:11_000_000]
    row, column = keys // items, keys % items
    left, right = (generator.normal(0, 1, (size, rank)) for size in (users, items))
    mean = 3.5 + generator.normal(0, 0.45, users)[row] + generator.normal(0, 0.45, items)[column]
    for one, other in zip(left.T, right.T, strict=True):
        mean += 0.5 / np.sqrt(rank) * one[row] * other[column]
    values = np.clip(np.round(mean + generator.normal(0, 0.8, len(mean))), 1, 5)
    # 1, and 1 more for every half that the noisy mean exceeds.
    expected = 1 + sum(ndtr((mean - (level + 0.5)) / 0.8) for level in range(1, 5))
    cells = {"users": row, "items": column, "values": values}
    train = {f"train_{name}": cell[:10_000_000] for name, cell in cells.items()}
    test = {f"test_{name}": cell[10_000_000:] for name, cell in cells.items()}
    floor = np.sqrt(np.mean((expected - values)[10_000_000:] ** 2))
    return {**train, **test, "floor": np.array(floor)}


DATA: dict[str, Callable[[], Arrays]] = {
    "ml-100k": lambda: movielens("ml-100k", "u1"),
    "ml-1m": lambda: movielens("ml-1m", "random"),
    "synthetic-10m": synthetic,
}


def stored(name: str, cache: Path) -> Path:
    """A table as arrays in a file, made when it is first asked for."""
    path = cache / f"{name}.npz"
    if not path.exists():
        arrays, generator = DATA[name](), np.random.default_rng(1)
        items, values = np.unique(arrays["train_items"]), arrays["train_values"]
        arrays["new_items"] = np.stack(
            [generator.choice(items, 50, replace=False) for _ in range(20)]
        )
        arrays["new_values"] = generator.choice(values, (20, 50))
        cache.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **arrays)
        partial.rename(path)
    return path


def described(name: str, path: Path) -> Record:
    """Sizes, what a constant scores, and the best that is possible, where that is known."""
    with np.load(path) as arrays:
        error = arrays["train_values"].mean() - arrays["test_values"]
        return {
            "data": name,
            "users": len(np.unique(arrays["train_users"])),
            "items": len(np.unique(arrays["train_items"])),
            "train": len(arrays["train_values"]),
            "test": len(error),
            "constant_rmse": float(np.sqrt(np.mean(error**2))),
            "floor_rmse": float(arrays["floor"]) if "floor" in arrays else None,
        }


AMOUNTS = ("seconds", "peak_mb", "serve_s")


def table(facts: Record, records: Sequence[Record]) -> str:
    """One dataset's rows, each with its ratios to the least among those that beat the biases."""
    floor = facts["floor_rmse"]
    known = "" if floor is None else f", of the truth without its noise {floor:.4f}"
    head = (
        f"{facts['data']}: {facts['users']:,} x {facts['items']:,}, {facts['train']:,} cells, "
        f"{facts['test']:,} to test; RMSE of a constant {facts['constant_rmse']:.4f}{known}"
    )
    names = f"{'':>16}  {'fit + predict':>18}  {'CPU':>8}  {'peak memory':>17}  {'RMSE':>6}"
    names = f"{names}  {'new user':>19}"
    least = sensible(records)
    return "\n".join([head, names, *[row(record, least) for record in records]])


def row(record: Record, least: Sequence[float | None] = (None, None, None)) -> str:
    """Time, memory, accuracy and time to serve; or why there are none."""
    if "failed" in record and "fit_s" not in record:
        return f"{record['peer']:>16}  {record['failed']}"
    over = f">{record['over']} s" if "over" in record else "-"
    seconds, memory, serving = (amount(record, key) for key in AMOUNTS)
    time = f"{told(seconds)}{ratio(seconds, least[0])}" if seconds else over
    held = f"{memory:,.0f} MB{ratio(memory, least[1])}" if memory else "-"
    error = f"{record['rmse']:.4f}" if "rmse" in record else "-"
    tried = seconds or record.get("refits")
    new = f"{told(serving)}{ratio(serving, least[2])}" if serving else over if tried else "-"
    marks = ["refit"] if record.get("refits") else []
    marks += [f"by a line {record['line_rmse']:.4f}"] if "line_rmse" in record else []
    marks += [record["failed"]] if "failed" in record else []
    busy = told(record["cpu_s"]) if "cpu_s" in record else "-"
    cells = f"{record['peer']:>16}  {time:>18}  {busy:>8}  {held:>17}  {error:>6}  {new:>19}"
    return f"{cells}  {', '.join(marks)}".rstrip()


def amount(record: Record, key: str) -> float | None:
    """One of ``AMOUNTS``, where it was measured."""
    if key == "seconds":
        return record["fit_s"] + record["predict_s"] if "fit_s" in record else None
    return record.get(key)


def sensible(records: Sequence[Record]) -> list[float | None]:
    """The least time, memory and time to serve of all runs that beat the biases."""
    bias = next((r["rmse"] for r in records if r["peer"] == "ours-bias" and "rmse" in r), np.inf)
    good = [record for record in records if record.get("rmse", np.inf) < bias]
    found = [[a for r in good if (a := amount(r, key))] for key in AMOUNTS]
    return [min(amounts, default=None) for amounts in found]


def ratio(one: float, least: float | None) -> str:
    """How many times the least: in brackets, where there is one."""
    if least is None:
        return ""
    times = one / least
    return f" ({times:,.0f}x)" if times >= 10 else f" ({times:.2g}x)"


def told(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"


FOOTNOTE = """\
(1x) is the least among runs whose RMSE beats the biases'. refit: a new user means fitting again,
so the time of a fit is counted. implicit models who rates what, not how high: its scores are no
ratings. A least-squares line through training cells makes ratings of them, whose RMSE stands at
the end of its row; where that is above a constant's, it is meaningless."""


def latest(path: Path) -> list[Record]:
    """What a file holds, the last record of each dataset and peer."""
    lines = path.read_text().splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines]
    return list({(record["data"]["data"], record["peer"]): record for record in records}.values())


def show(records: Sequence[Record]) -> None:
    """A table for each dataset, and all of it as JSON in the last line."""
    order = {name: place for place, name in enumerate(RUNS)}
    for name in DATA:
        rows = [record for record in records if record["data"]["data"] == name]
        if rows:
            rows.sort(key=lambda record: order.get(record["peer"], len(order)))
            print(f"\n{table(rows[-1]['data'], rows)}")
    print(f"\n{FOOTNOTE}\n{json.dumps(records)}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default=",".join(RUNS), help="rows, separated by commas")
    parser.add_argument("--data", default=",".join(DATA), help="tables, separated by commas")
    parser.add_argument("--model", action="append", default=[], help="a trained model's folder")
    parser.add_argument("--limit", type=int, default=600, help="seconds to fit and answer")
    parser.add_argument("--install", action="store_true", help="install the peers first")
    parser.add_argument("--venv", type=Path, default=Path(".venv-peers"), help="where to")
    parser.add_argument("--cache", type=Path, default=Path("out/peers"), help="for tables")
    parser.add_argument("--out", type=Path, help="lines of JSON are added to this file")
    parser.add_argument("--show", action="store_true", help="run nothing, show what --out holds")
    options = parser.parse_args()
    for name, known in (("peers", RUNS), ("data", DATA)):
        chosen = [part for part in getattr(options, name).split(",") if part]
        setattr(options, name, chosen)
        if not set(chosen) <= set(known):
            parser.error(f"--{name} must be some of {', '.join(known)}, but is {','.join(chosen)}")
    if options.show and options.out is None:
        parser.error("--show needs --out")
    return options


def main() -> None:
    options = parsed()
    if options.show:
        show(latest(options.out))
        return
    runs = {name: RUNS[name] for name in options.peers}
    runs |= {f"ours {Path(path).name}": Run("ours.py", (path,)) for path in options.model}
    needed = {run.packages for run in runs.values() if run.packages and options.install}
    refused = {packages: install(options.venv, packages) for packages in sorted(needed)}
    records = []
    for name in options.data:
        path = stored(name, options.cache)
        facts = described(name, path)
        for peer, run in runs.items():
            why = refused.get(run.packages)
            found = {"failed": why} if why else measured(run, path, options.limit, options.venv)
            machine = f"{platform.machine()}, {os.cpu_count()} cores"
            record = {"data": facts, "peer": peer, "limit": options.limit, "machine": machine}
            records.append(record | {"load": os.getloadavg()[0]} | found)
            print(row(records[-1]), flush=True)
            if options.out is not None:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                with options.out.open("a") as file:
                    file.write(json.dumps(records[-1]) + "\n")
    show(records)


if __name__ == "__main__":
    main()
