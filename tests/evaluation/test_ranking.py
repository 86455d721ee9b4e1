"""Lists of rankers are judged over all unseen items, by metrics worked out by hand."""

import numpy as np
import polars as pl
import pytest
from tests.completion.test_positives import pairs
from tests.support.strangers import STRANGERS

from exchangeable import Completer
from exchangeable.data.splits import Split, share_of_each
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.evaluation.ranking import (
    METRICS,
    RankingEvaluation,
    RankingOutcome,
    evaluate_ranking,
    judge_ranking,
    split_positives,
)
from exchangeable.evaluation.ranking_metrics import RankingMetric, parse_metrics

HITS = np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
COUNTS = np.array([3.0, 1.0])


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("recall@3", [2 / 3, 0]),
        ("recall@4", [2 / 3, 1]),
        ("precision@4", [2 / 4, 1 / 4]),
        ("ndcg@2", [1 / (1 + 1 / np.log2(3)), 0]),
        ("ndcg@4", [1.5 / (1 + 1 / np.log2(3) + 0.5), 1 / np.log2(5)]),
        ("recall@99999999999", [2 / 3, 1]),
        ("ndcg@99999999999", [1.5 / (1 + 1 / np.log2(3) + 0.5), 1 / np.log2(5)]),
        ("ndcg@9", [1.5 / (1 + 1 / np.log2(3) + 0.5), 1 / np.log2(5)]),
        ("hit@3", [1, 0]),
        ("mrr@4", [1, 1 / 4]),
    ],
)
def test_metrics_are_those_of_the_first_places(metric, expected):
    found = RankingMetric.parse(metric).of(HITS, COUNTS)
    np.testing.assert_allclose(found, expected)


def test_metrics_are_read_by_name_and_number_of_places():
    assert parse_metrics("recall@20, ndcg@10,recall@20") == (
        RankingMetric("recall", 20),
        RankingMetric("ndcg", 10),
    )
    for wrong in ("recall", "recall@", "recall@0", "recall@x", "auc@10", "", "ndcg@-1"):
        with pytest.raises(InputError, match="a metric must be one of recall"):
            parse_metrics(wrong)


def popularity_table():
    """Films f0, f1 ... with 9, 8 ... users; the last user has none of the popular ones."""
    rows = [(f"u{user}", f"f{film}") for film in range(6) for user in range(9 - film)]
    return Table.of(pl.DataFrame(rows, schema=["user", "film"], orient="row"))


def test_lists_hold_all_unseen_items_in_the_sequence_of_the_scores():
    table = popularity_table().in_label_order()
    user = table.index[:, 0] == 8  # u8 has f0 alone
    extra = np.flatnonzero((table.index[:, 0] == 7) & (table.index[:, 1] == 1))
    split = Split(train=np.setdiff1d(np.arange(len(table)), extra), test=extra)
    outcome = judge_ranking(
        Completer("popularity"), table, split, parse_metrics("hit@1,mrr@10,recall@2")
    )
    # u7 has f0 left: of all others f1, with 7 users left, and f2, with 7, are the most popular.
    assert user.any()
    assert outcome.figures["recall@2"].tolist() == [1.0]
    assert outcome.figures["mrr@10"][0] in (1.0, 0.5)


def test_equal_scores_come_in_a_random_sequence():
    rows = [(f"u{user}", f"f{film}") for user in range(30) for film in (user, 30, 31)]
    table = Table.of(pl.DataFrame(rows, schema=["user", "film"], orient="row")).in_label_order()
    held = np.flatnonzero(table.index[:, 1] < 30)[:10]
    films = table.vocabularies[1].labels.to_list()
    # Films that only one user has are all alike to popularity once that user's cell is hidden.
    own = np.array([films[code] not in ("f30", "f31") for code in table.index[:, 1]])
    held = np.flatnonzero(own)[:20]
    split = Split(train=np.setdiff1d(np.arange(len(table)), held), test=held)
    found = [
        judge_ranking(Completer("popularity", seed=seed), table, split, parse_metrics("mrr@32"))
        for seed in (0, 0, 1)
    ]
    same, again, other = (outcome.figures["mrr@32"] for outcome in found)
    np.testing.assert_array_equal(same, again)
    assert not np.array_equal(same, other)
    assert same.mean() < 0.2  # held-out films have no user left, and 10 others have one


def test_a_share_of_each_users_items_is_held_out():
    table = Table.of(pairs()).in_label_order()
    split = share_of_each(table, test=0.2, seed=1)
    users = table.index[:, 0]
    counts = np.bincount(users)
    held = np.bincount(users[split.test], minlength=len(counts))
    np.testing.assert_array_equal(held, np.floor(0.2 * counts))
    np.testing.assert_array_equal(
        np.sort(np.concatenate([split.train, split.test])), np.arange(len(table))
    )


def test_whole_users_are_ranked_by_four_fifths_of_their_items():
    table = Table.of(pairs()).in_label_order()
    split = split_positives(table, {}, "new-rows", 0.2, 0)
    users = table.index[:, 0]
    new = np.unique(users[split.test])
    assert not set(new) & set(users[split.train])
    share = len(split.shown) / (len(split.shown) + len(split.test))
    assert 0.75 < share < 0.85
    result = evaluate_ranking(
        table, split="new-rows", models=["ease"], metrics=parse_metrics("recall@10")
    )
    assert (
        result.spread("ease", "recall@10").mean > 2 * result.spread("popularity", "recall@10").mean
    )


def test_models_are_compared_with_the_yardsticks_over_the_same_users():
    result = evaluate_ranking(Table.of(pairs()), models=["pretrained"], name="groups")
    assert set(result.models) == {"pretrained", "popularity", "ease", "ials"}
    assert result.against_best(result.models[0], "ndcg@10") is None
    worst = result.against_best("popularity", "ndcg@10")
    assert worst.low < worst.difference < worst.high < 0
    facts = result.to_json()
    assert facts["models"][0]["model"] == result.models[0]
    assert (
        facts["models"][0]["recall@20"]["mean"] == result.spread(result.models[0], "recall@20").mean
    )


def test_the_paired_interval_is_that_of_the_mean_difference():
    one, other = np.array([0.1, 0.5, 0.3, 0.2]), np.array([0.2, 0.7, 0.3, 0.4])
    outcomes = tuple(
        RankingOutcome(name, 0, np.arange(4), {"ndcg@10": figures}, 0.0, 0.0, ())
        for name, figures in (("a", one), ("b", other))
    )
    result = RankingEvaluation("t", "random", (RankingMetric("ndcg", 10),), outcomes, {})
    paired = result.against_best("a", "ndcg@10")
    away = one - other
    error = 1.96 * away.std(ddof=1) / 2
    assert (paired.difference, paired.low, paired.high) == pytest.approx(
        (away.mean(), away.mean() - error, away.mean() + error)
    )


def test_more_seeds_of_the_same_users_do_not_narrow_the_interval():
    one, other = np.array([0.1, 0.5, 0.3, 0.2]), np.array([0.2, 0.7, 0.3, 0.4])
    found = []
    for seeds in ((0,), (0, 1, 2)):
        outcomes = tuple(
            RankingOutcome(name, seed, np.arange(4), {"ndcg@10": figures}, 0.0, 0.0, ())
            for name, figures in (("a", one), ("b", other))
            for seed in seeds
        )
        metric = RankingMetric("ndcg", 10)
        found.append(RankingEvaluation("t", "time", (metric,), outcomes, {}))
    single, several = (result.against_best("a", "ndcg@10") for result in found)
    assert (single.low, single.high) == pytest.approx((several.low, several.high))


def test_one_user_has_no_interval():
    result = evaluate_ranking(
        Table.of(pl.DataFrame({"u": ["a"] * 10, "i": list("abcdefghij")})), metrics=METRICS
    )
    worst = result.against_best(result.models[-1], "recall@20")
    assert (worst.low, worst.high) == (None, None)


@STRANGERS
def test_users_without_items_are_ranked_by_popularity():
    table = popularity_table().in_label_order()
    for name in ("ease", "ials", "rp3", "pretrained"):
        films = Completer(name).fit_table(table).recommend("nobody", 3)["film"].to_list()
        assert films == ["f0", "f1", "f2"]


def test_wrong_tables_and_splits_are_named():
    ratings = Table.of(pairs(), np.arange(len(pairs())) % 5 + 1.0)
    with pytest.raises(InputError, match="positives of two axes, but this table has 2 and levels"):
        evaluate_ranking(ratings)
    with pytest.raises(InputError, match="split must be one of random, time, new-rows, but is 'x'"):
        evaluate_ranking(Table.of(pairs()), split="x")
    with pytest.raises(InputError, match="a model and a seed or more are needed"):
        evaluate_ranking(Table.of(pairs()), models=[])
    with pytest.raises(InputError, match="time column"):
        evaluate_ranking(Table.of(pairs()), split="time")


def test_values_of_at_least_so_much_are_positives():
    frame = pairs()
    values = np.arange(len(frame)) % 5 + 1.0
    table = Table.of(frame, values).at_least(4)
    assert len(table) == (values >= 4).sum()
    assert table.scale.kind == "positives"
    kept = frame.filter(pl.Series(values >= 4))
    assert table.shape == (kept["user"].n_unique(), kept["film"].n_unique())
    users = table.vocabularies[0].decode(table.index[:, 0])
    assert users.to_list() == kept["user"].to_list()
    with pytest.raises(
        InputError, match="6 or more are needed, but there is none: the highest is 5"
    ):
        Table.of(frame, values).at_least(6)
    with pytest.raises(InputError, match="needs values, but all of these are positives"):
        Table.of(frame).at_least(1)
