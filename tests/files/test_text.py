"""Files that are wrong are refused by the command: exit 2, one line, with cause and place."""

import gzip
import io
import os
import zipfile

import polars as pl
import pytest
from typer.testing import CliRunner

from exchangeable.cli import app

GOOD = b"user,film,rating\nann,Heat,4\nbob,Alien,5\n"


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return buffer.getvalue()


def slipping():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../../evil.csv", GOOD)
    return buffer.getvalue()


def parquet(**columns):
    buffer = io.BytesIO()
    pl.DataFrame(columns).write_parquet(buffer)
    return buffer.getvalue()


def damaged_zip():
    whole = zipped(**{"a.csv": GOOD * 50})
    return whole[:40] + b"\xff\xff\xff" + whole[43:]


HEAD = b"user,film,rating\n"
# name: (bytes of the file, name of the file, options, what the line must say)
BAD = {
    "an empty file": (b"", "a.csv", [], "the file is empty"),
    "blank lines only": (b"\n\n  \n", "a.csv", [], "no line of text"),
    "a header only": (HEAD, "a.csv", [], "only a header"),
    "one column": (b"user\nann\nbob\n", "a.csv", [], "line 1: two columns or more are needed"),
    "one label column": (
        b"user,rating\nann,1\n",
        "a.csv",
        [],
        "two label columns are needed, but 1 was found among user, rating: user; name them",
    ),
    "no label column": (
        b"rating,year\n5,2001\n",
        "a.csv",
        [],
        "two label columns are needed, but none was found among rating, year; name them",
    ),
    "one word": (b"hello", "a.csv", [], "two columns or more are needed"),
    "a short line": (
        HEAD + b"ann,Heat,4\nbob,Alien\n",
        "a.csv",
        [],
        "line 3: 3 fields are needed, but there are 2",
    ),
    "a shorter line": (
        HEAD + b"ann\nbob,Alien,5\n",
        "a.csv",
        [],
        "line 2: 3 fields are needed, but there are 1",
    ),
    "a long line": (
        HEAD + b"ann,Heat,4\nbob,Alien,5,6\n",
        "a.csv",
        [],
        "line 3: 3 fields are needed, but there are 4",
    ),
    "a short line after quoted ones": (
        HEAD + b'"a,b",Heat,4\n"x\ny",Alien\n',
        "a.csv",
        [],
        "line 4: 3 fields are needed, but there are 2",
    ),
    "a short line with a timestamp left out": (
        b"user,film,rating,timestamp\nann,Heat,4,9\nbob,Alien,5\n",
        "a.csv",
        [],
        "line 3: 4 fields are needed, but there are 3",
    ),
    "a short line in CRLF": (
        b"user,film,rating\r\nann,Heat,4\r\nbob,Alien\r\n",
        "a.csv",
        [],
        "line 3: 3 fields are needed",
    ),
    "a short line without a header": (
        b"1\t2\t3\n4\t5\n",
        "a.tsv",
        [],
        "line 2: 3 fields are needed, but there are 2",
    ),
    "a short '::' line": (
        b"1::2::3::9\n4::5::6\n",
        "a.dat",
        [],
        "line 2: 4 fields are needed, but there are 3",
    ),
    "a long '::' line": (
        b"1::2::3\n4::5::6::7\n",
        "a.dat",
        [],
        "line 2: 3 fields are needed, but there are 4",
    ),
    "a missing label": (
        HEAD + b"ann,Heat,4\n,Alien,5\n",
        "a.csv",
        [],
        "line 3: a label is needed in 'user'",
    ),
    "a missing second label": (
        HEAD + b"ann,,4\n",
        "a.csv",
        [],
        "line 2: a label is needed in 'film'",
    ),
    "a missing label after a blank line": (
        HEAD + b"ann,Heat,4\n\n,Alien,5\n",
        "a.csv",
        [],
        "line 4: a label is needed",
    ),
    "a word for a value": (
        HEAD + b"ann,Heat,4\nbob,Alien,good\n",
        "a.csv",
        [],
        "line 3: a number is needed in 'rating', but this is 'good'",
    ),
    "infinity for a value": (
        HEAD + b"ann,Heat,4\nbob,Alien,inf\n",
        "a.csv",
        [],
        "line 3: a finite number is needed in 'rating', but this is inf",
    ),
    "1e309": (HEAD + b"ann,Heat,1e309\n", "a.csv", [], "line 2: a finite number is needed"),
    "a comma as decimal point beside commas": (
        HEAD + b'ann,Heat,"4,5"\n',
        "a.csv",
        [],
        "line 2: a number is needed in 'rating', but this is '4,5'; --decimal , reads",
    ),
    "a dollar sign": (HEAD + b"ann,Heat,$4\n", "a.csv", [], "line 2: a number is needed"),
    "a cell that comes twice": (
        HEAD + b"ann,Heat,4\nbob,Alien,5\nann,Heat,3\n",
        "a.csv",
        [],
        r"line 4: every cell may come once, but \('ann', 'Heat'\) comes again; --duplicates merges",
    ),
    "a cell that comes twice as numbers": (
        b"1,2,3\n1,2,4\n",
        "a.csv",
        [],
        r"line 2: every cell may come once, but \(1, 2\) comes again",
    ),
    "column names that repeat": (
        b"user,user,rating\nann,Heat,4\n",
        "a.csv",
        [],
        "line 1: column names must differ, but 'user' comes twice",
    ),
    "the wrong separator": (GOOD, "a.csv", ["--separator", ";"], "separated by ';'"),
    "a separator of two letters": (
        b"a==b==1\n",
        "a.csv",
        ["--separator", "=="],
        "one character or '::', but is '=='",
    ),
    "an unknown axis": (
        GOOD,
        "a.csv",
        ["--axes", "user,movie"],
        "a column is one of user, film, rating, or its number, but is 'movie'",
    ),
    "an axis number past the end": (GOOD, "a.csv", ["--axes", "1,9"], "but is '9'"),
    "an unknown value column": (GOOD, "a.csv", ["--value", "stars"], "but is 'stars'"),
    "a value that is also a label": (
        GOOD,
        "a.csv",
        ["--axes", "user,film", "--value", "film"],
        "a column can be used once",
    ),
    "labels for values": (
        GOOD,
        "a.csv",
        ["--axes", "film,rating", "--value", "user"],
        "line 2: a number is needed in 'user', but this is 'ann'",
    ),
    "one axis twice": (GOOD, "a.csv", ["--axes", "user,user"], "a column can be used once"),
    "an unknown scale": (
        GOOD,
        "a.csv",
        ["--scale", "stars"],
        "scale must be one of levels, real, binary, positives, but is 'stars'",
    ),
    "a binary scale of three values": (
        HEAD + b"a,b,1\na,c,2\na,d,3\n",
        "a.csv",
        ["--scale", "binary"],
        "a binary scale has two values, but 3 were found",
    ),
    "positives of no strength": (
        b"user,film,plays\na,x,3\nb,y,0\n",
        "a.csv",
        ["--scale", "positives"],
        "strengths of positives must be above 0, but 0 is not",
    ),
    "an unknown way with duplicates": (
        GOOD,
        "a.csv",
        ["--duplicates", "median"],
        "duplicates must be one of error, mean, last, first, max, sum, count, but is 'median'",
    ),
    "a header that is not there": (
        b"1,2,3\n4,5,6\n",
        "a.csv",
        ["--header", "--value", "rating"],
        "a column is one of 1, 2, 3",
    ),
    "names read as values": (
        GOOD,
        "a.csv",
        ["--no-header"],
        "line 1: a number is needed in 'column 3', but this is 'rating'",
    ),
    "Latin-1 text": (
        "user,film,rating\nann,Amélie,4\n".encode("latin-1"),
        "a.csv",
        [],
        "line 2: text must be UTF-8",
    ),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "a.csv", [], "but this is binary"),
    "random bytes": (bytes(range(1, 256)) * 3, "a.csv", [], "error: "),
    "NUL bytes": (HEAD + b"ann\x00,Heat,4\n", "a.csv", [], "but this is binary"),
    "old Mac line ends": (GOOD.replace(b"\n", b"\r"), "a.csv", [], "end in carriage returns"),
    "a quote that is not closed": (
        HEAD + b'"ann,Heat,4\nbob,Alien,5\n',
        "a.csv",
        [],
        "line 3: a quote is opened and not closed|3 fields are needed",
    ),
    "a truncated gzip": (gzip.compress(GOOD * 100)[:-12], "a.csv.gz", [], "damaged or cut short"),
    "a gzip with flipped bits": (
        gzip.compress(GOOD * 100)[:30] + b"\x00\xff" + gzip.compress(GOOD * 100)[32:],
        "a.csv.gz",
        [],
        "damaged or cut short",
    ),
    "an empty gzip": (gzip.compress(b""), "a.csv.gz", [], "no line of text"),
    "a bad line inside a gzip": (
        gzip.compress(HEAD + b"ann,Heat\n"),
        "a.csv.gz",
        [],
        "line 2: 3 fields are needed",
    ),
    "a zip of two files": (
        zipped(**{"a.csv": GOOD, "b.csv": GOOD}),
        "a.zip",
        [],
        "a zip must hold one file, but holds 2: a.csv, b.csv",
    ),
    "a zip of nothing": (b"PK\x05\x06" + b"\x00" * 18, "a.zip", [], "error: "),
    "a zip whose name leads out": (slipping(), "a.zip", [], "leads out of the archive"),
    "a damaged zip": (damaged_zip(), "a.zip", [], "damaged or cut short"),
    "a truncated zip": (zipped(**{"a.csv": GOOD * 50})[:-30], "a.zip", [], "damaged or cut short"),
    "an empty Parquet": (b"", "a.parquet", [], "the file is empty"),
    "text called Parquet": (GOOD, "a.parquet", [], "not a whole Parquet file"),
    "a truncated Parquet": (
        parquet(user=["a"], film=["b"], rating=[1.0])[:-20],
        "a.parquet",
        [],
        "not a whole Parquet file",
    ),
    "a Parquet of one column": (
        parquet(user=["a"]),
        "a.parquet",
        [],
        "two columns or more are needed, but there is 1",
    ),
    "a Parquet without rows": (
        parquet(
            user=pl.Series([], dtype=pl.String),
            film=pl.Series([], dtype=pl.String),
            rating=pl.Series([], dtype=pl.Float64),
        ),
        "a.parquet",
        [],
        "rows are needed, but there are none",
    ),
    "a Parquet with words for values": (
        parquet(user=["a"], film=["b"], rating=["good"]),
        "a.parquet",
        [],
        "row 1: a number is needed in 'rating', but this is 'good'; --missing good reads it",
    ),
    "a Parquet with a missing label": (
        parquet(user=["a", None], film=["b", "c"], rating=[1.0, 2.0]),
        "a.parquet",
        [],
        "row 2: a label is needed in 'user'",
    ),
    "a Parquet with infinity": (
        parquet(user=["a"], film=["b"], rating=[float("inf")]),
        "a.parquet",
        [],
        "row 1: a finite number is needed",
    ),
    "a Parquet with duplicates": (
        parquet(user=["a", "a"], film=["b", "b"], rating=[1.0, 2.0]),
        "a.parquet",
        [],
        "row 2: every cell may come once",
    ),
    "a long last line without a line feed": (
        HEAD + b"c,d,2\na,b,7,",
        "a.csv",
        [],
        "line 3: 3 fields are needed, but there are 4",
    ),
    "Latin-1 text with bad lines skipped": (
        "user,film,rating\nann,Amélie,4\n".encode("latin-1"),
        "a.csv",
        ["--skip-bad-lines"],
        "line 2: text must be UTF-8",
    ),
    "Latin-1 text with quotes": (
        'user,film,rating\nann,Amélie,4\n"bob",Heat,5\n'.encode("latin-1"),
        "a.csv",
        [],
        "line 2: text must be UTF-8",
    ),
    "a separator of two bytes": (
        "aéb\n".encode(),
        "a.csv",
        ["--separator", "é"],
        "one character or '::'",
    ),
    "a raised digit for a column": (GOOD, "a.csv", ["--axes", "²,2"], "but is '²'"),
    "a bad line after a blank one": (
        b"\nuser,film,rating\na,b,1\nc,d\n",
        "a.csv",
        [],
        "line 4: 3 fields are needed",
    ),
    "nothing but bad lines": (
        HEAD + b"ann\nbob\n",
        "a.csv",
        ["--skip-bad-lines"],
        "rows are needed, but there are none",
    ),
}


def run(*arguments):
    return CliRunner().invoke(app, ["data", "describe", *map(str, arguments)])


def assert_refused(result, message):
    import re

    assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert re.search(message, lines[0]), lines[0]
    assert not result.stdout


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_in_one_line(case, tmp_path):
    content, name, options, message = BAD[case]
    path = tmp_path / name
    path.write_bytes(content)
    assert_refused(run(path, *options), message)


def test_there_are_at_least_sixty():
    assert len(BAD) >= 60


def test_a_directory_is_refused(tmp_path):
    assert_refused(run(tmp_path), "a file is needed, but this is a directory")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    assert_refused(run(tmp_path / "no.csv"), "no such file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_file_without_permission_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(GOOD)
    path.chmod(0)
    assert_refused(run(path), "no permission")


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        (b"\xef\xbb\xbf" + GOOD, 2),
        (GOOD.replace(b"\n", b"\r\n"), 2),
        (GOOD.replace(b",", b"\t"), 2),
        (GOOD.replace(b",", b";"), 2),
        (GOOD.replace(b",", b"|"), 2),
        (GOOD.rstrip(b"\n"), 2),
        (GOOD + b"\n\n", 2),
        (GOOD + b"cat,Heat,\n", 2),
        (GOOD + b"nan,Heat,3\n", 3),
        (GOOD + "zoë,七人の侍,3\n".encode(), 3),
        (GOOD + b'"a ""b"", c",Heat,3\n', 3),
        (GOOD + b"007,-1,3\n", 3),
        (GOOD + b"99999999999999999999999,Heat,3\n", 3),
        (b"1::2::3::978300760\n4::5::3::978300760\n", 2),
        (b"ann,Heat\nbob,Alien\n", 2),
    ],
)
def test_what_only_looks_odd_is_read(content, cells, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    result = run(path)
    assert result.exit_code == 0, result.stderr
    assert f"{cells} cells of" in result.stdout


def wide(films, rows=3, width=20):
    """A wide table with long titles, whose first line is longer than the first bytes read."""
    names = [f"{number:0{width}d} film" for number in range(films)]
    body = [f"user{row}," + ",".join(str((row + n) % 5 + 1) for n in range(films)) + "\n"
            for row in range(rows)]  # fmt: skip
    return ("user," + ",".join(names) + "\n" + "".join(body)).encode()


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        (wide(4000), 12000),  # the first line alone is longer than 64 KiB
        (wide(2000, width=25), 6000),  # the first line is shorter, but not with the second
        (b"# a long story\n" * 6000 + GOOD, 2),
        (b"\n" * 70000 + GOOD, 2),
        (b"user,film,rating\n" + b"a" * 200000 + b",Heat,4\nbob,Alien,5\n", 2),
    ],
)
def test_first_lines_of_over_64_kib_are_read(content, cells, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    result = run(path)
    assert result.exit_code == 0, result.stderr
    assert f"{cells:,} cells of" in result.stdout


def test_first_lines_that_do_not_end_are_refused_for_that(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"user,film,rating\nann,Heat," + b"4" * 2**22 + b"\nbob,Alien,5\n")
    assert_refused(run(path), r"table.csv: the first two lines must end within 4 MiB, but they do")


def test_bad_lines_are_skipped_and_counted_on_request(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(
        HEAD + b"ann,Heat,4\nbob\ncat,Alien,5,6\ndan,Alien,good\neve,Alien,2\nfay,Heat,\n"
    )
    result = run(path, "--skip-bad-lines")
    assert result.exit_code == 0, result.stderr
    assert "3 bad lines skipped" in result.stdout
    assert "2 cells of 3 user x 2 film" in result.stdout
    assert "1 without a value" in result.stdout


def test_a_name_too_long_for_a_file_is_refused():
    assert_refused(run("x" * 300), "cannot be read|no such file")


def test_options_do_not_go_with_a_dataset():
    assert_refused(
        run("film-club", "--scale", "real"),
        "film-club is a dataset with fixed columns: of the table options it takes --at-least only",
    )
