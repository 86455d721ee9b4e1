"""Datasets by name, each with its licence and citation; and simulated ones that need no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from exchangeable.datasets import affinities, film_club, monti, movielens, others
from exchangeable.datasets.source import Dataset, Source
from exchangeable.errors import InputError


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
    "netflix": Entry(others.NETFLIX, others.load_netflix),
    "davis": Entry(affinities.DAVIS, affinities.load_davis),
    "kiba": Entry(affinities.KIBA, affinities.load_kiba),
    "lastfm-tags": Entry(others.LASTFM_TAGS, others.load_lastfm_tags),
    "lastfm-plays": Entry(others.LASTFM_PLAYS, others.load_lastfm_plays),
    "movietweetings": Entry(others.MOVIETWEETINGS, others.load_movietweetings),
}


def load(name: str) -> Dataset:
    """A dataset by its name."""
    return _entry(name).load()


def fetch(name: str) -> list[dict[str, str]]:
    """Make sure that a dataset's files are there: where each is, and how it was checked."""
    source = _entry(name).source
    if name == "netflix":
        load(name)  # cannot be downloaded: says where to get it, if it is not there
    files = []
    for path in [source.archive] if source.archive else list(source.urls):
        place = source.locate(path) or source.fetch(path)
        if place.is_dir():
            checked = "unpacked there; each file is checked when it is read"
        elif source.hash_known(path):
            checked = "sha256 as published"
        else:
            checked = "sha256 recorded at first use, and checked from then on"
        files.append({"path": path, "place": str(place), "checked": checked})
    return files


def _entry(name: str) -> Entry:
    if name not in DATASETS:
        raise InputError(f"a dataset is one of {', '.join(DATASETS)}, but this is {name!r}")
    return DATASETS[name]
