"""Files that can be read in two ways: each is read as it is meant and says so, or refused."""

import io
import re
import zipfile

import polars as pl
import pytest
from tests.support.commands import run
from tests.support.files import cells_of, parquet, write

from exchangeable import Table
from exchangeable.errors import InputError

HEAD = "user,film,rating\n"
WIDE = "if each column of numbers is a member of its own (a wide table), wide=True reads them all"
RATINGS = "ann,Heat,4\nbob,Heat,5\nbob,Alien,3\ncid,Heat,2\n"
RATED = {("ann", "Heat"): 4, ("bob", "Heat"): 5, ("bob", "Alien"): 3, ("cid", "Heat"): 2}


def archive(**files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return buffer.getvalue()


# name: (name of the file, content, options, cells, a sentence of what was found, or none)
READ = {
    "coordinates that are called x and y": (
        "a.csv",
        "x,y,v\n1,1,3.5\n1,2,4.5\n2,1,2.25\n",
        {},
        {(1, 1): 3.5, (1, 2): 4.5, (2, 1): 2.25},
        None,
    ),
    "a weight after an answer": (
        "a.csv",
        "respondent,question,answer,weight\nr1,q1,3,1.2\nr2,q1,4,.8\nr1,q2,5,1.1\n",
        {},
        {("r1", "q1"): 3, ("r2", "q1"): 4, ("r1", "q2"): 5},
        None,
    ),
    "a weight after numbers with a title that says nothing": (
        "a.csv",
        "who,what,level,weight\na,p,3,1.2\nb,p,4,.8\na,q,5,1.1\n",
        {},
        {("a", "p"): 3, ("b", "p"): 4, ("a", "q"): 5},
        None,
    ),
    "a weight after texts": (
        "a.csv",
        "who,what,kind,weight\na,p,x,1.2\nb,p,y,.8\na,q,x,1.1\n",
        {},
        {("a", "p"): 1.2, ("b", "p"): 0.8, ("a", "q"): 1.1},
        None,
    ),
    "a weight between two labels": (
        "a.csv",
        "from,weight,to\na,2,b\nb,3,a\n",
        {},
        {("a", "b"): 2, ("b", "a"): 3},
        "'weight' is taken for the value by its title; value= names another",
    ),
    "a value called y after numbers of the rows": (
        "a.csv",
        "s,d,studage,lectage,service,dept,y\n1,7,2,2,0,2,5\n1,8,2,1,1,6,2\n2,7,4,2,0,2,4\n",
        {},
        {(1, 7): 5, (1, 8): 2, (2, 7): 4},
        WIDE,
    ),
    "a value called y before a label": (
        "a.csv",
        "i,y,v\n1,1,3\n1,2,4\n2,1,2\n",
        {},
        {(1, 3): 1, (1, 4): 2, (2, 2): 1},
        "'y' is taken for the value by its title; value= names another",
    ),
    "seconds since 1970 for values": (
        "a.csv",
        "who,what,clock\nann,Heat,1700000000\nbob,Alien,1700086400\nann,Alien,\n",
        {},
        {("ann", "Heat"): 1.7e9, ("bob", "Alien"): 1700086400, ("ann", "Alien"): None},
        "all values look like times, such as 1700000000; time='clock' takes them for times, and "
        "value= names the values",
    ),
    "days as numbers for values": (
        "a.csv",
        "who,what,d\nann,Heat,20240103\nbob,Alien,20241231\n",
        {},
        {("ann", "Heat"): 20240103, ("bob", "Alien"): 20241231},
        "all values look like times, such as 20240103; time='d' takes them for times, and value= "
        "names the values",
    ),
    "large numbers that are no days": (
        "a.csv",
        "who,what,d\nann,Heat,20240103\nbob,Alien,20249931\n",
        {},
        {("ann", "Heat"): 20240103, ("bob", "Alien"): 20249931},
        None,
    ),
    "times that are ignored beside ratings": (
        "a.csv",
        "u,i,r,t\n1,10,4,881250949\n2,11,5,881250950\n1,11,3,881250951\n",
        {},
        {(1, 10): 4, (2, 11): 5, (1, 11): 3},
        None,
    ),
    "a wide table of two columns": (
        "a.csv",
        "student,maths,physics\nann,1,2\nbob,2,\ncleo,3,3\n",
        {},
        {("ann", 1): 2, ("bob", 2): None, ("cleo", 3): 3},
        WIDE,
    ),
    "a wide table of two columns that is asked for": (
        "a.csv",
        "student,maths,physics\nann,1,2\nbob,2,\n",
        {"wide": True},
        {("ann", "maths"): 1, ("ann", "physics"): 2, ("bob", "maths"): 2, ("bob", "physics"): None},
        None,
    ),
    "the same table that is long": (
        "a.csv",
        "student,maths,physics\nann,1,2\nbob,2,\ncleo,3,3\n",
        {"wide": False},
        {("ann", 1): 2, ("bob", 2): None, ("cleo", 3): 3},
        None,
    ),
    "a wide table with a total": (
        "a.csv",
        "store,apples,pears,total\nA,1.5,2,3.5\nB,2,,2\nC,1,1,2\n",
        {},
        {("A", "1.5"): 2, ("B", "2"): None, ("C", "1"): 1},
        WIDE,
    ),
    "a wide table with ratings at its end": (
        "a.csv",
        "wine,acid,sugar,alcohol,rating\nw1,.5,1.5,11,4\nw2,.75,1.25,12,5\n",
        {},
        {("w1", ".5"): 4, ("w2", ".75"): 5},
        WIDE,
    ),
    "a wide table with a label that comes again": (
        "a.csv",
        "student,maths,physics,chem\nann,1,2,3\nann,2,,4\ncid,3,2,1\n",
        {},
        {("ann", 1): 2, ("ann", 2): None, ("cid", 3): 2},
        WIDE,
    ),
    "patients by number": (
        "a.csv",
        "patientno,age,bp,chol\n7,50,120,200\n10,60,130,210\n13,50,140,220\n",
        {},
        {(7, 50): 120, (10, 60): 130, (13, 50): 140},
        WIDE,
    ),
    "a wide Parquet file with ratings at its end": (
        "a.parquet",
        parquet(wine=["a", "b"], acid=[0.5, 0.7], sugar=[1.5, 2], ph=[3.5, 3], rating=[4, 5]),
        {},
        {("a", 0.5): 4, ("b", 0.7): 5},
        WIDE,
    ),
    "measurements beside a text": (
        "a.csv",
        "length,width,height,depth,species\n5.1,3.5,1.4,.2,a\n4.9,3,1.5,.2,a\n4.7,3.2,1.3,.3,b\n",
        {},
        {
            (1, "length"): 5.1,
            (1, "width"): 3.5,
            (1, "height"): 1.4,
            (1, "depth"): 0.2,
            (2, "length"): 4.9,
            (2, "width"): 3,
            (2, "height"): 1.5,
            (2, "depth"): 0.2,
            (3, "length"): 4.7,
            (3, "width"): 3.2,
            (3, "height"): 1.3,
            (3, "depth"): 0.3,
        },
        "species is left as it is, since it holds more than numbers: row 1 is 'a'",
    ),
    "dates for the titles of a wide table": (
        "a.csv",
        "sensor,2024-01-01,2024-01-02,2024-01-03\ns,1,2,3\nt,4,,6\nu,7,8,9\n",
        {},
        {
            ("s", "2024-01-01"): 1,
            ("s", "2024-01-02"): 2,
            ("s", "2024-01-03"): 3,
            ("t", "2024-01-01"): 4,
            ("t", "2024-01-02"): None,
            ("t", "2024-01-03"): 6,
            ("u", "2024-01-01"): 7,
            ("u", "2024-01-02"): 8,
            ("u", "2024-01-03"): 9,
        },
        None,
    ),
    "points that are said to be decimals": (
        "a.csv",
        "user;film;spend\nann;Heat;1.234\nbob;Alien;12.500\ncid;Big;950\n",
        {"decimal": "."},
        {("ann", "Heat"): 1.234, ("bob", "Alien"): 12.5, ("cid", "Big"): 950},
        None,
    ),
    "three decimals between semicolons": (
        "a.csv",
        "user;film;spend\nann;Heat;1.234\nbob;Alien;0.500\ncid;Big;950\n",
        {},
        {("ann", "Heat"): 1.234, ("bob", "Alien"): 0.5, ("cid", "Big"): 950},
        None,
    ),
    "two decimals between semicolons": (
        "a.csv",
        "user;film;spend\nann;Heat;1.23\nbob;Alien;12.500\ncid;Big;950\n",
        {},
        {("ann", "Heat"): 1.23, ("bob", "Alien"): 12.5, ("cid", "Big"): 950},
        None,
    ),
    **{
        f"{mark} among ratings": (
            "a.csv",
            HEAD + RATINGS + f"dan,Heat,{mark}\n",
            {},
            {**RATED, ("dan", "Heat"): mark},
            f"1 value of {mark} among values from 2 to 5: if that is a missing value, "
            f"missing={mark} reads it so",
        )
        for mark in (99, 999, -1, -9)
    },
    "-1 among votes": (
        "a.csv",
        HEAD + "ann,Heat,1\nbob,Heat,-1\nbob,Alien,0\n",
        {},
        {("ann", "Heat"): 1, ("bob", "Heat"): -1, ("bob", "Alien"): 0},
        None,
    ),
    "99 among percentages": (
        "a.csv",
        HEAD + "ann,Heat,80\nbob,Heat,99\nbob,Alien,60\n",
        {},
        {("ann", "Heat"): 80, ("bob", "Heat"): 99, ("bob", "Alien"): 60},
        None,
    ),
    "labels that differ in blanks": (
        "a.csv",
        HEAD + "ann ,Heat,4\nann,Alien,5\nann,Big,3\n",
        {},
        {("ann ", "Heat"): 4, ("ann", "Alien"): 5, ("ann", "Big"): 3},
        "1 label of 'user' differs from others only in blanks around the text, such as 'ann '; "
        "remove these if the same is meant",
    ),
    "the minus of typesetters": (
        "a.csv",
        "who,what,change\nann,Heat,\u22124.5\nbob,Alien,3.2\n",
        {},
        {("ann", "Heat"): -4.5, ("bob", "Alien"): 3.2},
        None,
    ),
    "an archive that macOS made": (
        "a.zip",
        archive(**{"a.csv": HEAD + RATINGS, "__MACOSX/._a.csv": b"\0\1", ".DS_Store": b".."}),
        {},
        RATED,
        None,
    ),
    "the encoding of Windows": (
        "a.csv",
        (HEAD + "ann,Schindler\u2019s,4\n").encode("cp1252"),
        {"encoding": "cp1252"},
        {("ann", "Schindler\u2019s"): 4},
        None,
    ),
    "numbers of rows under no title, and a film's year": (
        "a.csv",
        ",user,film,rating,year,minutes\n0,ann,Heat,4,1995,170\n1,bob,Alien,5,1979,117\n",
        {},
        {("ann", "Heat"): 4, ("bob", "Alien"): 5},
        None,
    ),
}

# name: (name of the file, content, options, what the line must say)
REFUSED = {
    "points that may separate thousands": (
        "a.csv",
        "user;film;spend\nann;Heat;1.234\nbob;Alien;12.500\ncid;Big;950\n",
        {},
        r"line 2: .* this is '1.234'; write it without thousands separators, or choose decimal='.' "
        "if it is 1.234",
    ),
    "points that may separate thousands after a blank line": (
        "a.tsv",
        "user\tfilm\tspend\n\nann\tHeat\t950\nbob\tAlien\t12.500\n",
        {},
        "line 4: .* this is '12.500'; write it without thousands separators",
    ),
    "the encoding of Windows without its name": (
        "a.csv",
        (HEAD + "ann,Heat,4\nbob,Schindler\u2019s,5\n").encode("cp1252"),
        {},
        "line 3: text must be UTF-8, but this is not; .* choose encoding='cp1252', which",
    ),
    **{
        f"{yes} and {no}": (
            "a.csv",
            f"person,band,choice\nann,Heat,{yes}\nbob,Alien,{no}\ncid,Heat,{yes}\n",
            {"header": True},
            f"this is '{yes}'; write 1 and 0 in the place of '{yes}' and '{no}'$",
        )
        for yes, no in (("ja", "nein"), ("T", "F"), ("like", "dislike"))
    },
    "words of a scale": (
        "a.csv",
        HEAD + "ann,Heat,good\nbob,Alien,bad\n",
        {},
        "this is 'good'; missing='good' reads it as missing",
    ),
    "rows inside an object of JSON": (
        "a.json",
        '{"ratings":[{"user":"a","film":"x","rating":1}]}',
        {},
        "an array of objects, is needed, but this is one object, with an array in 'ratings'; write",
    ),
    "objects inside an object of JSON": (
        "a.json",
        '{"ann":{"Heat":4},"bob":{"Alien":5}}',
        {},
        "a.json: .* but this is one object, with an object in 'ann'; write the rows alone",
    ),
    "an archive of two files": (
        "a.zip",
        archive(**{"a.csv": HEAD, "b.csv": HEAD, "__MACOSX/._a.csv": b"\0"}),
        {},
        "a zip must hold one file, but holds 2: a.csv, b.csv",
    ),
    "answers to questions without labels of rows": (
        "a.csv",
        "q1,q2,q3,q4,q5\n1,2,3,4,5\n1,2,4,4,4\n3,3,3,3,3\n",
        {},
        r"\(1, 2\) comes again; if each column of numbers is a member of its own \(a wide table\), "
        "choose wide=True, otherwise duplicates= merges",
    ),
    "measurements after a kind": (
        "a.csv",
        "species,a,b,c\nx,1.5,2,3\nx,1.5,3,4\nx,2.5,1,2\nx,2.5,4,1\n",
        {},
        "comes again; if each column of numbers is a member of its own .* choose wide=True",
    ),
    "times that are durations": (
        "a.parquet",
        parquet(user=["a"], film=["b"], watched=pl.Series([5]).cast(pl.Duration("us"))),
        {},
        "numbers are needed in 'watched', but it holds durations; convert them to a number of",
    ),
}


@pytest.mark.parametrize("case", READ)
def test_a_doubtful_file_is_read_as_it_is_meant_and_says_so(case, tmp_path):
    name, content, options, cells, note = READ[case]
    table = Table.read(write(tmp_path, name, content), **options)
    assert cells_of(table) == cells
    notes = table.found[1:-1]
    assert notes == ((note,) if note else ()), notes


@pytest.mark.parametrize("case", REFUSED)
def test_other_doubtful_files_are_refused_in_one_line(case, tmp_path):
    name, content, options, message = REFUSED[case]
    with pytest.raises(InputError, match=message) as error:
        Table.read(write(tmp_path, name, content), **options)
    assert "\n" not in str(error.value)
    assert not re.search(r"(^|\s|\()--\w", str(error.value))


def test_a_kind_before_measurements_is_no_label_of_a_wide_table(tmp_path):
    path = write(tmp_path, "a.csv", REFUSED["measurements after a kind"][1])
    assert Table.read(path, wide=True).shape == (4, 3)


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (READ["a wide table of two columns"][1], "(a wide table), --wide reads them all"),
        (READ["99 among ratings"][1], "missing value, --missing 99 reads it so"),
        (READ["seconds since 1970 for values"][1], "--time clock takes them for times, and --val"),
    ],
)
def test_notes_of_the_command_name_its_options(content, note, tmp_path):
    path = write(tmp_path, "a.csv", content)
    for options in ([], ["--json"]):
        result = run("data", "describe", path, *options)
        assert result.exit_code == 0, result.stderr
        assert note in result.stdout
    result = run("complete", path, "--all", "--model", "bias", "--out", tmp_path / "out.csv")
    assert note in result.stdout, result.stderr


def test_repeated_pairs_name_the_options_of_the_command(tmp_path):
    path = write(tmp_path, "a.csv", "user,film\nann,Heat\nann,Heat\nbob,Big\n")
    result = run("data", "describe", path)
    assert "--duplicates merges them by mean, last" in result.stderr
    assert "--scale positives beside it keeps a ranking" in result.stderr
    assert run("data", "describe", path, "--duplicates", "count").exit_code == 0
