"""How long a model takes to read a table on the CPU and to answer, beside others doing the same.

    python benchmarks/reading.py --surprise .venv-peers

A model of 8 x 64 with attention pooling and random weights (they do not change what is computed)
reads ML-100K's u1.base and answers u1.test, and ML-1M's 90 % and its 10 %, each in a process of
its own; Surprise's SVD fits and answers the former, in the environment that
``peers/comparison.py --install`` makes. Then, without attention, layers are compared with the
form that the paper's authors released: pools by ``index_add``, copied to every cell, concatenated,
one linear map.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from exchangeable import ExchangeableArray, Support
from exchangeable.data.splits import by_share
from exchangeable.datasets import load
from exchangeable.models.configs import ResidualConfig
from exchangeable.models.residual import ResidualModel
from exchangeable.nn.blocks import ExchangeableBlock
from exchangeable.nn.layers import ExchangeableLinear

SURPRISE = """
import json, sys, time
import numpy as np, pandas as pd
from surprise import SVD, Dataset, Reader
cells = np.load(sys.argv[1])
frame = pd.DataFrame({k: cells[k] for k in ("user", "film", "rating")})
train = Dataset.load_from_df(frame, Reader(rating_scale=(1, 5))).build_full_trainset()
test = list(zip(cells["test_user"], cells["test_film"], cells["test_rating"]))
times = []
for _ in range(3):
    started = time.perf_counter()
    SVD(random_state=0).fit(train).test(test)
    times.append(time.perf_counter() - started)
print(json.dumps(min(times)))
"""


def table(name: str) -> tuple[ExchangeableArray, ExchangeableArray]:
    dataset = load(name)
    split = dataset.splits["u1"] if "u1" in dataset.splits else by_share(dataset.table, test=0.1)
    known = np.sort(np.concatenate([split.train, split.validation]))
    index, values = torch.from_numpy(dataset.table.index), torch.from_numpy(dataset.table.values)
    parts = (known, np.sort(split.test))
    shape = dataset.table.shape
    return tuple(  # type: ignore[return-value]
        ExchangeableArray.unchecked(Support(index[part], shape), values[part][:, None])
        for part in parts
    )


def read(name: str) -> None:
    """In a process of its own: seconds of three turns from cells in memory, and its memory."""
    seen, asked = table(name)
    model, levels = ResidualModel(ResidualConfig(5, 5)).eval(), torch.eye(5)
    times = []
    for _ in range(3):
        fresh = ExchangeableArray.unchecked(Support(seen.support.index, seen.shape), seen.values)
        started = time.perf_counter()
        with torch.no_grad():
            memory = model.condition(fresh, encode=lambda v: levels[v.squeeze(1).long() - 1])
            model.read(memory, Support(asked.support.index, asked.shape), 2**14)
        times.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = {"cells": len(seen), "asked": len(asked), "seconds": times, "peak_gb": peak}
    print(json.dumps(found))


def released(values: Tensor, index: Tensor, shape: tuple[int, ...], layers: list[Tensor]) -> Tensor:
    """The form that was released: (own, row, column, all) of every cell times one matrix."""
    for weight in layers:
        parts = [values]
        for axis, size in enumerate(shape):
            total = values.new_zeros(size, values.shape[1]).index_add(0, index[:, axis], values)
            count = values.new_zeros(size).index_add(
                0, index[:, axis], values.new_ones(len(values))
            )
            parts.append((total / count.clamp(min=1)[:, None])[index[:, axis]])
        parts.append(values.mean(dim=0, keepdim=True).expand_as(values))
        values = torch.nn.functional.leaky_relu(torch.cat(parts, dim=1) @ weight)
    return values


def fastest(act: Callable[[], object], times: int = 5) -> float:
    act()
    found = []
    for _ in range(times):
        started = time.perf_counter()
        act()
        found.append(time.perf_counter() - started)
    return min(found)


def against_released(name: str, width: int = 64, depth: int = 8) -> dict[str, float]:
    seen, _ = table(name)
    index, shape = seen.support.index, seen.shape
    values = torch.randn(len(index), width, generator=torch.Generator().manual_seed(0))
    linears = [ExchangeableLinear(width, width, order=2, bias=False) for _ in range(depth)]
    blocks = torch.nn.Sequential(*[ExchangeableBlock(linear) for linear in linears])
    cells = Support(index, shape)
    weights = []
    for linear in linears:
        whole, row, column = (term.weights[0] for term in linear.terms)
        joined = torch.cat([linear.own, row, column, whole]).detach()
        weights.append(joined.requires_grad_())

    def ours() -> Tensor:
        x = ExchangeableArray.unchecked(cells, values)
        y: Tensor = blocks(x).values
        y.square().mean().backward()
        return y

    def theirs() -> Tensor:
        y = released(values, index, shape, weights)
        y.square().mean().backward()
        return y

    torch.testing.assert_close(ours(), theirs(), rtol=1e-3, atol=1e-4)
    found = {"ours_s": fastest(ours), "released_s": fastest(theirs)}
    return {**found, "times_faster": found["released_s"] / found["ours_s"]}


def surprise(environment: Path) -> float:
    seen, asked = table("ml-100k")
    with tempfile.TemporaryDirectory() as folder:
        names = ("user", "film", "rating")
        columns = {}
        for part, prefix in ((seen, ""), (asked, "test_")):
            numbers = (*part.support.index.T.numpy(), part.values.squeeze(1).numpy())
            columns |= {prefix + n: c for n, c in zip(names, numbers, strict=True)}
        path = Path(folder, "cells.npz")
        np.savez(path, **columns)
        python = environment / "bin" / "python"
        command = [str(python), "-c", SURPRISE, str(path)]
        return float(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--surprise", type=Path, help="An environment that has scikit-surprise.")
    parser.add_argument("--read", help="Of one table only, in this process.")
    given = parser.parse_args()
    if given.read:
        read(given.read)
        return
    results: dict[str, object] = {}
    for name in ("ml-100k", "ml-1m"):
        command = [sys.executable, __file__, "--read", name]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(told)
        results[name] = found
        first, best = found["seconds"][0], min(found["seconds"])
        print(
            f"{name}: {found['cells']:,} cells read, {found['asked']:,} answered in {best:.2f} s "
            f"(the first time {first:.2f}), {found['peak_gb']:.2f} GB at most"
        )
        if name == "ml-100k" and given.surprise:
            results["surprise_s"] = seconds = surprise(given.surprise)
            print(f"Surprise's SVD fits and answers the same in {seconds:.2f} s: ", end="")
            print(f"{best / seconds:.2f} of its time")
    for name in ("ml-100k", "ml-1m"):
        results[f"{name}, layers"] = layers = against_released(name)
        print(
            f"{name}, forward and backward without attention: {layers['ours_s']:.3f} s, released "
            f"{layers['released_s']:.3f} s: {layers['times_faster']:.2f} times as fast"
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
