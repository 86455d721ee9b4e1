"""Initial factors: singular vectors of the residuals of the biases.

Equal initial factors never separate, and random ones depend on how members are numbered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from exchangeable.arrays.cells import Floats, Index
from exchangeable.runtime.threads import one_blas_thread

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_DENSE_MEMBERS = 400
"""Members of the smaller side up to which all singular vectors are computed."""

TOLERANCE = 1e-6
"""Share of the largest singular value: smaller ones are rounding, closer ones are ties."""


def find_starts(
    rows: Index, columns: Index, residuals: Floats, shape: tuple[int, int], rank: int
) -> tuple[Floats, Floats]:
    """Find leading singular vectors of residuals: (N, K) and (N', K), K at most ``rank``.

    Each entry is divided by (n_row n_column)^(1/4), so that busy members do not dominate.
    The signs are those of the third moment. Vectors that share a singular value are left
    out: their rotation would depend on how members are numbered.
    """
    from scipy.sparse import csr_array  # a tenth of a second to import

    degrees = np.bincount(rows, minlength=shape[0]), np.bincount(columns, minlength=shape[1])
    weights = (degrees[0][rows] * degrees[1][columns]).astype(np.float64) ** -0.25
    occupied = np.flatnonzero(degrees[0]), np.flatnonzero(degrees[1])
    table = csr_array((residuals * weights, (rows, columns)), shape=shape)
    table = table[occupied[0]][:, occupied[1]]
    left, values, right = leading_vectors(
        table, rank + 1
    )  # the next one shows whether the last is tied
    tolerance = TOLERANCE * values.max(initial=0.0)
    gaps = np.abs(np.diff(values, prepend=np.inf, append=-np.inf)) > tolerance
    distinct = np.flatnonzero((values > tolerance) & gaps[:-1] & gaps[1:])[:rank]
    sign = np.where((left[:, distinct] ** 3).sum(axis=0) < 0, -1.0, 1.0)
    starts = np.zeros((shape[0], len(distinct))), np.zeros((shape[1], len(distinct)))
    starts[0][occupied[0]] = left[:, distinct] * sign
    starts[1][occupied[1]] = right[:, distinct] * sign
    return starts


def leading_vectors(table: csr_array, count: int) -> tuple[Floats, Floats, Floats]:
    """Return singular vectors (N, K), values descending, and vectors of the other side (N', K)."""
    if min(table.shape) <= max(MAX_DENSE_MEMBERS, count):
        return _leading_dense(table, count)
    from scipy.sparse.linalg import LinearOperator, eigsh  # a fifth of a second to import

    if table.shape[0] > table.shape[1]:
        right, values, left = leading_vectors(table.T.tocsr(), count)
        return left, values, right
    # By default ARPACK starts with a random vector, which depends on how members are numbered.
    squares, transposed = table**2, table.T.tocsr()
    first = squares.sum(axis=1) + table @ squares.sum(axis=0)
    size = table.shape[0]
    product = LinearOperator(
        (size, size), matvec=lambda x: table @ (transposed @ x), dtype=np.float64
    )
    with one_blas_thread():
        eigenvalues, left = eigsh(product, count, v0=first)
    return _with_other_side(transposed, eigenvalues[::-1], left[:, ::-1])


def _leading_dense(table: csr_array, count: int) -> tuple[Floats, Floats, Floats]:
    """The same by eigenvectors of the smaller side, in a tenth of the time of a full SVD."""
    if table.shape[0] > table.shape[1]:
        right, values, left = _leading_dense(table.T, count)
        return left, values, right
    # torch respects the number of threads that was set; numpy takes all cores.
    decomposition = torch.linalg.eigh(torch.from_numpy((table @ table.T).toarray()))
    squares, vectors = (part.numpy() for part in decomposition)
    return _with_other_side(table.T, squares[::-1][:count], vectors[:, ::-1][:, :count])


def _with_other_side(
    transposed: csr_array, squares: Floats, left: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return singular vectors of one side, values, and the vectors of the other side."""
    values = np.sqrt(squares.clip(min=0))
    return left, values, (transposed @ left) / np.maximum(values, 1e-300)
