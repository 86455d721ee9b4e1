"""Ranks and relative errors over tables, from the stored runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from benchmarks.arena.methods import METHODS, lists, matrix, tensor, values
from benchmarks.arena.problem import Floats
from benchmarks.arena.questions import MIN_SHOWN, QUESTIONS, share_shown
from benchmarks.arena.runs import Record
from benchmarks.arena.tables import SIZES, TABLES

OURS, OPTIONAL, YARDSTICKS = ("pretrained", "auto"), "finetuned", ("bias", "vmf")
DRAWS = 2000
MAX_WORSE = 0.01
"""Share by which ours may be worse than the best of the others before a table is named."""
LEAST = 3
"""Tables that a method has answered before it has a mean."""
DIGITS = 5
"""Digits of an error that count: ``auto`` and the model it chose differ by rounding."""
Key = tuple[str, str]
"""A table and a question."""


def is_counted(record: Record) -> bool:
    """Whether a run is of a real table and of the first seed; others show how much chance does."""
    return record["table"] in TABLES and record["seed"] == 0


def required(kind: str, order: int) -> set[str]:
    """Methods that a table of values has to have been given to, before it counts in means."""
    takes = [lists] if kind == "positives" else [values, matrix if order == 2 else tensor]
    return {name for name, m in METHODS.items() if not m.optional and m.takes in takes} | set(OURS)


@dataclass(frozen=True, eq=False)
class Board:
    """Errors of methods by table and question; NaN where a method was asked and did not answer."""

    errors: Mapping[Key, Mapping[str, float]]
    measure: str
    complete: Set[Key] = frozenset()
    """Where all methods that take such a table have been asked: only these count in means."""

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        questions: Sequence[str],
        measure: str = "rmse",
        order: int | None = None,
    ) -> Board:
        """Collect a measure of some questions; of lists one less the measure is the error.

        With an ``order`` only tables with so many axes are taken.
        """
        errors: dict[Key, dict[str, float]] = {}
        for record in records:
            fits = order is None or len(record["shape"]) == order
            if fits and record["question"] in questions and is_counted(record):
                found = record.get("scores", {}).get(measure, np.nan)
                if "scores" in record and np.isnan(found):
                    continue  # it has no such measure
                error = 1 - found if "@" in measure or measure == "auc" else found
                error = float(f"{error:.{DIGITS}g}")
                key = record["table"], record["question"]
                errors.setdefault(key, {})[record["method"]] = error
        full = {key: row for key, row in errors.items() if not np.isnan(list(row.values())).all()}
        asked = {(r["table"], r["question"]): required(r["kind"], len(r["shape"])) for r in records}
        return cls(full, measure, {key for key, row in full.items() if asked[key] <= set(row)})

    @property
    def methods(self) -> list[str]:
        """Methods that answered, in the sequence of ``METHODS``."""
        known = {name for row in self.errors.values() for name, e in row.items() if not np.isnan(e)}
        return [name for name in METHODS if name in known]

    @property
    def tables(self) -> list[str]:
        """Tables in the sequence of ``TABLES``."""
        known = {table for table, _ in self.errors}
        return [name for name in TABLES if name in known]

    def relative(self, key: Key, method: str) -> float:
        """Error above that of the best, as a share of it; one that did not answer has the worst."""
        row = self.errors[key]
        if method not in row:
            return np.nan
        known = [error for error in row.values() if not np.isnan(error)]
        error = max(known) if np.isnan(row[method]) else row[method]
        return error / min(known) - 1

    def rank(self, key: Key, method: str) -> float:
        """Place among those that were asked, as a share: 0 is the best, 1 the last.

        Ours is one entrant: ``auto`` mostly is the pretrained model, and would push others down
        by one more place for the same answers.
        """
        twins = set(OURS) - {method} if method in OURS else set(OURS[:-1])
        row = self.errors[key]
        if set(OURS) <= set(row):
            row = {name: error for name, error in row.items() if name not in twins}
        if method not in row or len(row) < 2:
            return np.nan
        filled = {name: np.inf if np.isnan(error) else error for name, error in row.items()}
        own = filled[method]
        better = sum(error < own for error in filled.values())
        equal = sum(error == own for error in filled.values()) - 1
        return (better + equal / 2) / (len(row) - 1)

    def by_table(self, measure: Callable[[Key, str], float], method: str) -> dict[str, float]:
        """The mean over the questions of each table that a method was asked."""
        found: dict[str, list[float]] = {}
        for key in sorted(self.complete):
            if not np.isnan(value := measure(key, method)):
                found.setdefault(key[0], []).append(value)
        return {table: float(np.mean(values)) for table, values in found.items()}


@dataclass(frozen=True)
class Estimate:
    """A mean over tables, and the interval of 95 % when tables are drawn again."""

    mean: float
    low: float
    high: float
    tables: int

    def geometric(self) -> Estimate:
        """Turn logarithms of ratios into shares above 1."""
        ends = (float(np.expm1(value)) for value in (self.mean, self.low, self.high))
        return Estimate(*ends, self.tables)


def estimate(values: Floats, seed: int = 0) -> Estimate:
    draws = np.random.default_rng(seed).integers(0, len(values), (DRAWS, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return Estimate(float(values.mean()), float(low), float(high), len(values))


def standings(board: Board) -> dict[str, tuple[Estimate, Estimate]]:
    """Mean rank and mean relative error of each method over tables, the best rank first.

    Methods that were not given all tables come last: their means are over others, which may be
    easier to be good at.
    Relative errors are averaged as ratios, by a geometric mean: one table on which a method fails
    utterly does not outweigh all others.
    """
    found = {}
    for method in board.methods:
        ranks = board.by_table(board.rank, method)
        if len(ranks) >= LEAST:
            ratios = 1 + np.array(list(board.by_table(board.relative, method).values()))
            logarithms = estimate(np.log(ratios))
            found[method] = (estimate(np.array(list(ranks.values()))), logarithms.geometric())
    most = max((rank.tables for rank, _ in found.values()), default=0)
    return dict(sorted(found.items(), key=lambda pair: (pair[1][0].tables < most, pair[1][0].mean)))


@dataclass(frozen=True)
class Fall:
    """A table on which ours is more than a little worse than a yardstick."""

    table: str
    question: str
    ours: str
    error: float
    other: str
    least: float

    @property
    def worse(self) -> float:
        return self.error / self.least - 1


def falls(board: Board, ours: str, most: float = MAX_WORSE) -> list[Fall]:
    """Where one of ours is worse than the best of all other methods, the worst first."""
    found = []
    for (table, question), row in board.errors.items():
        known = {n: e for n, e in row.items() if n not in (*OURS, OPTIONAL) and not np.isnan(e)}
        if known and ours in row:
            name = min(known, key=lambda name: known[name])
            fall = Fall(table, question, ours, row[ours], name, known[name])
            if not fall.worse <= most:  # also if it did not answer
                found.append(fall)
    return sorted(found, key=lambda fall: -fall.worse)


def other_draws(records: Sequence[Record], fall: Fall) -> list[float]:
    """By how much ours was worse than the best of the others on other draws, by their seeds.

    The others are those that answered on the first draw; draws on which they did not are left out.
    """
    errors: dict[int, dict[str, float]] = {}
    for r in records:
        if (r["table"], r["question"]) == (fall.table, fall.question) and "scores" in r:
            errors.setdefault(r["seed"], {})[r["method"]] = r["scores"]["rmse"]
    others = errors.pop(0, {}).keys() - {*OURS, OPTIONAL}
    return [
        row[fall.ours] / min(row[name] for name in others) - 1
        for _, row in sorted(errors.items())
        if row.keys() >= others | {fall.ours}
    ]


def best_of(board: Board, key: Key) -> tuple[str, float]:
    """The method with the smallest error, and the error."""
    row = {name: error for name, error in board.errors[key].items() if not np.isnan(error)}
    name = min(row, key=lambda name: row[name])
    return name, row[name]


def sizes(records: Sequence[Record]) -> dict[str, list[tuple[int, float, float]]]:
    """Cells, seconds and megabytes of the runs on simulated tables, by method."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for record in records:
        if record["table"] in SIZES and "scores" in record:
            seconds = record["wall_s"] - record.get("search_s", 0.0)
            row = record["cells"], seconds, record["peak_mb"]
            found.setdefault(record["method"], []).append(row)
    return {name: sorted(rows) for name, rows in found.items()}


def seconds_and_errors(records: Sequence[Record], board: Board) -> dict[str, tuple[float, float]]:
    """Median seconds of a run and mean relative error, of methods that took all tables."""
    found, places = {}, standings(board)
    most = max(error.tables for _, error in places.values())
    for name, (_, error) in places.items():
        if error.tables < most:
            continue
        seconds = [
            r["wall_s"]
            for r in records
            if r["method"] == name
            and (r["table"], r["question"]) in board.complete
            and "wall_s" in r
        ]
        found[name] = float(np.median(seconds)), error.mean
    return found


def lines_of_shares(records: Sequence[Record]) -> dict[str, list[tuple[float, float]]]:
    """Mean RMSE in deviations by share, over the tables that have all shares and methods."""
    errors: dict[str, dict[tuple[str, float], float]] = {}
    for r in records:
        share = share_shown(r["question"])
        if share is not None and is_counted(r) and "scores" in r:
            errors.setdefault(r["method"], {})[r["table"], share] = (
                r["scores"]["rmse"] / r["deviation"]
            )
    wanted = [set(errors.get(name, {})) for name in (*OURS, *YARDSTICKS)]
    every = set.intersection(*wanted)
    shares = sorted({share for _, share in every})
    tables = sorted({t for t, _ in every if all((t, share) in every for share in shares)})
    return {
        name: [(100 * s, float(np.mean([errors[name][t, s] for t in tables]))) for s in shares]
        for name in METHODS
        if tables and all((t, s) in errors.get(name, {}) for t in tables for s in shares)
    }


def missing(records: Sequence[Record]) -> dict[str, list[str]]:
    """Tables without a run of ours, by question that can be asked about them."""
    there = {(r["table"], r["question"]) for r in records if r["method"] in OURS}
    cells = {r["table"]: r["cells"] + r["queries"] for r in records if r["question"] == "cells"}

    def can_ask(question: str, table: str) -> bool:
        share = None if question == "cells" else share_shown(question)
        few = share and table in cells and round(share * cells[table]) < MIN_SHOWN
        return QUESTIONS[question].asks(TABLES[table]) and not few

    return {
        question: left
        for question in QUESTIONS
        if (left := [n for n in TABLES if can_ask(question, n) and (n, question) not in there])
    }
