"""Rankers of positives agree with their dense formulas, for known and new users alike."""

import pytest
import torch

from exchangeable.errors import InputError
from exchangeable.ranking import registry, spectrum
from exchangeable.ranking.implicit import ImplicitFactors
from exchangeable.ranking.positives import (
    Positives,
    Rows,
    relative_strengths,
    usual_strength,
)
from exchangeable.ranking.registry import RANKERS, PreparedTable, ease, low_pass, ridge, walks
from exchangeable.ranking.spectrum import Spectrum


def some_positives(users=30, items=24, seed=0, groups=6):
    """Users of a group like the same items; every user and item has some."""
    generator = torch.Generator().manual_seed(seed)
    same = torch.arange(users)[:, None] % groups == torch.arange(items) % groups
    chance = 0.08 + 0.6 * same
    table = (torch.rand(users, items, generator=generator) < chance).float()
    table[torch.arange(users), torch.arange(users) % items] = 1
    return table


def positives_of(table):
    return Positives.of(table.nonzero(), tuple(table.shape))


def rows_of(table):
    users, items = table.nonzero().T
    return Rows.of(users, items, table[users, items], tuple(table.shape))


def fitted(ranker, table):
    return ranker(PreparedTable(positives_of(table)))


def scores(ranker, table):
    return fitted(ranker, table).score(rows_of(table)).T


def unseen(scored, table):
    return scored[table == 0]


@pytest.mark.parametrize("shape", [(30, 24), (20, 33)])
@pytest.mark.parametrize("strength", [0.5, 20.0])
def test_ease_is_the_regression_of_each_item_on_all_others(shape, strength):
    table = some_positives(*shape).double()
    weights = torch.zeros(shape[1], shape[1], dtype=torch.float64)
    for item in range(shape[1]):
        others = [n for n in range(shape[1]) if n != item]
        x = table[:, others]
        gram = x.T @ x + strength * torch.eye(len(others), dtype=torch.float64)
        weights[others, item] = torch.linalg.solve(gram, x.T @ table[:, item])
    expected = table @ weights
    found = scores(ease(strength), table.float()).double()
    torch.testing.assert_close(unseen(found, table), unseen(expected, table), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("shape", [(30, 24), (20, 33)])
def test_ridge_between_users_is_the_same_filter_without_the_division(shape):
    table = some_positives(*shape).double()
    gram = table @ table.T
    weights = gram @ torch.linalg.inv(gram + 20 * torch.eye(len(gram), dtype=torch.float64))
    found = scores(ridge(20.0), table.float()).double()
    expected = weights @ table
    torch.testing.assert_close(unseen(found, table), unseen(expected, table), atol=1e-4, rtol=1e-3)


def test_walks_are_products_of_scaled_tables():
    table = some_positives()
    users, items = table.sum(1), table.sum(0)
    cosine = (table / items.sqrt()).T @ (table / items.sqrt())
    expected = table @ cosine
    torch.testing.assert_close(scores(walks(0.5, 0.0, 0.5), table), expected)
    steps = (table / users[:, None]).T / items[:, None]  # (M, N): to a user, and its share
    expected = table @ (steps @ table) / items**0.6
    torch.testing.assert_close(scores(walks(1.0, 1.0, 0.6), table), expected)


def test_a_low_pass_filter_keeps_the_leading_vectors_of_the_normalised_table():
    table = some_positives()
    users, items = (table.sum(1) + 1).sqrt(), (table.sum(0) + 1).sqrt()
    _, _, right = torch.linalg.svd(table / users[:, None] / items)
    kept = right[:5].T @ right[:5]
    expected = (table / items) @ kept * items
    torch.testing.assert_close(scores(low_pass(5), table), expected, atol=1e-4, rtol=1e-3)


def test_implicit_factors_solve_weighted_least_squares():
    table = some_positives()
    factors = ImplicitFactors(rank=4, weight=3.0, regularisation=0.2)
    found = PreparedTable(positives_of(table)).factors(factors)
    items = found.items.double()
    strength = 0.2 * (3.0 * table[7].sum() + 1e-3 * table.shape[1])
    weighted = items.T @ torch.diag(1 + 3.0 * table[7].double()) @ items
    weighted += strength * torch.eye(4, dtype=torch.float64)
    user = torch.linalg.solve(weighted, items.T @ (4.0 * table[7].double()))
    scored = found.score(rows_of(table[7:8])).squeeze(1)
    torch.testing.assert_close(scored.double(), items @ user, atol=1e-5, rtol=1e-4)


def test_a_table_too_large_for_all_of_its_spectrum_has_the_leading_part(monkeypatch):
    table = some_positives(120, 90, groups=5)
    whole = Spectrum.of(positives_of(table)).leading(6)
    monkeypatch.setattr(spectrum, "MAX_WHOLE", 10)
    leading = Spectrum.of(positives_of(table), rank=6)
    torch.testing.assert_close(leading.squares, whole.squares, rtol=1e-3, atol=1e-3)
    cosines = (leading.vectors * whole.vectors).sum(0).abs()
    assert cosines.min() > 0.999
    again = Spectrum.of(positives_of(table), rank=6, start=leading)
    torch.testing.assert_close(again.squares, whole.squares, rtol=1e-3, atol=1e-3)


def test_a_table_too_large_for_exact_ridge_has_that_of_its_spectrum(monkeypatch):
    table = some_positives(60, 48)
    exact = scores(ease(20.0), table)
    monkeypatch.setattr(registry, "MAX_EXACT", 10)  # all 48 vectors are found
    found = scores(ease(20.0), table)
    torch.testing.assert_close(unseen(found, table), unseen(exact, table), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", [name for name in RANKERS if name != "popularity"])
def test_rankers_do_not_depend_on_numbering_and_find_the_group_of_a_user(name, monkeypatch):
    monkeypatch.setattr(registry, "MAX_EXACT", 10)
    monkeypatch.setattr(spectrum, "MAX_WHOLE", 10)
    monkeypatch.setattr(spectrum, "RANK", 8)
    table = some_positives(60, 48)
    generator = torch.Generator().manual_seed(1)
    rows, columns = (torch.randperm(size, generator=generator) for size in table.shape)
    mine = torch.arange(60)[:, None] % 6 == torch.arange(48) % 6
    for ranker in RANKERS[name].values():
        plain, turned = scores(ranker, table), scores(ranker, table[rows][:, columns])
        torch.testing.assert_close(turned, plain[rows][:, columns], atol=1e-3, rtol=1e-2)
        inside, outside = (plain[(table == 0) & own].mean() for own in (mine, ~mine))
        assert inside > outside


@pytest.mark.parametrize("name", list(RANKERS))
def test_a_user_that_comes_later_is_scored_from_its_own_items(name):
    table = some_positives()
    ranker = fitted(next(iter(RANKERS[name].values())), table)
    known = ranker.score(positives_of(table).rows(torch.tensor([3, 8])))
    torch.testing.assert_close(ranker.score(rows_of(table[[3, 8]])), known)
    nobody = ranker.score(rows_of(torch.zeros(1, table.shape[1])))
    assert nobody.isfinite().all()


def test_rows_are_those_of_users_and_strangers_have_none():
    table = some_positives()
    rows = positives_of(table).rows(torch.tensor([4, -1, 0]))
    expected = torch.stack([table[4], torch.zeros(24), table[0]], dim=1)
    torch.testing.assert_close(rows.columns, expected)
    torch.testing.assert_close(rows.counts, expected.sum(0))


def test_bad_positives_are_named():
    with pytest.raises(InputError, match="must be pairs of user and item"):
        Positives.of(torch.zeros(2, 3, dtype=torch.long), (2, 2))
    for strengths in ([1.0, 0.0], [1.0, -2.0], [torch.nan, 1.0], [torch.inf, 1.0]):
        with pytest.raises(InputError, match="strengths of positives must be finite and above 0"):
            usual_strength(torch.tensor(strengths))


def test_strengths_do_not_depend_on_their_unit():
    plays = torch.tensor([1.0, 10.0, 300.0, 2.0])
    found = relative_strengths(plays, usual_strength(plays))
    torch.testing.assert_close(relative_strengths(60 * plays, usual_strength(60 * plays)), found)
    assert (found[plays.argsort()].diff() > 0).all()
    alike = torch.full((3,), 7.0)
    torch.testing.assert_close(relative_strengths(alike, usual_strength(alike)), torch.ones(3))


def test_digits_do_not_depend_on_strengths():
    table = some_positives()
    strengths = torch.rand(len(table.nonzero()), generator=torch.Generator().manual_seed(0)) + 0.5
    weighted = Positives.of(table.nonzero(), tuple(table.shape), strengths)
    for one, other in zip(positives_of(table).digits, weighted.digits, strict=True):
        assert torch.equal(one, other)
