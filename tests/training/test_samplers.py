"""Samplers draw what they say, as often as they say."""

from itertools import permutations

import numpy as np
import pytest

from exchangeable import Support
from exchangeable.errors import InputError
from exchangeable.testing import random_array
from exchangeable.training.samplers import (
    Conditional,
    Full,
    Neighbourhood,
    RowsColumns,
    UniformCells,
)

# A small table with busy and quiet rows and columns.
SKEWED = Support.of([(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (2, 0), (3, 3)], (5, 4))


def frequencies(sampler, draws, seed=0):
    generator, seen = np.random.default_rng(seed), np.zeros(len(sampler))
    for _ in range(draws):
        seen[sampler.draw(generator)] += 1
    return seen / draws


def samplers(support, order):
    sizes = tuple(max(1, n // 2) for n in support.shape)
    return [
        Full(support),
        UniformCells(support, len(support) // 2),
        Conditional(support, sizes),
        RowsColumns(support, sizes),
        Neighbourhood(support, seeds=2, hops=2, fanout=2),
    ]


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_draws_are_ascending_distinct_cells_and_repeat_with_the_seed(order):
    support = random_array((9, 8, 5, 4)[:order], density=0.5).support
    for sampler in samplers(support, order):
        for seed in range(20):
            drawn = sampler.draw(np.random.default_rng(seed))
            assert np.array_equal(drawn, np.unique(drawn))
            assert len(drawn) == 0 or drawn.max() < len(support)
            assert np.array_equal(drawn, sampler.draw(np.random.default_rng(seed)))


def test_uniform_cells_come_equally_often():
    sampler, draws = UniformCells(SKEWED, 3), 20_000
    share = 3 / 8
    error = 5 * np.sqrt(share * (1 - share) / draws)
    assert np.abs(frequencies(sampler, draws) - share).max() < error


@pytest.mark.parametrize("sizes", [(2, 2), (1, 3), (4, 1)])
def test_rows_times_columns_draw_every_cell_equally_often(sizes):
    sampler, draws = RowsColumns(SKEWED, sizes), 20_000
    share = sizes[0] / 5 * sizes[1] / 4
    error = 5 * np.sqrt(share * (1 - share) / draws)
    assert np.abs(frequencies(sampler, draws) - share).max() < error


def test_rows_columns_and_a_third_axis_draw_every_cell_equally_often():
    support, draws = random_array((6, 5, 4), density=0.4).support, 20_000
    share = 3 / 6 * 2 / 5 * 3 / 4
    error = 5 * np.sqrt(share * (1 - share) / draws)
    sampler = RowsColumns(support, (3, 2, 3))
    assert np.abs(frequencies(sampler, draws) - share).max() < error


def chance_of_set(weights, chosen):
    """The chance that members drawn one by one by weight, none twice, are this set."""
    total, chance = sum(weights.values()), 0.0
    for order in permutations(chosen):
        left, p = total, 1.0
        for member in order:
            p *= weights[member] / left
            left -= weights[member]
        chance += p
    return chance


def subsets(members, size):
    from itertools import combinations

    return combinations(sorted(members), min(size, len(members)))


def paper_chances(cells, sizes):
    """P(n) = |R_n| / |I| for rows, then P(m | N') within the rows drawn, by enumeration."""
    chances = dict.fromkeys(cells, 0.0)
    rows = {n: sum(c[0] == n for c in cells) for n in {c[0] for c in cells}}
    for chosen in subsets(rows, sizes[0]):
        p_rows = chance_of_set(rows, chosen)
        inside = [c for c in cells if c[0] in chosen]
        columns = {m: sum(c[1] == m for c in inside) for m in {c[1] for c in inside}}
        for kept in subsets(columns, sizes[1]):
            p = p_rows * chance_of_set(columns, kept)
            for cell in inside:
                if cell[1] in kept:
                    chances[cell] += p
    return np.array([chances[cell] for cell in cells])


@pytest.mark.parametrize("sizes", [(1, 1), (2, 2), (3, 2)])
def test_conditional_sampling_follows_the_paper_and_is_not_flat(sizes):
    cells = [tuple(cell) for cell in SKEWED.index.tolist()]
    expected = paper_chances(cells, sizes)
    draws = 20_000
    error = 5 * np.sqrt(expected * (1 - expected) / draws) + 1e-9
    found = frequencies(Conditional(SKEWED, sizes), draws)
    assert (np.abs(found - expected) < error).all()
    assert expected.max() > 1.5 * expected.min() or sizes == (1, 1)


def test_one_row_and_one_column_are_the_only_flat_case_of_the_conditional_form():
    cells = [tuple(cell) for cell in SKEWED.index.tolist()]
    assert np.allclose(paper_chances(cells, (1, 1)), 1 / 8)


def test_conditional_draws_are_all_cells_where_members_meet():
    support = random_array((20, 15), density=0.3).support
    drawn = Conditional(support, (8, 6)).draw(np.random.default_rng(0))
    inside = support.index[drawn].numpy()
    rows, columns = set(inside[:, 0]), set(inside[:, 1])
    assert len(rows) <= 8
    assert len(columns) <= 6
    meeting = [e for e, (n, m) in enumerate(support.index.tolist()) if n in rows and m in columns]
    assert set(drawn) == set(meeting)


def test_a_neighbourhood_shares_members_with_its_seeds():
    support = random_array((30, 30), density=0.1).support
    for hops in (0, 1, 2):
        drawn = Neighbourhood(support, 1, hops=hops, fanout=100).draw(np.random.default_rng(3))
        reached = {int(np.random.default_rng(3).choice(len(support), 1, shuffle=False)[0])}
        for _ in range(hops):
            met = support.index[sorted(reached)]
            reached = {
                e
                for e, cell in enumerate(support.index)
                if any(cell[0] == m[0] or cell[1] == m[1] for m in met)
            }
        assert set(drawn) == reached


def test_the_fanout_bounds_a_hop():
    full = random_array((40, 40), density=1.0).support
    drawn = Neighbourhood(full, 1, hops=1, fanout=5).draw(np.random.default_rng(0))
    assert 6 <= len(drawn) <= 11


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: UniformCells(SKEWED, 9), "size must be between 1 and 8 cells, but is 9"),
        (lambda: UniformCells(SKEWED, 0), "but is 0"),
        (lambda: UniformCells(SKEWED, 1.5), "but is 1.5"),
        (lambda: RowsColumns(SKEWED, 2), "on each axis, but are 2"),
        (lambda: Conditional(SKEWED, (2,)), r"on each axis, but are \(2,\)"),
        (lambda: RowsColumns(SKEWED, (6, 2)), r"between 1 and \(5, 4\) on each axis"),
        (lambda: Neighbourhood(SKEWED, 1, fanout=0), "fanout 1 or more, but are 1 and 0"),
        (lambda: Full(Support.of([], (3, 3))), "needs cells to draw from"),
    ],
)
def test_wrong_samplers_are_named(wrong, message):
    with pytest.raises(InputError, match=message):
        wrong()
