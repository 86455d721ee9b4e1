"""Positives: which users have which items, as a sparse matrix and its transpose.

Rankers take blocks of B users as ``Rows``, and give scores as (M, B), so that sparse products come
first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from exchangeable.errors import InputError
from exchangeable.runtime.cache import cached_property
from exchangeable.sums.products import silence_sparse_warning

STRENGTH_SLOPE = 0.2
STRENGTHS = 0.25, 2.5
"""Bounds of strengths."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The items of some users, known or not."""

    table: Tensor  # (B, M), sparse CSR
    found: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What several rankers compute of these rows together."""

    @classmethod
    def of(cls, users: Tensor, items: Tensor, strengths: Tensor, shape: tuple[int, int]) -> Rows:
        """Make rows of users 0 to B - 1, from their items in any sequence."""
        return cls(sparse_matrix(users, items, strengths, shape))

    @cached_property
    def columns(self) -> Tensor:
        """The same, dense: (M, B)."""
        return self.table.to_dense().T.contiguous()

    def scaled(self, items: Tensor) -> Tensor:
        """Return the table with every entry times the factor of its item (M,): (B, M), sparse."""
        return _with_values(self.table, self.table.values() * items[self.table.col_indices()])

    @cached_property
    def seen(self) -> Tensor:
        """Which items the users have: (M, B)."""
        return self.columns > 0

    @cached_property
    def counts(self) -> Tensor:
        """How many items each user has: (B,)."""
        return self.table.crow_indices().diff().to(self.table.dtype)


@dataclass(frozen=True, eq=False)
class Positives:
    """A table of positives, of any strengths above 0."""

    by_user: Tensor  # (N, M), sparse CSR
    by_item: Tensor  # (M, N), sparse CSR
    per_user: Tensor  # (N,), items of each user
    per_item: Tensor  # (M,), users of each item

    @classmethod
    def of(
        cls, index: Tensor, shape: tuple[int, int], strengths: Tensor | None = None
    ) -> Positives:
        """Make a table of pairs of user and item (E, 2), each once, with strengths (E,) or ones."""
        if index.ndim != 2 or index.shape[1] != 2:
            raise InputError(f"positives must be pairs of user and item, but have {index.shape}")
        values = index.new_ones(len(index), dtype=torch.float32)
        if strengths is not None:
            values = strengths.to(values)
        users, items = index.T
        return cls(
            sparse_matrix(users, items, values, shape),
            sparse_matrix(items, users, values, (shape[1], shape[0])),
            users.bincount(minlength=shape[0]).float(),
            items.bincount(minlength=shape[1]).float(),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of users and items."""
        return len(self.per_user), len(self.per_item)

    def scaled(self, users: Tensor, items: Tensor) -> Positives:
        """Return the same with every entry times the factors of its user (N,) and item (M,)."""
        rows = self.by_user, self.by_item
        factors = (users, items), (items, users)
        scaled = [_scale(table, *own) for table, own in zip(rows, factors, strict=True)]
        return Positives(scaled[0], scaled[1], self.per_user, self.per_item)

    def rows(self, users: Tensor) -> Rows:
        """Return the items of users (B,); those below 0 have none."""
        starts = self.by_user.crow_indices()[users].long()
        sizes = torch.where(users < 0, 0, self.per_user[users]).long()
        ends = sizes.cumsum(0)
        block = torch.arange(len(users), device=users.device).repeat_interleave(sizes)
        at = torch.arange(len(block), device=users.device) + (starts - ends + sizes)[block]
        silence_sparse_warning()
        return Rows(
            torch.sparse_csr_tensor(
                torch.cat([ends.new_zeros(1), ends]).int(),
                self.by_user.col_indices()[at],
                self.by_user.values()[at],
                (len(users), self.shape[1]),
                check_invariants=False,
            )
        )

    def single_items(self, users: Tensor) -> Rows:
        """Return one item of each of some users (B,), as if it were all that they have.

        It is drawn by digits that do not depend on how members are numbered.
        """
        table = self.rows(users).table
        sizes = table.crow_indices().diff().long()
        block = torch.arange(len(users), device=users.device).repeat_interleave(sizes)
        items = table.col_indices().long()
        user_digits, item_digits = self.digits
        drawn = ((user_digits[users[block]] + 1) * (item_digits[items] + 1) * 613.0) % 1
        first = (block + drawn).argsort(stable=True)[(sizes.cumsum(0) - sizes)[sizes > 0]]
        shape = (len(users), self.shape[1])
        return Rows.of(block[first], items[first], table.values()[first], shape)

    @cached_property
    def digits(self) -> tuple[Tensor, Tensor]:
        """Return pseudo-random numbers in [0, 1) of users (N,) and items (M,).

        They are late digits of sums over connected members, so they do not depend on how members
        are numbered.
        """
        # Of ones: sums of other strengths would depend on their sequence, in the last digits.
        tables = [
            _with_values(table, torch.ones_like(table.values(), dtype=torch.float64))
            for table in (self.by_user, self.by_item)
        ]
        users, items = self.per_user.double(), _late_digits(self.per_item.double())
        for _ in range(2):
            users = _late_digits((tables[0] @ items[:, None]).squeeze(1))
            items = _late_digits((tables[1] @ users[:, None]).squeeze(1))
        return users, items


def usual_strength(strengths: Tensor) -> float:
    """Return the usual strength, such as plays or hours, of a table's cells (E,)."""
    _check_strengths(strengths)
    return float(strengths.double().log().mean().exp()) if len(strengths) else 1.0


def relative_strengths(strengths: Tensor, usual: float) -> Tensor:
    """Put strengths (E,) around 1, whatever their unit: e times the usual is a fifth more."""
    _check_strengths(strengths)
    logarithms = (strengths.double() / usual).log()
    return (1 + STRENGTH_SLOPE * logarithms).clamp(*STRENGTHS).float()


def sparse_matrix(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Make a sparse CSR matrix of entries in any sequence."""
    permutation = (rows * shape[1] + columns).argsort()
    starts = torch.cat([rows.new_zeros(1), rows.bincount(minlength=shape[0]).cumsum(0)])
    silence_sparse_warning()
    return torch.sparse_csr_tensor(
        starts.int(),
        columns[permutation].int(),
        values[permutation],
        shape,
        check_invariants=False,
    )


def _check_strengths(strengths: Tensor) -> None:
    if not bool((strengths > 0).all()) or not bool(strengths.isfinite().all()):
        raise InputError("strengths of positives must be finite and above 0")


def _with_values(table: Tensor, values: Tensor) -> Tensor:
    """Return a sparse table with other values of the same entries."""
    parts = table.crow_indices(), table.col_indices(), values
    return torch.sparse_csr_tensor(*parts, table.shape, check_invariants=False)


def _late_digits(sums: Tensor) -> Tensor:
    return (sums * 1234.567 + sums.abs().sqrt() * 77.7) % 1


def _scale(table: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    sizes = table.crow_indices().diff().long()
    return _with_values(
        table, table.values() * rows.repeat_interleave(sizes) * columns[table.col_indices()]
    )
