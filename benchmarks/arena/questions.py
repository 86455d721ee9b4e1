"""The questions: which cells of a table are hidden, by name; the same for every method.

Every draw is by a generator of the seed, the question and nothing else, and a run keeps the digest
of its problem.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from benchmarks.arena.problem import Column, Mask, Problem
from benchmarks.arena.tables import Entry, TableArrays
from benchmarks.peers.positives import split_by_user

TEST = 0.1
"""Share of the cells that ``cells`` hides."""
VALIDATION = 0.1
"""Share of the cells that are read on which settings are chosen."""
ENOUGH_CELLS, ENOUGH_MEMBERS, MAX_DRAWS = 500, 100, 5
"""Settings are chosen on several draws of validation cells, or members, where one is smaller.

With 300 cells shown one draw has 30, and which of ten settings does best on these is chance.
"""
NEW = 0.2
"""Share of the members that are new where some are."""
MAX_TEST, MAX_VALIDATION = 50_000, 50_000
"""Cells beyond which further ones would say little."""
MIN_SHOWN = 300
"""Cells that must be shown at least."""
MAX_LISTS = 10_000
"""Users whose lists are compared."""


@dataclass(frozen=True)
class Question:
    """A way to hide cells."""

    title: str
    asks: Callable[[Entry], bool]
    """Whether it is asked about a table."""
    hide: Callable[[TableArrays, np.random.Generator], Problem | None]
    """The problem; None if too few cells would be left."""


def problem_of(name: str, table: TableArrays, entry: Entry, seed: int) -> Problem | None:
    """Hide cells of a table."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if name == "positives":
        return hide_positives(table, entry.least, seed)
    return QUESTIONS[name].hide(table, rng)


def assemble(
    table: TableArrays, shown: Mask, tested: Mask, rng: np.random.Generator, *, every: bool = False
) -> Problem:
    """Make the problem of cells that are shown and cells that are tested, a sample of many."""
    positions, queries = np.flatnonzero(shown), np.flatnonzero(tested)
    if len(queries) > MAX_TEST and not every:
        queries = np.sort(rng.choice(queries, MAX_TEST, replace=False))
    validation = draw_cells(len(positions), rng)
    return Problem(
        table.kind,
        table.shape,
        table.levels,
        table.index[positions],
        table.values[positions],
        validation,
        table.index[queries],
        truth=table.values[queries],
    )


def draws_for(number: int, enough: int) -> int:
    """Number of draws of so many by which there are enough."""
    return min(-(-enough // number), MAX_DRAWS)


def draw_cells(cells: int, rng: np.random.Generator) -> Mask:
    """Draw validation cells, none twice: (V, E)."""
    number = min(max(int(VALIDATION * cells), 1), MAX_VALIDATION)
    draws = min(draws_for(number, ENOUGH_CELLS), cells // number)
    chosen = rng.choice(cells, draws * number, replace=False).reshape(draws, number)
    validation = np.zeros((draws, cells), dtype=bool)
    np.put_along_axis(validation, chosen, True, axis=1)
    return validation


def draw_members(column: Column, members: Column, rng: np.random.Generator) -> Mask:
    """Draw members, none twice, and mark the cells of each draw: (V, E).

    Each draw is of the share of the members that is new in the question.
    """
    number = max(1, round(NEW * len(members)))
    draws = min(draws_for(number, ENOUGH_MEMBERS), len(members) // number)
    chosen = rng.choice(members, draws * number, replace=False).reshape(draws, number)
    return np.stack([np.isin(column, some) for some in chosen])


def hide_cells(share: float) -> Callable[[TableArrays, np.random.Generator], Problem]:
    """Hide a share of the cells at random."""

    def hide(table: TableArrays, rng: np.random.Generator) -> Problem:
        tested = np.zeros(len(table.values), dtype=bool)
        tested[rng.permutation(len(tested))[: round(share * len(tested))]] = True
        return assemble(table, ~tested, tested, rng)

    return hide


def show_cells(
    share: float, *, every: bool = False
) -> Callable[[TableArrays, np.random.Generator], Problem | None]:
    """Show a share of the cells, drawn at random, and hide all others."""

    def hide(table: TableArrays, rng: np.random.Generator) -> Problem | None:
        number = round(share * len(table.values))
        if number < MIN_SHOWN:
            return None
        shown = np.zeros(len(table.values), dtype=bool)
        shown[rng.permutation(len(shown))[:number]] = True
        return assemble(table, shown, ~shown, rng, every=every)

    return hide


def new_members(table: TableArrays, axis: int, rng: np.random.Generator) -> Mask:
    """Mark the cells of a share of the members that have some."""
    members = np.unique(table.index[:, axis])
    new = rng.choice(members, max(1, round(NEW * len(members))), replace=False)
    return np.isin(table.index[:, axis], new)


def hide_rows(share: float) -> Callable[[TableArrays, np.random.Generator], Problem]:
    """Show a share of the cells of new rows, and all cells of others.

    Validation does the same with rows that are not new: what is best for cells of complete rows
    is not what is best for those of rows with few.
    """

    def hide(table: TableArrays, rng: np.random.Generator) -> Problem:
        new = new_members(table, 0, rng)
        tested = new & (rng.random(len(new)) >= share)
        problem = assemble(table, ~tested, tested, rng)
        known = np.setdiff1d(table.index[:, 0], table.index[new, 0])
        drawn = draw_members(problem.index[:, 0], known, rng)
        return replace(problem, validation=drawn & (rng.random(drawn.shape) >= share))

    return hide


def hide_members(axis: int) -> Callable[[TableArrays, np.random.Generator], Problem]:
    """Show no cell of some members, which have features; validation hides members likewise."""

    def hide(table: TableArrays, rng: np.random.Generator) -> Problem:
        tested = new_members(table, axis, rng)
        problem = assemble(table, ~tested, tested, rng)
        column = problem.index[:, axis]
        return replace(
            problem,
            validation=draw_members(column, np.unique(column), rng),
            features=dict(table.features),
        )

    return hide


def hide_published(name: str) -> Callable[[TableArrays, np.random.Generator], Problem]:
    """Hide the test cells that come with a table."""

    def hide(table: TableArrays, rng: np.random.Generator) -> Problem:
        tested = np.zeros(len(table.values), dtype=bool)
        tested[table.splits[name].test] = True
        return assemble(table, ~tested, tested, rng)

    return hide


def hide_positives(table: TableArrays, least: float, seed: int) -> Problem:
    """Hide a fifth of the positives of each user, or those of the published split.

    Queries are pairs here; methods are asked for the users of these, and rank all unseen items.
    """
    if "published" in table.splits:
        test = table.splits["published"].test
        held_out = table.index[test]
        train = np.delete(table.index, test, axis=0)
    else:
        train, held_out = split_by_user(table.index[table.values >= least], seed)
    users = np.unique(held_out[:, 0])
    if len(users) > MAX_LISTS:
        users = np.random.default_rng(seed).choice(users, MAX_LISTS, replace=False)
        held_out = held_out[np.isin(held_out[:, 0], users)]
    return Problem(
        "positives",
        table.shape,
        np.array([1.0]),
        train,
        np.ones(len(train)),
        np.zeros((0, len(train)), dtype=bool),  # rankers hide a fifth of each user themselves
        held_out,
        truth=np.ones(len(held_out)),
    )


def has_values(entry: Entry) -> bool:
    return entry.kind != "positives"


def is_matrix(entry: Entry) -> bool:
    return has_values(entry) and entry.order == 2


def is_tensor(entry: Entry) -> bool:
    return entry.kind == "values" and entry.order == 3


def has_lists(entry: Entry) -> bool:
    return entry.order == 2 and (entry.kind == "positives" or entry.least > 0)


QUESTIONS: Mapping[str, Question] = {
    "cells": Question("a tenth of the cells hidden", has_values, hide_cells(TEST)),
    **{
        f"shown-{percent}": Question(
            f"{percent} % of the cells shown", is_matrix, show_cells(percent / 100)
        )
        for percent in (1, 3, 10, 30)
    },
    **{
        f"rows-{percent}": Question(
            f"new rows with {percent} % of their cells", is_matrix, hide_rows(percent / 100)
        )
        for percent in (10, 50)
    },
    **{
        f"features-{axis}": Question(
            f"new {name} by features alone",
            lambda entry, axis=axis: axis in entry.features,
            hide_members(axis),
        )
        for axis, name in enumerate(("rows", "columns"))
    },
    "positives": Question("lists of unseen items", has_lists, lambda table, rng: None),
    **{
        f"missing-{percent}": Question(
            f"{percent} % of a tensor missing", is_tensor, hide_cells(percent / 100)
        )
        for percent in (40, 60)
    },
    "random": Question(
        "ratings of items drawn at random",
        lambda entry: getattr(entry.load, "args", ("",))[0] == "coat",
        hide_published("random"),
    ),
    "accuracy": Question(
        "accuracy of every row from 5 % of the cells",
        lambda entry: entry.kind == "binary" and entry.order == 2,
        show_cells(0.05, every=True),
    ),
}
"""``positives`` takes pairs from values, and so is hidden apart."""


def asked(tables: Mapping[str, Entry], names: set[str] | None = None) -> Iterator[tuple[str, str]]:
    """All pairs of a table and a question, small tables first."""
    ordered = sorted(tables, key=lambda name: tables[name].large)
    for name in ordered:
        for question, about in QUESTIONS.items():
            if (names is None or question in names) and about.asks(tables[name]):
                yield name, question


def share_shown(question: str) -> float | None:
    """The share of cells that a question shows; None of questions of another kind."""
    found = re.fullmatch(r"shown-(\d+)", question)
    return int(found[1]) / 100 if found else 1 - TEST if question == "cells" else None
