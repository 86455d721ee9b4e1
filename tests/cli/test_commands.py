"""The commands: what they say, what they write, and that bad use writes nothing."""

import json
import re
import subprocess
import sys
import typing

import pytest
from tests.support.commands import done, run

from exchangeable import __version__
from exchangeable.baselines import BASELINES
from exchangeable.cli.options import Model
from exchangeable.training.recipes import RECIPES


def test_the_version_is_printed_before_anything_heavy_is_loaded():
    assert done("--version").output == f"exchangeable {__version__}\n"
    code = (
        "import sys; sys.argv = ['exchangeable', '--version']\n"
        "from exchangeable.cli import run\n"
        "try: run()\n"
        "finally: assert not {'torch', 'polars', 'numpy', 'fastapi'} & set(sys.modules)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == f"exchangeable {__version__}\n"


def test_the_help_of_the_whole_command_fits_one_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = done("--help").output
    names = "complete recommend similar explain suggest factorize train finetune pretrain evaluate"
    for name in (*names.split(), "serve", "doctor", "data", "--version"):
        assert f" {name} " in text
    assert len(text.splitlines()) <= 30


def test_the_help_on_models_names_all_of_them():
    (text,) = typing.get_args(Model)[1:]
    names = re.findall(r"[a-z][a-z-]+", text.help)
    assert {"auto", "pretrained", *BASELINES, *RECIPES} <= set(names)


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
        ("recommend", "ratings.csv", "ann", "bob"),
        ("similar", "ratings.csv", "ann"),
        ("explain", "ratings.csv", "ann", "Big"),
        ("suggest", "ratings.csv"),
        ("factorize", "film-club"),
        ("evaluate", "film-club", "--models", "mean", "--split", "random"),
        ("doctor",),
        ("data", "describe", "ratings.csv"),
    ):
        facts = json.loads(done(*arguments, "--json").stdout)
        assert isinstance(facts, dict)


def test_wrong_options_are_one_line_too():
    for arguments in (["complete"], ["complete", "x.csv", "--bogus"], ["nosuch"], ["train", "x"]):
        process = subprocess.run(
            [sys.executable, "-m", "exchangeable", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 2
        assert process.stderr.startswith("error: ")
        assert process.stderr.count("\n") == 1


def test_a_link_stays_a_link(here):
    (here / "target.csv").write_text("old")
    (here / "link.csv").symlink_to("target.csv")
    done("complete", "ratings.csv", "--out", "link.csv", "--force")
    assert (here / "link.csv").is_symlink()
    assert (here / "target.csv").read_text().startswith("user,film")


BAD = [
    ("complete", "ratings.csv", "--queries", "half-named.csv"),
    ("complete", "ratings.csv", "--report", "o.csv", "--out", "o.csv"),
    ("complete", "huge.csv"),
    ("complete", "ratings.csv", "--out", "x" * 230 + ".csv"),
    ("complete", "/dev/null"),
    ("train", "ratings.csv", "--out", "model", "--seed", "99999999999999999999"),
    ("train", "ratings.csv", "--out", "model", "--learning-rate", "inf"),
    ("factorize", "film-club", "--model", "bias"),
    ("evaluate", "film-club", "--models", "self-supervised-paper", "--out", "e.json"),
    ("train", "film-club", "--model", "self-supervised-paper", "--out", "m"),
    ("complete", "ratings.csv", "--model", "self-supervised-paper"),
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
    ("complete", "ratings.csv", "--limit", "-3"),
    ("complete", "ratings.csv", "--all", "--limit", "0"),
    ("complete", "ratings.csv", "--separator", ""),
    ("complete", "ratings.csv", "--axes", ""),
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
    ("recommend", "ratings.csv", "zed", "--rate", "Heat=nan"),
    ("recommend", "ratings.csv", "zed", "--rate", "Heat=inf"),
    ("recommend", "ratings.csv", "ann", "--axis", "studio"),
    ("recommend", "ratings.csv", "ann", "--axis", "9"),
    ("recommend", "ratings.csv", "ann", "--given", "film"),
    ("recommend", "ratings.csv", "ann", "--given", "studio=x"),
    ("recommend", "missing.csv", "ann"),
    ("suggest", "ratings.csv", "-n", "0"),
    ("suggest", "ratings.csv", "--goal", "bst"),
    ("suggest", "ratings.csv", "--among", "missing.csv"),
    ("suggest", "film-club-evenings"),
    ("recommend", "folder", "ann"),
    ("explain", "ratings.csv", "ann"),
    ("explain", "ratings.csv", "ann", "Heat", "Big"),
    ("explain", "ratings.csv", "zed", "Heat"),
    ("explain", "ratings.csv", "ann", "Heat", "-n", "0"),
    ("explain", "ratings.csv", "ann", "Heat", "--axis", "studio"),
    ("explain", "missing.csv", "ann", "Heat"),
    ("factorize", "ratings.csv", "--model", "mean"),
    ("factorize", "ratings.csv", "--neighbours", "-1"),
    ("train", "missing.csv", "--out", "model"),
    ("train", "ratings.csv", "--out", "ratings.csv"),
    ("train", "ratings.csv", "--out", "folder"),
    ("train", "ratings.csv", "--out", "model", "--recipe", "deep"),
    ("train", "ratings.csv", "--out", "model", "--steps", "-1"),
    ("train", "ratings.csv", "--out", "model", "--batch", "half"),
    ("train", "ratings.csv", "--out", "model", "--learning-rate", "0"),
    ("train", "ratings.csv", "--out", "model", "--value-encoding", "binary"),
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
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert process.stderr.startswith("error: film-club.completed.csv could not be written")
    assert process.stderr.count("\n") == 1
    assert sorted(path.name for path in here.iterdir()) == ["ratings.csv"]
