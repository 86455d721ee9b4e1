"""Splits of the cells of a table into parts, each a pure function of table and seed.

Cells are given by their position among the observed ones. The parts of a ``Split`` are
disjoint and cover the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from exchangeable.errors import InputError, option

if TYPE_CHECKING:
    from exchangeable.data.table import Table

Positions = NDArray[np.int64]


def _no_cells() -> Positions:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of cells, ascending in each part."""

    train: Positions
    """Cells that a model is fitted on."""
    test: Positions
    """Cells that it is evaluated on."""
    validation: Positions = field(default_factory=_no_cells)
    """Cells that choices are made on."""
    shown: Positions = field(default_factory=_no_cells)
    """Cells of new members that are observed when their other cells are predicted."""
    unused: Positions = field(default_factory=_no_cells)
    """Cells that would connect new members to others, where several axes are new."""

    def parts(self) -> dict[str, Positions]:
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(part):,}" for name, part in self.parts().items())
        return f"Split({sizes})"


def by_share(table: Sized, *, test: float = 0.1, validation: float = 0.05, seed: int = 0) -> Split:
    """Hold out cells at random: a share for testing, and a share of the others for validation."""
    _check_shares(test=test, validation=validation)
    permutation = _generator(seed).permutation(len(table))
    held_out = round(test * len(table))
    rest = _hold_out_validation(permutation[held_out:], validation)
    return _sorted_split(test=permutation[:held_out], **rest)


def share_of_each(table: Table, *, test: float = 0.2, seed: int = 0) -> Split:
    """Hold out a share of the cells of each member of the first axis, rounded down."""
    _check_shares(test=test)
    member = table.index[table.is_observed][:, 0]
    permutation = np.lexsort((_generator(seed).random(len(member)), member))
    sizes = np.bincount(member, minlength=table.shape[0])
    rank = np.arange(len(member)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    held = rank < np.repeat(np.floor(test * sizes), sizes)
    return _sorted_split(test=permutation[held], train=permutation[~held])


def new_members(
    table: Table,
    axes: Sequence[int] = (0,),
    *,
    members: float = 0.2,
    shown: float = 0.5,
    validation: float = 0.0,
    seed: int = 0,
) -> Split:
    """Hold out a share of the members of each of ``axes``: training sees no cell of theirs.

    Of every new member's cells the share ``shown`` is observed at test time and the rest are
    predicted. With several axes the test table holds the cells whose members on all of them are
    new, so that it shares none with training; cells in between are unused. Its cells are then
    shown by the first of the axes.
    """
    _check_shares(members=members, shown=shown, validation=validation)
    if isinstance(axes, int):
        axes = (axes,)
    axes = tuple(axes)
    if not axes or len(set(axes)) != len(axes) or not set(axes) <= set(range(table.order)):
        raise InputError(f"axes must be some of 0 to {table.order - 1}, but are {tuple(axes)}")
    generator = _generator(seed)
    index = table.index[table.is_observed]
    new = np.zeros((len(axes), len(index)), dtype=bool)
    for row, axis in enumerate(axes):
        is_new = np.zeros(table.shape[axis], dtype=bool)
        permutation = generator.permutation(table.shape[axis])
        is_new[permutation[: round(members * table.shape[axis])]] = True
        new[row] = is_new[index[:, axis]]
    inside, outside = np.flatnonzero(new.all(axis=0)), np.flatnonzero(~new.any(axis=0))
    unused = np.flatnonzero(new.any(axis=0) & ~new.all(axis=0))
    visible = _draw_share_of_each(index[inside, axes[0]], shown, generator)
    return _sorted_split(
        test=inside[~visible],
        shown=inside[visible],
        unused=unused,
        **_hold_out_validation(generator.permutation(outside), validation),
    )


def by_time(table: Table, *, test: float = 0.1, validation: float = 0.0) -> Split:
    """Hold out the latest cells for testing, those before for validation. Ties stay as stored."""
    _check_shares(test=test, validation=validation)
    if table.times is None:
        raise InputError(
            f"a split by time needs a time column, but the table has none; {option('time')} "
            f"names it"
        )
    times = table.times[table.is_observed]
    if np.isnan(times).any():
        missing = int(np.isnan(times).argmax())
        raise InputError(
            f"a split by time needs a time for every cell, but cell {missing} has none"
        )
    cells = np.argsort(times, kind="stable")
    before_test = len(cells) - round(test * len(cells))
    trained = before_test - round(validation * before_test)
    return _sorted_split(
        train=cells[:trained], validation=cells[trained:before_test], test=cells[before_test:]
    )


def k_fold(table: Sized, folds: int = 5, *, validation: float = 0.0, seed: int = 0) -> list[Split]:
    """Divide cells at random into ``folds`` parts of nearly equal size, each once the test part."""
    if not 2 <= folds <= len(table):
        raise InputError(f"folds must be between 2 and {len(table)} cells, but are {folds}")
    _check_shares(validation=validation)
    parts = np.array_split(_generator(seed).permutation(len(table)), folds)
    return [
        _sorted_split(
            test=part,
            **_hold_out_validation(np.concatenate([p for p in parts if p is not part]), validation),
        )
        for part in parts
    ]


def by_position(
    table: Table, test: Sequence[int] | Positions, *, validation: float = 0.0, seed: int = 0
) -> Split:
    """Hold out fixed test cells, as publishers give them; the others are for training."""
    positions = np.asarray(test)
    if positions.ndim != 1 or (positions.size and positions.dtype.kind not in "iu"):
        raise InputError(
            f"positions must be a list of whole numbers, but are {positions.dtype} of shape "
            f"{positions.shape}"
        )
    positions = positions.astype(np.int64)
    if len(positions) and not (positions.min() >= 0 and positions.max() < len(table)):
        raise InputError(
            f"positions must be between 0 and {len(table) - 1}, but go from {positions.min()} to "
            f"{positions.max()}"
        )
    if len(np.unique(positions)) != len(positions):
        raise InputError("every cell may be in the test part once, but some positions repeat")
    _check_shares(validation=validation)
    rest = _generator(seed).permutation(np.setdiff1d(np.arange(len(table)), positions))
    return _sorted_split(test=positions, **_hold_out_validation(rest, validation))


def split_by_name(
    table: Table, published: Mapping[str, Split], name: str, test: float, seed: int
) -> Split:
    """Return a published split, or make one of the splits that have a name."""
    if name in published:
        return published[name]
    last = table.order - 1
    makers: dict[str, Callable[[], Split]] = {
        "random": lambda: by_share(table, test=test, validation=0.0, seed=seed),
        "new-rows": lambda: new_members(table, (0,), members=test, seed=seed),
        "new-columns": lambda: new_members(table, (last,), members=test, seed=seed),
        "new-both": lambda: new_members(table, (0, last), members=test, seed=seed),
        "time": lambda: by_time(table, test=test),
    }
    if name not in makers:
        names = ", ".join([*published, *makers])
        raise InputError(f"split must be one of {names}, but is {name!r}")
    split = makers[name]()
    if not len(split.test) or not len(split.train):
        raise InputError(f"split {name!r} leaves nothing to train on or to test: {split}")
    return split


def _hold_out_validation(rest: Positions, share: float) -> dict[str, Positions]:
    """Take the first of permuted cells for validation, the others for training."""
    held_out = round(share * len(rest))
    return {"validation": rest[:held_out], "train": rest[held_out:]}


def _draw_share_of_each(
    member: Positions, share: float, generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw a share of each member's cells, rounded at random so that it is right on average."""
    permutation = np.lexsort((generator.random(len(member)), member))
    changes = np.r_[True, np.diff(member[permutation]) != 0][: len(member)]
    starts = np.flatnonzero(changes)
    sizes = np.diff(np.r_[starts, len(member)]).astype(np.int64)
    rank = np.arange(len(member)) - np.repeat(starts, sizes)
    counts = np.floor(share * sizes + generator.random(len(sizes)))
    drawn = np.zeros(len(member), dtype=bool)
    drawn[permutation] = rank < np.repeat(counts, sizes)
    return drawn


def _sorted_split(**parts: Positions) -> Split:
    return Split(**{name: np.sort(part).astype(np.int64) for name, part in parts.items()})


def _generator(seed: int) -> np.random.Generator:
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number of 0 or more, but is {seed!r}")
    return np.random.default_rng(seed)


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise InputError(f"{name} must be a share in [0, 1), but is {share}")
