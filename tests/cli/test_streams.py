"""Standard input and output in the place of files, and errors in the words of the command."""

import gzip
import io
import pickle
import re
import subprocess
import sys

import polars as pl
import pytest
from tests.support.commands import run
from typer.testing import CliRunner

from exchangeable.cli import app
from exchangeable.cli.output import with_options
from exchangeable.errors import Failed, InputError, InputWarning, Note, option, where_offered

CSV = "user;film;rating\nann;Heat;3,5\nann;Big;4\nbob;Heat;2\nbob;Big;NA\n"


def pipe(content, *arguments):
    return CliRunner().invoke(app, list(arguments), input=content)


PACKED = gzip.compress(CSV.encode(), mtime=0)


@pytest.mark.parametrize("content", [CSV.encode(), PACKED], ids=["plain", "packed"])
def test_a_table_from_standard_input_is_completed_on_standard_output(here, content):
    result = pipe(content, "complete", "-", "--model", "mean")
    assert result.exit_code == 0, result.stderr
    frame = pl.read_csv(io.BytesIO(result.stdout_bytes))
    assert frame.columns == ["user", "film", "rating", "low", "high"]
    assert frame["rating"].to_list()[:3] == [3.5, 4.0, 2.0]
    assert frame["rating"][3] == pytest.approx(19 / 6)
    assert "1 value written as NA, read as missing" in result.stderr
    assert "written to standard output" in result.stderr
    assert [path.name for path in here.iterdir()] == ["ratings.csv"]


def test_a_file_is_completed_on_standard_output_and_standard_input_into_a_file(here):
    result = run("complete", "ratings.csv", "--model", "mean", "--out", "-")
    assert result.stdout.startswith("user,film,rating,low,high\nann,Heat,5.0,,\n")
    assert result.stdout.count("\n") == 10
    result = pipe(CSV, "complete", "-", "--model", "mean", "--out", "out.csv")
    assert "written to out.csv" in result.stdout
    assert pl.read_csv(here / "out.csv").height == 4


def test_a_reader_that_closes_standard_output_ends_the_command_quietly(here):
    arguments = ("complete", "film-club", "--all", "--model", "mean", "--out", "-")
    with subprocess.Popen(
        [sys.executable, "-m", "exchangeable", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        told = process.stderr.read()
    assert process.returncode == 1
    assert "cells of 200 member" in told
    assert told.count("\n") == 1


def test_json_and_the_table_cannot_both_be_printed(here):
    result = pipe(CSV, "complete", "-", "--json")
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (2, 1, "")
    assert "name an --out" in result.stderr


def test_other_commands_read_standard_input(here):
    assert "3 cells of 2 user x 2 film" in pipe(CSV, "data", "describe", "-").stdout
    assert "Big" in pipe(CSV, "recommend", "-", "bob", "--model", "mean").stdout
    result = pipe(CSV, "factorize", "-", "--model", "vmf")
    assert result.stdout.startswith("axis,member,")
    assert "computed vectors of 4 members, written to standard output" in result.stderr
    result = pipe((here / "ratings.csv").read_bytes(), "evaluate", "-", "--models", "mean")
    assert result.exit_code == 0, result.stderr
    assert (here / "stdin.random.json").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "standard input: the file is empty"), ("user,film,rating\na,x,b\n", "line 2: a number")],
)
def test_errors_about_standard_input_are_one_line(here, content, message):
    result = pipe(content, "complete", "-")
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (2, 1, "")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["complte", "x.csv"], "'complete'"),
        (["complete", "x.csv", "--axs", "a,b"], "--axes"),
        (["complete", "ratings.csv", "--model", "pretraind"], "did you mean 'pretrained'?"),
        (["data", "fetch", "ml-100"], "did you mean 'ml-100k'?"),
        (["data", "describe", "ratngs.csv"], "did you mean 'ratings.csv'?"),
        (["train", "ratings.csv", "--out", "m", "--recipe", "factorised"], "'factorized'?"),
        (["complete", "ratings.csv", "--log"], "--units log"),
        (["complete", "ratings.csv", "--duplicates", "summ"], "did you mean 'sum'?"),
        (["complete", "ratings.csv", "--scale", "level"], "did you mean 'levels'?"),
        (["complete", "ratings.csv", "--scale", "real", "--units", "usr"], "did you mean 'user'?"),
        (["complete", "ratings.csv", "--features", "flim=ratings.csv"], "did you mean 'film'?"),
        (["suggest", "ratings.csv", "--goal", "bst"], "did you mean 'best'?"),
        (["recommend", "ratings.csv", "ann", "--axis", "usr"], "did you mean 'user'?"),
        (["recommend", "ratings.csv", "ann", "--among", "Alein"], "did you mean 'Alien'?"),
    ],
)
def test_a_misspelt_word_is_followed_by_the_closest_one(here, arguments, message):
    process = subprocess.run(
        [sys.executable, "-m", "exchangeable", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert message in process.stderr


@pytest.mark.parametrize(
    ("message", "python", "command"),
    [
        (
            f"choose {option('axes', ('user', 'a b'))}, or",
            "axes=('user', 'a b')",
            "--axes 'user,a b'",
        ),
        (f"choose {option('all', True)} for all", "all=True", "--all"),
        (f"raise {option('limit')}, or another", "limit=", "--limit"),
        (f"({option('batch_cells', 20000)})", "batch_cells=20000", "--batch-cells 20000"),
        (f"takes {option('axes', ('a(b)', 'c'))}", "axes=('a(b)', 'c')", "--axes 'a(b),c'"),
        (f"{option('missing', 'it is')} reads", "missing='it is'", "--missing 'it is'"),
        ("line 2: this is value=3, axes=('a', 'b')", "value=3, axes=('a', 'b')", None),
        (f"missing {option('missing', chr(0xFDD1))}", "missing='\\ufdd1'", "--missing ''"),
    ],
)
def test_options_in_errors_and_notes_are_named_as_where_they_are_read(message, python, command):
    for kind in (
        InputError,
        Failed,
        InputWarning,
        Note,
        lambda text: pickle.loads(pickle.dumps(InputError(text))),
    ):
        named = kind(message)
        assert python in str(named)
        assert with_options(named) == str(named).replace(python, command or python)
        assert not re.search("[\ufdd0-\ufdd3]", str(named))


def test_what_is_not_offered_is_left_out():
    note = Note(f"nothing to fill{where_offered('; choose ' + option('unheard_of', 3))}.")
    assert note == "nothing to fill; choose unheard_of=3."
    assert with_options(note) == "nothing to fill."
