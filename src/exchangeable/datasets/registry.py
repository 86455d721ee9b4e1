"""The registry of datasets: load them by name, or fetch their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from exchangeable.datasets import (
    affinities,
    checkins,
    classics,
    coat,
    film_club,
    language_models,
    lastfm,
    monti,
    movielens,
    movietweetings,
    netflix,
    relations,
    traffic,
)
from exchangeable.datasets.source import Dataset, Source
from exchangeable.errors import InputError
from exchangeable.runtime.phrases import did_you_mean


@dataclass(frozen=True)
class Entry:
    """A dataset that can be loaded."""

    source: Source
    load: Callable[[], Dataset]


DATASETS: Mapping[str, Entry] = {
    "film-club": Entry(film_club.FILM_CLUB, film_club.film_club),
    "film-club-evenings": Entry(film_club.FILM_CLUB_EVENINGS, film_club.film_club_evenings),
    "ml-100k": Entry(movielens.ML_100K, movielens.load_ml_100k),
    "ml-1m": Entry(movielens.ML_1M, movielens.load_ml_1m),
    "ml-latest-small": Entry(
        movielens.NEWER["ml-latest-small"], partial(movielens.load_newer, "ml-latest-small")
    ),
    "ml-10m": Entry(movielens.ML_10M, movielens.load_ml_10m),
    **{
        name: Entry(movielens.NEWER[name], partial(movielens.load_newer, name))
        for name in ("ml-20m", "ml-25m", "ml-32m")
    },
    **{
        name: Entry(source, partial(monti.load_block, name))
        for name, source in monti.SOURCES.items()
    },
    "netflix": Entry(netflix.NETFLIX, netflix.load_netflix),
    "davis": Entry(affinities.DAVIS, affinities.load_davis),
    "kiba": Entry(affinities.KIBA, affinities.load_kiba),
    "lastfm-tags": Entry(lastfm.LASTFM_TAGS, lastfm.load_lastfm_tags),
    "lastfm-plays": Entry(lastfm.LASTFM_PLAYS, lastfm.load_lastfm_plays),
    "movietweetings": Entry(movietweetings.MOVIETWEETINGS, movietweetings.load_movietweetings),
    **{
        name: Entry(source, partial(checkins.load_checkins, name))
        for name, source in checkins.SOURCES.items()
    },
    "coat": Entry(coat.COAT, coat.load_coat),
    "insteval": Entry(classics.INSTEVAL, classics.load_insteval),
    "verbal-aggression": Entry(classics.VERBAL_AGGRESSION, classics.load_verbal_aggression),
    "moods": Entry(classics.MOODS, classics.load_moods),
    "big-five": Entry(classics.BIG_FIVE, classics.load_big_five),
    "ability": Entry(classics.ABILITY, classics.load_ability),
    "republican-votes": Entry(classics.REPUBLICAN_VOTES, classics.load_republican_votes),
    **{
        name: Entry(source, partial(language_models.load_language_models, name))
        for name, source in language_models.SOURCES.items()
    },
    **{
        name: Entry(city.source, partial(traffic.load_traffic, name))
        for name, city in traffic.CITIES.items()
    },
    **{
        name: Entry(source, partial(relations.load_relations, name))
        for name, source in relations.SOURCES.items()
    },
}


def load(name: str) -> Dataset:
    """Load a dataset by its name."""
    return _entry(name).load()


def fetch(name: str) -> list[dict[str, str]]:
    """Download the files of a dataset that are not there; return where each is and its check."""
    source = _entry(name).source
    if name == "netflix":
        load(name)  # it cannot be downloaded, and the error tells where to get it
    files = []
    for path in [source.archive] if source.archive else list(source.urls):
        location = source.locate(path) or source.fetch(path)
        if location.is_dir():
            checked = "unpacked there; each file is checked when it is read"
        elif source.hash_known(path):
            checked = "sha256 as published"
        else:
            checked = "sha256 recorded at first use, and checked from then on"
        files.append({"path": path, "place": str(location), "checked": checked})
    return files


def _entry(name: str) -> Entry:
    if name not in DATASETS:
        raise InputError(
            f"a dataset is one of {', '.join(DATASETS)}, but this is {name!r}"
            f"{did_you_mean(name, DATASETS)}"
        )
    return DATASETS[name]
