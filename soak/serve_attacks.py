"""Attack the service, and measure how others are served meanwhile.

    python soak/serve_attacks.py [--table ml-1m]

Sockets that send half a request, bodies that arrive slowly, effects of ratings whose clients leave
at once, files that take long: after each, and during it, a client asks for its health and for
recommendations.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.attacks import open_socket, thin_csv
from tests.support.service import Service, served

HALF_HEADERS = b"GET /v1/model HTTP/1.1\r\nhost: localhost\r\nx-slow"
MAX_SECONDS = 2.0
"""Most seconds that others may wait for a response during an attack."""


def head(method: str, path: str, length: int, kind: str = "application/json") -> bytes:
    lines = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n"
    return f"{lines}content-length: {length}\r\n\r\n".encode()


@contextmanager
def half_open(service: Service, sockets: int = 1200) -> Iterator[None]:
    """Sockets with half of the headers of a request."""
    with ExitStack() as stack:
        for _ in range(sockets):
            stack.enter_context(open_socket(service.port, HALF_HEADERS))
        yield


@contextmanager
def slow_bodies(service: Service, sockets: int = 1200) -> Iterator[None]:
    """Sockets with half of the body of a request."""
    with ExitStack() as stack:
        for _ in range(sockets):
            sent = head("POST", "/v1/predict", 1000) + b"{"
            stack.enter_context(open_socket(service.port, sent))
        yield


@contextmanager
def effects_without_clients(service: Service, calls: int = 64, n: int = 1000) -> Iterator[None]:
    """Requests for effects of 200 ratings whose clients leave as soon as they have asked."""
    body = json.dumps({"ratings": ratings(service, 200), "n": n, "why": True}).encode()
    sockets = [open_socket(service.port, head("POST", "/v1/recommend", len(body)) + body)
               for _ in range(calls)]  # fmt: skip
    for one in sockets:
        one.close()
    yield


@contextmanager
def allowed_effects_without_clients(service: Service) -> Iterator[None]:
    """The same for as many effects as are allowed."""
    with effects_without_clients(service, n=50):
        yield


@contextmanager
def long_files(service: Service) -> Iterator[None]:
    """Files that take long, as many as are taken."""
    content = thin_csv()
    kind = "application/octet-stream"
    with ExitStack() as stack:
        for _ in range(4):
            sent = head("POST", "/v1/complete", len(content), kind) + content
            stack.enter_context(open_socket(service.port, sent))
        time.sleep(1)
        yield


def ratings(service: Service, count: int) -> list[Any]:
    about = service.call("GET", "/v1/model")[1]
    axis = about["axes"][1]["name"]
    found = service.call("GET", f"/v1/members?axis={axis}&limit={count}")[1]["members"]
    return [[one["label"], about["levels"][-1 - n % 2]] for n, one in enumerate(found)]


def others(service: Service, asked: int = 8) -> dict[str, Any]:
    """Statuses and the most seconds of calls of another client."""
    few = [["GET", "/health", None], ["POST", "/v1/recommend", {"ratings": RATED, "n": 10}]]
    statuses: dict[str, int] = {}
    slowest = 0.0
    for number in range(asked):
        started = time.monotonic()
        try:
            status = service.call(*few[number % 2])[0]
        except (OSError, HTTPException) as error:
            status = type(error).__name__
        slowest = max(slowest, time.monotonic() - started)
        statuses[str(status)] = statuses.get(str(status), 0) + 1
    return {"statuses": statuses, "slowest_seconds": round(slowest, 2)}


RATED: list[Any] = []
SHORT: list[Any] = [half_open, allowed_effects_without_clients, long_files]
ATTACKS: list[Any] = [*SHORT, slow_bodies, effects_without_clients]


def attacked(service: Service, attacks: list[Any]) -> dict[str, Any]:
    """What other clients saw during each attack."""
    RATED[:] = ratings(service, 5)
    found = {}
    for attack in attacks:
        with attack(service):
            found[attack.__name__] = others(service)
        print(f"{attack.__name__}: {found[attack.__name__]}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", default="film-club")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as place,
        served(Path(place), given.table, "--upload-memory", "400") as service,
    ):
        found = attacked(service, ATTACKS)
        alive = service.process.poll() is None
    print(json.dumps(found))
    well = all(
        set(one["statuses"]) == {"200"} and one["slowest_seconds"] < MAX_SECONDS
        for one in found.values()
    )
    sys.exit(0 if well and alive else 1)


if __name__ == "__main__":
    main()
