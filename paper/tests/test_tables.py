"""The paper's commands: runs are kept, chosen on validation, and shown beside what it prints."""

import json
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace

import numpy as np
import pytest
import torch

from exchangeable import metrics
from exchangeable.errors import InputError
from exchangeable.models.configs import FactorizedConfig, ResidualConfig, SelfSupervisedConfig
from exchangeable.training.trained_model import TrainedModel
from exchangeable.values.distributions import Normal
from exchangeable.values.scale import Scale
from paper.figures import new_members, sampling
from paper.lib import methods, problems, runs, transferred, watched
from paper.lib.command import run_command
from paper.lib.problems import Problem
from paper.lib.tables import Column, Row, figure, format_table, run_missing
from paper.tables import davis_kiba, flixster_douban_yahoo, ml1m, ml100k, transfer

STARS = Scale("levels", (1.0, 2.0, 3.0, 4.0, 5.0))


def small(name="small", scale=STARS, shape=(14, 11), seed=0):
    """A table of biases, with every cell rated, and a third of it for testing."""
    generator = np.random.default_rng(seed)
    index = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 2)
    biases = [generator.standard_normal(size) for size in shape]
    values = 3 + sum(own[index[:, d]] for d, own in enumerate(biases)) / 1.5
    values = np.clip(np.rint(values), 1, 5)
    if scale.levels:
        levels = np.array(scale.levels)
        values = levels[np.abs(levels - values[:, None]).argmin(axis=1)]
    features = {0: generator.standard_normal((shape[0], 3))}
    tests = {"a": np.arange(0, len(index), 3), "b": np.arange(1, len(index), 3)}
    return Problem(name, index, values, shape, scale, tests, features)


QUICK = {"steps": 3, "evaluate_every": 1}


def test_parts_are_apart_and_the_seed_chooses_the_validation_cells_only():
    problem = small()
    parts = [problem.parts("a", seed) for seed in (0, 0, 1)]
    for train, validation, test in parts:
        assert sorted([*train, *validation, *test]) == list(range(len(problem.values)))
        assert test.tolist() == problem.tests["a"].tolist()
    assert parts[0][1].tolist() == parts[1][1].tolist() != parts[2][1].tolist()


def test_a_problem_goes_through_its_file(tmp_path, monkeypatch):
    problem = small("kept")
    problems.save(problem, tmp_path / "kept.npz")
    monkeypatch.setenv("EXCHANGEABLE_PAPER", str(tmp_path))
    again = problems.load("kept")
    assert (again.name, again.shape, again.scale) == ("kept", problem.shape, problem.scale)
    assert np.array_equal(again.index, problem.index)
    assert np.array_equal(again.values, problem.values)
    assert np.array_equal(again.features[0], problem.features[0])
    assert {k: v.tolist() for k, v in again.tests.items()} == {
        k: v.tolist() for k, v in problem.tests.items()
    }


@pytest.mark.parametrize("method", [*methods.METHODS, "bias"])
def test_every_method_runs(method):
    changed = {} if methods.is_baseline(method) else dict(QUICK)
    if method.startswith(("self", "factorized")):
        changed |= (
            {"width": 8} if method.startswith("self") else {"encoder": (8, 4), "decoder": (8,)}
        )
    else:
        changed |= {} if methods.is_baseline(method) else {"width": 8, "depth": 2}
    found = runs.run(small(), "a", method, 0, **changed)
    assert 0 < found["rmse"] < 3
    assert found["mse"] == pytest.approx(found["rmse"] ** 2)
    assert found["cells"] == len(small().tests["a"])
    assert json.loads(json.dumps(found))["seed"] == 0


@pytest.mark.parametrize(
    ("changed", "told"),
    [({"foo": 1}, "has no setting 'foo'"), ({"literal": False}, "with literal=True only")],
)
def test_settings_that_a_method_cannot_have_are_named(changed, told):
    with pytest.raises(InputError, match=told):
        methods.deep("self-supervised-elements", small(), 0, **changed)


def test_the_papers_models_are_as_printed_and_as_released():
    text = methods.deep("self-supervised-text", small(), 0)
    assert text.config == SelfSupervisedConfig.paper(5)
    assert (text.training.hide, text.training.hide_least) == ("flat", 0.15)
    assert methods.deep("factorized-released", small(), 0).config == FactorizedConfig.released(5)
    assert methods.deep("factorized-text", small(), 0).training.hide == "nothing"


def test_settings_are_changed_by_name_or_refused():
    made = methods.deep("ours", small(), 4, width=16, steps=7)
    assert isinstance(made.config, ResidualConfig)
    assert (made.config.width, made.training.steps, made.training.seed) == (16, 7, 4)
    with pytest.raises(InputError, match="no setting 'with'"):
        methods.deep("ours", small(), 0, **{"with": 1})
    with pytest.raises(InputError, match=r"a method is one of .*, but this is 'svd'"):
        methods.deep("svd", small(), 0)


BARE = """
import sys
for name in ("pandas", "polars", "pooch", "pyarrow", "safetensors", "sklearn", "typer"):
    sys.modules[name] = None  # so that importing it fails
from paper.figures import new_members, sampling
from paper.tables import lastfm, ml100k, transfer
ml100k.main()
"""


def test_tables_are_made_with_torch_numpy_and_scipy_alone(tmp_path, monkeypatch):
    tests = {f"u{number}": own for number, own in enumerate([small().tests["a"]] * 5, start=1)}
    problems.save(replace(small("ml-100k"), tests=tests), tmp_path / "ml-100k.npz")
    monkeypatch.setenv("EXCHANGEABLE_PAPER", str(tmp_path))
    changed = [f"{name}={value}" for name, value in {**QUICK, "width": 8, "depth": 2}.items()]
    options = ["--only", "bias", "ours", "--out", str(tmp_path / "out"), "--set", *changed]
    done = subprocess.run(
        [sys.executable, "-c", BARE, *options],
        cwd=runs.RESULTS.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ml-100k u5 ours seed 0: RMSE" in done.stdout
    assert len(runs.results(tmp_path / "out")) == 10


def test_what_is_missing_is_one_line(capsys):
    def main():
        raise InputError("no such table")

    with pytest.raises(SystemExit) as ended:
        run_command(main)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "no such table\n"


def test_test_cells_have_no_say_in_what_is_chosen():
    problem, changed = small(), {**QUICK, "width": 8, "depth": 2}
    values = problem.values.copy()
    values[problem.tests["a"]] = 6 - values[problem.tests["a"]]
    one = runs.run(problem, "a", "ours", 0, **changed)
    other = runs.run(replace(problem, values=values), "a", "ours", 0, **changed)
    assert one["history"] == other["history"]
    assert one["rmse"] != other["rmse"]


def test_a_run_is_kept_and_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(problems, "load", lambda name: small(name))
    first = runs.ensure("small", "a", "bias", 0, "cpu", folder=tmp_path)
    monkeypatch.setattr(runs, "run", lambda *_, **__: pytest.fail("was run again"))
    again = runs.ensure("small", "a", "bias", 0, "cpu", folder=tmp_path)
    assert again["rmse"] == first["rmse"]
    assert [one["method"] for one in runs.results(tmp_path)] == ["bias"]


def test_a_kept_run_has_a_line_for_each_entry(tmp_path):
    found = {"problem": "p", "split": "a", "method": "m", "seed": 0, "history": [[1, 0.9]] * 50}
    runs.keep(found, tmp_path)
    path = tmp_path / "p" / "a.m.0.json"
    assert json.loads(path.read_text()) == found
    assert len(path.read_text().splitlines()) == len(found) + 2
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [path]


@pytest.mark.parametrize("kind", ["distinct", "tied", "equal"])
def test_concordance_is_that_of_the_package(kind):
    generator = np.random.default_rng(0)
    truth = generator.integers(1, 6, 40).astype(float)
    answers = truth + generator.standard_normal(40)
    answers = {"distinct": answers, "tied": np.rint(answers), "equal": np.ones(40)}[kind]
    assert runs.concordance(truth, answers) == metrics.concordance(truth, answers)


def test_a_run_that_several_columns_show_is_carried_out_once(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(
        runs, "ensure", lambda *run, **_: asked.append(run) or {"rmse": 1.0, "seconds": 0.0}
    )
    given = Namespace(
        print=False, only=None, seeds=2, device="cpu", again=True, out=tmp_path, changed={}
    )
    columns = [
        Column("MSE", "small", ("a",), metric="mse"),
        Column("RMSE", "small", ("a",)),
        Column("splits", "small", ("a", "b")),
    ]
    rows = [Row("bias", [], "bias"), Row("first", [], "bmf", 1, first=True)]
    run_missing(given, columns, rows)
    runs_of_bias = [("a", 0), ("a", 1), ("b", 0)]
    assert asked == [
        *[("small", split, "bias", seed, "cpu") for split, seed in runs_of_bias],
        ("small", "a", "bmf", 0, "cpu"),
    ]
    assert len(capsys.readouterr().out.splitlines()) == len(asked)


def test_tables_show_what_there_is_and_dashes_elsewhere():
    column, other = Column("A", "small", ("a",)), Column("B", "small", ("b",), 2)
    found = [
        {"problem": "small", "split": "a", "method": "ours", "rmse": value, "commit": "1a2b3c4"}
        for value in (0.9, 1.0)
    ]
    row = Row("ours", [], "ours")
    assert figure(found, column, row) == "0.9500 ± 0.0707 (2)"
    assert figure(found, other, row) == "–"
    shown = format_table("T", [column, other], [Row("GC-MC", [0.91]), row], found)
    assert shown.splitlines()[2:] == [
        "| | A, published | here | B | commit |",
        "|---|---|---|---|---|",
        "| GC-MC | 0.91 | – | – | – |",
        "| ours | – | 0.9500 ± 0.0707 (2) | – | 1a2b3c4 |",
        "",
        "All runs are of the same code (1a2b3c4).",
    ]


def test_a_metric_is_shown_of_the_runs_that_have_it():
    column = Column("A", "small", ("a",), metric="validation")
    told = {"problem": "small", "split": "a", "method": "ours", "rmse": 0.9}
    row = Row("ours", [], "ours")
    assert figure([told], column, row) == "–"
    assert figure([told, {**told, "validation": 0.8}], column, row) == "0.8000"


def test_the_table_of_sampling_has_dashes_where_baselines_have_no_validation(
    capsys, monkeypatch, tmp_path
):
    kept = {"problem": "ml-100k", "split": "u1", "method": "bias", "seed": 0, "rmse": 0.96}
    runs.keep(kept, tmp_path)
    monkeypatch.setattr(sys, "argv", ["paper", "--print", "--out", str(tmp_path)])
    sampling.main()
    assert "| empirical-Bayes bias | 0.9600 | – | unknown |" in capsys.readouterr().out


@pytest.mark.parametrize("module", [ml100k, ml1m, flixster_douban_yahoo, davis_kiba])
def test_every_table_of_accuracies_has_the_yardsticks(module, capsys, monkeypatch, tmp_path):
    assert {"bias", "bmf"} <= {row.method for row in module.ROWS}
    known = {*methods.METHODS, *methods.YARDSTICKS, None}
    assert {row.method for row in module.ROWS} <= known
    monkeypatch.setattr(sys, "argv", ["paper", "--print", "--out", str(tmp_path)])
    module.main()
    assert "**ours**" in capsys.readouterr().out


def test_a_trial_cannot_pass_for_a_result(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["paper", "--set", "steps=1"])
    with pytest.raises(InputError, match="folder of their own"):
        ml100k.main()


def test_answers_in_stars_come_back_on_the_scale_of_the_table():
    half = Scale("levels", tuple(np.arange(0.5, 5.5, 0.5).tolist()))
    stars = Normal(torch.tensor([1.0, 3.0, 5.0]), torch.full((3,), 0.1))
    found = transferred.Rescaled(stars, half.levels[0], (half.levels[-1] - half.levels[0]) / 4)
    assert found.mean().tolist() == pytest.approx([0.5, 2.75, 5.0])


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A folder of its own, and small tables in place of all."""

    def load(name):
        problem = small(name)
        return replace(problem, tests={"u1": problem.tests["a"]})

    monkeypatch.setattr(problems, "load", load)
    monkeypatch.setattr(transferred, "WEIGHTS", tmp_path / "weights")
    transferred.trained.cache_clear()
    yield tmp_path / "weights"
    transferred.trained.cache_clear()


TRANSFERRED = {**QUICK, "width": 8, "depth": 2}


@pytest.mark.parametrize("method", ["ours", "factorized-released"])
def test_weights_from_their_folder_answer_and_tell_the_same(method, weights, tmp_path):
    changed = TRANSFERRED if method == "ours" else {**QUICK, "encoder": (8, 4), "decoder": (8,)}
    given = Namespace(out=tmp_path / "out", device="cpu", again=True, changed=changed)
    told = []
    for _ in range(2):
        transferred.trained.cache_clear()
        transfer.ensure("elsewhere", f"{method}-transferred", 0, given)
        path = runs.place_of("elsewhere", "u1", f"{method}-transferred", 0, given.out)
        told.append(json.loads(path.read_text(), parse_constant=pytest.fail))
    # Under a name that tells what was changed, so that no trial passes for the real one.
    (place,) = weights.iterdir()
    assert place.name.startswith(f"{method}.0.")
    assert all(f"{name}={value}" in place.name for name, value in changed.items())
    assert told[0] == told[1]
    assert 0 < told[1]["validation"] < 3
    assert [step for step, _ in told[1]["history"]] == [0, 1, 2, 3]


def test_weights_are_loaded_once_for_all_shares(weights, monkeypatch):
    transferred.trained("ours", 0, "cpu", **TRANSFERRED)
    transferred.trained.cache_clear()
    loaded, load = [], TrainedModel.load
    monkeypatch.setattr(TrainedModel, "load", lambda path: loaded.append(path) or load(path))
    for share in (30, 60):
        found = new_members.run(small(), share, "ours-transferred", 0, "cpu", **TRANSFERRED)
        assert 0 < found["rmse"] < 3
    assert loaded == list(weights.iterdir())


def test_a_watched_run_is_the_same_run_with_errors_on_test_cells_beside(monkeypatch):
    """Looking at test cells changes nothing, and the errors that are noted are those of the run."""
    monkeypatch.setitem(watched.MEMBERS, "small", (8, 8))
    problem, quick = small(), {**QUICK, "encoder": (8, 4), "decoder": (8,), "steps": 12}
    made = methods.deep("factorized-released", problem, 0, **quick)
    found, model = watched.watched_run(problem, made, "a", 0, "cpu")
    plain = runs.run(problem, "a", "factorized-released", 0, **quick)
    assert found["rmse"] == pytest.approx(plain["rmse"], abs=1e-7)
    assert found["validation"] == pytest.approx(plain["validation"], abs=1e-7)
    steps, _, tests = zip(*found["watched"], strict=True)
    assert list(steps) == list(range(13))
    assert found["rmse_by_test"] == min(tests)
    assert tests[found["best_step"]] == pytest.approx(found["rmse"], abs=1e-4)
    assert found["rmse_by_test"] <= found["rmse"] + 1e-5
    drawn = watched.drawn_first(problem, problem.tests["a"], 0)
    assert 0.95 <= len(drawn) / len(problem.tests["a"]) <= 1
    assert np.isfinite(found["rmse_sampled"])
    assert not model.training
