"""Regression of members' vectors on features of the members: the means of their priors.

A member n of an axis has the prior w_n ~ N(x_n B, diag(1 / a)), with x_n its features. Column j of
B is a ridge solution, given the means m of the vectors,

    H_j = (a_j X'X + diag(c_j))^-1,    B_j = a_j H_j X' m_j

with one precision c for each block of features and column: a block that explains nothing is
switched off. Only members with cells count. Columns of X may be rotated within a block, with the
same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDS = 2
"""Rounds of weights and precisions in each sweep."""
START_PRECISION = 5.0


@dataclass(frozen=True)
class Block:
    """Columns of features that share their precisions."""

    width: int
    start: float
    """Sum of squares that the weights of a column have at least: with more, weights of features
    that say nothing stay alive, with less those of features that say little die."""
    uncertain: bool
    """Whether the variance of the weights counts in the precisions of the vectors."""


@dataclass(eq=False)
class Regression:
    """Features of an axis's members, and their weights for every column of the vectors."""

    features: Tensor  # (N + 1, P); the last row is that of an unknown member
    blocks: tuple[Block, ...]
    weights: Tensor  # (P, F)
    covariances: Tensor  # (F, P, P)
    precisions: Tensor  # (blocks, F)

    @classmethod
    def initial(cls, features: Tensor, blocks: Sequence[Block], width: int) -> Regression:
        """Start with weights of 0 for vectors of ``width``."""
        columns = features.shape[1]
        return cls(
            features,
            tuple(blocks),
            features.new_zeros(columns, width),
            features.new_zeros(width, columns, columns),
            features.new_full((len(blocks), width), START_PRECISION),
        )

    def means(self) -> Tensor:
        """Return the means of the members' priors: (N + 1, F)."""
        return self.features @ self.weights

    def given_means(self) -> Tensor:
        """Return the part of the means that comes from given features: (N + 1, F)."""
        columns = self.given_columns
        return self.features[:, columns] @ self.weights[columns]

    def variances(self, rows: Tensor) -> Tensor:
        """Return the variances of the means by given features, of members by number: (R, F)."""
        columns = self.given_columns
        x = self.features[rows][:, columns]
        covariances = self.covariances[:, columns][:, :, columns]
        return torch.einsum("rp,fpq,rq->rf", x, covariances, x)

    def update(self, means: Tensor, precisions: Tensor, members: Tensor) -> Tensor:
        """Solve for the weights; return the sum of the variances that count, by column: (F,).

        ``means`` (M, F) are those of the vectors of ``members``, ``precisions`` (F,) those of
        their priors.
        """
        x = self.features[members]
        gram, towards = x.T @ x, x.T @ means
        sizes = torch.tensor([block.width for block in self.blocks], device=x.device)
        starts = x.new_tensor([block.start for block in self.blocks])
        block_of = torch.arange(len(sizes), device=x.device).repeat_interleave(sizes)
        for _ in range(ROUNDS):
            ridge = torch.diag_embed(self.precisions[block_of].T)  # (F, P, P)
            self.covariances = torch.linalg.inv(precisions[:, None, None] * gram + ridge)
            solved = self.covariances @ (precisions[:, None] * towards.T).unsqueeze(2)
            self.weights = solved.squeeze(2).T.contiguous()
            second = self.weights.square() + self.covariances.diagonal(dim1=1, dim2=2).T
            sums = second.new_zeros(len(sizes), second.shape[1]).index_add_(0, block_of, second)
            self.precisions = (sizes + 1)[:, None] / (sums + starts[:, None])
        columns = self.given_columns
        uncertain = self.covariances[:, columns][:, :, columns]
        return (uncertain * gram[columns][:, columns]).sum(dim=(1, 2))

    @property
    def given_columns(self) -> Tensor:
        """The columns of given features, whose weights are uncertain."""
        flags = [block.uncertain for block in self.blocks for _ in range(block.width)]
        return (
            torch.tensor(flags, dtype=torch.bool, device=self.features.device).nonzero().squeeze(1)
        )
