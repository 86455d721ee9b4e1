"""The design is Bayesian: variances fall as conditioning says, and cells are chosen greedily."""

import numpy as np
import pytest

from exchangeable.baselines.design import (
    Design,
    Exceedance,
    Members,
    VarianceReduction,
    choose_cells,
    sum_over_unobserved,
)

ROWS, COLUMNS, WIDTH = 5, 7, 3


def draw_members(generator, size, uncertain=True):
    """Members with vectors and covariances drawn at random."""
    features = np.concatenate([np.ones((size, 1)), generator.normal(size=(size, WIDTH - 1))], 1)
    root = generator.normal(size=(size, WIDTH, WIDTH)) * uncertain
    return Members(features, root @ root.transpose(0, 2, 1) / WIDTH)


def draw_design(seed=0, certain_columns=False):
    generator = np.random.default_rng(seed)
    rows = draw_members(generator, ROWS)
    columns = draw_members(generator, COLUMNS, uncertain=not certain_columns)
    return Design(rows, columns, generator.uniform(0.5, 2.0, size=(ROWS, COLUMNS)))


def variances_of(design):
    """Variances of all cells, written out for one cell at a time."""
    result = np.empty((ROWS, COLUMNS))
    for i in range(ROWS):
        for j in range(COLUMNS):
            e, f = design.rows.features[i], design.columns.features[j]
            s, t = design.rows.covariances[i], design.columns.covariances[j]
            both = np.trace(s[1:, 1:] @ t[1:, 1:])
            result[i, j] = design.noise[i, j] + f @ s @ f + e @ t @ e + both
    return result


def target_sums(design, targets):
    """Sums of E[f f'] over targets of rows and columns, one cell at a time."""
    by_row, by_column = np.zeros((ROWS, WIDTH**2)), np.zeros((COLUMNS, WIDTH**2))
    for i, j in np.argwhere(targets):
        for member, members, sums, own in (
            (j, design.columns, by_row, i),
            (i, design.rows, by_column, j),
        ):
            second = np.outer(members.features[member], members.features[member])
            second[1:, 1:] += members.covariances[member, 1:, 1:]
            sums[own] += second.ravel()
    return by_row, by_column


def test_variances_are_those_of_products_of_uncertain_vectors():
    design = draw_design()
    np.testing.assert_allclose(design.variance, variances_of(design))
    design.measure(1, 2)
    np.testing.assert_allclose(design.variance, variances_of(design))
    # By draws: a cell is b + c + u.v with independent normal vectors, and noise.
    generator = np.random.default_rng(1)
    row, column = (
        generator.multivariate_normal(np.r_[0.0, m.features[at, 1:]], m.covariances[at], 200_000)
        for m, at in ((design.rows, 3), (design.columns, 4))
    )
    values = row[:, 0] + column[:, 0] + (row[:, 1:] * column[:, 1:]).sum(axis=1)
    drawn = values.var() + design.noise[3, 4]
    assert design.variance[3, 4] == pytest.approx(drawn, rel=0.02)


def test_a_measured_cell_of_known_columns_is_one_more_row_of_a_regression():
    design = draw_design(certain_columns=True)
    f, before = design.columns.features[2], np.linalg.inv(design.rows.covariances[1])
    design.measure(1, 2)
    expected = np.linalg.inv(before + np.outer(f, f) / design.noise[1, 2])
    np.testing.assert_allclose(design.rows.covariances[1], expected)


def test_the_reduction_is_what_the_variances_of_the_targets_fall_by():
    targets = np.random.default_rng(2).random((ROWS, COLUMNS)) < 0.6
    for row, column in ((0, 0), (2, 5), (4, 1)):
        others = targets.copy()
        others[row, column] = False
        design = draw_design()
        score = VarianceReduction(design, *target_sums(design, others))
        expected, before = score.all()[row, column], design.variance[others].sum()
        design.measure(row, column)
        assert expected == pytest.approx(before - design.variance[others].sum())
        assert expected > 0


def test_cells_are_chosen_one_by_one_as_if_the_others_had_been_measured():
    allowed = np.random.default_rng(3).random((ROWS, COLUMNS)) < 0.7
    design, anew = draw_design(), draw_design()
    sums = target_sums(design, np.ones_like(allowed))
    cells, scores = choose_cells(design, VarianceReduction(design, *sums), allowed, 8)
    left = allowed.copy()
    for cell, score in zip(cells, scores, strict=True):
        table = np.where(left, VarianceReduction(anew, *sums).all(), -np.inf)
        assert tuple(cell) == np.unravel_index(table.argmax(), table.shape)
        assert score == pytest.approx(table.max())
        left[tuple(cell)] = False
        anew.measure(*cell)
    once = np.where(allowed, VarianceReduction(draw_design(), *sums).all(), -np.inf)
    together = np.argsort(-once, axis=None)[:8]
    assert set(together) != {row * COLUMNS + column for row, column in cells}


def test_no_more_cells_are_chosen_than_are_allowed():
    allowed = np.zeros((ROWS, COLUMNS), dtype=bool)
    design = draw_design()
    score = VarianceReduction(design, *target_sums(design, ~allowed))
    assert len(choose_cells(design, score, allowed, 4)[0]) == 0
    allowed[2, 3] = allowed[0, 6] = True
    cells, _ = choose_cells(design, score, allowed, 4)
    assert sorted(map(tuple, cells)) == [(0, 6), (2, 3)]


def test_equal_scores_go_to_the_first_cell_though_their_last_bits_differ():
    design, chances = draw_design(), np.full((ROWS, COLUMNS), 0.5)
    chances[3, 3] += 1e-15
    cells, _ = choose_cells(design, Exceedance(design, chances), chances > 0, 1)
    assert tuple(cells[0]) == (0, 0)


def test_chances_fall_in_the_lines_of_a_measured_cell_and_never_rise():
    design = draw_design()
    chances = np.random.default_rng(4).uniform(0.01, 0.99, size=(ROWS, COLUMNS))
    score = Exceedance(design, chances)
    np.testing.assert_allclose(score.all(), chances)
    design.measure(1, 2)
    for after, before in zip(score.lines(1, 2), (chances[1], chances[:, 2]), strict=True):
        likely = before >= 0.5
        np.testing.assert_allclose(after[likely], before[likely])
        assert (after[~likely] < before[~likely]).all()


def test_sums_over_unobserved_cells_leave_out_the_observed_ones():
    generator = np.random.default_rng(5)
    observed, table = generator.random((4, 6)) < 0.4, generator.normal(size=(6, 3))
    sums = sum_over_unobserved(np.argwhere(observed), (4, 6), table)
    np.testing.assert_allclose(sums, ~observed @ table)
