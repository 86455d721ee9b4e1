"""Products of chosen rows, and what is made of them, against loops written out."""

import pytest
import torch

from exchangeable.baselines.factorization import VectorLayout, cell_means, cell_variances
from exchangeable.baselines.products import row_products


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
