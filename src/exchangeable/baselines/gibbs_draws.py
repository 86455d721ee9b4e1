"""The draws of a Gibbs sweep, each from its distribution given all else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from exchangeable.arrays.cells import Floats
from exchangeable.baselines.factorization import Layout, Sums, cell_means, gram, moments

PULL = 2.0
"""How many members the prior of an axis' mean is worth, as in the paper."""


def draw_hyperparameters(vectors: Floats, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """The mean (F,) and precision (F, F) of vectors (N, F), from their Normal-Wishart posterior.

    The precision is Wishart by Bartlett's decomposition, with F degrees of freedom and the
    identity before any member is seen.
    """
    number, width = vectors.shape
    centre = vectors.mean(axis=0)
    around = vectors - centre
    inverse = np.eye(width) + around.T @ around
    inverse += PULL * number / (PULL + number) * np.outer(centre, centre)
    triangle = np.tril(generator.standard_normal((width, width)), -1)
    degrees = width + number - np.arange(width)
    triangle[np.diag_indices(width)] = np.sqrt(generator.chisquare(degrees))
    root = np.linalg.cholesky(np.linalg.inv(inverse)) @ triangle
    precision = root @ root.T
    noise = np.linalg.solve(root.T, generator.standard_normal(width))
    return number * centre / (PULL + number) + noise / np.sqrt(PULL + number), precision


def draw_vectors(
    layout: Layout,
    sums: Sums,
    values: Tensor,
    tables: Sequence[Tensor],
    prior: tuple[Floats, Floats],
    noise: float,
    generator: np.random.Generator,
) -> Tensor:
    """The vectors of an axis' members (N, F), from their posterior given the other axes."""
    target = values[sums.order] - cell_means(layout, sums.index, tables, layout.others(sums.axis))
    mean, precision = (torch.from_numpy(part) for part in prior)
    towards = moments(layout, sums, target, tables) / noise + precision @ mean
    root = torch.linalg.cholesky(gram(layout, sums, tables) / noise + precision)
    whitened = torch.linalg.solve_triangular(root, towards.unsqueeze(2), upper=False)
    whitened += torch.from_numpy(generator.standard_normal(towards.shape)).unsqueeze(2)
    return torch.linalg.solve_triangular(root.mT, whitened, upper=True).squeeze(2)


def draw_noise(errors: Tensor, generator: np.random.Generator) -> float:
    """The variance of the noise; before any cell is seen its precision is Gamma(1, 1/100)."""
    return float((0.01 + float(errors.square().sum()) / 2) / generator.gamma(1 + len(errors) / 2))
