"""Tables of stored results beside what the paper prints."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paper.lib import provenance, runs

NOTHING = "–"


@dataclass(frozen=True)
class Row:
    """A line of a table: a method of ours, or one that is only published."""

    title: str
    published: Sequence[float | None] = ()
    """By column, as the paper prints it."""
    method: str | None = None
    seeds: int | None = None
    """Maximum number of seeds; none: as many as --seeds says."""
    first: bool = False
    """Whether it is run for the first column only."""


@dataclass(frozen=True)
class Column:
    """Where a row's method is run."""

    title: str
    problem: str
    splits: tuple[str, ...]
    """Several are averaged: of random splits each has its own seed."""
    digits: int = 4
    metric: str = "rmse"


Found = Sequence[Mapping[str, Any]]
"""Stored runs."""


def format_table(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    found: Found,
    *,
    any_commit: bool = False,
) -> str:
    """As Markdown: for each column what is published and what was found, and the commits of a row.

    Below the table it says whether all runs are of the same code; if not, ``any_commit`` must be
    set, or there is an error and no table.
    """
    told = [any(r.published[i : i + 1] for r in rows) for i in range(len(columns))]
    heads = []
    for column, known in zip(columns, told, strict=True):
        heads += [f"{column.title}, published", "here"] if known else [column.title]
    lines = [f"**{title}**", "", "| | " + " | ".join([*heads, "commit"]) + " |"]
    lines.append("|---|" + "---|" * (len(heads) + 1))
    used: dict[str, list[tuple[str, provenance.Run]]] = {}
    for row in rows:
        cells, runs_of_row = [], [run for column in columns for run in runs_of(found, column, row)]
        for place, column in enumerate(columns):
            if told[place]:
                given = row.published[place] if place < len(row.published) else None
                cells.append(NOTHING if given is None else f"{given:g}")
            cells.append(figure(found, column, row))
        cells.append(provenance.commits_of(runs_of_row) or NOTHING)
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
        kind = "" if row.method is None else provenance.kind_of(row.method)
        used[row.title] = [(kind, run) for run in runs_of_row]
    return "\n".join([*lines, "", provenance.check_one_code(used, any_commit)])


def runs_of(found: Found, column: Column, row: Row) -> list[Mapping[str, Any]]:
    """Return the runs that a figure is the mean of."""
    return [
        one
        for one in found
        if (one["problem"], one["method"]) == (column.problem, row.method)
        and one["split"] in column.splits
        and column.metric in one  # baselines have no validation cells
    ]


def figure(found: Found, column: Column, row: Row) -> str:
    """The mean over seeds or splits, with their deviation where there are several."""
    values = [float(one[column.metric]) for one in runs_of(found, column, row)]
    if not values:
        return NOTHING
    mean = f"{np.mean(values):.{column.digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {np.std(values, ddof=1):.{column.digits}f} ({len(values)})"


def parse_arguments(about: str) -> argparse.Namespace:
    """What every command takes."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=1, help="of our own models")
    parser.add_argument("--only", nargs="+", help="methods to run; the others are printed as kept")
    parser.add_argument("--print", action="store_true", help="run nothing")
    parser.add_argument("--again", action="store_true", help="run what is kept, too")
    parser.add_argument("--any-commit", action="store_true", help="print runs of different code")
    parser.add_argument("--out", type=Path, default=runs.RESULTS, help="folder of the results")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="for trials")
    given = parser.parse_args()
    given.changed = runs.settings_of(given.set)
    runs.check_trial(given.changed, given.out)
    return given


def run_missing(given: argparse.Namespace, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Run what is missing."""
    if given.print:
        return
    for row in rows:
        if row.method is None or (given.only and row.method not in given.only):
            continue
        asked, seeds = columns[:1] if row.first else columns, row.seeds or given.seeds
        for problem, split, seed in _wanted(asked, min(seeds, given.seeds)):
            found = runs.ensure(
                problem, split, row.method, seed, given.device,
                again=given.again, folder=given.out, **given.changed,
            )  # fmt: skip
            print(
                f"{problem} {split} {row.method} seed {seed}: RMSE "
                f"{found['rmse']:.4f}, {found['seconds']:.0f} s",
                flush=True,
            )


def _wanted(columns: Sequence[Column], seeds: int) -> list[tuple[str, str, int]]:
    """Problem, split and seed of each run, once: columns may show several metrics of one."""
    wanted = [(c.problem, *one) for c in columns for one in _splits_and_seeds(c, seeds)]
    return list(dict.fromkeys(wanted))


def _splits_and_seeds(column: Column, seeds: int) -> list[tuple[str, int]]:
    """Seeds of one split, random splits by their seeds, or all of several."""
    if len(column.splits) == 1:
        return [(column.splits[0], seed) for seed in range(seeds)]
    if column.splits[0].isdigit():
        return [(split, int(split)) for split in column.splits[:seeds]]
    return [(split, 0) for split in column.splits]


def table(about: str, title: str, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Run what is missing, and print."""
    given = parse_arguments(about)
    run_missing(given, columns, rows)
    print()
    found = runs.results(given.out)
    print(format_table(title, columns, rows, found, any_commit=given.any_commit))
