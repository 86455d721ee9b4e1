"""Models are compared on the same hidden cells, beside the yardsticks, and chosen on none."""

import os
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from exchangeable import metrics
from exchangeable.completion.completer import Completer
from exchangeable.data import splits
from exchangeable.data.splits import split_by_name
from exchangeable.data.table import Table
from exchangeable.datasets import load
from exchangeable.errors import InputError
from exchangeable.evaluation.comparison import evaluate, judge
from exchangeable.evaluation.report import calibrate
from exchangeable.runtime.progress import SILENT
from exchangeable.training.config import TrainingConfig

CLUB = load("film-club")

needs_data = pytest.mark.skipif(
    not os.environ.get("EXCHANGEABLE_DATA"), reason="EXCHANGEABLE_DATA names no data folder"
)


def test_the_yardsticks_stand_in_every_table():
    found = evaluate(CLUB, models=["mean"])
    assert found.models == ["mean", "bias", "bmf"]
    assert found.best() in ("bias", "bmf")


def test_figures_are_those_of_predicting_the_hidden_cells_by_hand():
    split = splits.by_share(CLUB.table, test=0.2, validation=0.0, seed=4)
    outcome = judge(Completer("bias", seed=4), CLUB.table, split)
    table = CLUB.table
    frame = pl.DataFrame(table.frame(table.index, rating=table.values))
    shown, hidden = frame[split.train], frame[split.test]
    completer = Completer("bias").fit(shown.select("member", "film"), shown["rating"].to_numpy())
    answers = completer.predict(hidden.select("member", "film"))
    expected = metrics.rmse(hidden["rating"].to_numpy(), answers)
    assert outcome.metrics["rmse"] == pytest.approx(expected, abs=1e-9)
    intervals = completer.predict_interval(hidden.select("member", "film"))
    held = metrics.coverage(hidden["rating"].to_numpy(), intervals)
    assert outcome.metrics["coverage"] == pytest.approx(held)
    assert len(outcome.truth) == len(split.test)


def test_features_of_members_without_cells_change_no_figure_by_their_labels():
    """Members that sort before all others move the numbers of these in the fitted table."""
    generator = np.random.default_rng(0)
    years = pl.DataFrame({"film": CLUB.table.vocabularies[1].labels})
    years = years.with_columns(year=pl.Series(generator.normal(size=len(years))))
    split = splits.by_share(CLUB.table, test=0.2, validation=0.0, seed=0)
    known = Completer("pretrained")
    one = judge(known, CLUB.table, split, features={"film": years})
    for label in ("!", "~"):
        further = pl.DataFrame({"film": [f"{label} {k}" for k in range(9)], "year": [0.0] * 9})
        features = {"film": pl.concat([further, years])}
        outcome = judge(Completer("pretrained"), CLUB.table, split, features=features)
        assert outcome.metrics["rmse"] == pytest.approx(one.metrics["rmse"], rel=0.02)
        check = calibrate(CLUB.table, known, SILENT, features)
        yardstick = check.outcomes[1].metrics["rmse"]
        assert check.outcomes[0].metrics["rmse"] < yardstick
        assert check.held[7] == pytest.approx(check.outcomes[0].metrics["coverage"])


def test_the_hidden_values_have_no_influence_on_the_answers():
    split = splits.by_share(CLUB.table, test=0.2, validation=0.0, seed=0)
    values = CLUB.table.values.copy()
    values[split.test] = 6 - values[split.test]
    other = replace(CLUB.table, values=values)
    for model in ("vmf", "bmf", "item-knn"):
        one = judge(Completer(model), CLUB.table, split)
        two = judge(Completer(model), other, split)
        np.testing.assert_array_equal(one.predictions, two.predictions)
        assert one.metrics["rmse"] != two.metrics["rmse"]


def test_new_members_are_answered_from_the_cells_that_are_shown():
    split = splits.new_members(CLUB.table, (0,), members=0.2, shown=0.5, seed=0)
    biased = judge(Completer("bias"), CLUB.table, split).metrics["rmse"]
    unseen = judge(
        Completer("bias"),
        CLUB.table,
        splits.Split(train=split.train, test=split.test, unused=split.shown),
    ).metrics["rmse"]
    assert biased < unseen - 0.02


def test_seeds_give_a_spread_and_the_best_is_compared_in_pairs():
    found = evaluate(CLUB, models=["mean", "vmf"], seeds=(0, 1, 2))
    spread = found.spread("vmf", "rmse")
    assert spread.number == 3
    assert spread.deviation > 0
    assert found.against_best(found.best()) is None
    paired = found.against_best("mean")
    assert paired.low > 0
    assert paired.p < 0.01
    facts = found.to_json()
    assert [row["model"] for row in facts["models"]] == found.models
    assert len(facts["models"][0]["runs"]) == 3


def test_positives_of_three_axes_are_judged_against_cells_that_nobody_marked():
    generator = np.random.default_rng(0)
    taste, kind = generator.random(30) < 0.5, generator.random(20) < 0.5
    likes = [
        (f"u{u}", f"i{i}", f"t{t}")
        for u in range(30)
        for i in range(20)
        for t in range(4)
        if generator.random() < (0.6 if taste[u] == kind[i] else 0.03)
    ]
    frame = pl.DataFrame(likes, schema=["u", "i", "t"], orient="row")
    table = Table.of(frame, axes=("u", "i", "t"))
    found = evaluate(table, models=["vmf"], seeds=(0,))
    outcome = next(o for o in found.outcomes if o.model == "vmf")
    assert set(np.unique(outcome.truth)) == {0.0, 1.0}
    assert outcome.metrics["concordance"] > 0.7  # the area under the curve
    assert not {"recall", "ndcg"} & set(outcome.metrics)  # lists of drawn cells would say little


def test_positives_of_two_axes_are_for_evaluate_ranking():
    table = Table.of(pl.DataFrame([("a", "x"), ("b", "y")], schema=["u", "i"], orient="row"))
    with pytest.raises(InputError, match="compared by evaluate_ranking"):
        evaluate(table)


@pytest.mark.parametrize("split", ["random", "new-rows", "new-columns"])
def test_positives_without_any_structure_cannot_be_told_from_others(split):
    found = []
    for seed in range(4):
        marks = np.argwhere(np.random.default_rng(seed).random((40, 10, 12)) < 0.2)
        frame = pl.DataFrame(marks.astype(str), schema=["u", "i", "t"])
        table = Table.of(frame, axes=("u", "i", "t"))
        result = evaluate(table, models=["bias"], seeds=(seed,), split=split, test=0.2)
        found.append(result.spread("bias", "concordance").mean)
    assert np.mean(found) == pytest.approx(0.5, abs=0.06)


def test_the_order_of_rows_does_not_change_which_cells_are_hidden():
    table = CLUB.table
    rows = np.random.default_rng(0).permutation(len(table))
    shuffled = replace(table, index=table.index[rows], values=table.values[rows])
    one, two = (evaluate(t, models=["bias"]) for t in (table, shuffled))
    assert one.spread("bias", "rmse") == two.spread("bias", "rmse")


def test_a_model_that_saw_the_whole_table_is_pointed_out(tmp_path):
    whole = Completer("residual", training=TrainingConfig(steps=2))
    whole.fit_table(CLUB.table).save(tmp_path / "whole")
    found = evaluate(CLUB, models=[str(tmp_path / "whole")])
    assert any("very cells" in note for note in found.outcomes[0].notes)


def test_real_numbers_have_all_metrics_that_need_no_levels():
    generator = np.random.default_rng(0)
    index = np.argwhere(generator.random((30, 20)) < 0.5)
    values = generator.normal(size=30)[index[:, 0]] + generator.normal(size=len(index)) * 0.1
    table = Table.of(index, values)
    found = evaluate(table, models=["bias"])
    assert found.spread("bias", "rmse").mean < 0.3
    assert found.spread("bias", "concordance").mean > 0.8
    assert (
        found.spread("bias", "log_likelihood").mean > found.spread("bmf", "log_likelihood").mean - 1
    )


def test_splits_have_names():
    for name in ("random", "new-rows", "new-columns", "new-both"):
        assert len(split_by_name(CLUB.table, {}, name, 0.2, 0).test)
    with pytest.raises(InputError, match="split must be one of"):
        split_by_name(CLUB.table, {}, "diagonal", 0.2, 0)
    with pytest.raises(InputError, match="time column"):
        split_by_name(CLUB.table, {}, "time", 0.2, 0)
    with pytest.raises(InputError, match="leaves nothing"):
        split_by_name(CLUB.table.take(np.arange(3)), {}, "random", 0.01, 0)


def test_intervals_hold_about_what_they_promise():
    found = calibrate(CLUB.table, Completer("vmf").fit_table(CLUB.table), SILENT)
    promised, held = np.array(found.promised), np.array(found.held)
    assert np.abs(promised - held).max() < 0.1
    assert (np.diff(held) >= 0).all()


@needs_data
def test_the_yardsticks_on_movielens_are_where_they_are_known_to_be():
    found = evaluate(load("ml-100k"), split="u1", models=["vmf"])
    rmse = {model: found.spread(model, "rmse").mean for model in found.models}
    assert rmse["bias"] == pytest.approx(0.953, abs=0.002)
    assert rmse["vmf"] <= 0.918
    assert rmse["bmf"] <= 0.912
    for model in found.models:
        assert 0.76 < found.spread(model, "coverage").mean < 0.86
