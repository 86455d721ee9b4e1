"""Candidates of recommendations: the cells of members that may be listed, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from exchangeable.arrays.cells import UNKNOWN, Floats, Index, Mask
from exchangeable.completion.inputs import suggest_label
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of, column_of_label
from exchangeable.errors import InputError
from exchangeable.predictors.base import COVERAGE, Predictor, interval_ends
from exchangeable.predictors.best import best_of_members, members_per_read
from exchangeable.predictors.ranking import RankingPredictor

MAX_CANDIDATES = 20_000_000
"""Most cells that are compared for one member."""


@dataclass(frozen=True, eq=False)
class Recommendations:
    """Cells sorted by their means, best first, with 80 % intervals; one member after the other."""

    axis: int
    """The members' axis."""
    cells: Index  # (n, D), codes of members; meaningless on the members' own axis
    mean: Floats  # (n,)
    low: Floats  # (n,)
    high: Floats  # (n,)
    member: Index  # (n,), position among the members asked for

    def columns(self, table: Table, members: pl.Series | None = None) -> dict[str, pl.Series]:
        """Return labels of the other axes, means and both ends of the intervals.

        Labels of ``members`` come first, where many were asked for.
        """
        own = table.axes[self.axis]
        labels = {} if members is None else {own: members.gather(self.member).rename(own)}
        labels |= {
            axis: table.vocabularies[number].decode(self.cells[:, number])
            for number, axis in enumerate(table.axes)
            if number != self.axis
        }
        statistics = zip(table.prediction_columns(), (self.mean, self.low, self.high), strict=True)
        return labels | {name: pl.Series(name, column) for name, column in statistics}

    def take(self, rows: Index) -> Recommendations:
        """Keep some of the cells."""
        mean, low, high = self.mean[rows], self.low[rows], self.high[rows]
        return Recommendations(self.axis, self.cells[rows], mean, low, high, self.member[rows])

    def of_member(self, place: int) -> Recommendations:
        """Return the list of one of the members that were asked for."""
        return self.take(np.flatnonzero(self.member == place))

    def without_diagonal(self, n: int) -> Recommendations:
        """Leave out cells of a member with itself, and keep the first ``n`` of each member."""
        rows = np.flatnonzero(self.cells[:, 0] != self.cells[:, 1])
        member = self.member[rows]  # one after the other
        return self.take(rows[np.arange(len(rows)) - np.searchsorted(member, member) < n])

    @classmethod
    def joined(cls, axis: int, parts: list[Recommendations]) -> Recommendations:
        """Join the lists of several members."""
        columns = zip(*[(p.cells, p.mean, p.low, p.high, p.member) for p in parts], strict=True)
        return cls(axis, *(np.concatenate(column) for column in columns))


@dataclass(frozen=True, eq=False)
class Candidates:
    """The members of other axes whose cells may be listed."""

    axis: int
    """The axis of the members that recommendations are for."""
    choices: tuple[Index, ...]
    """Codes by axis; none on the members' own."""

    @classmethod
    def of(
        cls,
        table: Table,
        axis: int,
        given: Mapping[str, Any],
        among: Any = None,
        exclude: Any = None,
    ) -> Candidates:
        """Take all members of other axes, or the ``given`` ones, ``among`` some, without others."""
        others = {name: number for number, name in enumerate(table.axes) if number != axis}
        unknown = set(given) - set(others)
        if unknown:
            raise InputError(
                f"given must name other axes of {table.axes}, but names {sorted(unknown)}"
            )
        choices = [np.empty(0, np.int64)] * table.order
        listed = _by_axis(table, others, "among", among)
        left_out = _by_axis(table, others, "exclude", exclude)
        for name, number in others.items():
            if name in given:
                codes = table.vocabularies[number].encode(column_of_label(name, given[name]))
                if codes[0] == UNKNOWN:
                    raise InputError(f"{name} must be known, but {given[name]!r} is not")
            else:
                codes = listed.get(name, np.arange(table.shape[number]))
            if name in left_out:
                codes = np.setdiff1d(codes, left_out[name])
            if not len(codes):
                raise InputError(
                    f"a {name} that may be listed is needed, but exclude leaves out all of "
                    f"{'those in among' if name in listed else 'them'}"
                )
            choices[number] = codes
        count = int(np.prod([float(len(choices[number])) for number in others.values()]))
        if count > MAX_CANDIDATES:
            raise InputError(
                f"at most {MAX_CANDIDATES:,} cells can be compared, but there are {count:,}; fix "
                f"members of other axes with given"
            )
        return cls(axis, tuple(choices))

    def __len__(self) -> int:
        """Return the number of cells of each member."""
        return math.prod(len(c) for number, c in enumerate(self.choices) if number != self.axis)

    def cells(self, codes: Index) -> Index:
        """Return the cells of members (B,), one member after the other: (B K, D)."""
        others = [c for number, c in enumerate(self.choices) if number != self.axis]
        grids = np.meshgrid(codes, *others, indexing="ij")
        columns = [grid.ravel() for grid in grids]
        columns.insert(self.axis, columns.pop(0))
        return np.stack(columns, axis=1)

    def find(self, cells: Index) -> tuple[Index, Mask]:
        """Return the position of cells (E, D) among those of their member, and which are there."""
        position = np.zeros(len(cells), dtype=np.int64)
        inside = np.ones(len(cells), dtype=bool)
        for number, codes in enumerate(self.choices):
            if number == self.axis:
                continue
            at = np.searchsorted(codes, cells[:, number]).clip(max=len(codes) - 1)
            inside &= codes[at] == cells[:, number]
            position = position * len(codes) + at
        return position, inside


def find_best(
    predictor: Predictor,
    candidates: Candidates,
    members: Index,
    n: int,
    seen: Callable[[Index], Index] | None,
    bonus: Callable[[Index], Floats] | None = None,
) -> Recommendations:
    """Find the best cells of members (B,), ``UNKNOWN`` for strangers, that they do not have.

    ``seen`` gives the cells that members (B',) have, with places among these on their axis; None:
    what they have is listed too. ``bonus`` gives what is added to the means of cells where they are
    compared.
    """
    axis, parts = candidates.axis, []
    size = members_per_read(len(candidates))
    for start in range(0, len(members), size):
        block = members[start : start + size]
        cells = candidates.cells(block)
        allowed = np.ones((len(block), len(candidates)), dtype=bool)
        if seen is not None:
            own = seen(block)
            position, inside = candidates.find(own)
            allowed[own[inside, axis], position[inside]] = False
        added = None if bonus is None else bonus(cells)
        statistics = interval_ends(COVERAGE)
        best = best_of_members(predictor, cells, allowed, n, *statistics, bonus=added)
        place = start + best.positions // len(candidates)
        mean, low, high = best.columns
        parts.append(Recommendations(axis, cells[best.positions], mean, low, high, place))
    return Recommendations.joined(axis, parts)


def find_best_by_ranker(
    predictor: RankingPredictor, candidates: Candidates, users: Index, n: int, *, unseen: bool
) -> Recommendations:
    """Find the likeliest items of users (B,), with ``unseen`` among those they do not have."""
    return Recommendations.joined(0, list(_rank_blocks(predictor, candidates, users, n, unseen)))


def _rank_blocks(
    predictor: RankingPredictor, candidates: Candidates, members: Index, n: int, unseen: bool
) -> Iterator[Recommendations]:
    """Rank items for blocks of users."""
    start, low_end, high_end = 0, *interval_ends(COVERAGE)
    for items, chances in predictor.best(members, n, candidates.choices[1], unseen=unseen):
        place, column = np.nonzero(items != UNKNOWN)
        chosen, mean = items[place, column], chances[place, column]
        cells = np.stack([members[start + place], chosen], axis=1)
        likely = predictor.distribution(mean)
        low, high = (end(likely).numpy() for end in (low_end, high_end))
        yield Recommendations(0, cells, mean, low, high, start + place)
        start += len(items)


def _by_axis(
    table: Table, others: Mapping[str, int], argument: str, labels: Any
) -> dict[str, Index]:
    """Codes of the labels of other axes: a list for the only one, or a mapping by axis."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        if len(others) != 1:
            raise InputError(
                f"{argument} must be a mapping from {', '.join(others)} to labels, but is a "
                f"{type(labels).__name__}"
            )
        labels = {next(iter(others)): labels}
    codes = {}
    for name, column in labels.items():
        if name not in others:
            raise InputError(f"{argument} must name other axes of {table.axes}, but names {name!r}")
        if isinstance(column, str | bytes) or not hasattr(column, "__len__"):
            raise InputError(f"{argument} must be labels of {name}, but is {column!r}")
        own = column_of(name, column)
        found = table.vocabularies[others[name]].encode(own)
        if (found == UNKNOWN).any():
            label = own[int((found == UNKNOWN).argmax())]
            hint = suggest_label(table.vocabularies[others[name]], label)
            raise InputError(
                f"{argument} must be of known {name}, but {label!r} is not known{hint}"
            )
        codes[name] = np.unique(found)
    return codes
