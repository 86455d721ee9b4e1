"""Kill the service while cells are written to it, again and again: what was acknowledged is there.

    python soak/serve_kill.py [--kills 100] [--database postgresql]

It is kept in SQLite, or in a PostgreSQL of its own, in a folder that is deleted afterwards.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPException
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support import postgres
from tests.support.service import Service, ask

from exchangeable.storage.store import Store

WRITERS = 4


def written(service: Service, writer: str, acknowledged: list[str], stop: threading.Event) -> None:
    """Cells of new members, one after the other; those whose writing was acknowledged are told."""
    with closing(service.connection()) as connection:
        for number in count():
            name = f"{writer} {number}"
            body = {"cells": [[[name, "The Princess Bride"], 4], [[name, "Halloween"], 2]]}
            try:
                if ask(connection, "PUT", "/v1/interactions", body)[0] == 200:
                    acknowledged.append(name)
            except (OSError, ValueError, HTTPException):  # it was killed in the midst of this
                return
            if stop.is_set():
                return


def one_life(folder: Path, url: str, life: int, seconds: float) -> list[str]:
    """Start, write, kill."""
    service = Service(folder, "--db", url, "--model", "bias")
    service.wait()
    lists: list[list[str]] = [[] for _ in range(WRITERS)]
    stop = threading.Event()
    threads = [
        threading.Thread(target=written, args=(service, f"life {life} writer {n}", lists[n], stop))
        for n in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    service.kill()
    stop.set()
    for thread in threads:
        thread.join()
    return [name for part in lists for name in part]


def lost(url: str, acknowledged: list[str]) -> list[str]:
    """Whose cells are not both there."""
    store = Store.open(url)
    table = store.read_table()[1]
    store.close()
    counts = table.frame(table.index, value=table.values)["member"].value_counts()
    there = dict(counts.iter_rows())
    return [name for name in acknowledged if there.get(name) != 2]


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/killed.db"
    else:
        with postgres.server() as address:
            yield f"{address}/postgres"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    given = parser.parse_args()
    if given.database == "postgresql" and postgres.missing():
        sys.exit(postgres.missing())
    generator = random.Random(0)
    acknowledged: list[str] = []
    with (
        tempfile.TemporaryDirectory() as place,
        database(given.database, Path(place)) as url,
    ):
        for life in range(given.kills):
            acknowledged += one_life(Path(place), url, life, generator.uniform(0.05, 1.0))
            missing = lost(url, acknowledged)
            print(
                f"kill {life + 1}: {len(acknowledged):,} acknowledged, {len(missing)} lost",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    told = {"database": given.database, "kills": given.kills, "acknowledged": len(acknowledged)}
    print(
        f"{given.database}: {given.kills:,} kills, {len(acknowledged):,} acknowledged, "
        f"{len(missing):,} lost"
    )
    print(json.dumps({**told, "lost": len(missing)}))
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
