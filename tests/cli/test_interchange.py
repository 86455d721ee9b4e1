"""``exchangeable data export`` and ``import``, on databases that no service need run on."""

import polars as pl
import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")

from tests.support.service_engine import FRAME, NUMBERED, open_engine, until
from typer.testing import CliRunner

from exchangeable.cli import app
from exchangeable.data.table import Table
from exchangeable.storage.store import Store


@pytest.fixture
def db(tmp_path):
    url = f"sqlite:///{tmp_path / 'table.db'}"
    for name, frame in (("films", FRAME), ("numbers", NUMBERED)):
        store = Store.open(url, name)
        store.fill(f"{name}.csv", Table.of(frame))
        store.close()
    return url


def run(*words):
    return CliRunner().invoke(app, ["data", *map(str, words)])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_is_written_to_a_file_and_read_again(db, tmp_path, kind):
    out = tmp_path / f"films.{kind}"
    told = run("export", "--db", db, "--out", out)
    assert told.exit_code == 0, told.output
    assert "all cells of films" in told.stdout
    read = pl.read_csv if kind == "csv" else pl.read_parquet
    assert read(out).sort("member", "film").equals(FRAME.sort("member", "film"))
    store = Store.open(db, "films")
    store.delete_member(0, FRAME["member"][0])
    told = run("import", out, "--db", db, "--table", "films")
    assert told.exit_code == 0, told.output
    assert told.stdout == f"films: {len(FRAME):,} cells written, version 3\n"
    assert len(store.read_table()[1]) == len(FRAME)
    store.close()


def test_a_running_service_takes_up_what_is_imported(tmp_path):
    engine = open_engine(tmp_path)
    (tmp_path / "new.csv").write_text("member,film,rating\nzoe,Halloween,4\n")
    told = run("import", tmp_path / "new.csv", "--db", f"sqlite:///{tmp_path / 'table.db'}")
    assert told.exit_code == 0, told.output
    until(lambda: "zoe" in [label for label, _ in engine.members(0, "", 1000)])
    engine.close()


def test_what_is_wrong_is_told_in_one_line_and_changes_nothing(db, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("user,item,stars\n1,2,3\n1,two,3\n")
    out = tmp_path / "out.csv"
    out.write_text("kept")
    new = f"sqlite:///{tmp_path / 'new.db'}"
    for words, reason in (
        (("import", bad, "--db", db, "--table", "numbers"), "whole numbers"),
        (("import", bad, "--db", db), "'rating'"),
        (("import", bad, "--db", db, "--table", "other"), "holds films, numbers"),
        (("import", bad, "--db", new), "must hold a table, but holds no table"),
        (
            ("import", bad, "--db", db, "--table", "numbers", "--duplicates", "own"),
            "duplicates must be one of",
        ),
        (("import", tmp_path / "nowhere.csv", "--db", db), "no such file"),
        (("export", "--db", db, "--out", out), "exists already; --force replaces it"),
        (("export", "--db", db, "--out", tmp_path / "x.xlsx"), "must end in .csv or .parquet"),
        (("export", "--db", db, "--out", out, "--table", "x", "--force"), "must hold the table x"),
    ):
        told = run(*words)
        assert told.exit_code == 2, (words, told.output)
        assert reason in told.stderr
        assert told.stderr.count("\n") == 1
    assert out.read_text() == "kept"
    assert not (tmp_path / "new.db").exists()
    store = Store.open(db, "numbers")
    assert store.read_table()[0] == 1
    store.close()
