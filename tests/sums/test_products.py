"""Products of chosen rows, and what is made of them, against loops written out."""

import pytest
import torch

from exchangeable.baselines.factorization import VectorLayout, cell_means, cell_variances
from exchangeable.sums import products
from exchangeable.sums.products import products_of_sparse, row_products, sparse_rows
from exchangeable.sums.solved_members import SolvedMembers


def random(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("pairs", [0, 1, 7, 60, 500], ids=lambda pairs: f"{pairs} pairs")
def test_products_of_rows_in_any_sequence_and_repeated(pairs):
    generator = torch.Generator().manual_seed(pairs)
    table, other = random(generator, 12, 5), random(generator, 9, 5)
    rows = torch.randint(12, (pairs,), generator=generator)
    columns = torch.randint(9, (pairs,), generator=generator)
    expected = (table[rows] * other[columns]).sum(dim=1)
    torch.testing.assert_close(row_products(rows, columns, table, other), expected)
    ordered = rows.sort().values
    expected = (table[ordered] * other[columns]).sum(dim=1)
    torch.testing.assert_close(row_products(ordered, columns, table, other), expected)


@pytest.mark.parametrize("limit", [0, products.MAX_FEW_PRODUCTS], ids=["sampled", "copied"])
@pytest.mark.parametrize("kind", ["of one member", "grid", "few of many"])
def test_products_of_rows_are_the_same_however_they_are_computed(monkeypatch, kind, limit):
    monkeypatch.setattr(products, "MAX_FEW_PRODUCTS", limit)
    generator = torch.Generator().manual_seed(0)
    table, other = random(generator, 40, 6), random(generator, 50, 6)
    rows, columns = {
        "of one member": (torch.full((50,), 7), torch.randperm(50, generator=generator)),
        "grid": (torch.arange(3).repeat_interleave(50), torch.arange(50).repeat(3)),
        "few of many": (torch.tensor([39, 2, 2]), torch.tensor([4, 4, 49])),
    }[kind]
    expected = (table[rows] * other[columns]).sum(dim=1)
    torch.testing.assert_close(row_products(rows, columns, table, other), expected)
    torch.testing.assert_close(row_products(columns, rows, other, table), expected)


def test_cells_of_some_solved_members_come_member_by_member():
    index = torch.tensor([[2, 0], [0, 1], [2, 3], [1, 1], [0, 0]])
    users, films = SolvedMembers.by_axis(index, torch.tensor([0, 4]))
    assert users.members.tolist() == [0, 2]
    assert films.members.tolist() == [0]
    assert sorted(users.cells.tolist()) == [0, 1, 2, 4]
    cells, starts = users.of_members(torch.tensor([False, True]))
    assert sorted(cells.tolist()) == [0, 2]
    assert starts.tolist() == [0, 2]


@pytest.mark.parametrize("cells", [3, 400])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_means_and_variances_of_cells_are_those_of_drawn_vectors(order, cells):
    """The variance of a sum of products of independent vectors, entry by entry."""
    generator = torch.Generator().manual_seed(order)
    layout, shape = VectorLayout(order, 2), (6, 5, 7, 4)[:order]
    means = [random(generator, size + 1, layout.width) for size in shape]
    roots = [random(generator, size + 1, layout.width, layout.width) for size in shape]
    spreads = [root @ root.mT / 10 for root in roots]
    index = torch.stack([torch.randint(-1, n, (cells,), generator=generator) for n in shape], 1)
    mean = cell_means(layout, index, means, range(order))
    variance = cell_variances(layout, index, means, spreads, range(order))
    for at in range(3):
        members = index[at].tolist()
        w = [means[axis][member] for axis, member in enumerate(members)]
        s = [spreads[axis][member] for axis, member in enumerate(members)]
        expected = sum(vector[0] for vector in w)
        total = torch.zeros((), dtype=torch.float64)
        for axis in range(order):
            feature = torch.zeros(layout.width, dtype=torch.float64)
            feature[0] = 1
            for other in layout.others(axis):
                feature[layout.block(axis, other)] = w[other][layout.block(other, axis)]
                if other > axis:
                    here, there = layout.block(axis, other), layout.block(other, axis)
                    expected = expected + w[axis][here] @ w[other][there]
                    total += (s[axis][here, here] * s[other][there, there]).sum()
            total += feature @ s[axis] @ feature
        torch.testing.assert_close(mean[at], expected)
        torch.testing.assert_close(variance[at], total)


def test_products_of_sparse_matrices_keep_the_places_of_sums_that_cancel():
    """Two times one and minus two times one are 0, but both are at the same place."""
    ones = torch.ones(2, dtype=torch.float64)
    starts, columns = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1])
    rows = [
        sparse_rows(starts, columns, torch.tensor(values, dtype=torch.float64), (2, 2))
        for values in ([1, 1, 1], [2.0, -2.0, 5.0])
    ]
    other = sparse_rows(torch.tensor([0, 1, 2]), torch.tensor([0, 0]), ones, (2, 1))
    begins, at, counts, cancelled = products_of_sparse([(rows[0], other), (rows[1], other)])
    assert begins.tolist() == [0, 1, 2]
    assert at.tolist() == [0, 0]
    assert counts.tolist() == [2, 1]
    assert cancelled.tolist() == [0, 5]


def test_sums_that_cancel_in_very_large_sparse_products_take_no_more_memory_than_others():
    """The product has a million rows and columns, of which two entries are there."""
    size = 10**6
    ones = torch.ones(2)
    starts = torch.zeros(size + 1, dtype=torch.int64)
    starts[size:] = 2
    columns = torch.zeros(2, dtype=torch.int64)
    one = sparse_rows(starts, torch.tensor([0, 1]), ones, (size, 2))
    other = sparse_rows(torch.tensor([0, 1, 2]), columns, torch.tensor([1.0, -1.0]), (2, size))
    there = sparse_rows(torch.tensor([0, 1, 2]), columns, ones, (2, size))
    begins, at, counts, cancelled = products_of_sparse([(one, there), (one, other)])
    assert (int(begins[-1]), at.tolist()) == (1, [0])
    assert (counts.tolist(), cancelled.tolist()) == ([2], [0])
