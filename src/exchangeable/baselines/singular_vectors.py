"""Leading singular vectors of large sparse tables of two axes, on any device.

The eigenvectors of A A' of the smaller side are found in a growing basis of vectors w, A A' w, ...
(Lanczos), each made orthogonal to all before. Where the basis gets too large it starts again with
the best vectors found. The first vector follows from the table, so that no result depends on how
members are numbered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from exchangeable.baselines.base import chunks
from exchangeable.sums.cell_parts import CellPart, CellValues
from exchangeable.sums.member_sums import MemberSums

Product = Callable[[Tensor], Tensor]

MAX_DENSE_MEMBERS = 400
"""Members of the smaller side up to which all singular vectors are computed."""

TOLERANCE = 1e-6
"""Share of the largest singular value: smaller ones are rounding, closer ones are ties."""

RESIDUAL = 1e-11
"""Length of A A' v - s^2 v, over the largest s^2, up to which a vector v is exact enough."""

MIN_NARROW_CELLS, NARROW_RESIDUAL = 1 << 22, 1e-5
"""Cells from which on products have seven digits, and the length of what a vector leaves then."""

BASIS_PER_VECTOR, MORE_BASIS = 5, 50
"""Vectors of the basis for each that is wanted, and beside these."""

MAX_ROUNDS = 40
"""Starts of the basis, at most; tables whose singular values hardly fall need some."""

NUMBERS_PER_CHUNK = 1 << 23
"""Numbers of the larger side's table at a time, where all products of the smaller are computed."""


@dataclass(frozen=True, eq=False)
class PairTable:
    """A table of the members of two axes, for products with it and with its transpose."""

    products: tuple[Product, Product]
    """Products with the entries (N, N') before they are scaled, and with their transpose."""
    scales: tuple[Tensor, Tensor]  # (N,) and (N',), factors of the entries
    square_sums: tuple[Tensor, Tensor]  # (N,) and (N',), of the entries' squares

    @classmethod
    def of(
        cls,
        sums: Sequence[MemberSums],
        pair: tuple[int, int],
        values: CellValues,
        scales: Sequence[Tensor],
    ) -> PairTable:
        """Sum the values of cells, times the scales of their members, by pairs of members."""
        one, other = (sums[axis] for axis in pair)
        if len(one) > one.members * other.members:  # repeated pairs, which are added up first
            dense = torch.zeros(one.members, other.members, dtype=torch.float64, device=one.device)
            for part in one.parts:
                where = part.column(pair[0]), part.column(pair[1])
                dense.index_put_(where, values(part).double(), accumulate=True)
            (dense,) = one.processes.all_sum([dense])
            squares = dense.square()
            products: tuple[Product, Product] = (dense.__matmul__, dense.T.__matmul__)
            of_squares: tuple[Product, Product] = (squares.__matmul__, squares.T.__matmul__)
        else:
            if len(one) >= MIN_NARROW_CELLS:
                scales = [scale.float() for scale in scales]
            products, of_squares = (
                (_product(one, pair[1], entries), _product(other, pair[0], entries))
                for entries in (values, lambda part: values(part).square())
            )
        near, far = scales
        square_sums = (
            near.square() * of_squares[0](far.square()),
            far.square() * of_squares[1](near.square()),
        )
        return cls(products, (near, far), square_sums)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.scales[0]), len(self.scales[1])

    @property
    def transposed(self) -> PairTable:
        return PairTable(self.products[::-1], self.scales[::-1], self.square_sums[::-1])

    def __matmul__(self, vectors: Tensor) -> Tensor:
        """Multiply with vectors (N',) or (N', K)."""
        near, far = (scale if vectors.ndim == 1 else scale[:, None] for scale in self.scales)
        return near * self.products[0](far * vectors)

    def count_occupied(self) -> tuple[int, int]:
        """Count the members of both axes with an entry that is not 0."""
        one, other = (int((sums > 0).sum()) for sums in self.square_sums)
        return one, other


def _product(sums: MemberSums, other: int, entries: CellValues) -> Product:
    """Multiply a table with these entries with vectors (N',) or (N', K)."""

    def product(vectors: Tensor) -> Tensor:
        def add(part: CellPart) -> Tensor:
            return part.sum_rows(other, entries(part).to(vectors), vectors)

        return sums.total(add)

    return product


def leading_vectors(table: PairTable, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return singular vectors (N, K), values descending, and vectors of the other side (N', K)."""
    sizes = table.count_occupied()
    if sizes[0] > sizes[1]:
        right, values, left = leading_vectors(table.transposed, count)
        return left, values, right
    if sizes[0] <= max(MAX_DENSE_MEMBERS, count):
        squares, left = _all_vectors(table, min(count, sizes[0]))
    else:
        one, other = table.square_sums
        first = one + table @ other
        squares, left = _lanczos(lambda x: table @ (table.transposed @ x), first, count)
    values = squares.clamp(min=0).sqrt()
    right = (table.transposed @ left) / values.clamp(min=torch.finfo(values.dtype).tiny)
    return left.double(), values.double(), right.double()


def _all_vectors(table: PairTable, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalues of A A', descending, and vectors (N, K), from all of it."""
    occupied = (table.square_sums[0] > 0).nonzero().squeeze(1)
    products = table.scales[0].new_empty(len(occupied), len(occupied))
    for part in chunks(len(occupied), max(1, NUMBERS_PER_CHUNK // max(table.shape))):
        unit = products.new_zeros(table.shape[0], len(occupied[part]))
        unit[occupied[part], torch.arange(unit.shape[1], device=unit.device)] = 1
        products[:, part] = (table @ (table.transposed @ unit))[occupied]
    squares, vectors = torch.linalg.eigh(products)
    kept = vectors.flip(1)[:, :count]
    left = kept.new_zeros(table.shape[0], kept.shape[1])
    left[occupied] = kept
    return squares.flip(0)[:count], left


def _lanczos(product: Product, first: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalues of a symmetric product, descending, and vectors (N, K).

    Fewer than ``count`` come where the vectors that products of ``first`` reach are fewer.
    """
    size = min(len(first), BASIS_PER_VECTOR * count + MORE_BASIS)
    basis = first.new_zeros(size, len(first))
    projected = torch.zeros(size, size, dtype=first.dtype)  # basis A A' basis'
    vector, start = first / first.norm(), 0
    tolerance = RESIDUAL if first.dtype == torch.float64 else NARROW_RESIDUAL
    for _ in range(MAX_ROUNDS):
        for step in range(start, size):
            basis[step] = vector
            found, image = basis[: step + 1], product(vector)
            column = found @ image
            projected[: step + 1, step] = projected[step, : step + 1] = column.cpu()
            image = image - found.T @ column
            image = image - found.T @ (found @ image)
            length = float(image.norm())
            is_last = step + 1 == size or length <= tolerance * float(projected[0, 0].abs())
            if is_last or (step > 2 * count and step % 10 == 0):
                squares, rotation = torch.linalg.eigh(projected[: step + 1, : step + 1])
                exact = length * rotation[-1, -count:].abs() <= tolerance * squares[-1]
                if bool(exact.all()) or is_last:
                    break
            vector = image / length
        kept = min(count, step + 1)
        vectors = rotation.flip(1).to(first).T @ found  # the largest first
        if bool(exact.all()) or step + 1 < size:
            break
        # The vectors that will be needed, and some more, so that fewer steps are lost.
        start = min(2 * kept, size - 1)
        basis[:start] = vectors[:start]
        projected.zero_()
        projected[:start, :start] = squares.flip(0)[:start].diag()
        vector = image / length
    return squares.flip(0)[:kept].to(first), vectors[:kept].T.contiguous()
