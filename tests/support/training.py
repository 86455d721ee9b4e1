"""What the tests of training share."""

import numpy as np
import torch

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.models.configs import (
    ResidualConfig,
    build,
)
from exchangeable.testing import random_array
from exchangeable.training.config import TrainingConfig
from exchangeable.training.execution import Execution
from exchangeable.training.loop import train
from exchangeable.training.masking import ExampleSource
from exchangeable.training.run import Run
from exchangeable.training.task import Task
from exchangeable.training.train_model import train_model
from exchangeable.values.codecs import OneHot, ValueStats
from exchangeable.values.scale import Scale

STARS = Scale("levels", (1.0, 2.0, 3.0, 4.0, 5.0))


CODEC = OneHot(5)


SMALL = ResidualConfig(5, 5, width=8, depth=2, pooling=("mean", "attention"), heads=2)


QUICK = TrainingConfig(steps=12, evaluate_every=3, learning_rate=1e-2)


def ratings(shape=(12, 9), seed=0, density=0.7):
    """Ratings with a bias of rows and of columns, so that there is something to learn."""
    noise = random_array(shape, density=density, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    total = sum(
        torch.randn(size, generator=generator, dtype=torch.float64)[noise.support.index[:, axis]]
        for axis, size in enumerate(shape)
    )
    values = (3 + total[:, None] + 0.3 * noise.values).round().clamp(1, 5)
    return ExchangeableArray(noise.support, values)


def task(shape=(12, 9), seed=0, validation=0.2):
    table = ratings(shape, seed)
    kept = torch.from_numpy(np.random.default_rng(seed).random(len(table)) < validation)
    shown = table.take(~kept)
    return Task(shown, table.take(kept), ValueStats.of(shown.values.squeeze(1).numpy(), STARS))


def fresh(config=QUICK, model=SMALL):
    return Run.start(build(model, config.seed), config)


def learn(run, data, save=None, codec=CODEC, **execution):
    train(run, ExampleSource(run, codec, data), Execution(**execution), save=save)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def execution(tmp_path, **settings):
    return Execution(folder=tmp_path / "model", **settings)


def trained_in(tmp_path, config=QUICK, **settings):
    return train_model(
        SMALL,
        CODEC,
        task(),
        config,
        name="test",
        facts={"data": "x"},
        execution=execution(tmp_path, save_every=-1),
        **settings,
    )
