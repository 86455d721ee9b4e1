"""What people wait for: fits, lists, updates and loads, on this machine, in seconds.

    python benchmarks/waiting.py [--only ml-100k recommend] [--repeats 5] [--busy]

Medians of repeated runs, after one that is not counted. ``--busy`` has a process compute on
each core beside them. Tables come from the data folder; the larger one of ``sparse`` is synthetic.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from exchangeable import Completer, Table
from exchangeable.datasets import load

Case = Callable[[int], dict[str, float]]


@cache
def split(name: str) -> tuple[Table, Table]:
    """Training and test part: u1 of ML-100K, and a random tenth of all others."""
    if name == "sparse":
        table = sparse_table()
    else:
        dataset = load(name)
        table = replace(dataset.table, times=None)
        if name == "ml-100k":
            return table.take(dataset.splits["u1"].train), table.take(dataset.splits["u1"].test)
    hidden = np.random.default_rng(0).random(len(table)) < 0.1
    return table.take(np.flatnonzero(~hidden)), table.take(np.flatnonzero(hidden))


def sparse_table() -> Table:
    """466,667 ratings of 4,714 x 7,157 members, whose numbers of cells have heavy tails."""
    rows, columns, cells = 4714, 7157, 466_667
    rng = np.random.default_rng(0)
    draws = [rng.pareto(shape, size) + 0.3 for shape, size in ((1.2, rows), (1.0, columns))]
    one, other = (rng.choice(len(each), 4 * cells, p=each / each.sum()) for each in draws)
    keys = rng.permutation(np.unique(one * columns + other))[:cells]
    row, column = keys // columns, keys % columns
    vectors = rng.normal(size=(rows, 6))[row] * rng.normal(size=(columns, 6))[column]
    means = 0.4 * rng.normal(size=rows)[row] + 0.5 * rng.normal(size=columns)[column]
    values = 3.5 + means + 0.25 * vectors.sum(axis=1) + 0.8 * rng.normal(size=len(keys))
    ratings = np.clip(np.round(values), 1, 5)
    return Table.of(pl.DataFrame({"user": row, "film": column}), ratings)


@cache
def fitted(name: str) -> Completer:
    return Completer("pretrained").fit_table(split(name)[0])


def fit_and_predict(name: str, model: str) -> Case:
    def run(repeats: int) -> dict[str, float]:
        train, test = split(name)
        cells, errors = test.frame(test.index), []

        def once() -> None:
            predictions = Completer(model).fit_table(train).predict(cells)
            errors.append(float(np.sqrt(np.mean((predictions - test.values) ** 2))))

        return {"seconds": median(once, repeats), "rmse": errors[-1]}

    return run


def load_saved(repeats: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved"
        fitted("ml-1m").save(path)
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        return {"seconds": median(lambda: Completer.load(path), repeats), "mb": size / 1e6}


def recommend_known(repeats: int) -> dict[str, float]:
    completer, users = fitted("ml-1m"), iter(range(1, 6000))
    return {"seconds": median(lambda: completer.recommend(next(users), 10), 20 * repeats)}


def score_everything(repeats: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    size, share = 1500, 1 / 45
    index = np.argwhere(rng.random((size, size)) < share)
    completer = Completer("pretrained").fit(index, rng.integers(1, 6, len(index)).astype(float))
    every = np.argwhere(np.ones((size, size)))
    return {"seconds": median(lambda: completer.predict(every), repeats)}


def new_user(repeats: int) -> dict[str, float]:
    completer = fitted("ml-1m")
    films = completer.table_.vocabularies[1].labels
    rng = np.random.default_rng(0)
    draws = iter([rng.choice(len(films), 20, replace=False) for _ in range(20 * repeats + 1)])

    def once() -> None:
        ratings = {films[int(code)]: float(1 + code % 5) for code in next(draws)}
        completer.recommend(-1, 10, ratings=ratings)

    return {"seconds": median(once, 20 * repeats)}


def new_users(repeats: int) -> dict[str, float]:
    completer, count = fitted("ml-1m"), 256
    films = completer.table_.vocabularies[1].labels
    rng, users = np.random.default_rng(0), [-1 - user for user in range(count)]

    def once() -> None:
        codes = np.stack([rng.choice(len(films), 20, replace=False) for _ in users]).ravel()
        labels = zip(
            completer.table_.axes, (np.repeat(users, 20), films.gather(codes)), strict=True
        )
        ratings = pl.DataFrame({**dict(labels), "rating": 1.0 + codes % 5})
        completer.recommend(users, 10, ratings=ratings)

    return {"seconds": median(once, repeats) / count}


def update_and_recommend(repeats: int) -> dict[str, float]:
    rng, seconds = np.random.default_rng(0), []
    for number in range(repeats + 1):
        completer = Completer("pretrained").fit_table(split("ml-100k")[0])
        films = completer.table_.vocabularies[1].labels
        own = films.gather(rng.choice(len(films), 50, replace=False))
        axes = dict(zip(completer.table_.axes, ([10_000 + number] * 50, own), strict=True))
        started = time.perf_counter()
        completer.update(pl.DataFrame(axes), rng.integers(1, 6, 50).astype(float))
        completer.recommend(10_000 + number, 10)
        seconds.append(time.perf_counter() - started)
    return {"seconds": statistics.median(seconds[1:])}


CASES: dict[str, Case] = {
    "ml-100k auto": fit_and_predict("ml-100k", "auto"),
    "ml-100k pretrained": fit_and_predict("ml-100k", "pretrained"),
    "ml-1m pretrained": fit_and_predict("ml-1m", "pretrained"),
    "ml-1m auto": fit_and_predict("ml-1m", "auto"),
    "sparse pretrained": fit_and_predict("sparse", "pretrained"),
    "movietweetings pretrained": fit_and_predict("movietweetings", "pretrained"),
    "movietweetings auto": fit_and_predict("movietweetings", "auto"),
    "load ml-1m": load_saved,
    "recommend ml-1m": recommend_known,
    "score 1,500 x 1,500": score_everything,
    "new user ml-1m": new_user,
    "256 new users ml-1m": new_users,
    "update ml-100k": update_and_recommend,
}


def median(once: Callable[[], object], repeats: int) -> float:
    once()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        once()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def compute_forever() -> None:
    total = 0
    while True:
        total += 1


@contextmanager
def busy_cores(wanted: bool) -> Iterator[None]:
    """Have a process compute on each core."""
    count = (os.cpu_count() or 1) if wanted else 0
    others = [multiprocessing.Process(target=compute_forever, daemon=True) for _ in range(count)]
    for each in others:
        each.start()
    try:
        yield
    finally:
        for each in others:
            each.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="cases whose names begin so")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--busy", action="store_true", help="a computing process on each core")
    given = parser.parse_args()
    chosen = {
        name: case
        for name, case in CASES.items()
        if not given.only or any(name.startswith(start) for start in given.only)
    }
    found = {}
    with busy_cores(given.busy):
        for name, case in chosen.items():
            found[name] = case(given.repeats)
            rest = ", ".join(f"{k} {v:.4g}" for k, v in found[name].items() if k != "seconds")
            print(f"{name:26} {found[name]['seconds']:9.4f} s  {rest}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
