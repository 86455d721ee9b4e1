"""An engine of the service around the film club, for tests."""

import time

import polars as pl

from exchangeable import Completer
from exchangeable.data.table import Table
from exchangeable.datasets import load
from exchangeable.serve.engine import Engine
from exchangeable.storage.store import Store

CLUB = load("film-club").table
FRAME = pl.DataFrame(CLUB.frame(CLUB.index, rating=CLUB.values))
MEMBER, FILM = FRAME.row(0)[:2]

NUMBERED = pl.DataFrame(
    {"user": [n % 12 for n in range(60)], "item": [n // 4 for n in range(60)]}
).with_columns(stars=pl.col("user") % 3 + 1.0)
"""A table whose labels are whole numbers."""


def fit_bias(table):
    return Completer("bias").fit_table(table)


def open_engine(tmp_path, frame=FRAME, make=fit_bias, axes=None, name=None):
    store = Store.open(f"sqlite:///{tmp_path / 'table.db'}", name)
    if store.is_empty:
        store.fill("film-club", Table.of(frame, axes=axes))
    return Engine(store, make)


def open_shared(url):
    """An engine around the film club in a database that others may serve too."""
    store = Store.open(url)
    if store.is_empty:
        store.fill("film-club", Table.of(FRAME))
    return Engine(store, fit_bias)


def predicted(client, *cells):
    answer = client.post("/v1/predict", json={"cells": cells})
    assert answer.status_code == 200, answer.text
    return answer.json()


def until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def named(engine):
    """Members that an engine lists."""
    return {label for label, _ in engine.members(0, "", 10_000)}
