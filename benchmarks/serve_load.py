"""Recommendations for new ratings, asked for by many clients at once, from a process of their own.

    python benchmarks/serve_load.py [--table ml-1m] [--clients 32] [--seconds 180] [--overload]

Each client asks again as soon as it is answered. With --overload there are 300 of them for a while,
which should hear 503, and then 32 again, which should not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.service import Service, ask

RATED = 10
MOST_DRIFT = 0.05


def client(
    service: Any, items: list[Any], levels: list[float], end: float, seed: int, found: list[Any]
) -> None:
    generator = random.Random(seed)
    connection = service.connection()
    while time.monotonic() < end:
        rated = generator.sample(items, RATED)
        body = {"ratings": [[one, generator.choice(levels)] for one in rated], "n": 10}
        started = time.monotonic()
        try:
            status, _ = ask(connection, "POST", "/v1/recommend", body)
        except OSError:
            status, connection = 0, service.connection()
        found.append((status, time.monotonic() - started))
        if status == 503:
            time.sleep(1)  # as Retry-After says


class Far:
    """The service as other processes see it."""

    def __init__(self, port: int) -> None:
        self.port = port

    connection = Service.connection


def clients(
    port: int, number: int, seconds: float, items: list[Any], levels: list[float]
) -> dict[str, Any]:
    """All clients of one process, and what they found."""
    found: list[tuple[int, float]] = []
    end = time.monotonic() + seconds
    threads = [
        threading.Thread(target=client, args=(Far(port), items, levels, end, seed, found))
        for seed in range(number)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = sorted(taken for status, taken in found if status == 200)
    return {
        "clients": number,
        "seconds": seconds,
        "requests_per_second": round(len(good) / seconds, 1),
        "median_ms": round(1000 * statistics.median(good), 1) if good else None,
        "p99_ms": round(1000 * good[int(0.99 * (len(good) - 1))], 1) if good else None,
        "refused_503": sum(status == 503 for status, _ in found),
        "errors": sum(status not in (200, 503) for status, _ in found),
    }


def loaded(service: Service, number: int, seconds: float) -> dict[str, Any]:
    about = service.call("GET", "/v1/model")[1]
    axis = about["axes"][1]["name"]
    members = service.call("GET", f"/v1/members?axis={axis}&limit=500")[1]["members"]
    items = [one["label"] for one in members]
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(clients, (service.port, number, seconds, items, about["levels"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", default="ml-1m")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--overload", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        service = Service(Path(place), given.table)
        service.wait(600)
        loaded(service, given.clients, 10)  # to warm up
        before = service.memory()
        told = loaded(service, given.clients, given.seconds)
        told["memory_mb"] = round(service.memory() / 2**20)
        told["memory_drift"] = round(service.memory() / before - 1, 4)
        if given.overload:
            told["overload"] = loaded(service, 300, 20)
            told["after"] = loaded(service, given.clients, 10)
        told["exit_code"] = service.stop()
    for name in ("load", "overload", "after"):
        if name == "load" or name in told:
            print(row(name, told if name == "load" else told[name]))
    print(f"memory {told['memory_mb']:,} MB, drift {told['memory_drift']:+.1%}")
    print(json.dumps(told))
    sys.exit(0 if _well(told) else 1)


def row(name: str, load: dict[str, Any]) -> str:
    return (
        f"{name:>9}  {load['clients']:4} clients  {load['requests_per_second']:7.1f} requests/s  "
        f"median {load['median_ms']} ms  99th percentile {load['p99_ms']} ms  "
        f"{load['refused_503']:,} refused  {load['errors']:,} errors"
    )


def _well(told: dict[str, Any]) -> bool:
    """No errors, memory that stays, refusals under overload only. How quick it is is not judged."""
    well = not (told["errors"] or told["refused_503"] or told["exit_code"])
    well &= abs(told["memory_drift"]) < MOST_DRIFT
    if "overload" in told:
        over, after = told["overload"], told["after"]
        well &= over["refused_503"] > 0 and not (over["errors"] or after["errors"])
        well &= after["refused_503"] == 0
    return well


if __name__ == "__main__":
    main()
