"""The page of the arena says what the stored runs say, and compares like with like."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.arena import page, summary
from benchmarks.arena.runs import RESULTS, Run, stored


def record_of(table, method, rmse=None, question="cells"):
    found = {"failed": "more than 1 s"} if rmse is None else {"scores": {"rmse": rmse}}
    facts = {"table": table, "question": question, "method": method, "seed": 0}
    sizes = {"shape": [2, 2], "cells": 900, "queries": 100}
    return {**facts, **sizes, "kind": "levels", "deviation": 1.0, **found}


def test_ranks_and_errors_count_a_method_that_failed_as_the_last():
    records = [
        record_of("coat", "pretrained", 1.0),
        record_of("coat", "bias", 1.1),
        record_of("coat", "vmf"),
        record_of("davis", "pretrained", 2.0),
        record_of("davis", "vmf", 1.9),
    ]
    board = summary.Board.of(records, ("cells",))
    key = ("coat", "cells")
    assert [board.rank(key, m) for m in ("pretrained", "bias", "vmf")] == [0, 0.5, 1]
    assert board.relative(key, "bias") == board.relative(key, "vmf") == pytest.approx(0.1)
    assert np.isnan(board.rank(key, "bmf"))
    (fall,) = summary.falls(board, "pretrained")
    assert (fall.table, fall.other) == ("davis", "vmf")
    assert fall.worse == pytest.approx(2 / 1.9 - 1)
    assert summary.best_of(board, ("davis", "cells")) == ("vmf", 1.9)


def test_ours_is_one_entrant_where_others_are_ranked():
    records = [
        record_of("coat", "pretrained", 1.0),
        record_of("coat", "auto", 1.0),
        record_of("coat", "myfm", 1.1),
        record_of("coat", "bias", 1.2),
    ]
    board = summary.Board.of(records, ("cells",))
    places = [board.rank(("coat", "cells"), r["method"]) for r in records]
    assert places == [0, 0, 0.5, 1]


def test_falls_are_against_any_other_method_and_not_the_yardsticks_alone():
    records = [
        record_of("coat", "pretrained", 1.0),
        record_of("coat", "auto", 0.5),
        record_of("coat", "vmf", 1.0),
        record_of("coat", "myfm", 0.9),
    ]
    (fall,) = summary.falls(summary.Board.of(records, ("cells",)), "pretrained")
    assert (fall.other, fall.least) == ("myfm", 0.9)


def test_other_draws_say_how_much_of_a_fall_is_chance():
    names = ("pretrained", "auto", "finetuned", "myfm", "vmf", "lightgbm")
    by_seed = [
        (1.0, 0.95, 0.5, 0.9, 1.1, None),
        (0.8, 0.7, None, 1.0, 0.9, 0.1),  # the last was not asked on the first draw
        (0.7, 0.7, None, None, 0.8, None),  # not all were asked
        (None, 0.7, None, 0.9, 0.8, None),
    ]
    records = [
        record_of("coat", method, rmse) | {"seed": seed}
        for seed, row in enumerate(by_seed)
        for method, rmse in zip(names, row, strict=True)
        if rmse is not None
    ]
    board = summary.Board.of(records, ("cells",))
    (fall,) = summary.falls(board, "pretrained")
    assert summary.other_draws(records, fall) == pytest.approx([0.8 / 0.9 - 1])
    assert page.falls([board], records).splitlines()[2].endswith("| 11.1 % | -11.1 % |")
    silent = replace(fall, ours="nobody")
    assert summary.other_draws(records, silent) == []


def test_what_has_not_been_run_leaves_out_shares_of_too_few_cells():
    left = summary.missing([record_of("coat", "pretrained", 1.0)])
    assert "coat" not in left["cells"]
    assert "coat" in left["shown-30"]  # 300 of 1,000 cells
    assert "coat" not in left["shown-10"]
    assert "davis" in left["shown-10"]


def test_methods_that_were_not_given_all_tables_are_ranked_last(monkeypatch):
    monkeypatch.setattr(summary, "required", lambda kind, order: {"pretrained", "vmf"})
    names = ("coat", "davis", "kiba", "douban")
    records = [
        record_of(table, method, rmse)
        for table in names
        for method, rmse in (("pretrained", 1.0), ("vmf", 1.1))
    ]
    records += [record_of(table, "gaussian", 0.9) for table in names[:3]]
    found = summary.standings(summary.Board.of(records, ("cells",)))
    assert list(found) == ["pretrained", "vmf", "gaussian"]


def test_standings_are_over_tables_that_all_methods_were_given(monkeypatch):
    everyone = {"pretrained", "bias", "vmf"}
    monkeypatch.setattr(summary, "required", lambda kind, order: everyone)
    records = [
        record_of(table, method, rmse)
        for table, rmse in (("coat", 1.0), ("davis", 2.0), ("kiba", 3.0))
        for method, rmse in (("pretrained", rmse), ("bias", 1.2 * rmse), ("vmf", 1.1 * rmse))
    ]
    records.append(record_of("coat", "bmf", 0.9))
    records.append(record_of("douban", "bias", 0.1))  # ours has not been asked
    found = summary.standings(summary.Board.of(records, ("cells",)))
    assert list(found) == ["pretrained", "vmf", "bias"]
    rank, error = found["bias"]
    assert (rank.mean, rank.low, rank.high, rank.tables) == (1, 1, 1, 3)
    assert error.low <= error.mean <= error.high
    assert error.mean == pytest.approx((1.2 / 0.9 * 1.2 * 1.2) ** (1 / 3) - 1)


def test_other_methods_than_those_for_a_kind_are_not_required():
    two, three = summary.required("levels", 2), summary.required("real", 3)
    assert {"pretrained", "auto", "vmf", "myfm", "lenskit"} <= two
    assert not two & {"finetuned", "rasch", "gaussian", "tensorly-cp", "implicit-als"}
    assert three == {"pretrained", "auto", "means", "bias", "vmf", "bmf", "myfm", "lightgbm"} | {
        "tensorly-cp"
    }
    assert "implicit-als" in summary.required("positives", 2)


def test_the_page_has_what_the_stored_runs_say():
    texts = [path.read_text(encoding="utf-8") for path in (page.PAGE, page.README)]
    records = stored(RESULTS)
    marks = re.findall(r"<!-- runs: ([\w ]+) -->", "\n".join(texts))
    assert sorted(marks) == sorted(page.sections(records))
    for text in texts:
        assert page.filled(text, records) == text, (
            "draw it again: python -m benchmarks.arena --page"
        )


def test_the_table_of_the_readme_has_the_best_methods_of_two_sets_of_tables():
    worse = {"cells": 1.1, "shown-10": 1.2}
    records = [
        record_of(table, method, error, question)
        for table in ("coat", "davis", "douban")
        for question, most in worse.items()
        for method, error in (("pretrained", 1.0), ("bias", most))
    ]
    boards = {q: summary.Board.of(records, (q,)) for q in worse}
    assert page.first_places(boards).startswith("Fewer than 3 tables")
    every = {q: replace(board, complete=set(board.errors)) for q, board in boards.items()}
    head, _, *rows = page.first_places(every).splitlines()
    assert head.count("(3 tables)") == 2
    assert rows == [
        "| ours, zero-shot | 0.00 | 0.0 % | 0.00 | 0.0 % |",
        "| biases, empirical Bayes | 1.00 | 10.0 % | 1.00 | 20.0 % |",
    ]


def test_stored_runs_have_a_place_and_the_cells_of_their_question_are_the_same_for_all():
    digests = {}
    for path in RESULTS.glob("*/*/*.json"):
        record = json.loads(path.read_text())
        run = Run(record["table"], record["question"], record["method"], record["seed"])
        assert run.path(RESULTS) == path
        digests.setdefault(path.parent, set()).add(record["digest"])
    assert all(len(found) == 1 for found in digests.values())


def test_a_picture_is_shown_only_if_there_are_runs_that_it_was_drawn_from():
    sections = page.sections([record_of("coat", "pretrained", 1.0)])
    for name in ("ranks", "heat", "time", "shares"):
        assert sections[f"picture of {name}"]() == "Not drawn yet."
    assert page.picture("heat", [1]) == f"![{page.ALTS['heat']}](pictures/arena-heat.png)"


def test_certainty_is_compared_on_tables_that_all_methods_were_given(monkeypatch):
    monkeypatch.setattr(summary, "required", lambda kind, order: {"pretrained", "vmf"})

    def certain(table, method, coverage, likelihood):
        record = record_of(table, method, 1.0)
        record["scores"] |= {"coverage": coverage, "log_likelihood": likelihood}
        return record

    records = [
        certain(table, method, coverage, likelihood)
        for table in ("coat", "davis", "kiba")
        for method, coverage, likelihood in (("pretrained", 0.82, -1.0), ("vmf", 0.75, -1.5))
    ]
    records.append(certain("douban", "vmf", 0.1, -9.0))  # ours was not asked
    *_, ours, other = page.certainty(records).splitlines()
    assert ours == "| ours, zero-shot | 3 | 82.0 % | 2.0 | 0.000 |"
    assert other == "| variational MF, best rank | 3 | 75.0 % | 5.0 | 0.500 |"


def test_the_page_says_how_many_states_of_its_code_the_runs_of_a_method_are_of():
    records = [
        {**record_of("coat", "vmf", 1.0), "commit": "a", "code": code}
        for code in ("one", "two", "two")
    ]
    assert "States of the code of a method's runs: vmf 2." in page.sections(records)["counted"]()
    assert "of one state of its code" in page.sections(records[1:])["counted"]()
