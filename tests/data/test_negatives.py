"""Negatives are cells that were not observed, each as likely as any other."""

import numpy as np
import pytest

from exchangeable.data.negatives import draw_negatives, draw_negatives_among


@pytest.mark.parametrize("number", [5, 20, 40, 1000])
def test_negatives_are_cells_that_were_not_observed_and_none_comes_twice(number):
    generator = np.random.default_rng(1)
    shape = (6, 8)
    seen = np.argwhere(generator.random(shape) < 0.3).astype(np.int64)
    drawn = draw_negatives(seen, shape, number, np.random.default_rng(0))
    cells = {tuple(cell) for cell in drawn.tolist()}
    assert len(cells) == len(drawn) == min(number, 48 - len(seen))
    assert not cells & {tuple(cell) for cell in seen.tolist()}


def test_negatives_lie_where_the_given_members_meet():
    seen = np.array([[0, 0], [2, 1], [5, 3]])
    members = [np.array([0, 2]), np.array([1, 3, 4])]
    drawn = draw_negatives_among(members, seen, (6, 5), 100, np.random.default_rng(0))
    expected = {(0, 1), (0, 3), (0, 4), (2, 3), (2, 4)}
    assert {tuple(cell) for cell in drawn.tolist()} == expected


def test_negatives_are_as_likely_everywhere():
    seen = np.array([[0, 0], [1, 1]])
    counts = np.zeros((3, 3))
    for seed in range(2000):
        for cell in draw_negatives(seen, (3, 3), 2, np.random.default_rng(seed)):
            counts[tuple(cell)] += 1
    assert counts[0, 0] == counts[1, 1] == 0
    free = counts[counts > 0]
    assert len(free) == 7
    np.testing.assert_allclose(free / 4000, 1 / 7, atol=0.02)
