"""MovieLens: 100K with its canonical splits and features, 1M, and the newer archives."""

from __future__ import annotations

import io
from dataclasses import replace

import polars as pl

from exchangeable.data.build import table_from_text
from exchangeable.data.features import MemberFeatures
from exchangeable.data.options import TableOptions
from exchangeable.data.splits import Split, by_position
from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source, text_frame

_COLUMNS = ("user", "film", "rating", "timestamp")
_OPTIONS = TableOptions(axes=_COLUMNS[:2], value="rating", time="timestamp")
_LICENCE = "GroupLens: for research, not to be redistributed without permission"
_CITATION = (
    "F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and Context. "
    "ACM Transactions on Interactive Intelligent Systems 5(4), 19. doi:10.1145/2827872"
)
_PAGE = "https://grouplens.org/datasets/movielens/"
_GENRES = (
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
)


def _source(name: str, title: str, main: str) -> Source:
    path = f"{name}/{name}.zip"
    url = f"https://files.grouplens.org/datasets/movielens/{name}.zip"
    return Source(
        name, title, _LICENCE, _CITATION, _PAGE, archive=path, urls={path: url}, main=main
    )


ML_100K = _source("ml-100k", "MovieLens 100K", "ml-100k/u.data")
ML_1M = _source("ml-1m", "MovieLens 1M", "ml-1m/ratings.dat")
ML_10M = _source("ml-10m", "MovieLens 10M", "ml-10M100K/ratings.dat")
NEWER = {
    name: _source(name, f"MovieLens {title}", f"{name}/ratings.csv")
    for name, title in {
        "ml-latest-small": "Latest Small",
        "ml-20m": "20M",
        "ml-25m": "25M",
        "ml-32m": "32M",
    }.items()
}


def load_ml_100k() -> Dataset:
    """Load 100,000 ratings 1-5 with u1-u5, ages, occupations, genres and years."""
    file = ML_100K.open_text("ml-100k/u.data", "\t", _COLUMNS, header=False)
    table = table_from_text(file, _OPTIONS)
    splits = {f"u{n}": _canonical_split(table, f"ml-100k/u{n}.test") for n in range(1, 6)}
    users = text_frame(
        ML_100K.read("ml-100k/u.user"), "|", ["user", "age", "gender", "occupation", "zip"]
    )
    columns = ["film", "title", "released", "video", "url", *_GENRES]
    films = text_frame(ML_100K.read("ml-100k/u.item"), "|", columns)
    numbers = [pl.col(genre).cast(pl.Float64) for genre in _GENRES]
    year = pl.col("released").str.extract(r"(\d{4})$").cast(pl.Float64).alias("year")
    return Dataset(
        ML_100K,
        table,
        splits,
        {
            0: _features(table, 0, users.drop("zip").with_columns(pl.col("age").cast(pl.Float64))),
            1: _features(table, 1, films.select("film", year, *numbers)),
        },
    )


def load_ml_1m() -> Dataset:
    """Load 1,000,209 ratings 1-5, with ages, occupations, genres and years."""
    file = ML_1M.open_text("ml-1m/ratings.dat", "::", _COLUMNS, header=False)
    table = table_from_text(file, _OPTIONS)
    users = text_frame(
        ML_1M.read("ml-1m/users.dat"), "::", ["user", "gender", "age", "occupation", "zip"]
    )
    films = text_frame(ML_1M.read("ml-1m/movies.dat"), "::", ["film", "title", "genres"])
    kinds = sorted({kind for listed in films["genres"] for kind in listed.split("|")})
    year = pl.col("title").str.extract(r"\((\d{4})\)\s*$").cast(pl.Float64).alias("year")
    has = [
        pl.col("genres").str.split("|").list.contains(kind).cast(pl.Float64).alias(kind)
        for kind in kinds
    ]
    return Dataset(
        ML_1M,
        table,
        {},
        {
            0: _features(table, 0, users.drop("zip")),  # ages are coded brackets: categories
            1: _features(table, 1, films.select("film", year, *has)),
        },
    )


def load_ml_10m() -> Dataset:
    """Load 10,000,054 ratings by halves."""
    file = ML_10M.open_text("ml-10M100K/ratings.dat", "::", _COLUMNS, header=False)
    return Dataset(ML_10M, table_from_text(file, _OPTIONS))


def load_newer(name: str) -> Dataset:
    """Load an archive with ``ratings.csv``: userId, movieId, rating, timestamp."""
    source = NEWER[name]
    columns = ("userId", "movieId", "rating", "timestamp")
    file = source.open_text(f"{name}/ratings.csv", ",", columns, header=True)
    table = table_from_text(file, replace(_OPTIONS, axes=columns[:2]))
    return Dataset(source, table)


def _canonical_split(table: Table, path: str) -> Split:
    """Hold out the cells of a published test file."""
    frame = pl.read_csv(
        io.BytesIO(ML_100K.read(path)),
        separator="\t",
        has_header=False,
        schema=dict.fromkeys(_COLUMNS, pl.Int64),
    )
    return by_position(table, table.positions(frame.select(_COLUMNS[:2])))


def _features(table: Table, axis: int, frame: pl.DataFrame) -> MemberFeatures:
    """Convert a side file, whose labels are text, to features of the table's members."""
    label = frame.columns[0]
    kind = table.vocabularies[axis].labels.dtype
    return MemberFeatures.of(frame.with_columns(pl.col(label).cast(kind)), table.vocabularies[axis])
