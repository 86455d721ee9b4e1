"""Files as people bring them: each is read as it is meant, or refused in one line to act on."""

import gzip
import io
import re
import zipfile

import polars as pl
import pytest
from tests.support.commands import run
from tests.support.files import cells_of, parquet, write

from exchangeable import Table
from exchangeable.errors import InputError
from exchangeable.files import typed

HEAD = "user,film,rating\n"
PAIR = {("ann", "Heat"): 4, ("bob", "Alien"): 5}
ASKED = {("ann", "Heat"): 4, ("bob", "Alien"): None}
NUMBERED = {(1, 2): 3.5, (1, 3): 4, (2, 3): 5}


def spreadsheet():
    """The parts of an .xlsx file that tell it from other archives."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return buffer.getvalue()


USERS = {"user": ["ann", "bob"], "film": ["Heat", "Alien"]}

# name: (name of the file, content, options, cells, a sentence of what was found, or none)
READ = {
    "an empty value": ("a.csv", HEAD + "ann,Heat,4\nbob,Alien,\n", {}, ASKED, None),
    **{
        f"{word} for a value": (
            "a.csv",
            HEAD + f"ann,Heat,4\nbob,Alien,{word}\n",
            {},
            ASKED,
            f"1 value written as {word}, read as missing",
        )
        for word in ("NA", "N/A", "NULL", "null", "None", "nan", "?", "-", ".", "#N/A")
    },
    "NaN as Python writes it": (
        "a.csv",
        HEAD + "ann,Heat,4\nbob,Alien,NaN\n",
        {},
        ASKED,
        "1 value written as nan, read as missing",
    ),
    "a blank for a value": ("a.csv", HEAD + "ann,Heat,4\nbob,Alien, \n", {}, ASKED, None),
    "a missing value in quotes": (
        "a.csv",
        HEAD + 'ann,Heat,"4"\nbob,Alien,"NA"\n',
        {},
        ASKED,
        "1 value written as NA, read as missing",
    ),
    "missing values beside three words": (
        "a.csv",
        HEAD + "ann,Heat,4\nbob,Alien,NA\ncid,Heat,?\ndan,Heat,NA\n",
        {},
        {**ASKED, ("cid", "Heat"): None, ("dan", "Heat"): None},
        "3 values written as NA and ?, read as missing",
    ),
    "a word that is named as missing": (
        "a.csv",
        HEAD + "ann,Heat,4\nbob,Alien,unknown\n",
        {"missing": "unknown"},
        ASKED,
        "1 value written as unknown, read as missing",
    ),
    "a number that is named as missing": (
        "a.csv",
        HEAD + "ann,Heat,4\nbob,Alien,-999\ncid,Alien,-999.0\n",
        {"missing": -999},
        {**ASKED, ("cid", "Alien"): None},
        "2 values written as -999, read as missing",
    ),
    "a number that is named as missing beside words": (
        "a.csv",
        HEAD + "ann,Heat,4\nbob,Alien,99\ncid,Alien,NA\n",
        {"missing": ["99"]},
        {**ASKED, ("cid", "Alien"): None},
        "2 values written as 99 and NA, read as missing",
    ),
    "labels that are words for missing values": (
        "a.csv",
        HEAD + "NA,null,4\n?,-,5\n",
        {"missing": "NA"},
        {("NA", "null"): 4, ("?", "-"): 5},
        None,
    ),
    **{
        f"{yes} and {no}": (
            "a.csv",
            HEAD + f"ann,Heat,{yes}\nbob,Alien,{no}\n",
            {},
            {("ann", "Heat"): 1, ("bob", "Alien"): 0},
            f"values written as {yes} and {no}, read as 1 and 0",
        )
        for yes, no in (("true", "false"), ("TRUE", "FALSE"), ("yes", "no"), ("Y", "N"))
    },
    "yes, no and a missing value under unknown titles": (
        "a.csv",
        "person,band,liked\nann,Heat,yes\nbob,Alien,no\ncid,Heat,NA\n",
        {},
        {("ann", "Heat"): 1, ("bob", "Alien"): 0, ("cid", "Heat"): None},
        "values written as yes and no, read as 1 and 0",
    ),
    "booleans in Parquet": (
        "a.parquet",
        parquet(**USERS, rating=[True, False]),
        {},
        {("ann", "Heat"): 1, ("bob", "Alien"): 0},
        "values written as true and false, read as 1 and 0",
    ),
    "texts in Parquet": (
        "a.parquet",
        parquet(**USERS, rating=["4", "NA"]),
        {},
        ASKED,
        "1 value written as NA, read as missing",
    ),
    "decimal commas between semicolons": (
        "a.csv",
        "user;film;rating\nann;Heat;3,5\nbob;Alien;4\n",
        {},
        {("ann", "Heat"): 3.5, ("bob", "Alien"): 4},
        "values with decimal commas",
    ),
    "decimal commas between tabs, with a missing value": (
        "a.tsv",
        "user\tfilm\trating\nann\tHeat\t0,125\nbob\tAlien\tNA\n",
        {},
        {("ann", "Heat"): 0.125, ("bob", "Alien"): None},
        "values with decimal commas",
    ),
    "decimal commas between semicolons without a header": (
        "a.csv",
        "1;2;3,5\n1;3;4,0\n2;3;5,0\n",
        {},
        NUMBERED,
        "values with decimal commas",
    ),
    "decimal commas and names without a header": (
        "a.csv",
        "ann;Heat;4,5\nbob;Alien;5,0\n",
        {},
        {("ann", "Heat"): 4.5, ("bob", "Alien"): 5},
        "values with decimal commas",
    ),
    "a missing value in the first row without a header": (
        "a.csv",
        "ann,Heat,NA\nbob,Alien,5\n",
        {},
        {("ann", "Heat"): None, ("bob", "Alien"): 5},
        "1 value written as NA, read as missing",
    ),
    "yes and no without a header": (
        "a.csv",
        "ann,Heat,yes\nbob,Alien,no\n",
        {},
        {("ann", "Heat"): 1, ("bob", "Alien"): 0},
        "values written as yes and no, read as 1 and 0",
    ),
    "decimal commas in quotes": (
        "a.csv",
        HEAD + 'ann,Heat,"3,5"\nbob,Alien,4\n',
        {"decimal": ","},
        {("ann", "Heat"): 3.5, ("bob", "Alien"): 4},
        "values with decimal commas",
    ),
    "three decimals that are said to be decimals": (
        "a.csv",
        "user;film;rating\nann;Heat;1,234\nbob;Alien;2,500\n",
        {"decimal": ","},
        {("ann", "Heat"): 1.234, ("bob", "Alien"): 2.5},
        "values with decimal commas",
    ),
    "decimal points between semicolons": (
        "a.csv",
        "user;film;rating\nann;Heat;3.5\nbob;Alien;4\n",
        {},
        {("ann", "Heat"): 3.5, ("bob", "Alien"): 4},
        None,
    ),
    "Latin-1": (
        "a.csv",
        (HEAD + "zoë,Amélie,4\nbob,Alien,5\n").encode("latin-1"),
        {"encoding": "latin-1"},
        {("zoë", "Amélie"): 4, ("bob", "Alien"): 5},
        None,
    ),
    "UTF-16 with a byte-order mark": (
        "a.csv",
        (HEAD + "zoë,Amélie,4\nbob,Alien,5\n").encode("utf-16"),
        {},
        {("zoë", "Amélie"): 4, ("bob", "Alien"): 5},
        None,
    ),
    "UTF-16 inside gzip": (
        "a.csv.gz",
        gzip.compress((HEAD + "ann,Heat,4\nbob,Alien,5\n").encode("utf-16")),
        {},
        PAIR,
        None,
    ),
    "UTF-8 with a byte-order mark and a comment": (
        "a.csv",
        "\ufeff# mine\n" + HEAD + "ann,Heat,4\nbob,Alien,5\n",
        {},
        PAIR,
        "1 comment line skipped",
    ),
    "comments before and between rows": (
        "a.csv",
        "# made, by, me\n# today\n" + HEAD + "ann,Heat,4\n# half\nbob,Alien,5\n",
        {},
        PAIR,
        "3 comment lines skipped",
    ),
    "two hundred comments": (
        "a.csv",
        "# on and on\n" * 200 + HEAD + "ann,Heat,4\nbob,Alien,5\n",
        {},
        PAIR,
        "200 comment lines skipped",
    ),
    "a line feed and a mark inside quotes, after a comment": (
        "a.csv",
        "# mine\n" + HEAD + '"ann\n#1",Heat,4\nbob,Alien,5\n',
        {},
        {("ann\n#1", "Heat"): 4, ("bob", "Alien"): 5},
        "1 comment line skipped",
    ),
    "a header behind a mark": (
        "a.csv",
        "#user,film,rating\nann,Heat,4\nbob,Alien,5\n",
        {"axes": ("user", "film"), "value": "rating"},
        PAIR,
        None,
    ),
    "labels that start with a mark": (
        "a.csv",
        "#love,ann,3\nmusic,ann,4\n#hate,bob,2\n",
        {},
        {("#love", "ann"): 3, ("music", "ann"): 4, ("#hate", "bob"): 2},
        None,
    ),
    "labels that all start with a mark": (
        "a.csv",
        "#love,ann,3\n#hate,bob,2\n",
        {},
        {("#love", "ann"): 3, ("#hate", "bob"): 2},
        None,
    ),
    "a label with a mark in a later row": (
        "a.csv",
        HEAD + "ann,Heat,4\n#1,Alien,5\n",
        {},
        {("ann", "Heat"): 4, ("#1", "Alien"): 5},
        None,
    ),
    "Matrix Market": (
        "a.mtx",
        "%%MatrixMarket matrix coordinate real general\n% mine\n2 3 3\n1 2 3.5\n1 3 4\n2 3 5\n",
        {},
        NUMBERED,
        "the line of sizes skipped",
    ),
    "the separator in the first line": (
        "a.csv",
        "sep=;\nuser;film;rating\nann;Heat;4\nbob;Alien;5\n",
        {},
        PAIR,
        "the line that names the separator skipped",
    ),
    "one or more blanks": (
        "a.txt",
        "1 2 3.5\n1  3 4\n 2 3\t5 \n",
        {},
        NUMBERED,
        "fields separated by blanks",
    ),
    "blanks with a header": (
        "a.txt",
        "user film rating\r\nann Heat 4\r\nbob Alien 5\r\n",
        {},
        PAIR,
        "fields separated by blanks",
    ),
    "blanks and quotes": (
        "a.txt",
        '"user" "film" "rating"\n"ann lee" "Heat" 4\n"bob" "Alien" NA\n',
        {},
        {("ann lee", "Heat"): 4, ("bob", "Alien"): None},
        "fields separated by blanks",
    ),
    "blanks and decimal commas": (
        "a.txt",
        "1 2 3,5\n1 3 4,0\n2 3 5,0\n",
        {},
        NUMBERED,
        "values with decimal commas",
    ),
    "labels of two words between commas": (
        "a.csv",
        "a b,c d\ne f,g h\n",
        {},
        {("a b", "c d"): 1, ("e f", "g h"): 1},
        "the first line, 'a b, c d', is read as a row; header=True takes it for titles",
    ),
    "a blank after every comma": (
        "a.csv",
        "user, film, rating\nann, Heat, 4\nbob, Alien, 5\n",
        {},
        PAIR,
        "blanks after ',' left out",
    ),
    "a blank after every comma, and an empty value": (
        "a.csv",
        "user, film, rating\nann, Heat, 4\nbob, Alien,\n",
        {},
        ASKED,
        "blanks after ',' left out",
    ),
    "a blank after every comma, and quotes": (
        "a.csv",
        'user, film, rating\nann, "Heat, the film", 4\nbob, Alien, 5\n',
        {},
        {("ann", "Heat, the film"): 4, ("bob", "Alien"): 5},
        "blanks after ',' left out",
    ),
    "a blank in some fields": (
        "a.csv",
        HEAD + "ann, Heat,4\nbob,Alien,5\n",
        {},
        {("ann", " Heat"): 4, ("bob", "Alien"): 5},
        None,
    ),
    "JSON lines": (
        "a.jsonl",
        '{"user":"ann","film":"Heat","rating":4}\n{"user":"bob","film":"Alien","rating":"NA"}\n',
        {},
        ASKED,
        "1 value written as NA, read as missing",
    ),
    "JSON lines by their content": (
        "a.txt",
        '{"user":"ann","film":"Heat","rating":true}\n{"user":"bob","film":"Alien"}\n',
        {},
        {("ann", "Heat"): 1, ("bob", "Alien"): None},
        "values written as true, read as 1 and 0",
    ),
    "an array of JSON objects": (
        "a.json",
        '[{"user":"ann","film":"Heat","rating":4},\n {"user":"bob","film":"Alien"}]',
        {},
        ASKED,
        None,
    ),
    "a log that is counted": (
        "a.csv",
        "user,film\nann,Heat\nann,Heat\nbob,Alien\n",
        {"duplicates": "count"},
        {("ann", "Heat"): 2, ("bob", "Alien"): 1},
        "1 duplicate cell merged (count)",
    ),
    "a log with texts that is counted": (
        "a.csv",
        "user,film,action\nann,Heat,play\nann,Heat,stop\nbob,Alien,play\n",
        {"duplicates": "count"},
        {("ann", "Heat"): 2, ("bob", "Alien"): 1},
        "1 duplicate cell merged (count)",
    ),
    "a log that is summed": (
        "a.csv",
        "user,film,plays\nann,Heat,2\nann,Heat,3\nbob,Alien,1\n",
        {"duplicates": "sum"},
        {("ann", "Heat"): 5, ("bob", "Alien"): 1},
        "1 duplicate cell merged (sum)",
    ),
    "titles that only the options tell from a row": (
        "a.csv",
        "listener,band,genre\nann,abba,pop\nann,abba,disco\n",
        {"axes": ("listener", "band", "genre")},
        {("ann", "abba", "pop"): 1, ("ann", "abba", "disco"): 1},
        None,
    ),
    "the row numbers of pandas": (
        "a.csv",
        ",person,band,score\n0,ann,Heat,4\n1,bob,Alien,5\n",
        {},
        PAIR,
        "axes person, band; value score; ignored: ''",
    ),
    "row numbers with a title": (
        "a.csv",
        "rownames,person,score\n1,a,3\n2,b,4\n3,a,5\n4,b,2\n5,c,1\n",
        {},
        {(1, "a"): 3, (2, "b"): 4, (3, "a"): 5, (4, "b"): 2, (5, "c"): 1},
        "every member of 'rownames' has one cell, as if it numbered the rows; axes= names others",
    ),
    "texts and a bad line that is skipped": (
        "a.csv",
        HEAD + "ann,Heat,4\nbob,Alien,NA\ncid,Heat,good\ndan\n",
        {"skip_bad_lines": True},
        ASKED,
        "2 bad lines skipped",
    ),
}

# name: (name of the file, content, options, what the line must say)
REFUSED = {
    "a word that is no value": (
        "a.csv",
        HEAD + "ann,Heat,4\nbob,Alien,unknown\n",
        {},
        "line 3: a number is needed in 'rating', but this is 'unknown'; missing='unknown' reads",
    ),
    "yes among numbers": (
        "a.csv",
        HEAD + "ann,Heat,yes\nbob,Alien,4\n",
        {},
        "line 2: a number is needed in 'rating', but this is 'yes' among numbers",
    ),
    "a unit": (
        "a.csv",
        HEAD + "ann,Heat,$4\nbob,Alien,$5\n",
        {},
        r"'\$4'; write the number without",
    ),
    "a unit in the first row without a header": (
        "a.csv",
        "ann,Heat,$4\nbob,Alien,5\n",
        {},
        r"line 1: a number is needed in 'column 3', but this is '\$4'; write the number without",
    ),
    "a thousands separator in quotes": (
        "a.csv",
        HEAD + 'ann,Heat,"1,234"\nbob,Alien,5\n',
        {},
        "but this is '1,234'; write it without thousands separators, or choose decimal=','",
    ),
    "commas that may be thousands or decimals": (
        "a.csv",
        "user;film;rating\nann;Heat;1,234\nbob;Alien;2,500\n",
        {},
        "line 2: .* but this is '1,234'; write it without thousands separators, or choose decimal",
    ),
    "thousands with points": (
        "a.csv",
        "user;film;rating\nann;Heat;1.234,5\nbob;Alien;2,5\n",
        {},
        "but this is '1.234,5'; write it without thousands separators",
    ),
    "thousands with points and a comma that was named": (
        "a.csv",
        "user;film;rating\nann;Heat;2,5\nbob;Alien;1.234\n",
        {"decimal": ","},
        "line 3: .* but this is '1.234'; write it without thousands separators",
    ),
    "a decimal comma between commas": (
        "a.csv",
        HEAD + 'ann,Heat,"3,5"\nbob,Alien,4\n',
        {},
        "but this is '3,5'; decimal=',' reads decimal commas",
    ),
    "a point where commas were named": (
        "a.csv",
        "user;film;rating\nann;Heat;3.5\nbob;Alien;2,5\n",
        {"decimal": ","},
        "but this is '3.5'; the decimal mark is a comma",
    ),
    "another decimal mark": ("a.csv", HEAD + "a,b,1\n", {"decimal": "'"}, "must be '.' or ','"),
    "Latin-1 without its name": (
        "a.csv",
        (HEAD + "ann,Heat,4\nbob,Amélie,5\n").encode("latin-1"),
        {},
        "line 3: text must be UTF-8, but this is not; .* choose encoding=.latin-1., which",
    ),
    "Latin-1 in the titles": (
        "a.csv",
        "Käufer,film,rating\nann,Heat,4\n".encode("latin-1"),
        {},
        "line 1: text must be UTF-8",
    ),
    "an unknown encoding": (
        "a.csv",
        HEAD + "ann,Heat,4\n",
        {"encoding": "latn1"},
        "such as utf-8 or latin-1, but is 'latn1'; did you mean 'latin1'?",
    ),
    "an encoding that does not fit": (
        "a.csv",
        HEAD + "ann,Heat,4\nbob,Amélie,5\n",
        {"encoding": "ascii"},
        "line 3: text must be ascii, but this is not",
    ),
    "UTF-16 without a mark": (
        "a.csv",
        (HEAD + "ann,Heat,4\n").encode("utf-16-le"),
        {},
        "a UTF-8 text, Parquet, Excel or JSON file is needed, but this is binary",
    ),
    "nothing but comments": ("a.csv", "# one\n# two\n", {}, "but there are only comments"),
    "a bad value after comments": (
        "a.csv",
        "# one\n\n# two\n" + HEAD + "ann,Heat,4\n# three\nbob,Alien,bad\n",
        {},
        "line 7: a number is needed in 'rating', but this is 'bad'",
    ),
    "a symmetric Matrix Market file": (
        "a.mtx",
        "%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 2 3.5\n",
        {},
        "and general, but is 'matrix coordinate real symmetric'; convert it first",
    ),
    "blanks that are not the same in every line": (
        "a.txt",
        "ann Heat 4\nbob The Matrix 5\n",
        {},
        "line 1: two columns or more are needed, separated by comma, .* or blanks",
    ),
    "a JSON line that is cut": (
        "a.jsonl",
        '{"user":"ann","film":"Heat","rating":4}\n{"user":"bob"\n',
        {},
        "line 2: a JSON object per line, or an array of objects, is needed",
    ),
    "a JSON object of lists": (
        "a.json",
        '{"a": [\n{"b": 1}]}',
        {},
        "an array of objects, is needed, but this is one object, with an array in 'a'; write the",
    ),
    "NaN in JSON lines": ("a.jsonl", '{"user":1,"film":2,"rating":NaN}\n', {}, "line 1: a JSON"),
    "a JSON array of numbers": ("a.json", "[1, 2]", {}, "an array of objects, is needed"),
    "an old spreadsheet": ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 9, {}, "this is .xls"),
    "repeated pairs without values": (
        "a.csv",
        "user,film\nann,Heat\nann,Heat\n",
        {},
        r"line 3: every cell may come once, but \('ann', 'Heat'\) comes again; duplicates= merges "
        r"them by mean, last, .* \(how often each comes\); scale='positives' beside it keeps a",
    ),
    "a third axis beside a value": (
        "a.csv",
        "person,band,genre,plays\na,x,rock,1\na,x,pop,2\nb,x,rock,3\n",
        {},
        r"if 'genre' is an axis, choose axes=\('person', 'band', 'genre'\)",
    ),
    "a third axis in the place of the value": (
        "a.csv",
        "user_name,film,genre\na,x,rock\na,x,pop\nb,x,rock\n",
        {},
        r"this is 'rock'; axes=\('user_name', 'film', 'genre'\) takes it for an axis",
    ),
    "a third axis and titles that look like a row": (
        "a.csv",
        "listener,band,genre\nann,abba,pop\nann,abba,disco\n",
        {},
        r"line 1: .* this is 'genre'; header=True takes the first line for titles, "
        r"axes=\(1, 2, 3\) it for an axis",
    ),
    "dates for values": (
        "a.csv",
        "person,place,when\na,x,2024-01-03\nb,y,2024-01-04\n",
        {},
        "line 2: .* but this is '2024-01-03'; time='when' takes it for times",
    ),
    "a misspelt axis": (
        "a.csv",
        HEAD + "ann,Heat,4\n",
        {"axes": ("user", "flim")},
        "but is 'flim'; did you mean 'film'?",
    ),
    "a misspelt value": (
        "a.csv",
        HEAD + "ann,Heat,4\n",
        {"value": "Ratings"},
        "but is 'Ratings'; did you mean 'rating'?",
    ),
}


@pytest.mark.parametrize("case", READ)
def test_a_messy_file_is_read_as_it_is_meant_and_says_so(case, tmp_path):
    name, content, options, cells, note = READ[case]
    table = Table.read(write(tmp_path, name, content), **options)
    assert cells_of(table) == cells
    # The roles come first and the summary last; anything between them must be expected.
    said = [table.found[0], *table.found[1:-1]]
    assert note in said if note else len(said) == 1, said


@pytest.mark.parametrize("case", REFUSED)
def test_other_files_are_refused_in_one_line_without_options_of_the_command(case, tmp_path):
    name, content, options, message = REFUSED[case]
    with pytest.raises(InputError, match=message) as error:
        Table.read(write(tmp_path, name, content), **options)
    assert "\n" not in str(error.value)
    assert not re.search(r"(^|\s|\()--\w", str(error.value))


def test_there_are_at_least_seventy():
    assert len(READ) + len(REFUSED) >= 70


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("person,band,genre,plays\na,x,rock,1\na,x,pop,2\n", "choose --axes person,band,genre,"),
        (HEAD + "a,x,1\nb,y,no idea\n", "--missing 'no idea' reads it as missing"),
        (HEAD + 'a,x,"1,5"\nb,y,2\n', "--decimal , reads decimal commas"),
        ((HEAD + "ä,x,1\n").encode("latin-1"), "choose --encoding latin-1, which"),
        ("person,place,when\na,x,2024-01-03\n", "--time when takes it for times, and --value"),
    ],
)
def test_the_command_names_its_options_in_the_same_errors(content, message, tmp_path):
    result = run("data", "describe", write(tmp_path, "a.csv", content))
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "cells"),
    [
        (["--missing", "unknown,-9", "--missing", "5"], {("d", "x"): 4}),
        (["--missing", "unknown", "--missing", "-9"], {("c", "x"): 5, ("d", "x"): 4}),
    ],
)
def test_options_for_missing_values_are_separated_by_commas_or_repeated(options, cells, tmp_path):
    path = write(tmp_path, "a.csv", HEAD + "a,x,unknown\nb,x,-9\nc,x,5\nd,x,4\n")
    result = run("data", "describe", path, *options)
    assert result.exit_code == 0, result.stderr
    assert f"{len(cells)} cell" in result.stdout


def test_a_spreadsheet_needs_an_engine_and_the_line_names_it(tmp_path, monkeypatch):
    path = write(tmp_path, "a.xlsx", spreadsheet())
    monkeypatch.setattr(typed, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install fastexcel, or save it as CSV"):
        Table.read(path)


def test_a_spreadsheet_is_read_by_the_engine_that_is_there(tmp_path, monkeypatch):
    path = write(tmp_path, "a.xlsx", spreadsheet())
    frame = pl.DataFrame({**USERS, "rating": ["4", "NA"]})
    sheets = {"Ratings": frame, "Notes": pl.DataFrame()}
    engines = []

    def read_excel(source, *, sheet_id, engine, infer_schema_length, raise_if_empty):
        assert (source.read(), sheet_id) == (path.read_bytes(), 0)
        assert (infer_schema_length, raise_if_empty) == (None, False)
        engines.append(engine)
        return sheets

    monkeypatch.setattr(typed, "find_spec", lambda name: name == "openpyxl" or None)
    monkeypatch.setattr(pl, "read_excel", read_excel)
    assert cells_of(Table.read(path)) == ASKED
    assert engines == ["openpyxl"]
    sheets["Notes"] = frame
    with pytest.raises(InputError, match=r"one sheet .* but there are 2: Ratings, Notes; save one"):
        Table.read(path)
    sheets.clear()
    with pytest.raises(InputError, match="one sheet with rows is needed, but there are none; save"):
        Table.read(path)


def test_a_damaged_spreadsheet_is_refused_in_one_line(tmp_path, monkeypatch):
    def read_excel(source, **options):
        raise ValueError("no sheet\nat all")

    path = write(tmp_path, "a.xlsx", spreadsheet())
    monkeypatch.setattr(typed, "find_spec", lambda name: True)
    monkeypatch.setattr(pl, "read_excel", read_excel)
    with pytest.raises(InputError, match=r"not a whole Excel file \(no sheet\)$"):
        Table.read(path)


def test_a_file_that_is_not_there_is_told_from_one_that_is(tmp_path, monkeypatch):
    write(tmp_path, "ratings.csv", HEAD)
    with pytest.raises(InputError, match=r"no such file; did you mean 'ratings.csv'\?"):
        Table.read(tmp_path / "rating.csv")
    with pytest.raises(InputError, match=r"no such file$"):
        Table.read(tmp_path / "films.tsv")
    monkeypatch.chdir(tmp_path)
    assert "no such file or dataset; did you mean 'ml-100k'?" in run("complete", "ml100k").stderr
