"""The arena hides the same cells for all, measures them alike, and keeps what came of each run."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.arena import __main__ as arena
from benchmarks.arena import code
from benchmarks.arena.code import code_of
from benchmarks.arena.methods import METHODS, PEERS, Method
from benchmarks.arena.problem import Problem
from benchmarks.arena.questions import QUESTIONS, asked, draw_cells, problem_of
from benchmarks.arena.rasch import Rasch
from benchmarks.arena.runs import RESULTS, Limits, Run, is_done, limited, measured, store, stored
from benchmarks.arena.scoring import score, score_accuracies
from benchmarks.arena.search import choose, validation_error
from benchmarks.arena.tables import TABLES, TINY
from benchmarks.peers.positives import Positives, measure_ranking
from scipy.special import expit

from exchangeable.datasets import DATASETS
from exchangeable.errors import InputError

TINY_QUESTIONS = list(asked(TINY))


def tiny(table, question, seed=0):
    return problem_of(question, TINY[table].load(), TINY[table], seed)


def cells(index):
    return set(map(tuple, index.tolist()))


def test_all_tables_are_datasets_and_there_are_22_or_more():
    assert len(TABLES) >= 22
    assert set(TABLES) <= set(DATASETS)


def test_every_question_is_asked_about_some_table():
    assert {question for _, question in asked(TABLES)} == set(QUESTIONS)


@pytest.mark.parametrize(("table", "question"), TINY_QUESTIONS)
def test_a_problem_is_the_same_each_time_and_hides_what_it_asks_for(table, question):
    problem = tiny(table, question)
    if problem is None:
        assert question in ("shown-1", "shown-3", "shown-10", "shown-30", "accuracy")
        return
    assert problem.digest() == tiny(table, question).digest()
    assert problem.digest() != tiny(table, question, seed=1).digest()
    assert not cells(problem.index) & cells(problem.queries)
    assert len(problem.truth) == len(problem.queries) > 0
    assert problem.validation.any() == (question != "positives")
    assert not problem.validation.all(axis=1).any()


def test_the_file_of_a_problem_has_no_true_value(tmp_path):
    problem = tiny("tiny", "features-0")
    problem.write(tmp_path / "problem.npz")
    read = Problem.read(tmp_path / "problem.npz")
    assert len(read.truth) == 0
    with np.load(tmp_path / "problem.npz") as stored_arrays:
        assert "truth" not in stored_arrays
    for name in ("index", "values", "validation", "queries"):
        assert np.array_equal(getattr(read, name), getattr(problem, name))
    assert np.array_equal(read.features[0], problem.features[0])
    assert (read.kind, read.shape) == (problem.kind, problem.shape)


def test_new_members_have_no_cell_and_validation_hides_members_too():
    problem = tiny("tiny", "features-0")
    assert not set(problem.index[:, 0]) & set(problem.queries[:, 0])
    assert len(problem.validation) == 5  # 54 rows are few
    for hidden in problem.validation:
        validation, rest = problem.index[hidden], problem.index[~hidden]
        assert len(validation)
        assert not set(validation[:, 0]) & set(rest[:, 0])


def test_validation_of_new_rows_hides_cells_of_whole_rows_as_the_question_does():
    problem = tiny("tiny", "rows-10")
    new = set(problem.queries[:, 0])
    for hidden in problem.validation:
        rows = problem.index[:, 0]
        checked = set(rows[hidden])
        assert not checked & new
        left = np.isin(rows, list(checked)) & ~hidden
        assert left.sum() < 0.25 * hidden.sum()  # as new rows show a tenth of their cells


def test_few_cells_are_validated_in_several_draws_and_none_twice():
    few = tiny("tiny", "cells").validation
    assert few.shape == (5, 540)
    assert (few.sum(axis=1) == 54).all()
    assert few.sum(axis=0).max() == 1
    many = draw_cells(20_000, np.random.default_rng(0))
    assert (many.shape, many.sum()) == ((1, 20_000), 2000)


def test_settings_are_chosen_by_the_errors_of_all_draws():
    validation = np.array([[True, False, False], [False, True, False]])
    index, values = np.array([[0, 0], [0, 1], [1, 0]]), np.array([1.0, 2.0, 9.0])
    problem = Problem("real", (2, 2), np.empty(0), index, values, validation, index[:0])

    def answer(read, asked):
        assert not cells(asked) & cells(index[read])
        return np.full(len(asked), values[read].min())

    # The first draw answers 2 for 1, the second 1 for 2; both lie in the range of what was read.
    assert validation_error(problem, answer) == 1


def test_a_method_that_is_asked_for_lists_reads_users_and_not_what_they_take(tmp_path):
    problem = tiny("tiny", "positives")
    problem.write(tmp_path / "problem.npz")
    asked = Problem.read(tmp_path / "problem.npz").queries
    assert np.array_equal(asked[:, 0], np.unique(problem.queries[:, 0]))
    assert asked.shape[1] == 1


def test_a_share_of_the_cells_is_shown():
    table = TINY["tiny"].load()
    assert tiny("tiny", "shown-10") is None  # 60 cells are too few
    problem = tiny("tiny", "cells")
    assert len(problem.queries) == 60
    assert len(problem.index) + len(problem.queries) == len(table.values)


def test_new_rows_show_half_of_their_cells():
    problem = tiny("tiny", "rows-50")
    new = np.isin(problem.index[:, 0], problem.queries[:, 0])
    assert 0.35 < new.sum() / (new.sum() + len(problem.queries)) < 0.65


def test_the_search_takes_the_least_error_and_passes_over_failures():
    def error(settings):
        if settings["k"] == 3:
            raise ValueError("does not fit")
        return float("nan") if settings["k"] == 4 else (settings["k"] - 2) ** 2

    choice = choose([{"k": k} for k in (4, 3, 1, 2, 5)], error, 60)
    assert (choice.settings, choice.error, choice.tried, choice.of) == ({"k": 2}, 0, 5, 5)
    with pytest.raises(RuntimeError, match="no settings of 1 could be fitted"):
        choose([{"k": 3}], error, 60)


def test_the_search_tries_the_first_settings_in_any_case_and_no_other_without_time():
    choice = choose([{"k": 1}, {"k": 2}], lambda settings: -settings["k"], 0)
    assert (choice.settings, choice.tried, choice.of) == ({"k": 1}, 1, 2)


def test_the_search_does_not_take_the_import_of_a_library_for_the_time_of_its_settings(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("benchmarks.arena.search.time.perf_counter", lambda: clock[0])

    def error(settings):
        clock[0] += 10 if settings["k"] == 0 else 1
        return settings["k"]

    assert choose([{"k": k} for k in range(12)], error, 25).tried == 12
    assert choose([{"k": k} for k in range(12)], error, 15).tried == 1
    slow = choose([{"k": k} for k in (1, 0, 2, 3)], error, 20)
    assert slow.tried == 2  # the second took 10 seconds, and the third might


def test_rasch_finds_abilities_and_difficulties():
    rng = np.random.default_rng(0)
    ability, difficulty = rng.normal(0, 1, 60), rng.normal(0.5, 1, 50)
    index = np.argwhere(np.ones((60, 50)))
    chance = expit(ability[index[:, 0]] - difficulty[index[:, 1]])
    values = (rng.random(len(index)) < chance).astype(float)
    model = Rasch.fit(index, values, (60, 50), 1.0)
    assert np.corrcoef(model.vectors[0], ability)[0, 1] > 0.9
    assert np.corrcoef(model.vectors[1], -difficulty)[0, 1] > 0.9
    assert np.abs(model.predict(index) - chance).mean() < 0.06


def test_lists_are_scored_as_the_comparison_of_rankers_does():
    problem = tiny("tiny", "positives")
    scores = np.random.default_rng(1).random(problem.shape)
    data = Positives(problem.index, problem.queries, problem.shape)
    users = np.unique(problem.queries[:, 0])
    shown = scores.copy()
    shown[tuple(problem.index.T)] = -1
    lists = np.argsort(-shown[users], axis=1)[:, :20]
    found = score(problem, {"lists": lists}, None)
    assert found == pytest.approx(measure_ranking(lambda chosen: scores[chosen], data))


def test_numbers_alone_are_scored_with_the_deviation_of_validation_errors():
    problem = tiny("tiny-order-3", "cells")
    noise = np.random.default_rng(0).normal(0, 0.01, len(problem.truth))
    found = score(problem, {"means": problem.truth + noise}, 0.01)
    assert found["rmse"] < 0.02
    assert 0.6 < found["coverage"] < 0.95
    assert score(problem, {"means": problem.truth}, 1.0)["coverage"] == 1
    assert found["log_likelihood"] > score(problem, {"means": problem.truth}, 1.0)["log_likelihood"]


def test_chances_of_binary_tables_are_scored():
    problem = tiny("tiny-binary", "cells")
    right = score(problem, {"means": np.where(problem.truth == 1, 0.9, 0.1)}, 0.3)
    assert right["auc"] == 1
    assert right["log_loss"] == pytest.approx(-np.log(0.9))
    assert right["calibration"] == pytest.approx(0.1)
    sure = score(problem, {"means": 1 - problem.truth}, 0.3)
    assert sure["log_loss"] == pytest.approx(-np.log(1e-3))


def test_accuracies_are_of_known_cells_and_answers_for_others():
    index, queries = np.array([[0, 0], [1, 0]]), np.array([[0, 1], [0, 2], [1, 1], [1, 2]])
    problem = Problem(
        "binary",
        (2, 3),
        np.array([0.0, 1.0]),
        index,
        np.array([1.0, 0.0]),
        np.zeros((0, 2), dtype=bool),
        queries,
        truth=np.array([1.0, 0.0, 0.0, 0.0]),
    )
    found = score_accuracies(problem, np.array([0.5, 0.5, 0.0, 0.6]))
    # True shares are 2/3 and 0; the answers give 2/3 and 0.2; known cells alone 1 and 0.
    assert found["accuracy_mae"] == pytest.approx(0.1)
    assert found["accuracy_mae_of_plain_means"] == pytest.approx(1 / 6)


def test_a_tiny_arena_runs_and_what_exists_is_not_repeated(tmp_path, capsys):
    command = ["--tiny", "--tables", "tiny", "--questions", "cells", "--out", str(tmp_path)]
    arena.main([*command, "--methods", "means,bias,rasch", "--budget", "5"])
    records = {record["method"]: record for record in stored(tmp_path)}
    assert set(records) == {"means", "bias"}  # the Rasch model is for binary tables
    assert records["bias"]["scores"]["rmse"] < 1.2
    assert records["means"]["tried"] == records["means"]["of"] == 3
    for record in records.values():
        assert {"settings", "version", "commit", "wall_s", "peak_mb", "digest"} <= set(record)
        assert record["digest"] == tiny("tiny", "cells").digest()
    assert capsys.readouterr().out.count("rmse") == 2
    arena.main([*command, "--methods", "means,bias", "--budget", "5"])
    assert capsys.readouterr().out == ""


def test_a_run_that_takes_too_long_or_too_much_is_a_row_that_says_so():
    python = METHODS["means"].command("means", RESULTS, 1, RESULTS)[0]
    slow = limited([python, "-c", "import time; time.sleep(60)"], Limits(seconds=0.3))
    assert slow["failed"] == "more than 0.3 s"
    large = limited(
        [python, "-c", "import time; x = b'1' * 200_000_000; time.sleep(60)"], Limits(memory_mb=100)
    )
    assert large["failed"] == "more than 100 MB"
    broken = limited([python, "-c", "raise ValueError('no answer')"], Limits())
    assert broken["failed"] == "ValueError: no answer"


def test_a_method_that_does_not_fit_is_not_started(monkeypatch, tmp_path):
    large = Method("large", lambda problem: True, lambda problem: "9 are more than 8")
    monkeypatch.setitem(METHODS, "large", large)
    run = Run("tiny", "cells", "large")
    record = measured(run, tiny("tiny", "cells"), Limits(), tmp_path)
    assert record["failed"] == "not tried: 9 are more than 8"


def test_runs_are_repeated_where_wider_limits_might_change_them(tmp_path):
    path, usual = tmp_path / "run.json", Limits(budget=10, seconds=20, memory_mb=100)

    def done(limits, **facts):
        store({"limits": vars(usual), "method": "vmf", "code": code_of("vmf"), **facts}, path)
        return is_done(path, limits)

    wider = Limits(budget=20, seconds=40, memory_mb=100)
    assert not is_done(tmp_path / "other.json", usual)
    assert done(wider, tried=5, of=5, scores={})
    assert not done(wider, tried=3, of=5, scores={})
    assert done(usual, tried=3, of=5, scores={})
    assert not done(wider, failed="more than 20 s")
    assert done(usual, failed="more than 20 s")
    assert done(wider, failed="ValueError: no answer")
    assert not done(usual, tried=5, of=5, scores={}, code="other")


def test_the_code_of_a_run_is_what_its_figures_depend_on_and_no_prose(monkeypatch, tmp_path):
    assert code_of("vmf") == code_of("bias") != code_of("auto")
    assert len({code_of(name) for name in ("auto", "lenskit", "myfm", "irspack-ease")}) == 4
    parts = ("benchmarks", "benchmarks/arena", "benchmarks/peers")
    for part in parts:
        (tmp_path / part).mkdir()
        for path in (code.ROOT / part).glob("*.py"):
            (tmp_path / part / path.name).write_text(path.read_text())
    monkeypatch.setattr(code, "ROOT", tmp_path)
    before = {name: code_of.__wrapped__(name) for name in ("myfm", "lenskit", "vmf")}
    assert before["myfm"] == code_of("myfm")

    def changed(path, text):
        with (tmp_path / path).open("a") as file:
            file.write(text)
        code.digest_of.cache_clear()
        return {name for name in before if code_of.__wrapped__(name) != before[name]}

    assert changed("benchmarks/peers/myfm_members.py", "# a comment\n") == set()
    assert changed("benchmarks/peers/myfm_members.py", "ITERATIONS = 1\n") == {"myfm"}
    assert changed("benchmarks/arena/scoring.py", "SURE = 0\n") == {"myfm", "lenskit", "vmf"}
    code.digest_of.cache_clear()


def test_peers_name_the_modules_that_their_script_imports():
    for method in METHODS.values():
        if method.environment is not None:
            script = (code.ROOT / PEERS / method.script).read_text()
            names = [module.removesuffix(".py") for module in method.modules]
            assert names
            assert all(f"from {name} import" in script for name in names)


def test_a_table_that_cannot_be_had_is_said_and_others_go_on(tmp_path, capsys, monkeypatch):
    def refuse():
        raise InputError("tiny: its file is not there")

    monkeypatch.setitem(TINY, "tiny", replace(TINY["tiny"], load=refuse))
    command = ["--tiny", "--tables", "tiny,tiny-binary", "--questions", "cells"]
    arena.main([*command, "--methods", "means", "--budget", "1", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "its file is not there" in out
    assert [record["table"] for record in stored(tmp_path)] == ["tiny-binary"]
