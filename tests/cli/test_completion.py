"""The commands complete, suggest and factorize."""

import json
import random
import re
import shlex

import numpy as np
import polars as pl
import pytest
from tests.support.commands import done, run

from exchangeable.completion.completer import Completer
from exchangeable.data.table import Table


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


def test_complete_keeps_the_other_columns_of_tables_and_queries(here):
    lines = (here / "ratings.csv").read_text().splitlines()
    noted = [f"{'note' if n == 0 else f'0{n}'},{line},x{n}" for n, line in enumerate(lines)]
    (here / "noted.csv").write_text("\n".join(noted).replace(",x0", ",low"))
    done("complete", "noted.csv")
    frame = pl.read_csv("noted.completed.csv", infer_schema=False)
    assert frame.columns == ["note", "user", "film", "rating", "low", "low end", "high"]
    assert frame["note"].to_list() == [f"0{n}" for n in range(1, 10)]
    assert frame["low"].to_list() == [f"x{n}" for n in range(1, 10)]
    (here / "asked.csv").write_text("id,film,user\n007,Big,ann\n")
    done("complete", "ratings.csv", "--queries", "asked.csv", "--out", "answers.csv")
    assert (
        (here / "answers.csv").read_text().startswith("id,film,user,rating,low,high\n007,Big,ann,")
    )
    done("complete", "noted.csv", "--all", "--out", "all.csv")
    assert pl.read_csv("all.csv").columns == ["user", "film", "rating", "low", "high"]


def test_columns_that_csv_cannot_hold_are_refused_before_any_work(here):
    frame = pl.read_csv("ratings.csv").with_columns(tags=pl.concat_list("film"))
    frame.write_parquet("tags.parquet")
    refused = run("complete", "tags.parquet", "--out", "tags.csv")
    assert refused.exit_code == 2
    assert "List(String) of column 'tags'" in refused.stderr
    assert "model" not in refused.output
    done("complete", "tags.parquet")
    assert pl.read_parquet("tags.completed.parquet")["tags"].equals(frame["tags"])


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


def test_one_cell_is_counted_in_the_singular(here):
    (here / "one.csv").write_text("user,film,rating\nann,Heat,5\nbob,Big,\n")
    told = done("complete", "one.csv", "--model", "mean").output
    assert "1 cell of 2 user x 2 film" in told
    assert "predicted 1 cell, written to" in told
    assert repr(Table.read("one.csv")).startswith("Table(2 user x 2 film, 1 cell,")


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
    printed = done("complete", "full.csv").output
    assert "2 pairs of user and film have no row" in printed
    assert "exchangeable recommend full.csv a" in printed
    assert "exchangeable complete full.csv --all" in printed
    assert not (here / "full.completed.csv").exists()
    facts = json.loads(done("complete", "full.csv", "--json").stdout)
    assert facts["unobserved"] == 2


def test_suggested_commands_keep_the_options_that_were_given(here):
    (here / "log.txt").write_text("a b|x|2\na b|x|3\nc|y|1\n")
    given = "--axes 1,2 --value 3 --separator '|' --no-header --duplicates sum --model bias"
    arguments = ("complete", "log.txt", *shlex.split(given), "--seed", "3")
    lines = done(*arguments).output.splitlines()
    commands = [line for line in lines if line.startswith("    exchangeable")]
    assert len(commands) == 3
    assert all(line.endswith(f" {given} --seed 3") for line in commands)
    for line in commands[:2]:
        done(*shlex.split(line)[1:])


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


def test_suggest_lists_unobserved_cells_of_the_table_or_of_a_file(here):
    printed = done("suggest", "film-club", "-n", "3", "--model", "vmf").output
    assert len([line for line in printed.splitlines() if " to " in line and "gain" in line]) == 3
    best = ("suggest", "film-club", "-n", "3", "--model", "vmf", "--goal", "best", "--json")
    rows = json.loads(done(*best).stdout)["suggested"]
    assert [list(row)[:2] for row in rows] == [["member", "film"]] * 3
    cells = ["film,member", *(f"{row['film']},{row['member']}" for row in rows[1:])]
    (here / "cells.csv").write_text("\n".join(cells))
    some = json.loads(done(*best, "--among", "cells.csv").stdout)["suggested"]
    assert [row["film"] for row in some] == [row["film"] for row in rows[1:]]


def test_suggest_reads_labels_of_a_file_as_those_of_the_table(here):
    pairs = [(user, film) for user in range(1, 7) for film in range(1, 6)]
    rows = [f"{u},{f},{(u * f) % 5 + 1}" for u, f in pairs if (u + f) % 4]
    (here / "numbered.csv").write_text("\n".join(["user,film,rating", *rows]))
    (here / "cells.csv").write_text("user,film\n1,3\n2,2\n")
    found = done("suggest", "numbered.csv", "-n", "2", "--among", "cells.csv", "--json")
    rows = json.loads(found.stdout)["suggested"]
    assert {(row["user"], row["film"]) for row in rows} == {(1, 3), (2, 2)}


def test_factorize_names_neighbours_of_every_axis(here):
    result = done("factorize", "film-club", "--neighbours", "2")
    assert "is nearest to" in result.output
    frame = pl.read_csv("film-club.factors.csv")
    assert frame["axis"].value_counts().sort("axis")["count"].to_list() == [120, 200]
    assert all(len(near.split("; ")) == 2 for near in frame["nearest"])


def test_unknown_labels_of_queries_are_a_line_and_not_a_warning_of_python(here):
    (here / "asked.csv").write_text("user,film\nann,Hat\nzoe,Heat\nbob,Big\n")
    asked = ("complete", "ratings.csv", "--queries", "asked.csv", "--model", "mean", "--force")
    said = (
        "1 of 3 labels of 'user' is not in the table, such as 'zoe'; "
        "1 of 3 labels of 'film' is not in the table, such as 'Hat'; did you mean 'Heat'?"
    )
    result = done(*asked)
    assert f"  {said}" in result.output.splitlines()
    assert "Warning" not in result.output
    facts = json.loads(done(*asked, "--json").stdout)
    assert facts["warnings"] == [said]
    (here / "asked.csv").write_text("user,film\nann,Heat\n")
    assert "warnings" not in json.loads(done(*asked, "--json").stdout)


def test_queries_with_swapped_columns_are_refused(here):
    (here / "asked.csv").write_text("Heat,ann\nBig,bob\n")
    result = run("complete", "ratings.csv", "--queries", "asked.csv", "--model", "mean")
    assert result.exit_code == 2
    assert "must have the labels of user, film, but have those of film, user" in result.output


def test_queries_are_found_by_titles_that_are_alike_and_others_are_a_line(here):
    asked = ("complete", "ratings.csv", "--queries", "asked.csv", "--model", "mean", "--force")
    (here / "asked.csv").write_text("Films,Users\nHeat,ann\nBig,bob\n")
    result = done(*asked, "--out", "o.csv")
    assert "by position" not in result.output
    assert pl.read_csv("o.csv").select("user", "film").rows() == [("ann", "Heat"), ("bob", "Big")]
    (here / "asked.csv").write_text("member,title,value\nann,Heat,1\nbob,Big,2\n")
    said = (
        "no column of the cells is called as an axis: they are taken by position, "
        "'member' for 'user', 'title' for 'film'"
    )
    assert f"  {said}" in done(*asked, "--out", "o.csv").output.splitlines()
    assert json.loads(done(*asked, "--json").stdout)["warnings"] == [said]


def test_queries_without_a_header_are_read(here):
    (here / "numbers.csv").write_text("user,film,rating\n1,1,5\n1,2,4\n2,1,2\n3,2,3\n")
    for content, rows in (("1,1\n3,2\n", 2), ("2,2\n", 1), ("3,1\n1,2\n2,2\n", 3)):
        (here / "asked.csv").write_text(content)
        done("complete", "numbers.csv", "--queries", "asked.csv", "--out", "o.csv", "--force")
        assert len(pl.read_csv("o.csv")) == rows


def test_queries_with_times_are_predicted_at_these_times(here):
    lines = ["user,film,rating,timestamp"]
    generator = random.Random(0)
    for u in range(30):  # whose ratings rise or fall
        times = {i: generator.randrange(100) for i in range(100) if (u + i) % 4}
        lines += [f"u{u},f{i},{4 if (t > 50) == (u % 2) else 2},{t}" for i, t in times.items()]
    (here / "dated.csv").write_text("\n".join(lines) + "\n")
    (here / "asked.csv").write_text("user,film,timestamp\nu5,f3,10\nu5,f3,90\n")
    given = ("--queries", "asked.csv", "--model", "pretrained", "--force")
    done("complete", "dated.csv", "--time", "timestamp", *given, "--out", "o.csv")
    frame = pl.read_csv("o.csv")
    assert frame["timestamp"].to_list() == [10, 90]
    early, late = frame["rating"]
    assert early + 0.5 < late
    found = done("complete", "dated.csv", *given, "--out", "o.csv")
    assert "time timestamp" in found.output
    early, late = pl.read_csv("o.csv")["rating"]
    assert early + 0.5 < late
    done("complete", "dated.csv", "--time", "", *given, "--out", "o.csv")
    early, late = pl.read_csv("o.csv")["rating"]
    assert early == late
    (here / "asked.csv").write_text("user,film,timestamp\nu5,f3,10\nu5,f3,soon\n")
    refused = run("complete", "dated.csv", "--time", "timestamp", *given)
    assert refused.exit_code == 2
    needed = "asked.csv: row 2: a finite number, or a date written as the others, is needed in "
    needed += "'timestamp', but this is 'soon'"
    assert refused.stderr == f"error: {needed}\n"


READERS = {
    "csv": pl.read_csv,
    "tsv": lambda path: pl.read_csv(path, separator="\t"),
    "parquet": pl.read_parquet,
    "jsonl": pl.read_ndjson,
    "json": pl.read_ndjson,
    "ndjson": pl.read_ndjson,
}


@pytest.mark.parametrize("kind", READERS)
def test_the_completed_table_is_a_file_of_the_kind_that_came(here, kind):
    frame = pl.read_csv("ratings.csv").with_columns(note=pl.col("film") + "!", n=pl.lit(7))
    writers = {
        "csv": frame.write_csv,
        "tsv": lambda path: frame.write_csv(path, separator="\t"),
        "parquet": frame.write_parquet,
        "json": frame.write_json,
    }
    writers.get(kind, frame.write_ndjson)(f"mine.{kind}")
    done("complete", f"mine.{kind}", "--model", "bias")
    written = f"mine.completed.{'jsonl' if kind == 'json' else kind}"
    filled = READERS[kind](written)
    assert filled.columns == [*frame.columns, "low", "high"]
    assert filled["rating"].null_count() == 0
    assert filled.drop("rating", "low", "high").equals(frame.drop("rating"))
    assert filled["n"].dtype.is_integer()
    done("complete", f"mine.{kind}", "--model", "bias", "--all", "--out", "every.jsonl")
    assert len(pl.read_ndjson("every.jsonl")) == 12


def test_types_of_a_parquet_file_stay(here):
    frame = pl.read_csv("ratings.csv")
    films = pl.Enum(frame["film"].unique().sort())
    frame = frame.with_columns(
        pl.col("user").cast(pl.Categorical),
        pl.col("film").cast(films),
        day=pl.date(2020, 1, 1),
        kind=pl.Series(list("aabbaabba"), dtype=pl.Categorical),
        tags=pl.Series([["x", "y"]] * len(frame)),
        small=pl.Series(range(9), dtype=pl.UInt8),
    )
    frame.write_parquet("mine.parquet")
    done("complete", "mine.parquet", "--model", "bias")
    filled = pl.read_parquet("mine.completed.parquet")
    kept = [column for column in frame.columns if column != "rating"]
    assert {c: filled.schema[c] for c in kept} == {c: frame.schema[c] for c in kept}
    assert filled.select(kept).equals(frame.select(kept))
    for given in (frame, frame.drop_nulls("rating")):
        given.write_parquet("mine.parquet")
        done("complete", "mine.parquet", "--model", "bias", "--all", "--force")
        every = pl.read_parquet("mine.completed.parquet")
        assert [every.schema["user"], every.schema["film"]] == [pl.Categorical, films]
        assert set(every["user"].cast(pl.String)) == {"ann", "bob", "cleo", "dora"}
