"""What the drawings show, computed by the package: weights, pools, samples, a completed table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from exchangeable import (
    ExchangeableArray,
    ExchangeableLinear,
    FactorizedAutoencoder,
    FactorizedConfig,
    Support,
)
from exchangeable.arrays.groups import Axes
from exchangeable.datasets import load
from exchangeable.training.samplers import Conditional, RowsColumns, Sampler, UniformCells
from paper.lib.canvas import Floats

Shape = tuple[int, ...]


def layer_of(order: int) -> ExchangeableLinear:
    """A layer whose weights are powers of two: sums of them are exact, and no two are equal."""
    layer = ExchangeableLinear(1, 1, order=order, pooling=("sum",), bias=False).double()
    for number, weight in enumerate(layer.parameters()):
        nn.init.constant_(weight, 2.0**number)
    return layer


def matrix_of(layer: ExchangeableLinear, shape: Shape) -> Floats:
    """The layer as a matrix: its column for a cell is what it answers to that cell alone."""
    units = torch.eye(int(np.prod(shape)), dtype=torch.float64)
    columns = [layer(unit.reshape(*shape, 1)).detach().flatten() for unit in units]
    return torch.stack(columns, dim=1).numpy()


def tied(matrix: Floats, shape: Shape) -> dict[float, Axes]:
    """For each value in the matrix, the axes on which the two cells it connects agree.

    As Theorem 5.1 has it, which is checked: 2^D values, and wherever one stands the two cells
    agree on the same axes.
    """
    cells = np.array(list(np.ndindex(*shape)))
    agree = cells[:, None] == cells[None]  # (cells, cells, D)
    found = {}
    for value in np.unique(matrix):
        patterns = np.unique(agree[matrix == value], axis=0)
        assert len(patterns) == 1, f"{value} connects cells that agree on other axes, too"
        found[float(value)] = tuple(np.flatnonzero(patterns[0]).tolist())
    assert len(set(found.values())) == len(found) == 2 ** len(shape), f"{len(found)} values"
    return found


def pooled_with(shape: Shape, axes: Axes, cell: Shape) -> NDArray[np.bool_]:
    """Which cells of a full array are in the pool on ``axes`` that ``cell`` reads."""
    support = Support.of(np.argwhere(np.ones(shape)), shape)
    ids = support.groups(axes).ids.numpy().reshape(shape)
    return ids == ids[cell]


MIDDLE = 3.0
"""The rating of 1 to 5 that the model of the film club encodes as 0."""


@dataclass(frozen=True, eq=False)
class Completed:
    """A table on its way through a factorized autoencoder."""

    observed: Floats  # (N, M), NaN where nothing was observed
    encoded: Floats  # (N, M, K), the same
    factors: tuple[Floats, ...]  # (N, F), (M, F)
    decoded: Floats  # (N, M, K)
    answers: Floats  # (N, M)


def completed(steps: int = 120) -> Completed:
    """Part of the film club, completed by a model trained on its other members and films."""
    club = load("film-club").table
    table = np.full(club.shape, np.nan)
    table[tuple(club.index.T)] = club.values - MIDDLE
    busy = [np.argsort(-np.isfinite(table).sum(axis=a), kind="stable") for a in (1, 0)]
    rows, columns = busy[0][20:40], busy[1][24:38]
    model = _trained(np.delete(np.delete(table, rows, axis=0), columns, axis=1), steps)
    part = table[np.ix_(rows, columns)]
    # Any order would do; in this one, lowest means first, there is something to see.
    part = part[np.argsort(np.nanmean(part, axis=1))]
    return passed_through(model, part[:, np.argsort(np.nanmean(part, axis=0))])


def _trained(table: Floats, steps: int) -> FactorizedAutoencoder:
    """Hide a third of the cells, answer them from the others, step; again and again."""
    sizes: dict[str, Any] = {"encoder": (16, 16, 16), "factor_sizes": (6, 6), "decoder": (16, 16)}
    model = FactorizedAutoencoder(FactorizedConfig(1, 1, maps=True, dropout=0.0, **sizes))
    cells, generator = array_of(table), torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(steps):
        hidden = torch.rand(len(cells), generator=generator) < 1 / 3
        loss = (model.predict_hidden(cells, hidden) - cells.values[hidden]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def array_of(table: Floats) -> ExchangeableArray:
    known = np.isfinite(table)
    values = torch.from_numpy(table[known]).float().unsqueeze(1)
    return ExchangeableArray.of(np.argwhere(known), values, table.shape)


@torch.no_grad()
def passed_through(model: FactorizedAutoencoder, table: Floats) -> Completed:
    """Layer after layer: observed cells up to the factors, and every cell from there on."""
    seen, everywhere = array_of(table), Support.of(np.argwhere(np.ones(table.shape)), table.shape)
    layers = list(zip(model.layers, model.condition(seen).readouts, strict=True))
    encoded = seen.values
    for layer, offered in layers[: model.first_read]:
        encoded = layer.read(encoded, seen.support, offered)
    passed = [encoded.new_zeros(len(everywhere), encoded.shape[1])]
    for layer, offered in layers[model.first_read :]:
        passed.append(layer.read(passed[-1], everywhere, offered))
    known = np.full((*table.shape, encoded.shape[1]), np.nan)
    known[np.isfinite(table)] = encoded.numpy()
    decoded, answers = (values.numpy().reshape(*table.shape, -1) for values in passed[-2:])
    factors = tuple(vectors.numpy() for vectors in model.factors(seen))
    return Completed(table + MIDDLE, known, factors, decoded, answers[..., 0] + MIDDLE)


SEED = 200
"""Seed of the draws that are shown. With it every chosen row and column has a drawn cell."""


def skewed(shape: tuple[int, int] = (14, 20)) -> Support:
    """A small table in which some rows and columns have many cells, and most have few."""
    busy = [(1.0 + np.arange(size)) ** -0.9 for size in shape]
    chance = np.multiply.outer(*busy)
    seen = np.random.default_rng(3).random(shape) < 0.36 * chance / chance.mean()
    return Support.of(np.argwhere(seen), shape)


def samplers_of(support: Support) -> tuple[Sampler, ...]:
    return (
        UniformCells(support, size=21),
        Conditional(support, sizes=(5, 8)),
        RowsColumns(support, sizes=(8, 11)),
    )


def chances(sampler: Sampler, draws: int = 4000) -> tuple[float, float]:
    """How often the cell that is drawn least is drawn, and the one that is drawn most; measured."""
    generator = np.random.default_rng(1)
    drawn = np.concatenate([sampler.draw(generator) for _ in range(draws)])
    often = np.bincount(drawn, minlength=len(sampler)) / draws
    return float(often.min()), float(often.max())
