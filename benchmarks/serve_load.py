"""Recommendations over HTTP, asked for by many clients at once, from a process of their own.

    python benchmarks/serve_load.py [--table ml-1m] [--clients 32] [--seconds 180] [--overload]
    python benchmarks/serve_load.py --cases all --seconds 30 [--als --install]
    python benchmarks/serve_load.py --table lastfm-plays --cases positives --als

Cases, on one service each: ``new`` users with ten ratings each, ``writes`` (the same, with
``--writes`` changes a second among them), ``one`` client alone, ``known`` users (one client),
``positives`` (the same table without its values, one client), ``start`` (seconds until it is
ready, at first and from a saved state), and with ``--als`` implicit's ALS behind the same HTTP, in
an environment of its own, fitted to the same cells: without values if ``positives`` is the only
case. Each client asks again as soon as it is
answered. With --overload there are 300 of them for a while, which should hear 503, and then 32
again, which should not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.service import Service, ask

RATED = 10
MOST_DRIFT = 0.05
CASES = ("new", "writes", "one", "known", "positives", "start")
PEERS = Path(__file__).parent / "peers"
ALS = ("implicit", "threadpoolctl", "fastapi", "uvicorn")


@dataclass(frozen=True)
class Load:
    """What clients ask for."""

    clients: int
    seconds: float
    writes: float = 0.0
    """Changes a second: half of them new cells, half other values of known ones."""
    known: bool = False
    """Whether lists are those of known users."""


@dataclass(frozen=True)
class Labels:
    """Labels that requests name."""

    users: list[Any]
    items: list[Any]
    levels: list[float]


class Found:
    """What clients found: status, seconds, end and version of each response, and of each write."""

    def __init__(self) -> None:
        self.responses: list[tuple[int, float, float, int]] = []
        self.writes: list[tuple[int, float, float, int]] = []


def client(service: Any, labels: Labels, load: Load, end: float, seed: int, found: Found) -> None:
    generator = random.Random(seed)
    connection = service.connection()
    while time.monotonic() < end:
        if load.known:
            body = {"member": generator.choice(labels.users), "n": 10}
        else:
            rated = generator.sample(labels.items, RATED)
            body = {"ratings": [[one, generator.choice(labels.levels)] for one in rated], "n": 10}
        started, answer = time.monotonic(), None
        try:
            status, answer = ask(connection, "POST", "/v1/recommend", body)
        except OSError:
            status, connection = 0, service.connection()
        now = time.monotonic()
        version = answer["pools"]["version"] if status == 200 and "pools" in answer else 0
        found.responses.append((status, now - started, now, version))
        if status == 503:
            time.sleep(1)  # as Retry-After says


def writer(service: Any, labels: Labels, load: Load, end: float, found: Found) -> None:
    generator, connection = random.Random(-1), service.connection()
    due = time.monotonic()
    while (due := due + 1 / load.writes) < end:
        time.sleep(max(due - time.monotonic(), 0))
        user = generator.choice(labels.users)
        if generator.random() < 0.5 and isinstance(user, int):
            user = 10**9 + generator.randrange(10**6)
        cell = [[user, generator.choice(labels.items)], generator.choice(labels.levels)]
        started = time.monotonic()
        status, answer = ask(connection, "PUT", "/v1/interactions", {"cells": [cell]})
        now = time.monotonic()
        version = answer["version"] if status == 200 else 0
        found.writes.append((status, now - started, now, version))


class Far:
    """A service as other processes see it."""

    def __init__(self, port: int) -> None:
        self.port = port

    connection = Service.connection
    call = Service.call


def clients(port: int, load: Load, labels: Labels) -> dict[str, Any]:
    """All clients of one process, and what they found."""
    found = Found()
    end = time.monotonic() + load.seconds
    threads = [
        threading.Thread(target=client, args=(Far(port), labels, load, end, seed, found))
        for seed in range(load.clients)
    ]
    if load.writes:
        threads.append(threading.Thread(target=writer, args=(Far(port), labels, load, end, found)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = sorted(taken for status, taken, _, _ in found.responses if status == 200)
    statuses = [one[0] for one in (*found.responses, *found.writes)]
    return {
        "clients": load.clients,
        "seconds": load.seconds,
        "requests_per_second": round(len(good) / load.seconds, 1),
        "median_ms": round(1000 * statistics.median(good), 1) if good else None,
        "p99_ms": round(1000 * good[int(0.99 * (len(good) - 1))], 1) if good else None,
        "refused_503": statuses.count(503),
        "errors": sum(status not in (200, 503) for status in statuses),
        **(_written(found) if load.writes else {}),
    }


def _written(found: Found) -> dict[str, Any]:
    """How long writes took, and until responses included them."""
    taken = [taken for status, taken, _, _ in found.writes if status == 200]
    seen = sorted((end, version) for _, _, end, version in found.responses if version)
    lags = []
    for _, _, written, version in found.writes:
        after = (end for end, included in seen if end >= written and included >= version)
        first = next(after, None)
        if version and first is not None:
            lags.append(first - written)
    return {
        "writes": len(taken),
        "write_median_ms": round(1000 * statistics.median(taken), 1),
        "included_median_s": round(statistics.median(lags), 2),
        "included_most_s": round(max(lags), 2),
    }


def loaded(service: Any, number: int, seconds: float, **further: Any) -> dict[str, Any]:
    """Load a service with so many clients."""
    about = service.call("GET", "/v1/model")[1]
    members = [
        service.call("GET", f"/v1/members?axis={axis['name']}&limit=500")[1]["members"]
        for axis in about["axes"]
    ]
    users, items = ([one["label"] for one in some] for some in members[:2])
    labels = Labels(users, items, [level for level in about["levels"] if level] or [1.0])
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(clients, (service.port, Load(number, seconds, **further), labels))


@contextmanager
def started(place: Path, *arguments: str) -> Iterator[Service]:
    service = Service(place, *arguments)
    try:
        service.wait(900)
        yield service
    finally:
        if service.process.poll() is None:
            service.kill()


def without_values(name: str, place: Path) -> Path:
    """Write the cells of a dataset without their values to a file."""
    import polars as pl

    from exchangeable.datasets import load

    table = load(name).table
    path = place / f"{name}-positives.csv"
    pl.DataFrame(table.frame(table.index)).select(table.axes[:2]).write_csv(path)
    return path


@contextmanager
def als_started(name: str, place: Path, environment: Path, *, positives: bool) -> Iterator[Far]:
    """Implicit's ALS behind the same HTTP, fitted to the cells, or to their presence alone."""
    import numpy as np

    from exchangeable.datasets import load

    table = load(name).table
    users, items = (v.decode(table.index[:, a]) for a, v in enumerate(table.vocabularies))
    cells = place / "cells.npz"
    values = np.ones(len(table)) if positives else table.values
    np.savez(cells, users=users.to_numpy(), items=items.to_numpy(), values=values)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        service = Far(int(free.getsockname()[1]))
    python = environment / "bin" / "python"
    process = subprocess.Popen([python, PEERS / "serve_als.py", cells, str(service.port)])
    try:
        end = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < end:
            try:
                service.call("GET", "/ready")
                break
            except OSError:
                time.sleep(0.1)
        yield service
    finally:
        process.terminate()
        process.wait(30)


def starts(place: Path, table: str) -> dict[str, float]:
    """Seconds until a service is ready: at first, and once its state has been saved."""
    seconds = []
    for _ in range(2):
        began = time.monotonic()
        with started(place, table) as service:
            seconds.append(round(time.monotonic() - began, 2))
            while not list(place.glob("*.state/*/changes.jsonl")):
                time.sleep(0.1)
            service.stop()
    return {"first_start_s": seconds[0], "start_from_state_s": seconds[1]}


def measured(given: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Run all cases that were asked for."""
    told: dict[str, Any] = {}
    cases = CASES if given.cases == "all" else tuple(given.cases.split(","))
    plain = [case for case in cases if case not in ("positives", "start")]
    if plain:
        with started(place, given.table) as service:
            loaded(service, given.clients, min(10, given.seconds))  # to warm up
            before = service.memory()
            for case in plain:
                number = given.clients if case in ("new", "writes") else 1
                further = {
                    "writes": given.writes if case == "writes" else 0.0,
                    "known": case == "known",
                }
                told[case] = loaded(service, number, given.seconds, **further)
            told["memory_mb"] = round(service.memory() / 2**20)
            told["memory_drift"] = round(service.memory() / before - 1, 4)
            if given.overload:
                told["overload"] = loaded(service, 300, 20)
                told["after"] = loaded(service, given.clients, 10)
            told["exit_code"] = service.stop()
    if "positives" in cases:
        with started(place, str(without_values(given.table, place))) as service:
            told["positives"] = loaded(service, 1, given.seconds)
            told["positives known"] = loaded(service, 1, given.seconds, known=True)
            told["positives many"] = loaded(service, given.clients, given.seconds)
            told["positives_exit_code"] = service.stop()
    if "start" in cases:
        (place / "start").mkdir()
        told["start"] = starts(place / "start", given.table)
    if given.als:
        only = cases == ("positives",)
        with als_started(given.table, place, given.environment, positives=only) as peer:
            told["als"] = loaded(peer, given.clients, given.seconds)
            told["als one"] = loaded(peer, 1, given.seconds)
            told["als known"] = loaded(peer, 1, given.seconds, known=True)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", default="ml-1m")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--cases", default="new", help=f"all, or some of {','.join(CASES)}")
    parser.add_argument("--writes", type=float, default=5.0, help="changes a second of that case")
    parser.add_argument("--overload", action="store_true")
    parser.add_argument("--als", action="store_true", help="implicit's ALS beside it")
    parser.add_argument("--environment", type=Path, default=Path("out/peers-env"))
    parser.add_argument("--install", action="store_true", help="install implicit there")
    given = parser.parse_args()
    if given.install:
        sys.path.insert(0, str(PEERS))
        from runs import install

        failed = install(given.environment, ALS)
        if failed:
            sys.exit(failed)
    with tempfile.TemporaryDirectory() as place:
        told = measured(given, Path(place))
    for name, load in told.items():
        if name == "start":
            first, again = load.values()
            print(f"ready after {first} s at first, {again} s from a saved state")
        elif isinstance(load, dict):
            print(row(name, load))
    if "memory_mb" in told:
        print(f"memory {told['memory_mb']:,} MB, drift {told['memory_drift']:+.1%}")
    print(json.dumps(told))
    sys.exit(0 if _well(told) else 1)


def row(name: str, load: dict[str, Any]) -> str:
    written = ""
    if "writes" in load:
        written = (
            f"  {load['writes']} writes of {load['write_median_ms']} ms, in responses after "
            f"{load['included_median_s']} s, at most {load['included_most_s']} s"
        )
    return (
        f"{name:>15}  {load['clients']:4} clients  {load['requests_per_second']:7.1f} requests/s  "
        f"median {load['median_ms']} ms  99th percentile {load['p99_ms']} ms  "
        f"{load['refused_503']:,} refused  {load['errors']:,} errors{written}"
    )


def _well(told: dict[str, Any]) -> bool:
    """No errors, memory that does not grow, refusals under overload only; speed is not judged."""
    loads = {
        name: load for name, load in told.items() if isinstance(load, dict) and "errors" in load
    }
    well = not any(load["errors"] for load in loads.values())
    well &= not any(load["refused_503"] for name, load in loads.items() if name != "overload")
    well &= not (told.get("exit_code") or told.get("positives_exit_code"))
    if "writes" not in loads:  # which make the table larger
        well &= told.get("memory_drift", 0) < MOST_DRIFT
    return well and ("overload" not in loads or loads["overload"]["refused_503"] > 0)


if __name__ == "__main__":
    main()
