"""Datasets load with the counts of their publishers; files are found, fetched and checked."""

import http.server
import json
import os
import threading
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from exchangeable import datasets
from exchangeable.cli import app
from exchangeable.datasets import DATASETS, film_club, load
from exchangeable.datasets.source import Source
from exchangeable.errors import InputError

HELD = os.environ.get("EXCHANGEABLE_DATA")
real = pytest.mark.skipif(not HELD, reason="needs EXCHANGEABLE_DATA to name the data folder")

# Counted in the files by their publishers: cells, members of each axis.
COUNTS = {
    "ml-100k": (100_000, (943, 1_682)),
    "ml-1m": (1_000_209, (6_040, 3_706)),
    "flixster": (26_173, (3_000, 3_000)),
    "douban": (136_891, (3_000, 3_000)),
    "yahoo-music": (5_335, (3_000, 3_000)),
    "davis": (30_056, (68, 442)),
    "kiba": (118_254, (2_111, 229)),
    "lastfm-tags": (186_479, (1_892, 12_523, 9_749)),
    "lastfm-plays": (92_834, (1_892, 17_632)),
    "movietweetings": (100_000, (16_554, 10_506)),
    "gowalla": (1_027_370, (29_858, 40_981)),
    "yelp2018": (1_561_406, (31_668, 38_048)),
    "insteval": (73_421, (2_972, 1_128)),
    "coat": (11_234, (290, 300)),  # 6,960 and 4,640, of which 366 are the same cell
    "llm-arc": (255_496, (218, 1_172)),
    "llm-ifeval": (242_368, (448, 541)),
    "llm-gsm": (83_000, (83, 1_000)),
    "birmingham": (35_389, (30, 77, 18)),
    "hangzhou": (209_763, (80, 25, 108)),
    "new-york": (974_456, (30, 30, 1_464)),
}


@real
@pytest.mark.parametrize("name", COUNTS)
def test_a_dataset_has_the_counts_of_its_publisher(name):
    dataset = load(name)
    assert (len(dataset.table), dataset.table.shape) == COUNTS[name]
    assert dataset.table.observed.support.first_repeat is None
    assert dataset.source.licence
    assert dataset.source.citation
    for split in dataset.splits.values():
        together = np.concatenate(list(split.parts().values()))
        assert np.array_equal(np.sort(together), np.arange(len(dataset.table)))
    for axis, features in dataset.features.items():
        assert len(features.values) == dataset.table.shape[axis]
        assert np.isfinite(features.values).all()
    for axis, graph in dataset.graphs.items():
        assert graph.shape == (dataset.table.shape[axis],) * 2


@real
def test_facts_of_ml_100k():
    dataset = load("ml-100k")
    table = dataset.table
    rows = table.frame(table.index, rating=table.values).rows()
    assert rows[0] == (196, 242, 3.0)
    assert rows[-1] == (12, 203, 3.0)
    assert table.values.mean() == pytest.approx(3.52986)
    assert np.unique(table.values, return_counts=True)[1].tolist() == [
        6_110,
        11_370,
        27_145,
        34_174,
        21_201,
    ]
    assert table.times[0] == 881_250_949
    assert sorted(dataset.splits) == ["u1", "u2", "u3", "u4", "u5"]
    for number, split in enumerate(dataset.splits.values(), start=1):
        text = Path(HELD, "ml-100k", f"u{number}.test").read_text().splitlines()
        expected = {tuple(map(int, line.split()[:2])) for line in text}
        assert set(table.frame(table.index[split.test]).rows()) == expected
    users = table.frame(table.index[dataset.splits["u1"].test])["user"]
    assert users.max() == 462
    tests = np.concatenate([split.test for split in dataset.splits.values()])
    assert len(np.unique(tests)) == 100_000  # each cell is tested once
    young = dataset.features[0]
    assert "age" in young.names
    assert young.values[:, young.names.index("gender=F")].sum() == 273
    films = dataset.features[1]
    assert films.names[0] == "year"
    comedies = films.values[:, films.names.index("Comedy")]
    assert int((comedies > 0).sum()) == 505


@real
def test_facts_of_ml_1m():
    dataset = load("ml-1m")
    table = dataset.table
    assert table.frame(table.index[:1], rating=table.values[:1]).rows() == [(1, 1193, 5.0)]
    assert table.frame(table.index[-1:], rating=table.values[-1:]).rows() == [(6040, 1097, 4.0)]
    assert np.unique(table.values, return_counts=True)[1].tolist() == [
        56_174,
        107_557,
        261_197,
        348_971,
        226_310,
    ]
    women = dataset.features[0].values[:, dataset.features[0].names.index("gender=F")]
    assert int(women.sum()) == 1_709


@real
def test_facts_of_the_blocks():
    for name, test, levels in (("flixster", 2_617, 10), ("douban", 13_689, 5)):
        dataset = load(name)
        assert len(dataset.splits["published"].test) == test
        assert len(dataset.table.scale.levels) == levels
    assert len(load("yahoo-music").splits["published"].test) == 533
    assert load("yahoo-music").table.scale.levels[-1] == 100
    graph = load("flixster").graphs
    assert set(graph) == {0, 1}


@real
def test_facts_of_the_affinities():
    davis = load("davis")
    assert davis.table.values[0] == pytest.approx(-np.log10(43 / 1e9))
    assert davis.table.values.min() == pytest.approx(5.0)  # Kd of 10,000 nM: no binding seen
    assert davis.table.vocabularies[0].labels[0] == "11314340"
    assert [len(davis.splits[k].test) for k in ("test", "fold1")] == [5_010, 5_010]
    drugs = davis.graphs[0]
    assert np.allclose(drugs, drugs.T)
    kiba = load("kiba")
    assert kiba.table.values[0] == pytest.approx(11.1)
    assert set(kiba.graphs) == {1}


@real
def test_facts_of_the_others():
    tags = load("lastfm-tags").table
    assert (tags.order, str(tags.scale)) == (3, "positives 1")
    assert tags.frame(tags.index[:1]).rows() == [(2, 52, 13)]
    plays = load("lastfm-plays").table
    assert plays.frame(plays.index[:1], plays=plays.values[:1]).rows() == [(2, 51, 13883.0)]
    films = load("movietweetings").table
    assert films.vocabularies[1].labels[2] == "0104257"  # leading zeros stay
    assert films.scale.levels == tuple(map(float, range(11)))


@real
def test_describe_shows_a_dataset_and_its_licence():
    result = CliRunner().invoke(app, ["data", "describe", "ml-1m"])
    assert result.exit_code == 0
    assert "1,000,209 cells of 6,040 user x 3,706 film, levels 1-5 by 1" in result.stdout
    assert "licence: GroupLens" in result.stdout


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder and an empty cache."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    monkeypatch.setenv("EXCHANGEABLE_DATA", str(data))
    monkeypatch.setattr("pooch.os_cache", lambda name: cache)
    return data


def archive(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as opened:
        for name, text in members.items():
            opened.writestr(name, text)


@pytest.mark.parametrize("name", ["ml-latest-small", "ml-20m", "ml-25m", "ml-32m"])
def test_newer_movielens_archives_are_read_by_format(name, folder):
    text = "userId,movieId,rating,timestamp\n1,296,5.0,1147880044\n1,306,3.5,1147868817\n"
    archive(folder / name / f"{name}.zip", {f"{name}/ratings.csv": text})
    table = load(name).table
    assert table.frame(table.index, rating=table.values).rows() == [(1, 296, 5.0), (1, 306, 3.5)]
    assert str(table.scale) == "levels 3.5-5 by 0.5"
    assert not list((folder / name).glob("*.csv"))  # nothing was unpacked


def test_columns_in_another_order_are_refused(folder):
    text = "movieId,userId,rating,timestamp\n296,1,5.0,1147880044\n"
    archive(folder / "ml-20m/ml-20m.zip", {"ml-20m/ratings.csv": text})
    with pytest.raises(InputError, match="line 1: columns userId, movieId, rating, timestamp are"):
        load("ml-20m")


def test_a_damaged_archive_is_named(folder):
    (folder / "ml-20m").mkdir()
    (folder / "ml-20m/ml-20m.zip").write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(InputError, match=r"ml-20m\.zip: the archive is damaged"):
        load("ml-20m")


def test_ml_10m_is_read_by_format(folder):
    archive(
        folder / "ml-10m/ml-10m.zip",
        {"ml-10M100K/ratings.dat": "1::122::5::838985046\n1::185::4.5::838983525\n"},
    )
    assert load("ml-10m").table.values.tolist() == [5.0, 4.5]


NETFLIX = {
    "mv_0000001.txt": "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n",
    "mv_0000002.txt": "2:\n1488844,4,2005-09-05\n",
    "probe.txt": "1:\n822109\n2:\n1488844\n",
}


@pytest.mark.parametrize("combined", [False, True])
def test_netflix_is_read_in_both_formats(combined, folder):
    (folder / "netflix/training_set").mkdir(parents=True)
    if combined:
        text = NETFLIX["mv_0000001.txt"] + NETFLIX["mv_0000002.txt"]
        (folder / "netflix/combined_data_1.txt").write_text(text)
    else:
        for name in ("mv_0000001.txt", "mv_0000002.txt"):
            (folder / "netflix/training_set" / name).write_text(NETFLIX[name])
    (folder / "netflix/probe.txt").write_text(NETFLIX["probe.txt"])
    dataset = load("netflix")
    table = dataset.table
    rows = table.frame(table.index, rating=table.values).rows()
    assert rows == [(1488844, 1, 3.0), (822109, 1, 5.0), (1488844, 2, 4.0)]
    assert dataset.splits["probe"].test.tolist() == [1, 2]
    assert table.times[0] - table.times[2] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1488844,3,2005-09-06\n", "line 1: 3 fields below a line 'film:' are needed"),
        ("1:\n1488844,9,2005-09-06\n", "a rating 1-5 and a date are needed, but this is"),
        ("1:\n1488844,3,yesterday\n", "a date are needed, but this is '1, 1488844, 3, yesterday'"),
        ("1:\n1488844,3\n", "line 2: 3 fields .* but this is '1488844,3'"),
    ],
)
def test_a_broken_netflix_file_is_named(text, message, folder):
    (folder / "netflix").mkdir()
    (folder / "netflix/mv_0000001.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        load("netflix")


@pytest.mark.parametrize("name", [n for n in DATASETS if not n.startswith("film-club")])
def test_a_dataset_that_cannot_be_had_says_which_file_from_where_to_where(
    name, folder, monkeypatch
):
    def offline(*args, **options):
        raise ConnectionError

    monkeypatch.setattr("pooch.retrieve", offline)
    result = CliRunner().invoke(app, ["data", "fetch", name])
    assert result.exit_code == 2
    (line,) = result.stderr.strip().splitlines()
    source = DATASETS[name].source
    assert line.startswith(f"error: {name}: ")
    assert f"get it from {source.page}" in line or f"get them from {source.page}" in line
    assert str(folder) in line
    assert not [p for p in folder.parent.rglob("*") if p.is_file()]


class Publisher:
    """A server on this machine that offers the given files."""

    def __init__(self, files):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                content = files.get(self.path)
                self.send_response(200 if content is not None else 404)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()


def offered(address):
    return Source("toy", "Toy", "none", "none", "the page", urls={"toy/a.csv": f"{address}/a.csv"})


def test_a_file_is_downloaded_once_and_its_hash_recorded_and_checked(folder):
    cache = folder.parent / "cache"
    with Publisher({"/a.csv": b"hello"}) as publisher:
        source = offered(publisher.address)
        assert source.read("toy/a.csv") == b"hello"
    assert (cache / "toy/a.csv").read_bytes() == b"hello"
    assert list(json.loads((cache / "sha256.json").read_text())) == ["toy/a.csv"]
    assert source.read("toy/a.csv") == b"hello"  # the publisher is gone by now
    (cache / "toy/a.csv").write_bytes(b"hellO")
    with pytest.raises(InputError, match="damaged or another version"):
        source.read("toy/a.csv")


def test_a_download_that_fails_leaves_no_file(folder):
    with Publisher({}) as publisher, pytest.raises(InputError, match="could not be downloaded"):
        offered(publisher.address).read("toy/a.csv")
    assert not [p for p in folder.parent.rglob("*") if p.is_file()]


def test_a_download_with_another_hash_is_refused(folder, monkeypatch):
    monkeypatch.setitem(datasets.source.SHA256, "toy/a.csv", "0" * 64)
    with Publisher({"/a.csv": b"hello"}) as publisher, pytest.raises(InputError):
        offered(publisher.address).read("toy/a.csv")
    assert not list((folder.parent / "cache").rglob("a.csv"))


def test_a_changed_file_in_the_data_folder_is_refused(folder):
    (folder / "ml-100k").mkdir()
    (folder / "ml-100k/u.data").write_text("1\t2\t3\t4\n")
    with pytest.raises(InputError, match=r"u\.data: the file is damaged or another version"):
        load("ml-100k")


def test_an_archive_without_the_file_is_named(folder):
    archive(folder / "ml-20m/ml-20m.zip", {"readme.txt": "hello"})
    with pytest.raises(InputError, match=r"ml-20m/ratings\.csv is needed inside"):
        load("ml-20m")


def test_the_film_club_is_simulated_the_same_each_time_and_keeps_its_truth():
    club, again = film_club.film_club(), load("film-club")
    assert np.array_equal(club.table.index, again.table.index)
    assert np.array_equal(club.table.values, again.table.values)
    assert not np.array_equal(film_club.film_club(seed=1).table.values[:50], club.table.values[:50])
    assert club.table.shape == club.truth.shape == (200, 120)
    assert club.table.scale.levels == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert "simulated" in club.source.title
    error = club.table.values - club.truth[tuple(club.table.index.T)]
    assert abs(error).mean() < 0.7
    names = [v.labels for v in club.table.vocabularies]
    assert all(labels.n_unique() == len(labels) for labels in names)
    genres = club.features[1]
    assert genres.names == film_club.GENRES


def test_the_film_clubs_ratings_follow_its_genres():
    """Members differ in their liking of a genre, so genre means by member vary beyond chance."""
    club = film_club.film_club()
    horror = [i for i, kinds in enumerate(film_club.films().values()) if kinds == ("horror",)]
    bias = club.truth - club.truth.mean(axis=1, keepdims=True) - club.truth.mean(axis=0)
    assert len(horror) >= 5
    assert bias[:, horror].mean(axis=1).std() > 0.3


def test_film_club_evenings_have_three_axes():
    evenings = load("film-club-evenings")
    assert evenings.table.shape == evenings.truth.shape == (80, 120, 5)
    assert evenings.table.axes == ("member", "film", "occasion")
    assert len(evenings.table) > 1_000


def test_the_commands_list_and_describe_and_fetch_for_machines_too():
    run = CliRunner()
    listed = json.loads(run.invoke(app, ["data", "list", "--json"]).stdout)
    assert [entry["name"] for entry in listed] == list(DATASETS)
    assert all(name in run.invoke(app, ["data", "list"]).stdout for name in DATASETS)
    facts = json.loads(run.invoke(app, ["data", "describe", "film-club", "--json"]).stdout)
    assert facts["cells"] == len(load("film-club").table)
    assert sum(bar["cells"] for bar in facts["histogram"]) == facts["cells"]
    assert [axis["members"] for axis in facts["axes"]] == [200, 120]
    assert facts["density"] == pytest.approx(facts["cells"] / 24_000)
    assert json.loads(run.invoke(app, ["data", "fetch", "film-club", "--json"]).stdout) == []


def test_an_unknown_dataset_is_named():
    result = CliRunner().invoke(app, ["data", "fetch", "ml-3k"])
    assert result.exit_code == 2
    assert "a dataset is one of film-club" in result.stderr
    assert "'ml-3k'" in result.stderr


def test_features_and_values_of_a_dataset_go_straight_into_a_model():
    from exchangeable import ResidualConfig, ResidualModel

    club = load("film-club")
    observed = club.table.observed.to(torch.float32)
    config = ResidualConfig(1, 1, width=8, depth=2, heads=2, features=(0, 8))
    model = ResidualModel(config).eval()
    genres = torch.from_numpy(club.features[1].values)
    answers = model(observed, observed.support.take(torch.arange(5)), (None, genres))
    assert answers.shape == (5, 1)


def test_tables_written_to_disk_and_described(tmp_path):
    club = load("film-club").table
    path = tmp_path / "club.csv"
    club.frame(club.index, rating=club.values).write_csv(path)
    assert isinstance(club.frame(club.index), pl.DataFrame)
    result = CliRunner().invoke(app, ["data", "describe", str(path), "--json"])
    assert json.loads(result.stdout)["cells"] == len(club)


def test_places_of_users_are_read_as_their_publisher_writes_them(tmp_path, monkeypatch):
    monkeypatch.setenv("EXCHANGEABLE_DATA", str(tmp_path))
    (tmp_path / "gowalla").mkdir()
    (tmp_path / "gowalla" / "train.txt").write_text("0 4 2\n1 0 \n2\n")
    (tmp_path / "gowalla" / "test.txt").write_text("0 1\n1 3 4\n")
    dataset = load("gowalla")
    assert dataset.table.shape == (2, 5)
    assert dataset.table.scale.kind == "positives"
    split = dataset.splits["published"]
    assert dataset.table.index[split.train].tolist() == [[0, 4], [0, 2], [1, 0]]
    assert dataset.table.index[split.test].tolist() == [[0, 1], [1, 3], [1, 4]]
    (tmp_path / "gowalla" / "test.txt").write_text("0 1\n1 x\n")
    with pytest.raises(InputError, match=r"test.txt: line 2: a user and places are needed"):
        load("gowalla")
