"""Metrics are what their definitions say, written out slowly, and refuse to guess."""

import subprocess
import sys
import tracemalloc
from itertools import combinations, pairwise, permutations
from math import log2, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exchangeable import metrics
from exchangeable.errors import InputError

few = st.integers(0, 4).map(float)  # so that many are equal
pairs = st.lists(st.tuples(few, few), min_size=2, max_size=30)
grouped = st.lists(st.tuples(few, few, st.integers(0, 3)), min_size=1, max_size=9)


def columns(rows):
    return [np.array(column) for column in zip(*rows, strict=True)]


def test_known_errors_have_known_metrics():
    truth, answers = [1, 2, 3, 4], [1.0, 2.0, 3.0, 8.0]
    assert metrics.rmse(truth, answers) == 2
    assert metrics.mae(truth, answers) == 1
    assert metrics.log_likelihood(np.log([0.5, 0.125])) == pytest.approx(-2 * np.log(2))
    assert metrics.log_likelihood([2.0]) == 2  # a density may be above 1


def test_coverage_counts_both_ends_as_inside():
    intervals = [[1, 2], [0, 1], [1, 1], [1.5, 2], [0, 0.5]]
    assert metrics.coverage([1, 1, 1, 1, 1], intervals) == pytest.approx(3 / 5)


@settings(max_examples=200)
@given(pairs)
def test_concordance_is_the_share_of_pairs_in_the_right_order(rows):
    truth, answers = columns(rows)
    judged = [
        0.5 if b == d else float((a < c) == (b < d))
        for (a, b), (c, d) in combinations(rows, 2)
        if a != c
    ]
    if judged:
        assert metrics.concordance(truth, answers) == pytest.approx(np.mean(judged), abs=1e-12)
    else:
        with pytest.raises(InputError, match="two different values in truth"):
            metrics.concordance(truth, answers)


def test_concordance_is_one_for_the_truth_and_half_for_silence():
    truth = np.random.default_rng(0).integers(1, 6, 1000)
    assert metrics.concordance(truth, truth) == 1
    assert metrics.concordance(truth, -truth) == 0
    assert metrics.concordance(truth, np.ones(1000)) == 0.5


def bundled_orders(rows):
    """Every order of the rows that the answers allow, best first: equal ones both ways round."""
    return [order for order in permutations(rows) if all(a[1] >= b[1] for a, b in pairwise(order))]


def discounted(gains, n):
    return sum(gain / log2(place + 2) for place, gain in enumerate(gains[:n]))


@settings(max_examples=60, deadline=None)
@given(grouped.filter(lambda rows: all([r[2] for r in rows].count(g) <= 6 for g in range(4))))
def test_ndcg_is_the_mean_over_all_orders_that_the_answers_allow(rows):
    n, smallest = 3, min(row[0] for row in rows)
    scores = []
    for group in range(4):
        mine = [row for row in rows if row[2] == group]
        if len({row[0] for row in mine}) < 2:
            continue
        best = discounted(sorted((row[0] - smallest for row in mine), reverse=True), n)
        every = [discounted([row[0] - smallest for row in o], n) for o in orders(mine)]
        scores.append(np.mean(every) / best)
    if scores:
        assert metrics.ndcg(*columns(rows), n=n) == pytest.approx(np.mean(scores))
    else:
        with pytest.raises(InputError, match="different values in truth"):
            metrics.ndcg(*columns(rows), n=n)


@settings(max_examples=60, deadline=None)
@given(grouped.filter(lambda rows: all([r[2] for r in rows].count(g) <= 6 for g in range(4))))
def test_recall_is_the_mean_over_all_orders_that_the_answers_allow(rows):
    n, scores = 2, []
    for group in range(4):
        mine = [row for row in rows if row[2] == group]
        relevant = sum(row[0] >= 3 for row in mine)
        if relevant:
            found = [sum(row[0] >= 3 for row in order[:n]) for order in orders(mine)]
            scores.append(np.mean(found) / min(n, relevant))
    truth, answers, groups = columns(rows)
    if scores:
        assert metrics.recall(truth >= 3, answers, groups, n=n) == pytest.approx(np.mean(scores))
    else:
        with pytest.raises(InputError, match="relevant cell"):
            metrics.recall(truth >= 3, answers, groups, n=n)


def test_rankings_do_not_depend_on_the_order_or_the_names_of_cells_and_groups():
    generator = np.random.default_rng(1)
    truth, answers = generator.integers(1, 6, 300), generator.integers(0, 4, 300)
    groups, shuffle = generator.integers(0, 20, 300), generator.permutation(300)
    names = np.array([f"user {-g}" for g in groups])
    for metric, values in ((metrics.ndcg, truth), (metrics.recall, truth > 3)):
        shuffled = metric(values[shuffle], answers[shuffle], names[shuffle], n=5)
        assert shuffled == pytest.approx(metric(values, answers, groups, n=5))


def test_perfect_rankings_score_one():
    generator = np.random.default_rng(2)
    truth, groups = generator.integers(1, 6, 500), generator.integers(0, 30, 500)
    assert metrics.ndcg(truth, truth, groups) == pytest.approx(1)
    assert metrics.recall(truth == 5, truth, groups) == pytest.approx(1)
    assert metrics.recall(truth == 5, -truth, groups, n=1) == 0


def test_seeds_are_told_as_mean_and_sample_deviation():
    spread = metrics.over_seeds([1.0, 2.0, 4.0])
    assert (spread.mean, spread.number) == (pytest.approx(7 / 3), 3)
    assert spread.deviation == pytest.approx((14 / 3 / 2) ** 0.5)
    assert str(metrics.over_seeds([0.9134, 0.9154, 0.9174])) == "0.915 ± 0.002"
    assert metrics.over_seeds([0.915]).deviation is None
    assert str(metrics.over_seeds([0.915])) == "0.915"
    assert metrics.over_seeds([2.0, 2.0]).deviation == 0


def two_models(generator, cells=200, worse=0.3):
    """Answers whose errors go together, with known root mean squares: 1 + worse and 1."""
    errors = generator.normal(size=cells)
    one = (1 + worse) * (0.8 * errors + 0.6 * generator.normal(size=cells))
    return np.zeros(cells), one, errors


def test_the_bootstrap_interval_covers_the_true_difference_as_often_as_it_says():
    generator = np.random.default_rng(3)
    tries = [metrics.paired_bootstrap(*two_models(generator), draws=300) for _ in range(500)]
    inside = np.mean([paired.low <= 0.3 <= paired.high for paired in tries])
    assert 0.92 <= inside <= 0.97
    differences = [paired.difference for paired in tries]
    assert np.mean(differences) == pytest.approx(0.3, abs=0.01)
    width = np.mean([paired.high - paired.low for paired in tries])
    assert width == pytest.approx(2 * 1.96 * np.std(differences), rel=0.1)


def test_p_is_small_by_chance_as_often_as_it_says_and_small_when_there_is_a_difference():
    generator = np.random.default_rng(4)
    same = [two_models(generator, worse=0.0) for _ in range(300)]
    chance = [metrics.paired_bootstrap(*models, draws=300).p for models in same]
    assert 0.02 <= np.mean(np.array(chance) < 0.05) <= 0.09
    assert 0.4 <= np.mean(np.array(chance) < 0.5) <= 0.6
    clear = metrics.paired_bootstrap(*two_models(generator, cells=2000))
    assert clear.p == pytest.approx(2 / 2001)
    assert 0 < clear.low < clear.difference < clear.high


def test_the_bootstrap_turns_round_with_its_models_and_repeats_with_its_seed():
    truth, one, other = two_models(np.random.default_rng(5))
    there = metrics.paired_bootstrap(truth, one, other, seed=1)
    back = metrics.paired_bootstrap(truth, other, one, seed=1)
    assert there == metrics.paired_bootstrap(truth, one, other, seed=1)
    assert there != metrics.paired_bootstrap(truth, one, other, seed=2)
    assert (there.low, there.high, there.p) == pytest.approx((-back.high, -back.low, back.p))
    assert there.difference == pytest.approx(metrics.rmse(truth, one) - metrics.rmse(truth, other))


def test_a_model_does_not_differ_from_itself():
    truth, one, _ = two_models(np.random.default_rng(6))
    assert metrics.paired_bootstrap(truth, one, one) == metrics.Paired(0, 0, 0, 1)


def test_the_bootstrap_pairs_cells_and_so_sees_what_two_separate_ones_would_not():
    generator = np.random.default_rng(7)
    errors = generator.normal(size=500)
    paired = metrics.paired_bootstrap(np.zeros(500), 1.01 * errors, errors)
    assert paired.low > 0  # the difference is 1 % in every draw, though either RMSE varies by 3 %


def test_the_bootstrap_needs_little_memory():
    truth, one, other = two_models(np.random.default_rng(8), cells=100_000)
    tracemalloc.start()
    metrics.paired_bootstrap(truth, one, other, draws=50)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6  # all draws at once would take 40 MB


groups = ["a", "a", "b"]
WITH_ANSWERS = {
    "rmse": lambda truth, answers: metrics.rmse(truth, answers),
    "mae": lambda truth, answers: metrics.mae(truth, answers),
    "concordance": lambda truth, answers: metrics.concordance(truth, answers),
    "ndcg": lambda truth, answers: metrics.ndcg(truth, answers, groups),
    "recall": lambda truth, answers: metrics.recall(np.array(truth) == 1, answers, groups),
    "coverage": lambda truth, answers: metrics.coverage(
        truth, np.stack([np.array(answers) - 1, answers], axis=1)
    ),
    "one": lambda truth, answers: metrics.paired_bootstrap(truth, answers, truth),
    "other": lambda truth, answers: metrics.paired_bootstrap(truth, truth, answers),
}


@pytest.mark.parametrize("metric", WITH_ANSWERS)
@pytest.mark.parametrize(
    ("truth", "answers"),
    [
        ([1, 2, 3], [1, nan, 3]),
        ([1, 2, 3], [1, np.inf, 3]),
        ([1, 2, 3], [1, 2]),
        ([1, 2, 3], [1, 2, 3, 4]),
        ([], []),
        ([1, 2, 3], []),
    ],
)
def test_missing_answers_and_other_lengths_and_no_cells_are_refused(metric, truth, answers):
    with pytest.raises(InputError) as told:
        WITH_ANSWERS[metric](truth, answers)
    assert "but" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("metric", sorted(set(WITH_ANSWERS) - {"recall"}))
def test_missing_truth_is_refused(metric):
    with pytest.raises(InputError, match="truth must be finite for every cell, but cell 1 has nan"):
        WITH_ANSWERS[metric]([1, nan, 3], [1, 2, 3])


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: metrics.log_likelihood([]), "list of numbers"),
        (lambda: metrics.log_likelihood([-1, -np.inf]), "cell 1 has -inf"),
        (lambda: metrics.log_likelihood([-1, nan]), "cell 1 has nan"),
        (lambda: metrics.rmse(["a"], ["b"]), "truth must be numbers, but are <U1"),
        (lambda: metrics.rmse([1], [None]), "cell 0 has nan"),
        (lambda: metrics.rmse([1], [object()]), "answers must be numbers"),
        (lambda: metrics.rmse([1], [1j]), "answers must be numbers, but are complex128"),
        (lambda: metrics.rmse([[1, 2]], [[1, 2]]), r"but has shape \(1, 2\)"),
        (lambda: metrics.rmse(1, 1), r"but has shape \(\)"),
        (lambda: metrics.rmse([[1], [1, 2]], [1, 2]), "truth must be an array"),
        (lambda: metrics.coverage([1], [1, 2]), r"shape \(Q, 2\), but have shape \(2,\)"),
        (lambda: metrics.coverage([1, 1], [[1, 2], [1]]), "intervals must be an array"),
        (lambda: metrics.coverage([1, 2], [[0, 2], [3, 1]]), "cell 1 goes from 3 to 1"),
        (lambda: metrics.concordance([2, 2], [1, 2]), "two different values in truth"),
        (lambda: metrics.ndcg([1, 2], [1, 2], [0]), r"groups must have shape \(2,\)"),
        (lambda: metrics.ndcg([1, 2], [1, 2], [0, nan]), "cell 1 is in none"),
        (lambda: metrics.ndcg([1, 2], [1, 2], [None, "a"]), "groups must be of one type"),
        (lambda: metrics.ndcg([1, 2], [1, 2], [0, 1]), "different values in truth"),
        (lambda: metrics.ndcg([1, 2], [1, 2], [0, 0], n=0), "n must be .* but is 0"),
        (lambda: metrics.recall([1, 0], [1, 2], [0, 0]), "true or false, but is int64"),
        (lambda: metrics.recall([False] * 2, [1, 2], [0, 0]), "relevant cell"),
        (lambda: metrics.recall([True] * 2, [1, 2], [0, 0], n=1.5), "n must be .* but is 1.5"),
        (lambda: metrics.over_seeds([]), "list of numbers"),
        (lambda: metrics.over_seeds([1, nan]), "cell 1 has nan"),
        (lambda: metrics.paired_bootstrap([1], [1], [1], draws=0), "draws must be"),
        (lambda: metrics.paired_bootstrap([1], [1], [1], seed=-1), "seed must be"),
    ],
)
def test_other_bad_input_is_refused_in_one_line(call, told):
    with pytest.raises(InputError, match=told) as error:
        call()
    assert "\n" not in str(error.value)


def test_metrics_need_neither_torch_nor_polars():
    code = "import sys, exchangeable.metrics; print({'torch', 'polars'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"
