"""Products of tables: products of pairs of rows, sparse rows and products of large matrices.

Large ones are computed in half precision where that is faster: similarities are sums of hundreds of
products, of which digits beyond the third mean nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from exchangeable.runtime.threads import threads_for_products

MIN_HALF_PRODUCTS = 1 << 29
"""Multiplications from which on what is computed once for a table is in half precision."""

MAX_FEW_PRODUCTS = 1 << 16
"""Multiplications of pairs of rows up to which rows are copied for each pair."""


def row_products(rows: Tensor, other_rows: Tensor, table: Tensor, other: Tensor) -> Tensor:
    """Return sum_k table[rows[e], k] other[other_rows[e], k] for all pairs e: (E,).

    Nothing of the size of many pairs times columns is made, and tables are read row by row.
    """
    (table, rows), (other, other_rows) = _used_rows(table, rows), _used_rows(other, other_rows)
    # Repeated entries are more than cuSPARSE takes, and most of a grid is wanted.
    if 2 * len(rows) > len(table) * len(other):
        products = table @ other.T
        return products[0, other_rows] if len(table) == 1 else products[rows, other_rows]
    if len(rows) * table.shape[1] <= MAX_FEW_PRODUCTS:
        return (table[rows] * other[other_rows]).sum(dim=1)
    return _sampled_products(rows, other_rows, table, other)


def _used_rows(table: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a table that are read, and their new numbers, where it has many more."""
    if 2 * len(rows) >= len(table) or not len(rows):
        return table, rows
    if bool((rows == rows[0]).all()):  # the cells of one member
        return table[rows[:1]], torch.zeros_like(rows)
    used, rows = rows.unique(return_inverse=True)
    return table[used], rows


def _sampled_products(rows: Tensor, other_rows: Tensor, table: Tensor, other: Tensor) -> Tensor:
    """Return ``row_products`` by a product of which only some entries are computed."""
    sorted_already = bool((rows[1:] >= rows[:-1]).all())
    if not sorted_already and bool((other_rows[1:] >= other_rows[:-1]).all()):
        return _sampled_products(other_rows, rows, other, table)
    permutation = None if sorted_already else rows.argsort(stable=True)
    starts = torch.cat([rows.new_zeros(1), rows.bincount(minlength=len(table)).cumsum(0)]).int()
    columns = (other_rows if permutation is None else other_rows[permutation]).int()
    table, other = table.contiguous(), other.contiguous()
    pairs = sparse_rows(starts, columns, table.new_zeros(len(rows)), (len(table), len(other)))
    with threads_for_products(len(rows) * table.shape[1] if table.device.type == "cpu" else 0):
        products = torch.sparse.sampled_addmm(pairs, table, other.T, beta=0).values()
    return (
        products
        if permutation is None
        else torch.empty_like(products).index_put_((permutation,), products)
    )


def sparse_rows(starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Make a sparse CSR matrix of rows that begin at ``starts`` (A + 1,)."""
    silence_sparse_warning()
    return torch.sparse_csr_tensor(
        starts.int(), columns.int(), values, shape, check_invariants=False
    )


def products_of_sparse(pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
    """Multiply pairs of sparse matrices (A, B) @ (B, C), whose entries are at the same places.

    The sums of the first pair must all differ from 0. Return where rows begin (A + 1,), columns
    (P,), and the values (P,) of each product at these places.
    """
    if pairs[0][0].device.type != "cpu":
        products = [one @ other for one, other in pairs]
        first = products[0]
        return first.crow_indices(), first.col_indices(), *(each.values() for each in products)
    # Torch's own takes three times as long, and never frees the result (torch 2.13, with MKL).
    arrays = [_to_scipy(one) @ _to_scipy(other) for one, other in pairs]
    first = arrays[0]
    values = (torch.from_numpy(_values_at(first, each)) for each in arrays)
    return torch.from_numpy(first.indptr), torch.from_numpy(first.indices), *values


def _to_scipy(matrix: Tensor) -> csr_array:
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    return csr_array(tuple(part.numpy() for part in parts), shape=tuple(matrix.shape))


def _values_at(places: csr_array, product: csr_array) -> np.ndarray:
    """Return the values of a product at the places of another, which all of its entries are at.

    Scipy leaves out sums that are 0; all others are in the same sequence.
    """
    if product.nnz == places.nnz:
        return product.data
    values = np.zeros(places.nnz, product.dtype)
    values[np.isin(_keys(places), _keys(product), assume_unique=True)] = product.data
    return values


def _keys(matrix: csr_array) -> np.ndarray:
    """Number the entries of a matrix by their rows and columns: (P,)."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows * matrix.shape[1] + matrix.indices


def positions_of_rows(starts: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Find the entries of some rows (B,), which begin at ``starts`` (A + 1,), row after row.

    Return where each of these rows begins among them, (B + 1,), and their positions.
    """
    begins = starts[rows]
    sizes = starts[rows + 1] - begins
    ends = torch.cat([sizes.new_zeros(1), sizes]).cumsum(0)
    total = int(ends[-1])
    # Half of the bytes where they suffice: these are as many as all pairs of a sparse product.
    dtype = torch.int32 if max(total, int(starts[-1])) < 2**31 else torch.int64
    positions = (begins - ends[:-1]).to(dtype).repeat_interleave(sizes, output_size=total)
    return ends, positions.add_(torch.arange(total, dtype=dtype, device=positions.device))


@cache
def silence_sparse_warning() -> None:
    """Trigger torch's warning that sparse CSR tensors are in beta, which comes once, unseen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zero = torch.zeros(2, dtype=torch.int32)
        torch.sparse_csr_tensor(zero, zero[:0], zero[:0], (1, 1), check_invariants=False)


def product_type(count: int, like: Tensor) -> torch.dtype:
    """Return the type in which so many multiplications of numbers like these are computed.

    Half precision is for what a table computes once: what some queries compute for themselves, and
    others for all cells, must not depend on which it is.
    """
    is_large = count >= MIN_HALF_PRODUCTS and like.dtype == torch.float32
    return torch.bfloat16 if is_large and _multiplies_halves(like.device.type) else like.dtype


def large_product(one: Tensor, other: Tensor) -> Tensor:
    """Return one @ other (A, B) @ (B, C), with all threads if it is large."""
    with threads_for_products(one.numel() * other.shape[1] if one.device.type == "cpu" else 0):
        return one @ other


@cache
def _multiplies_halves(device: str) -> bool:
    """Whether a device multiplies numbers of 16 bits faster than those of 32."""
    if device == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
