"""Acknowledged changes survive a loss of power: what SQLite is asked for, on every connection."""

import threading

import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")

import sqlalchemy as sa

from exchangeable.storage.database import open_database

WANTED = {"synchronous": 2, "journal_mode": "wal", "secure_delete": 1}
"""FULL waits for the disk at each commit; deleted cells are overwritten."""


def settings(engine):
    with engine.connect() as connection:
        return {name: connection.execute(sa.text(f"PRAGMA {name}")).scalar_one() for name in WANTED}


def test_every_connection_waits_for_the_disk_and_overwrites_what_is_deleted(tmp_path):
    engine, _ = open_database(f"sqlite:///{tmp_path / 'table.db'}")
    found = [settings(engine)]
    held = engine.connect()  # so that the next one is new
    threads = [threading.Thread(target=lambda: found.append(settings(engine))) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    held.close()
    engine.dispose()
    assert found == [WANTED] * 3
