"""What the tests of baselines share."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import torch

from exchangeable.baselines import (
    BASELINES,
    BayesianFactorization,
)
from exchangeable.baselines.factorization import VectorLayout
from exchangeable.baselines.posterior import Posterior

NAMES = [name for name in BASELINES if name != "knn"]


def baseline(name):
    """The baseline of that name, with few draws where they take time."""
    chosen = BASELINES[name]()
    if isinstance(chosen, BayesianFactorization):
        return replace(chosen, rank=3, sweeps=24, burn_in=8)
    return chosen


def cells_of(shape, density, seed=0):
    """Distinct cells in random order, busy and quiet members, and none of the last of each axis."""
    generator = np.random.default_rng(seed)
    smaller = [max(size - 1, 1) for size in shape]
    chance = np.ones(smaller)
    for axis, size in enumerate(smaller):
        own = np.exp(0.5 * generator.standard_normal(size))
        chance = chance * own.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    index = np.argwhere(generator.random(smaller) < density * chance / chance.mean())
    return generator.permutation(index)


def planted(shape, density=0.5, rank=2, noise=0.3, seed=0):
    """Biases, factors of every pair of axes, and noise."""
    generator = np.random.default_rng(seed + 1)
    index = cells_of(shape, density, seed)
    values = 3 + noise * generator.standard_normal(len(index))
    for axis, size in enumerate(shape):
        values += 0.5 * generator.standard_normal(size)[index[:, axis]]
    for d, e in combinations(range(len(shape)), 2):
        left = generator.standard_normal((shape[d], rank))[index[:, d]]
        right = generator.standard_normal((shape[e], rank))[index[:, e]]
        values += (left * right).sum(axis=1)
    return index, values


def queries(shape):
    """Every cell, with every axis known and not."""
    return np.array(list(product(*[range(-1, size) for size in shape])))


def rmse(answer, truth):
    return float(np.sqrt(np.mean((answer - truth) ** 2)))


def random_posterior(shape, rank):
    generator = np.random.default_rng(0)
    layout = VectorLayout(len(shape), rank)
    means, covariances, precisions = [], [], []
    for size in shape:
        means.append(generator.standard_normal((size + 1, layout.width)))
        root = 0.3 * generator.standard_normal((size + 1, layout.width, layout.width))
        covariances.append(root @ root.transpose(0, 2, 1))
        precisions.append(1 + generator.random(layout.width))
    tables = [
        [torch.from_numpy(table) for table in own] for own in (means, covariances, precisions)
    ]
    return Posterior(layout, 0.3, 0.7, *tables)


def model(vectors, rank):
    """The sum over axes and pairs of axes, for one cell: a vector is [b, u of each other axis]."""
    total = sum(vector[0] for vector in vectors)
    for d, e in combinations(range(len(vectors)), 2):
        here, there = 1 + rank * (e - 1), 1 + rank * d
        total += vectors[d][here : here + rank] @ vectors[e][there : there + rank]
    return total
