"""Broken files sent to the service: it answers 2xx or 4xx only, and its memory stays bounded.

python soak/serve_uploads.py [--files 300]
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.service import Service, served

from exchangeable.datasets import load

MOST_MORE = 256 * 2**20
"""Bytes of memory beyond what it has after the first files."""
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


def sent(service: Service, files: int, seed: int = 0) -> tuple[Counter[int], int]:
    """Statuses, and the most memory that was held, in bytes."""
    generator, originals = random.Random(seed), good()
    statuses: Counter[int] = Counter()
    most = 0
    for number in range(files):
        content = broken(originals[number % len(originals)], generator)
        path = generator.choice(["/v1/complete", "/v1/look", "/v1/complete?all=true"])
        connection = service.connection()
        connection.request("POST", path, content)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        statuses[answer.status] += 1
        most = max(most, service.memory())
    return statuses, most


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, served(Path(place)) as service:
        sent(service, 20, seed=1)  # to warm up
        before = service.memory()
        statuses, most = sent(service, given.files)
        told = {
            "files": given.files,
            "statuses": dict(sorted(statuses.items())),
            "memory_before_mb": round(before / 2**20),
            "memory_most_mb": round(most / 2**20),
        }
    counts = ", ".join(f"{number:,} times {status}" for status, number in sorted(statuses.items()))
    print(f"{given.files:,} files: {counts}; memory {before / 2**20:.0f} to {most / 2**20:.0f} MB")
    print(json.dumps(told))
    bad = any(status >= 500 for status in statuses)
    sys.exit(1 if bad or most > before + MOST_MORE else 0)


if __name__ == "__main__":
    main()
