"""MovieTweetings: film ratings from tweets."""

from __future__ import annotations

from exchangeable.data.build import table_from_text
from exchangeable.data.options import TableOptions
from exchangeable.datasets.source import Dataset, Source

_COLUMNS = ("user", "film", "rating", "timestamp")
_PAGE = "https://github.com/sidooms/MovieTweetings"
_RATINGS = "movietweetings-100k/ratings.dat"
MOVIETWEETINGS = Source(
    "movietweetings",
    "MovieTweetings 100K: ratings 0-10 from tweets",
    "MIT",
    "Simon Dooms, Toon De Pessemier and Luc Martens. 2013. MovieTweetings: a Movie Rating Dataset "
    "Collected From Twitter. CrowdRec at RecSys.",
    _PAGE,
    urls={_RATINGS: f"{_PAGE}/raw/master/snapshots/100K/ratings.dat"},
)


def load_movietweetings() -> Dataset:
    """Load 100,000 ratings 0-10."""
    file = MOVIETWEETINGS.open_text(_RATINGS, "::", _COLUMNS, header=False)
    options = TableOptions(axes=_COLUMNS[:2], value="rating", time="timestamp")
    return Dataset(MOVIETWEETINGS, table_from_text(file, options))
