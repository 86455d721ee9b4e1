"""The commands recommend, similar and explain."""

import datetime
import json

import polars as pl
import pytest
from tests.support.commands import done, run

from exchangeable.completion.completer import Completer
from exchangeable.datasets import load


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


def test_a_label_of_another_axis_is_called_one(here):
    mean = ("--model", "mean")
    told = done("recommend", "ratings.csv", "ann", "--axis", "1", *mean).output
    assert "ann is no film of the table, but a user: choose --axis user" in told
    assert " is no " not in done("recommend", "ratings.csv", "ann", *mean).output
    (here / "numbers.csv").write_text("user,film,rating\n1,10,5\n1,11,4\n10,10,2\n2,11,1\n")
    told = done("recommend", "numbers.csv", "11", *mean).output
    assert "11 is no user of the table, but a film: choose --axis film" in told
    for known in ("10", "1"):
        assert " is no" not in done("recommend", "numbers.csv", known, *mean).output


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


def test_a_stranger_is_asked_whether_somebody_else_was_meant(here):
    told = done("recommend", "ratings.csv", "boob", "--model", "mean").output
    assert "boob is not in the table; did you mean 'bob'?" in told


def test_explain_prints_the_prediction_and_the_cells_that_moved_it(here):
    text = done("explain", "film-club", "Ada Abt", "Heat", "-n", "2", "--model", "vmf").stdout
    facts = json.loads(
        done(
            "explain", "film-club", "Ada Abt", "Heat", "-n", "2", "--model", "vmf", "--json"
        ).stdout
    )
    assert facts["cell"] == ["Ada Abt", "Heat"]
    assert facts["low"] < facts["mean"] < facts["high"]
    lines = text.splitlines()
    ends = f"({facts['low']:.2f} to {facts['high']:.2f})"
    assert f"  {facts['mean']:8.3f}  {ends}  Ada Abt, Heat" in lines
    assert f"  moved by {facts['cells']} cells of Ada Abt:" in lines
    listed = [
        f"  {row['effect']:+8.3f}  {row['film']}  {row['rating']:g}" for row in facts["effects"]
    ]
    assert lines[-2:] == listed


def test_explain_gives_what_the_method_does(here):
    frame = pl.read_csv("ratings.csv")
    completer = Completer("bias").fit(frame)
    found = completer.explain(("ann", "Big"))
    facts = json.loads(
        done("explain", "ratings.csv", "ann", "Big", "--model", "bias", "--json").stdout
    )
    for row, expected in zip(facts["effects"], found.rows(named=True), strict=True):
        assert row == pytest.approx(expected)
    completer.save("kept")
    saved = json.loads(done("explain", "kept", "ann", "Big", "--axis", "film", "--json").stdout)
    assert [row["user"] for row in saved["effects"]] == completer.explain(("ann", "Big"), axis=1)[
        "user"
    ].to_list()


def test_explain_has_a_line_where_the_member_is_read_as_a_new_one(here, monkeypatch):
    arguments = ("explain", "ratings.csv", "ann", "Big", "--model", "bias")
    assert json.loads(done(*arguments, "--json").stdout)["exact"] is True
    assert "new user" not in done(*arguments).output
    monkeypatch.setattr("exchangeable.completion.explain.MAX_READ_CELLS", 2)
    assert "effects are those on a new user with the same cells" in done(*arguments).output
    facts = json.loads(done(*arguments, "--json").stdout)
    assert facts["exact"] is False
    assert facts["note"].startswith("effects are those on a new user")


def test_a_chance_is_explained_without_an_interval(here):
    pairs = [f"u{u},i{i}" for u in range(12) for i in range(10) if u % 2 == i % 2 and (u + i) % 5]
    (here / "pairs.csv").write_text("\n".join(["user,item", *pairs]))
    lines = done(
        "explain", "pairs.csv", "u1", "i9", "-n", "1", "--model", "ease"
    ).output.splitlines()
    assert lines[-3].endswith("  u1, i9")
    assert "(" not in lines[-3]
    assert lines[-1].endswith("  1")


def test_labels_of_explain_that_are_not_in_the_table_are_a_line(here):
    told = done("explain", "ratings.csv", "ann", "Hat", "--model", "bias").output
    assert "1 of 1 label of 'film' is not in the table, such as 'Hat'; did you mean 'Heat'?" in told


def test_titles_stand_beside_labels(here):
    rows = [
        f"{user},{film},{(user * film) % 5 + 1}" for user in range(1, 9) for film in range(1, 7)
    ]
    (here / "numbered.csv").write_text("\n".join(["user,film,rating", *rows[:-5]]))
    (here / "films.csv").write_text("film,year,title\n1,1995,Heat\n2,1979,Alien\n6,1988,Big\n")
    listed = done("recommend", "numbered.csv", "8", "--titles", "films.csv", "--json")
    titles = {row["film"]: row["title"] for row in json.loads(listed.stdout)["recommended"]}
    assert titles[2] == "Alien"
    assert titles[3] == ""
    assert "2, Alien" in done("recommend", "numbered.csv", "8", "--titles", "films.csv").output
    (here / "bare.csv").write_text("film,year\n1,1995\n2,1979\n")
    refused = run("recommend", "numbered.csv", "8", "--titles", "bare.csv")
    assert refused.exit_code == 2
    assert "a column of titles is needed" in refused.output


def test_several_members_get_a_list_each(here):
    arguments = ("recommend", "film-club", "Ada Abt", "Ben Abt", "-n", "2", "--model", "bias")
    lines = done(*arguments).output.splitlines()
    assert [line for line in lines if line.endswith(":")] == ["  Ada Abt:", "  Ben Abt:"]
    lists = json.loads(done(*arguments, "--json").stdout)["members"]
    assert [each["member"] for each in lists] == ["Ada Abt", "Ben Abt"]
    for each in lists:
        alone = json.loads(
            done(
                "recommend", "film-club", each["member"], "-n", "2", "--model", "bias", "--json"
            ).stdout
        )
        assert each["recommended"] == alone["recommended"]
        assert len(each["recommended"]) == 2
    for words, message in [
        (("Ada Abt", "Nobody"), "1 of 2 are no member of the table, such as 'Nobody'"),
        (
            ("Ada Abt", "Ben Abt", "--rate", "Heat=5"),
            "those of new members, but 'Ada Abt' is a member",
        ),
    ]:
        refused = run("recommend", "film-club", *words, "--model", "bias")
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
        assert message in refused.stderr


def test_similar_lists_what_the_method_does(here):
    arguments = ("similar", "film-club", "Heat", "--axis", "film", "-n", "3")
    listed = json.loads(done(*arguments, "--json").stdout)["similar"]
    table = load("film-club").table
    found = Completer("pretrained").fit_table(table).similar("Heat", 3, axis="film")
    assert [row["film"] for row in listed] == found["film"].to_list()
    text = done(*arguments).output.splitlines()
    assert text[-3:] == [f"  {row['similarity']:8.3f}  {row['film']}" for row in listed]
    refused = run("similar", "ratings.csv", "Haet", "--axis", "film")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "film must be known, but 'Haet' is not; did you mean 'Heat'?" in refused.stderr


def test_a_positive_is_rated_without_a_value(here):
    pairs = [f"u{u},i{i}" for u in range(12) for i in range(10) if u % 2 == i % 2 and (u + i) % 5]
    (here / "pairs.csv").write_text("\n".join(["user,item", *pairs]))
    one, other = (
        done("recommend", "pairs.csv", "zed", "--rate", rate, "--model", "ease", "--json").stdout
        for rate in ("i3", "i3=1")
    )
    assert json.loads(one) == json.loads(other)
    assert "i3" not in [row["item"] for row in json.loads(one)["recommended"]]
    refused = run("recommend", "ratings.csv", "zed", "--rate", "Heat")
    assert "--rate must be NAME=VALUE, but is 'Heat'" in refused.stderr


def test_what_leaves_nothing_to_list_is_named(here):
    mean = ("recommend", "ratings.csv", "ann", "--model", "mean")
    refused = run(*mean, "--among", "Big", "--exclude", "Big")
    assert refused.exit_code == 2
    assert "exclude leaves out all of those in among" in refused.stderr
    refused = run(*mean, "--exclude", "Big", "--exclude", "Heat", "--exclude", "Alien")
    assert "exclude leaves out all of them" in refused.stderr
    printed = done(*mean, "--among", "Heat").output
    assert "ann has no unobserved cell to recommend among those that may be listed" in printed


def test_titles_of_few_labels_are_noted(here):
    (here / "films.csv").write_text("film,title\nHeat,The heat\nJaws,The jaws\n")
    listed = done("recommend", "ratings.csv", "bob", "--titles", "films.csv", "--model", "mean")
    assert "only 1 of 3 labels of 'film' have a title in films.csv; check labels" in listed.output
    (here / "films.csv").write_text("film,title\nHeat,The heat\nBig,The big\n")
    listed = done("recommend", "ratings.csv", "bob", "--titles", "films.csv", "--model", "mean")
    assert "only" not in listed.output
