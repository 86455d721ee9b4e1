"""The paper's theorems, tested from its statements and not from our code.

Arrays are vectorised in row-major order, and a permutation g of their cells is the matrix G
with G[g(n), n] = 1, so that (G x)[g(n)] = x[n].
"""

import math
from itertools import permutations, product

import pytest
import torch

from exchangeable import ExchangeableLinear, JointlyExchangeableLinear
from exchangeable.arrays.groups import proper_subsets

SHAPES = [(2,), (4,), (2, 2), (2, 3), (4, 3), (2, 2, 2), (2, 3, 2), (2, 2, 2, 2)]


def cells_of(shape):
    return list(product(*map(range, shape)))


def permutation_matrix(g, cells):
    """G for a function g from cell to cell."""
    matrix = torch.zeros(len(cells), len(cells), dtype=torch.float64)
    for column, cell in enumerate(cells):
        matrix[cells.index(tuple(g(cell))), column] = 1
    return matrix


def generators(size):
    """A transposition and a cycle generate all permutations of ``size`` members."""
    return [[1, 0, *range(2, size)], [*range(1, size), 0]]


def axis_permutations(shape):
    """Matrices that generate the product group: one axis is relabelled at a time."""
    cells, matrices = cells_of(shape), []
    for axis, size in enumerate(shape):
        for names in generators(size):

            def g(cell, axis=axis, names=names):
                return (*cell[:axis], names[cell[axis]], *cell[axis + 1 :])

            matrices.append(permutation_matrix(g, cells))
    return matrices


def joint_permutations(size):
    cells = cells_of((size, size))
    return [
        permutation_matrix(lambda cell, names=names: [names[n] for n in cell], cells)
        for names in generators(size)
    ]


def commutant(matrices):
    """All W with GW = WG for each G: an orthonormal basis of vec(W), by brute force."""
    size = len(matrices[0])
    identity = torch.eye(size, dtype=torch.float64)
    constraints = torch.cat(
        [torch.kron(g, identity) - torch.kron(identity, g.T.contiguous()) for g in matrices]
    )
    _, values, vectors = torch.linalg.svd(constraints)
    return vectors[int((values > 1e-9).sum()) :]


def matrix_of(function, shape):
    """The matrix of a linear map on arrays: its column for a cell is its answer to that cell."""
    columns = []
    for cell in cells_of(shape):
        x = torch.zeros(*shape, 1, dtype=torch.float64)
        x[cell] = 1
        columns.append(function(x).flatten())
    return torch.stack(columns, dim=1)


def maps_of(layer, shape):
    """The matrix that each weight of a one-channel layer stands for, all others being 0."""
    weights = [weight for name, weight in layer.named_parameters() if "bias" not in name]
    matrices = []
    for weight in weights:
        for position in range(weight.numel()):
            for other in layer.parameters():
                other.data.zero_()
            weight.data.view(-1)[position] = 1
            matrices.append(matrix_of(lambda x: layer(x).detach(), shape))
    return torch.stack(matrices).flatten(1)


def tied_matrix(shape, w):
    """Theorem 5.1: W[n, m] = w[the set of axes on which n and m are equal]."""
    cells = cells_of(shape)
    return torch.tensor(
        [
            [w[frozenset(i for i in range(len(shape)) if n[i] == m[i])] for m in cells]
            for n in cells
        ],
        dtype=torch.float64,
    )


def distinct_weights(order, seed=0):
    values = torch.rand(2**order, generator=torch.Generator().manual_seed(seed)).tolist()
    subsets = [*proper_subsets(order), tuple(range(order))]
    return {frozenset(axes): value for axes, value in zip(subsets, values, strict=True)}


@pytest.mark.parametrize("shape", [*SHAPES, (2, 3, 2, 2)])
def test_the_layer_equals_the_tied_matrix_entry_by_entry(shape):
    """Our weight of S, on a mean, puts w / (cells averaged) wherever n and m agree on all of S."""
    order = len(shape)
    generator = torch.Generator().manual_seed(0)
    layer = ExchangeableLinear(1, 1, order=order, generator=generator).double()
    weights = {frozenset(range(order)): layer.own.item()}
    for axes, term in zip(layer.axes, layer.terms, strict=True):
        weights[frozenset(axes)] = term.weights[0].item()
    w = {}
    for equal in weights:
        w[equal] = sum(
            weight / math.prod(shape[i] for i in range(order) if i not in kept)
            for kept, weight in weights.items()
            if kept <= equal
        )
    x = torch.randn(*shape, 1, dtype=torch.float64)
    expected = (tied_matrix(shape, w) @ x.flatten()).reshape(x.shape) + layer.bias
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_exactly_two_to_the_order_linear_maps_commute_and_the_layer_spans_them(shape):
    space = commutant(axis_permutations(shape))
    assert len(space) == 2 ** len(shape)
    ours = maps_of(ExchangeableLinear(1, 1, order=len(shape)).double(), shape)
    assert torch.linalg.matrix_rank(ours) == 2 ** len(shape)
    assert torch.linalg.matrix_rank(torch.cat([space, ours])) == 2 ** len(shape)


@pytest.mark.parametrize("size", [4, 5])
def test_exactly_fifteen_linear_maps_commute_jointly_and_the_layer_spans_them(size):
    space = commutant(joint_permutations(size))
    assert len(space) == 15
    ours = maps_of(JointlyExchangeableLinear(1, 1).double(), (size, size))
    assert torch.linalg.matrix_rank(ours) == 15
    assert torch.linalg.matrix_rank(torch.cat([space, ours])) == 15


@pytest.mark.parametrize(("size", "maps"), [(2, 8), (3, 14)])
def test_smaller_sets_have_fewer_joint_maps(size, maps):
    """All 15 need four members; with fewer, some of them coincide."""
    assert len(commutant(joint_permutations(size))) == maps


def test_the_papers_tying_is_a_small_part_of_the_joint_maps():
    """w2 = w3 leaves 3 of the 15: it is what a separate layer with symmetric weights can do."""
    space = commutant(joint_permutations(4))
    paper = maps_of(JointlyExchangeableLinear(1, 1, tying="paper").double(), (4, 4))
    assert torch.linalg.matrix_rank(paper) == 3
    assert torch.linalg.matrix_rank(torch.cat([space, paper])) == 15


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 2)])
def test_the_layer_is_a_kronecker_product_of_the_one_dimensional_pattern(shape):
    """Figure 1. On one axis the pattern is a I + b J / N; of a product of patterns the weight
    of S is the product of the a's of the axes in S and the b's of the others.
    """
    generator = torch.Generator().manual_seed(1)
    pairs = [torch.rand(2, generator=generator, dtype=torch.float64).tolist() for _ in shape]
    kronecker = torch.ones(1, 1, dtype=torch.float64)
    for size, (a, b) in zip(shape, pairs, strict=True):
        pattern = a * torch.eye(size, dtype=torch.float64) + b / size
        kronecker = torch.kron(kronecker, pattern)
    layer = ExchangeableLinear(1, 1, order=len(shape), bias=False).double()
    layer.own.data.fill_(math.prod(a for a, _ in pairs))
    for axes, term in zip(layer.axes, layer.terms, strict=True):
        weight = math.prod(pairs[i][0 if i in axes else 1] for i in range(len(shape)))
        term.weights[0].data.fill_(weight)
    ours = matrix_of(lambda x: layer(x).detach(), shape)
    torch.testing.assert_close(ours, kronecker, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 3), (2, 3, 2), (2, 3, 2, 2)])
def test_entries_of_the_layers_matrix_are_tied_in_the_kronecker_pattern_and_no_further(shape):
    """With free weights: equal where the binary codes of "same member or not" are equal."""
    generator = torch.Generator().manual_seed(2)
    layer = ExchangeableLinear(1, 1, order=len(shape), generator=generator).double()
    ours = matrix_of(lambda x: (layer(x) - layer.bias).detach(), shape)
    codes = torch.zeros(1, 1, dtype=torch.float64)
    for size in shape:  # a binary digit per axis
        same = torch.eye(size, dtype=torch.float64)
        codes = torch.kron(2 * codes, torch.ones_like(same)) + torch.kron(
            torch.ones_like(codes), same
        )
    found = [ours[codes == code] for code in codes.unique()]
    assert len(found) == 2 ** len(shape)
    for entries in found:
        torch.testing.assert_close(entries, entries[0].expand_as(entries), rtol=1e-12, atol=1e-12)
    values = torch.stack([entries[0] for entries in found]).sort().values
    assert values.diff().min() > 1e-6


def illegal_permutations(shape, number, seed=0):
    """Random permutations of the cells that are no relabelling of the axes."""
    cells, generator = cells_of(shape), torch.Generator().manual_seed(seed)
    legal = set()
    for names in product(*(permutations(range(size)) for size in shape)):
        moved = [tuple(axis[n] for axis, n in zip(names, cell, strict=True)) for cell in cells]
        legal.add(tuple(cells.index(cell) for cell in moved))
    assert len(legal) == math.prod(map(math.factorial, shape))
    found = []
    while len(found) < number:
        if len(found) % 2:  # a single swap is the mildest offence
            order = list(range(len(cells)))
            a, b = torch.randperm(len(cells), generator=generator)[:2].tolist()
            order[a], order[b] = order[b], order[a]
        else:
            order = torch.randperm(len(cells), generator=generator).tolist()
        if tuple(order) not in legal:
            found.append(order)
    return found


@pytest.mark.parametrize(("shape", "number"), [((3, 3), 100), ((2, 4), 50), ((2, 3, 2), 50)])
def test_no_permutation_outside_the_product_group_commutes(shape, number):
    """The other half of Theorem 5.1, for 200 permutations: GW != WG, and the output shows it."""
    cells = cells_of(shape)
    generator = torch.Generator().manual_seed(0)
    layer = ExchangeableLinear(1, 1, order=len(shape), generator=generator).double()
    W = tied_matrix(shape, distinct_weights(len(shape)))
    x = torch.randn(*shape, 1, dtype=torch.float64, generator=generator)
    for order in illegal_permutations(shape, number):
        G = permutation_matrix(lambda cell, order=order: cells[order[cells.index(cell)]], cells)
        assert not torch.allclose(G @ W, W @ G)
        before = layer((G @ x.flatten()).reshape(x.shape))
        after = (G @ layer(x).flatten()).reshape(x.shape)
        assert not torch.allclose(before, after)


def test_the_printed_proposition_on_differing_entries_is_false():
    """Proposition 5.3 on a 3 x 3 matrix, with g swapping the cells (0, 1) and (0, 2).

    g is outside the product group, g((0, 0)) = (0, 0) and g((0, 1)) != (0, 1): the premise
    holds for i = 1 (rows), n_i = n_i' = 0, n_-i = 0, n_-i' = 1. Yet the two entries that
    the proposition says differ are both the weight of two cells in one row.
    """
    shape, cells = (3, 3), cells_of((3, 3))
    swap = {(0, 1): (0, 2), (0, 2): (0, 1)}
    G = permutation_matrix(lambda cell: swap.get(cell, cell), cells)
    weights = distinct_weights(2)
    W = tied_matrix(shape, weights)
    row, column = cells.index((0, 1)), cells.index((0, 0))
    assert (G @ W)[row, column] == (W @ G)[row, column] == weights[frozenset({0})]
    assert not torch.allclose(G @ W, W @ G)  # what holds: they differ, but elsewhere


def test_the_printed_proposition_on_illegal_permutations_is_false():
    """Proposition 5.2 wants a cell that g moves along one axis, and some illegal g have none.

    The premise needs g((n_i, n_-i)) = (n_i', n_-i): all coordinates but one stay. This g
    moves every cell of a 3 x 3 matrix on both axes and is no relabelling of them.
    """
    cells = cells_of((3, 3))

    def moves_on_both_axes(order):
        pairs = zip(cells, (cells[o] for o in order), strict=True)
        return all(n[0] != m[0] and n[1] != m[1] for n, m in pairs)

    def legal(order):
        g = dict(zip(cells, (cells[o] for o in order), strict=True))
        rows = {n: {g[cell][0] for cell in cells if cell[0] == n} for n in range(3)}
        columns = {n: {g[cell][1] for cell in cells if cell[1] == n} for n in range(3)}
        return all(len(s) == 1 for s in [*rows.values(), *columns.values()])

    generator = torch.Generator().manual_seed(0)
    draws = (torch.randperm(9, generator=generator).tolist() for _ in range(100_000))
    order = next(o for o in draws if moves_on_both_axes(o) and not legal(o))
    g = dict(zip(cells, (cells[o] for o in order), strict=True))
    for cell in cells:
        # No quadruple can exist: the premise fails for both axes, whatever n_i' is.
        assert g[cell][1] != cell[1]
        assert g[cell][0] != cell[0]
    W = tied_matrix((3, 3), distinct_weights(2))
    G = permutation_matrix(lambda cell: g[cell], cells)
    assert not torch.allclose(G @ W, W @ G)


def test_the_swap_in_the_printed_proof_is_not_a_permutation_along_axes():
    """The proof of "only if" swaps n with m and n' with m', which no relabelling does.

    For n = (0, 0), n' = (0, 1), m = (1, 1), m' = (1, 2) both pairs agree on the rows only.
    """
    swap = {(0, 0): (1, 1), (1, 1): (0, 0), (0, 1): (1, 2), (1, 2): (0, 1)}
    rows = {cell[0]: set() for cell in cells_of((3, 3))}
    for cell in cells_of((3, 3)):
        rows[cell[0]].add(swap.get(cell, cell)[0])
    assert any(len(targets) > 1 for targets in rows.values())


def test_equal_weights_commute_with_every_permutation():
    """Why the theorem asks for distinct weights: a constant matrix is equivariant to anything."""
    cells = cells_of((2, 3))
    W = tied_matrix((2, 3), dict.fromkeys(distinct_weights(2), 0.5))
    G = permutation_matrix(lambda cell: cells[(cells.index(cell) * 5 + 1) % 6], cells)
    torch.testing.assert_close(G @ W, W @ G)
