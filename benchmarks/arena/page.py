"""The page of the arena: what the stored runs say, written between the marks of docs/arena.md.

    <!-- runs: NAME -->
    ...
    <!-- end -->

The text around the marks is written by people.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from benchmarks.arena import summary
from benchmarks.arena.methods import METHODS
from benchmarks.arena.questions import QUESTIONS
from benchmarks.arena.runs import Record, stored
from benchmarks.arena.summary import OURS, Board, Estimate
from benchmarks.arena.tables import TABLES

ROOT = Path(__file__).parents[2]
PAGE, PICTURES = ROOT / "docs" / "arena.md", ROOT / "docs" / "pictures"
README = ROOT / "README.md"
"""Has the first rows of two tables of standings side by side."""
FIRST = 8
"""Rows of the README's table."""
SHARES = ("shown-1", "shown-3", "shown-10", "shown-30")
PRINTED: Mapping[tuple[str, str], str] = {
    ("birmingham", "missing-40"): "BGCP 25.6, BTMF 18.2",
    ("hangzhou", "missing-40"): "BGCP 33.7, BTMF 30.0",
    ("new-york", "missing-40"): "BPTF 4.82, BTMF 4.59",
}
"""RMSE that papers print, at 40 % missing at random, on other draws of the missing cells."""


ALTS: Mapping[str, str] = {
    "ranks": "Mean rank and mean relative error of each method",
    "heat": "Error above the best of each table",
    "time": "Error over time",
    "shares": "Error over the share of cells shown",
    "sizes": "Seconds and memory over the number of cells",
}
"""What the pictures show, by name."""


def picture(name: str, drawn: object) -> str:
    """The line of a picture; without what it is drawn from, it would be that of older runs."""
    return f"![{ALTS[name]}](pictures/arena-{name}.png)" if drawn else "Not drawn yet."


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def told(value: float | None) -> str:
    return "" if value is None or np.isnan(value) else f"{value:.4g}"


def percent(estimate: Estimate) -> str:
    return f"{100 * estimate.mean:.1f} % ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


def standings(board: Board) -> str:
    """Mean rank and relative error of each method."""
    rows = [
        [
            METHODS[name].title,
            str(rank.tables),
            f"{rank.mean:.2f} ({rank.low:.2f} to {rank.high:.2f})",
            percent(error),
        ]
        for name, (rank, error) in summary.standings(board).items()
    ]
    head = ["method", "tables", "mean rank, 0 best to 1 last", "mean error above the best"]
    if not rows:
        return f"Fewer than {summary.LEAST} tables have been given to all methods yet."
    tables = ", ".join(name for name in board.tables if name in {t for t, _ in board.complete})
    return f"{markdown(head, rows)}\n\nTables that all methods were given: {tables}."


def first_places(boards: Mapping[str, Board]) -> str:
    """Mean rank and relative error of the best methods, on several sets of tables side by side.

    Methods that did not take all of the tables of the first set are left out.
    """
    found = {title: summary.standings(board) for title, board in boards.items()}
    first = next(iter(found.values()))
    if not first:
        return f"Fewer than {summary.LEAST} tables have been given to all methods yet."
    most = max(rank.tables for rank, _ in first.values())
    names = [name for name, (rank, _) in first.items() if rank.tables == most][:FIRST]

    def columns(name: str, places: Mapping[str, tuple[Estimate, Estimate]]) -> list[str]:
        if name not in places:
            return ["–", "–"]
        rank, error = places[name]
        return [f"{rank.mean:.2f}", f"{100 * error.mean:.1f} %"]

    head = ["method"]
    for title, places in found.items():
        tables = max((rank.tables for rank, _ in places.values()), default=0)
        head += [f"{title} ({tables} tables): mean rank", "error above the best"]
    rows = [
        [METHODS[name].title, *(text for each in found.values() for text in columns(name, each))]
        for name in names
    ]
    return markdown(head, rows)


def falls(boards: Sequence[Board], records: Sequence[Record]) -> str:
    """Tables on which ours is more than 1 % worse than the best of the others."""
    found = [fall for board in boards for ours in OURS for fall in summary.falls(board, ours)]
    rows = [
        [
            fall.table,
            QUESTIONS[fall.question].title,
            METHODS[fall.ours].title,
            told(fall.error) or "no answer",
            f"{METHODS[fall.other].title} {told(fall.least)}",
            f"{100 * fall.worse:.1f} %" if not np.isnan(fall.worse) else "",
            ", ".join(f"{100 * w:+.1f} %" for w in summary.other_draws(records, fall)),
        ]
        for fall in sorted(found, key=lambda fall: -fall.worse)
    ]
    if not rows:
        return "None in what has been run."
    head = ["table", "question", "ours", "RMSE", "the best of the others", "worse by"]
    return markdown([*head, "on other draws of the hidden cells"], rows)


def figures(board: Board) -> str:
    """The errors of all methods on one question."""
    keys = [key for table in board.tables for key in board.errors if key[0] == table]
    methods = [m for m in board.methods if any(m in board.errors[key] for key in keys)]
    rows = []
    for key in keys:
        _, least = summary.best_of(board, key)
        row = board.errors[key]
        named = [key[0] if len({k[1] for k in keys}) == 1 else f"{key[0]}, {key[1]}"]
        cells = ["" if m not in row else "–" if np.isnan(row[m]) else told(row[m]) for m in methods]
        rows.append(
            named
            + [
                f"**{c}**" if row.get(m) == least else c
                for m, c in zip(methods, cells, strict=True)
            ]
        )
    return markdown(["table", *methods], rows) if rows else "Not run yet."


def measures(records: Sequence[Record], questions: Sequence[str], names: Sequence[str]) -> str:
    """Several measures of the runs of some questions, a row for each run."""
    rows = [
        [r["table"], r["question"], r["method"], *(told(r["scores"].get(n)) for n in names)]
        for r in in_sequence(records)
        if r["question"] in questions and set(names) <= set(r.get("scores", {}))
    ]
    return markdown(["table", "question", "method", *names], rows) if rows else "Not run yet."


def in_sequence(records: Sequence[Record]) -> list[Record]:
    """Runs in the sequence of tables, questions and methods."""
    places = [{name: n for n, name in enumerate(each)} for each in (TABLES, QUESTIONS, METHODS)]
    keys = ("table", "question", "method")
    known = [r for r in records if r["table"] in places[0] and r["method"] in places[2]]
    return sorted(
        known, key=lambda r: [place[r[key]] for place, key in zip(places, keys, strict=True)]
    )


def chances(records: Sequence[Record]) -> str:
    return measures(records, ("cells",), ("log_loss", "auc", "calibration"))


def certainty(records: Sequence[Record]) -> str:
    """How many of the true values lie in the intervals of 80 %, and the log-likelihood.

    On the tables that all methods were given; a method that failed on some has fewer.
    """
    tables = {table for table, _ in Board.of(records, ("cells",), order=2).complete}
    kept = [
        r
        for r in records
        if r["question"] == "cells"
        and r["table"] in tables
        and r["kind"] != "binary"
        and summary.is_counted(r)
        and "coverage" in r.get("scores", {})
    ]
    best: dict[str, float] = {}
    for r in kept:
        best[r["table"]] = max(r["scores"]["log_likelihood"], best.get(r["table"], -np.inf))
    rows = []
    for name in METHODS:
        scores = {r["table"]: r["scores"] for r in kept if r["method"] == name}
        if len(scores) < summary.LEAST:
            continue
        covered = np.array([row["coverage"] for row in scores.values()])
        below = [best[table] - row["log_likelihood"] for table, row in scores.items()]
        rows.append(
            [
                METHODS[name].title,
                str(len(scores)),
                f"{100 * covered.mean():.1f} %",
                f"{100 * np.abs(covered - 0.8).mean():.1f}",
                f"{np.mean(below):.3f}",
            ]
        )
    head = [
        "method",
        "tables",
        "mean share in the intervals of 80 %",
        "mean distance from 80",
        "mean log-likelihood of a cell below the best",
    ]
    return markdown(head, rows) if rows else "Not run yet."


def accuracies(records: Sequence[Record]) -> str:
    names = ("accuracy_mae", "accuracy_mae_of_plain_means", "log_loss", "calibration")
    return measures(records, ("accuracy",), names)


def tensors(board: Board) -> str:
    printed = "; ".join(f"{table} {text}" for (table, _), text in PRINTED.items())
    return f"{figures(board)}\n\nPrinted for 40 %: {printed}."


def sizes(records: Sequence[Record]) -> str:
    """Seconds and memory over the number of cells, and the picture if there is one."""
    found = summary.sizes(records)
    rows = [
        [METHODS[name].title, f"{cells:,}", f"{seconds:.3g}", f"{memory:,.0f}"]
        for name in METHODS
        for cells, seconds, memory in found.get(name, [])
    ]
    if not rows:
        return "Not run yet."
    head = ["method", "cells", "seconds, without the choice of settings", "MB"]
    return f"{picture('sizes', rows)}\n\n{markdown(head, rows)}"


def searches(records: Sequence[Record]) -> str:
    """How many runs of each method tried all of its settings before the budget was over."""
    chosen = [r for r in records if r["table"] in TABLES and r.get("of", 0) > 1]
    rows = []
    for name in METHODS:
        found = [r for r in chosen if r["method"] == name]
        if found:
            tried = float(np.mean([r["tried"] / r["of"] for r in found]))
            done = sum(r["tried"] == r["of"] for r in found)
            rows.append([METHODS[name].title, str(len(found)), str(done), f"{100 * tried:.0f} %"])
    head = ["method", "runs with a choice", "that tried all settings", "mean share tried"]
    budgets = sorted({r["limits"]["budget"] for r in chosen})
    if not rows:
        return "Not run yet."
    span = " to ".join(f"{budget:g}" for budget in dict.fromkeys((budgets[0], budgets[-1])))
    return f"{markdown(head, rows)}\n\nBudgets were {span} seconds."


def failures(records: Sequence[Record]) -> str:
    rows = [
        [r["table"], r["question"], r["method"], r["failed"].replace("|", "/")[:120]]
        for r in in_sequence(records)
        if "failed" in r
    ]
    return markdown(["table", "question", "method", "why"], rows) if rows else "None."


def not_run(records: Sequence[Record]) -> str:
    left = summary.missing(records)
    lines = [f"- {QUESTIONS[name].title} (`{name}`): {', '.join(t)}" for name, t in left.items()]
    return "\n".join(lines) or "Everything has been run."


def sections(records: Sequence[Record]) -> dict[str, Callable[[], str]]:
    """The parts of the page by the names of their marks."""

    def board(*questions: str, order: int | None = None) -> Board:
        return Board.of(records, questions, order=order)

    def counted() -> str:
        kept = [r for r in records if r["table"] in TABLES]
        answered = sum("scores" in r for r in kept)
        tables, commits = {r["table"] for r in kept}, sorted({r["commit"] for r in kept})
        codes: dict[str, set[str]] = {}
        for r in kept:
            codes.setdefault(r["method"], set()).add(r.get("code", r["commit"]))
        mixed = [f"{name} {len(codes[name])}" for name in METHODS if len(codes.get(name, ())) > 1]
        return (
            f"{len(kept):,} runs on {len(tables)} of {len(TABLES)} tables, {answered:,} of them "
            f"with answers; commits {', '.join(commits)}. "
            + (
                f"States of the code of a method's runs: {', '.join(mixed)}."
                if mixed
                else "All runs of a method are of one state of its code."
            )
        )

    def load() -> str:
        loads = [r["load"] for r in records if "wall_s" in r]
        return (
            f"Median load of the machine when these runs started: {np.median(loads):.1f}. Seconds "
            f"are figures where it is below 1, and else say only which methods take long."
            if loads
            else "Not run yet."
        )

    members = ("rows-10", "rows-50", "features-0", "features-1")
    shown, missing = ("cells", *SHARES), ("missing-40", "missing-60")

    def of_standings(name: str) -> Callable[[], str]:
        return lambda: picture(name, summary.standings(board("cells", order=2)))

    return {
        **{f"picture of {name}": of_standings(name) for name in ("ranks", "heat", "time")},
        "picture of shares": lambda: picture("shares", summary.lines_of_shares(records)),
        "counted": counted,
        "first places": lambda: first_places(
            {
                "a tenth hidden": board("cells", order=2),
                "1 to 30 % shown": board(*SHARES, order=2),
            }
        ),
        "standings of cells": lambda: standings(board("cells", order=2)),
        "standings of tensors": lambda: standings(board("cells", order=3)),
        "standings of shares": lambda: standings(board(*SHARES, order=2)),
        "falls": lambda: falls([board(*shown, *members, *missing, "random")], records),
        "cells": lambda: figures(board("cells")),
        "certainty": lambda: certainty(records),
        "chances": lambda: chances(records),
        "shares": lambda: figures(board(*SHARES)),
        "members": lambda: figures(board(*members)),
        "random": lambda: figures(board("random")),
        "tensors": lambda: tensors(board(*missing)),
        "positives": lambda: measures(records, ("positives",), ("recall@20", "ndcg@10")),
        "accuracies": lambda: accuracies(records),
        "load": load,
        "searches": lambda: searches(records),
        "sizes": lambda: sizes(records),
        "failures": lambda: failures(records),
        "not run": lambda: not_run(records),
    }


def filled(text: str, records: Sequence[Record]) -> str:
    """Put what the runs say between the marks of a page."""
    made = sections(records)

    def section(found: re.Match[str]) -> str:
        return f"{found[1]}\n\n{made[found[2]]()}\n\n<!-- end -->"

    marks = re.compile(r"(<!-- runs: ([\w ]+) -->).*?<!-- end -->", flags=re.DOTALL)
    return marks.sub(section, text)


def write_page(results: Path, pages: Sequence[Path] = (PAGE, README)) -> None:
    """Write the page, its pictures and the README's table from the stored runs."""
    from benchmarks.arena import pictures

    records = stored(results)
    for page in pages:
        page.write_text(filled(page.read_text(encoding="utf-8"), records), encoding="utf-8")
    board = Board.of(records, ("cells",), order=2)
    places = summary.standings(board)
    if places:
        title = "a tenth of the cells hidden, two axes"
        pictures.draw_standings(PICTURES / "arena-ranks.png", places, title)
        pictures.draw_heat(PICTURES / "arena-heat.png", Board.of(records, ("cells",)), "cells")
        pictures.draw_time(PICTURES / "arena-time.png", summary.seconds_and_errors(records, board))
    if lines := summary.lines_of_shares(records):
        pictures.draw_shares(PICTURES / "arena-shares.png", lines)
    if rows := summary.sizes(records):
        pictures.draw_sizes(PICTURES / "arena-sizes.png", rows)
