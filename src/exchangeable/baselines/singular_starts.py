"""Where factors start: singular vectors of what the biases leave.

Equal starts never separate, and random ones depend on how the members are numbered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from exchangeable.arrays.cells import Floats, Index

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DENSE = 400
"""Up to this many members on the smaller side all singular vectors are found at once."""

APART = 1e-6
"""Of the largest singular value: what is smaller is rounding, what is closer is a tie."""


def singular_starts(
    rows: Index, columns: Index, residuals: Floats, shape: tuple[int, int], rank: int
) -> tuple[Floats, Floats]:
    """Leading singular vectors of a table of residuals: (N, K) and (N', K), K at most ``rank``.

    Each entry is divided by (n_row n_column)^(1/4), so that busy members do not rule alone.
    The signs are those of the third moment. Vectors that share a singular value are left
    out: which of their rotations comes would depend on how members are numbered.
    """
    from scipy.sparse import csr_array  # a tenth of a second to import

    degrees = np.bincount(rows, minlength=shape[0]), np.bincount(columns, minlength=shape[1])
    weights = (degrees[0][rows] * degrees[1][columns]).astype(np.float64) ** -0.25
    seen = np.flatnonzero(degrees[0]), np.flatnonzero(degrees[1])
    table = csr_array((residuals * weights, (rows, columns)), shape=shape)[seen[0]][:, seen[1]]
    left, values, right = _leading(table, rank + 1)  # the next one shows whether the last is tied
    apart = APART * values.max(initial=0.0)
    gaps = np.abs(np.diff(values, prepend=np.inf, append=-np.inf)) > apart
    kept = np.flatnonzero((values > apart) & gaps[:-1] & gaps[1:])[:rank]
    sign = np.where((left[:, kept] ** 3).sum(axis=0) < 0, -1.0, 1.0)
    starts = np.zeros((shape[0], len(kept))), np.zeros((shape[1], len(kept)))
    starts[0][seen[0]], starts[1][seen[1]] = left[:, kept] * sign, right[:, kept] * sign
    return starts


def _leading(table: csr_array, number: int) -> tuple[Floats, Floats, Floats]:
    """Singular vectors (N, K), values descending, and vectors of the other side (N', K)."""
    if min(table.shape) <= max(DENSE, number):
        return _all_leading(table, number)
    from scipy.sparse.linalg import svds

    # ARPACK would begin with a random vector, and members in another order get another one.
    side = table if table.shape[0] <= table.shape[1] else table.T
    squares = side**2
    first = squares.sum(axis=1) + side @ squares.sum(axis=0)
    left, values, right = svds(table, number, v0=first)
    order = np.argsort(-values)
    return left[:, order], values[order], right[order].T


def _all_leading(table: csr_array, number: int) -> tuple[Floats, Floats, Floats]:
    """By the eigenvectors of the smaller side, which takes a tenth of the time of all vectors."""
    if table.shape[0] > table.shape[1]:
        right, values, left = _all_leading(table.T, number)
        return left, values, right
    # torch's, since its threads are those that were asked for; numpy takes all there are.
    found = torch.linalg.eigh(torch.from_numpy((table @ table.T).toarray()))
    squares, vectors = (part.numpy() for part in found)
    left = vectors[:, ::-1][:, :number]
    values = np.sqrt(squares[::-1][:number].clip(min=0))
    right = (table.T @ left) / np.maximum(values, 1e-300)
    return left, values, right
