"""Two services on one database, members deleted on either: after one second neither names them.

    python soak/serve_followers.py [--seconds 120] [--database postgresql] [--table ml-100k]

Members are added and deleted at random on both, while others read from both. Without --database
both kinds are tried. The database is in a folder that is deleted afterwards.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support import postgres
from tests.support.service import Service, ask

ALLOWED = 1.0
"""Seconds after a deletion was acknowledged in which other services may name the member."""
READERS = 2
"""Clients that read from each service."""


@dataclass
class Observed:
    """What clients saw."""

    added: int = 0
    deleted: int = 0
    read: int = 0
    refused: int = 0
    late: list[float] = field(default_factory=list)
    """Seconds after which members were named that had been deleted more than a second before."""
    longest: float = 0.0
    """Most seconds after a deletion was acknowledged in which the member was named."""
    asked: float = 0.0
    """The same until the request was sent: what is more than this may be the client's delay."""
    gone: dict[str, float] = field(default_factory=dict)
    """Deleted members, and when that was acknowledged."""


def follow(services: Sequence[Service], seconds: float, seed: int) -> Observed:
    """Add, delete and read on services of one database."""
    seen, stop, lock = Observed(), threading.Event(), threading.Lock()
    axes = services[0].call("GET", "/v1/model")[1]
    rows, columns = (axis["name"] for axis in axes["axes"])
    films = [one["label"] for one in _members(services[0], columns, 20)]
    alive = [str(one["label"]) for one in _members(services[0], rows, 1000)]

    def change(number: int) -> None:
        generator = random.Random(seed + number)
        with ExitStack() as opened:
            clients = [opened.enter_context(closing(s.connection())) for s in services]
            count = 0
            while not stop.is_set():
                client = generator.choice(clients)
                count += 1
                if len(alive) < 20 or generator.random() < 0.6:
                    name = f"{10**9 * (number + 1) + count}"
                    level = axes["levels"][0]
                    cells = [[[name, film], level] for film in generator.sample(films, 3)]
                    if ask(client, "PUT", "/v1/interactions", {"cells": cells})[0] == 200:
                        with lock:
                            alive.append(name)
                            seen.added += 1
                else:
                    with lock:
                        name = alive.pop(generator.randrange(len(alive)))
                    path = f"/v1/members?axis={rows}&member={name.replace(' ', '%20')}"
                    status = ask(client, "DELETE", path)[0]
                    with lock:
                        if status == 200:
                            seen.gone[name] = time.monotonic()
                            seen.deleted += 1
                        else:
                            alive.append(name)
                time.sleep(generator.uniform(0.0, 0.3))

    def read(service: Service, number: int) -> None:
        generator = random.Random(1000 + seed + number)
        with closing(service.connection()) as client:
            while not stop.is_set():
                asked = time.monotonic()
                if generator.random() < 0.5:
                    path, body = f"/v1/members?axis={rows}&limit=1000", None
                    status, told = ask(client, "GET", path, body)
                    names = [one["label"] for one in told.get("members", [])]
                else:
                    wanted = {"axis": columns, "member": generator.choice(films), "n": 1000}
                    status, told = ask(client, "POST", "/v1/recommend", wanted)
                    names = [one["labels"][rows] for one in told.get("recommended", [])]
                _judge(seen, lock, status, [str(name) for name in names], asked)

    threads = [threading.Thread(target=change, args=(n,)) for n in range(2)]
    threads += [
        threading.Thread(target=read, args=(service, n))
        for n, service in enumerate([*services] * READERS)
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return seen


def _judge(seen: Observed, lock: Any, status: int, names: Sequence[str], asked: float) -> None:
    received = time.monotonic()
    with lock:
        seen.read += status == 200
        seen.refused += status != 200
        since = [received - seen.gone[name] for name in names if name in seen.gone]
        seen.longest = max([seen.longest, *since])
        seen.asked = max([seen.asked, *(one - (received - asked) for one in since)])
        seen.late += [one for one in since if one > ALLOWED]


def _members(service: Service, axis: str, limit: int) -> list[dict[str, Any]]:
    members: list[dict[str, Any]] = service.call("GET", f"/v1/members?axis={axis}&limit={limit}")[
        1
    ]["members"]
    return members


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/shared.db"
    else:
        with postgres.server() as address:
            yield f"{address}/postgres"


@contextmanager
def pair(url: str, folder: Path, *arguments: str) -> Iterator[list[Service]]:
    """Two services on one database, the first of which fills it."""
    with ExitStack() as opened:
        services = []
        for number in range(2):
            place = folder / str(number)
            place.mkdir()
            service = Service(place, *arguments, "--db", url)
            opened.callback(_end, service)
            service.wait()
            services.append(service)
        yield services


def _end(service: Service) -> None:
    if service.process.poll() is None:
        service.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--database", choices=["sqlite", "postgresql"])
    parser.add_argument("--table", default="film-club")
    parser.add_argument("--model", default="bias")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    kinds = [given.database] if given.database else ["sqlite", "postgresql"]
    table: list[tuple[str, Observed]] = []
    for kind in kinds:
        if kind == "postgresql" and postgres.missing():
            sys.exit(postgres.missing())
        with (
            tempfile.TemporaryDirectory() as place,
            database(kind, Path(place)) as url,
            pair(url, Path(place), given.table, "--model", given.model) as services,
        ):
            table.append((kind, follow(services, given.seconds, given.seed)))
    columns: list[tuple[str, Callable[[Observed], Any]]] = [
        ("added", lambda seen: seen.added),
        ("deleted", lambda seen: seen.deleted),
        ("responses", lambda seen: seen.read),
        ("refused", lambda seen: seen.refused),
        ("named last, s", lambda seen: round(seen.longest, 3)),
        ("asked last, s", lambda seen: round(seen.asked, 3)),
        ("named late", lambda seen: len(seen.late)),
    ]
    print(f"{'database':<12}" + "".join(f"{name:>15}" for name, _ in columns))
    for kind, seen in table:
        print(f"{kind:<12}" + "".join(f"{value(seen)!s:>15}" for _, value in columns))
    rows = [{"database": kind} | {n: value(seen) for n, value in columns} for kind, seen in table]
    print(json.dumps({"seconds": given.seconds, "rows": rows}))
    sys.exit(1 if any(seen.late for _, seen in table) else 0)


if __name__ == "__main__":
    main()
