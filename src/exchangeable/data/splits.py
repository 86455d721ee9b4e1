"""Who is held out: ways to part the cells of a table, each a pure function of table and seed.

Cells are named by their position among the observed ones. The parts of a ``Split`` are
disjoint and cover the table.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from exchangeable.errors import InputError

if TYPE_CHECKING:
    from exchangeable.data.table import Table

Positions = NDArray[np.int64]


def _nothing() -> Positions:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of cells, ascending in each part."""

    train: Positions
    """What a model is fitted on."""
    test: Positions
    """What it is judged on."""
    validation: Positions = field(default_factory=_nothing)
    """What choices are made on."""
    shown: Positions = field(default_factory=_nothing)
    """Cells of new members that are observed when their other cells are asked for."""
    unused: Positions = field(default_factory=_nothing)
    """Cells that would tie new members to known ones, where both axes are to be new."""

    def parts(self) -> dict[str, Positions]:
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(part):,}" for name, part in self.parts().items())
        return f"Split({sizes})"


def by_share(table: Sized, *, test: float = 0.1, validation: float = 0.05, seed: int = 0) -> Split:
    """Cells at random: a share for testing, and a share of the others for validation."""
    _check_shares(test=test, validation=validation)
    order = _generator(seed).permutation(len(table))
    held = round(test * len(table))
    return _sorted(test=order[:held], **_with_validation(order[held:], validation))


def new_members(
    table: Table,
    axes: Sequence[int] = (0,),
    *,
    members: float = 0.2,
    shown: float = 0.5,
    validation: float = 0.0,
    seed: int = 0,
) -> Split:
    """A share of the members of each of ``axes`` is new: training sees no cell of theirs.

    Of every new member's cells the share ``shown`` is observed at test time and the rest are
    asked for. With several axes the test table is that of cells whose members on all of
    them are new, so that it shares none with training; cells in between are unused. Its
    cells are then shown by the first of the axes.
    """
    _check_shares(members=members, shown=shown, validation=validation)
    if isinstance(axes, int):
        axes = (axes,)
    axes = tuple(axes)
    if not axes or len(set(axes)) != len(axes) or not set(axes) <= set(range(table.order)):
        raise InputError(f"axes must be some of 0 to {table.order - 1}, but are {tuple(axes)}")
    generator = _generator(seed)
    index = table.index[~np.isnan(table.values)]
    new = np.zeros((len(axes), len(index)), dtype=bool)
    for number, axis in enumerate(axes):
        chosen = np.zeros(table.shape[axis], dtype=bool)
        order = generator.permutation(table.shape[axis])
        chosen[order[: round(members * table.shape[axis])]] = True
        new[number] = chosen[index[:, axis]]
    inside, outside = np.flatnonzero(new.all(axis=0)), np.flatnonzero(~new.any(axis=0))
    unused = np.flatnonzero(new.any(axis=0) & ~new.all(axis=0))
    visible = _share_of_each(index[inside, axes[0]], shown, generator)
    return _sorted(
        test=inside[~visible],
        shown=inside[visible],
        unused=unused,
        **_with_validation(generator.permutation(outside), validation),
    )


def by_time(table: Table, *, test: float = 0.1, validation: float = 0.0) -> Split:
    """The latest cells are for testing, those before them for validation. Ties keep their order."""
    _check_shares(test=test, validation=validation)
    if table.times is None:
        raise InputError(
            "a split by time needs a time column, but the table has none; time (--time) names it"
        )
    times = table.times[~np.isnan(table.values)]
    if np.isnan(times).any():
        missing = int(np.isnan(times).argmax())
        raise InputError(
            f"a split by time needs a time for every cell, but cell {missing} has none"
        )
    order = np.argsort(times, kind="stable")
    held = len(order) - round(test * len(order))
    cut = held - round(validation * held)
    return _sorted(train=order[:cut], validation=order[cut:held], test=order[held:])


def k_fold(table: Sized, folds: int = 5, *, validation: float = 0.0, seed: int = 0) -> list[Split]:
    """Cells at random in ``folds`` parts of nearly equal size, each once the test part."""
    if not 2 <= folds <= len(table):
        raise InputError(f"folds must be between 2 and {len(table)} cells, but are {folds}")
    _check_shares(validation=validation)
    order = _generator(seed).permutation(len(table))
    parts = np.array_split(order, folds)
    return [
        _sorted(
            test=part,
            **_with_validation(np.concatenate([p for p in parts if p is not part]), validation),
        )
        for part in parts
    ]


def by_position(
    table: Table, test: Sequence[int] | Positions, *, validation: float = 0.0, seed: int = 0
) -> Split:
    """Fixed test cells, as publishers give them; the others are for training."""
    given = np.asarray(test)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise InputError(
            f"positions must be a list of whole numbers, but are {given.dtype} of shape "
            f"{given.shape}"
        )
    held = given.astype(np.int64)
    if len(held) and not (held.min() >= 0 and held.max() < len(table)):
        raise InputError(
            f"positions must be between 0 and {len(table) - 1}, but go from {held.min()} to "
            f"{held.max()}"
        )
    if len(np.unique(held)) != len(held):
        raise InputError("every cell may be in the test part once, but some positions repeat")
    _check_shares(validation=validation)
    rest = np.setdiff1d(np.arange(len(table)), held)
    generator = _generator(seed)
    return _sorted(test=held, **_with_validation(generator.permutation(rest), validation))


def _with_validation(rest: Positions, share: float) -> dict[str, Positions]:
    """The first cells of a random order for validation, the others for training."""
    held = round(share * len(rest))
    return {"validation": rest[:held], "train": rest[held:]}


def _share_of_each(
    member: Positions, share: float, generator: np.random.Generator
) -> NDArray[np.bool_]:
    """A random share of each member's cells, rounded by chance so that it is right on average."""
    order = np.lexsort((generator.random(len(member)), member))
    changes = np.r_[True, np.diff(member[order]) != 0][: len(member)]
    starts = np.flatnonzero(changes)
    sizes = np.diff(np.r_[starts, len(member)]).astype(np.int64)
    rank = np.arange(len(member)) - np.repeat(starts, sizes)
    wanted = np.floor(share * sizes + generator.random(len(sizes)))
    chosen = np.zeros(len(member), dtype=bool)
    chosen[order] = rank < np.repeat(wanted, sizes)
    return chosen


def _sorted(**parts: Positions) -> Split:
    return Split(**{name: np.sort(part).astype(np.int64) for name, part in parts.items()})


def _generator(seed: int) -> np.random.Generator:
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number of 0 or more, but is {seed!r}")
    return np.random.default_rng(seed)


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise InputError(f"{name} must be a share in [0, 1), but is {share}")
