"""Last.fm (HetRec 2011): tags that users gave to artists, and how often they played them."""

from __future__ import annotations

from exchangeable.data.build import table_from_text
from exchangeable.data.options import TableOptions
from exchangeable.datasets.source import Dataset, Source, roots

_ARCHIVE = "lastfm-2k/hetrec2011-lastfm-2k.zip"
_CITATION = (
    "Ivan Cantador, Peter Brusilovsky and Tsvi Kuflik. 2011. 2nd Workshop on Information "
    "Heterogeneity and Fusion in Recommender Systems (HetRec 2011). RecSys."
)


def _source(name: str, title: str) -> Source:
    return Source(
        name,
        title,
        "HetRec 2011, Last.fm: non-commercial use",
        _CITATION,
        "https://grouplens.org/datasets/hetrec-2011/",
        archive=_ARCHIVE,
        urls={_ARCHIVE: "https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip"},
        main="lastfm-2k/user_artists.dat",
    )


LASTFM_TAGS = _source("lastfm-tags", "Last.fm: user x artist x tag")
LASTFM_PLAYS = _source("lastfm-plays", "Last.fm: how often users played artists")


def load_lastfm_tags() -> Dataset:
    """Load 186,479 tags of artists; a tag that was not given is not known to be wrong."""
    columns = ("userID", "artistID", "tagID", "day", "month", "year")
    if any((root / "lastfm-2k/user_taggedartists.csv").is_file() for root in roots()):
        file = LASTFM_TAGS.open_text("lastfm-2k/user_taggedartists.csv", ",", columns, header=True)
    else:
        file = LASTFM_TAGS.open_text("user_taggedartists.dat", "\t", columns, header=True)
    return Dataset(LASTFM_TAGS, table_from_text(file, TableOptions(axes=columns[:3])))


def load_lastfm_plays() -> Dataset:
    """Load 92,834 play counts."""
    columns = ("userID", "artistID", "weight")
    unpacked = any((root / "lastfm-2k/user_artists.dat").is_file() for root in roots())
    path = "lastfm-2k/user_artists.dat" if unpacked else "user_artists.dat"
    file = LASTFM_PLAYS.open_text(path, "\t", columns, header=True)
    options = TableOptions(axes=columns[:2], value="weight")
    return Dataset(LASTFM_PLAYS, table_from_text(file, options))
