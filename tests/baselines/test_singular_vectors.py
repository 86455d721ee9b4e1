"""Singular vectors of sparse tables are those of the dense table, however they are found."""

import numpy as np
import pytest
import torch

from exchangeable.baselines import singular_vectors
from exchangeable.baselines.singular_vectors import PairTable, leading_vectors
from exchangeable.sums.member_sums import MemberSums


def random_cells(shape, cells, seed=0):
    rng = np.random.default_rng(seed)
    index = np.stack([rng.integers(size, size=cells) for size in shape], axis=1)
    return torch.from_numpy(index), torch.from_numpy(rng.normal(size=cells))


def pair_table(index, values, shape, pair=(0, 1)):
    sums = [MemberSums.of(index, axis, size) for axis, size in enumerate(shape)]
    scales = [1 + torch.arange(shape[axis], dtype=torch.float64) / 10 for axis in pair]
    dense = torch.zeros(shape[pair[0]], shape[pair[1]], dtype=torch.float64)
    dense.index_put_(tuple(index[:, axis] for axis in pair), values, accumulate=True)
    return PairTable.of(sums, pair, lambda part: part.take(values), scales), scales[0][
        :, None
    ] * dense * scales[1]


def assert_leading(table, dense, count):
    left, values, right = leading_vectors(table, count)
    expected = torch.linalg.svdvals(dense)[:count]
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(dense @ right, left * values, atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(dense.T @ left, right * values, atol=1e-8, rtol=1e-6)
    eye = torch.eye(count, dtype=torch.float64)
    torch.testing.assert_close(left.T @ left, eye, atol=1e-8, rtol=0)


@pytest.mark.parametrize("shape", [(30, 12), (12, 30), (80, 70)])
@pytest.mark.parametrize("largest_dense", [400, 5])
def test_leading_vectors_are_those_of_the_dense_table(shape, largest_dense, monkeypatch):
    monkeypatch.setattr(singular_vectors, "MAX_DENSE_MEMBERS", largest_dense)
    table, dense = pair_table(*random_cells(shape, 300), shape)
    assert_leading(table, dense, 4)


def test_a_basis_that_gets_too_large_starts_again_with_what_was_found(monkeypatch):
    shape = (300, 280)
    index, values = random_cells(shape, 3000)
    table, dense = pair_table(index, values, shape)
    monkeypatch.setattr(singular_vectors, "MAX_DENSE_MEMBERS", 0)
    monkeypatch.setattr(singular_vectors, "MORE_BASIS", 0)
    rounds = []
    eigh = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda table: rounds.append(table) or eigh(table))
    assert_leading(table, dense, 3)
    assert sum(len(each) == 5 * 3 for each in rounds) > 1


def test_pairs_of_members_that_come_more_than_once_are_added_up():
    shape = (6, 5, 40)
    table, dense = pair_table(*random_cells(shape, 200), shape)
    assert_leading(table, dense, 3)
    index, values = random_cells(shape, 20)
    assert_leading(*pair_table(index, values, shape), 3)


def test_members_without_cells_have_no_vector():
    index, values = random_cells((20, 15), 200)
    table, _ = pair_table(index * 2, values, (41, 31))
    left, _, right = leading_vectors(table, 3)
    assert not left[1::2].any()
    assert not right[1::2].any()
    assert left[::2][:-1].any(dim=1).all()


def test_what_the_first_vector_does_not_reach_is_left_out(monkeypatch):
    monkeypatch.setattr(singular_vectors, "MAX_DENSE_MEMBERS", 0)
    index = torch.arange(30)[:, None].expand(30, 2)  # all singular values are the same
    sums = [MemberSums.of(index, axis, 30) for axis in (0, 1)]
    ones = torch.ones(30, dtype=torch.float64)
    _, values, _ = leading_vectors(
        PairTable.of(sums, (0, 1), lambda part: ones[: len(part)], (ones, ones)), 4
    )
    assert values.tolist() == pytest.approx([1.0])
