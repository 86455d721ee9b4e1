"""Broken and hostile files sent to the service: it answers 2xx or 4xx only, in bounded memory.

    python soak/serve_uploads.py [--files 300]

Every tenth file is made to grow: texts that a dictionary repeats, columns of one value, members
whose comparison takes their number squared. Memory is that of the service and of its processes.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support import attacks
from tests.support.service import Service, served

from exchangeable.datasets import load

MAX_MEMORY = 2**30
"""Bytes of memory of the service and of its processes together."""
MOST_MORE = 64 * 2**20
"""Bytes of memory of the service itself beyond what it has after the first files."""
OPTIONS = ("--upload-memory", "384", "--upload-seconds", "60")
ODD = [
    b"\x00",
    b"\xff\xfe",
    b'"',
    b",",
    b"\n",
    b"\r",
    b"nan",
    b"1e400",
    b"-0",
    b"'",
    b"\xf0\x9f",
    b"::",
]


def good() -> list[bytes]:
    """A table as CSV, with semicolons, and as Parquet."""
    table = load("film-club").table
    frame = pl.DataFrame(table.frame(table.index, rating=table.values))[:800]
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return [
        frame.write_csv().encode(),
        frame.write_csv(separator=";").encode(),
        buffer.getvalue(),
    ]


def broken(content: bytes, generator: random.Random) -> bytes:
    """With some bytes changed, cut, put in, or repeated."""
    changed = bytearray(content)
    for _ in range(generator.randint(1, 3)):
        at, kind = generator.randrange(len(changed) + 1), generator.randrange(5)
        if kind == 0 and changed:
            changed[at % len(changed)] = generator.randrange(256)
        elif kind == 1:
            del changed[at : at + generator.randint(1, 200)]
        elif kind == 2:
            changed[at:at] = generator.choice(ODD) * generator.choice([1, 2, 1000])
        elif kind == 3:
            changed[at:at] = changed[at : at + generator.randint(1, 5000)]
        else:
            del changed[at:]
    return bytes(changed)


def hostile() -> list[bytes]:
    """Small files that take much memory or time."""
    columns = ("user", "rating", "note")
    return [
        *(attacks.growing_parquet(column, rows=200_000) for column in columns),
        *(attacks.growing_parquet(column, others=5_000) for column in columns),
        attacks.many_columns(),
        attacks.thin_csv(),
        attacks.thin_csv(20_000),
        b"[" * 2**20,
    ]


class Watch(threading.Thread):
    """The most memory that a service and its processes had, as long as this runs."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self.service, self.most, self.ended = service, 0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            self.most = max(self.most, self.service.memory_of_all())


def sent(service: Service, files: int, seed: int = 0) -> Counter[int]:
    """Statuses of the responses to files."""
    generator, originals = random.Random(seed), good()
    grown = hostile()
    statuses: Counter[int] = Counter()
    for number in range(files):
        content = broken(originals[number % len(originals)], generator)
        if number % 10 == 9:
            content = grown[number // 10 % len(grown)]
        path = generator.choice(
            ["/v1/complete", "/v1/look", "/v1/columns", "/v1/complete?all=true"]
        )
        connection = service.connection()
        connection.request("POST", path, content)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        statuses[answer.status] += 1
    return statuses


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=300)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as place,
        served(Path(place), *OPTIONS) as service,
    ):
        sent(service, 20, seed=1)  # to warm up
        before, watch = service.memory(), Watch(service)
        watch.start()
        statuses = sent(service, given.files)
        watch.ended.set()
        watch.join()
        after, alive = service.memory(), service.process.poll() is None
    told = {
        "files": given.files,
        "statuses": dict(sorted(statuses.items())),
        "memory_before_mb": round(before / 2**20),
        "memory_after_mb": round(after / 2**20),
        "memory_of_all_most_mb": round(watch.most / 2**20),
    }
    counts = ", ".join(f"{number:,} times {status}" for status, number in sorted(statuses.items()))
    print(
        f"{given.files:,} files: {counts}; memory of the service {before / 2**20:.0f} to "
        f"{after / 2**20:.0f} MB, with its processes at most {watch.most / 2**20:.0f} MB"
    )
    print(json.dumps(told))
    bad = any(status >= 500 for status in statuses) or not alive
    sys.exit(1 if bad or after > before + MOST_MORE or watch.most > MAX_MEMORY else 0)


if __name__ == "__main__":
    main()
