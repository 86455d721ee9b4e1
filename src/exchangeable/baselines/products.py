"""Products of tables: products of pairs of rows, sparse rows and products of large matrices.

Large ones are computed in half precision where that is faster: similarities are sums of hundreds of
products, of which digits beyond the third mean nothing.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor

from exchangeable.runtime.threads import threads_for_products

MIN_HALF_PRODUCTS = 1 << 29
"""Multiplications of a product from which on it is computed in half precision."""


def row_products(rows: Tensor, other_rows: Tensor, table: Tensor, other: Tensor) -> Tensor:
    """Return sum_k table[rows[e], k] other[other_rows[e], k] for all pairs e: (E,).

    Nothing of the size of pairs times columns is made, and tables are read row by row.
    """
    if len(rows) < len(table):  # a few queries of a large table
        used, rows = rows.unique(return_inverse=True)
        table = table[used]
    if len(rows) < len(other):
        used, other_rows = other_rows.unique(return_inverse=True)
        other = other[used]
    if len(rows) > len(table) * len(other):  # repeated entries, more than cuSPARSE takes
        return (table @ other.T)[rows, other_rows]
    sorted_already = bool((rows[1:] >= rows[:-1]).all())
    if not sorted_already and bool((other_rows[1:] >= other_rows[:-1]).all()):
        return row_products(other_rows, rows, other, table)
    permutation = None if sorted_already else rows.argsort(stable=True)
    starts = torch.cat([rows.new_zeros(1), rows.bincount(minlength=len(table)).cumsum(0)]).int()
    columns = (other_rows if permutation is None else other_rows[permutation]).int()
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


def positions_of_rows(starts: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Find the entries of some rows (B,), which begin at ``starts`` (A + 1,), row after row.

    Return where each of these rows begins among them, (B + 1,), and their positions.
    """
    sizes = starts.diff()[rows]
    ends = sizes.cumsum(0)
    positions = (starts[rows] - ends + sizes).repeat_interleave(sizes)
    positions += torch.arange(len(positions), device=positions.device)
    return torch.cat([ends.new_zeros(1), ends]), positions


@cache
def silence_sparse_warning() -> None:
    """Trigger torch's warning that sparse CSR tensors are in beta, which comes once, unseen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zero = torch.zeros(2, dtype=torch.int32)
        torch.sparse_csr_tensor(zero, zero[:0], zero[:0], (1, 1), check_invariants=False)


def product_type(count: int, like: Tensor) -> torch.dtype:
    """Return the type in which so many multiplications of numbers like these are computed."""
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
