"""Last.fm (HetRec 2011), MovieTweetings and the Netflix Prize."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from exchangeable.data.splits import Split, by_position
from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source, roots
from exchangeable.errors import InputError

_HETREC = "https://grouplens.org/datasets/hetrec-2011/"
_LASTFM_ARCHIVE = "lastfm-2k/hetrec2011-lastfm-2k.zip"
_LASTFM_CITATION = (
    "Ivan Cantador, Peter Brusilovsky and Tsvi Kuflik. 2011. 2nd Workshop on Information "
    "Heterogeneity and Fusion in Recommender Systems (HetRec 2011). RecSys."
)
_LASTFM_URL = "https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip"
_TWEETS = "https://github.com/sidooms/MovieTweetings"


def _lastfm(name: str, title: str) -> Source:
    return Source(
        name,
        title,
        "HetRec 2011, Last.fm: non-commercial use",
        _LASTFM_CITATION,
        _HETREC,
        archive=_LASTFM_ARCHIVE,
        urls={_LASTFM_ARCHIVE: _LASTFM_URL},
        main="lastfm-2k/user_artists.dat",
    )


LASTFM_TAGS = _lastfm("lastfm-tags", "Last.fm: user x artist x tag")
LASTFM_PLAYS = _lastfm("lastfm-plays", "Last.fm: how often users played artists")
MOVIETWEETINGS = Source(
    "movietweetings",
    "MovieTweetings 100K: ratings 0-10 from tweets",
    "MIT",
    "Simon Dooms, Toon De Pessemier and Luc Martens. 2013. MovieTweetings: a Movie Rating Dataset "
    "Collected From Twitter. CrowdRec at RecSys.",
    _TWEETS,
    urls={"movietweetings-100k/ratings.dat": f"{_TWEETS}/raw/master/snapshots/100K/ratings.dat"},
)
NETFLIX = Source(
    "netflix",
    "Netflix Prize: 100 million ratings 1-5",
    "Netflix Prize rules: research, not to be redistributed",
    "James Bennett and Stan Lanning. 2007. The Netflix Prize. KDD Cup and Workshop.",
    "https://www.kaggle.com/datasets/netflix-inc/netflix-prize-data",
)


def load_lastfm_tags() -> Dataset:
    """186,479 tags that users gave to artists; what was not given is not known to be wrong."""
    columns = ("userID", "artistID", "tagID", "day", "month", "year")
    if any((root / "lastfm-2k/user_taggedartists.csv").is_file() for root in roots()):
        lines = LASTFM_TAGS.lines("lastfm-2k/user_taggedartists.csv", ",", columns, header=True)
    else:
        lines = LASTFM_TAGS.lines("user_taggedartists.dat", "\t", columns, header=True)
    return Dataset(LASTFM_TAGS, Table.of_lines(lines, axes=columns[:3]))


def load_lastfm_plays() -> Dataset:
    """92,834 play counts."""
    columns = ("userID", "artistID", "weight")
    inside = any((root / "lastfm-2k/user_artists.dat").is_file() for root in roots())
    path = "lastfm-2k/user_artists.dat" if inside else "user_artists.dat"
    lines = LASTFM_PLAYS.lines(path, "\t", columns, header=True)
    return Dataset(LASTFM_PLAYS, Table.of_lines(lines, axes=columns[:2], value="weight"))


def load_movietweetings() -> Dataset:
    """100,000 ratings 0-10."""
    columns = ("user", "film", "rating", "timestamp")
    path = "movietweetings-100k/ratings.dat"
    lines = MOVIETWEETINGS.lines(path, "::", columns, header=False)
    table = Table.of_lines(lines, axes=columns[:2], value="rating", time="timestamp")
    return Dataset(MOVIETWEETINGS, table)


def load_netflix() -> Dataset:
    """From ``netflix/`` in the data folder: mv_*.txt or combined_data_*.txt, and probe.txt."""
    folder = next((root / "netflix" for root in roots() if (root / "netflix").is_dir()), None)
    files = sorted(
        path
        for path in (folder.rglob("*.txt") if folder else [])
        if re.fullmatch(r"(mv_\d+|combined_data_\d+)\.txt", path.name)
    )
    if folder is None or not files:
        raise InputError(
            f"netflix: mv_*.txt or combined_data_*.txt are not there; get them from "
            f"{NETFLIX.page} and put them into {roots()[0] / 'netflix'}"
        )
    frame = pl.concat([_netflix_ratings(path) for path in files])
    table = Table.of(frame, axes=["user", "film"], value="rating", time="day")
    return Dataset(NETFLIX, table, _probe(table, folder))


def _netflix_ratings(path: Path) -> pl.DataFrame:
    """Users, films, ratings 1-5 and days as numbers."""
    texts = _netflix_file(path, 3)
    frame = texts.select(
        pl.col("user", "film").cast(pl.Int64, strict=False),
        pl.col("rating").cast(pl.Float64, strict=False),
        pl.col("date").str.to_date("%Y-%m-%d", strict=False).cast(pl.Int32).alias("day"),
    )
    good = pl.all_horizontal(pl.all().is_not_null()) & pl.col("rating").is_between(1, 5)
    wrong = frame.select(~good).to_series().arg_true()
    if len(wrong):
        row = texts.row(int(wrong[0]), named=True)
        raise InputError(
            f"{path}: a film, a user, a rating 1-5 and a date are needed, but this is "
            f"{', '.join(str(field) for field in row.values())!r}"
        )
    return frame


def _netflix_file(path: Path, fields: int) -> pl.DataFrame:
    """Blocks that begin with "film:" and go on with a line per user."""
    lines = pl.read_csv(
        path, has_header=False, separator="\x1e", quote_char=None, schema={"line": pl.String}
    ).with_row_index("number", offset=1)
    titled = pl.col("line").str.ends_with(":")
    frame = lines.with_columns(
        film=pl.when(titled).then(pl.col("line").str.strip_suffix(":")).forward_fill()
    ).filter(~titled & pl.col("line").is_not_null())
    parts = pl.col("line").str.split(",")
    wrong = frame.filter((parts.list.len() != fields) | pl.col("film").is_null())
    if len(wrong):
        raise InputError(
            f"{path}: line {wrong['number'][0]}: {fields} fields below a line 'film:' are needed, "
            f"but this is {wrong['line'][0]!r}"
        )
    names = ("user", "rating", "date")[:fields]
    return frame.select("film", *[parts.list.get(i).alias(n) for i, n in enumerate(names)])


def _probe(table: Table, folder: Path) -> dict[str, Split]:
    path = next(iter(folder.rglob("probe.txt")), None)
    if path is None:
        return {}
    asked = _netflix_file(path, 1).select(
        pl.col("user").cast(pl.Int64), pl.col("film").cast(pl.Int64)
    )
    return {"probe": by_position(table, table.positions(asked))}
