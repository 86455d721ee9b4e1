"""Draws of a Gibbs sweep, each from its distribution given all else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from exchangeable.arrays.cells import Floats
from exchangeable.baselines.factorization import MemberSums, VectorLayout, cell_means, gram, moments

PRIOR_MEMBERS = 2.0
"""Weight of the prior of an axis' mean, in members, as in the paper."""


def draw_hyperparameters(vectors: Floats, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw mean (F,) and precision (F, F) of vectors (N, F) from their Normal-Wishart posterior.

    The precision is Wishart by Bartlett's decomposition, with F degrees of freedom and the
    identity as its prior.
    """
    members, width = vectors.shape
    centre = vectors.mean(axis=0)
    around = vectors - centre
    inverse = np.eye(width) + around.T @ around
    inverse += PRIOR_MEMBERS * members / (PRIOR_MEMBERS + members) * np.outer(centre, centre)
    triangle = np.tril(generator.standard_normal((width, width)), -1)
    degrees = width + members - np.arange(width)
    triangle[np.diag_indices(width)] = np.sqrt(generator.chisquare(degrees))
    root = np.linalg.cholesky(np.linalg.inv(inverse)) @ triangle
    precision = root @ root.T
    noise = np.linalg.solve(root.T, generator.standard_normal(width))
    mean = members * centre / (PRIOR_MEMBERS + members)
    return mean + noise / np.sqrt(PRIOR_MEMBERS + members), precision


def draw_vectors(
    layout: VectorLayout,
    sums: MemberSums,
    values: Tensor,
    tables: Sequence[Tensor],
    prior: tuple[Floats, Floats],
    noise: float,
    generator: np.random.Generator,
) -> Tensor:
    """Draw the vectors (N, F) of an axis from their posterior given the other axes."""
    target = values[sums.permutation]
    target = target - cell_means(layout, sums.index, tables, layout.others(sums.axis))
    mean, precision = (torch.from_numpy(part) for part in prior)
    towards = moments(layout, sums, target, tables) / noise + precision @ mean
    root = torch.linalg.cholesky(gram(layout, sums, tables) / noise + precision)
    whitened = torch.linalg.solve_triangular(root, towards.unsqueeze(2), upper=False)
    whitened += torch.from_numpy(generator.standard_normal(towards.shape)).unsqueeze(2)
    return torch.linalg.solve_triangular(root.mT, whitened, upper=True).squeeze(2)


def draw_noise(errors: Tensor, generator: np.random.Generator) -> float:
    """Draw the variance of the noise; the prior of its precision is Gamma(1, 1/100)."""
    return float((0.01 + float(errors.square().sum()) / 2) / generator.gamma(1 + len(errors) / 2))
