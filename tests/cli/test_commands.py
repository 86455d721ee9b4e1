"""The commands: what they say, what they write, and that bad use writes nothing."""

import datetime
import json
import re
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from exchangeable.cli import app
from exchangeable.completion.completer import Completer
from exchangeable.data.table import Table
from exchangeable.datasets import load

CSV = """user,film,rating
ann,Heat,5
ann,Alien,4
bob,Heat,2
bob,Big,1
cleo,Big,
cleo,Alien,3
bob,Alien,
dora,Heat,4
dora,Big,2
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ratings.csv").write_text(CSV)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def test_complete_fills_what_is_empty_and_keeps_the_rest(here):
    result = done("complete", "ratings.csv")
    assert "7 cells of 4 user x 3 film" in result.output
    assert "predicted 2 cells, written to ratings.completed.csv" in result.output
    frame = pl.read_csv(here / "ratings.completed.csv")
    assert frame.columns == ["user", "film", "rating", "low", "high"]
    assert frame["rating"].to_list()[:4] == [5, 4, 2, 1]
    filled = frame.filter(pl.col("low").is_not_null())
    assert filled.select("user", "film").rows() == [("cleo", "Big"), ("bob", "Alien")]
    assert (filled["low"] <= filled["rating"]).all()
    assert (filled["rating"] <= filled["high"]).all()


def test_the_command_and_python_give_the_same_answers(here):
    done("complete", "ratings.csv", "--model", "bias")
    frame = pl.read_csv(here / "ratings.completed.csv").filter(pl.col("low").is_not_null())
    completer = Completer("bias").fit_table(Table.read("ratings.csv"))
    cells = frame.select("user", "film")
    np.testing.assert_array_equal(frame["rating"].to_numpy(), completer.predict(cells))
    np.testing.assert_array_equal(
        frame.select("low", "high").to_numpy(), completer.predict_interval(cells)
    )
    import exchangeable

    whole = exchangeable.complete(pl.read_csv("ratings.csv"), model="bias")
    assert whole["rating"].to_list() == pl.read_csv("ratings.completed.csv")["rating"].to_list()


def test_shuffled_rows_and_parquet_give_the_same_answers(here):
    frame = pl.read_csv("ratings.csv")
    frame.sample(fraction=1, shuffle=True, seed=3).write_csv("shuffled.csv")
    frame.write_parquet("ratings.parquet")
    for name in ("ratings.csv", "shuffled.csv", "ratings.parquet"):
        done("complete", name, "--out", "out.csv", "--force")
        found = pl.read_csv("out.csv").sort("user", "film")
        if name == "ratings.csv":
            expected = found
        assert found.equals(expected), name


def test_complete_answers_queries_in_their_order_also_of_strangers(here):
    (here / "asked.csv").write_text("film,user\nBig,ann\nNew,ann\nBig,ann\nHeat,stranger\n")
    done("complete", "ratings.csv", "--queries", "asked.csv", "--out", "answers.csv")
    frame = pl.read_csv("answers.csv")
    assert frame.select("user", "film").rows() == [
        ("ann", "Big"),
        ("ann", "New"),
        ("ann", "Big"),
        ("stranger", "Heat"),
    ]
    assert frame["rating"][0] == frame["rating"][2]
    assert frame["low"].null_count() == 0


def test_queries_of_numbers_find_their_members_even_beside_one_that_is_none(here):
    (here / "numbers.csv").write_text("user,film,rating\n1,10,5\n1,11,4\n2,10,2\n2,12,1\n3,11,3\n")
    (here / "plain.csv").write_text("1,12\n3,10\n")
    (here / "mixed.csv").write_text("1,12\n3,10\nabc,10\n007,11\n")
    vmf = ("--model", "vmf")  # in which the last digits do not depend on what else is asked
    done("complete", "numbers.csv", "--queries", "plain.csv", "--out", "a.csv", *vmf)
    done("complete", "numbers.csv", "--queries", "mixed.csv", "--out", "b.csv", *vmf)
    one, two = pl.read_csv("a.csv"), pl.read_csv("b.csv", schema_overrides={"user": pl.String})
    assert one["rating"].to_list() == two["rating"].to_list()[:2]
    assert two["user"].to_list() == ["1", "3", "abc", "007"]


def test_all_writes_every_cell_and_refuses_too_many(here):
    done("complete", "ratings.csv", "--all", "--out", "all.parquet")
    frame = pl.read_parquet("all.parquet")
    assert len(frame) == 12
    assert frame["low"].null_count() == 7  # the observed ones
    refused = run("complete", "ratings.csv", "--all", "--limit", "11", "--out", "more.csv")
    assert refused.exit_code == 2
    assert "12" in refused.output
    assert not (here / "more.csv").exists()


def test_a_table_with_nothing_to_fill_says_how_to_ask(here):
    (here / "full.csv").write_text("user,film,rating\na,x,1\nb,y,2\n")
    result = run("complete", "full.csv")
    assert result.exit_code == 2
    assert "--queries" in result.output
    assert "--all" in result.output


def test_nothing_is_overwritten_without_force(here):
    (here / "ratings.completed.csv").write_text("precious")
    result = run("complete", "ratings.csv")
    assert result.exit_code == 2
    assert "--force" in result.output
    assert (here / "ratings.completed.csv").read_text() == "precious"
    done("complete", "ratings.csv", "--force")
    assert (here / "ratings.completed.csv").read_text() != "precious"


def test_json_is_one_object_and_nothing_else(here):
    for arguments in (
        ("complete", "ratings.csv"),
        ("recommend", "ratings.csv", "ann"),
        ("factorize", "film-club"),
        ("evaluate", "film-club", "--models", "mean", "--split", "random"),
        ("doctor",),
        ("data", "describe", "ratings.csv"),
    ):
        facts = json.loads(done(*arguments, "--json").stdout)
        assert isinstance(facts, dict)


def test_the_report_is_one_page_that_asks_for_nothing_from_elsewhere(here):
    done("complete", "film-club", "--all", "--out", "c.csv", "--report", "report.html")
    page = (here / "report.html").read_text()
    assert page.count("<section>") == 4
    assert page.count("data:image/png;base64,") == 2
    assert not re.search(r"(src|href)=\"http", page)
    assert "<script" not in page
    for row in ("bias", "bmf", "pretrained"):
        assert f"<td>{row}</td>" in page
    assert "least sure" in page


def test_labels_in_a_report_are_text_and_never_markup(here):
    lines = ["user,film,rating"]
    for u in range(8):
        lines += [f"<b>u{u}</b>,f{i},{1 + (u + i) % 5}" for i in range(6)]
    (here / "evil.csv").write_text("\n".join(lines) + "\n<b>u0</b>,new,\n")
    done("complete", "evil.csv", "--report", "evil.html")
    assert "<b>" not in (here / "evil.html").read_text()


def test_recommend_for_known_and_new_members(here):
    known = done("recommend", "film-club", "Ada Abt", "-n", "3")
    listed = [line for line in known.output.splitlines() if " to " in line and "(" in line]
    assert len(listed) == 3
    new = done("recommend", "film-club", "Nobody", "-n", "2", "--rate", "Heat=5", "--json")
    facts = json.loads(new.stdout)
    assert facts["member"] == "Nobody"
    assert "Heat" not in [row["film"] for row in facts["recommended"]]


def test_recommend_on_three_axes_with_one_of_them_given(here):
    found = done(
        "recommend", "film-club-evenings", "Ada Abt", "--given", "occasion=alone", "--json"
    )
    rows = json.loads(found.stdout)["recommended"]
    assert {row["occasion"] for row in rows} == {"alone"}


def test_factorize_names_neighbours_of_every_axis(here):
    result = done("factorize", "film-club", "--neighbours", "2")
    assert "is nearest to" in result.output
    frame = pl.read_csv("film-club.factors.csv")
    assert frame["axis"].value_counts().sort("axis")["count"].to_list() == [120, 200]
    assert all(len(near.split("; ")) == 2 for near in frame["nearest"])


def trained(here, *more):
    arguments = ("--steps", "6", "--width", "8", "--depth", "2", "--evaluate-every", "3")
    return run("train", "film-club", "--out", "model", *arguments, *more)


def test_a_trained_model_is_used_by_the_other_commands(here):
    result = trained(here)
    assert result.exit_code == 0, result.output
    assert "a step takes about" in result.output
    assert "saved in model" in result.output
    assert (here / "model" / "README.md").read_text().startswith("# residual")
    done("complete", "ratings.csv", "--model", "model")
    done("factorize", "film-club", "--model", "model")
    done("evaluate", "film-club", "--models", "model,mean", "--out", "e.json")
    done("finetune", "model", "film-club", "--out", "finer", "--steps", "4")
    again = json.loads(trained(here, "--resume", "--json").stdout)
    assert again["steps"] == 6


def test_resuming_from_nothing_starts_and_a_started_one_is_not_replaced(here):
    assert "this is its start" in trained(here, "--resume").output
    refused = trained(here)
    assert refused.exit_code == 2
    assert "--resume" in refused.output
    assert trained(here, "--force").exit_code == 0


def test_features_of_members_reach_the_training(here):
    films = load("film-club").table.vocabularies[1].labels
    pl.DataFrame({"film": films, "length": np.linspace(80, 200, len(films))}).write_csv("f.csv")
    assert trained(here, "--features", "film=f.csv").exit_code == 0
    with_features = json.loads((here / "model" / "config.json").read_text())
    assert with_features["model"]["features"] == [0, 1]
    given = ("--model", "model", "--features", "film=f.csv")
    done("complete", "film-club", "--all", *given, "--report", "r.html")
    assert run("complete", "film-club", "--all", "--model", "model", "--force").exit_code == 2


def test_evaluate_prints_writes_and_draws_with_the_yardsticks(here):
    result = done("evaluate", "film-club", "--models", "mean,vmf", "--seeds", "0,1")
    for row in ("mean", "vmf", "bias", "bmf", "RMSE", "±"):
        assert row in result.output
    facts = json.loads((here / "film-club.random.json").read_text())
    assert [row["model"] for row in facts["models"]] == ["mean", "vmf", "bias", "bmf"]
    assert (here / "film-club.random.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("split", ["new-rows", "new-columns", "new-both"])
def test_evaluate_for_members_that_are_new(here, split):
    done("evaluate", "film-club", "--models", "vmf", "--split", split, "--out", "e.json")
    facts = json.loads((here / "e.json").read_text())
    rmse = {row["model"]: row["rmse"]["mean"] for row in facts["models"]}
    assert 0.3 < rmse["vmf"] < 1.2


def test_doctor_finds_all_well(here):
    result = done("doctor")
    assert "all checks passed" in result.output
    assert "torch" in result.output
    assert "FAIL" not in result.output


def test_dates_are_labels_and_equals_signs_may_stand_in_them(here):
    days = [datetime.date(2026, 1, day) for day in (1, 2, 3)]
    cells = [(u, d, f"k={n}") for u in ("a", "b", "c") for n, d in enumerate(days)][:-1]
    frame = pl.DataFrame(cells, schema=["user", "day", "tag"], orient="row")
    frame.with_columns(rating=pl.Series(range(1, 9))).write_parquet("d.parquet")
    named = ("--axes", "user,day,tag", "--value", "rating")
    found = done("recommend", "d.parquet", "c", *named, "--given", "tag=k=2", "--json")
    assert "2026-01-03" in found.stdout


def test_a_stranger_is_called_one(here):
    assert "zoe is not in the table" in done("recommend", "ratings.csv", "zoe").output


def test_wrong_options_are_one_line_too():
    for arguments in (["complete"], ["complete", "x.csv", "--bogus"], ["nosuch"], ["train", "x"]):
        done = subprocess.run(
            [sys.executable, "-m", "exchangeable", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


def test_queries_without_a_header_are_read(here):
    (here / "numbers.csv").write_text("user,film,rating\n1,1,5\n1,2,4\n2,1,2\n3,2,3\n")
    for content, rows in (("1,1\n3,2\n", 2), ("2,2\n", 1), ("3,1\n1,2\n2,2\n", 3)):
        (here / "asked.csv").write_text(content)
        done("complete", "numbers.csv", "--queries", "asked.csv", "--out", "o.csv", "--force")
        assert len(pl.read_csv("o.csv")) == rows


def test_labels_that_are_typed_are_those_of_the_table_whatever_their_type(here):
    days = pl.Series([datetime.date(2026, 1, day) for day in (1, 1, 2, 3)])
    tables = {
        "days": (days, "2026-01-01"),
        "floats": (pl.Series([1.5, 1.5, 2.0, 3.0]), "1.5"),
        "bools": (pl.Series([True, True, False, False]), "true"),
    }
    for name, (labels, asked) in tables.items():
        films = ["x", "y", "x", "y"] if name != "bools" else ["x", "y", "x", "z"]
        frame = pl.DataFrame({"user": labels, "film": films, "rating": [1.0, 2.0, 5.0, 3.0]})
        frame.write_parquet(f"{name}.parquet")
        told = done("recommend", f"{name}.parquet", asked, "--model", "mean").output
        assert "not in the table" not in told, name


def test_a_completer_made_from_lists_recommends_by_name(here):
    Completer().fit([("ann", "Heat"), ("bob", "Big"), ("bob", "Heat")], [5, 1, 2]).save("club")
    found = json.loads(done("recommend", "club", "ann", "--json").stdout)["recommended"]
    assert [row["column 2"] for row in found] == ["Big"]


def test_a_link_stays_a_link(here):
    (here / "target.csv").write_text("old")
    (here / "link.csv").symlink_to("target.csv")
    done("complete", "ratings.csv", "--out", "link.csv", "--force")
    assert (here / "link.csv").is_symlink()
    assert (here / "target.csv").read_text().startswith("user,film")


def test_files_of_others_in_a_model_folder_are_kept(here):
    assert trained(here).exit_code == 0
    (here / "model" / "notes.txt").write_text("mine")
    assert trained(here, "--force").exit_code == 0
    assert (here / "model" / "notes.txt").read_text() == "mine"


def test_a_table_without_some_levels_is_answered_on_the_scale_of_the_model(here):
    assert trained(here).exit_code == 0
    (here / "high.csv").write_text("m,f,rating\na,x,3\na,y,4\nb,x,5\nb,y,\n")
    done("complete", "high.csv", "--model", "model", "--out", "o.csv")
    assert 1 <= pl.read_csv("o.csv")["rating"][3] <= 5


BAD = [
    ("complete", "ratings.csv", "--queries", "half-named.csv"),
    ("complete", "ratings.csv", "--report", "o.csv", "--out", "o.csv"),
    ("complete", "huge.csv"),
    ("complete", "ratings.csv", "--out", "x" * 230 + ".csv"),
    ("complete", "/dev/null"),
    ("train", "ratings.csv", "--out", "model", "--seed", "99999999999999999999"),
    ("train", "ratings.csv", "--out", "model", "--learning-rate", "inf"),
    ("factorize", "film-club", "--model", "bias"),
    ("evaluate", "film-club", "--models", "self-supervised", "--out", "e.json"),
    ("train", "film-club", "--recipe", "self-supervised", "--out", "m"),
    ("complete", "ratings.csv", "--model", "self-supervised"),
    ("evaluate", "film-club", "--models", "residual,vfm", "--out", "e.json"),
    ("complete", "missing.csv"),
    ("complete", "."),
    ("complete", "ratings.csv", "--model", "deep"),
    ("complete", "ratings.csv", "--model", "./nowhere"),
    ("complete", "ratings.csv", "--out", "no/such/folder.csv"),
    ("complete", "ratings.csv", "--out", "answers.xlsx"),
    ("complete", "ratings.csv", "--out", "."),
    ("complete", "ratings.csv", "--queries", "missing.csv"),
    ("complete", "ratings.csv", "--queries", "one-column.csv"),
    ("complete", "ratings.csv", "--queries", "ratings.csv", "--all"),
    ("complete", "ratings.csv", "--device", "abacus"),
    ("complete", "ratings.csv", "--seed", "-1"),
    ("complete", "ratings.csv", "--axes", "user"),
    ("complete", "ratings.csv", "--axes", "user,studio"),
    ("complete", "ratings.csv", "--scale", "wide"),
    ("complete", "film-club", "--axes", "a,b"),
    ("complete", "ratings.csv", "--report", "no/such/report.html"),
    ("complete", "empty-values.csv"),
    ("recommend", "ratings.csv", "ann", "-n", "0"),
    ("recommend", "ratings.csv", "ann", "--rate", "Heat"),
    ("recommend", "ratings.csv", "ann", "--rate", "Heat=good"),
    ("recommend", "ratings.csv", "ann", "--rate", "Heat=17"),
    ("recommend", "ratings.csv", "ann", "--axis", "studio"),
    ("recommend", "ratings.csv", "ann", "--axis", "9"),
    ("recommend", "ratings.csv", "ann", "--given", "film"),
    ("recommend", "ratings.csv", "ann", "--given", "studio=x"),
    ("recommend", "missing.csv", "ann"),
    ("recommend", "folder", "ann"),
    ("factorize", "ratings.csv", "--model", "mean"),
    ("factorize", "ratings.csv", "--neighbours", "-1"),
    ("train", "missing.csv", "--out", "model"),
    ("train", "ratings.csv", "--out", "ratings.csv"),
    ("train", "ratings.csv", "--out", "folder"),
    ("train", "ratings.csv", "--out", "model", "--recipe", "deep"),
    ("train", "ratings.csv", "--out", "model", "--steps", "-1"),
    ("train", "ratings.csv", "--out", "model", "--batch", "half"),
    ("train", "ratings.csv", "--out", "model", "--learning-rate", "0"),
    ("train", "ratings.csv", "--out", "model", "--encoding", "binary"),
    ("train", "ratings.csv", "--out", "model", "--width", "0"),
    ("train", "ratings.csv", "--out", "model", "--precision", "int8"),
    ("train", "ratings.csv", "--out", "model", "--validation", "1.5"),
    ("train", "ratings.csv", "--out", "model", "--features", "film"),
    ("train", "ratings.csv", "--out", "model", "--features", "film=missing.csv"),
    ("train", "ratings.csv", "--out", "model", "--features", "studio=ratings.csv"),
    ("train", "ratings.csv", "--out", "model", "--split", "u1"),
    ("train", "ratings.csv", "--out", "model", "--recipe", "factorized", "--width", "8"),
    ("finetune", "nowhere", "ratings.csv", "--out", "model"),
    ("evaluate", "ratings.csv", "--models", "deep", "--out", "e.json"),
    ("evaluate", "ratings.csv", "--models", ",", "--out", "e.json"),
    ("evaluate", "ratings.csv", "--split", "sideways", "--out", "e.json"),
    ("evaluate", "ratings.csv", "--split", "time", "--out", "e.json"),
    ("evaluate", "ratings.csv", "--seeds", "one", "--out", "e.json"),
    ("evaluate", "ratings.csv", "--test", "1.5", "--out", "e.json"),
    ("evaluate", "ratings.csv", "--test", "0", "--out", "e.json"),
    ("evaluate", "ratings.csv", "--out", "e.txt"),
    ("doctor", "--device", "abacus"),
    ("complete", "ratings.csv", "--device", "meta"),
]


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_use_is_one_line_and_exit_2_and_writes_nothing(here, arguments):
    (here / "one-column.csv").write_text("user\nann\n")
    (here / "empty-values.csv").write_text("user,film,rating\na,x,\nb,y,\n")
    (here / "half-named.csv").write_text("film,note\nHeat,hello\n")
    (here / "huge.csv").write_text("user,film,rating\na,x,1e200\nb,y,2\nb,x,\n")
    (here / "folder").mkdir()
    (here / "folder" / "note.txt").write_text("mine")
    before = sorted(str(path) for path in here.rglob("*"))
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("error: ")
    assert sorted(str(path) for path in here.rglob("*")) == before


def test_a_disk_that_is_full_is_told_in_one_line_and_leaves_nothing(here):
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)); "
        "sys.argv = ['exchangeable', 'complete', 'film-club', '--all', '--model', 'mean']; "
        "from exchangeable.cli import run; run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: film-club.completed.csv could not be written")
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in here.iterdir()) == ["ratings.csv"]
