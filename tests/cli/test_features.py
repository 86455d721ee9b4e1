"""Features of members and times of cells, as the commands take them."""

import gzip
import json

import numpy as np
import polars as pl
import pytest
from tests.support.commands import done, run

from exchangeable.cli.features import read_features
from exchangeable.data.table import Table

PRETRAINED = ("--model", "pretrained")
FILMS = pl.DataFrame(
    {
        "title": [f"f{i}" for i in range(18)],
        "genre": ["crime" if i % 2 else "comedy" for i in range(18)],
        "year": [1980 + i for i in range(18)],
        "released": [f"{1980 + i}-05-01" for i in range(18)],
    }
)
"""Of which f16 and f17 have no rating."""


@pytest.fixture
def club(here):
    """Ratings that the film's genre decides: one half of the users likes crime, one comedy."""
    lines = ["user,film,rating,timestamp"]
    for u in range(24):
        films = [i for i in range(16) if (u + i) % 3]
        lines += [f"u{u},f{i},{4 + i % 2 if (u + i) % 2 else 1 + u % 2},{100 * i}" for i in films]
    (here / "club.csv").write_text("\n".join(lines) + "\n")
    FILMS.write_csv("films.csv")
    return here


def test_files_of_any_kind_hold_the_same_features(club):
    FILMS.write_csv("films.tsv", separator="\t")
    dated = FILMS.with_columns(pl.col("released").str.to_datetime())
    dated.write_parquet("films.parquet")
    (club / "films.csv.gz").write_bytes(gzip.compress((club / "films.csv").read_bytes()))
    (club / "blank.csv").write_text((club / "films.csv").read_text().replace("\n", "\n\n"))
    (club / "films.dat").write_text((club / "films.csv").read_text().replace(",", "::"))
    table = Table.read("club.csv")
    expected = dated.with_columns(pl.col("year").cast(pl.Float64))
    for ending in ("csv", "tsv", "csv.gz", "dat"):
        frame = read_features([f"film=films.{ending}"], table)["film"]
        assert frame.equals(expected), ending
    assert read_features(["film=blank.csv"], table)["film"].equals(expected)
    assert read_features(["film=films.parquet"], table)["film"].equals(dated)


def test_the_first_line_is_a_header_unless_it_starts_with_a_label(club):
    FILMS.write_csv("bare.csv", include_header=False)
    frame = read_features(["film=bare.csv"], Table.read("club.csv"))["film"]
    assert frame.columns == ["column 1", "column 2", "column 3", "column 4"]
    assert len(frame) == len(FILMS)
    (club / "texts.csv").write_text("name,kind\nf1,crime\nf2,comedy\n")
    texts = read_features(["film=texts.csv"], Table.read("club.csv"))["film"]
    assert texts.rows() == [("f1", "crime"), ("f2", "comedy")]


def test_labels_have_the_type_of_those_in_the_table(club):
    (club / "numbers.csv").write_text("user,film,rating\n1,10,5\n1,11,4\n2,10,2\n2,12,1\n")
    (club / "movies.dat").write_text("9::A (1990)::crime\n10::B (1991)::comedy\n")
    numbers = read_features(["film=movies.dat"], Table.read("numbers.csv"))["film"]
    assert numbers["column 1"].to_list() == [9, 10]
    (club / "mixed.csv").write_text("user,film,rating\n1,10,5\n1,new,4\n2,10,2\n2,12,1\n")
    (club / "films-10.csv").write_text("film,year\n10,1990\n12,1991\n")
    mixed = read_features(["film=films-10.csv"], Table.read("mixed.csv"))["film"]
    assert mixed["film"].to_list() == ["10", "12"]


def test_similarities_may_come_with_an_empty_corner(club):
    (club / "near.csv").write_text(",f1,f2\nf1,1,0.5\nf2,0.5,1\n")
    frame = read_features(["film=near.csv"], Table.read("club.csv"))["film"]
    assert frame.columns[1:] == ["f1", "f2"]
    assert frame["f2"].to_list() == [0.5, 1.0]


def test_complete_predicts_films_that_only_have_features(club):
    (club / "asked.csv").write_text("user,film\nu0,f16\nu0,f17\nu1,f16\nu1,f17\nu0,x\nu0,y\n")
    asked = ("--queries", "asked.csv", *PRETRAINED)
    result = done("complete", "club.csv", *asked, "--features", "film=films.csv", "--out", "a.csv")
    told = "features of film: genre: 2 categories; year: number, standardised; released: date, "
    assert f"{told}standardised; 18 of 18 members have features" in result.output
    comedy, crime, other_comedy, other_crime, x, y = pl.read_csv("a.csv")["rating"]
    assert comedy + 1 < crime
    assert other_crime + 1 < other_comedy
    assert x == y
    done("complete", "club.csv", *asked, "--out", "b.csv")
    without = pl.read_csv("b.csv")["rating"]
    assert np.ptp(without[[0, 1, 4, 5]].to_numpy()) < 1e-9


def test_recommend_takes_members_that_only_have_features(club):
    features = ("--features", "film=films.csv", "--time", "timestamp")
    given = ("--axis", "film", "-n", "6", *PRETRAINED, *features, "--json")
    facts = json.loads(done("recommend", "club.csv", "f17", *given).stdout)
    assert any(note.startswith("features of film") for note in facts["notes"])
    users = [int(row["user"][1:]) for row in facts["recommended"]]
    assert all(user % 2 == 0 for user in users)


def test_factorize_with_features_uses_the_model_that_reads_them(club):
    told = json.loads(
        done("factorize", "club.csv", "--features", "film=films.csv", "--json").stdout
    )
    assert told["model"] == "pretrained"
    members = pl.read_csv("club.factors.csv")
    assert members.filter(pl.col("axis") == "film").height == len(FILMS)
    assert json.loads(done("factorize", "club.csv", "--force", "--json").stdout)["model"] == "vmf"


def test_train_and_finetune_say_what_features_they_found(club):
    small = ("--steps", "2", "--features", "film=films.csv", "--time", "timestamp")
    layers = ("--width", "8", "--depth", "1", "--evaluate-every", "2")
    trained = done("train", "club.csv", "--out", "model", *small, *layers)
    assert "features of film: genre: 2 categories" in trained.output
    tuned = done("finetune", "pretrained", "club.csv", "--out", "finer", *small, "--json")
    assert "features of film: genre: 2 categories" in " ".join(json.loads(tuned.stdout)["notes"])


def test_rows_without_a_value_are_predicted_at_their_times(here):
    lines = ["user,film,rating,day"]
    for u in range(30):  # whose ratings rise or fall
        days = {i: 37 * (u + 3 * i) % 100 for i in range(40) if (u + i) % 4}
        lines += [f"u{u},f{i},{4 if (t > 50) == (u % 2) else 2},{t}" for i, t in days.items()]
    lines += ["u5,f3,,10", "u5,f7,,90"]
    (here / "dated.csv").write_text("\n".join(lines) + "\n")
    done("complete", "dated.csv", "--time", "day", *PRETRAINED)
    early, late = pl.read_csv("dated.completed.csv")["rating"][-2:]
    assert early + 0.5 < late


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["x"], "--features needs AXIS=FILE, but is 'x'"),
        (["film="], "--features needs AXIS=FILE, but is 'film='"),
        (["=films.csv"], "--features needs AXIS=FILE, but is '=films.csv'"),
        (
            ["film=films.csv", "film=other.csv"],
            "--features needs one file for each axis, but film has films.csv and other.csv",
        ),
        (["studio=films.csv"], "features must be of axes user, film, but are of ['studio']"),
        (["film=missing.csv"], "missing.csv: no such file"),
        (["film=."], ".: a file is needed, but this is a directory"),
        (
            ["user=films.csv"],
            "films.csv: labels of user are needed in its first column, but none in 'title' is in "
            "the table",
        ),
        (["film=short.csv"], "short.csv: line 3: 3 fields are needed, but there are 2"),
        (["film=twice.csv"], "features must have a row per member, but some in 'title' repeat"),
    ],
    ids=lambda given: given[-1] if isinstance(given, list) else "",
)
@pytest.mark.parametrize("command", ["complete", "recommend", "train", "serve"])
def test_wrong_features_are_one_line_and_exit_2_and_write_nothing(club, command, given, error):
    (club / "short.csv").write_text("film,genre,year\nf1,crime,1990\nf2,crime\n")
    pl.concat([FILMS, FILMS]).write_csv("twice.csv")
    before = sorted(club.iterdir())
    arguments = {
        "complete": ("complete", "club.csv", "--all", *PRETRAINED),
        "recommend": ("recommend", "club.csv", "u1", *PRETRAINED),
        "train": ("train", "club.csv", "--out", "model"),
        "serve": ("serve", "club.csv", "--port", "0", *PRETRAINED),
    }
    result = run(*arguments[command], *[part for one in given for part in ("--features", one)])
    assert result.exit_code == 2, result.output
    assert result.stderr == f"error: {error}\n"
    assert sorted(club.iterdir()) == before


def test_a_saved_completer_and_a_baseline_take_no_features(club):
    from exchangeable import Completer

    Completer("bias").fit_table(Table.read("club.csv")).save("kept")
    features = ("--features", "film=films.csv")
    for command in (("recommend", "kept", "u1"), ("serve", "kept", "--port", "0")):
        refused = run(*command, *features)
        assert refused.exit_code == 2
        assert "it takes no options for table, features or model" in refused.stderr
    for command in (("complete", "club.csv", "--all"), ("serve", "club.csv", "--port", "0")):
        refused = run(*command, *features, "--model", "bias")
        assert refused.exit_code == 2, refused.output
        assert "features need a model" in refused.stderr
    assert not list(club.glob("*.db*"))
