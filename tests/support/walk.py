"""Trace a walk through the package: which modules and rooms call which, and how often.

    python tests/support/walk.py                      # of the package that is installed
    python tests/support/walk.py --source ../before/src --rooms moves.json

A crossing is a call of a function in one module from code in another; code of other libraries
between the two is skipped, so that a layer which torch calls is called by the module that called
torch. A generator that goes on counts as a call; importing a module does not. All threads are
traced. A room is the folder of a module. A room is re-entered where a function of it is called,
from another room, while another call of it waits on the stack. Each walk is made twice in one
process and the second is traced; with --first the first one, with all one-off work.

``--rooms`` names a JSON file from a module's name below ``exchangeable`` to its room, for layouts
without folders. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = "exchangeable"
Names = tuple[str, str]
"""A module and the qualified name of a function in it."""


class Trace:
    """The calls between modules, in all threads, while it is entered."""

    def __init__(self, room_of: Callable[[str], str]) -> None:
        self.room_of = room_of
        self.modules: set[str] = set()
        self.crossings: Counter[Names] = Counter()
        self.returns: Counter[tuple[str, ...]] = Counter()
        """Chains of rooms that end where they began, with the functions they pass."""

    def __enter__(self) -> Trace:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not _is_ours(module) or frame.f_code.co_name == "<module>":
            return
        self.modules.add(module)
        caller = _caller(frame)
        if caller is None or caller.f_globals["__name__"] == module:
            return
        self.crossings[caller.f_globals["__name__"], module] += 1
        if self.room_of(caller.f_globals["__name__"]) != self.room_of(module):
            self._note_return(frame, self.room_of(module))

    def _note_return(self, frame: FrameType, room: str) -> None:
        """Count the chain from the waiting call of the same room, if there is one."""
        chain, here = [_name(frame)], _caller(frame)
        while here is not None:
            if (passed := _name(here)) != chain[-1]:
                chain.append(passed)
            if self.room_of(here.f_globals["__name__"]) == room:
                self.returns[tuple(reversed(chain))] += 1
                return
            here = _caller(here)

    def returns_by_rooms(self) -> dict[tuple[str, ...], Counter[tuple[str, ...]]]:
        """By the rooms that a chain passes, the chains of functions."""
        found: dict[tuple[str, ...], Counter[tuple[str, ...]]] = {}
        for chain, times in self.returns.items():
            rooms = [self.room_of(function.partition(":")[0]) for function in chain]
            passed = tuple(
                room for place, room in enumerate(rooms) if room not in rooms[place - 1 : place]
            )
            found.setdefault(passed, Counter())[chain] += times
        return found

    def rooms(self) -> set[str]:
        return {self.room_of(module) for module in self.modules}

    def room_crossings(self) -> Counter[Names]:
        found: Counter[Names] = Counter()
        for (one, other), times in self.crossings.items():
            if self.room_of(one) != self.room_of(other):
                found[self.room_of(one), self.room_of(other)] += times
        return found


def _is_ours(module: str) -> bool:
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def _caller(frame: FrameType) -> FrameType | None:
    """The nearest frame of the package below."""
    here = frame.f_back
    while here is not None and not _is_ours(here.f_globals.get("__name__", "")):
        here = here.f_back
    return here


def _name(frame: FrameType) -> str:
    module = frame.f_globals["__name__"].removeprefix(f"{PACKAGE}.")
    return f"{module}:{frame.f_code.co_qualname}"


# The walks --------------------------------------------------------------------------------


def fit_and_predict() -> tuple[Callable[[], Any], ...]:
    """The README's first example: five cells."""
    import exchangeable as ex

    cells = [("ann", "Heat"), ("ann", "Alien"), ("bob", "Heat"), ("bob", "Big"), ("cleo", "Alien")]
    made: list[Any] = []
    return (
        lambda: made.append(ex.Completer().fit(cells, [5, 4, 2, 1, 5])),
        lambda: made[-1].predict([("bob", "Alien"), ("cleo", "Heat")]),
    )


def complete(folder: Path) -> Callable[[], None]:
    """``exchangeable complete`` on 1,500 rows of the film club, a tenth of them without a value."""
    from exchangeable.datasets import load

    table = load("film-club").table
    labels = [v.decode(table.index[:, a]) for a, v in enumerate(table.vocabularies)]
    path = folder / "ratings.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["member", "film", "rating"])
        for place, (*cell, value) in enumerate(zip(*labels, table.values, strict=True)):
            if place < 1500:
                rows.writerow([*cell, "" if place % 10 == 0 else value])
    return lambda: _command("complete", str(path), "--force")


def train(folder: Path) -> Callable[[], None]:
    """``exchangeable train --steps 3`` on the film club."""
    return lambda: _command(
        "train", "film-club", "--steps", "3", "--out", str(folder / "m"), "--force"
    )


def _command(*words: str) -> None:
    from exchangeable.cli import run

    before = sys.argv
    sys.argv = ["exchangeable", *words]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.argv = before


def walks() -> Iterator[tuple[str, Callable[[], Any]]]:
    fit, predict = fit_and_predict()
    yield "fit, 5 cells", fit
    yield "predict, 2 cells", predict
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        yield "complete, 1,500 rows", complete(Path(place))
        yield "train --steps 3", train(Path(place))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", help="folder of the package, if it is not the installed one")
    parser.add_argument("--rooms", type=Path, help="JSON: a module's name to its room")
    parser.add_argument("--first", action="store_true", help="trace the first walk in the process")
    parser.add_argument("--pairs", action="store_true", help="print crossings by pair of rooms")
    given = parser.parse_args()
    if given.source:
        sys.path.insert(0, given.source)
    rooms = json.loads(given.rooms.read_text()) if given.rooms else {}

    def room_of(module: str) -> str:
        inner = module.removeprefix(f"{PACKAGE}.")
        return rooms.get(inner, inner.split(".")[0])

    results = {}
    for name, walk in walks():
        if not given.first:
            walk()
        with Trace(room_of) as trace:
            walk()
        between = trace.room_crossings()
        results[name] = {
            "modules": len(trace.modules), "crossings": trace.crossings.total(),
            "rooms": len(trace.rooms()), "room_crossings": between.total(),
            "reentered": len(trace.returns_by_rooms()),
        }  # fmt: skip
        print(f"{name}: " + ", ".join(f"{what} {n:,}" for what, n in results[name].items()))
        if given.pairs:
            for (one, other), times in between.most_common():
                print(f"    {times:6,}  {one} → {other}")
        for through, chains in sorted(trace.returns_by_rooms().items()):
            print(f"    {chains.total():6,} times  {' → '.join(through)}")
            for chain, times in chains.most_common(None if given.pairs else 3):
                print(f"           {times:6,}  {' → '.join(chain)}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
