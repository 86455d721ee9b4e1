"""What every run does: read the arrays, fit, answer the test cells, serve new users.

A runner is a script that calls ``run`` with a ``Peer``. It needs numpy and the peer, nothing of
ours, so that it works in the peers' environment. It prints a line of JSON after each stage: what
was measured stays when a later stage takes too long.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class Cells(NamedTuple):
    """Ratings as three columns of the same length."""

    users: Labels
    items: Labels
    values: Floats


@dataclass(frozen=True)
class Data:
    """A table with its test cells, and users who come later, where the file has any."""

    train: Cells
    test: Cells
    newcomers: list[tuple[Labels, Floats]]
    """The items that each of them rated, all among those of ``train``, and the ratings."""

    @classmethod
    def read(cls, path: str | Path) -> Data:
        with np.load(path) as stored:
            train, test = (
                Cells(*(stored[f"{part}_{name}"] for name in Cells._fields))
                for part in ("train", "test")
            )
            later = (stored[name] for name in ("new_items", "new_values") if name in stored)
            new = list(zip(*later, strict=True))
        return cls(train, test, new)


class Peer(Protocol):
    """A library with a model and its settings, as its manual would have one use it."""

    package: str
    """The name of its distribution."""
    refits: bool
    """Whether a new user means fitting again."""

    def fit(self, train: Cells) -> None:
        """From arrays to a fitted model, whatever has to be built between them."""
        ...

    def predict(self, test: Cells) -> Floats:
        """For the test cells: (Q,)."""
        ...

    def serve(self, items: Labels, values: Floats) -> Any:
        """Score all items for a new user; where it ``refits``, for a known one."""
        ...


def run(peer: Peer, calibrate: Callable[[Cells], Callable[[Floats], Floats]] | None = None) -> None:
    """Measure a peer on ``sys.argv[1]``; SIGALRM ends what takes over ``sys.argv[2]`` seconds.

    ``calibrate`` is for a peer whose answers are scores: it learns from training cells how to
    make ratings of them.
    """
    data, limit = Data.read(sys.argv[1]), int(sys.argv[2])
    tell(version=version_of(peer.package), refits=peer.refits, before_mb=peak())
    signal.alarm(limit)  # nobody handles it, so that it ends compiled loops too
    started, busy = time.perf_counter(), time.process_time()
    peer.fit(data.train)
    fitted = time.perf_counter()
    answers = peer.predict(data.test)
    done = time.perf_counter()
    busy = time.process_time() - busy
    tell(fit_s=fitted - started, predict_s=done - fitted, cpu_s=busy, peak_mb=peak())
    signal.alarm(limit)
    if calibrate is None:
        tell(rmse=rmse(answers, data))
    else:
        tell(line_rmse=rmse(calibrate(data.train)(answers), data))
    if data.newcomers:
        again = fitted - started if peer.refits else 0.0
        tell(serve_s=again + served(peer, data))


def version_of(package: str) -> str:
    """The version that is installed; ours may be read from its source."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "source"


def rmse(answers: Floats, data: Data) -> float:
    """On the test cells, after all answers were clipped to the values seen in training."""
    clipped = np.clip(answers, data.train.values.min(), data.train.values.max())
    return float(np.sqrt(np.mean((clipped - data.test.values) ** 2)))


def served(peer: Peer, data: Data) -> float:
    """The median time of one new user, of as many as two seconds allow."""
    times: list[float] = []
    for items, values in data.newcomers:
        started = time.perf_counter()
        peer.serve(items, values)
        times.append(time.perf_counter() - started)
        if sum(times) > 2:
            break
    return float(np.median(times))


def best(scores: Floats, n: int = 10) -> NDArray[np.int64]:
    """The places of the ``n`` highest scores, best first."""
    top = np.argpartition(-scores, n)[:n]
    return top[np.argsort(-scores[top])]


def peak() -> float:
    """The most megabytes this process held; ru_maxrss would inherit the parent's."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1024


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)
