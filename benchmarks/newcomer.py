"""A new user with 50 ratings, scored on all films of ML-100K's size: milliseconds.

    python benchmarks/newcomer.py

The table is synthetic (943 x 1,682, 80,000 ratings). The models are the pretrained one, and one of
8 x 64 with attention pooling and random weights: they do not change what is computed.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import polars as pl

from exchangeable import Completer, ResidualConfig, TrainedModel, TrainingConfig
from exchangeable.models.configs import build
from exchangeable.predictors.model import ModelPredictor
from exchangeable.values.codecs import codec_for


def main() -> None:
    generator = np.random.default_rng(0)
    keys = generator.choice(943 * 1682, 80_000, replace=False)
    frame = pl.DataFrame({"user": keys // 1682, "film": keys % 1682})
    ratings = generator.integers(1, 6, len(keys)).astype(np.float64)
    started = time.perf_counter()
    pretrained = Completer("pretrained").fit(frame, ratings)
    results = [measure("pretrained", pretrained, time.perf_counter() - started)]
    completer = Completer("mean").fit(frame, ratings)
    codec = codec_for(completer.cells_.scale)
    config = ResidualConfig(codec.in_channels, codec.out_channels)
    trained = TrainedModel(config, codec, build(config).eval(), TrainingConfig(), "random", {})
    started = time.perf_counter()
    predictor = ModelPredictor.of(trained, completer.cells_)
    completer.fitted_ = replace(completer.fitted_, predictor=predictor)
    results.append(measure("8 x 64, attention", completer, time.perf_counter() - started))
    print(json.dumps(results))


def measure(name: str, completer: Completer, conditioned: float) -> dict[str, str | float]:
    """Milliseconds of 201 recommendations for new users, printed and returned."""
    generator, times = np.random.default_rng(1), []
    for _ in range(201):
        films = generator.choice(1682, 50, replace=False).tolist()
        own = dict(zip(films, generator.integers(1, 6, 50).astype(float).tolist(), strict=True))
        started = time.perf_counter()
        completer.recommend(10_000, n=10, ratings=own)
        times.append(1000 * (time.perf_counter() - started))
    first, *others = times
    median, late = np.quantile(others, [0.5, 0.99])
    print(
        f"{name:>18}  reads the table in {conditioned:5.2f} s  new user: median {median:5.1f} ms, "
        f"99th percentile {late:5.1f} ms, the first {first:4.0f} ms",
        flush=True,
    )
    times_ms = {"median_ms": median, "p99_ms": late, "first_ms": first}
    return {"model": name, "condition_s": conditioned, **times_ms}


if __name__ == "__main__":
    main()
