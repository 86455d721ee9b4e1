"""A model of 8 x 64 with attention pooling on a GPU: training steps and reading large tables.

    python benchmarks/gpu.py --part step
    python benchmarks/gpu.py --part large --cells 100000000

Times are medians between device events. The floor counts the fewest bytes that a step of this
form can move: every (E, 64) tensor in bfloat16 that is read or written, once.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.support import Support
from exchangeable.models.configs import ResidualConfig
from exchangeable.models.residual import ResidualModel
from exchangeable.models.stream import Plan
from exchangeable.runtime.progress import Progress
from exchangeable.training.config import TrainingConfig
from exchangeable.training.cuda_graph import CapturedStep
from exchangeable.training.execution import Execution
from exchangeable.training.loop import train
from exchangeable.training.masking import ExampleSource
from exchangeable.training.run import Run
from exchangeable.training.task import Task
from exchangeable.values.codecs import OneHot, ValueStats
from exchangeable.values.scale import Scale

WIDTH, DEPTH = 64, 8


def table(cells: int, rows: int, columns: int, device: str) -> tuple[Tensor, tuple[int, int]]:
    """Distinct cells of members with skewed degrees, in order: (E, 2)."""
    generator = torch.Generator(device).manual_seed(0)

    def drawn(members: int, skew: float, number: int) -> Tensor:
        each = torch.empty(members, device=device).exponential_(generator=generator) ** skew
        ends = each.cumsum(0) / each.sum()
        at = torch.rand(number, device=device, generator=generator)
        return torch.searchsorted(ends, at).clamp(max=members - 1)

    keys = torch.empty(0, dtype=torch.int64, device=device)
    while len(keys) < cells:
        number = int(1.4 * (cells - len(keys))) + 1000
        keys = torch.cat([keys, drawn(rows, 1.0, number) * columns + drawn(columns, 1.5, number)])
        keys = keys.unique()
    some = torch.randperm(len(keys), device=device, generator=generator)[:cells]
    keys = keys[some].sort().values
    return torch.stack([keys // columns, keys % columns], dim=1), (rows, columns)


def milliseconds(act: Callable[[], object], times: int = 20) -> float:
    for _ in range(5):
        act()
    torch.cuda.synchronize()
    found = []
    for _ in range(times):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        act()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end))
    return float(np.median(found))


def bandwidth() -> float:
    """Bytes read and written by a large copy, per second."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / (milliseconds(lambda: target.copy_(source)) / 1000)


def step(cells: int, activation: str, profile: bool) -> dict[str, float]:
    index, shape = table(cells, 6040, 3706, "cuda")
    ratings = torch.randint(1, 6, (len(index), 1), device="cuda").float()
    data = task(ExchangeableArray.unchecked(Support(index, shape), ratings))
    config = ResidualConfig(5, 5, activation=activation)  # type: ignore[arg-type]
    found = one_after_the_other(config, data, profile)
    found["train_ms"], _ = training(config, data)
    found["train_validated_ms"] = training(config, held_out(data))[1]
    found |= launched(Run.start(ResidualModel(config).cuda(), TrainingConfig()), data)
    found["peak_gb"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def one_after_the_other(config: ResidualConfig, data: Task, profile: bool) -> dict[str, float]:
    """Captured steps with given masks, alone and one after the other."""
    run = Run.start(ResidualModel(config).cuda(), TrainingConfig())
    masks = [torch.rand(len(data.observed), device="cuda") < 0.3 for _ in range(4)]
    turn = [0]
    captured = CapturedStep(run, OneHot(5), data, narrow)

    def train() -> None:
        turn[0] += 1
        captured(masks[turn[0] % 4], run.drops)

    found = {"alone_ms": milliseconds(train)}
    # One after the other, as in training: the next is launched while one runs.
    found["step_ms"] = milliseconds(lambda: [train() for _ in range(20)], 5) / 20
    if profile:
        from torch.profiler import ProfilerActivity
        from torch.profiler import profile as profiled

        with profiled(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
            train()
            torch.cuda.synchronize()
        listed = seen.key_averages()
        print(listed.table(sort_by="self_cuda_time_total", row_limit=60, max_name_column_width=80))
    return found


def task(ratings: ExchangeableArray, validation: ExchangeableArray | None = None) -> Task:
    """A task with these ratings of 1 to 5, by default without validation cells."""
    scale = Scale("levels", (1.0, 2.0, 3.0, 4.0, 5.0))
    reference = ValueStats.of(ratings.values.squeeze(1).double().cpu().numpy(), scale)
    none = torch.zeros(len(ratings), dtype=torch.bool, device=ratings.values.device)
    return Task(ratings, ratings.take(none) if validation is None else validation, reference)


def held_out(data: Task) -> Task:
    """The same task with a twentieth of its cells for validation."""
    kept = torch.rand(len(data.observed), device="cuda") < 0.05
    return task(data.observed.take(~kept), data.observed.take(kept))


def training(config: ResidualConfig, data: Task, steps: int = 200) -> tuple[float, float]:
    """A step as ``exchangeable train`` takes it, median and mean: masks drawn, weights averaged."""
    seen: list[float] = []
    run = Run.start(ResidualModel(config).cuda(), TrainingConfig(steps=steps))
    progress = Progress(show=lambda share, text: seen.append(time.perf_counter()))
    execution = Execution(torch.device("cuda"), progress=progress)
    train(run, ExampleSource(run, OneHot(5), data), execution)
    # The loss of every step was read, so that each ended before the second after it was shown.
    times = 1000 * np.diff(seen[10:])
    return float(np.median(times)), float(np.mean(times))


def launched(run: Run, data: Task) -> dict[str, float]:
    """Parts of a step launched one by one, and conditioning as a graph."""
    model = run.model
    values = OneHot(5).encode(data.observed.values.squeeze(1), data.stats).float()
    x = ExchangeableArray.unchecked(data.observed.support, values)
    hidden = torch.rand(len(values), device="cuda") < 0.3

    @torch.no_grad()
    def condition() -> None:
        with narrow():
            model.condition(x)

    def one_by_one() -> None:
        with narrow():
            outputs = model.predict_hidden(x, hidden, None, run.drops)
        outputs.float().logsumexp(dim=1).mean().backward()

    found = {"step_without_graph_ms": milliseconds(one_by_one, 5)}
    model.eval()
    found["condition_without_graph_ms"] = milliseconds(condition)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        condition()
    found["condition_ms"] = milliseconds(graph.replay)
    return found


def narrow() -> torch.autocast:
    return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False)


def large(cells: int, asked: int) -> dict[str, float]:
    """Conditioning on a table of Netflix's shape, and answering a million cells of it."""
    index, shape = table(cells, 480_189, 17_770, "cuda")
    ratings = torch.randint(0, 5, (len(index), 1), device="cuda", dtype=torch.uint8)
    levels = torch.eye(5, device="cuda")
    model = ResidualModel(ResidualConfig(5, 5)).cuda().eval()
    columns = [torch.randint(0, n, (asked,), device="cuda") for n in shape]
    queries = Support(torch.stack(columns, dim=1), shape)
    torch.cuda.synchronize()
    started = time.perf_counter()
    x = ExchangeableArray.unchecked(Support(index, shape), ratings)
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        memory = model.condition(
            x, encode=lambda values: levels[values.squeeze(1).long()], plan=Plan()
        )
        torch.cuda.synchronize()
        conditioned = time.perf_counter()
        model.read(memory, queries, 2**20)
    torch.cuda.synchronize()
    ended = time.perf_counter()
    peak = torch.cuda.max_memory_allocated() / 2**30
    return {
        "cells": len(index),
        "condition_s": conditioned - started,
        "read_s": ended - conditioned,
        "peak_gb": peak,
    }


def show(results: dict[str, float]) -> None:
    for name, value in results.items():
        print(f"{name:>28}  {value:14,.2f}")
    print(json.dumps(results))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=["step", "large"], default="step")
    parser.add_argument("--cells", type=int, default=900_000)
    parser.add_argument("--asked", type=int, default=1_000_000)
    parser.add_argument("--activation", default="leaky_relu")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    if given.part == "large":
        large(given.cells, given.asked)  # the first run compiles
        show(large(given.cells, given.asked))
        return
    speed = bandwidth()
    each = given.cells * WIDTH * 2
    # Forward: read and write h, and pool it three times. Backward: h, its gradient in and out,
    # that of the sum of terms, which is written and pooled twice, and the pools' own pass.
    passes = DEPTH * (5 + 4 + 2 + 3)
    floor = 1000 * passes * each / speed
    print(f"copies move {speed / 1e12:.2f} TB/s")
    print(f"the floor is {passes} passes over {each / 1e6:.0f} MB: {floor:.1f} ms")
    show({"floor_ms": floor, **step(given.cells, given.activation, given.profile)})


if __name__ == "__main__":
    main()
