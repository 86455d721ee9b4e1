"""The pretrained ranker and single ones: lists, chances and their limits."""

from dataclasses import replace

import pytest
import torch
from tests.ranking.test_rankers import positives_of, rows_of, some_positives

from exchangeable.pretraining.bundled import bundled_ranker
from exchangeable.ranking.chances import Chances, shares_of
from exchangeable.ranking.network import RankingNetwork
from exchangeable.ranking.ranker import Backtest, Trust, add_to_all, fit_pretrained
from exchangeable.ranking.registry import RANKERS
from exchangeable.ranking.single import fit_single


def hold_out(table, seed=0, share=0.25):
    generator = torch.Generator().manual_seed(seed)
    held = (torch.rand(table.shape, generator=generator) < share) & (table > 0)
    held[(table * ~held).sum(1) == 0] = False
    return table * ~held, held


def hits(scores, held):
    return float(held.gather(1, scores.T.topk(10, 1).indices).float().sum() / held.sum())


@pytest.mark.parametrize("seed", [0, 1])
def test_hidden_items_are_ranked_well_above_popularity(seed):
    known, held = hold_out(some_positives(150, 90, seed), seed)
    model = fit_pretrained(bundled_ranker(), positives_of(known))
    popular = fit_single("popularity", positives_of(known))
    own, simple = (each.score(rows_of(known)) for each in (model, popular))
    assert hits(own, held) > 2 * hits(simple, held)
    assert (own.T[known > 0] == -torch.inf).all()
    nobody = model.score(rows_of(torch.zeros(1, 90)))
    assert nobody.isfinite().all()


def test_scores_do_not_depend_on_numbering():
    table = some_positives(150, 90)
    generator = torch.Generator().manual_seed(3)
    rows, columns = (torch.randperm(size, generator=generator) for size in table.shape)
    turned = table[rows][:, columns]
    plain, other = (
        fit_pretrained(bundled_ranker(), positives_of(each)).score(rows_of(each)).T
        for each in (table, turned)
    )
    torch.testing.assert_close(other, plain[rows][:, columns], atol=1e-2, rtol=1e-2)


def test_the_network_adds_to_candidates_and_the_lowest_mean_to_all_below():
    items = torch.arange(30).repeat(2, 1)
    added = torch.linspace(1, -1, 30).repeat(2, 1)
    found = add_to_all(items, added, 40)
    lowest = added[0, -20:].mean()
    torch.testing.assert_close(found[1], torch.cat([added[0], lowest.expand(10)]))


def test_a_network_that_says_nothing_leaves_the_stack_as_it_is():
    silent = RankingNetwork()
    with torch.no_grad():
        for own in silent.parameters():
            own.zero_()
    known, _ = hold_out(some_positives(150, 90))
    model = fit_pretrained(silent, positives_of(known))
    alone = replace(model, trust=Trust(model.trust.stack))
    torch.testing.assert_close(model.score(rows_of(known)), alone.score(rows_of(known)))


@pytest.mark.parametrize("name", list(RANKERS))
def test_single_rankers_are_fitted_with_a_setting_and_rank_as_they_do_alone(name):
    known, held = hold_out(some_positives(150, 90))
    model = fit_single(name, positives_of(known))
    assert model.setting in RANKERS[name]
    found = model.score(rows_of(known))
    assert found[found != -torch.inf].isfinite().all()
    if name != "popularity":
        popular = fit_single("popularity", positives_of(known)).score(rows_of(known))
        assert hits(found, held) > 1.5 * hits(popular, held)


@pytest.mark.parametrize("name", ["pretrained", "ease"])
def test_a_tiny_table_is_ranked_by_usual_weights(name):
    table = torch.eye(3)
    positives = positives_of(table)
    model = (
        fit_pretrained(bundled_ranker(), positives)
        if name == "pretrained"
        else fit_single(name, positives)
    )
    scores = model.score(rows_of(table)).T
    assert scores[table == 0].isfinite().all()
    assert model.chances == Chances()


def test_a_ranker_alone_is_better_only_where_it_is_clearly_ahead():
    backtest = Backtest(
        100, 0.2, {"ease 300": 0.22, "rp3 0.6": 0.1}, {"ease 300": 3.0, "rp3 0.6": -9.0}
    )
    assert backtest.better == "ease"
    assert replace(backtest, ahead={"ease 300": 1.5, "rp3 0.6": -9.0}).better is None
    assert "gain of 0.2000, and ease 300 alone 0.2200" in str(backtest)


def test_chances_come_true():
    generator = torch.Generator().manual_seed(0)
    shares = 10 ** (-4 * torch.rand(200_000, generator=generator))
    true = shares**1.3 * 0.8
    hit = torch.rand(200_000, generator=generator) < true
    chances = Chances.fit(shares, hit)
    found = chances.of(shares)
    for low, high in ((1e-3, 1e-2), (1e-2, 1e-1), (1e-1, 1)):
        inside = (shares > low) & (shares <= high)
        assert abs(float(found[inside].mean() / hit[inside].float().mean()) - 1) < 0.15
    ascending = shares.sort().values
    assert (chances.of(ascending).diff() >= 0).all()
    assert chances.of(torch.tensor([0.0, 50.0])).tolist() == pytest.approx([0.0, 1.0], abs=0.05)


def test_without_hidden_positives_a_chance_is_the_share_itself():
    shares = torch.tensor([1e-6, 0.01, 0.3])
    torch.testing.assert_close(Chances().of(shares), shares, atol=1e-6, rtol=2e-3)


def test_shares_are_a_quarter_of_what_a_user_has():
    scores = torch.tensor([[0.0, 1.0], [2.0, -torch.inf], [1.0, 3.0]])
    shares = shares_of(scores, torch.tensor([4.0, 400.0]))
    torch.testing.assert_close(shares.sum(0), torch.tensor([1.0, 1.0]))  # half of two, at most
    assert shares[1, 1] == 0


def ndcg(model, table, shown, held):
    """Mean discounted gain of the first ten, over users with held-out items."""
    scores = model.score(rows_of(shown)).T.masked_fill(table.bool() & ~held.bool(), -torch.inf)
    discounts = 1 / torch.arange(2, 12).log2()
    gains = held.gather(1, scores.topk(10, dim=1).indices) @ discounts
    best = discounts.cumsum(0)[held.sum(dim=1).clamp(1, 10).long() - 1]
    return float((gains / best)[held.sum(dim=1) > 0].mean())


def test_users_without_items_get_the_popular_ones():
    model = fit_pretrained(bundled_ranker(), positives_of(hold_out(some_positives(150, 90))[0]))
    counts = model.channels.table.positives.per_item
    scores = model.score(rows_of(torch.zeros(1, 90))).squeeze(1)
    assert (counts[scores.argsort(descending=True)].diff() <= 0).all()


def test_a_single_item_is_worth_no_less_than_none():
    table = some_positives(300, 90)
    known, held = table[:200], table[200:]
    model = fit_pretrained(bundled_ranker(), positives_of(known))
    first = torch.zeros_like(held)
    first[torch.arange(100), held.argmax(dim=1)] = 1
    wanted = held - first
    own, none = (ndcg(model, held, shown, wanted) for shown in (first, torch.zeros_like(held)))
    assert own > none


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
def test_a_sparse_table_is_ranked_about_as_well_as_by_popularity(share):
    own, popular = [], []
    for seed in range(4):
        table = some_positives(200, 60, seed)
        generator = torch.Generator().manual_seed(seed)
        known = table * (torch.rand(table.shape, generator=generator) < share)
        model = fit_pretrained(bundled_ranker(), positives_of(known))
        own.append(ndcg(model, table, known, table - known))
        popular.append(
            ndcg(fit_single("popularity", positives_of(known)), table, known, table - known)
        )
    assert sum(own) > 0.97 * sum(popular)


@pytest.mark.parametrize("users", [1, 2, 3, 4, 5, 6])
def test_tables_of_a_few_users_are_ranked_too(users):
    generator = torch.Generator().manual_seed(users)
    table = (torch.rand(users, 60, generator=generator) < 0.6).float()
    scores = fit_pretrained(bundled_ranker(), positives_of(table)).score(rows_of(table))
    assert torch.equal(-torch.inf == scores.T, table.bool())
    assert not scores.isnan().any()
